// SPDX-License-Identifier: Apache-2.0
// fit: laws against the measurements they were fitted to; a cluster file's own figures.
#include "chart.h"
#include "scatter.h"

#include "base/kinds.h"
#include "base/units.h"

#include <math.h>
#include <string.h>

enum { LAWS = 8, CURVES_OF_LAW = 4 };

struct law { // one group of fits[] with the same name
    const char *name;
    const cJSON *item; // its first piece
    double *x, *measured_s, *fitted_s, *model_s;
    size_t count;
};

static bool same(const char *a, const char *b) {
    return a && b && strcmp(a, b) == 0;
}

static void insert(struct law *l, const cJSON *r) {
    double x = view_item_number(r, "payload_bytes");
    size_t at = l->count++;
    for (; at > 0 && l->x[at - 1] > x; at--) {
        l->x[at] = l->x[at - 1];
        l->measured_s[at] = l->measured_s[at - 1];
        l->fitted_s[at] = l->fitted_s[at - 1];
        l->model_s[at] = l->model_s[at - 1];
    }
    l->x[at] = x;
    l->measured_s[at] = view_item_number(r, "measured_s");
    l->fitted_s[at] = view_item_number(r, "fitted_s");
    l->model_s[at] = view_item_number(r, "model_s");
}

static size_t read_laws(struct view root, struct law laws[LAWS]) {
    struct view fits = view_find(root, "fits"), residuals = view_find(root, "residuals");
    size_t n = 0, room = view_count(residuals) + 1;
    for (const cJSON *f = view_first(fits); f && n < LAWS; f = f->next) {
        const char *name = view_item_string(f, "law");
        size_t i = 0;
        while (i < n && !same(laws[i].name, name))
            i++;
        if (!name || i < n)
            continue;
        double *all = arena_array(root.arena, 4 * room, sizeof *all);
        laws[n] = (struct law){name, f, all, all + room, all + 2 * room, all + 3 * room, 0};
        for (const cJSON *r = view_first(residuals); r; r = r->next)
            if (same(view_item_string(r, "name"), name))
                insert(&laws[n], r);
        n += laws[n].count > 0;
    }
    return n;
}

// Bus bandwidth of `seconds` for each payload, GB/s; NULL when none is known.
static double *bus_rates(const struct law *l, const double *seconds, enum collective kind,
                         uint64_t ranks, struct arena *a) {
    double *y = arena_array(a, l->count, sizeof *y);
    size_t known = 0;
    for (size_t i = 0; i < l->count; i++) {
        y[i] = l->x[i] / seconds[i] * collective_bus_factor(kind, ranks) / UNITS_GIGA;
        known += y[i] > 0;
    }
    return known ? y : NULL;
}

static const char *law_alt(struct page *p, const struct law *l, const double *measured) {
    char best[SHOW_TEXT], line[SHOW_TEXT];
    double most = 0, rate = view_item_number(l->item, "line_rate_bytes_per_s");
    for (size_t i = 0; i < l->count; i++)
        most = fmax(most, measured[i] * UNITS_GIGA);
    show_format(best, "_bytes_per_s", most);
    return rate > 0
               ? arena_printf(p->arena, "%.80s reach %s, %.0f %% of the line rate of %s", l->name,
                              best, 100 * most / rate, show_format(line, "_bytes_per_s", rate))
               : arena_printf(p->arena, "The highest is %s", best);
}

// Measured points of one law, its fit, the model without it, and the line rate.
static void law_figure(struct page *p, const struct law *l) {
    static const char *const names[CURVES_OF_LAW] = {"measured", "fit", "model without the fit",
                                                     "line rate"};
    enum collective kind;
    const char *name = view_item_string(l->item, "collective");
    double ranks = view_item_number(l->item, "ranks");
    double line = view_item_number(l->item, "line_rate_bytes_per_s") / UNITS_GIGA;
    if (!name || !collective_find(name, &kind) || !(ranks >= 2 && ranks < UNITS_GIGA))
        return;
    const double *seconds[] = {l->measured_s, l->fitted_s, l->model_s};
    struct chart_series series[CURVES_OF_LAW];
    double ends[4] = {l->x[0], l->x[l->count - 1], line, line};
    size_t n = 0;
    for (size_t i = 0; i < 3; i++) {
        double *y = bus_rates(l, seconds[i], kind, (uint64_t)ranks, p->arena);
        if (y)
            series[n++] = (struct chart_series){names[i],
                                                i == 0   ? CHART_POINTS
                                                : i == 1 ? CHART_LINE
                                                         : CHART_DASHED,
                                                i == 2 ? PLOT_VERMILLION : PLOT_BLUE,
                                                l->x,
                                                y,
                                                NULL,
                                                NULL,
                                                l->count};
    }
    if (n == 0)
        return;
    struct plot *plot =
        plot_add(&p->plots, "fit-busbw",
                 arena_printf(p->arena, "Bus bandwidth against size: %.80s", l->name));
    plot->alt = law_alt(p, l, series[0].y);
    if (line > 0)
        series[n++] =
            (struct chart_series){names[3], CHART_DASHED, PLOT_TEXT, ends, ends + 2, NULL, NULL, 2};
    chart_xy(plot, &(struct chart_xy){
                       .x = {.label = "total array (bytes)", .kind = AXIS_BYTES, .log = true},
                       .y = {.label = "bus bandwidth (GB/s)", .from_zero = true},
                       .series = series,
                       .series_count = n,
                       .key = true});
    page_figure(p, plot);
}

static const char *short_name(const struct law *l, struct arena *a) {
    const char *collective = view_item_string(l->item, "collective");
    double ranks = view_item_number(l->item, "ranks");
    if (!collective || isnan(ranks))
        return l->name;
    return arena_printf(a, "%.20s \xc3\x97%.0f", show_word(collective), ranks);
}

// How far each point lies from its law, one colour per law.
static void residuals_figure(struct page *p, const struct law *laws, size_t n) {
    static const enum plot_colour colours[LAWS] = {PLOT_BLUE,   PLOT_VERMILLION, PLOT_GREEN,
                                                   PLOT_ORANGE, PLOT_PURPLE,     PLOT_SKY,
                                                   PLOT_GREY,   PLOT_TEXT};
    struct chart_series series[LAWS];
    double worst = 0, at = NAN;
    const char *who = "";
    for (size_t i = 0; i < n; i++) {
        double *y = arena_array(p->arena, laws[i].count, sizeof *y);
        for (size_t k = 0; k < laws[i].count; k++) {
            y[k] = 100 * (laws[i].measured_s[k] / laws[i].fitted_s[k] - 1);
            if (fabs(y[k]) > fabs(worst)) {
                worst = y[k];
                at = laws[i].x[k];
                who = laws[i].name;
            }
        }
        series[i] = (struct chart_series){short_name(&laws[i], p->arena),
                                          CHART_POINTS,
                                          colours[i],
                                          laws[i].x,
                                          y,
                                          NULL,
                                          NULL,
                                          laws[i].count};
    }
    if (n == 0)
        return;
    char size[SHOW_TEXT];
    struct plot *plot =
        plot_add(&p->plots, "residuals", "Residuals: measured time over fitted time, less one");
    plot->alt = isnan(at)
                    ? "Every point lies on its law"
                    : arena_printf(p->arena, "The largest residual is %+.1f %%, of %.80s at %s",
                                   worst, who, show_format(size, "_bytes", at));
    chart_xy(plot, &(struct chart_xy){
                       .x = {.label = "total array (bytes)", .kind = AXIS_BYTES, .log = true},
                       .y = {.label = "measured over fitted, less one (%)"},
                       .series = series,
                       .series_count = n,
                       .key = true});
    page_figure(p, plot);
}

// A number, or a figure with its origin: {"value", ...}.
static void show_either(struct html *h, struct view parent, const char *key) {
    char value[64];
    snprintf(value, sizeof value, "%.50s.value", key);
    show_value_as(h, parent, view_is_object(view_find(parent, key)) ? value : key, key);
}

// fits[] of a cluster file.
static void cluster_laws(struct page *p, struct view fits) {
    static const char *const keys[] = {"ranks",
                                       "nodes",
                                       "latency_s",
                                       "busbw_bytes_per_s",
                                       "half_bytes",
                                       "min_payload_bytes",
                                       "max_payload_bytes"};
    struct html *h = &p->html;
    size_t i = 0;
    if (view_count(fits) == 0)
        return;
    show_table_open(h, "Fitted laws of collectives");
    html_raw(h, "<thead><tr><th scope=col>Collective<th scope=col>Ranks<th scope=col>Nodes<th "
                "scope=col>Latency<th scope=col>Bandwidth<th scope=col>Half rate at<th "
                "scope=col>From<th scope=col>To</tr></thead><tbody>\n");
    for (const cJSON *c = view_first(fits); c && i < 100; c = c->next, i++) {
        struct view law = view_member(fits, c, i);
        html_raw(h, "<tr><th scope=row>");
        show_value(h, law, "collective");
        html_raw(h, "</th>");
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            html_raw(h, "<td>");
            show_either(h, law, keys[k]);
            html_raw(h, "</td>");
        }
        html_raw(h, "</tr>\n");
    }
    html_raw(h, "</tbody>");
    show_table_close(h);
}

static void say_laws(struct page *p, struct view fits) {
    struct html *h = &p->html;
    size_t i = 0;
    html_raw(h, "<ul>");
    for (const cJSON *f = view_first(fits); f && i < LAWS; f = f->next, i++) {
        struct view law = view_member(fits, f, i);
        html_raw(h, "<li>");
        show_value(h, law, view_string(law, "law") ? "law" : "collective");
        html_raw(h, ": latency ");
        show_either(h, law, "latency_s");
        html_raw(h, ", bandwidth ");
        show_either(h, law,
                    view_is_missing(view_find(law, "bandwidth_bytes_per_s"))
                        ? "busbw_bytes_per_s"
                        : "bandwidth_bytes_per_s");
        html_raw(h, "</li>");
    }
    html_raw(h, "</ul>\n");
}

void page_fit_answer(struct page *p, struct view root) {
    struct html *h = &p->html;
    struct view fits = view_find(root, "fits"), rates = view_find(root, "rates");
    size_t laws = view_count(fits), refused = view_count(view_find(root, "refused"));
    html_printf(h, "<p class=headline>%zu law%s of collectives", laws, laws == 1 ? "" : "s");
    if (view_count(rates))
        html_printf(h, " and %zu single rate%s", view_count(rates),
                    view_count(rates) == 1 ? "" : "s");
    html_raw(h, view_is_array(rates) ? " fitted to measurements" : " in the file");
    if (view_string(root, "name")) {
        html_raw(h, " of ");
        html_user(h, view_string(root, "name"));
    }
    html_raw(h, ".</p>\n");
    if (laws && view_is_array(fits))
        say_laws(p, fits);
    if (refused)
        html_printf(h, "<p>%zu could not be fitted: the reasons stand below.</p>\n", refused);
}

// Single rates before and after, each in its own unit.
static void rates_table(struct page *p, struct view rates) {
    static const char *const cells[] = {"before.value", "after.value", "after.low", "after.high"};
    struct html *h = &p->html;
    size_t i = 0;
    if (view_count(rates) == 0)
        return;
    show_table_open(h, "Rates that measurements replaced");
    html_raw(h, "<thead><tr><th scope=col>Figure<th scope=col>Before<th scope=col>Now<th "
                "scope=col>at the least<th scope=col>at the most<th scope=col>It was<th "
                "scope=col>Samples<th scope=col>Source</tr></thead><tbody>\n");
    for (const cJSON *c = view_first(rates); c && i < 100; c = c->next, i++) {
        struct view rate = view_member(rates, c, i);
        const char *path = view_string(rate, "path");
        html_raw(h, "<tr><th scope=row>");
        html_user(h, path);
        html_raw(h, "</th>");
        for (size_t k = 0; k < sizeof cells / sizeof *cells; k++) {
            html_raw(h, "<td>");
            show_value_as(h, rate, cells[k], path ? path : "");
            html_raw(h, "</td>");
        }
        html_raw(h, "<td>");
        show_value(h, rate, "before.provenance");
        html_raw(h, "</td><td>");
        show_value(h, rate, "samples");
        html_raw(h, "</td><td class=words>");
        show_value(h, rate, "after.source");
        html_raw(h, "</td></tr>\n");
    }
    html_raw(h, "</tbody>");
    show_table_close(h);
}

static void fit_tables(struct page *p, struct view root) {
    static const struct show_column laws[] = {
        {"law", "Law"},
        {"latency_s", "Latency"},
        {"latency_stderr_s", "its standard error"},
        {"bandwidth_bytes_per_s", "Bandwidth"},
        {"bandwidth_stderr_bytes_per_s", "its standard error"},
        {"half_bytes", "Half rate at"},
        {"min_payload_bytes", "From"},
        {"max_payload_bytes", "To"},
        {"points", "Points"},
        {"scatter_fraction", "Scatter"}};
    static const struct show_column refused[] = {{"law", "Law"}, {"reason", "Why not"}};
    static const struct show_column points[] = {{"name", "Law"},
                                                {"payload_bytes", "Payload"},
                                                {"measured_s", "Measured"},
                                                {"fitted_s", "Fitted"},
                                                {"model_s", "Model without the fit"}};
    const struct {
        const char *key;
        struct show_table table;
    } all[] = {{"fits", {"Laws: time = latency + sent bytes / bandwidth", laws, 9, 100, 0}},
               {"refused", {"Not fitted", refused, 2, 100, 0}}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (view_count(view_find(root, all[i].key)))
            show_rows(&p->html, view_find(root, all[i].key), &all[i].table);
    rates_table(p, view_find(root, "rates"));
    if (view_count(view_find(root, "residuals")) == 0)
        return;
    html_raw(&p->html, "<details><summary>Every point</summary>\n");
    show_rows(&p->html, view_find(root, "residuals"),
              &(struct show_table){"Measured and fitted", points, 5, 400, 0});
    html_raw(&p->html, "</details>\n");
}

void page_fit_body(struct page *p, struct view root) {
    static const char *const of_fit[] = {"schema", "command", "residuals", "fits",
                                         "rates",  "refused", "name",      NULL};
    static const char *const of_cluster[] = {"schema", "command", "fits", NULL};
    struct law laws[LAWS];
    size_t n = read_laws(root, laws);
    for (size_t i = 0; i < n; i++)
        law_figure(p, &laws[i]);
    residuals_figure(p, laws, n);
    if (view_is_array(view_find(root, "rates")) || n) {
        fit_tables(p, root);
        show_rest(&p->html, root, of_fit);
    } else {
        cluster_laws(p, view_find(root, "fits"));
        page_figures(p, root);
        show_rest(&p->html, root, of_cluster);
    }
}
