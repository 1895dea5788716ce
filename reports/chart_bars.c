// SPDX-License-Identifier: Apache-2.0
#include "chart.h"

#include <math.h>
#include <string.h>

#define ROW_PX 34
#define LABEL_WIDE 38 // characters of a row label
#define LABEL_NARROW 18

static double bar_total(const struct chart_bars *b, size_t bar) {
    double sum = 0;
    for (size_t s = 0; s < b->segment_count; s++) {
        double v = b->values[bar * b->segment_count + s];
        sum += v > 0 ? v : 0;
    }
    return sum;
}

static double row_y(const struct chart_bars *b, size_t bar) {
    size_t row = bar / b->per_row, sub = bar % b->per_row;
    double y = (double)(b->row_count - 1 - row);
    return b->per_row == 2 ? y + (sub == 0 ? 0.2 : -0.2) : y;
}

// Where bars end at the latest.
static double cut_of(const struct chart_bars *b) {
    double limit = 0;
    for (size_t i = 0; b->limits && i < b->row_count; i++)
        limit = isfinite(b->limits[i]) ? fmax(limit, b->limits[i]) : limit;
    return limit > 0 ? CHART_CUT * limit : INFINITY;
}

static double largest(const struct chart_bars *b) {
    double most = 0;
    for (size_t i = 0; i < b->row_count * b->per_row; i++) {
        most = fmax(most, bar_total(b, i));
        if (b->high && isfinite(b->high[i]))
            most = fmax(most, b->high[i]);
    }
    for (size_t i = 0; b->limits && i < b->row_count; i++)
        if (isfinite(b->limits[i]))
            most = fmax(most, b->limits[i]);
    return most > 0 ? fmin(most, cut_of(b)) : 1;
}

// One block per segment: x0, x1, y, name and its length; named only where it is largest.
static void write_segment(struct plot *p, const struct chart_bars *b, size_t segment) {
    size_t best = 0, bars = b->row_count * b->per_row;
    double cut = cut_of(b);
    for (size_t i = 0; i < bars; i++)
        if (b->values[i * b->segment_count + segment] >
                b->values[best * b->segment_count + segment] ||
            !(b->values[best * b->segment_count + segment] > 0))
            best = i;
    for (size_t i = 0; i < bars; i++) {
        double x = 0, v = b->values[i * b->segment_count + segment];
        for (size_t s = 0; s < segment; s++)
            x += fmax(0, b->values[i * b->segment_count + s]);
        if (!(v > 0) || x >= cut)
            continue;
        plot_number(p, x);
        plot_number(p, fmin(cut, x + v));
        plot_number(p, row_y(b, i));
        plot_string(p, i == best ? b->segments[segment] : "", 24);
        plot_number(p, i == best ? (double)strlen(b->segments[segment]) : INFINITY);
        plot_row_end(p);
    }
}

static size_t longest_row(const struct chart_bars *b, size_t limit) {
    size_t longest = 1;
    for (size_t i = 0; i < b->row_count; i++)
        longest = strlen(b->rows[i]) > longest ? strlen(b->rows[i]) : longest;
    return longest < limit ? longest : limit;
}

static size_t longest_end(const struct chart_bars *b) {
    size_t longest = 0;
    for (size_t i = 0; b->ends && i < b->row_count * b->per_row; i++)
        longest = strlen(b->ends[i]) > longest ? strlen(b->ends[i]) : longest;
    return longest;
}

struct layout { // px, and the end of the x axis
    double left, inner, character, high;
};

// Left margin and range for one width; leaves room for the text at the bars' ends.
static struct layout layout_of(const struct chart_bars *b, bool narrow, double most) {
    double width = narrow ? PLOT_NARROW : PLOT_WIDE;
    struct layout l = {.character = narrow ? 7.2 : 7.9};
    l.left = (narrow ? 24 : 16) +
             l.character * (double)longest_row(b, narrow ? LABEL_NARROW : LABEL_WIDE);
    l.inner = width - l.left - 18;
    double ends = fmin(0.62 * l.inner, l.character * (double)(longest_end(b) + 2) + 10);
    l.high = b->ends ? most / (1 - ends / l.inner) : 1.04 * most;
    return l;
}

static void write_layout(const struct chart_bars *b, bool narrow, double most, FILE *out) {
    struct layout l = layout_of(b, narrow, most);
    double width = narrow ? PLOT_NARROW : PLOT_WIDE;
    struct axis x = {.label = b->x_label, .from_zero = true, .high = l.high};
    fprintf(out, "set lmargin at screen %.4f\nset rmargin at screen %.4f\n", l.left / width,
            (l.left + l.inner) / width);
    fprintf(out, "row_label = %d\npixels_per_unit = %.9g\ncharacter = %.2f\n", narrow ? 3 : 2,
            l.inner / l.high, l.character);
    axis_write(&x, 'x', narrow ? 5 : 9, out);
}

static void clause_segments(struct plot *p, const struct chart_bars *b, const int *blocks) {
    double half = b->per_row == 2 ? 0.19 : 0.34;
    for (size_t s = 0; s < b->segment_count; s++) {
        if (blocks[s] < 0)
            continue;
        plot_clause(p,
                    "file index %d using 1:3:1:2:($3-%.2f):($3+%.2f) with boxxyerror lc rgb \"%s\" "
                    "title \"%s\"",
                    blocks[s], half, half, plot_rgb(b->colours[s]), b->segments[s]);
    }
    for (size_t s = 0; s < b->segment_count; s++)
        if (blocks[s] >= 0)
            plot_clause(p,
                        "file index %d using ($5*character+6 < "
                        "($2-$1)*pixels_per_unit ? ($1+$2)/2 : NaN):3:4 with labels center tc rgb "
                        "\"%s\" font \",11\" notitle",
                        blocks[s], plot_ink(b->colours[s]));
}

static double bar_right(const struct chart_bars *b, size_t bar) {
    double right = bar_total(b, bar);
    if (b->high && isfinite(b->high[bar]))
        right = fmax(right, b->high[bar]);
    return fmin(right, cut_of(b));
}

// The limit's line would strike through the text at this row's end, in one of the two pictures.
static bool limit_hits_end(const struct chart_bars *b, size_t row, bool narrow, double most) {
    struct layout l = layout_of(b, narrow, most);
    double px = (b->limits[row] - bar_right(b, row)) * l.inner / l.high;
    return b->ends && b->per_row == 1 && px > 0 &&
           px < 12 + l.character * (double)strlen(b->ends[row]);
}

static void limit_stroke(struct plot *p, double x, double y, double length) {
    plot_number(p, x);
    plot_number(p, y);
    plot_number(p, 0);
    plot_number(p, length);
    plot_row_end(p);
}

static void write_limit_line(struct plot *p, const struct chart_bars *b, bool narrow, double most) {
    int block = plot_block(p);
    for (size_t i = b->row_count; i-- > 0;) {
        double y = (double)(b->row_count - 1 - i), extra = i == 0 ? 0.15 : 0;
        if (limit_hits_end(b, i, narrow, most)) {
            limit_stroke(p, b->limits[i], y - 0.5, 0.22);
            limit_stroke(p, b->limits[i], y + 0.28, 0.22 + extra);
        } else {
            limit_stroke(p, b->limits[i], y - 0.5, 1 + extra);
        }
    }
    plot_clause(
        p,
        "file index %d using (narrow == %d ? $1 : NaN):2:3:4 with vectors nohead lw 2 dt (6,3) "
        "lc rgb \"#000000\" notitle",
        block, narrow);
}

static void write_limits(struct plot *p, const struct chart_bars *b, double most) {
    size_t first = 0;
    write_limit_line(p, b, false, most);
    write_limit_line(p, b, true, most);
    while (first < b->row_count && isnan(b->limits[first]))
        first++;
    if (first == b->row_count)
        return;
    double at = b->limits[first] / layout_of(b, false, most).high;
    const char *side = at < 0.15   ? "left offset -1,0.2"
                       : at > 0.75 ? "right offset 1,0.2"
                                   : "center offset 0,0.2";
    int block = plot_block(p);
    plot_number(p, b->limits[first]);
    plot_number(p, (double)b->row_count - 0.2);
    plot_string(p, b->limit_text, 32);
    plot_row_end(p);
    if (*b->limit_text)
        plot_clause(p, "file index %d using 1:2:3 with labels %s notitle", block, side);
    else // a line of one point shows in the key alone
        plot_clause(
            p, "file index %d using 1:2 with lines lw 2 dt (6,3) lc rgb \"#000000\" title \"%s\"",
            block, b->limit_label);
}

static bool limit_in_key(const struct chart_bars *b) {
    return b->limits && !*b->limit_text;
}

static void write_totals(struct plot *p, const struct chart_bars *b) {
    int block = plot_block(p);
    double cut = cut_of(b);
    for (size_t i = 0; i < b->row_count * b->per_row; i++) {
        double low = b->low ? b->low[i] : NAN, high = b->high ? b->high[i] : NAN;
        char end[96];
        plot_number(p, bar_right(b, i));
        plot_number(p, row_y(b, i));
        plot_number(p, high > cut ? NAN : low);
        plot_number(p, high > cut ? NAN : high);
        snprintf(end, sizeof end, "%s%.80s", bar_total(b, i) > cut ? "\xe2\x86\x92 " : "",
                 b->ends ? b->ends[i] : "");
        plot_string(p, end, 60);
        plot_row_end(p);
    }
    if (b->low && b->high)
        plot_clause(
            p,
            "file index %d using 3:($2-%.2f):3:4 with xerrorbars pt -1 lw 1.5 lc rgb \"#000000\" "
            "notitle",
            block, b->per_row == 2 ? 0.1 : 0.2);
    if (b->ends)
        plot_clause(p, "file index %d using 1:2:5 with labels left offset 0.6,0 notitle", block);
}

static void write_rows(struct plot *p, const struct chart_bars *b) {
    int block = plot_block(p);
    for (size_t i = 0; i < b->row_count; i++) {
        plot_number(p, (double)(b->row_count - 1 - i));
        plot_string(p, b->rows[i], LABEL_WIDE);
        plot_string(p, b->rows[i], LABEL_NARROW);
        plot_row_end(p);
    }
    plot_clause(p,
                "file index %d using (NaN):1:ytic(row_label) "
                "with points notitle",
                block);
}

static void write_frame(struct plot *p, size_t keys, const struct chart_bars *b,
                        const int *blocks) {
    size_t longest = limit_in_key(b) ? strlen(b->limit_label) : 1;
    for (size_t s = 0; s < b->segment_count; s++)
        if (blocks[s] >= 0 && strlen(b->segments[s]) > longest)
            longest = strlen(b->segments[s]);
    double rows = (double)b->row_count, top = b->limits ? 0.9 : 0.5;
    double row_px = b->per_row == 2 ? 1.5 * ROW_PX : ROW_PX;
    plot_key(p, keys, longest, (int)(64 + row_px * (rows - 0.3 + top)));
    fprintf(p->common, "set style fill solid 1 border lc rgb \"#808080\"\nset yrange [-0.7:%.2f]\n",
            rows - 1 + top);
    fputs("set ytics scale 0\nset grid xtics back lc rgb \"#D0D0D0\" lw 1 dt solid\n", p->common);
}

void chart_bars(struct plot *p, const struct chart_bars *b) {
    int blocks[32];
    double most = largest(b);
    size_t used = 0;
    if (b->row_count == 0 || b->segment_count > 32) {
        p->trouble = "there is nothing to draw";
        return;
    }
    for (size_t s = 0; s < b->segment_count; s++) {
        bool any = false;
        for (size_t i = 0; i < b->row_count * b->per_row; i++)
            any |= b->values[i * b->segment_count + s] > 0;
        blocks[s] = any ? plot_block(p) : -1;
        used += any;
        if (any)
            write_segment(p, b, s);
    }
    clause_segments(p, b, blocks);
    if (b->limits)
        write_limits(p, b, most);
    write_totals(p, b);
    write_rows(p, b);
    write_frame(p, used + limit_in_key(b), b, blocks);
    write_layout(b, false, most, p->wide);
    write_layout(b, true, most, p->narrow);
}
