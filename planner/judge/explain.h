// SPDX-License-Identifier: Apache-2.0
// Reads a training log and says which allocation failed, in which phase, and what to change.
// Sizes name their cause: docs/method.md §sizes.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "cost/memory.h"
#include "describe/cluster.h"
#include "describe/model.h"
#include "describe/recipe.h"

#include <stdbool.h>
#include <stddef.h>

enum explain_kind {
    EXPLAIN_OOM,          // PyTorch's GPU allocator gave up
    EXPLAIN_HOST_KILLED,  // exit -9, oom-kill
    EXPLAIN_MEMORY_USAGE, // DeepSpeed see_memory_usage
    EXPLAIN_CACHE_FLUSH,  // allocator cache flushes
    EXPLAIN_SWAP_BUFFERS, // NVMe optimizer swapper
    EXPLAIN_NCCL,         // transport and environment lines
    EXPLAIN_TIMEOUT,      // collective watchdog
    EXPLAIN_ESTIMATE,     // DeepSpeed's memory estimator table
    EXPLAIN_SETTING,      // bucket sizes and persistent parameters as logged
    EXPLAIN_KIND_COUNT
};
extern const char *const explain_kind_names[EXPLAIN_KIND_COUNT];

struct explain_cause {
    const char *what;   // "logits in fp32 (b x s x V x 4 B)"
    double bytes;       // exact size of that allocation
    const char *phase;  // when it happens
    const char *advice; // what to change
};
#define EXPLAIN_CAUSES_MAX 6

struct explain_event {
    enum explain_kind kind;
    size_t line, count; // first line, and how often the same was said
    const char *text;   // the line, shortened
    const char *phase;  // from the trace above it, or NULL
    // Bytes as logged; NAN where the line has none.
    double asked_bytes, total_bytes, free_bytes, allocated_bytes, reserved_bytes;
    struct explain_cause causes[EXPLAIN_CAUSES_MAX]; // likeliest first
    size_t cause_count;
    const char *meaning; // one or two sentences
    const char *advice;  // or NULL
};

struct explain_request {
    const char *path;
    const struct model *model;
    const struct cluster *cluster; // NULL: group sizes 1 to 64 are tried
    const struct recipe *recipe;   // resolved; NULL: defaults of every framework are tried
};

struct explain_result {
    struct explain_event *events;
    size_t count, capacity;
    const struct explain_event *first; // the event that stopped the run, or NULL
};

bool explain_log(const struct explain_request *q, struct arena *a, struct explain_result *out,
                 struct err *e);
// Allocations of about this size: exact within how the log rounds it (half a unit of its last
// digit, plus the allocator's 2 MiB). Returns how many of `out` were filled.
size_t explain_sizes(const struct explain_request *q, double bytes, double tolerance_bytes,
                     struct arena *a, struct explain_cause *out, size_t max);
// Whole copies of the model only: what memory that does not fall with the number of GPUs is.
size_t explain_copies(const struct explain_request *q, double bytes, double tolerance_bytes,
                      struct arena *a, struct explain_cause *out);
