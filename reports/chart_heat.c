// SPDX-License-Identifier: Apache-2.0
#include "chart.h"

#include "html.h"

#include <math.h>

// cividis: even in lightness, and the same to people who confuse red and green.
static const char *const palette =
    "set palette defined (0 \"#00224e\", 1 \"#35456c\", 2 \"#666970\", 3 \"#948e77\", "
    "4 \"#c8b866\", 5 \"#fee838\")\n";

static void range_of(const struct chart_heat *h, double *low, double *high) {
    *low = *high = NAN;
    for (size_t i = 0; i < h->size * h->size; i++) {
        double v = h->values[i];
        if (!isfinite(v))
            continue;
        *low = isnan(*low) ? v : fmin(*low, v);
        *high = isnan(*high) ? v : fmax(*high, v);
    }
}

static void write_cells(struct plot *p, const struct chart_heat *h, double middle) {
    int block = plot_block(p);
    for (size_t r = 0; r < h->size; r++)
        for (size_t c = 0; c < h->size; c++) {
            double v = h->values[r * h->size + c];
            char text[32];
            if (!isfinite(v))
                continue;
            snprintf(text, sizeof text, "%.3g", v);
            plot_number(p, (double)c);
            plot_number(p, (double)(h->size - 1 - r));
            plot_number(p, v);
            plot_string(p, text, 12);
            plot_number(p, v < middle);
            plot_row_end(p);
        }
    plot_clause(p,
                "file index %d using 1:2:($1-0.5):($1+0.5):($2-0.5):($2+0.5):3 with boxxyerror lc "
                "palette notitle",
                block);
    if (h->size > 10)
        return;
    plot_clause(p,
                "file index %d using ($5 > 0 ? $1 : NaN):2:4 with labels tc rgb \"#FFFFFE\" font "
                "\",11\" notitle",
                block);
    plot_clause(p,
                "file index %d using ($5 > 0 ? NaN : $1):2:4 with labels tc rgb \"#000001\" font "
                "\",11\" notitle",
                block);
}

// At most 16 names, evenly spread.
static size_t write_names(struct plot *p, const struct chart_heat *h) {
    int block = plot_block(p);
    size_t stride = (h->size + 15) / 16, longest = 1;
    for (size_t i = 0; i < h->size; i += stride) {
        char text[PLOT_LABEL];
        size_t count = html_clean(text, sizeof text, h->names[i], 14);
        longest = count > longest ? count : longest;
        plot_number(p, (double)i);
        plot_number(p, (double)(h->size - 1 - i));
        plot_string(p, h->names[i], 14);
        plot_row_end(p);
    }
    plot_clause(p, "file index %d using (NaN):2:ytic(3) with points notitle", block);
    plot_clause(p, "file index %d using 1:(-9):xtic(3) with points notitle", block);
    return longest;
}

void chart_heat(struct plot *p, const struct chart_heat *h) {
    double low, high, edge = (double)h->size - 0.5;
    range_of(h, &low, &high);
    if (h->size == 0 || isnan(low)) {
        p->trouble = "there is nothing to draw: no pair was measured";
        return;
    }
    if (!(high > low)) {
        low = fmin(low, 0);
        high = high > low ? high : low + 1;
    }
    write_cells(p, h, low + 0.5 * (high - low));
    size_t longest = write_names(p, h);
    p->height = 520;
    p->narrow_height = 440;
    fprintf(p->common, "%sset cbrange [%.9g:%.9g]\nset cblabel \"%s\"\n", palette, low, high,
            h->value_label);
    fprintf(p->common, "set xrange [-0.5:%.9g]\nset yrange [-0.5:%.9g]\n", edge, edge);
    fprintf(p->common,
            "set xlabel \"%s\"\nset ylabel \"%s\"\nset style fill solid 1 noborder\nunset key\n",
            h->x_label, h->y_label);
    fputs("set xtics scale 0\nset ytics scale 0\n", p->common);
    fprintf(p->wide, "set xtics %s\n", longest * h->size > 64 ? "rotate by 45 right" : "norotate");
    fprintf(p->narrow, "set xtics %s\n", longest > 3 ? "rotate by 45 right" : "norotate");
    fprintf(p->wide, "set lmargin at screen 0.18\nset rmargin at screen 0.72\n");
    fprintf(p->narrow, "set lmargin at screen 0.25\nset rmargin at screen 0.76\n");
}
