// SPDX-License-Identifier: Apache-2.0
// Things a reader accepted but the user should know: unknown keys of foreign files, inert settings.
#pragma once

#include "base/arena.h"

#include <stddef.h>

enum warning_kind {
    WARNING_UNKNOWN,    // key nobody reads
    WARNING_INERT,      // accepted by the framework, without effect here
    WARNING_DEPRECATED, // old name or form
    WARNING_REFUSED,    // the framework itself stops here (only from a lenient reader)
    WARNING_ASSUMED,    // the file leaves it open; a value was taken
    WARNING_LEFT_OUT,   // a line or row that could not be read, or contradicts the rest
    WARNING_KIND_COUNT
};

struct warning {
    enum warning_kind kind;
    const char *path; // "ds_config.json:12 zero_optimization.stage3_prefetch_bucket_sise"
    const char *text; // one sentence
};

// Zero-initialised = empty. Items live in the arena that was passed when they were added.
struct warnings {
    struct warning *items;
    size_t count, capacity;
};

// `w` may be NULL. Both texts are copied.
void warnings_add(struct warnings *w, struct arena *a, enum warning_kind kind, const char *path,
                  const char *text);
