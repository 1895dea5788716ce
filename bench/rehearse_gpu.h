// SPDX-License-Identifier: Apache-2.0
// Executes a task graph on GPUs: the graph's streams are CUDA streams on every GPU of this process,
// kernels, copies and NCCL collectives run on them with the graph's dependencies as events, memory
// is allocated and freed where the graph says so; CPU Adam, storage and host work run on threads.
// Needs a GPU for each rank of the graph. docs/method.md §rehearse.
#pragma once

#include "base/kinds.h"
#include "bench/rehearse.h"

#include <stddef.h>

struct gpu_rehearsal;

// What one rank handed to NCCL in one step, to all groups of one kind. No pointers: ranks exchange
// it.
struct rehearse_sent {
    uint64_t rank, calls;
    uint64_t group; // of the graph, the first of its kind
    enum collective collective;
    enum dtype dtype;
    double payload_bytes, sent_bytes; // sent by a ring: docs/method.md §volume
};

// GPUs that a rehearsal of this process and its ranks would use: all of one process, or one for
// each rank. 0 when there are none, or not enough on this node.
uint64_t rehearse_gpu_count(const struct ranks *r);

// Collective. A rank that fails takes the others along: MPI ends the job.
struct gpu_rehearsal *rehearse_gpu_create(const struct rehearse_setup *s, struct arena *a,
                                          struct err *e);
void rehearse_gpu_destroy(struct gpu_rehearsal *r); // NULL is fine

// As rehearse_step, of the first GPU of this process; step_s is the slowest one's.
bool rehearse_gpu_step(struct gpu_rehearsal *r, double *start_s, double *end_s, double *step_s,
                       struct err *e);

// Of the last step, one entry per GPU of this process, group, collective and type.
size_t rehearse_gpu_sent(const struct gpu_rehearsal *r, const struct rehearse_sent **list);

// What stands in for what, for the reader; NULL when nothing does.
const char *rehearse_gpu_note(const struct gpu_rehearsal *r);
