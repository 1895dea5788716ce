// SPDX-License-Identifier: Apache-2.0
// The data of a collective, moved for real: every rank lays a piece of its part into its slot,
// all meet, every rank takes what it needs, all meet again.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fakegpu.h"
#include "kernels/reduce.h"
#include "nccl_private.h"

#define LINK_SLOWNESS 8

void nccl_fail(ncclComm_t comm, ncclResult_t r, const char *format, ...) {
    int none = 0;
    va_list args;
    va_start(args, format);
    vsnprintf(comm->text, sizeof(comm->text), format, args);
    va_end(args);
    if (atomic_compare_exchange_strong(&comm->room->failed, &none, (int)r)) {
        snprintf(comm->room->text, sizeof(comm->room->text), "%s", comm->text);
        atomic_store(&comm->room->failed_rank, comm->rank + 1);
    }
    atomic_store(&comm->error, (int)r);
}

size_t nccl_type_bytes(ncclDataType_t type) {
    switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        return 0;
    }
}

static bool going(const struct ncclComm *c) {
    return !atomic_load(&c->aborted) && atomic_load(&c->error) == 0 &&
           atomic_load(&c->room->failed) == 0;
}

static void pause_a_little(void) {
    const struct timespec t = {.tv_nsec = 20000};
    nanosleep(&t, NULL);
}

// False when the communicator failed or was aborted meanwhile.
static bool meet(ncclComm_t c) {
    uint64_t until = ++c->barriers * (uint64_t)c->size;
    atomic_fetch_add(&c->room->arrived, 1);
    while (atomic_load(&c->room->arrived) < until && going(c))
        pause_a_little();
    return going(c);
}

static const char *const kinds[] = {"all_gather", "reduce_scatter", "all_reduce", "broadcast",
                                    "reduce",     "send",           "receive"};

// Every rank must be about to do the same.
static bool agree(const struct nccl_call *c) {
    struct room *room = c->comm->room;
    struct room_call mine = {.kind = (int)c->kind,
                             .type = (int)c->type,
                             .count = c->count,
                             .operation = (int)c->operation,
                             .root = c->root};
    room->calls[c->comm->rank] = mine;
    if (!meet(c->comm))
        return false;
    for (int q = 0; q < c->comm->size; q++) {
        const struct room_call *other = &room->calls[q];
        if (other->kind == mine.kind && other->type == mine.type && other->count == mine.count &&
            other->operation == mine.operation && other->root == mine.root)
            continue;
        nccl_fail(c->comm, ncclInvalidUsage,
                  "mismatch: rank %d does %s of %zu elements of type %d, operation %d, root %d; "
                  "rank %d does %s of %zu of type %d, operation %d, root %d",
                  c->comm->rank, kinds[mine.kind], (size_t)mine.count, mine.type, mine.operation,
                  mine.root, q, kinds[other->kind], (size_t)other->count, other->type,
                  other->operation, other->root);
        return false;
    }
    return true;
}

// The time that the link takes for what this rank sends, the injected slowness included.
static void take_time(const struct ncclComm *c, double bytes, int peer) {
    const char *rate = getenv("FAKENCCL_RATE");
    double factor = 1, with;
    if (rate == NULL)
        return;
    for (int q = 0; q < c->size; q++) // a collective is as slow as the slowest
        if ((peer < 0 || q == peer || q == c->rank) && fakegpu_fault("nccl_slow", q, &with))
            factor = with > factor ? with : factor;
    if (peer >= 0 && ((fakegpu_fault("nccl_link", c->rank, &with) && (int)with == peer) ||
                      (fakegpu_fault("nccl_link", peer, &with) && (int)with == c->rank)))
        factor = LINK_SLOWNESS;
    fakegpu_sleep(bytes * factor / atof(rate));
}

// What a ring sends per rank for `count` elements of the call.
static double sent_bytes(const struct nccl_call *c) {
    double n = c->comm->size, bytes = (double)(c->count * nccl_type_bytes(c->type));
    switch (c->kind) {
    case ALL_GATHER:
    case REDUCE_SCATTER:
        return bytes * (n - 1);
    case ALL_REDUCE:
        return 2 * bytes * (n - 1) / n;
    default:
        return n > 1 ? bytes : 0;
    }
}

static bool pattern_of(ncclDataType_t type, enum pattern_type *out) {
    *out = type == ncclFloat32    ? PATTERN_FP32
           : type == ncclBfloat16 ? PATTERN_BF16
           : type == ncclFloat16  ? PATTERN_FP16
                                  : PATTERN_INT8;
    return type == ncclFloat32 || type == ncclBfloat16 || type == ncclFloat16 || type == ncclInt8;
}

// Sum over all ranks of `bytes` at `at` in their slots.
static void add_up(const struct nccl_call *c, void *to, size_t at, size_t bytes) {
    enum pattern_type type;
    pattern_of(c->type, &type);
    _Alignas(16) static _Thread_local unsigned char sum[ROOM_SLOT_BYTES];
    memcpy(sum, c->comm->room->slots[0] + at, bytes);
    for (int q = 1; q < c->comm->size; q++)
        reduce_sum(type, sum, c->comm->room->slots[q] + at, bytes / nccl_type_bytes(c->type));
    memcpy(to, sum, bytes);
}

// By device of this process, for NVML's double. What the ring would send, whatever the room moves.
static _Atomic uint64_t sent_by_device[FAKEGPU_DEVICES_MAX];

uint64_t fakenccl_sent_bytes(int device) {
    return atomic_load(&sent_by_device[device]);
}

static void count_sent(const struct ncclComm *c, double bytes) {
    atomic_fetch_add(&sent_by_device[c->device], (uint64_t)bytes);
}

// Bytes [from, from + bytes) of each of the parts that the call names.
struct piece {
    size_t whole, from, bytes;
};

static void give(const struct nccl_call *c, const struct piece *p) {
    unsigned char *slot = c->comm->room->slots[c->comm->rank];
    const unsigned char *send = c->send;
    if (c->kind == BROADCAST && c->comm->rank != c->root)
        return;
    if (c->kind != REDUCE_SCATTER) {
        memcpy(slot, send + p->from, p->bytes);
        return;
    }
    for (int q = 0; q < c->comm->size; q++)
        memcpy(slot + (size_t)q * p->bytes, send + (size_t)q * p->whole + p->from, p->bytes);
}

static void take(const struct nccl_call *c, const struct piece *p) {
    struct room *room = c->comm->room;
    unsigned char *to = (unsigned char *)c->receive + p->from;
    switch (c->kind) {
    case ALL_GATHER:
        for (int q = 0; q < c->comm->size; q++)
            memcpy(to + (size_t)q * p->whole, room->slots[q], p->bytes);
        break;
    case REDUCE_SCATTER:
        add_up(c, to, (size_t)c->comm->rank * p->bytes, p->bytes);
        break;
    case BROADCAST:
        memcpy(to, room->slots[c->root], p->bytes);
        break;
    case REDUCE:
        if (c->comm->rank == c->root)
            add_up(c, to, 0, p->bytes);
        break;
    default:
        add_up(c, to, 0, p->bytes);
    }
}

static bool struck(const struct ncclComm *c, const char *fault) {
    double nth;
    return fakegpu_fault(fault, c->rank, &nth) && (uint64_t)nth == c->operations;
}

// False: this rank does no more of the operation.
static bool survive(ncclComm_t c, bool begun) {
    if (struck(c, "nccl_hang")) {
        while (!atomic_load(&c->aborted))
            pause_a_little();
        return false;
    }
    if (begun && struck(c, "nccl_error")) {
        nccl_fail(c, ncclSystemError, "injected: connection closed by peer");
        return false;
    }
    return true;
}

void nccl_run_collective(const struct nccl_call *c) {
    ncclComm_t comm = c->comm;
    size_t whole = c->count * nccl_type_bytes(c->type);
    size_t most = ROOM_SLOT_BYTES / (c->kind == REDUCE_SCATTER ? ROOM_RANKS : 1);
    comm->operations++;
    if (!survive(comm, false) || !agree(c))
        return;
    for (size_t from = 0; from < whole; from += most) {
        struct piece p = {whole, from, whole - from < most ? whole - from : most};
        give(c, &p);
        if (!meet(comm))
            return;
        take(c, &p);
        if (!survive(comm, true) || !meet(comm))
            return;
    }
    if (struck(comm, "nccl_wrong") && whole > 0)
        ((unsigned char *)c->receive)[0] ^= 1;
    count_sent(comm, sent_bytes(c));
    take_time(comm, sent_bytes(c), -1);
}

// Moves what the channel has room for; *done is what has moved.
static bool advance(const struct nccl_call *c, size_t *done) {
    ncclComm_t comm = c->comm;
    size_t whole = c->count * nccl_type_bytes(c->type), left = whole - *done;
    size_t bytes = left < ROOM_CHANNEL_BYTES ? left : ROOM_CHANNEL_BYTES;
    bool send = c->kind == SEND;
    struct room_channel *ch = send ? &comm->room->channels[comm->rank][c->root]
                                   : &comm->room->channels[c->root][comm->rank];
    bool full = atomic_load(&ch->produced) > atomic_load(&ch->consumed);
    if (full == send)
        return false;
    if (send) {
        memcpy(ch->data, (const unsigned char *)c->send + *done, bytes);
        atomic_fetch_add(&ch->produced, 1);
    } else {
        memcpy((unsigned char *)c->receive + *done, ch->data, bytes);
        atomic_fetch_add(&ch->consumed, 1);
    }
    *done += bytes;
    return true;
}

static void finish_call(const struct nccl_call *c) {
    double bytes = (double)(c->count * nccl_type_bytes(c->type));
    if (c->kind == SEND) {
        count_sent(c->comm, bytes);
        take_time(c->comm, bytes, c->root);
    } else if (struck(c->comm, "nccl_wrong") && bytes > 0) {
        ((unsigned char *)c->receive)[0] ^= 1;
    }
}

void nccl_run_exchange(const struct nccl_call *calls, size_t count) {
    ncclComm_t comm = calls[0].comm;
    size_t *done = calloc(count, sizeof(*done)), left = count;
    bool *finished = calloc(count, sizeof(*finished));
    if (done == NULL || finished == NULL)
        abort();
    comm->operations++;
    bool ok = survive(comm, false);
    while (ok && left > 0) {
        bool moved = false;
        for (size_t i = 0; i < count; i++) {
            if (finished[i] || !advance(&calls[i], &done[i]))
                continue;
            moved = true;
            finished[i] = done[i] >= calls[i].count * nccl_type_bytes(calls[i].type);
            left -= finished[i];
            if (finished[i])
                finish_call(&calls[i]);
        }
        if (!moved)
            pause_a_little();
        ok = going(comm) && survive(comm, true);
    }
    free(done);
    free(finished);
}
