// SPDX-License-Identifier: Apache-2.0
// Collectives of a build without MPI: there is one rank, so nothing moves.
#include "bench/rehearse_private.h"

bool rehearse_collectives_open(const struct graph *g, const struct ranks *r, void **lane,
                               struct err *e) {
    (void)g, (void)r, (void)e;
    *lane = NULL;
    return true;
}

void rehearse_collectives_close(void *lane, const struct graph *g) {
    (void)lane, (void)g;
}

void rehearse_collective(const struct graph_task *t, struct rehearse_lane *lane, double shrink) {
    (void)t, (void)lane, (void)shrink;
}

size_t rehearse_collective_bytes(double bytes, uint64_t ranks) {
    (void)ranks;
    return (size_t)bytes;
}
