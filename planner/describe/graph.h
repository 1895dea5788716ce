// SPDX-License-Identifier: Apache-2.0
// shardplan.graph/1: the tasks of one step as data, written by simulate, run by bench and rehearse;
// docs/formats.md §graph.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/kinds.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAPH_SCHEMA "shardplan.graph/1"
#define GRAPH_NO_BUFFER UINT32_MAX

enum graph_kind {
    GRAPH_GEMM, // one unit in one direction: matmuls by shape, the rest of its kernels in bytes
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
extern const char *const graph_kind_names[GRAPH_KIND_COUNT];

struct graph_shape { // a kernel aggregated into a compute task
    uint64_t m, n, k, count;
    enum dtype dtype;
};

// Tasks stand in host issue order; a stream runs its tasks in that order.
struct graph_task {
    uint32_t id; // = its index
    enum graph_kind kind;
    uint32_t stream;      // index into streams
    const uint32_t *deps; // ids of earlier tasks
    size_t dep_count;
    const char *phase, *unit, *direction; // unit or NULL; direction: h2d, d2h for copies, else NULL
    const struct graph_shape *shapes;
    size_t shape_count;
    double flop,
        bytes; // bytes: payload (full buffer), copied bytes or memory traffic; Adam: elements
    enum dtype dtype;
    int64_t group;              // index into groups or -1
    enum collective collective; // when kind is GRAPH_COLLECTIVE
    uint32_t buffer;            // for alloc and free; GRAPH_NO_BUFFER = none
    bool host_blocking;         // the host waits for its end before issuing the next
    double issue_s, duration_s; // predicted, nobody in the way
    double start_s, end_s;      // as simulated, shared resources included; 0 when step_s is
};

struct graph_group {
    const char
        *kind; // "world", "shard", "replica", "node", "tensor", "context", "expert", "pipeline"
    uint64_t size;
};
// Members lie apart (every ranks/size-th rank): replicas of a shard, and stages, the outermost
// groups.
bool graph_group_is_strided(const struct graph_group *g);
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
    double step_s; // of the whole step as simulated; 0 = not simulated
};

// Strict: unknown keys, dependencies on later tasks and indices out of range are errors.
bool graph_read(const char *path, struct arena *a, struct graph *out, struct err *e);
bool graph_read_node(struct json_node root, struct arena *a, struct graph *out, struct err *e);
bool graph_write(const char *path, const struct graph *g, struct err *e);
cJSON *graph_to_json(const struct graph *g); // the caller deletes it
