// SPDX-License-Identifier: Apache-2.0
// Discrete-event engine: tasks on FIFO streams with dependencies, a host thread that issues and can
// block, resources shared max-min fair, memory with a peak. No word about language models here.
#pragma once

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NONE UINT32_MAX
#define SIM_DEMANDS_MAX 4
#define SIM_INLINE_DEPS 6

struct sim_demand {      // while it runs at full speed the task uses rate units/s of the resource
    uint32_t resource;
    double rate;
};

struct sim_task {
    uint32_t stream;
    double duration_s;                 // uncontended
    double issue_s;                    // host time to issue it (0 for tasks the host doesn't issue)
    bool host_blocking;                // the issuing host waits for its end
    uint32_t deps[SIM_INLINE_DEPS];    // task ids; SIM_NONE ends. sim_add_dep for more
    struct sim_demand demands[SIM_DEMANDS_MAX];
    uint8_t demand_count;
    int64_t alloc_bytes_at_start, free_bytes_at_end; // memory pool 0
    uint32_t tag;                      // caller's: unit, phase, kind
};

struct sim;                            // graph; immutable while running
struct sim *sim_create(struct arena *a, uint32_t streams, uint32_t resources);
void sim_resource(struct sim *s, uint32_t resource, double capacity);
uint32_t sim_add(struct sim *s, const struct sim_task *t);   // returns id; ids are the tie-break
void sim_add_dep(struct sim *s, uint32_t task, uint32_t dep);
uint32_t sim_task_count(const struct sim *s);

struct sim_result {
    double end_s;
    double *start_s, *finish_s;        // per task, in the arena passed to sim_run
    double *stream_busy_s;             // per stream
    double *resource_used;             // per resource, integral of use
    int64_t memory_peak;
    uint32_t memory_peak_task;
};
// `multipliers` (one per task) scale durations; NULL = 1.
bool sim_run(const struct sim *s, const double *multipliers, struct arena *a, struct sim_result *out, struct err *e);
