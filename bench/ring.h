// SPDX-License-Identifier: Apache-2.0
// Ring collectives on non-blocking MPI point-to-point. Every rank sends exactly (n-1)/n of the full
// array (twice that for all-reduce). docs/method.md §ring.
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/units.h"
#include "kernels/pattern.h"

#define RING_NAP_S 50e-6
// Below the size (64 KiB in Open MPI) from which a message over TCP waits for its receiver's word:
// that word queues behind the data of the other direction, and the two directions take turns.
#define RING_TCP_SEGMENT_BYTES (60 * UNITS_KIB)

struct ring {
    MPI_Comm comm;
    int rank, count;
    enum pattern_type type;
    size_t chunk;         // elements per rank; the full array has count * chunk
    char *scratch;        // ring_scratch_bytes
    size_t segment_bytes; // 0: as suits one node or a network with remote memory access
    double nap_s;         // sleep between looks at a request; 0: look without pause
    uint64_t *sent_bytes; // grows by what is handed to MPI_Isend; NULL: not counted
};

size_t ring_scratch_bytes(const struct ring *r);

// One chunk to the right while the left neighbour's arrives.
void ring_shift(const struct ring *r, const void *from, void *to);
// `to` holds the full array. The own chunk is already in its place when `from` is NULL.
void ring_all_gather(const struct ring *r, const void *from, void *to);
// `from` is the full array and stays as it is; `to` is one chunk outside of it.
void ring_reduce_scatter(const struct ring *r, const void *from, void *to);
// In place when from == to.
void ring_all_reduce(const struct ring *r, const void *from, void *to);
