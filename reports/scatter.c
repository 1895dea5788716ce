// SPDX-License-Identifier: Apache-2.0
#include "scatter.h"

#include "chart.h"

#include <math.h>
#include <string.h>

double scatter_number(const cJSON *item, const char *keys) {
    while (*keys) {
        char key[64];
        size_t length = strcspn(keys, "|");
        snprintf(key, sizeof key, "%.*s", (int)length, keys);
        double v = view_item_number(item, key);
        if (!isnan(v))
            return v;
        keys += length + (keys[length] == '|');
    }
    return NAN;
}

double *scatter_column(struct view array, const char *keys) {
    double *out = arena_array(array.arena, view_count(array) + 1, sizeof *out);
    size_t i = 0;
    for (const cJSON *c = view_first(array); c; c = c->next)
        out[i++] = scatter_number(c, keys);
    return out;
}

struct tally {
    double low, high;
    size_t points, near;
};

static struct tally tally_of(const struct scatter *s) {
    struct tally t = {NAN, NAN, 0, 0};
    for (size_t k = 0; k < s->set_count; k++)
        for (size_t i = 0; i < s->sets[k].count; i++) {
            double x = s->sets[k].measured[i], y = s->sets[k].predicted[i];
            if (!(x > 0) || !(y > 0))
                continue;
            t.low = isnan(t.low) ? fmin(x, y) : fmin(t.low, fmin(x, y));
            t.high = isnan(t.high) ? fmax(x, y) : fmax(t.high, fmax(x, y));
            t.points++;
            t.near += fabs(y / x - 1) <= 0.1;
        }
    return t;
}

void scatter_figure(struct page *p, const struct scatter *s) {
    static const enum plot_colour colours[] = {PLOT_BLUE,   PLOT_VERMILLION, PLOT_GREEN,
                                               PLOT_ORANGE, PLOT_PURPLE,     PLOT_SKY,
                                               PLOT_GREY,   PLOT_YELLOW};
    struct tally t = tally_of(s);
    struct chart_series series[11];
    size_t n = 0;
    bool wide = t.high / t.low > 8;
    double ends[2] = {wide ? t.low / 1.3 : 0, t.high * 1.3};
    double above[2] = {1.1 * ends[0], 1.1 * ends[1]}, below[2] = {0.9 * ends[0], 0.9 * ends[1]};
    series[n++] = (struct chart_series){"equal", CHART_LINE, PLOT_TEXT, ends, ends, NULL, NULL, 2};
    series[n++] = (struct chart_series){"\xc2\xb1"
                                        "10 %",
                                        CHART_DASHED,
                                        PLOT_GREY,
                                        ends,
                                        above,
                                        NULL,
                                        NULL,
                                        2};
    series[n++] = (struct chart_series){"", CHART_DASHED, PLOT_GREY, ends, below, NULL, NULL, 2};
    for (size_t k = 0; k < s->set_count && k < 8; k++)
        series[n++] = (struct chart_series){
            s->sets[k].name,      CHART_POINTS, colours[k], s->sets[k].measured,
            s->sets[k].predicted, NULL,         NULL,       s->sets[k].count};
    struct plot *plot = plot_add(&p->plots, s->stem, s->heading);
    plot->alt = s->finding ? s->finding
                           : arena_printf(p->arena,
                                          "%zu of %zu points lie within 10 %% of what was measured",
                                          t.near, t.points);
    if (t.points == 0) {
        plot->trouble = "there is nothing to draw: no pair of a measured and a predicted value";
    } else {
        struct chart_xy c = {.x = {.label = s->x_label, .log = wide, .from_zero = !wide},
                             .y = {.label = s->y_label, .log = wide, .from_zero = !wide},
                             .series = series,
                             .series_count = n,
                             .key = true};
        axis_fit(&c.x, t.low, t.high);
        axis_fit(&c.y, t.low, t.high);
        chart_xy(plot, &c);
    }
    page_figure(p, plot);
}
