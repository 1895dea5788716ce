// SPDX-License-Identifier: Apache-2.0
#include "bench/backend_mpi.h"

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "bench/clock.h"
#include "bench/groups.h"
#include "bench/inventory.h"
#include "bench/pieces.h"
#include "bench/ranks.h"
#include "bench/ring.h"
#include "bench/slice.h"
#include "kernels/pattern.h"
#include "kernels/reduce.h"

struct mpi_state {
    const struct ranks *ranks;
    const struct bench_point *point;
    MPI_Op sum_bf16, sum_fp16;
    MPI_Comm comm;     // MPI_COMM_NULL: this rank stays out of the point
    uint32_t *members; // world ranks in the order of comm
    uint32_t world_rank;
    enum pattern_type type;
    MPI_Datatype element;
    MPI_Op sum;
    struct ring ring;
    size_t bytes; // of one chunk
    char *send, *receive;
    void *send_base, *receive_base;
    uint64_t sent_bytes;           // by the ring since prepare
    uint64_t counted_bytes, timed; // of it, in timed iterations
    uint64_t sampled;              // iterations of every rank, warm-up included
    double cpu_s;                  // of timed iterations
    double wire_bytes;             // sent by this node while timing; counted by its first rank
};

static void add_bf16(void *in, void *inout, int *count, MPI_Datatype *type) {
    (void)type;
    reduce_sum(PATTERN_BF16, inout, in, (size_t)*count);
}

static void add_fp16(void *in, void *inout, int *count, MPI_Datatype *type) {
    (void)type;
    reduce_sum(PATTERN_FP16, inout, in, (size_t)*count);
}

static bool mpi_open(const struct backend_config *c, void **state, struct err *e) {
    int started = 0;
    MPI_Initialized(&started);
    if (!started)
        return err_set(e, ERR_RESOURCE,
                       "the mpi backend needs ranks: start it with mpirun or srun");
    struct mpi_state *s = calloc(1, sizeof(*s));
    if (s == NULL)
        abort();
    s->ranks = c->ranks;
    s->ring.segment_bytes =
        c->ranks->nodes > 1 && !inventory_has_rdma() ? RING_TCP_SEGMENT_BYTES : 0;
    s->ring.nap_s = c->nap ? RING_NAP_S : 0;
    if (c->nap)
        slice_make_short();
    s->comm = MPI_COMM_NULL;
    s->world_rank = (uint32_t)c->ranks->rank;
    s->members = calloc((size_t)c->ranks->count, sizeof(*s->members));
    if (s->members == NULL)
        abort();
    MPI_Op_create(add_bf16, 1, &s->sum_bf16);
    MPI_Op_create(add_fp16, 1, &s->sum_fp16);
    *state = s;
    return true;
}

static void mpi_release(void *state) {
    struct mpi_state *s = state;
    free(s->send_base);
    free(s->receive_base);
    free(s->ring.scratch);
    s->send_base = s->receive_base = s->ring.scratch = NULL;
    if (s->comm != MPI_COMM_NULL)
        MPI_Comm_free(&s->comm);
    s->comm = MPI_COMM_NULL;
}

static void mpi_close(void *state) {
    struct mpi_state *s = state;
    if (s == NULL)
        return;
    MPI_Op_free(&s->sum_bf16);
    MPI_Op_free(&s->sum_fp16);
    free(s->members);
    free(s);
}

static bool choose_type(struct mpi_state *s, enum dtype dtype, struct err *e) {
    s->sum = MPI_SUM;
    switch (dtype) {
    case DTYPE_FP32:
        s->type = PATTERN_FP32;
        s->element = MPI_FLOAT;
        return true;
    case DTYPE_BF16:
        s->type = PATTERN_BF16;
        s->element = MPI_UINT16_T;
        s->sum = s->sum_bf16;
        return true;
    case DTYPE_FP16:
        s->type = PATTERN_FP16;
        s->element = MPI_UINT16_T;
        s->sum = s->sum_fp16;
        return true;
    case DTYPE_INT8:
        s->type = PATTERN_INT8;
        s->element = MPI_UINT8_T;
        return true;
    default:
        return err_set(e, ERR_RESOURCE, "the mpi backend does not do %s", dtype_name(dtype));
    }
}

static void choose_members(struct mpi_state *s) {
    uint64_t count = (uint64_t)s->ranks->count, mine = groups_of(s->point, count, s->world_rank);
    uint32_t n = groups_list(s->point, count, mine, s->members);
    MPI_Comm_split(MPI_COMM_WORLD, mine == GROUPS_NONE ? MPI_UNDEFINED : (int)mine, s->ranks->rank,
                   &s->comm);
    s->ring.rank = -1;
    s->ring.count = mine == GROUPS_NONE ? 1 : (int)n;
    if (s->comm != MPI_COMM_NULL)
        MPI_Comm_rank(s->comm, &s->ring.rank);
}

// Page-aligned, touched memory; NULL when there is not enough.
static char *buffer(void **base, size_t bytes) {
    if (posix_memalign(base, 4096, bytes > 0 ? bytes : 1) != 0) {
        *base = NULL;
        return NULL;
    }
    memset(*base, 0, bytes);
    return *base;
}

static bool mpi_prepare(void *state, const struct bench_point *p, struct err *e) {
    struct mpi_state *s = state;
    s->point = p;
    s->wire_bytes = s->cpu_s = 0;
    s->sent_bytes = s->counted_bytes = s->timed = s->sampled = 0;
    s->ring.sent_bytes = &s->sent_bytes;
    choose_members(s);
    if (!choose_type(s, p->dtype, e))
        return false;
    bool whole = p->collective == COLLECTIVE_BROADCAST || p->collective == COLLECTIVE_SEND_RECV;
    size_t parts = whole ? 1 : (size_t)s->ring.count, elt = pattern_bytes(s->type);
    s->ring.comm = s->comm;
    s->ring.type = s->type;
    s->ring.chunk = p->payload_bytes / elt / parts;
    s->bytes = s->ring.chunk * elt;
    if (s->ring.chunk == 0)
        return err_set(e, ERR_RESOURCE, "%llu bytes are less than one element per rank",
                       (unsigned long long)p->payload_bytes);
    if (s->ring.chunk * parts > INT_MAX)
        return err_set(e, ERR_RESOURCE, "MPI counts end at %d elements", INT_MAX);
    if (s->comm == MPI_COMM_NULL)
        return true;
    size_t all = s->bytes * parts;
    s->send = buffer(&s->send_base, all);
    s->receive = p->in_place ? s->send : buffer(&s->receive_base, all);
    s->ring.scratch = malloc(ring_scratch_bytes(&s->ring));
    if (s->send == NULL || s->receive == NULL || s->ring.scratch == NULL)
        return err_set(e, ERR_RESOURCE, "no memory for two arrays of %zu bytes", all);
    return true;
}

static void run_ring(struct mpi_state *s) {
    bool in_place = s->point->in_place;
    char *own = s->send + (size_t)s->ring.rank * s->bytes;
    switch (s->point->collective) {
    case COLLECTIVE_ALL_GATHER:
        ring_all_gather(&s->ring, in_place ? NULL : s->send, s->receive);
        break;
    case COLLECTIVE_REDUCE_SCATTER:
        if (in_place) {
            char *landing = s->ring.scratch + 2 * s->bytes;
            ring_reduce_scatter(&s->ring, s->send, landing);
            memcpy(own, landing, s->bytes);
        } else {
            ring_reduce_scatter(&s->ring, s->send, s->receive);
        }
        break;
    default:
        ring_all_reduce(&s->ring, s->send, s->receive);
    }
}

// A pair is judged by what its link carries both ways at once, not by how the library takes turns.
static bool is_pair(const struct mpi_state *s) {
    return s->point->paired && s->point->collective == COLLECTIVE_SEND_RECV;
}

static void run_library(struct mpi_state *s) {
    const void *from = s->point->in_place ? MPI_IN_PLACE : s->send;
    int chunk = (int)s->ring.chunk, all = chunk * s->ring.count;
    int next = (s->ring.rank + 1) % s->ring.count;
    int last = (s->ring.rank + s->ring.count - 1) % s->ring.count;
    switch (s->point->collective) {
    case COLLECTIVE_ALL_GATHER:
        MPI_Allgather(from, chunk, s->element, s->receive, chunk, s->element, s->comm);
        break;
    case COLLECTIVE_REDUCE_SCATTER:
        MPI_Reduce_scatter_block(from, s->receive, chunk, s->element, s->sum, s->comm);
        break;
    case COLLECTIVE_ALL_REDUCE:
        MPI_Allreduce(from, s->receive, all, s->element, s->sum, s->comm);
        break;
    case COLLECTIVE_ALL_TO_ALL:
        MPI_Alltoall(from, chunk, s->element, s->receive, chunk, s->element, s->comm);
        break;
    case COLLECTIVE_BROADCAST:
        MPI_Bcast(s->send, chunk, s->element, 0, s->comm);
        break;
    default:
        MPI_Sendrecv(s->send, chunk, s->element, next, 0, s->receive, chunk, s->element, last, 0,
                     s->comm, MPI_STATUS_IGNORE);
    }
}

static bool is_ring(const struct mpi_state *s) {
    return s->point->algorithm != NULL && strcmp(s->point->algorithm, "ring") == 0;
}

static bool one(void *context, struct err *e) {
    struct mpi_state *s = context;
    (void)e;
    bool ring = is_ring(s);
    if (is_pair(s))
        ring_shift(&s->ring, s->send, s->receive);
    else if (ring && s->point->collective <= COLLECTIVE_ALL_REDUCE)
        run_ring(s);
    else
        run_library(s);
    return true;
}

static bool time_all(struct mpi_state *s, size_t count, double *samples_s, struct err *e) {
    uint64_t sent = s->sent_bytes;
    if (s->comm == MPI_COMM_NULL) {
        for (size_t i = 0; i < count; i++)
            samples_s[i] = BENCH_IDLE_S;
        return true;
    }
    double cpu_s = clock_process_cpu_s();
    bool ok = clock_time(one, s, count, samples_s, e);
    s->cpu_s += clock_process_cpu_s() - cpu_s;
    s->timed += count;
    s->counted_bytes += s->sent_bytes - sent;
    return ok;
}

static bool mpi_sample(void *state, size_t count, double *samples_s, struct err *e) {
    struct mpi_state *s = state;
    bool several = s->ranks->nodes > 1, counts = several && s->ranks->local_rank == 0;
    uint64_t before = counts ? inventory_network_sent_bytes() : 0;
    bool ok = time_all(s, count, samples_s, e);
    s->sampled += count;
    // A finished send may still wait in a queue of this host; once everybody has everything, it
    // does not.
    if (several)
        s->ranks->barrier();
    if (counts)
        s->wire_bytes += (double)(inventory_network_sent_bytes() - before);
    return ok;
}

// Where the result lies: MPI leaves an in-place reduce-scatter at the start of the array, the ring
// in its own chunk; a broadcast has one buffer.
static const char *result_of(const struct mpi_state *s) {
    if (s->point->collective == COLLECTIVE_BROADCAST)
        return s->send;
    if (s->point->collective == COLLECTIVE_REDUCE_SCATTER && s->point->in_place && is_ring(s))
        return s->send + (size_t)s->ring.rank * s->bytes;
    return s->receive;
}

static uint64_t count_wrong(const struct mpi_state *s, const struct pieces_place *place,
                            struct pattern p) {
    uint64_t wrong = 0;
    struct piece piece;
    for (uint32_t i = 0; pieces_received(place, i, &piece); i++) {
        const char *at = result_of(s) + piece.at * s->bytes;
        p.rank = piece.owner;
        wrong += piece.summed ? pattern_wrong_sum(&p, s->members, at, piece.first, piece.count)
                              : pattern_wrong(&p, at, piece.first, piece.count);
    }
    return wrong;
}

static bool mpi_verify(void *state, uint64_t seed, uint64_t *wrong, struct err *e) {
    struct mpi_state *s = state;
    *wrong = 0;
    if (s->comm == MPI_COMM_NULL)
        return true;
    struct pieces_place place = {.collective = s->point->collective,
                                 .rank = (uint32_t)s->ring.rank,
                                 .size = (uint32_t)s->ring.count,
                                 .members = s->members,
                                 .chunk = s->ring.chunk,
                                 .in_place = s->point->in_place};
    struct piece sent = pieces_sent(&place);
    struct pattern p = {.type = s->type, .seed = seed, .rank = s->world_rank, .ranks = place.size};
    if (!s->point->in_place)
        memset(s->receive, 0xFF, s->bytes);
    pattern_fill(&p, s->send + sent.at * s->bytes, sent.first, sent.count);
    if (!one(s, e))
        return false;
    *wrong = count_wrong(s, &place, p);
    return true;
}

static void mpi_describe(void *state, struct measure_result *r) {
    struct mpi_state *s = state;
    r->software = s->ranks->library;
    if (r->iterations == 0)
        return;
    double cpu_s = s->timed > 0 ? s->cpu_s / (double)s->timed : 0;
    s->ranks->largest(&cpu_s, 1);
    if (s->ring.nap_s > 0)
        r->cpu_s = cpu_s;
    double sent = s->timed > 0 ? (double)s->counted_bytes / (double)s->timed : 0;
    s->ranks->largest(&sent, 1);
    if (sent > 0)
        r->sent_bytes = sent;
    if (s->ranks->nodes < 2)
        return;
    double *all = calloc((size_t)s->ranks->count, sizeof(*all)), sum = 0;
    if (all == NULL)
        abort();
    s->ranks->gather(&s->wire_bytes, sizeof(s->wire_bytes), all);
    for (int i = 0; i < s->ranks->count; i++)
        sum += all[i];
    free(all);
    // The counters also saw the warm-up.
    r->wire_bytes = sum / (double)s->sampled * (double)r->iterations;
}

const struct backend backend_mpi = {
    .name = "mpi",
    .summary = "collectives between host buffers: the MPI library's, and an explicit ring",
    .open = mpi_open,
    .close = mpi_close,
    .prepare = mpi_prepare,
    .release = mpi_release,
    .sample = mpi_sample,
    .verify = mpi_verify,
    .describe = mpi_describe,
};
