// SPDX-License-Identifier: Apache-2.0
// Things a reader accepted but the user should know: unknown keys of foreign files, inert settings.
#pragma once

#include "base/arena.h"

#include <stddef.h>

struct warning {
    const char *path; // "ds_config.json:12 zero_optimization.stage3_prefetch_bucket_sise"
    const char *text; // one sentence
};

// Zero-initialised = empty. Items live in the arena that was passed when they were added.
struct warnings {
    struct warning *items;
    size_t count, capacity;
};

// `w` may be NULL. Both texts are copied.
void warnings_add(struct warnings *w, struct arena *a, const char *path, const char *text);
