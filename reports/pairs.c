// SPDX-License-Identifier: Apache-2.0
#include "pairs.h"

#include "chart.h"
#include "scatter.h"

#include <math.h>
#include <string.h>

#define BARS_SHOWN 16

static const char *transfer_name(const cJSON *c, struct arena *a) {
    const char *phase = view_item_string(c, "phase"), *kind = view_item_string(c, "kind");
    const char *what = view_item_string(c, "what"), *name = view_item_string(c, "name");
    if (name && !kind)
        return arena_printf(a, "%.60s", name);
    return arena_printf(a, "%.16s%s%.24s%s%.24s", phase ? show_word(phase) : "", phase ? " " : "",
                        kind ? show_word(kind) : "transfer", what ? " " : "", what ? what : "");
}

const char *pairs_times(double ratio, struct arena *a) {
    int digits = ratio >= 99.95 ? 0 : ratio >= 9.995 ? 1 : 2;
    return ratio < 0.0995 ? arena_printf(a, "%.2g", ratio) : arena_printf(a, "%.*f", digits, ratio);
}

// The axis' unit for values up to `most` of the bars' kind.
static double bars_scale(const struct pair_bars *b, double most, const char **unit) {
    return strcmp(b->unit, "_s") == 0 ? axis_seconds(most, unit) : axis_bytes(most, unit);
}

struct pair_rows {
    const char *labels[BARS_SHOWN], *ends[2 * BARS_SHOWN];
    double values[4 * BARS_SHOWN], low, high, most;
    size_t count;
};

static void read_pairs(struct page *p, struct view rows, const struct pair_bars *b,
                       struct pair_rows *out) {
    *out = (struct pair_rows){.low = INFINITY};
    for (const cJSON *c = view_first(rows); c && out->count < BARS_SHOWN; c = c->next) {
        char text[SHOW_TEXT];
        size_t n = out->count;
        double planned = scatter_number(c, b->planned), measured = scatter_number(c, b->measured);
        double ratio = measured / planned;
        const char *own = view_item_string(c, "unit");
        if (!(planned > 0) || !(measured > 0) || (b->only && (!own || strcmp(own, b->only) != 0)))
            continue;
        out->labels[n] = transfer_name(c, p->arena);
        out->values[4 * n] = planned;
        out->values[4 * n + 3] = measured;
        out->ends[2 * n] = arena_strdup(p->arena, show_format(text, b->unit, planned));
        out->ends[2 * n + 1] =
            arena_printf(p->arena, "%s (%s\xc3\x97)", show_format(text, b->unit, measured),
                         pairs_times(ratio, p->arena));
        out->low = fmin(out->low, ratio);
        out->high = fmax(out->high, ratio);
        out->most = fmax(out->most, fmax(planned, measured));
        out->count++;
    }
}

static const char *pairs_alt(struct page *p, const struct pair_bars *b, const struct pair_rows *r) {
    const char *least = pairs_times(r->low, p->arena), *most = pairs_times(r->high, p->arena);
    if (strcmp(least, "1.00") == 0 && strcmp(most, "1.00") == 0)
        return arena_printf(p->arena, "Measured is what was %s in %s", b->first,
                            r->count == 1 ? "the only row" : "every row");
    if (strcmp(least, most) == 0)
        return arena_printf(p->arena, "Measured is %s times what was %s in %s", least, b->first,
                            r->count == 1 ? "the only row" : "every row");
    return arena_printf(p->arena, "Measured is %s to %s times what was %s, over %zu rows", least,
                        most, b->first, r->count);
}

void pair_figure(struct page *p, struct view rows, const struct pair_bars *b) {
    const char *const names[] = {b->first, "measured"};
    static const enum plot_colour colours[] = {PLOT_LIGHT, PLOT_BLUE};
    struct pair_rows r;
    const char *unit;
    read_pairs(p, rows, b, &r);
    if (r.count == 0)
        return;
    double scale = bars_scale(b, r.most, &unit);
    for (size_t i = 0; i < 4 * r.count; i++)
        r.values[i] /= scale;
    struct plot *plot = plot_add(&p->plots, b->stem, b->heading);
    plot->alt = pairs_alt(p, b, &r);
    chart_bars(plot,
               &(struct chart_bars){.x_label = arena_printf(p->arena, "%s (%s)", b->what, unit),
                                    .segments = names,
                                    .colours = colours,
                                    .segment_count = 2,
                                    .rows = r.labels,
                                    .row_count = r.count,
                                    .per_row = 2,
                                    .values = r.values,
                                    .ends = r.ends});
    page_figure(p, plot);
}
