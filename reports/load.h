// SPDX-License-Identifier: Apache-2.0
// Result files: JSON of any of shardplan's schemas, or a measurement's JSON lines.
#pragma once

#include "base/arena.h"
#include "base/err.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

// Order of sections on the page: what answers first comes first.
enum result_kind {
    RESULT_ADVISE,
    RESULT_PLAN,
    RESULT_CONFIRM,
    RESULT_SIMULATE,
    RESULT_SWEEP,
    RESULT_ACCEPT,
    RESULT_CHECK,
    RESULT_EXPLAIN,
    RESULT_MEASUREMENT,
    RESULT_FIT,
    RESULT_REHEARSE,
    RESULT_VALIDATE,
    RESULT_OTHER,
    RESULT_KIND_COUNT
};

struct result {
    const char *name; // file name without folders
    enum result_kind kind;
    cJSON *root; // owned
};

struct results {
    struct result *items; // sorted by kind, then as given
    size_t count;
};

extern const char *const result_titles[RESULT_KIND_COUNT];

// The files named by `paths`, in `a`; results_finish frees the trees.
bool results_read(const char *const *paths, size_t count, struct arena *a, struct results *out,
                  struct err *e);
void results_finish(struct results *r);
