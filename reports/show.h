// SPDX-License-Identifier: Apache-2.0
// Figures and tables on the page. Every number from a file carries data-file, data-path and its
// exact value, so that the page can be checked against the JSON it came from.
#pragma once

#include "html.h"
#include "view.h"

#define SHOW_TEXT 96 // enough for any formatted number

// Text for a number by the unit its key ends in: _bytes GiB, _bytes_per_s GB/s, _s, _flop_per_s,
// fractions as percent. NAN becomes an en dash.
const char *show_format(char text[SHOW_TEXT], const char *key, double v);
const char *show_percent(char text[SHOW_TEXT], double fraction);

// Plain words for one of shardplan's own enumerated words ("inter_node"); other words themselves.
const char *show_word(const char *word);

// The scalar at `dotted` under `parent`: number, word, yes/no; an en dash when absent or null.
void show_value(struct html *h, struct view parent, const char *dotted);
// The same with the unit of another key: a row's "measured" of bytes, of seconds.
void show_value_as(struct html *h, struct view parent, const char *dotted, const char *key);
void show_scalar(struct html *h, struct view v); // the scalar itself, unit by its own key
// "GPU memory peak" from "memory.allocated_peak_bytes": the last part without its unit suffix.
void show_label(struct html *h, const char *key);

struct show_column {
    const char *key;     // dotted path inside each row
    const char *heading; // constant text
};

struct show_table {
    const char *caption;
    const struct show_column *columns;
    size_t column_count;
    size_t row_limit; // 0: all
    size_t marked;    // row to stress, counted from 1; 0: none
};

void show_table_open(struct html *h, const char *caption); // wrapper, <table>, caption
void show_table_close(struct html *h);
void show_rows(struct html *h, struct view array, const struct show_table *t);
// The columns that tell something: the first, and those with a value in some row that is neither
// null nor false. Keys of the rows themselves, no dots. Returns how many went to `out`.
size_t show_told(struct view rows, const struct show_column *all, size_t count,
                 struct show_column *out);
void show_pair(struct html *h, const char *heading, struct view parent, const char *dotted);

// Anything: scalars as a two-column table, arrays of objects as tables, the rest by recursion.
void show_any(struct html *h, struct view v, const char *caption);
// All members of `root` not in the NULL-terminated list `handled`, folded. Nothing if none remain.
void show_rest(struct html *h, struct view root, const char *const *handled);
// The same in the open.
void show_members(struct html *h, struct view root, const char *const *handled);

// "reduce_scatter" as "reduce scatter", in `a`.
const char *show_spaced(const char *word, struct arena *a);
