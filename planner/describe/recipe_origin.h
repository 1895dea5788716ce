// SPDX-License-Identifier: Apache-2.0
// Where the values of a recipe came from, for the inputs of a result.
#pragma once

#include "base/arena.h"

#include <stddef.h>

// Where a resolved value came from, for the plan's inputs[] ("default", "option",
// "ds_config.json:12").
struct recipe_origin {
    const char *path;  // "zero_optimization.reduce_bucket_size"
    const char *value; // as text
    const char *source;
};
struct recipe_origins {
    struct recipe_origin *items;
    size_t count, capacity;
};

// A second note on one path says what it overrides. Texts are copied; `o` may be NULL.
void recipe_note(struct recipe_origins *o, struct arena *a, const char *path, const char *value,
                 const char *source);
