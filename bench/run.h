// SPDX-License-Identifier: Apache-2.0
// One run of shardbench: what every command shares.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "bench/backend.h"
#include "bench/harness.h"
#include "bench/options.h"
#include "bench/ranks.h"
#include "bench/signals.h"
#include "bench/sink.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct run {
    const struct options *options;
    const char *command_line; // as typed, for the result's `command`
    struct arena *arena;
    const struct ranks *ranks;
    uint64_t rank_count; // of a collective of everybody: ranks of the job, also in the process
                         // that only waits for them, or GPUs
    struct signals *signals;
    struct sink *sink;
    FILE *progress;         // a terminal, or NULL
    bool again;             // also points that have a result already
    double deadline_s;      // of clock_now_s: nothing is begun after it; 0 = none
    uint64_t wrong;         // elements found wrong so far
    struct opt_texts notes; // sentences for the reader: what was waived, what is slow
};

struct point_list {
    struct bench_point *items;
    size_t count, room;
};

// Appends a copy; grows in the run's arena.
void run_add_point(struct run *r, struct point_list *list, const struct bench_point *p);

void run_note(struct run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct backend_config run_config(const struct run *r);

// Measures every point with `b` and puts the results into the sink; points that an earlier run
// finished are skipped. A point that does not fit is noted and passed over. False: backend missing
// (ERR_RESOURCE), or ERR_INTERRUPTED.
bool run_points(struct run *r, const struct backend *b, const struct point_list *points,
                struct err *e);

// As run_points, but a backend that cannot run here is noted as waived: only for `all`.
bool run_points_or_waive(struct run *r, const struct backend *b, const struct point_list *points,
                         struct err *e);
