// SPDX-License-Identifier: Apache-2.0
// The matrix products of one stream's tasks on one GPU, by cuBLASLt.
#pragma once

#include "base/err.h"
#include "describe/graph.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

struct products;

struct products_setup {
    const struct graph *graph;
    uint32_t stream;    // of the graph
    double shrink;      // factor on the products' rows
    cudaStream_t queue; // of the current device
};

// Plans and arrays for every shape of the stream's tasks; *out is NULL when it has none, or when
// this build or this machine has no cuBLASLt.
bool products_open(const struct products_setup *s, struct products **out, struct err *e);
void products_close(struct products *p); // NULL is fine

// Queues the task's products. *left: the share of its arithmetic, 0 to 1, for which cuBLASLt has no
// algorithm and that is not queued.
bool products_queue(struct products *p, const struct graph_task *t, double *left, struct err *e);
