// SPDX-License-Identifier: Apache-2.0
#include "chart.h"

#include "html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROW_PX 34
#define LEAST 1e-90 // below it a pixel's share overflows
// Longer row labels stand above their bars rather than at the left.
#define LABEL_WIDE 38
#define LABEL_NARROW 13
#define LINE_NARROW 56 // characters above a bar of the narrow picture
#define SEGMENTS 32

static double bar_total(const struct chart_bars *b, size_t bar) {
    double sum = 0;
    for (size_t s = 0; s < b->segment_count; s++) {
        double v = b->values[bar * b->segment_count + s];
        sum += v > 0 ? v : 0;
    }
    return sum;
}

// A bar's row, counted from below, and its side of the row: 1 above, -1 below, 0 alone.
static void write_place(struct plot *p, const struct chart_bars *b, size_t bar) {
    plot_number(p, (double)(b->row_count - 1 - bar / b->per_row));
    plot_number(p, b->per_row == 1 ? 0 : bar % 2 == 0 ? 1 : -1);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// Where bars end at the latest: where most of them pass the limit by far, the limit may shrink.
static double cut_of(const struct chart_bars *b) {
    size_t bars = b->row_count * b->per_row;
    double limit = 0, *totals = malloc(bars * sizeof *totals), middle = 0;
    for (size_t i = 0; b->limits && i < b->row_count; i++)
        limit = isfinite(b->limits[i]) ? fmax(limit, b->limits[i]) : limit;
    for (size_t i = 0; totals && i < bars; i++)
        totals[i] = bar_total(b, i);
    if (totals) {
        qsort(totals, bars, sizeof *totals, by_value);
        middle = totals[bars / 2];
    }
    free(totals);
    return limit > 0 ? fmax(CHART_CUT * limit, 1.5 * middle) : INFINITY;
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
    return most > LEAST ? fmin(most, cut_of(b)) : 1;
}

// The widest part of a segment that neither the limit's line nor the interval's crosses.
static void room_in(const struct chart_bars *b, size_t bar, double *from, double *to) {
    double limit = b->limits ? b->limits[bar / b->per_row] : NAN;
    double low = b->low && b->high && isfinite(b->high[bar]) ? b->low[bar] : NAN;
    if (low < *to)
        *to = low;
    if (limit > *from && limit < *to) {
        if (limit - *from > *to - limit)
            *to = limit;
        else
            *from = limit;
    }
}

static double segment_start(const struct chart_bars *b, size_t bar, size_t segment) {
    double x = 0;
    for (size_t s = 0; s < segment; s++)
        x += fmax(0, b->values[bar * b->segment_count + s]);
    return x;
}

// The bar in which a segment has most room for its name.
static size_t roomiest(const struct chart_bars *b, size_t segment, double cut) {
    size_t best = 0;
    double most = -1;
    for (size_t i = 0; i < b->row_count * b->per_row; i++) {
        double from = segment_start(b, i, segment);
        double to = fmin(cut, from + b->values[i * b->segment_count + segment]);
        room_in(b, i, &from, &to);
        if (to - from > most) {
            most = to - from;
            best = i;
        }
    }
    return best;
}

// One block per segment: from, to, row, side, name, its length, and where it may stand.
static void write_segment(struct plot *p, const struct chart_bars *b, size_t segment) {
    double cut = cut_of(b);
    size_t best = roomiest(b, segment, cut);
    for (size_t i = 0; i < b->row_count * b->per_row; i++) {
        double v = b->values[i * b->segment_count + segment], x = segment_start(b, i, segment);
        if (!(v > 0) || x >= cut)
            continue;
        double from = x, to = fmin(cut, x + v);
        plot_number(p, from);
        plot_number(p, to);
        write_place(p, b, i);
        room_in(b, i, &from, &to);
        plot_string(p, i == best ? b->segments[segment] : "", 24);
        plot_number(p, i == best ? (double)strlen(b->segments[segment]) : INFINITY);
        plot_number(p, from);
        plot_number(p, to);
        plot_row_end(p);
    }
}

static size_t longest_row(const struct chart_bars *b) {
    size_t longest = 1;
    for (size_t i = 0; i < b->row_count; i++) {
        char text[PLOT_LABEL];
        size_t count = html_clean(text, sizeof text, b->rows[i], CHART_ROW_LABEL);
        longest = count > longest ? count : longest;
    }
    return longest;
}

static size_t longest_end(const struct chart_bars *b) {
    size_t longest = 0;
    for (size_t i = 0; b->ends && i < b->row_count * b->per_row; i++)
        longest = strlen(b->ends[i]) > longest ? strlen(b->ends[i]) : longest;
    return longest;
}

static bool labels_above(const struct chart_bars *b, bool narrow) {
    return longest_row(b) > (narrow ? LABEL_NARROW : LABEL_WIDE);
}

struct layout { // px, and the end of the x axis
    double left, inner, character, high;
};

// Left margin and range for one width; leaves room for the text at the bars' ends.
static struct layout layout_of(const struct chart_bars *b, bool narrow, double most) {
    double width = narrow ? PLOT_NARROW : PLOT_WIDE;
    struct layout l = {.character = narrow ? 7.2 : 7.9};
    l.left =
        labels_above(b, narrow) ? 14 : (narrow ? 24 : 28) + l.character * (double)longest_row(b);
    l.inner = width - l.left - 18;
    double ends = fmin(0.62 * l.inner, l.character * (double)(longest_end(b) + 2) + 10);
    l.high = b->ends ? most / (1 - ends / l.inner) : 1.04 * most;
    return l;
}

static double row_px(const struct chart_bars *b, bool narrow) {
    return ROW_PX * (b->per_row == 2 ? 1.5 : 1) + (labels_above(b, narrow) ? 16 : 0);
}

// Where bars lie in a row of height 1, and the functions that place text.
static void write_rows_layout(const struct chart_bars *b, bool narrow, FILE *out) {
    static const double beside[2][3] = {{0, 0, 0.34}, {0, 0.2, 0.19}};
    static const double below[2][3] = {{-0.17, 0, 0.22}, {-0.12, 0.14, 0.13}};
    bool above = labels_above(b, narrow);
    const double *v = above ? below[b->per_row - 1] : beside[b->per_row - 1];
    fprintf(out, "above = %d\nrow_label = %d\nrow_text = %d\nshift = %g\nspread = %g\nhalf = %g\n",
            above, above ? 3 : 2, narrow ? 4 : 2, v[0], v[1], v[2]);
}

static void write_layout(const struct chart_bars *b, bool narrow, double most, FILE *out) {
    struct layout l = layout_of(b, narrow, most);
    double width = narrow ? PLOT_NARROW : PLOT_WIDE;
    struct axis x = {.label = b->x_label, .from_zero = true, .high = l.high};
    fprintf(out, "set lmargin at screen %.4f\nset rmargin at screen %.4f\n", l.left / width,
            (l.left + l.inner) / width);
    fprintf(out, "pixels_per_unit = %.9g\ncharacter = %.2f\n", l.inner / l.high, l.character);
    write_rows_layout(b, narrow, out);
    axis_write(&x, 'x', narrow ? 5 : 9, out);
}

static void clause_segments(struct plot *p, const struct chart_bars *b, const int *blocks,
                            bool named) {
    for (size_t s = 0; s < b->segment_count; s++) {
        if (blocks[s] < 0)
            continue;
        plot_clause(p,
                    "file index %d using 1:(at($3,$4)):1:2:(at($3,$4)-half):(at($3,$4)+half) with "
                    "boxxyerror lc rgb \"%s\" ",
                    blocks[s], plot_rgb(b->colours[s]));
        fprintf(p->draw, named ? "title \"%s\"" : "notitle", b->segments[s]);
    }
    for (size_t s = 0; named && s < b->segment_count; s++)
        if (blocks[s] >= 0)
            plot_clause(p,
                        "file index %d using ($6*character+6 < ($8-$7)*pixels_per_unit ? "
                        "($7+$8)/2 : NaN):(at($3,$4)):5 with labels center tc rgb \"%s\" font "
                        "\",11\" notitle",
                        blocks[s], plot_ink(b->colours[s]));
}

static double bar_right(const struct chart_bars *b, size_t bar) {
    double right = bar_total(b, bar);
    if (b->high && isfinite(b->high[bar]) && b->high[bar] <= cut_of(b))
        right = fmax(right, b->high[bar]);
    return fmin(right, cut_of(b));
}

static void write_limit_line(struct plot *p, const struct chart_bars *b) {
    int block = plot_block(p);
    for (size_t i = b->row_count; i-- > 0;) {
        plot_number(p, b->limits[i]);
        plot_number(p, (double)(b->row_count - 1 - i) - 0.5);
        plot_number(p, 0);
        plot_number(p, i == 0 ? 1.15 : 1);
        plot_row_end(p);
    }
    plot_clause(p,
                "file index %d using 1:(above ? $2 + 0.04 : $2):3:(above ? 0.62 : $4) with vectors "
                "nohead lw 2 dt (6,3) lc rgb \"#000000\" "
                "notitle",
                block);
}

static void write_limits(struct plot *p, const struct chart_bars *b, double most) {
    size_t first = 0;
    write_limit_line(p, b);
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

// One row per bar: its right end, row, side, interval, limit, text and its length.
static void write_totals(struct plot *p, const struct chart_bars *b) {
    int block = plot_block(p);
    double cut = cut_of(b);
    for (size_t i = 0; i < b->row_count * b->per_row; i++) {
        double low = b->low ? b->low[i] : NAN, high = b->high ? b->high[i] : NAN;
        double limit = b->limits ? b->limits[i / b->per_row] : NAN;
        char end[96];
        plot_number(p, bar_right(b, i));
        write_place(p, b, i);
        plot_number(p, high > cut ? NAN : low);
        plot_number(p, high > cut ? NAN : high);
        plot_number(p, isnan(limit) ? -1 : limit);
        snprintf(end, sizeof end, "%s%.80s", bar_total(b, i) > cut ? "\xe2\x86\x92 " : "",
                 b->ends ? b->ends[i] : "");
        plot_string(p, end, 60);
        plot_number(p, (double)strlen(end));
        plot_row_end(p);
    }
    if (b->low && b->high)
        plot_clause(p,
                    "file index %d using 4:(at($2,$3)):4:5 with xerrorbars pt -1 lw 1.5 lc rgb "
                    "\"#000000\" notitle",
                    block);
    if (b->ends)
        plot_clause(
            p,
            "file index %d using (end_at($1,$6,$8)):(at($2,$3)):7 with labels left offset 0.6,0 "
            "notitle",
            block);
}

static void write_rows(struct plot *p, const struct chart_bars *b) {
    int block = plot_block(p);
    for (size_t i = 0; i < b->row_count; i++) {
        plot_number(p, (double)(b->row_count - 1 - i));
        plot_string(p, b->rows[i], CHART_ROW_LABEL);
        plot_string(p, "", 1);
        plot_string(p, b->rows[i], LINE_NARROW);
        plot_row_end(p);
    }
    plot_clause(p, "file index %d using (NaN):1:ytic(row_label) with points notitle", block);
    plot_clause(p,
                "file index %d using (above ? 0 : NaN):($1 + 0.3):row_text with labels left offset "
                "0.4,0 notitle",
                block);
}

static int body_px(const struct chart_bars *b, bool narrow) {
    return (int)(64 + row_px(b, narrow) * ((double)b->row_count - 0.3 + (b->limits ? 0.9 : 0.5)));
}

static void write_frame(struct plot *p, size_t keys, const struct chart_bars *b,
                        const int *blocks) {
    size_t longest = limit_in_key(b) ? strlen(b->limit_label) : 1;
    for (size_t s = 0; s < b->segment_count; s++)
        if (blocks[s] >= 0 && strlen(b->segments[s]) > longest)
            longest = strlen(b->segments[s]);
    plot_key(p, keys, longest, (int[2]){body_px(b, false), body_px(b, true)});
    fprintf(p->common, "set style fill solid 1 border lc rgb \"#808080\"\nset yrange [-0.7:%.2f]\n",
            (double)b->row_count - 1 + (b->limits ? 0.9 : 0.5));
    fputs("at(row, side) = row + shift + side*spread\n"
          "end_at(right, limit, length) = limit > right && "
          "(limit - right)*pixels_per_unit < 14 + length*character ? limit : right\n"
          "set ytics scale 0\nset grid xtics back lc rgb \"#D0D0D0\" lw 1 dt solid\n",
          p->common);
}

// One kind of bar needs neither a key nor a name: the axis says what it is.
static size_t keys_of(const struct chart_bars *b, size_t used) {
    return (used > 1 ? used : 0) + limit_in_key(b);
}

void chart_bars(struct plot *p, const struct chart_bars *b) {
    int blocks[SEGMENTS];
    double most = largest(b);
    size_t used = 0;
    if (b->row_count == 0 || b->segment_count > SEGMENTS) {
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
    clause_segments(p, b, blocks, used > 1);
    if (b->limits)
        write_limits(p, b, most);
    write_totals(p, b);
    write_rows(p, b);
    write_frame(p, keys_of(b, used), b, blocks);
    write_layout(b, false, most, p->wide);
    write_layout(b, true, most, p->narrow);
}
