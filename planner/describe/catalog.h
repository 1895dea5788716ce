// SPDX-License-Identifier: Apache-2.0
// The catalog on disk: one JSON file per model, GPU and cluster, found by name or alias.
#pragma once

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum catalog_kind { CATALOG_MODELS, CATALOG_GPUS, CATALOG_CLUSTERS, CATALOG_KIND_COUNT };

struct catalog_entry {
    const char *name; // file name without ".json"
    const char *path;
    const char **aliases; // as written in the file
    size_t alias_count;
};

extern const char *const catalog_kind_names[CATALOG_KIND_COUNT]; // "models", "gpus", "clusters"

// Directory of the catalog: $SHARDPLAN_CATALOG, else the source tree's, else the installed one.
const char *catalog_dir(void);

// Path of the file for `name`: matched without case, runs of other characters than letters, digits
// and "." count as one "-". Not found: ERR_INPUT with the nearest name. *path lives in `a`.
bool catalog_find(enum catalog_kind kind, const char *name, struct arena *a, const char **path,
                  struct err *e);

// All entries, sorted by name.
bool catalog_list(enum catalog_kind kind, struct arena *a, struct catalog_entry **entries,
                  size_t *count, struct err *e);

// The matched form of a name: lower case, "A100-80GB (NDm A100 v4)" is "a100-80gb-ndm-a100-v4".
char *catalog_normalise(const char *name, struct arena *a);
