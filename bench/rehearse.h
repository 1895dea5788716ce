// SPDX-License-Identifier: Apache-2.0
// Executes a task graph on this machine: one thread per stream, tasks in stream order, started when
// issued and when their dependencies are done. It proves timing and overlap, nothing about what a
// framework computes. docs/method.md §rehearse.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "bench/ranks.h"
#include "bench/signals.h"
#include "describe/graph.h"

#include <stdbool.h>

struct rehearsal;

struct rehearse_setup {
    const struct graph *graph;
    const struct ranks *ranks;
    const char *folder;      // of the storage tasks' file
    double shrink;           // factor on bytes and durations, at most 1
    struct signals *signals; // an interrupt ends waits for devices
};

struct rehearsal *rehearse_create(const struct rehearse_setup *s, struct arena *a, struct err *e);
// How fast this rank's cores are while all ranks work. Collective, once before the first step.
void rehearse_prepare(struct rehearsal *r);
void rehearse_destroy(struct rehearsal *r); // NULL is fine

// One step. Seconds since its start per task, on this rank; step_s is the slowest rank's.
// Collective.
bool rehearse_step(struct rehearsal *r, double *start_s, double *end_s, double *step_s,
                   struct err *e);

// The step as the planner simulated it: the graph's own times, what is shared included; of a graph
// without them, its durations with nobody in anybody's way.
double rehearse_predict(const struct graph *g, double *start_s, double *end_s);

#define REHEARSE_COMPUTE 0 // the stream of the kernels
// Time in which the stream works and no kernel does.
double rehearse_exposed_s(const struct graph *g, uint32_t stream, const double *start_s,
                          const double *end_s);
