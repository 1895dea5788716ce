// SPDX-License-Identifier: Apache-2.0
// Result files: JSON of any of shardplan's schemas, or a measurement's JSON lines.
#pragma once

#include "base/arena.h"
#include "base/err.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

// Order of sections on the page: what answers first comes first. RESULT_PLAIN: schemas without
// pictures of their own (topology, profile, snapshot, catalog, emit), shown as tables.
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
    RESULT_PLAIN,
    RESULT_KIND_COUNT
};

struct result {
    const char *name; // file name without folders
    enum result_kind kind;
    const char *title; // of its section, constant
    bool cut;          // JSON lines whose last one is cut off and left out
    cJSON *root;       // owned
};

struct results {
    struct result *items; // sorted by kind, then as given
    size_t count;
};

// The files named by `paths`, in `a`; results_finish frees the trees. Anything that is not a result
// of shardplan is an error which names the file, what it is and what would be read.
bool results_read(const char *const *paths, size_t count, struct arena *a, struct results *out,
                  struct err *e);
void results_finish(struct results *r);
