// SPDX-License-Identifier: Apache-2.0
// Measurements of one machine that have no sweep of sizes: copies, storage, CPU Adam, products.
#include "bench.h"
#include "chart.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

#define LOCAL_SHOWN 48

struct local { // bars of one picture
    const char *rows[LOCAL_SHOWN], *ends[LOCAL_SHOWN];
    double values[LOCAL_SHOWN], limits[LOCAL_SHOWN];
    size_t count;
    bool limited;
};

static const char *local_name(const cJSON *r, struct arena *a) {
    static const char *const words[] = {"direction", "algorithm", "dtype", "group"};
    const char *kind = view_item_string(r, "kind");
    const char *text = arena_printf(a, "%.24s", kind ? show_word(kind) : "result");
    double threads = view_item_number(r, "threads"), m = view_item_number(r, "m");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *word = view_item_string(r, words[i]);
        if (word && *word)
            text = arena_printf(a, "%s %.24s", text, show_spaced(show_word(word), a));
    }
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(r, "concurrent")))
        text = arena_printf(
            a, view_item_string(r, "group") ? "%s, while all run" : "%s, all at once", text);
    if (!isnan(m))
        text = arena_printf(a, "%s %.0f\xc3\x97%.0f\xc3\x97%.0f", text, m, view_item_number(r, "n"),
                            view_item_number(r, "k"));
    return threads > 0
               ? arena_printf(a, "%s, %.0f thread%s", text, threads, threads == 1 ? "" : "s")
               : text;
}

static void add_local(struct local *l, const cJSON *r, double rate, double scale, struct arena *a) {
    char text[SHOW_TEXT];
    double ceiling = view_item_number(r, "ceiling_bytes_per_s");
    if (!(rate > 0) || l->count == LOCAL_SHOWN)
        return;
    l->rows[l->count] = local_name(r, a);
    l->ends[l->count] = ceiling > 0 ? arena_printf(a, "%.3g (%s of its ceiling)", rate / scale,
                                                   show_percent(text, rate / ceiling))
                                    : arena_printf(a, "%.3g", rate / scale);
    l->limits[l->count] = ceiling > 0 ? ceiling / scale : NAN;
    l->limited |= ceiling > 0;
    l->values[l->count++] = rate / scale;
}

struct local_words { // of one picture, constants
    const char *stem, *heading, *what, *unit;
};

static void draw_local(struct page *p, struct local *l, struct local_words w) {
    static const char *const names[] = {"median"};
    static const enum plot_colour colours[] = {PLOT_BLUE};
    size_t best = 0;
    if (l->count == 0)
        return;
    for (size_t i = 0; i < l->count; i++)
        best = l->values[i] > l->values[best] ? i : best;
    struct plot *plot = plot_add(&p->plots, w.stem, w.heading);
    plot->alt = arena_printf(p->arena, "%zu result%s; the highest is %.80s with %.3g %s", l->count,
                             l->count == 1 ? "" : "s", l->rows[best], l->values[best], w.unit);
    chart_bars(plot,
               &(struct chart_bars){.x_label = arena_printf(p->arena, "%s (%s)", w.what, w.unit),
                                    .segments = names,
                                    .colours = colours,
                                    .segment_count = 1,
                                    .rows = l->rows,
                                    .row_count = l->count,
                                    .per_row = 1,
                                    .values = l->values,
                                    .limits = l->limited ? l->limits : NULL,
                                    .limit_label = "ceiling",
                                    .limit_text = "",
                                    .ends = l->ends});
    page_figure(p, plot);
}

void bench_local(struct page *p, struct view results) {
    struct local rates = {.count = 0}, products = {.count = 0};
    double fastest = 0, most = 0;
    const char *unit;
    for (const cJSON *r = view_first(results); r; r = r->next) {
        fastest = fmax(fastest, view_item_number(r, "flop_per_s"));
        if (!bench_is_collective(r) && !bench_is_pair(r))
            most = fmax(most, bench_rate(r));
    }
    double scale = axis_rate(most, &unit);
    bool tera = fastest >= UNITS_TERA;
    for (const cJSON *r = view_first(results); r; r = r->next) {
        if (bench_is_collective(r) || bench_is_pair(r))
            continue;
        add_local(&products, r, view_item_number(r, "flop_per_s"), tera ? UNITS_TERA : UNITS_GIGA,
                  p->arena);
        add_local(&rates, r, bench_rate(r), scale, p->arena);
    }
    draw_local(p, &rates,
               (struct local_words){"local", "Copies, storage, memory and Adam on this machine",
                                    "rate", unit});
    draw_local(
        p, &products,
        (struct local_words){"products", "Matrix products", "speed", tera ? "TFLOP/s" : "GFLOP/s"});
}

// The first collective without each of the ranks in turn: the one whose absence helps is the slow
// one.
void bench_left_out(struct page *p, struct view results) {
    struct local bars = {.count = 0};
    size_t best = 0;
    for (const cJSON *r = view_first(results); r; r = r->next) {
        const char *group = view_item_string(r, "group");
        double rate = bench_rate(r);
        if (!bench_is_collective(r) || !group || strncmp(group, "all but ", 8) != 0 ||
            !(rate > 0) || bars.count == LOCAL_SHOWN)
            continue;
        size_t at = 0; // a suspect is measured again: its best counts
        while (at < bars.count && strcmp(bars.rows[at], group) != 0)
            at++;
        if (at < bars.count && bars.values[at] >= rate)
            continue;
        bars.rows[at] = group;
        bars.values[at] = rate;
        bars.count += at == bars.count;
    }
    for (size_t i = 0; i < bars.count; i++)
        best = bars.values[i] > bars.values[best] ? i : best;
    if (bars.count < 2)
        return;
    const char *unit;
    double scale = axis_rate(bars.values[best], &unit);
    for (size_t i = 0; i < bars.count; i++) {
        bars.values[i] /= scale;
        bars.ends[i] = arena_printf(p->arena, "%.3g", bars.values[i]);
    }
    static const char *const names[] = {"bus bandwidth"};
    static const enum plot_colour colours[] = {PLOT_BLUE};
    struct plot *plot =
        plot_add(&p->plots, "left-out", "The same collective without each rank in turn");
    plot->alt = arena_printf(p->arena, "It is fastest with %.40s: %.3g %s of bus bandwidth",
                             bars.rows[best], bars.values[best], unit);
    chart_bars(plot,
               &(struct chart_bars){.x_label = arena_printf(p->arena, "bus bandwidth (%s)", unit),
                                    .segments = names,
                                    .colours = colours,
                                    .segment_count = 1,
                                    .rows = bars.rows,
                                    .row_count = bars.count,
                                    .per_row = 1,
                                    .values = bars.values,
                                    .ends = bars.ends});
    page_figure(p, plot);
}
