// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "bench/inventory.h"
#include "bench/rehearse_private.h"
#include "bench/ring.h"

#define GRAIN 4 // bytes of the elements that travel

// One communicator per group of the graph.
struct lane_groups {
    MPI_Comm *comms;
    const struct graph_group *groups;
    size_t segment_bytes;
    char *scratch;
    size_t scratch_bytes;
};

size_t rehearse_collective_bytes(double bytes, uint64_t ranks) {
    size_t chunk = (size_t)(bytes / (double)ranks / GRAIN) + 1;
    return chunk * ranks * GRAIN;
}

bool rehearse_collectives_open(const struct graph *g, const struct ranks *r, void **lane,
                               struct err *e) {
    struct lane_groups *l = calloc(1, sizeof(*l));
    if (l == NULL)
        abort();
    l->comms = calloc(g->group_count + 1, sizeof(MPI_Comm));
    if (l->comms == NULL)
        abort();
    l->groups = g->groups;
    l->segment_bytes = r->nodes > 1 && !inventory_has_rdma() ? RING_TCP_SEGMENT_BYTES : 0;
    *lane = l;
    for (size_t i = 0; r->count > 1 && i < g->group_count; i++) {
        uint64_t n = g->groups[i].size, count = (uint64_t)r->count;
        if (n == 0 || count % n != 0)
            return err_set(e, ERR_INPUT, "groups of %llu do not divide %llu ranks",
                           (unsigned long long)n, (unsigned long long)count);
        bool strided = graph_group_is_strided(&g->groups[i]);
        uint64_t rank = (uint64_t)r->rank;
        int color = (int)(strided ? rank % (count / n) : rank / n);
        MPI_Comm_split(MPI_COMM_WORLD, color, r->rank, &l->comms[i]);
    }
    return true;
}

void rehearse_collectives_close(void *lane, const struct graph *g) {
    struct lane_groups *l = lane;
    if (l == NULL)
        return;
    for (size_t i = 0; i < g->group_count; i++)
        if (l->groups[i].size > 1 && l->comms[i] != NULL && l->comms[i] != MPI_COMM_NULL)
            MPI_Comm_free(&l->comms[i]);
    free(l->comms);
    free(l->scratch);
    free(l);
}

static void provide_scratch(struct lane_groups *l, const struct ring *ring) {
    size_t bytes = ring_scratch_bytes(ring);
    if (bytes <= l->scratch_bytes)
        return;
    free(l->scratch);
    l->scratch = calloc(1, bytes);
    l->scratch_bytes = bytes;
    if (l->scratch == NULL)
        abort();
}

// Sums cost by type; whatever has no sum here moves as bytes of fp32.
static enum pattern_type type_of(enum dtype t) {
    return t == DTYPE_BF16 ? PATTERN_BF16 : t == DTYPE_FP16 ? PATTERN_FP16 : PATTERN_FP32;
}

void rehearse_collective(const struct graph_task *t, struct rehearse_lane *lane, double shrink) {
    struct lane_groups *l = lane->collectives;
    if (t->group < 0 || l->groups[t->group].size < 2)
        return;
    struct ring ring = {.comm = l->comms[t->group],
                        .type = type_of(t->dtype),
                        .nap_s = RING_NAP_S,
                        .segment_bytes = l->segment_bytes};
    MPI_Comm_rank(ring.comm, &ring.rank);
    MPI_Comm_size(ring.comm, &ring.count);
    size_t grains = rehearse_collective_bytes(t->bytes * shrink, (uint64_t)ring.count) /
                    ((size_t)ring.count * GRAIN);
    ring.chunk = grains * GRAIN / pattern_bytes(ring.type);
    provide_scratch(l, &ring);
    ring.scratch = l->scratch;
    switch (t->collective) {
    case COLLECTIVE_ALL_GATHER:
        ring_all_gather(&ring, NULL, lane->to);
        break;
    case COLLECTIVE_REDUCE_SCATTER:
        ring_reduce_scatter(&ring, lane->from, lane->to);
        break;
    case COLLECTIVE_ALL_REDUCE:
        ring_all_reduce(&ring, lane->from, lane->to);
        break;
    case COLLECTIVE_ALL_TO_ALL:
        MPI_Alltoall(lane->from, (int)grains, MPI_FLOAT, lane->to, (int)grains, MPI_FLOAT,
                     ring.comm);
        break;
    default:
        MPI_Bcast(lane->to, (int)(grains * (size_t)ring.count), MPI_FLOAT, 0, ring.comm);
    }
}
