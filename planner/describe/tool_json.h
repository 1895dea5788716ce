// SPDX-License-Identifier: Apache-2.0
// Opening what profiling tools write, which may be too large to keep and may be packed.
#pragma once

#include "base/err.h"
#include "base/json_stream.h"

#include <stdbool.h>
#include <stddef.h>

// Reads the whole of `s`.
typedef bool tool_json_reader(struct json_stream *s, void *context, struct err *e);

// Refuses gzip and pickle, which JSON never starts like, and says how to unpack them.
bool tool_json_read(const char *path, tool_json_reader *read, void *context, struct err *e);
struct tool_json_text {
    const char *text, *name;
    size_t bytes;
};
bool tool_json_parse(const struct tool_json_text *t, tool_json_reader *read, void *context,
                     struct err *e);
