// SPDX-License-Identifier: Apache-2.0
// shardplan.graph/1: the tasks of one step as data, written by simulate, run by bench and rehearse.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/kinds.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum graph_kind {
    GRAPH_GEMM,
    GRAPH_ELEMENTWISE,
    GRAPH_COLLECTIVE,
    GRAPH_COPY,
    GRAPH_NVME_READ,
    GRAPH_NVME_WRITE,
    GRAPH_ADAM,
    GRAPH_HOST,
    GRAPH_ALLOC,
    GRAPH_FREE,
    GRAPH_KIND_COUNT
};

struct graph_shape { // a kernel aggregated into a compute task
    uint64_t m, n, k, count;
    enum dtype dtype;
};

struct graph_task {
    uint32_t id;
    enum graph_kind kind;
    uint32_t stream;
    const uint32_t *deps;
    size_t dep_count;
    const char *phase, *unit, *direction; // direction: h2d, d2h for copies; else NULL
    const struct graph_shape *shapes;
    size_t shape_count;
    double flop, bytes; // bytes: payload (full buffer) or memory traffic
    enum dtype dtype;
    int group; // index into groups or -1
    enum collective collective;
    uint32_t buffer; // for alloc and free; UINT32_MAX = none
    bool host_blocking;
    double issue_s, duration_s; // predicted
};

struct graph_group {
    const char *kind; // "world", "shard", "replica", "node"
    uint64_t size;
};
struct graph_buffer {
    const char *name;
    uint64_t bytes;
    enum device device;
};

struct graph {
    uint64_t ranks;
    const struct graph_group *groups;
    size_t group_count;
    const struct graph_buffer *buffers;
    size_t buffer_count;
    const char *const *streams;
    size_t stream_count;
    const struct graph_task *tasks;
    size_t task_count;
};

bool graph_read(const char *path, struct arena *a, struct graph *out, struct err *e);
bool graph_write(const char *path, const struct graph *g, struct err *e);
