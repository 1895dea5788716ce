// SPDX-License-Identifier: Apache-2.0
// Where results go as they finish: kept in memory, and one JSON line each in the output file. Also
// knows what an earlier, interrupted run already measured.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "describe/measure.h"

#include <stdbool.h>
#include <stddef.h>

struct sink;

enum sink_mode {
    SINK_FRESH,  // replaces the file
    SINK_RESUME, // keeps its results and skips them; a torn last line is cut off
    SINK_APPEND, // a helper process of a run whose header is written already
};

// `path` NULL: in memory only. Strings of added results must live as long as the sink; `a` too.
struct sink *sink_create(const char *path, enum sink_mode mode, const struct measure_host *host,
                         const struct measure_build *build, struct arena *a, struct err *e);
const char *sink_path(const struct sink *s); // NULL: in memory only
void sink_destroy(struct sink *s);           // NULL is fine

bool sink_has(const struct sink *s, const struct measure_result *point); // same measure_key
bool sink_add(struct sink *s, const struct measure_result *r, struct err *e);

// Takes in what a helper process appended to the file meanwhile.
bool sink_reload(struct sink *s, struct err *e);

// All results so far, earlier runs' first. Valid until the next add or reload.
const struct measurement *sink_results(const struct sink *s);
