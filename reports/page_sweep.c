// SPDX-License-Identifier: Apache-2.0
// A sweep: what was searched, the best plans, the Pareto front, scaling with GPUs.
#include "chart.h"
#include "origins.h"
#include "plans.h"

#include "base/units.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct plans read_plans(struct view root) {
    return plans_read(view_find(root, "plans"), 0);
}

// pareto[] holds plans, or indices into plans[].
static struct plans read_front(struct view root, const struct plans *s) {
    struct view pareto = view_find(root, "pareto");
    const cJSON *first = view_first(pareto);
    if (!first || cJSON_IsObject(first))
        return plans_read(pareto, NAN);
    struct plans front = *s;
    front.items = arena_array(root.arena, view_count(pareto) + 1, sizeof *front.items);
    front.titles = arena_array(root.arena, view_count(pareto) + 1, sizeof *front.titles);
    front.count = 0;
    for (const cJSON *c = first; c; c = c->next) {
        size_t i = (size_t)c->valuedouble;
        if (!cJSON_IsNumber(c) || !(c->valuedouble >= 0) || i >= s->count)
            continue;
        front.titles[front.count] = s->titles[i];
        front.items[front.count++] = s->items[i];
    }
    return front;
}

static double gpus_of(struct view plan) {
    static const char *const paths[] = {"gpus", "cluster.gpus", "recipe.world", "recipe.gpus"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (!isnan(view_number(plan, paths[i])))
            return view_number(plan, paths[i]);
    double nodes = view_number(plan, "nodes");
    return isnan(nodes) ? view_number(plan, "recipe.nodes") : nodes;
}

static void say_facts(struct page *p, struct view plan) {
    page_facts_open(p);
    page_fact(p, "Optimizer step", plan, "time.step_s", NULL);
    page_fact(p, "Tokens/s, all GPUs", plan, "tokens_per_s", NULL);
    page_fact(p, "GPUs", plan, "gpus", NULL);
    page_fact(p, "Peak memory per GPU", plan, "memory.allocated_peak_bytes",
              "memory.capacity_bytes");
    page_fact(p, "Model FLOPs utilization", plan, "time.mfu", NULL);
    page_fact(p, "USD per 10\xe2\x81\xb9 tokens", plan, "usd_per_billion_tokens", NULL);
    page_facts_close(p);
}

static void say_best(struct page *p, const struct plans *s) {
    struct html *h = &p->html;
    size_t first = s->recommended < s->count ? s->recommended : 0, fastest = plans_fastest(s);
    struct view plan = s->items[first];
    html_raw(h, "<p class=headline>");
    page_badge(p, plans_fits(plan));
    html_raw(h, " Best of the sweep: ");
    html_user(h, s->labels[first]);
    html_raw(h, ", ");
    show_value(h, plan, "time.step_s");
    html_raw(h, " per step");
    if (view_string(plan, "bound_by")) {
        html_raw(h, ", bound by ");
        html_user(h, show_word(view_string(plan, "bound_by")));
    }
    html_raw(h, ".");
    if (fastest < s->count && fastest != first) {
        html_raw(h, " Shortest step: ");
        html_user(h, s->labels[fastest]);
        html_raw(h, ", ");
        show_value(h, s->items[fastest], "time.step_s");
        html_raw(h, ".");
    }
    html_raw(h, "</p>\n");
    say_facts(p, plan);
}

void page_sweep_answer(struct page *p, struct view root) {
    struct html *h = &p->html;
    struct plans s = read_plans(root);
    if (s.count == 0)
        html_raw(h, "<p class=headline>No plan of the space that was searched fits.</p>\n");
    else
        say_best(p, &s);
    html_raw(h, "<p>Of ");
    show_value(h, root, isnan(view_number(root, "points")) ? "evaluated" : "points");
    html_raw(h, " points ");
    show_value(h, root, "pruned");
    html_raw(h, " were ruled out by bounds and ");
    show_value(h, root, "simulated");
    html_raw(h, " simulated, of which ");
    show_value(h, root, "feasible");
    html_raw(h, view_number(root, "evaluated.duplicates") > 0
                    ? " fit; the rest do not divide the batch or do what another point does.</p>\n"
                    : " fit.</p>\n");
    if (view_bool(root, "interrupted") == 1)
        html_raw(h, "<p class=missing>The sweep was interrupted: these are the best so far.</p>\n");
}

// ---- step time against memory -------------------------------------------------------------------

struct point { // step time against peak memory
    double x, y, gpus;
    const char *title;
};

struct cloud {
    struct point *items;
    double *x, *y; // the same for a series
    size_t count;
};

static struct cloud cloud_create(struct arena *a, size_t n) {
    return (struct cloud){arena_array(a, n + 1, sizeof(struct point)),
                          arena_array(a, n + 1, sizeof(double)),
                          arena_array(a, n + 1, sizeof(double)), 0};
}

static void add_point(struct cloud *c, struct point v) {
    c->x[c->count] = v.x;
    c->y[c->count] = v.y;
    c->items[c->count++] = v;
}

static void add_plans(struct cloud *c, const struct plans *s, double scale, bool fitting) {
    for (size_t i = 0; i < s->count; i++) {
        struct view plan = s->items[i];
        struct point v = {view_number(plan, "memory.allocated_peak_bytes") / (double)UNITS_GIB,
                          view_number(plan, "time.step_s") / scale, gpus_of(plan), s->titles[i]};
        if (!isnan(v.x) && !isnan(v.y) && (strcmp(plans_fits(plan), "no") != 0) == fitting)
            add_point(c, v);
    }
}

static int by_memory(const void *a, const void *b) {
    const struct point *p = a, *q = b;
    if (p->x != q->x)
        return p->x < q->x ? -1 : 1;
    return (p->y > q->y) - (p->y < q->y);
}

// Of the points of one size, those that no other beats in both; in order of memory.
static struct cloud front_of(struct arena *a, const struct cloud *all, double gpus) {
    struct point *sorted = arena_array(a, all->count + 1, sizeof *sorted);
    struct cloud out = cloud_create(a, all->count);
    double least = INFINITY;
    memcpy(sorted, all->items, all->count * sizeof *sorted);
    qsort(sorted, all->count, sizeof *sorted, by_memory);
    for (size_t i = 0; i < all->count; i++)
        if ((isnan(gpus) || sorted[i].gpus == gpus) && sorted[i].y < least) {
            least = sorted[i].y;
            add_point(&out, sorted[i]);
        }
    return out;
}

#define SIZES 6
#define MARKS 6

// The sizes of clusters among the points, largest first; the first few.
static size_t sizes_of(const struct cloud *c, double sizes[SIZES]) {
    size_t n = 0;
    for (size_t i = 0; i < c->count; i++) {
        size_t at = 0;
        double gpus = c->items[i].gpus;
        while (at < n && sizes[at] > gpus)
            at++;
        if (isnan(gpus) || at == SIZES || (at < n && sizes[at] == gpus))
            continue;
        n = n < SIZES ? n + 1 : n;
        memmove(sizes + at + 1, sizes + at, (n - at - 1) * sizeof *sizes);
        sizes[at] = gpus;
    }
    return n;
}

static bool is_marked(const struct chart_mark *marks, size_t n, const char *title) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(marks[i].label, title) == 0)
            return true;
    return false;
}

// The fastest plan of each strategy on a front, and the smallest plan.
static size_t front_marks(const struct cloud *f, struct chart_mark *marks) {
    size_t n = 0;
    for (size_t i = f->count; i-- > 0 && n < MARKS;)
        if (!is_marked(marks, n, f->items[i].title))
            marks[n++] = (struct chart_mark){f->x[i], f->y[i], f->items[i].title};
    return n;
}

static const char *pareto_alt(struct arena *a, const struct cloud *front, double scale) {
    char fast[SHOW_TEXT], small[SHOW_TEXT];
    if (front->count == 0)
        return "No plan with both a step time and a peak is in the file";
    const struct point *first = &front->items[front->count - 1], *last = &front->items[0];
    show_format(fast, "_s", first->y * scale);
    if (front->count == 1)
        return arena_printf(a,
                            "One plan is both the fastest and the smallest: %.60s, %s per step at "
                            "%.3g GiB",
                            first->title, fast, first->x);
    return arena_printf(a,
                        "From %.60s, %s per step at %.3g GiB per GPU, to %.60s, %s at %.3g GiB: "
                        "on the line no plan is better in both",
                        first->title, fast, first->x, last->title,
                        show_format(small, "_s", last->y * scale), last->x);
}

// Near zero an axis starts there; else the points get the room.
static struct axis axis_for(const char *label, const struct cloud *c, bool across) {
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < c->count; i++) {
        low = fmin(low, across ? c->x[i] : c->y[i]);
        high = fmax(high, across ? c->x[i] : c->y[i]);
    }
    return (struct axis){.label = label, .from_zero = low < 0.4 * high};
}

static size_t front_series(struct page *p, const struct cloud *all, struct chart_series *series,
                           const char *name) {
    static const enum plot_colour colours[SIZES] = {PLOT_VERMILLION, PLOT_GREEN, PLOT_PURPLE,
                                                    PLOT_ORANGE,     PLOT_SKY,   PLOT_BLUE};
    double sizes[SIZES + 1];
    size_t n = sizes_of(all, sizes), lines = n > 1 ? n : 1;
    for (size_t i = 0; i < lines; i++) {
        struct cloud f = front_of(p->arena, all, n > 1 ? sizes[i] : NAN);
        series[i] =
            (struct chart_series){n > 1 ? arena_printf(p->arena, "%.0f GPUs", sizes[i]) : name,
                                  CHART_LINE_POINTS,
                                  colours[i],
                                  f.x,
                                  f.y,
                                  NULL,
                                  NULL,
                                  f.count};
    }
    return lines;
}

static void pareto_figure(struct page *p, const struct plans *s, const struct plans *listed) {
    struct cloud fits = cloud_create(p->arena, s->count), rest = cloud_create(p->arena, s->count);
    struct cloud all = cloud_create(p->arena, s->count + listed->count);
    struct chart_series series[SIZES + 2];
    struct chart_mark marks[MARKS];
    const char *unit;
    double most = 0;
    for (size_t i = 0; i < listed->count; i++)
        most = fmax(most, view_number(listed->items[i], "time.step_s"));
    for (size_t i = 0; i < s->count; i++)
        most = fmax(most, view_number(s->items[i], "time.step_s"));
    double scale = axis_seconds(most, &unit);
    add_plans(&fits, s, scale, true);
    add_plans(&rest, s, scale, false);
    add_plans(&all, s, scale, true);
    add_plans(&all, listed, scale, true);
    struct cloud front = front_of(p->arena, &all, NAN);
    size_t n = 0;
    series[n++] = (struct chart_series){"best plans", CHART_POINTS, PLOT_BLUE, fits.x,
                                        fits.y,       NULL,         NULL,      fits.count};
    series[n++] = (struct chart_series){rest.count ? "does not fit" : "",
                                        CHART_POINTS,
                                        PLOT_GREY,
                                        rest.x,
                                        rest.y,
                                        NULL,
                                        NULL,
                                        rest.count};
    n += front_series(p, &all, series + n, listed->count ? "best trade-offs" : "best of these");
    struct plot *plot = plot_add(&p->plots, "pareto", "Step time against memory");
    plot->alt = pareto_alt(p->arena, &front, scale);
    double capacity = NAN;
    if (s->count)
        capacity = view_number(s->items[0], "memory.capacity_bytes") / (double)UNITS_GIB;
    const struct chart_mark rule = {capacity, 0, "capacity"};
    chart_xy(plot, &(struct chart_xy){
                       .x = axis_for("peak allocated (GiB per GPU)", &all, true),
                       .y = axis_for(arena_printf(p->arena, "step time (%s)", unit), &all, false),
                       .series = series,
                       .series_count = n,
                       .marks = marks,
                       .mark_count = front_marks(&front, marks),
                       .rules = &rule,
                       .rule_count = !isnan(capacity)});
    page_figure(p, plot);
}

// ---- scaling ------------------------------------------------------------------------------------

struct best { // throughput by GPUs
    double *x, *y;
    size_t count;
};

static void add_best(struct best *b, const struct plans *s) {
    for (size_t i = 0; i < s->count; i++) {
        double gpus = gpus_of(s->items[i]);
        double rate = view_number(s->items[i], "time.tokens_per_s_per_gpu") * gpus;
        size_t k = 0;
        if (isnan(gpus) || isnan(rate) || strcmp(plans_fits(s->items[i]), "no") == 0)
            continue;
        while (k < b->count && b->x[k] < gpus)
            k++;
        if (k == b->count || b->x[k] != gpus) {
            memmove(b->x + k + 1, b->x + k, (b->count - k) * sizeof *b->x);
            memmove(b->y + k + 1, b->y + k, (b->count - k) * sizeof *b->y);
            b->count++;
            b->x[k] = gpus;
            b->y[k] = rate;
        }
        b->y[k] = fmax(b->y[k], rate);
    }
}

// Best throughput per GPU at each GPU count.
static void scaling_figure(struct page *p, const struct plans *s, const struct plans *front) {
    size_t room = s->count + front->count + 1;
    struct best best = {arena_array(p->arena, room, sizeof(double)),
                        arena_array(p->arena, room, sizeof(double)), 0};
    add_best(&best, s);
    add_best(&best, front);
    if (best.count < 2)
        return;
    size_t last = best.count - 1;
    for (size_t i = 0; i <= last; i++)
        best.y[i] /= best.x[i];
    plans_scaling_figure(
        p, &(struct plans_scaling){
               "Scaling: the best plan at each size",
               arena_printf(p->arena,
                            "From %.0f to %.0f GPUs throughput grows %.3g times, %.0f %% of "
                            "perfect",
                            best.x[0], best.x[last],
                            best.y[last] * best.x[last] / best.y[0] / best.x[0],
                            100 * best.y[last] / best.y[0]),
               best.x, best.y, best.count});
}

void page_sweep_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema",      "command", "model",
                                          "cluster",     "plans",   "pareto",
                                          "space",       "inputs",  "assumed_that_matter",
                                          "by_strategy", NULL};
    struct plans s = read_plans(root), front = read_front(root, &s);
    struct plans by = plans_read(view_find(root, "by_strategy"), 0);
    const struct plans *drawn = by.count > 1 ? &by : &s; // the best few are often of one strategy
    pareto_figure(p, drawn, &front);
    if (front.count == 0 && s.count)
        html_raw(&p->html,
                 "<p class=note>The best plans alone are drawn: with <code>--pareto</code> "
                 "a sweep also keeps every plan that no other beats in step time, memory, "
                 "cost and GPUs.</p>\n");
    scaling_figure(p, &s, &front);
    plans_memory_figure(p, drawn);
    plans_time_figure(p, drawn);
    page_heading(p, "The best plans");
    if (drawn == &by)
        plans_table(p, &by, "The best plan of each strategy");
    plans_table(p, &s, "Plans, best first");
    if (cJSON_IsObject(view_first(view_find(root, "pareto")))) {
        html_printf(&p->html, "<details><summary>All %zu trade-offs</summary>\n", front.count);
        plans_table(p, &front, "Plans that none beats in step time, memory, cost and GPUs");
        html_raw(&p->html, "</details>\n");
    }
    if (s.count)
        origins_recipe(p, view_find(s.items[0], "recipe"), root,
                       &(struct recipe_of){.title = s.labels[0]});
    page_heading(p, "What this rests on");
    origins_assumed(p, view_find(root, "assumed_that_matter"));
    plans_nearest(p, &s);
    origins_inputs(p, view_find(root, "inputs"));
    show_any(&p->html, view_find(root, "space"), "The space that was searched");
    show_rest(&p->html, root, handled);
}
