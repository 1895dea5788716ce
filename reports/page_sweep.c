// SPDX-License-Identifier: Apache-2.0
// A sweep: what was searched, the best plans, the Pareto front, scaling with GPUs.
#include "chart.h"
#include "plans.h"

#include "base/units.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct plans read_plans(struct view root) {
    return plans_read(view_find(root, "plans"), 0);
}

void page_sweep_answer(struct page *p, struct view root) {
    struct html *h = &p->html;
    struct plans s = read_plans(root);
    size_t best = plans_fastest(&s);
    html_raw(h, "<p class=headline>");
    if (s.count == 0) {
        html_raw(h, "No plan of the space that was searched fits.");
    } else {
        size_t first = s.recommended < s.count ? s.recommended : 0;
        html_raw(h, "Best of the sweep: ");
        html_user(h, s.labels[first]);
        html_raw(h, ", ");
        show_value(h, s.items[first], "time.step_s");
        html_raw(h, " per step, ");
        show_value(h, s.items[first], "memory.allocated_peak_bytes");
        html_raw(h, " per GPU at the peak.");
        if (best < s.count && best != first) {
            html_raw(h, " Shortest step: ");
            html_user(h, s.labels[best]);
            html_raw(h, ", ");
            show_value(h, s.items[best], "time.step_s");
            html_raw(h, ".");
        }
    }
    html_raw(h, "</p>\n<p>");
    show_value(h, root, isnan(view_number(root, "points")) ? "evaluated" : "points");
    html_raw(h, " points looked at, ");
    show_value(h, root, "pruned");
    html_raw(h, " ruled out by bounds, ");
    show_value(h, root, "simulated");
    html_raw(h, " simulated, ");
    show_value(h, root, "feasible");
    html_raw(h, " feasible.</p>\n");
    if (view_bool(root, "interrupted") == 1)
        html_raw(h, "<p class=missing>The sweep was interrupted: these are the best so far.</p>\n");
}

struct cloud { // step time against peak memory
    double *x, *y;
    size_t count;
};

static void add_cloud(struct cloud *c, struct view plan) {
    double x = view_number(plan, "memory.allocated_peak_bytes") / (double)UNITS_GIB;
    double y = view_number(plan, "time.step_s");
    if (isnan(x) || isnan(y))
        return;
    c->x[c->count] = x;
    c->y[c->count++] = y;
}

static struct cloud cloud_create(struct arena *a, size_t n) {
    return (struct cloud){arena_array(a, n + 1, sizeof(double)),
                          arena_array(a, n + 1, sizeof(double)), 0};
}

static void sort_cloud(struct cloud *c) {
    for (size_t i = 1; i < c->count; i++) {
        double x = c->x[i], y = c->y[i];
        size_t at = i;
        for (; at > 0 && c->x[at - 1] > x; at--) {
            c->x[at] = c->x[at - 1];
            c->y[at] = c->y[at - 1];
        }
        c->x[at] = x;
        c->y[at] = y;
    }
}

// pareto[] holds plans, or indices into plans[]; without it the front is found here.
static struct cloud front_of(struct view root, const struct plans *s, const struct cloud *all) {
    struct view pareto = view_find(root, "pareto");
    struct cloud front = cloud_create(root.arena, view_count(pareto) + all->count);
    size_t i = 0;
    for (const cJSON *c = view_first(pareto); c; c = c->next, i++) {
        if (cJSON_IsNumber(c) && c->valuedouble >= 0 && c->valuedouble < (double)s->count)
            add_cloud(&front, s->items[(size_t)c->valuedouble]);
        else if (cJSON_IsObject(c))
            add_cloud(&front, view_member(pareto, c, i));
    }
    return front;
}

// Of the points given, those that no other beats in both; in order of memory.
static struct cloud lower_envelope(struct arena *a, const struct cloud *points) {
    struct cloud sorted = cloud_create(a, points->count), out = cloud_create(a, points->count);
    memcpy(sorted.x, points->x, points->count * sizeof *sorted.x);
    memcpy(sorted.y, points->y, points->count * sizeof *sorted.y);
    sorted.count = points->count;
    sort_cloud(&sorted);
    double least = INFINITY;
    for (size_t i = 0; i < sorted.count; i++)
        if (sorted.y[i] < least) {
            least = sorted.y[i];
            out.x[out.count] = sorted.x[i];
            out.y[out.count++] = least;
        }
    return out;
}

static void scale_times(struct cloud *c, double scale) {
    for (size_t i = 0; i < c->count; i++)
        c->y[i] /= scale;
}

static void pareto_figure(struct page *p, struct view root, const struct plans *s) {
    struct cloud fits = cloud_create(p->arena, s->count), rest = cloud_create(p->arena, s->count);
    double most = 0;
    const char *unit;
    for (size_t i = 0; i < s->count; i++)
        add_cloud(strcmp(plans_fits(s->items[i]), "no") ? &fits : &rest, s->items[i]);
    struct cloud listed = front_of(root, s, &fits);
    struct cloud front = lower_envelope(p->arena, listed.count ? &listed : &fits);
    for (size_t i = 0; i < fits.count; i++)
        most = fmax(most, fits.y[i]);
    double scale = axis_seconds(most, &unit);
    scale_times(&fits, scale);
    scale_times(&rest, scale);
    scale_times(&front, scale);
    struct chart_series series[3] = {
        {"fits", CHART_POINTS, PLOT_BLUE, fits.x, fits.y, NULL, NULL, fits.count},
        {"does not fit", CHART_POINTS, PLOT_GREY, rest.x, rest.y, NULL, NULL, rest.count},
        {"best trade-offs", CHART_LINE_POINTS, PLOT_VERMILLION, front.x, front.y, NULL, NULL,
         front.count}};
    struct plot *plot = plot_add(&p->plots, "pareto", "Step time against memory");
    char low[SHOW_TEXT], high[SHOW_TEXT];
    plot->alt =
        front.count == 0 ? "No plan with both a step time and a peak is in the file"
        : front.count == 1
            ? arena_printf(p->arena,
                           "One plan is both the fastest and the smallest: %s at %.3g GiB",
                           show_format(low, "_s", front.y[0] * scale), front.x[0])
            : arena_printf(p->arena,
                           "%zu plans have no better in both; they run from %s per step at "
                           "%.3g GiB to %s at %.3g GiB",
                           front.count, show_format(low, "_s", front.y[0] * scale), front.x[0],
                           show_format(high, "_s", front.y[front.count - 1] * scale),
                           front.x[front.count - 1]);
    chart_xy(plot,
             &(struct chart_xy){
                 .x = {.label = "peak allocated (GiB per GPU)", .from_zero = true},
                 .y = {.label = arena_printf(p->arena, "step time (%s)", unit), .from_zero = true},
                 .series = series,
                 .series_count = 3,
                 .key = true});
    page_figure(p, plot);
}

static double gpus_of(struct view plan) {
    static const char *const paths[] = {"gpus", "cluster.gpus", "recipe.world", "recipe.gpus"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (!isnan(view_number(plan, paths[i])))
            return view_number(plan, paths[i]);
    double nodes = view_number(plan, "nodes");
    return isnan(nodes) ? view_number(plan, "recipe.nodes") : nodes;
}

// Best throughput at each GPU count, with the line of perfect scaling from the smallest.
static void scaling_figure(struct page *p, const struct plans *s) {
    struct cloud best = cloud_create(p->arena, s->count);
    for (size_t i = 0; i < s->count; i++) {
        double gpus = gpus_of(s->items[i]);
        double rate = view_number(s->items[i], "time.tokens_per_s_per_gpu") * gpus;
        size_t k = 0;
        if (isnan(gpus) || isnan(rate) || strcmp(plans_fits(s->items[i]), "no") == 0)
            continue;
        while (k < best.count && best.x[k] != gpus)
            k++;
        if (k == best.count) {
            best.x[best.count] = gpus;
            best.y[best.count++] = rate;
        }
        best.y[k] = fmax(best.y[k], rate);
    }
    if (best.count < 2)
        return;
    sort_cloud(&best);
    struct cloud ideal = cloud_create(p->arena, best.count);
    for (size_t i = 0; i < best.count; i++) {
        ideal.x[i] = best.x[i];
        ideal.y[i] = best.y[0] * best.x[i] / best.x[0];
    }
    ideal.count = best.count;
    struct chart_series series[2] = {
        {"best plan", CHART_LINE_POINTS, PLOT_BLUE, best.x, best.y, NULL, NULL, best.count},
        {"perfect", CHART_DASHED, PLOT_GREY, ideal.x, ideal.y, NULL, NULL, ideal.count}};
    struct plot *plot = plot_add(&p->plots, "scaling", "Scaling: best throughput at each size");
    size_t last = best.count - 1;
    plot->alt = arena_printf(
        p->arena, "From %.0f to %.0f GPUs throughput grows %.3g times, %.0f %% of perfect",
        best.x[0], best.x[last], best.y[last] / best.y[0], 100 * best.y[last] / ideal.y[last]);
    chart_xy(plot, &(struct chart_xy){.x = {.label = "GPUs", .kind = AXIS_COUNT, .log = true},
                                      .y = {.label = "tokens per second, all GPUs", .log = true},
                                      .series = series,
                                      .series_count = 2});
    page_figure(p, plot);
}

void page_sweep_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema", "command", "model", "cluster",
                                          "plans",  "pareto",  "space", NULL};
    struct plans s = read_plans(root);
    pareto_figure(p, root, &s);
    scaling_figure(p, &s);
    plans_memory_figure(p, &s);
    plans_time_figure(p, &s);
    page_heading(p, "The best plans");
    plans_table(p, &s, "Plans, best first");
    show_any(&p->html, view_find(root, "space"), "The space that was searched");
    show_rest(&p->html, root, handled);
}
