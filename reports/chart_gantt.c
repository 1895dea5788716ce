// SPDX-License-Identifier: Apache-2.0
#include "chart.h"

#include <math.h>
#include <string.h>

#define ROW_PX 40
#define LABEL_WIDE 22
#define LABEL_NARROW 14
#define RESOLUTION 1600 // tasks closer than 1/RESOLUTION of the step are drawn as one

// Rectangles of one colour in one row; neighbours closer than a pixel become one.
static void write_row(struct plot *p, const struct chart_gantt *g, enum plot_colour colour,
                      int row) {
    double gap = g->end / RESOLUTION, start = NAN, end = NAN;
    for (size_t i = 0; i <= g->task_count; i++) {
        const struct chart_task *t = i < g->task_count ? &g->tasks[i] : NULL;
        if (t && (t->colour != colour || t->row != row || !(t->end > t->start)))
            continue;
        if (t && !isnan(start) && t->start - end < gap && t->start >= start) {
            end = fmax(end, t->end);
            continue;
        }
        if (!isnan(start)) {
            plot_number(p, start);
            plot_number(p, fmax(end, start + gap));
            plot_number(p, (double)((int)g->row_count - 1 - row));
            plot_row_end(p);
        }
        start = t ? t->start : NAN;
        end = t ? t->end : NAN;
    }
}

static void write_colour(struct plot *p, const struct chart_gantt *g, size_t k) {
    size_t used = 0;
    for (size_t i = 0; i < g->task_count; i++)
        used += g->tasks[i].colour == g->colours[k] && g->tasks[i].end > g->tasks[i].start;
    if (used == 0)
        return;
    int block = plot_block(p);
    for (size_t row = 0; row < g->row_count; row++)
        write_row(p, g, g->colours[k], (int)row);
    plot_clause(
        p,
        "file index %d using 1:3:1:2:($3-0.36):($3+0.36) with boxxyerror lc rgb \"%s\" title "
        "\"%s\"",
        block, plot_rgb(g->colours[k]), g->colour_names[k]);
}

static void write_phases(struct plot *p, const struct chart_gantt *g) {
    if (g->phase_count == 0)
        return;
    int block = plot_block(p);
    double top = (double)g->row_count - 0.35;
    for (size_t i = 0; i < g->phase_count; i++) {
        plot_number(p, g->phases[i].x);
        plot_number(p, g->phases[i].y);
        plot_number(p, top);
        plot_string(p, g->phases[i].label, 18);
        plot_number(p, fmin(18, (double)strlen(g->phases[i].label)));
        plot_row_end(p);
    }
    plot_clause(p,
                "file index %d using 1:(-0.5):(0):(%g) with vectors nohead lw 1 dt (3,3) lc rgb "
                "\"#808080\" notitle",
                block, top + 1);
    plot_clause(p,
                "file index %d using ($5*character < ($2-$1)*pixels_per_unit "
                "? ($1+$2)/2 : NaN):3:4 with labels center offset 0,0.7 notitle",
                block);
}

static void write_rows(struct plot *p, const struct chart_gantt *g) {
    int block = plot_block(p);
    for (size_t i = 0; i < g->row_count; i++) {
        plot_number(p, (double)(g->row_count - 1 - i));
        plot_string(p, g->rows[i], LABEL_WIDE);
        plot_string(p, g->rows[i], LABEL_NARROW);
        plot_row_end(p);
    }
    plot_clause(p,
                "file index %d using (NaN):1:ytic(row_label) "
                "with points notitle",
                block);
}

static void write_layout(const struct chart_gantt *g, bool narrow, FILE *out) {
    size_t longest = 1, limit = narrow ? LABEL_NARROW : LABEL_WIDE;
    for (size_t i = 0; i < g->row_count; i++)
        longest = strlen(g->rows[i]) > longest ? strlen(g->rows[i]) : longest;
    longest = longest < limit ? longest : limit;
    double width = narrow ? PLOT_NARROW : PLOT_WIDE, character = narrow ? 6.7 : 7.8;
    double left = 16 + character * (double)longest, inner = width - left - 18;
    struct axis x = {.label = g->x_label, .from_zero = true, .high = g->end};
    fprintf(out, "set lmargin at screen %.4f\nset rmargin at screen %.4f\n", left / width,
            (left + inner) / width);
    fprintf(out, "row_label = %d\npixels_per_unit = %.9g\ncharacter = %.2f\n", narrow ? 3 : 2,
            inner / g->end, character);
    axis_write(&x, 'x', narrow ? 4 : 9, out);
}

void chart_gantt(struct plot *p, const struct chart_gantt *g) {
    double rows = (double)g->row_count;
    if (g->row_count == 0 || g->task_count == 0 || !(g->end > 0)) {
        p->trouble = "there is nothing to draw: no task has a duration";
        return;
    }
    for (size_t k = 0; k < g->colour_count; k++)
        write_colour(p, g, k);
    write_phases(p, g);
    write_rows(p, g);
    int body = (int)(64 + ROW_PX * (rows + 0.85));
    plot_key(p, g->colour_count, 26, (int[2]){body, body});
    fprintf(p->common, "set style fill solid 1 noborder\nset yrange [-0.6:%.2f]\n", rows + 0.25);
    fputs("set ytics scale 0\n", p->common);
    fputs("set grid xtics back lc rgb \"#D0D0D0\" lw 1 dt solid\n", p->common);
    write_layout(g, false, p->wide);
    write_layout(g, true, p->narrow);
}
