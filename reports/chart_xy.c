// SPDX-License-Identifier: Apache-2.0
#include "chart.h"

#include "html.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS 480 // thinning keeps the extremes of each of this many columns
#define HEIGHT 430
#define TOP 0.06
#define BOTTOM 0.15
#define LARGEST 1e100 // beyond this an axis loses its ticks; false for NAN too
#define NAME_LIMIT 34

static bool usable(const struct chart_xy *c, double x, double y) {
    return fabs(x) < LARGEST && fabs(y) < LARGEST && (!c->x.log || x > 0) && (!c->y.log || y > 0);
}

static void extent(double *low, double *high, double v) {
    *low = isnan(*low) ? v : fmin(*low, v);
    *high = isnan(*high) ? v : fmax(*high, v);
}

static size_t fit_axes(struct chart_xy *c) {
    double box[4] = {NAN, NAN, NAN, NAN};
    size_t points = 0;
    for (size_t s = 0; s < c->series_count; s++)
        for (size_t i = 0; i < c->series[s].count; i++) {
            double x = c->series[s].x[i], y = c->series[s].y[i];
            if (!usable(c, x, y))
                continue;
            points++;
            extent(&box[0], &box[1], x);
            extent(&box[2], &box[3], y);
            if (c->series[s].high && c->series[s].high[i] < 1.3 * box[3])
                extent(&box[2], &box[3], c->series[s].high[i]);
        }
    for (size_t i = 0; points && i < c->rule_count; i++)
        extent(&box[0], &box[1], c->rules[i].x);
    if (c->x.low == c->x.high)
        axis_fit(&c->x, box[0], box[1]);
    if (c->y.low == c->y.high)
        axis_fit(&c->y, box[2], box[3]);
    if (c->rule_count) // their names stand at the top
        c->y.high = c->y.log ? c->y.high * pow(c->y.high / c->y.low, 0.1)
                             : c->y.high + 0.1 * (c->y.high - c->y.low);
    return points;
}

static void write_point(struct plot *p, const struct chart_series *s, size_t i) {
    plot_number(p, s->x[i]);
    plot_number(p, s->y[i]);
    plot_number(p, s->low ? s->low[i] : NAN);
    plot_number(p, s->high ? s->high[i] : NAN);
    plot_row_end(p);
}

// Points that share a small cell of the picture are drawn once.
static void write_cells(struct plot *p, const struct chart_xy *c, const struct chart_series *s) {
    enum { ACROSS = COLUMNS / 2, DOWN = 220 };
    unsigned char *seen = calloc(ACROSS * DOWN, 1);
    for (size_t i = 0; i < s->count; i++) {
        if (!usable(c, s->x[i], s->y[i]))
            continue;
        double x = axis_fraction(&c->x, s->x[i]), y = axis_fraction(&c->y, s->y[i]);
        if (!(x >= 0 && x <= 1 && y >= 0 && y <= 1))
            continue;
        size_t cell = (size_t)(x * (ACROSS - 1)) * DOWN + (size_t)(y * (DOWN - 1));
        if (seen && seen[cell])
            continue;
        if (seen)
            seen[cell] = 1;
        write_point(p, s, i);
    }
    free(seen);
}

// A line: in each column of the picture the first, lowest, highest and last point.
static void write_columns(struct plot *p, const struct chart_xy *c, const struct chart_series *s) {
    size_t i = 0;
    while (i < s->count) {
        if (!usable(c, s->x[i], s->y[i])) {
            i++;
            continue;
        }
        double column = floor(axis_fraction(&c->x, s->x[i]) * COLUMNS);
        size_t pick[4] = {i, i, i, i};
        for (; i < s->count && usable(c, s->x[i], s->y[i]) &&
               (i == pick[0] || floor(axis_fraction(&c->x, s->x[i]) * COLUMNS) == column);
             i++) {
            pick[1] = s->y[i] < s->y[pick[1]] ? i : pick[1];
            pick[2] = s->y[i] > s->y[pick[2]] ? i : pick[2];
            pick[3] = i;
        }
        if (pick[1] > pick[2]) {
            size_t swap = pick[1];
            pick[1] = pick[2];
            pick[2] = swap;
        }
        for (size_t k = 0; k < 4; k++)
            if (k == 0 || pick[k] != pick[k - 1])
                write_point(p, s, pick[k]);
    }
}

static const char *style_text(const struct chart_series *s) {
    switch (s->style) {
    case CHART_DASHED:
        return "with lines lw 1.5 dt (8,5)";
    case CHART_POINTS:
        return "with points ps 0.8";
    case CHART_LINE_POINTS:
        return "with linespoints lw 2 ps 0.6";
    case CHART_STEPS:
        return "with fsteps lw 2";
    default:
        return "with lines lw 2";
    }
}

static void write_series(struct plot *p, const struct chart_xy *c, size_t index) {
    static const int marks[] = {7, 5, 9, 13, 11, 6, 4, 8};
    const struct chart_series *s = &c->series[index];
    if (s->low && s->high) {
        int band = plot_block(p);
        write_columns(p, c, s);
        plot_clause(
            p,
            "file index %d using 1:3:4 with filledcurves fs transparent solid 0.18 noborder "
            "lc rgb \"%s\" notitle",
            band, plot_rgb(s->colour));
    }
    int block = plot_block(p);
    plot_string(p, s->name, NAME_LIMIT);
    plot_row_end(p);
    if (s->style == CHART_POINTS)
        write_cells(p, c, s);
    else
        write_columns(p, c, s);
    bool points = s->style == CHART_POINTS || s->style == CHART_LINE_POINTS;
    plot_clause(p, "file index %d using 1:2 %s lc rgb \"%s\"", block, style_text(s),
                plot_rgb(s->colour));
    if (points)
        fprintf(p->draw, " pt %d", marks[index % (sizeof marks / sizeof *marks)]);
    fputs(*s->name ? " title columnheader(1)" : " notitle", p->draw);
}

struct end_label {
    double at; // fraction of the axis, 0 at the bottom
    const char *name;
    enum plot_colour colour;
};

static int by_height(const void *a, const void *b) {
    double x = ((const struct end_label *)a)->at, y = ((const struct end_label *)b)->at;
    return x < y ? -1 : x > y;
}

// Push apart labels that would overlap, from the bottom up and then from the top down.
static void spread(struct end_label *labels, size_t n) {
    double gap = 19.0 / (HEIGHT * (1 - TOP - BOTTOM));
    qsort(labels, n, sizeof *labels, by_height);
    for (size_t i = 1; i < n; i++)
        labels[i].at = fmax(labels[i].at, labels[i - 1].at + gap);
    double top = 1;
    for (size_t i = n; i-- > 0; top -= gap)
        labels[i].at = fmin(labels[i].at, top);
}

static size_t end_labels(const struct chart_xy *c, struct end_label labels[CHART_SERIES]) {
    size_t n = 0;
    for (size_t s = 0; s < c->series_count && n < CHART_SERIES; s++) {
        const struct chart_series *one = &c->series[s];
        for (size_t i = one->count; i-- > 0 && *one->name;) {
            if (!usable(c, one->x[i], one->y[i]))
                continue;
            double at = fmin(1, fmax(0, axis_fraction(&c->y, one->y[i])));
            labels[n++] = (struct end_label){at, one->name, one->colour};
            break;
        }
    }
    spread(labels, n);
    return n;
}

static double at_fraction(const struct axis *x, double f) {
    return x->log ? x->low * pow(x->high / x->low, f) : x->low + f * (x->high - x->low);
}

// Names beside the ends of the lines, with a short stroke of the line's colour.
static void write_end_labels(struct plot *p, const struct chart_xy *c) {
    struct end_label labels[CHART_SERIES];
    size_t n = end_labels(c, labels);
    for (size_t i = 0; i < n; i++) {
        int block = plot_block(p);
        plot_number(p, at_fraction(&c->x, 0.9999));
        plot_number(p, at_fraction(&c->y, fmin(0.9999, labels[i].at)));
        plot_string(p, labels[i].name, NAME_LIMIT);
        plot_row_end(p);
        plot_clause(p,
                    "file index %d using (narrow ? NaN : $1):2 with points pt 5 ps 0.7 lc rgb "
                    "\"%s\" notitle",
                    block, plot_rgb(labels[i].colour));
        plot_clause(p,
                    "file index %d using (narrow ? NaN : $1):2:3 with labels left offset 1,0 "
                    "notitle",
                    block);
    }
}

struct frame { // of one variant, px
    double left, inner, height, character;
};

// Where the axes lie: names beside the lines' ends need room at the right of the wide picture.
static struct frame frame_of(const struct chart_xy *c, bool narrow, size_t longest) {
    double right = narrow ? 16 : c->key || longest == 0 ? 24 : 34 + 7.8 * (double)longest;
    struct frame f = {.left = narrow ? 42 + 7.0 * (double)axis_widest(&c->y, 6)
                                     : 52 + 8.0 * (double)axis_widest(&c->y, 7),
                      .height = HEIGHT * (1 - TOP - BOTTOM),
                      .character = narrow ? 7 : 8};
    f.inner = (narrow ? PLOT_NARROW : PLOT_WIDE) - f.left - right;
    return f;
}

struct placed { // where a label lies, px from the lower left of the axes
    double x0, x1, y;
};

struct taken {
    struct placed places[CHART_MARKS + CHART_RULES];
    size_t count;
};

static bool is_free(const struct taken *t, const struct frame *f, struct placed at) {
    if (at.x0 < 0 || at.x1 > f->inner + 8 || at.y < 6 || at.y > f->height ||
        t->count == CHART_MARKS + CHART_RULES)
        return false;
    for (size_t i = 0; i < t->count; i++)
        if (at.x0 < t->places[i].x1 && t->places[i].x0 < at.x1 && fabs(at.y - t->places[i].y) < 17)
            return false;
    return true;
}

// A stretch of line passes through the box of a label, px.
static bool passes(const struct placed *box, double x0, double y0, double x1, double y1) {
    double from = fmax(box->x0, fmin(x0, x1)), to = fmin(box->x1, fmax(x0, x1));
    if (from > to)
        return false;
    double slope = x1 != x0 ? (y1 - y0) / (x1 - x0) : 0;
    double a = x1 != x0 ? y0 + slope * (from - x0) : y0, b = x1 != x0 ? y0 + slope * (to - x0) : y1;
    return fmax(a, b) > box->y - 8 && fmin(a, b) < box->y + 8;
}

// Stretches of the lines, or points, that a label would lie on.
static size_t lines_under(const struct chart_xy *c, const struct frame *f,
                          const struct placed *box) {
    size_t n = 0;
    for (size_t s = 0; s < c->series_count; s++) {
        const struct chart_series *one = &c->series[s];
        double before[2] = {NAN, NAN};
        for (size_t i = 0; i < one->count; i++) {
            double x = f->inner * axis_fraction(&c->x, one->x[i]);
            double y = f->height * axis_fraction(&c->y, one->y[i]);
            bool alone = one->style == CHART_POINTS || isnan(before[0]);
            n += alone ? passes(box, x, y, x, y) : passes(box, before[0], before[1], x, y);
            before[0] = usable(c, one->x[i], one->y[i]) ? x : NAN;
            before[1] = y;
        }
    }
    for (size_t i = 0; i < c->rule_count; i++) {
        double x = f->inner * axis_fraction(&c->x, c->rules[i].x);
        n += x > box->x0 && x < box->x1;
    }
    return n;
}

// The place for a mark's label among right or left, above or below, where it lies on the fewest
// lines; -1 when all are taken.
static int place_mark(const struct chart_xy *c, const struct frame *f, const struct chart_mark *m,
                      struct taken *t) {
    static const int order[4] = {0, 3, 1, 2}; // most lines fall to the right
    double px = f->inner * axis_fraction(&c->x, m->x);
    double py = f->height * axis_fraction(&c->y, m->y);
    double width = f->character * (double)strlen(m->label) + 14;
    size_t least = SIZE_MAX;
    int best = -1;
    for (int k = 0; k < 4; k++) {
        int place = order[k];
        struct placed at = {place & 1 ? px - width : px + 10, place & 1 ? px - 10 : px + width,
                            py + (place & 2 ? -18 : 18)};
        size_t under = is_free(t, f, at) ? lines_under(c, f, &at) : SIZE_MAX;
        if (under < least) {
            least = under;
            best = place;
            t->places[t->count] = at;
        }
    }
    t->count += best >= 0;
    return best;
}

static const char *const sides[4] = {"left offset 1,1", "right offset -1,1", "left offset 1,-1",
                                     "right offset -1,-1"};

static void write_marks(struct plot *p, const struct chart_xy *c, const struct frame frames[2],
                        struct taken taken[2]) {
    size_t used[4] = {0};
    if (c->mark_count == 0)
        return;
    int block = plot_block(p);
    for (size_t i = 0; i < c->mark_count && i < CHART_MARKS; i++) {
        if (!usable(c, c->marks[i].x, c->marks[i].y))
            continue;
        plot_number(p, c->marks[i].x);
        plot_number(p, c->marks[i].y);
        plot_string(p, c->marks[i].label, 40);
        for (int v = 0; v < 2; v++) {
            int place = place_mark(c, &frames[v], &c->marks[i], &taken[v]);
            plot_number(p, place);
            if (place >= 0)
                used[place]++;
        }
        plot_row_end(p);
    }
    plot_clause(p,
                "file index %d using ((narrow ? $5 : $4) < 0 ? NaN : $1):2 with points pt 6 ps 1.6 "
                "lw 2 lc rgb \"#000000\" notitle",
                block);
    for (int k = 0; k < 4; k++)
        if (used[k])
            plot_clause(p,
                        "file index %d using ((narrow ? $5 : $4) == %d ? $1 : NaN):2:3 with labels "
                        "%s notitle",
                        block, k, sides[k]);
}

// Another line runs through the label of the line at `own` px.
static bool is_crossed(const struct chart_xy *c, const struct frame *f, struct placed at,
                       double own) {
    for (size_t i = 0; i < c->rule_count; i++) {
        double px = f->inner * axis_fraction(&c->x, c->rules[i].x);
        if (px != own && px > at.x0 - 4 && px < at.x1 + 4)
            return true;
    }
    return false;
}

// A label at the top of its line, to its right or left, one line lower for each that is in the way.
static int place_rule(const struct chart_xy *c, const struct frame *f, const struct chart_mark *m,
                      struct taken *t, double *y) {
    double px = f->inner * axis_fraction(&c->x, m->x);
    double width = f->character * (double)strlen(m->label) + 12;
    for (int place = 0; place < 12; place++) { // the last six may lie on another line
        int left = place % 2, row = place / 2 % 3;
        struct placed at = {left ? px - width : px, left ? px : px + width,
                            f->height - 9 - 18 * row};
        if ((place < 6 && is_crossed(c, f, at, px)) || !is_free(t, f, at))
            continue;
        t->places[t->count++] = at;
        *y = at.y / f->height;
        return left;
    }
    return -1;
}

static void write_rules(struct plot *p, const struct chart_xy *c, const struct frame frames[2],
                        struct taken taken[2]) {
    if (c->rule_count == 0)
        return;
    int block = plot_block(p);
    for (size_t i = 0; i < c->rule_count && i < CHART_RULES; i++) {
        plot_number(p, c->rules[i].x);
        plot_string(p, c->rules[i].label, 40);
        for (int v = 0; v < 2; v++) {
            double y = 0;
            plot_number(p, place_rule(c, &frames[v], &c->rules[i], &taken[v], &y));
            plot_number(p, at_fraction(&c->y, y));
        }
        plot_row_end(p);
    }
    plot_clause(p,
                "file index %d using 1:(%.12g):(0):(%.12g) with vectors nohead lw 1.5 dt (4,4) lc "
                "rgb \"#000000\" notitle",
                block, c->y.low, c->y.high - c->y.low);
    for (int left = 0; left < 2; left++)
        plot_clause(p,
                    "file index %d using ((narrow ? $5 : $3) == %d ? $1 : NaN):(narrow ? $6 : $4)"
                    ":2 with labels %s notitle",
                    block, left, left ? "right offset -0.6,0" : "left offset 0.6,0");
}

static void write_axes(const struct chart_xy *c, const struct frame *f, bool narrow, double height,
                       FILE *out) {
    double width = narrow ? PLOT_NARROW : PLOT_WIDE;
    fprintf(out, "set lmargin at screen %.4f\nset rmargin at screen %.4f\n", f->left / width,
            (f->left + f->inner) / width);
    fprintf(out, "set bmargin at screen %.4f\n", (narrow ? 56.0 : 62.0) / height);
    if (narrow) {
        axis_write_ticks(&c->x, 'x', 4, out);
        axis_write_ticks(&c->y, 'y', 6, out);
    } else {
        axis_write(&c->x, 'x', c->x.kind == AXIS_BYTES ? 9 : 8, out);
        axis_write(&c->y, 'y', 7, out);
    }
}

static void write_layout(struct plot *p, const struct chart_xy *c, const struct frame frames[2],
                         size_t longest, size_t names) {
    plot_key(p, names, longest, (int[2]){HEIGHT, HEIGHT});
    if (!c->key) {
        p->height = HEIGHT;
        fprintf(p->wide, "unset key\nset tmargin at screen %.3f\n", 1 - TOP);
    }
    fputs("set grid xtics ytics back lc rgb \"#D0D0D0\" lw 1 dt solid\n", p->common);
    write_axes(c, &frames[0], false, p->height, p->wide);
    write_axes(c, &frames[1], true, p->narrow_height, p->narrow);
}

void chart_xy(struct plot *p, struct chart_xy *c) {
    size_t names = 0, longest = 0;
    struct taken taken[2] = {{.count = 0}, {.count = 0}};
    if (c->series_count > CHART_SERIES)
        c->series_count = CHART_SERIES;
    if (fit_axes(c) == 0) {
        p->trouble = "there is nothing to draw: no value is known";
        return;
    }
    for (size_t s = 0; s < c->series_count; s++) {
        write_series(p, c, s);
        char text[PLOT_LABEL];
        size_t count = html_clean(text, sizeof text, c->series[s].name, NAME_LIMIT);
        longest = count > longest ? count : longest;
        names += count > 0;
    }
    const struct frame frames[2] = {frame_of(c, false, longest), frame_of(c, true, longest)};
    if (!c->key)
        write_end_labels(p, c);
    write_rules(p, c, frames, taken);
    write_marks(p, c, frames, taken);
    write_layout(p, c, frames, longest, names);
}
