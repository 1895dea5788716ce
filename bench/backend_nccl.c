// SPDX-License-Identifier: Apache-2.0
#include "bench/backend_nccl.h"

#include <math.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "bench/gpu_contents.h"
#include "bench/gpu_lane.h"
#include "bench/groups.h"
#include "bench/nccl_comms.h"
#include "bench/nccl_log.h"
#include "bench/pieces.h"
#include "bench/wire.h"

#define PCI_ID_BYTES 32
#define CUDA_STEP 1000 // CUDART_VERSION of 13.1 is 13010

struct buffers {
    char *send, *receive; // where this GPU's operation reads and writes
    void *send_base, *receive_base;
};

struct nccl_state {
    const struct ranks *ranks;
    struct arena *arena;
    struct nccl_comms comms;
    struct gpu_lane *lanes; // of each member of comms
    struct buffers *buffers;
    size_t lanes_open;
    const struct bench_point *point;
    enum pattern_type type;
    ncclDataType_t element;
    uint64_t chunk; // elements of one rank's part
    uint32_t *list; // scratch: a group's members
    struct nccl_log log;
    struct wire wire;
    const char *software;
    bool shared;       // several ranks on one GPU
    bool lost;         // a stream may never end: nothing of CUDA is given back
    struct err why;    // it was lost
    double wire_bytes; // since prepare, by this process's counters; NAN: not counted
    uint64_t sampled;  // iterations behind it
};

static bool is_part(const struct nccl_state *s, size_t i) {
    const struct nccl_member *m = &s->comms.members[i];
    return m->comm != NULL && groups_of(s->point, s->comms.all, m->number) != GROUPS_NONE;
}

static bool count_devices(struct nccl_state *s, const struct backend_config *c, int *devices,
                          struct err *e) {
    if (!gpu_lane_devices(devices, e))
        return false;
    if (c->devices > (uint64_t)*devices)
        return err_set(e, ERR_RESOURCE, "%llu GPUs wanted, %d here", (unsigned long long)c->devices,
                       *devices);
    if (c->devices > 0)
        *devices = (int)c->devices;
    s->shared = s->ranks->local_count > *devices;
    if (s->shared && getenv("NCCL_MULTI_RANK_GPU_ENABLE") == NULL)
        return err_set(e, ERR_RESOURCE,
                       "%d ranks and %d GPUs on this node: NCCL wants one GPU per rank",
                       s->ranks->local_count, *devices);
    return true;
}

// Every process decides alike: NCCL with half of them would wait for the others.
static bool all_agree(const struct nccl_state *s, bool ok, struct err *e) {
    double failed = ok ? 0 : 1;
    s->ranks->largest(&failed, 1);
    if (failed > 0 && ok)
        err_set(e, ERR_RESOURCE, "another rank has no usable GPU");
    return failed == 0;
}

static void place_members(struct nccl_state *s, int devices) {
    bool alone = s->ranks->count == 1;
    struct nccl_comms *c = &s->comms;
    c->count = alone ? (size_t)devices : 1;
    c->all = (uint64_t)s->ranks->count * c->count;
    c->members = calloc(c->count, sizeof(*c->members));
    s->lanes = calloc(c->count, sizeof(*s->lanes));
    s->buffers = calloc(c->count, sizeof(*s->buffers));
    s->list = calloc(c->all, sizeof(*s->list));
    if (c->members == NULL || s->lanes == NULL || s->buffers == NULL || s->list == NULL)
        abort();
    for (size_t i = 0; i < c->count; i++) {
        c->members[i].device = alone ? (int)i : s->ranks->local_rank % devices;
        c->members[i].number = (uint64_t)s->ranks->rank * c->count + i;
    }
}

static bool open_lanes(struct nccl_state *s, struct err *e) {
    for (size_t i = 0; i < s->comms.count; i++) {
        s->lanes_open = i + 1; // also a half-open one is closed
        if (!gpu_lane_init(&s->lanes[i], s->comms.members[i].device, e))
            return false;
    }
    return true;
}

static void open_counters(struct nccl_state *s) {
    size_t n = s->comms.count;
    char(*ids)[PCI_ID_BYTES] = calloc(n, PCI_ID_BYTES);
    const char **list = calloc(n, sizeof(*list));
    if (ids == NULL || list == NULL)
        abort();
    for (size_t i = 0; i < n; i++) {
        cudaDeviceGetPCIBusId(ids[i], PCI_ID_BYTES, s->comms.members[i].device);
        list[i] = ids[i];
    }
    wire_open(&s->wire, list, n, s->ranks->nodes > 1 && s->ranks->local_rank == 0);
    free(ids);
    free(list);
}

static void nccl_close(void *state) {
    struct nccl_state *s = state;
    if (s == NULL)
        return;
    if (!s->lost) {
        nccl_comms_destroy(&s->comms);
        for (size_t i = 0; i < s->lanes_open; i++)
            gpu_lane_finish(&s->lanes[i]);
        free(s->lanes);
    }
    wire_close(&s->wire);
    free(s->comms.members);
    free(s->buffers);
    free(s->list);
    free(s);
}

static bool nccl_open(const struct backend_config *c, void **state, struct err *e) {
    struct nccl_state *s = calloc(1, sizeof(*s));
    int devices = 0, version = 0;
    if (s == NULL)
        abort();
    s->ranks = c->ranks;
    s->arena = c->arena;
    s->comms.ranks = c->ranks;
    s->comms.patience = (struct patience){.limit_s = c->timeout_s, .signals = c->signals};
    bool ok = count_devices(s, c, &devices, e);
    if (ok) {
        nccl_log_open(&s->log);
        ok = nccl_comms_ok(&s->comms, ncclGetVersion(&version), "ncclGetVersion", e);
    }
    if (!all_agree(s, ok, e))
        goto fail;
    place_members(s, devices);
    if (!all_agree(s, open_lanes(s, e), e))
        goto fail;
    open_counters(s);
    s->software =
        arena_printf(s->arena, "NCCL %d.%d.%d, CUDA %d.%d", version / 10000, version / 100 % 100,
                     version % 100, CUDART_VERSION / CUDA_STEP, CUDART_VERSION % CUDA_STEP / 10);
    *state = s;
    return true;
fail:
    nccl_close(s);
    return false;
}

static void nccl_release(void *state) {
    struct nccl_state *s = state;
    for (size_t i = 0; !s->lost && i < s->comms.count; i++) {
        cudaSetDevice(s->comms.members[i].device);
        cudaFree(s->buffers[i].send_base);
        cudaFree(s->buffers[i].receive_base);
    }
    memset(s->buffers, 0, s->comms.count * sizeof(*s->buffers));
}

static bool choose_type(struct nccl_state *s, enum dtype dtype, struct err *e) {
    switch (dtype) {
    case DTYPE_FP32:
        s->type = PATTERN_FP32;
        s->element = ncclFloat32;
        return true;
    case DTYPE_BF16:
        s->type = PATTERN_BF16;
        s->element = ncclBfloat16;
        return true;
    case DTYPE_FP16:
        s->type = PATTERN_FP16;
        s->element = ncclFloat16;
        return true;
    case DTYPE_INT8:
        s->type = PATTERN_INT8;
        s->element = ncclInt8;
        return true;
    default:
        return err_set(e, ERR_RESOURCE, "the nccl backend does not do %s", dtype_name(dtype));
    }
}

// Parts of the array that one rank has at the start and at the end, of `n`.
static void shares(enum collective c, uint64_t n, uint64_t *send, uint64_t *receive) {
    *send = *receive = 1;
    if (c == COLLECTIVE_REDUCE_SCATTER || c == COLLECTIVE_ALL_REDUCE || c == COLLECTIVE_ALL_TO_ALL)
        *send = n;
    if (c == COLLECTIVE_ALL_GATHER || c == COLLECTIVE_ALL_REDUCE || c == COLLECTIVE_ALL_TO_ALL)
        *receive = n;
}

static bool divides(enum collective c) {
    return c != COLLECTIVE_BROADCAST && c != COLLECTIVE_REDUCE && c != COLLECTIVE_SEND_RECV;
}

static uint64_t group_size(struct nccl_state *s, size_t i) {
    uint64_t number = s->comms.members[i].number;
    return groups_list(s->point, s->comms.all, groups_of(s->point, s->comms.all, number), s->list);
}

static bool allocate(struct nccl_state *s, size_t i, struct err *e) {
    const struct bench_point *p = s->point;
    struct buffers *b = &s->buffers[i];
    uint64_t send, receive, bytes = s->chunk * pattern_bytes(s->type);
    shares(p->collective, group_size(s, i), &send, &receive);
    uint64_t larger = send > receive ? send : receive;
    cudaSetDevice(s->comms.members[i].device);
    if (!gpu_lane_ok(cudaMalloc(&b->send_base, (p->in_place ? larger : send) * bytes),
                     "no GPU memory for the array", e))
        return false;
    b->send = b->receive = b->send_base;
    if (p->in_place) {
        uint64_t own = (uint64_t)s->comms.members[i].rank * bytes;
        b->send += send < receive ? own : 0;
        b->receive += receive < send ? own : 0;
        return true;
    }
    if (!gpu_lane_ok(cudaMalloc(&b->receive_base, receive * bytes), "no GPU memory for the array",
                     e))
        return false;
    b->receive = b->receive_base;
    return true;
}

static bool give_up(struct nccl_state *s, const struct err *e) {
    nccl_comms_abort(&s->comms);
    s->lost = true;
    s->why = *e;
    return false;
}

static bool nccl_prepare(void *state, const struct bench_point *p, struct err *e) {
    struct nccl_state *s = state;
    bool exchange = p->collective == COLLECTIVE_SEND_RECV || p->collective == COLLECTIVE_ALL_TO_ALL;
    s->point = p;
    s->wire_bytes = 0;
    s->sampled = 0;
    if (s->lost)
        return err_set(e, s->why.kind, "%s", s->why.text);
    if (!choose_type(s, p->dtype, e))
        return false;
    if (exchange && p->in_place)
        return err_set(e, ERR_RESOURCE, "NCCL does not exchange in place");
    uint64_t n = p->paired           ? 2
                 : p->group_size > 0 ? p->group_size
                                     : s->comms.all - (p->left_out > 0);
    s->chunk = p->payload_bytes / pattern_bytes(s->type) / (divides(p->collective) ? n : 1);
    if (s->chunk == 0)
        return err_set(e, ERR_RESOURCE, "%llu bytes are less than one element per rank",
                       (unsigned long long)p->payload_bytes);
    if (!nccl_comms_make(&s->comms, p, e))
        return give_up(s, e); // the next point would wait as long
    for (size_t i = 0; i < s->comms.count; i++)
        if (is_part(s, i) && !allocate(s, i, e))
            return false;
    return true;
}

static ncclResult_t exchange(const struct nccl_state *s, size_t i, int to, int from) {
    ncclComm_t comm = s->comms.members[i].comm;
    const struct buffers *b = &s->buffers[i];
    ncclResult_t r = ncclSend(b->send, s->chunk, s->element, to, comm, s->lanes[i].stream);
    if (r != ncclSuccess && r != ncclInProgress)
        return r;
    return ncclRecv(b->receive, s->chunk, s->element, from, comm, s->lanes[i].stream);
}

static ncclResult_t all_to_all(const struct nccl_state *s, size_t i) {
    const struct nccl_member *m = &s->comms.members[i];
    size_t bytes = s->chunk * pattern_bytes(s->type);
    ncclResult_t r = ncclSuccess;
    for (int q = 0; q < m->size; q++) {
        size_t at = (size_t)q * bytes;
        r = ncclSend(s->buffers[i].send + at, s->chunk, s->element, q, m->comm, s->lanes[i].stream);
        if (r == ncclSuccess || r == ncclInProgress)
            r = ncclRecv(s->buffers[i].receive + at, s->chunk, s->element, q, m->comm,
                         s->lanes[i].stream);
        if (r != ncclSuccess && r != ncclInProgress)
            break;
    }
    return r;
}

static ncclResult_t neighbours(const struct nccl_state *s, size_t i) {
    const struct nccl_member *m = &s->comms.members[i];
    if (s->point->paired) {
        int other = (int)(m->number == s->point->first ? s->point->second : s->point->first);
        return exchange(s, i, other, other);
    }
    return exchange(s, i, (m->rank + 1) % m->size, (m->rank + m->size - 1) % m->size);
}

static ncclResult_t operate(const struct nccl_state *s, size_t i) {
    const struct nccl_member *m = &s->comms.members[i];
    const struct buffers *b = &s->buffers[i];
    cudaStream_t stream = s->lanes[i].stream;
    size_t all = s->chunk * (size_t)m->size;
    switch (s->point->collective) {
    case COLLECTIVE_ALL_GATHER:
        return ncclAllGather(b->send, b->receive, s->chunk, s->element, m->comm, stream);
    case COLLECTIVE_REDUCE_SCATTER:
        return ncclReduceScatter(b->send, b->receive, s->chunk, s->element, ncclSum, m->comm,
                                 stream);
    case COLLECTIVE_ALL_REDUCE:
        return ncclAllReduce(b->send, b->receive, all, s->element, ncclSum, m->comm, stream);
    case COLLECTIVE_BROADCAST:
        return ncclBroadcast(b->send, b->receive, s->chunk, s->element, 0, m->comm, stream);
    case COLLECTIVE_REDUCE:
        return ncclReduce(b->send, b->receive, s->chunk, s->element, ncclSum, 0, m->comm, stream);
    case COLLECTIVE_ALL_TO_ALL:
        return all_to_all(s, i);
    default:
        return neighbours(s, i);
    }
}

static bool launch(void *context, struct err *e) {
    struct nccl_state *s = context;
    const char *what = collective_name(s->point->collective);
    if (!nccl_comms_ok(&s->comms, ncclGroupStart(), "ncclGroupStart", e))
        return false;
    bool ok = true;
    for (size_t i = 0; ok && i < s->comms.count; i++) {
        if (!is_part(s, i))
            continue;
        cudaSetDevice(s->comms.members[i].device);
        ok = nccl_comms_ok(&s->comms, operate(s, i), what, e);
    }
    ok = nccl_comms_ok(&s->comms, ncclGroupEnd(), what, e) && ok;
    return ok && nccl_comms_settle(&s->comms, what, e);
}

static bool healthy(void *context, struct err *e) {
    struct nccl_state *s = context;
    return nccl_comms_healthy(&s->comms, collective_name(s->point->collective), e);
}

static struct gpu_work work(struct nccl_state *s) {
    return (struct gpu_work){.lanes = s->lanes,
                             .lane_count = s->comms.count,
                             .name = collective_name(s->point->collective),
                             .launch = launch,
                             .healthy = healthy,
                             .context = s,
                             .patience = s->comms.patience};
}

static bool takes_part(const struct nccl_state *s) {
    for (size_t i = 0; i < s->comms.count; i++)
        if (is_part(s, i))
            return true;
    return false;
}

static bool nccl_sample(void *state, size_t count, double *samples_s, struct err *e) {
    struct nccl_state *s = state;
    struct gpu_work w = work(s);
    double before = 0, after = 0;
    bool counted = wire_sent_bytes(&s->wire, &before);
    if (!takes_part(s)) {
        for (size_t i = 0; i < count; i++)
            samples_s[i] = BENCH_IDLE_S;
    } else if (!gpu_lane_time(&w, count, samples_s, e)) {
        return give_up(s, e);
    }
    if (counted && s->ranks->count > 1)
        s->ranks->barrier(); // a port may still be sending for another rank
    s->sampled += gpu_lane_iterations(count);
    s->wire_bytes += counted && wire_sent_bytes(&s->wire, &after) ? after - before : NAN;
    return true;
}

// A pair exchanges over everybody's communicator, but is alone with its contents.
static struct pieces_place place_of(struct nccl_state *s, size_t i) {
    const struct nccl_member *m = &s->comms.members[i];
    struct pieces_place p = {.collective = s->point->collective,
                             .rank = (uint32_t)m->rank,
                             .size = (uint32_t)m->size,
                             .members = s->list,
                             .chunk = s->chunk,
                             .in_place = s->point->in_place};
    group_size(s, i); // fills the list
    if (!s->point->paired)
        return p;
    s->list[0] = (uint32_t)s->point->first;
    s->list[1] = (uint32_t)s->point->second;
    p.rank = m->number == s->point->second;
    p.size = 2;
    return p;
}

static struct gpu_contents contents(const struct nccl_state *s, size_t i, uint64_t seed,
                                    const struct piece *piece, uint32_t size) {
    return (struct gpu_contents){
        .pattern = {.type = s->type, .seed = seed, .rank = piece->owner, .ranks = size},
        .members = piece->summed ? s->list : NULL,
        .first = piece->first,
        .count = piece->count,
        .stream = s->lanes[i].stream,
        .patience = s->comms.patience,
    };
}

static bool fill(struct nccl_state *s, size_t i, uint64_t seed, struct err *e) {
    struct pieces_place place = place_of(s, i);
    struct piece sent = pieces_sent(&place);
    struct gpu_contents c = contents(s, i, seed, &sent, place.size);
    uint64_t send, receive;
    shares(s->point->collective, group_size(s, i), &send, &receive);
    cudaSetDevice(s->comms.members[i].device);
    c.at = s->buffers[i].send; // of an array in place it is this member's part already
    if (!s->point->in_place &&
        !gpu_lane_ok(cudaMemsetAsync(s->buffers[i].receive, 0xFF,
                                     receive * s->chunk * pattern_bytes(s->type), c.stream),
                     "cudaMemsetAsync", e))
        return false;
    return gpu_contents_fill(&c, e);
}

static bool count_wrong(struct nccl_state *s, size_t i, uint64_t seed, uint64_t *wrong,
                        struct err *e) {
    struct pieces_place place = place_of(s, i);
    struct piece piece;
    cudaSetDevice(s->comms.members[i].device);
    for (uint32_t k = 0; pieces_received(&place, k, &piece); k++) {
        struct gpu_contents c = contents(s, i, seed, &piece, place.size);
        c.at = s->buffers[i].receive + piece.at * s->chunk * pattern_bytes(s->type);
        if (!gpu_contents_wrong(&c, wrong, e))
            return false;
    }
    return true;
}

static bool nccl_verify(void *state, uint64_t seed, uint64_t *wrong, struct err *e) {
    struct nccl_state *s = state;
    struct gpu_work w = work(s);
    *wrong = 0;
    if (!takes_part(s))
        return true;
    for (size_t i = 0; i < s->comms.count; i++)
        if (is_part(s, i) && !fill(s, i, seed, e))
            return give_up(s, e);
    if (!gpu_lane_once(&w, e))
        return give_up(s, e);
    for (size_t i = 0; i < s->comms.count; i++)
        if (is_part(s, i) && !count_wrong(s, i, seed, wrong, e))
            return give_up(s, e);
    return true;
}

// Counted on every process, per iteration; NAN when any that should count could not.
static double wire_in_all(const struct nccl_state *s, uint64_t iterations) {
    double *all = calloc((size_t)s->ranks->count, sizeof(*all)), sum = 0;
    if (all == NULL)
        abort();
    s->ranks->gather(&s->wire_bytes, sizeof(s->wire_bytes), all);
    for (int i = 0; i < s->ranks->count; i++)
        sum += all[i];
    free(all);
    return s->sampled > 0 ? sum / (double)s->sampled * (double)iterations : NAN;
}

static void nccl_describe(void *state, struct measure_result *r) {
    struct nccl_state *s = state;
    bool chosen = s->point != NULL && s->point->collective <= COLLECTIVE_ALL_REDUCE;
    r->software = s->software;
    r->shared_gpu = s->shared;
    if (r->iterations == 0)
        return;
    r->wire_bytes = wire_in_all(s, r->iterations);
    r->protocol = nccl_log_choice(&s->log);
    const char *no_protocol = chosen && r->protocol == NULL ? s->log.reason : "";
    const char *no_wire = isfinite(r->wire_bytes) ? "" : s->wire.reason;
    bool both = no_protocol[0] != '\0' && no_wire[0] != '\0';
    if (no_protocol[0] != '\0' || no_wire[0] != '\0')
        r->note = arena_printf(s->arena, "%s%s%s", no_protocol, both ? "; " : "", no_wire);
}

static uint64_t nccl_peers(void *state) {
    return ((struct nccl_state *)state)->comms.all;
}

const struct backend backend_nccl = {
    .name = "nccl",
    .summary = "collectives between GPUs by NCCL: all of this process, or one per rank",
    .open = nccl_open,
    .close = nccl_close,
    .prepare = nccl_prepare,
    .release = nccl_release,
    .sample = nccl_sample,
    .verify = nccl_verify,
    .describe = nccl_describe,
    .peers = nccl_peers,
};
