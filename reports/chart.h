// SPDX-License-Identifier: Apache-2.0
// The four kinds of picture. Each fills a plot; strings may come from files, labels of axes are
// constants. Values may be NAN: they are left out.
#pragma once

#include "axis.h"
#include "plot.h"

// Horizontal stacked bars. Row i has `per_row` bars; values[bar * segment_count + segment].
struct chart_bars {
    const char *x_label;
    const char *const *segments;     // names in the key
    const enum plot_colour *colours; // one per segment
    size_t segment_count;
    const char *const *rows;   // row labels
    size_t row_count, per_row; // per_row 1 or 2
    const double *values;      // row_count * per_row * segment_count
    const double *limits;      // per row, or NULL: a mark that should not be passed
    const char *limit_label;   // in the key, when the text is empty
    const char *limit_text;    // beside the first mark
    const double *low, *high;  // per bar, or NULL: an interval on the total
    const char *const *ends;   // per bar, or NULL: text at the bar's end
};
// With limits, bars longer than CHART_CUT times the largest limit, and half as long again as the
// middle one, are cut there and get an arrow.
#define CHART_CUT 3
#define CHART_ROW_LABEL 110 // characters of a row label; long ones stand above their bars
void chart_bars(struct plot *p, const struct chart_bars *b);

enum chart_style { CHART_LINE, CHART_DASHED, CHART_POINTS, CHART_LINE_POINTS, CHART_STEPS };

struct chart_series {
    const char *name;
    enum chart_style style;
    enum plot_colour colour;
    const double *x, *y;
    const double *low, *high; // NULL, or a band around y
    size_t count;
};

struct chart_mark { // a labelled point: a crossing, a break-even; of a rule only x counts
    double x, y;
    const char *label;
};

struct chart_xy {
    struct axis x, y;
    const struct chart_series *series;
    size_t series_count;
    const struct chart_mark *marks;
    size_t mark_count;
    const struct chart_mark *rules; // labelled vertical lines
    size_t rule_count;
    bool key; // names in a key; false: beside the lines' ends (a key on phones)
};
// Up to CHART_SERIES series, thinned without moving extremes, CHART_MARKS marks and CHART_RULES
// rules. A label that finds no free place is left out.
#define CHART_SERIES 16
#define CHART_MARKS 16
#define CHART_RULES 4
void chart_xy(struct plot *p, struct chart_xy *c);

struct chart_task {
    double start, end;
    int row;
    enum plot_colour colour;
};

struct chart_gantt {
    const char *x_label;
    const char *const *rows;
    size_t row_count;
    const struct chart_task *tasks; // grouped by colour when drawn; sorted by start within a row
    size_t task_count;
    const enum plot_colour *colours; // key
    const char *const *colour_names;
    size_t colour_count;
    const struct chart_mark *phases; // x: start, y: end
    size_t phase_count;
    double end;
};
void chart_gantt(struct plot *p, const struct chart_gantt *g);

struct chart_heat {
    const char *x_label, *y_label, *value_label;
    const char *const *names; // names of rows and columns
    size_t size;
    const double *values; // size * size, row major
};
void chart_heat(struct plot *p, const struct chart_heat *h);
