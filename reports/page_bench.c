// SPDX-License-Identifier: Apache-2.0
// Measurements: bus bandwidth against size, pairs of nodes, and every result as a row.
#include "bench.h"
#include "chart.h"

#include "base/kinds.h"
#include "base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CURVES 10
#define PAIR_SIZE 64

struct curve {
    const char *kind, *backend, *algorithm, *scope, *direction;
    double ranks;
    bool in_place;
    double *x, *y, *low, *high;
    size_t count;
};

static bool same_word(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_curve(const struct curve *c, const struct curve *k) {
    return same_word(c->kind, k->kind) && same_word(c->backend, k->backend) &&
           same_word(c->algorithm, k->algorithm) && same_word(c->scope, k->scope) &&
           same_word(c->direction, k->direction) && c->in_place == k->in_place &&
           (c->ranks == k->ranks || (isnan(c->ranks) && isnan(k->ranks)));
}

static struct curve identity(const cJSON *r) {
    return (struct curve){.kind = view_item_string(r, "kind"),
                          .backend = view_item_string(r, "backend"),
                          .algorithm = view_item_string(r, "algorithm"),
                          .scope = view_item_string(r, "scope"),
                          .direction = view_item_string(r, "direction"),
                          .ranks = view_item_number(r, "ranks"),
                          .in_place =
                              cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(r, "in_place"))};
}

double bench_rate(const cJSON *r) {
    double bus = view_item_number(r, "busbw_bytes_per_s");
    return isnan(bus) ? view_item_number(r, "algbw_bytes_per_s") : bus;
}

static double size_of(const cJSON *r) {
    double payload = view_item_number(r, "payload_bytes");
    return isnan(payload) ? view_item_number(r, "block_bytes") : payload;
}

static struct curve *find_curve(struct curve *curves, size_t *n, const cJSON *r,
                                struct view results) {
    struct curve id = identity(r);
    size_t room = view_count(results);
    for (size_t i = 0; i < *n; i++)
        if (same_curve(&curves[i], &id))
            return &curves[i];
    if (*n == CURVES)
        return NULL;
    id.x = arena_array(results.arena, room, sizeof *id.x);
    id.y = arena_array(results.arena, room, sizeof *id.y);
    id.low = arena_array(results.arena, room, sizeof *id.low);
    id.high = arena_array(results.arena, room, sizeof *id.high);
    curves[*n] = id;
    return &curves[(*n)++];
}

bool bench_is_collective(const cJSON *r) {
    static const char *const kinds[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                        "broadcast",  "reduce",         "send_recv"};
    const char *kind = view_item_string(r, "kind");
    for (size_t i = 0; kind && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kind, kinds[i]) == 0)
            return true;
    return false;
}

// Two names as bench's tournament writes them: "group": "0,1".
static bool is_pair_group(const cJSON *r) {
    const char *kind = view_item_string(r, "kind"), *group = view_item_string(r, "group");
    const char *comma = group ? strchr(group, ',') : NULL;
    return kind && strcmp(kind, "send_recv") == 0 && comma && !strchr(comma + 1, ',');
}

bool bench_is_pair(const cJSON *r) {
    return is_pair_group(r) || cJSON_GetObjectItemCaseSensitive(r, "pair") != NULL ||
           (view_item_string(r, "from") && view_item_string(r, "to"));
}

static void add_point(struct curve *c, const cJSON *r) {
    double rate = bench_rate(r), median = view_item_number(r, "median_s");
    double slow = view_item_number(r, "p95_s"), fast = view_item_number(r, "p05_s");
    size_t at = c->count++;
    while (at > 0 && c->x[at - 1] > size_of(r)) {
        c->x[at] = c->x[at - 1];
        c->y[at] = c->y[at - 1];
        c->low[at] = c->low[at - 1];
        c->high[at] = c->high[at - 1];
        at--;
    }
    c->x[at] = size_of(r);
    c->y[at] = rate / UNITS_GIGA;
    c->low[at] = slow > 0 ? c->y[at] * median / slow : c->y[at];
    c->high[at] = fast > 0 ? c->y[at] * median / fast : c->y[at];
}

static const char *curve_name(const struct curve *c, struct arena *a) {
    const char *how = c->algorithm ? c->algorithm : c->backend;
    char ranks[32] = "";
    if (!isnan(c->ranks))
        snprintf(ranks, sizeof ranks, " \xc3\x97%.0f", c->ranks);
    return arena_printf(a, "%.24s%s%s%.16s%s%.12s%s", c->kind ? c->kind : "transfer", ranks,
                        c->direction ? " " : "", c->direction ? c->direction : "", how ? " " : "",
                        how ? how : "", c->in_place ? " in place" : "");
}

static size_t collect(struct view results, bool collectives, struct curve *curves) {
    size_t n = 0;
    for (const cJSON *r = view_first(results); r; r = r->next) {
        if (bench_is_collective(r) != collectives || bench_is_pair(r) || !(size_of(r) > 0) ||
            !(bench_rate(r) > 0))
            continue;
        struct curve *c = find_curve(curves, &n, r, results);
        if (c)
            add_point(c, r);
    }
    return n;
}

static const char *curves_alt(struct page *p, const struct curve *curves, size_t n) {
    double best = 0, size = NAN;
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < curves[i].count; k++)
            if (curves[i].y[k] > best) {
                best = curves[i].y[k];
                size = curves[i].x[k];
                at = i;
            }
    char rate[SHOW_TEXT], bytes[SHOW_TEXT];
    return arena_printf(p->arena, "The highest rate is %s, by %s at %s",
                        show_format(rate, "_bytes_per_s", best * UNITS_GIGA),
                        curve_name(&curves[at], p->arena), show_format(bytes, "_bytes", size));
}

// A figure of a cluster file: a number, or {"value": …}.
static double figure_of(const cJSON *object, const char *key) {
    double v = view_item_number(object, key);
    return isnan(v) ? view_item_number(cJSON_GetObjectItemCaseSensitive(object, key), "value") : v;
}

// The fitted law of one measured curve: t = latency + sent / rate * (1 + half / payload).
static bool fitted_curve(struct page *p, const cJSON *fit, const struct curve *c,
                         struct chart_series *out) {
    enum { POINTS = 60 };
    enum collective kind;
    const char *name = view_item_string(fit, "collective");
    double latency = figure_of(fit, "latency_s"), rate = figure_of(fit, "busbw_bytes_per_s");
    double half = figure_of(fit, "half_bytes");
    if (!name || !same_word(name, c->kind) || view_item_number(fit, "ranks") != c->ranks ||
        !(rate > 0) || isnan(latency) || !collective_find(name, &kind))
        return false;
    double *x = arena_array(p->arena, 2 * POINTS, sizeof *x), *y = x + POINTS;
    for (size_t i = 0; i < POINTS; i++) {
        x[i] = c->x[0] * pow(c->x[c->count - 1] / c->x[0], (double)i / (POINTS - 1));
        double sent = collective_sent_bytes(kind, x[i], (uint64_t)c->ranks);
        double t = latency + sent / rate * (1 + (half > 0 ? half / x[i] : 0));
        y[i] = x[i] / t * collective_bus_factor(kind, (uint64_t)c->ranks) / UNITS_GIGA;
    }
    *out = (struct chart_series){"", CHART_DASHED, PLOT_TEXT, x, y, NULL, NULL, POINTS};
    return true;
}

// Fits of any cluster file that was given together with the measurement.
static size_t fitted_lines(struct page *p, const struct curve *curves, size_t curve_count,
                           struct chart_series *series, size_t n) {
    size_t before = n;
    for (size_t i = 0; i < p->results->count; i++) {
        const cJSON *fits = cJSON_GetObjectItemCaseSensitive(p->results->items[i].root, "fits");
        for (const cJSON *f = cJSON_IsArray(fits) ? fits->child : NULL; f; f = f->next)
            for (size_t k = 0; k < curve_count && n < CHART_SERIES; k++)
                if (fitted_curve(p, f, &curves[k], &series[n])) {
                    series[n].name = n == before ? "fitted" : "";
                    series[n++].colour = series[k].colour;
                }
    }
    return n;
}

// Model and line rate, where the file carries them: models[]{name,points[]{payload_bytes,
// busbw_bytes_per_s}} and line_rate_bytes_per_s.
static size_t reference_lines(struct page *p, struct view root, struct chart_series *series,
                              size_t n, const double range[2]) {
    struct view models = view_find(root, "models");
    double line = view_number(root, "line_rate_bytes_per_s");
    for (const cJSON *m = view_first(models); m && n + 1 < CHART_SERIES; m = m->next) {
        struct view points = view_find(view_member(models, m, 0), "points");
        size_t count = view_count(points), i = 0;
        double *x = arena_array(p->arena, count + 1, sizeof *x);
        double *y = arena_array(p->arena, count + 1, sizeof *y);
        for (const cJSON *c = view_first(points); c; c = c->next, i++) {
            x[i] = size_of(c);
            y[i] = bench_rate(c) / UNITS_GIGA;
        }
        const char *name = view_item_string(m, "name");
        series[n++] = (struct chart_series){
            name ? name : "model", CHART_DASHED, PLOT_GREY, x, y, NULL, NULL, count};
    }
    if (line > 0 && n < CHART_SERIES) {
        double *x = arena_array(p->arena, 4, sizeof *x);
        x[0] = range[0];
        x[1] = range[1];
        x[2] = x[3] = line / UNITS_GIGA;
        series[n++] =
            (struct chart_series){"line rate", CHART_DASHED, PLOT_TEXT, x, x + 2, NULL, NULL, 2};
    }
    return n;
}

static bool any_spread(const struct curve *curves, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < curves[i].count; k++)
            if (curves[i].high[k] > curves[i].y[k])
                return true;
    return false;
}

static void rate_figure(struct page *p, struct view root, bool collectives) {
    static const enum plot_colour colours[CURVES] = {
        PLOT_BLUE, PLOT_VERMILLION, PLOT_GREEN,  PLOT_ORANGE, PLOT_PURPLE,
        PLOT_SKY,  PLOT_GREY,       PLOT_YELLOW, PLOT_TEXT,   PLOT_LIGHT};
    struct curve curves[CURVES];
    struct chart_series series[CHART_SERIES];
    size_t n = collect(view_find(root, "results"), collectives, curves), drawn = 0;
    double range[2] = {INFINITY, 0};
    bool banded = n <= 4 && any_spread(curves, n); // more bands than that hide one another
    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        struct curve *c = &curves[i];
        range[0] = fmin(range[0], c->x[0]);
        range[1] = fmax(range[1], c->x[c->count - 1]);
        series[drawn++] = (struct chart_series){
            curve_name(c, p->arena), CHART_LINE_POINTS,       colours[i], c->x, c->y,
            banded ? c->low : NULL,  banded ? c->high : NULL, c->count};
    }
    if (collectives)
        drawn = reference_lines(p, root, series, fitted_lines(p, curves, n, series, drawn), range);
    struct plot *plot = plot_add(
        &p->plots, collectives ? "busbw" : "rates",
        collectives ? banded ? "Bus bandwidth against size, with the 5th to 95th percentile"
                             : "Bus bandwidth against size"
                    : "Copy and storage rate against size");
    plot->alt = curves_alt(p, curves, n);
    chart_xy(plot, &(struct chart_xy){
                       .x = {.label = collectives ? "total array (bytes)" : "block (bytes)",
                             .kind = AXIS_BYTES,
                             .log = true},
                       .y = {.label = collectives ? "bus bandwidth (GB/s)" : "rate (GB/s)",
                             .from_zero = true},
                       .series = series,
                       .series_count = drawn});
    page_figure(p, plot);
}

static size_t name_index(const char **names, size_t *n, const char *name) {
    for (size_t i = 0; i < *n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    if (*n == PAIR_SIZE)
        return PAIR_SIZE;
    names[*n] = name;
    return (*n)++;
}

static const char *end_of_pair(const cJSON *r, const char *key, int index, struct arena *a) {
    const char *group = view_item_string(r, "group");
    if (is_pair_group(r)) {
        const char *comma = strchr(group, ',');
        return index ? comma + 1 : arena_printf(a, "%.*s", (int)(comma - group), group);
    }
    const cJSON *pair = cJSON_GetObjectItemCaseSensitive(r, "pair");
    const cJSON *end = cJSON_IsArray(pair) ? cJSON_GetArrayItem(pair, index) : NULL;
    if (!end)
        end = cJSON_GetObjectItemCaseSensitive(r, key);
    if (cJSON_IsString(end))
        return end->valuestring;
    return cJSON_IsNumber(end) ? arena_printf(a, "%.0f", end->valuedouble) : NULL;
}

// Rates between pairs, as a square; the best of several results of a pair.
static void heat_map(struct page *p, struct view results) {
    const char *names[PAIR_SIZE];
    size_t n = 0, slow[2] = {0, 0};
    double *values = arena_array(p->arena, PAIR_SIZE * PAIR_SIZE, sizeof *values), least = INFINITY;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; pass == 0 && i < PAIR_SIZE * PAIR_SIZE; i++)
            values[i] = NAN;
        for (const cJSON *r = view_first(results); r; r = r->next) {
            const char *from = end_of_pair(r, "from", 0, p->arena),
                       *to = end_of_pair(r, "to", 1, p->arena);
            size_t a = from && to ? name_index(names, &n, from) : PAIR_SIZE;
            size_t b = from && to ? name_index(names, &n, to) : PAIR_SIZE;
            if (pass == 0 || a == PAIR_SIZE || b == PAIR_SIZE)
                continue;
            double rate = bench_rate(r) / UNITS_GIGA;
            if (isnan(values[a * n + b]) || rate > values[a * n + b])
                values[a * n + b] = rate;
        }
    }
    if (n < 2)
        return;
    for (size_t i = 0; i < n * n; i++) // a tournament measures a pair once, in both directions
        if (isnan(values[i]))
            values[i] = values[i % n * n + i / n];
    for (size_t i = 0; i < n * n; i++)
        if (values[i] < least) {
            least = values[i];
            slow[0] = i / n;
            slow[1] = i % n;
        }
    struct plot *plot = plot_add(&p->plots, "pairs", "Rate between each pair");
    plot->alt = arena_printf(p->arena, "%zu members; the slowest pair is %s to %s at %.3g GB/s", n,
                             names[slow[0]], names[slow[1]], least);
    chart_heat(plot, &(struct chart_heat){"to", "from", "GB/s", names, n, values});
    page_figure(p, plot);
}

void page_bench_answer(struct page *p, struct view root) {
    struct view results = view_find(root, "results");
    struct html *h = &p->html;
    size_t errors = 0, crowded = 0;
    for (const cJSON *r = view_first(results); r; r = r->next) {
        errors += view_item_number(r, "errors") > 0;
        crowded += cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(r, "oversubscribed"));
    }
    html_printf(h, "<p class=headline>%zu measurement%s", view_count(results),
                view_count(results) == 1 ? "" : "s");
    if (view_string(root, "host.name") || view_string(root, "host.hostname")) {
        html_raw(h, " on ");
        html_user(h, view_string(root, "host.name") ? view_string(root, "host.name")
                                                    : view_string(root, "host.hostname"));
    }
    if (errors)
        html_printf(h, "; %zu moved wrong data.</p>\n", errors);
    else
        html_raw(h, "; every transfer that was checked arrived right.</p>\n");
    if (crowded)
        html_printf(h,
                    "<p>%zu of them ran more ranks than the machine has processors: they tell "
                    "nothing about a network.</p>\n",
                    crowded);
}

// More than a few sizes of something that is not a collective: drawn as curves.
static bool swept(struct view results) {
    struct curve curves[CURVES];
    size_t n = collect(results, false, curves), points = 0;
    for (size_t i = 0; i < n; i++)
        points = curves[i].count > points ? curves[i].count : points;
    return points > 3;
}

void page_bench_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema", "command", "results", "models", NULL};
    static const struct show_column columns[] = {{"kind", "Kind"},
                                                 {"backend", "Backend"},
                                                 {"algorithm", "Algorithm"},
                                                 {"ranks", "Ranks"},
                                                 {"payload_bytes", "Payload"},
                                                 {"median_s", "Median"},
                                                 {"p05_s", "5th perc."},
                                                 {"p95_s", "95th perc."},
                                                 {"algbw_bytes_per_s", "Alg. rate"},
                                                 {"busbw_bytes_per_s", "Bus rate"},
                                                 {"errors", "Errors"},
                                                 {"oversubscribed", "More ranks than cores"}};
    struct view results = view_find(root, "results");
    rate_figure(p, root, true);
    if (swept(results))
        rate_figure(p, root, false);
    else
        bench_local(p, results);
    heat_map(p, results);
    if (view_count(results))
        show_rows(&p->html, results, &(struct show_table){"Results", columns, 12, 400, 0});
    else
        html_raw(&p->html, "<p class=missing>The file holds no result.</p>\n");
    show_rest(&p->html, root, handled);
}
