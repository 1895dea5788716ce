// SPDX-License-Identifier: Apache-2.0
// Two bars per row: what was planned or simulated above, what was measured below.
#pragma once

#include "page.h"

struct pair_bars {
    const char *stem, *heading, *what; // constants; what the axis counts
    const char *planned, *measured;    // keys, spellings separated by "|"
    const char *unit;                  // "_s" or "_bytes": of the values
    const char *first;                 // name of the upper bar
    const char *only;                  // rows whose "unit" is this word; NULL: all
};

// Up to 16 rows that have both; nothing when none has.
void pair_figure(struct page *p, struct view rows, const struct pair_bars *b);

// How many times as long, or as much, in three digits; in `a`.
const char *pairs_times(double ratio, struct arena *a);
