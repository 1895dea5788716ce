// SPDX-License-Identifier: Apache-2.0
// Discrete-event engine: tasks on FIFO streams with dependencies, a host thread that issues and can
// block, resources shared max-min fair, memory with a peak. No word about language models here.
// docs/method.md §engine.
#pragma once

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NONE UINT32_MAX
#define SIM_DEMANDS_MAX 4
#define SIM_DEPS_MAX 12

struct sim_demand { // while it runs at full speed the task uses rate_per_s units/s of the resource
    uint32_t resource;
    double rate_per_s;
};

struct sim_task {
    uint32_t stream;
    double duration_s;   // uncontended
    double issue_s;      // host time to issue it
    bool detached;       // not issued by the host: only its stream and deps hold it back
    bool host_blocking;  // the issuing host waits for its end before it goes on
    bool issue_overlaps; // many kernels in one task: may start when its issue begins, but does not
                         // end before its issue ends
    uint32_t deps[SIM_DEPS_MAX]; // ids of earlier tasks
    uint32_t dep_count;
    struct sim_demand demands[SIM_DEMANDS_MAX];
    uint32_t demand_count;
    uint32_t demand_set; // what sim_demands returned, in place of `demands`; 0 = those
    int64_t alloc_bytes_at_start, free_bytes_at_end; // one memory pool
};

// A graph. Tasks are added in host program order; a stream runs its tasks in that order; a task
// depends on earlier ones only, so a graph has no cycle. Unchanged by sim_run.
struct sim;
struct sim *sim_create(struct arena *a, uint32_t streams, uint32_t resources);
// Units per second the resource serves; INFINITY (the initial value) means not shared.
void sim_resource(struct sim *s, uint32_t resource, double capacity_per_s);
// For tasks that ask for the same: resolved once. 0 when nothing is asked for.
uint32_t sim_demands(struct sim *s, const struct sim_demand *demands, uint32_t count);
// Reads of deps and demands what the counts say; the rest may be uninitialised.
uint32_t sim_add(struct sim *s, const struct sim_task *t); // returns the id; ids break ties
// One more dependency of the task added last.
void sim_add_dep(struct sim *s, uint32_t dep);
// The host waits for the end of `task` before it issues the next task added (several add up).
void sim_host_wait(struct sim *s, uint32_t task);
uint32_t sim_task_count(const struct sim *s);
uint32_t sim_task_stream(const struct sim *s, uint32_t task);
double sim_task_issue_s(const struct sim *s, uint32_t task);
// Dependencies of a task; valid while nothing is added.
const uint32_t *sim_task_deps(const struct sim *s, uint32_t task, uint32_t *count);
const uint32_t *sim_task_host_waits(const struct sim *s, uint32_t task, uint32_t *count);
void sim_task_memory(const struct sim *s, uint32_t task, int64_t *alloc_bytes, int64_t *free_bytes);
bool sim_task_blocks_host(const struct sim *s, uint32_t task);

// What held a task back until it started, at at_s: a dependency or its stream predecessor (task),
// or the host (task: what the host last waited for, SIM_NONE if nothing).
enum sim_cause_kind { SIM_CAUSE_NONE, SIM_CAUSE_TASK, SIM_CAUSE_HOST };
struct sim_cause {
    enum sim_cause_kind kind;
    uint32_t task;
    double at_s;
};

struct sim_result {
    double end_s;
    const double *start_s, *finish_s; // per task; in the arena passed to sim_run
    const double *issued_s;           // per task: when the host began to issue it (0 if detached)
    const uint32_t *host_block;       // per task: what the host last waited for before issuing it
    double host_busy_s, host_end_s;   // sum of issue times; when the host was done
    const double *stream_busy_s;      // per stream: time with a task running
    int64_t memory_peak_bytes, memory_end_bytes;
    uint32_t memory_peak_task; // the task whose start made the peak; SIM_NONE if none allocates
};

// `multipliers` (one per task, each >= 0) scale durations, the work on resources staying the same;
// NULL = 1. Fails only when a resource with no capacity is demanded.
bool sim_run(const struct sim *s, const double *multipliers, struct arena *a,
             struct sim_result *out, struct err *e);
struct sim_cause sim_task_cause(const struct sim *s, const struct sim_result *r, uint32_t task);
// Integral of use over a run, in the resource's units; how it is shared doesn't change it.
double sim_resource_work(const struct sim *s, uint32_t resource);
// max(longest path over deps and FIFO edges, work / capacity of each resource): no run ends
// earlier.
double sim_lower_bound_s(const struct sim *s, struct arena *scratch);
