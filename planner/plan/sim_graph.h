// SPDX-License-Identifier: Apache-2.0
// Private to plan/sim*: how a graph is held.
#pragma once

#include "plan/sim.h"

enum sim_flag { SIM_DETACHED = 1, SIM_HOST_BLOCKING = 2, SIM_ISSUE_OVERLAPS = 4 };

struct sim_record { // 64 bytes: one cache line a task
    double duration_s, issue_s;
    int64_t alloc_bytes, free_bytes;
    uint32_t next, prev; // in its stream
    uint32_t first_dep;
    uint32_t demand_set; // into sim.sets; 0 = none
    uint16_t stream, dep_count;
    uint8_t flags;
    uint16_t host_wait_count; // their ids stand before first_dep
};

// What tasks of one kind ask of the resources; equal ones mostly share one set.
struct sim_demand_set {
    struct sim_demand demands[SIM_DEMANDS_MAX];
    uint32_t count;
};

#define SIM_RECENT_SETS 256

struct sim {
    struct arena *arena;
    struct sim_record *tasks;
    uint32_t *deps;
    struct sim_demand_set *sets; // sets[0] is empty
    uint32_t task_count, task_capacity, dep_count, dep_capacity, set_count, set_capacity;
    uint32_t stream_count, resource_count;
    uint32_t *first, *last; // per stream
    double *capacity_per_s; // per resource
    uint32_t pending_host_waits;
    uint32_t recent[SIM_RECENT_SETS]; // by hash: where an equal set may stand
};
