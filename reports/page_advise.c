// SPDX-License-Identifier: Apache-2.0
// Advice: the decision, the options side by side, break-evens, step time against bandwidth.
#include "chart.h"
#include "plans.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

#define CURVES 8
#define CROSSINGS 6

void page_advise_answer(struct page *p, struct view root) {
    struct html *h = &p->html;
    static const char *const sentences[] = {"sentence", "answer", "recommendation.reason",
                                            "decision.reason", "reason"};
    static const char *const choices[] = {"choice", "recommendation.choice", "decision.choice"};
    const char *sentence = NULL, *choice = NULL;
    for (size_t i = 0; i < sizeof sentences / sizeof *sentences && !sentence; i++)
        sentence = view_string(root, sentences[i]);
    for (size_t i = 0; i < sizeof choices / sizeof *choices && !choice; i++)
        choice = view_string(root, choices[i]);
    html_raw(h, "<p class=headline>");
    if (choice && !sentence) {
        page_badge(p, choice);
        html_raw(h, " ");
    }
    html_user(h, sentence ? sentence : "The file gives no decision.");
    html_raw(h, "</p>\n");
    struct view actions = view_find(root, "actions");
    if (!view_count(actions))
        actions = view_find(root, "recommendation.actions");
    size_t i = 0;
    html_raw(h, view_count(actions) ? "<p>Do this:</p><ul>" : "");
    for (const cJSON *c = view_first(actions); c && i < 12; c = c->next, i++) {
        html_raw(h, "<li>");
        show_scalar(h, view_member(actions, c, i));
        html_raw(h, "</li>");
    }
    html_raw(h, view_count(actions) ? "</ul>\n" : "");
}

struct curve {
    const char *name;
    double *x, *y;
    size_t count;
};

static const char *first_text(const cJSON *item, const char *a, const char *b) {
    const char *text = view_item_string(item, a);
    return text ? text : view_item_string(item, b);
}

static size_t read_curves(struct view array, const char *x_key, double x_scale, struct curve *out) {
    size_t n = 0;
    for (const cJSON *c = view_first(array); c && n < CURVES; c = c->next) {
        struct view points = view_find(view_member(array, c, 0), "points");
        size_t count = view_count(points);
        const char *name = first_text(c, "name", "title");
        struct curve *one = &out[n++];
        *one = (struct curve){name ? name : "plan",
                              arena_array(array.arena, count + 1, sizeof(double)),
                              arena_array(array.arena, count + 1, sizeof(double)), 0};
        for (const cJSON *q = view_first(points); q; q = q->next) {
            one->x[one->count] = view_item_number(q, x_key) / x_scale;
            one->y[one->count++] = view_item_number(q, "step_s");
        }
    }
    return n;
}

// y of a curve at x, by straight lines between its points; NAN outside.
static double value_at(const struct curve *c, double x) {
    for (size_t i = 1; i < c->count; i++)
        if (c->x[i - 1] <= x && x <= c->x[i] && c->x[i] > c->x[i - 1])
            return c->y[i - 1] +
                   (c->y[i] - c->y[i - 1]) * (log(x / c->x[i - 1]) / log(c->x[i] / c->x[i - 1]));
    return NAN;
}

struct meeting {
    size_t a, b; // curves
    double x, y;
};

// Where two curves meet between their points, from the lowest bandwidth up.
static size_t crossings(const struct curve *curves, size_t n, struct meeting *met, size_t limit) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++)
            for (size_t q = 1; q < curves[i].count && found < limit; q++) {
                const struct curve *c = &curves[i];
                double before = c->y[q - 1] - value_at(&curves[k], c->x[q - 1]);
                double after = c->y[q] - value_at(&curves[k], c->x[q]);
                if (isnan(before) || isnan(after) || before * after >= 0)
                    continue;
                double f = before / (before - after);
                struct meeting m = {i, k, c->x[q - 1] * pow(c->x[q] / c->x[q - 1], f),
                                    c->y[q - 1] + f * (c->y[q] - c->y[q - 1])};
                size_t at = found++;
                for (; at > 0 && met[at - 1].x > m.x; at--)
                    met[at] = met[at - 1];
                met[at] = m;
            }
    return found;
}

static const char *crossing_words(const struct curve *curves, const struct meeting *met, size_t n,
                                  struct arena *a) {
    const char *text = "";
    for (size_t i = 0; i < n && i < 3; i++)
        text = arena_printf(a, "%s%s%.60s meets %.60s at %.3g Gb/s", text, i ? "; " : "",
                            curves[met[i].a].name, curves[met[i].b].name, met[i].x);
    if (n == 0)
        return "The curves do not cross in the range that was looked at";
    return n > 3 ? arena_printf(a, "%s; and %zu more crossings", text, n - 3) : text;
}

static double curves_scale(struct curve *curves, size_t n, const char **unit) {
    double most = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < curves[i].count; k++)
            most = fmax(most, curves[i].y[k]);
    double scale = axis_seconds(most, unit);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < curves[i].count; k++)
            curves[i].y[k] /= scale;
    return scale;
}

static size_t curve_series(const struct curve *curves, size_t n, struct chart_series *series) {
    static const enum plot_colour colours[CURVES] = {PLOT_BLUE,   PLOT_VERMILLION, PLOT_GREEN,
                                                     PLOT_PURPLE, PLOT_ORANGE,     PLOT_SKY,
                                                     PLOT_GREY,   PLOT_TEXT};
    for (size_t i = 0; i < n; i++)
        series[i] = (struct chart_series){curves[i].name, CHART_LINE_POINTS, colours[i],
                                          curves[i].x,    curves[i].y,       NULL,
                                          NULL,           curves[i].count};
    return n;
}

static void bandwidth_figure(struct page *p, struct view root) {
    struct curve curves[CURVES];
    struct chart_series series[CURVES];
    struct chart_mark marks[CROSSINGS];
    struct meeting met[CROSSINGS];
    const char *unit;
    size_t n = read_curves(view_find(root, "bandwidth_curves"), "inter_node_bytes_per_s_per_gpu",
                           UNITS_GIGA / 8, curves);
    if (n == 0) {
        html_raw(&p->html,
                 "<p class=missing>The file holds no curve of step time against bandwidth.</p>\n");
        return;
    }
    curves_scale(curves, n, &unit);
    size_t crossed = crossings(curves, n, met, CROSSINGS);
    for (size_t i = 0; i < crossed; i++)
        marks[i] =
            (struct chart_mark){met[i].x, met[i].y, arena_printf(p->arena, "%.3g Gb/s", met[i].x)};
    struct plot *plot =
        plot_add(&p->plots, "bandwidth", "Step time against inter-node bandwidth per GPU");
    plot->alt = crossing_words(curves, met, crossed, p->arena);
    chart_xy(plot,
             &(struct chart_xy){
                 .x = {.label = "inter-node bandwidth per GPU (Gb/s)", .log = true},
                 .y = {.label = arena_printf(p->arena, "step time (%s)", unit), .from_zero = true},
                 .series = series,
                 .series_count = curve_series(curves, n, series),
                 .marks = marks,
                 .mark_count = crossed});
    page_figure(p, plot);
}

#define SIZES 16

// The recommended plan on more nodes with the same batch per GPU.
static void scaling_figure(struct page *p, struct view points) {
    double x[SIZES], y[SIZES];
    size_t n = 0;
    for (const cJSON *c = view_first(points); c && n < SIZES; c = c->next) {
        double rate = view_item_number(c, "tokens_per_s_per_gpu");
        if (!(rate > 0))
            continue;
        x[n] = view_item_number(c, "gpus");
        y[n++] = rate;
    }
    if (n < 2)
        return;
    plans_scaling_figure(
        p, "The recommended plan on more nodes", x, y, n,
        arena_printf(
            p->arena,
            "With the same batch per GPU, %.0f GPUs reach %.0f %% of the tokens per second "
            "and GPU of %.0f GPUs",
            x[n - 1], 100 * y[n - 1] / y[0], x[0]));
}

#define WAYS 24

// Throughput of each way that is possible.
static void ways_figure(struct page *p, struct view ways) {
    static const char *const names[] = {"tokens per second"};
    static const enum plot_colour colours[] = {PLOT_BLUE};
    const char *rows[WAYS], *ends[WAYS], *best = NULL;
    double values[WAYS], most = 0;
    char text[SHOW_TEXT];
    size_t n = 0;
    for (const cJSON *c = view_first(ways); c && n < WAYS; c = c->next) {
        char step[SHOW_TEXT];
        double rate = view_item_number(c, "tokens_per_s"), d = view_item_number(c, "days");
        const char *title = view_item_string(c, "title"), *plan = view_item_string(c, "plan");
        if (!(rate > 0))
            continue;
        rows[n] = title ? title : "way";
        ends[n] = arena_printf(p->arena, "%s per step, %.3g days",
                               show_format(step, "_s", view_item_number(c, "step_s")), d);
        if (rate > most) {
            most = rate;
            best =
                arena_printf(p->arena, "%.80s with %.80s", rows[n], plan ? plan : "its best plan");
        }
        values[n++] = rate / UNITS_KILO;
    }
    if (n == 0)
        return;
    struct plot *plot = plot_add(&p->plots, "ways", "Throughput of each way that is possible");
    plot->alt = arena_printf(p->arena, "The highest throughput has %s: %s tokens per second", best,
                             show_format(text, "tokens_per_s", most));
    chart_bars(plot, &(struct chart_bars){.x_label = "thousand tokens per second, all GPUs",
                                          .segments = names,
                                          .colours = colours,
                                          .segment_count = 1,
                                          .rows = rows,
                                          .row_count = n,
                                          .per_row = 1,
                                          .values = values,
                                          .ends = ends});
    page_figure(p, plot);
}

static void tables(struct page *p, struct view root) {
    static const struct show_column ways[] = {{"title", "Way"},
                                              {"gpus", "GPUs"},
                                              {"plan", "Best plan"},
                                              {"step_s", "Step"},
                                              {"tokens_per_s", "Tokens/s, all GPUs"},
                                              {"days", "Days"},
                                              {"usd_per_billion_tokens", "USD per 10^9 tokens"},
                                              {"bound_by", "Bound by"},
                                              {"reason", "In words"}};
    static const struct show_column links[] = {{"link", "Link"},
                                               {"of", "Counted"},
                                               {"current_bytes_per_s", "Now"},
                                               {"needed_bytes_per_s", "Enough"},
                                               {"sold_bytes_per_s", "As sold"},
                                               {"step_s", "Step now"},
                                               {"floor_step_s", "Step at infinite rate"},
                                               {"reason", "Why"}};
    static const struct show_column worth[] = {
        {"path", "Figure"},
        {"of", "Counted"},
        {"value_bytes_per_s", "Now"},
        {"gain_of_10_percent", "10 % more saves, of the step"}};
    static const struct show_column first[] = {
        {"path", "Assumed figure"}, {"effect", "Effect"}, {"measure_with", "Measure it with"}};
    double best = view_number(root, "best_way");
    const struct {
        const char *key;
        struct show_table table;
    } all[] = {
        {"ways",
         {"Offload, more bandwidth or more GPUs", ways, 9, 40, best >= 0 ? (size_t)best + 1 : 0}},
        {"break_even", {"Break-evens: the least rate that is enough", links, 8, 40, 0}},
        {"sensitivities", {"What more bandwidth is worth", worth, 4, 40, 0}},
        {"measure_first", {"Measure these first: assumed figures that matter", first, 3, 12, 0}}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (view_count(view_find(root, all[i].key)))
            show_rows(&p->html, view_find(root, all[i].key), &all[i].table);
}

void page_advise_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema",
                                          "command",
                                          "model",
                                          "cluster",
                                          "recommendation",
                                          "sentence",
                                          "choice",
                                          "actions",
                                          "ways",
                                          "bandwidth_curves",
                                          "break_even",
                                          "sensitivities",
                                          "measure_first",
                                          "plans",
                                          "best_way",
                                          "scaling",
                                          NULL};
    struct plans s =
        plans_read(view_find(root, "plans"), view_number(root, "recommendation.plan_index"));
    ways_figure(p, view_find(root, "ways"));
    bandwidth_figure(p, root);
    scaling_figure(p, view_find(root, "scaling"));
    tables(p, root);
    if (s.count) {
        page_heading(p, "The plans as asked");
        plans_memory_figure(p, &s);
        plans_table(p, &s, "Plans as asked");
        plans_nearest(p, &s);
    }
    show_rest(&p->html, root, handled);
}
