// SPDX-License-Identifier: Apache-2.0
// The transfers of a plan, as points to run on the ranks that are here. docs/method.md §confirm.
#pragma once

#include "bench/run.h"

#include <stdbool.h>
#include <stdint.h>

// One line of a plan's transfers[].
struct message {
    const char *phase, *kind, *what, *dtype, *group, *link;
    uint64_t group_size, count;       // as planned
    double payload_bytes, sent_bytes; // as planned, over all calls
    double call_bytes;                // payload of one call
    double planned_s;                 // over all calls; NAN when the plan does not say
    // How it runs here.
    struct bench_point point; // one call
    const char *backend;      // NULL: cannot run here
    const char *reason;       // why not, or what stands in for what
    double run_planned_bytes; // that one rank must send in all calls at this size
};

struct messages {
    const char *model, *cluster, *strategy;
    double parameters;
    uint64_t plan_index;
    struct message *items;
    size_t count;
    double scale; // of every payload; 1 = as planned
};

// Reads plans[index].volume.transfers of a shardplan.plan/1 document and fits them to `ranks`
// ranks and payloads up to `limit_bytes` a call.
struct messages_request {
    const char *path;
    uint64_t plan_index; // UINT64_MAX: the recommended one
    uint64_t ranks, limit_bytes;
    bool nccl;         // collectives run between GPUs; `ranks` is then how many
    uint64_t gpus;     // copies of this process run between host memory and so many GPUs;
                       // 0: in host memory
    uint64_t gpu;      // the one, when it is one
    bool gemm;         // matrix products run on a GPU
    double limit_flop; // matrix products above it are left out on the host
};
bool messages_read(const struct messages_request *q, struct arena *a, struct messages *out,
                   struct err *e);
// The same from a shardplan.graph/1 document, matrix products and optimizer steps included.
// ERR_RESOURCE when it was made for another number of ranks.
bool messages_read_graph(const struct messages_request *q, struct arena *a, struct messages *out,
                         struct err *e);
