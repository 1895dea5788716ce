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

// Some of the ranks, or one of the GPUs, apart from the curve of them all.
static bool is_partial(const cJSON *r) {
    const char *group = view_item_string(r, "group");
    return group && *group;
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
    return arena_printf(a, "%.24s%s%s%.16s%s%.12s%s", c->kind ? show_word(c->kind) : "transfer",
                        ranks, c->direction ? " " : "", c->direction ? show_word(c->direction) : "",
                        how ? " " : "", how ? how : "", c->in_place ? " in place" : "");
}

static size_t collect(struct view results, bool collectives, struct curve *curves) {
    size_t n = 0;
    for (const cJSON *r = view_first(results); r; r = r->next) {
        if (bench_is_collective(r) != collectives || bench_is_pair(r) || is_partial(r) ||
            !(size_of(r) > 0) || !(bench_rate(r) > 0))
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

// The series in the unit that suits the highest of them; its name.
static const char *scale_series(struct page *p, struct chart_series *series, size_t n) {
    double most = 0;
    const char *unit;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < series[i].count; k++)
            most = fmax(most, series[i].y[k]);
    double factor = UNITS_GIGA / axis_rate(most * UNITS_GIGA, &unit);
    for (size_t i = 0; i < n && factor != 1; i++) {
        const double **columns[] = {&series[i].y, &series[i].low, &series[i].high};
        for (size_t c = 0; c < 3; c++) {
            if (!*columns[c])
                continue;
            double *scaled = arena_array(p->arena, series[i].count + 1, sizeof *scaled);
            for (size_t k = 0; k < series[i].count; k++)
                scaled[k] = factor * (*columns[c])[k];
            *columns[c] = scaled;
        }
    }
    return unit;
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
    const char *unit = scale_series(p, series, drawn);
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
                       .y = {.label = arena_printf(
                                 p->arena, collectives ? "bus bandwidth (%s)" : "rate (%s)", unit),
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

struct pairs { // rates between members, bytes per second, row by row; NAN where not measured
    const char *names[PAIR_SIZE];
    double *values;
    size_t count, slowest; // members; place in values
};

// The best of several results of a pair.
static void take_pair(struct pairs *out, const cJSON *r, bool name_only, struct arena *a) {
    const char *from = end_of_pair(r, "from", 0, a), *to = end_of_pair(r, "to", 1, a);
    size_t i = from && to ? name_index(out->names, &out->count, from) : PAIR_SIZE;
    size_t k = from && to ? name_index(out->names, &out->count, to) : PAIR_SIZE;
    if (name_only || i == PAIR_SIZE || k == PAIR_SIZE)
        return;
    double *at = &out->values[i * out->count + k], rate = bench_rate(r);
    *at = isnan(*at) || rate > *at ? rate : *at;
}

static bool read_pairs(struct view results, struct pairs *out) {
    struct arena *a = results.arena;
    *out = (struct pairs){.values = arena_array(a, PAIR_SIZE * PAIR_SIZE, sizeof *out->values)};
    for (size_t i = 0; i < PAIR_SIZE * PAIR_SIZE; i++)
        out->values[i] = NAN;
    for (int pass = 0; pass < 2; pass++) // the first finds the members
        for (const cJSON *r = view_first(results); r; r = r->next)
            take_pair(out, r, pass == 0, a);
    size_t n = out->count, known = 0;
    for (size_t i = 0; i < n * n; i++) // a tournament measures a pair once, in both directions
        if (isnan(out->values[i]))
            out->values[i] = out->values[i % n * n + i / n];
    for (size_t i = 0; i < n * n; i++) {
        if (isnan(out->values[i]))
            continue;
        if (known++ == 0 || out->values[i] < out->values[out->slowest])
            out->slowest = i;
    }
    return n >= 2 && known > 0;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median_pair(const struct pairs *q, struct arena *a) {
    double *sorted = arena_array(a, q->count * q->count, sizeof *sorted);
    size_t n = 0;
    for (size_t i = 0; i < q->count * q->count; i++)
        if (!isnan(q->values[i]))
            sorted[n++] = q->values[i];
    qsort(sorted, n, sizeof *sorted, by_value);
    return n ? sorted[n / 2] : NAN;
}

static const char *slowest_pair(const struct pairs *q, struct arena *a) {
    char rate[SHOW_TEXT], middle[SHOW_TEXT];
    return arena_printf(a, "the slowest pair is %.60s to %.60s at %s, the median %s",
                        q->names[q->slowest / q->count], q->names[q->slowest % q->count],
                        show_format(rate, "_bytes_per_s", q->values[q->slowest]),
                        show_format(middle, "_bytes_per_s", median_pair(q, a)));
}

static void heat_map(struct page *p, struct view results) {
    struct pairs q;
    const char *unit;
    double most = 0;
    if (!read_pairs(results, &q))
        return;
    struct plot *plot = plot_add(&p->plots, "pairs", "Rate between each pair");
    plot->alt = arena_printf(p->arena, "%zu members; %s", q.count, slowest_pair(&q, p->arena));
    for (size_t i = 0; i < q.count * q.count; i++)
        most = fmax(most, q.values[i]);
    double scale = axis_rate(most, &unit);
    for (size_t i = 0; i < q.count * q.count; i++)
        q.values[i] /= scale;
    chart_heat(plot, &(struct chart_heat){"to", "from", unit, q.names, q.count, q.values});
    page_figure(p, plot);
}

// The highest rate of each curve.
static void say_peaks(struct page *p, struct view results) {
    struct html *h = &p->html;
    struct curve curves[CURVES];
    char text[SHOW_TEXT];
    size_t n = collect(results, true, curves);
    for (size_t i = 0; i < n; i++) {
        size_t best = 0;
        for (size_t k = 1; k < curves[i].count; k++)
            best = curves[i].y[k] > curves[i].y[best] ? k : best;
        html_raw(h, i ? "<li>" : "<ul><li>");
        html_user(h, curve_name(&curves[i], p->arena));
        html_raw(h, ": up to ");
        html_text(h, show_format(text, "_bytes_per_s", curves[i].y[best] * UNITS_GIGA));
        html_raw(h, " of bus bandwidth, at ");
        html_text(h, show_format(text, "_bytes", curves[i].x[best]));
        html_raw(h, "</li>");
    }
    html_raw(h, n ? "</ul>\n" : "");
    struct pairs q;
    if (!read_pairs(results, &q))
        return;
    html_raw(h, "<p>Between pairs, ");
    html_user(h, slowest_pair(&q, p->arena));
    html_raw(h, ".</p>\n");
}

void page_bench_answer(struct page *p, struct view root) {
    struct view results = view_find(root, "results");
    struct html *h = &p->html;
    size_t errors = 0, crowded = 0, checked = 0;
    for (const cJSON *r = view_first(results); r; r = r->next) {
        errors += view_item_number(r, "errors") > 0;
        checked += view_item_number(r, "errors") >= 0;
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
        html_raw(h, checked ? "; every transfer that was checked arrived right.</p>\n"
                            : ", none of which was checked for right data.</p>\n");
    say_peaks(p, results);
    if (crowded)
        html_printf(h,
                    "<p>%zu of them ran more ranks than the machine has processors: they tell "
                    "nothing about a network.</p>\n",
                    crowded);
}

// More than a few sizes of something that is not a collective: drawn as curves.
static bool swept(struct view results) {
    struct curve curves[CURVES];
    size_t n = collect(results, false, curves), most = 0;
    for (size_t i = 0; i < n; i++) {
        size_t sizes = curves[i].count > 0;
        for (size_t k = 1; k < curves[i].count; k++)
            sizes += curves[i].x[k] > curves[i].x[k - 1];
        most = sizes > most ? sizes : most;
    }
    return most > 3;
}

static void results_table(struct page *p, struct view results) {
    static const struct show_column all[] = {{"kind", "Kind"},
                                             {"backend", "Backend"},
                                             {"algorithm", "Algorithm"},
                                             {"direction", "Direction"},
                                             {"dtype", "Type"},
                                             {"group", "Group"},
                                             {"ranks", "Ranks"},
                                             {"threads", "Threads"},
                                             {"payload_bytes", "Payload"},
                                             {"block_bytes", "Block"},
                                             {"median_s", "Median"},
                                             {"p05_s", "5th perc."},
                                             {"p95_s", "95th perc."},
                                             {"algbw_bytes_per_s", "Alg. rate"},
                                             {"busbw_bytes_per_s", "Bus rate"},
                                             {"ceiling_bytes_per_s", "Ceiling"},
                                             {"flop_per_s", "Products"},
                                             {"errors", "Errors"},
                                             {"oversubscribed", "More ranks than cores"}};
    enum { COLUMNS = sizeof all / sizeof *all };
    struct show_column told[COLUMNS];
    size_t n = show_told(results, all, COLUMNS, told);
    show_rows(&p->html, results, &(struct show_table){"Results", told, n, 400, 0});
}

// What bench noted beside its results, each once.
static void notes_list(struct page *p, struct view results) {
    enum { NOTES = 12 };
    const char *notes[NOTES];
    size_t n = 0;
    for (const cJSON *r = view_first(results); r && n < NOTES; r = r->next) {
        const char *note = view_item_string(r, "note");
        size_t i = 0;
        while (note && i < n && strcmp(notes[i], note) != 0)
            i++;
        if (note && *note && i == n)
            notes[n++] = note;
    }
    for (size_t i = 0; i < n; i++) {
        html_raw(&p->html, i ? "<li>" : "<p>Noted while measuring:</p><ul><li>");
        html_user(&p->html, notes[i]);
        html_raw(&p->html, "</li>");
    }
    html_raw(&p->html, n ? "</ul>\n" : "");
}

void page_bench_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema", "command", "results", "models", NULL};
    struct view results = view_find(root, "results");
    rate_figure(p, root, true);
    if (swept(results))
        rate_figure(p, root, false);
    else
        bench_local(p, results);
    bench_left_out(p, results);
    heat_map(p, results);
    if (view_count(results))
        results_table(p, results);
    else
        html_raw(&p->html, "<p class=missing>The file holds no result.</p>\n");
    notes_list(p, results);
    show_rest(&p->html, root, handled);
}
