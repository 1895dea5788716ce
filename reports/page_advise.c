// SPDX-License-Identifier: Apache-2.0
// Advice: the decision, the options side by side, break-evens, step time against bandwidth.
#include "chart.h"
#include "origins.h"
#include "plans.h"

#include "base/units.h"

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#define CURVES 8
#define MEETINGS 32 // of curves
#define CROSSINGS 6 // of them that are drawn

static struct view element(struct view array, double index) {
    size_t i = 0;
    for (const cJSON *c = view_first(array); c; c = c->next, i++)
        if ((double)i == index)
            return view_member(array, c, i);
    return (struct view){.path = "$", .arena = array.arena};
}

// The way that is recommended; absent when nothing is possible.
static struct view best_way(struct view root) {
    struct view way = element(view_find(root, "ways"), view_number(root, "best_way"));
    return view_bool(way, "possible") == 0 ? (struct view){.path = "$", .arena = root.arena} : way;
}

static const char *tokens_text(struct view root) {
    char text[32] = "10\xe2\x81\xb9";
    double tokens = view_number(root, "tokens");
    if (!isnan(tokens) && tokens != UNITS_GIGA)
        units_format_count(text, sizeof text, tokens);
    return arena_strdup(root.arena, text);
}

static void say_actions(struct page *p, struct view root) {
    struct html *h = &p->html;
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

static void say_facts(struct page *p, struct view root, struct view way) {
    page_facts_open(p);
    page_fact(p, "Optimizer step", way, "step_s", NULL);
    page_fact(p, "Tokens/s, all GPUs", way, "tokens_per_s", NULL);
    page_fact(p, "GPUs", way, "gpus", NULL);
    page_fact(p, arena_printf(p->arena, "Days for %s tokens", tokens_text(root)), way, "days",
              NULL);
    page_fact(p, "USD per 10\xe2\x81\xb9 tokens", way, "usd_per_billion_tokens", NULL);
    page_fact(p, "Peak memory per GPU", way, "allocated_peak_bytes", "capacity_bytes");
    if (view_number(way, "host_bytes_per_node") > 0)
        page_fact(p, "Host memory per node", way, "host_bytes_per_node", NULL);
    if (view_number(way, "nvme_bytes_per_node") > 0)
        page_fact(p, "NVMe per node", way, "nvme_bytes_per_node", NULL);
    page_facts_close(p);
}

// The sentence less "Change settings: same hardware with", which the headline has said.
static const char *after_headline(const char *sentence, struct view way) {
    const char *title = view_string(way, "title");
    const char *at = title && view_string(way, "plan") ? strstr(sentence, title) : NULL;
    if (!at || strncmp(at + strlen(title), " with ", 6) != 0)
        return sentence;
    return at + strlen(title) + 6;
}

void page_advise_answer(struct page *p, struct view root) {
    struct html *h = &p->html;
    static const char *const sentences[] = {"sentence", "answer", "recommendation.reason",
                                            "decision.reason", "reason"};
    static const char *const choices[] = {"choice", "recommendation.choice", "decision.choice"};
    const char *sentence = NULL, *choice = NULL;
    struct view way = best_way(root);
    for (size_t i = 0; i < sizeof sentences / sizeof *sentences && !sentence; i++)
        sentence = view_string(root, sentences[i]);
    for (size_t i = 0; i < sizeof choices / sizeof *choices && !choice; i++)
        choice = page_choice(view_string(root, choices[i]));
    html_raw(h, "<p class=headline>");
    if (choice && view_string(way, "plan")) {
        if (view_string(way, "fits_state")) {
            page_badge(p, view_string(way, "fits_state"));
            html_raw(h, " ");
        }
        html_text(h, choice);
        html_raw(h, ": ");
        show_value(h, way, "title");
        html_raw(h, " with ");
        show_value(h, way, "plan");
        html_raw(h, ".</p>\n<p>");
    }
    html_user(h, sentence ? after_headline(sentence, way) : "The file gives no decision.");
    html_raw(h, "</p>\n");
    say_facts(p, root, way);
    say_actions(p, root);
}

struct curve {
    const char *name;
    double *x, *y;
    size_t count;
};

// "same hardware: fsdp1"
static const char *curve_name(const cJSON *item, struct arena *a) {
    const char *name = view_item_string(item, "name"), *plan = view_item_string(item, "plan");
    if (!name)
        name = view_item_string(item, "title");
    if (!name)
        name = "plan";
    return plan && strcasecmp(plan, name) != 0 ? arena_printf(a, "%.40s: %.40s", name, plan) : name;
}

// Plans of different batches can be compared only over the same tokens: the most of any step.
static double most_tokens(struct view array) {
    double most = 0;
    for (const cJSON *c = view_first(array); c; c = c->next)
        most = fmax(most, view_item_number(c, "tokens_per_step"));
    return most;
}

static size_t read_curves(struct view array, double same_tokens, struct curve *out) {
    size_t n = 0;
    for (const cJSON *c = view_first(array); c && n < CURVES; c = c->next) {
        struct view points = view_find(view_member(array, c, 0), "points");
        size_t count = view_count(points);
        double tokens = view_item_number(c, "tokens_per_step");
        double scale = tokens > 0 && same_tokens > 0 ? same_tokens / tokens : 1;
        struct curve *one = &out[n++];
        *one = (struct curve){curve_name(c, array.arena),
                              arena_array(array.arena, count + 1, sizeof(double)),
                              arena_array(array.arena, count + 1, sizeof(double)), 0};
        for (const cJSON *q = view_first(points); q; q = q->next) {
            double rate = view_item_number(q, "inter_node_bytes_per_s_per_gpu");
            one->x[one->count] = rate / (UNITS_GIGA / 8);
            one->y[one->count++] = scale * view_item_number(q, "step_s");
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

// The curve of the way that is recommended; SIZE_MAX: none.
static size_t recommended(struct view root, struct view array) {
    const char *title = view_string(best_way(root), "title");
    size_t i = 0;
    for (const cJSON *c = view_first(array); c && title; c = c->next, i++)
        if (view_item_string(c, "title") && strcmp(view_item_string(c, "title"), title) == 0)
            return i;
    return SIZE_MAX;
}

// Crossings of the recommended curve first, then others that do not lie beside one that is kept.
static size_t keep_apart(struct meeting *met, size_t n, size_t curve) {
    struct meeting kept[CROSSINGS];
    size_t count = 0;
    for (int own = 1; own >= 0; own--)
        for (size_t i = 0; i < n && count < CROSSINGS; i++) {
            bool near = (met[i].a == curve || met[i].b == curve) != (own == 1);
            for (size_t k = 0; k < count && !near; k++)
                near = fabs(log(met[i].x / kept[k].x)) < 0.15;
            if (!near)
                kept[count++] = met[i];
        }
    memcpy(met, kept, count * sizeof *met);
    return count;
}

static const char *crossing_words(const struct curve *curves, const struct meeting *met, size_t n,
                                  struct arena *a) {
    const char *text = "Where the curves cross: ";
    for (size_t i = 0; i < n && i < 3; i++)
        text = arena_printf(a, "%s%s%.60s and %.60s at %.3g Gb/s", text, i ? "; " : "",
                            curves[met[i].a].name, curves[met[i].b].name, met[i].x);
    if (n == 0)
        return "The curves do not cross in the range that was looked at";
    return n > 3 ? arena_printf(a, "%s; and %zu more, marked below", text, n - 3) : text;
}

// Lowest and highest of all points; false where none is positive.
static bool curves_range(const struct curve *curves, size_t n, double *low, double *high) {
    *low = INFINITY;
    *high = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < curves[i].count; k++) {
            *low = curves[i].y[k] > 0 ? fmin(*low, curves[i].y[k]) : *low;
            *high = fmax(*high, curves[i].y[k]);
        }
    return *high > 0;
}

static void scale_curves(struct curve *curves, size_t n, double scale) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < curves[i].count; k++)
            curves[i].y[k] /= scale;
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

// What the network gives now, and what is enough for the recommended plan.
static size_t network_rules(struct view root, struct chart_mark rules[2]) {
    size_t n = 0;
    for (const cJSON *c = view_first(view_find(root, "break_even")); c; c = c->next) {
        const char *link = view_item_string(c, "link");
        double now = view_item_number(c, "current_bytes_per_s") / (UNITS_GIGA / 8);
        double enough = view_item_number(c, "needed_bytes_per_s") / (UNITS_GIGA / 8);
        const char *reason = view_item_string(c, "reason");
        if (!link || strcmp(link, "inter_node") != 0 || (reason && !strcmp(reason, "not_used")))
            continue;
        if (now > 0)
            rules[n++] =
                (struct chart_mark){now, 0, arena_printf(root.arena, "now %.3g Gb/s", now)};
        if (enough > 0)
            rules[n++] = (struct chart_mark){enough, 0,
                                             arena_printf(root.arena, "enough %.3g Gb/s", enough)};
        break;
    }
    return n;
}

static const char *bandwidth_label(struct arena *a, double tokens, const char *unit) {
    char text[32];
    if (!(tokens > 0))
        return arena_printf(a, "step time (%s)", unit);
    return arena_printf(a, "time per step of %s tokens (%s)",
                        units_format_count(text, sizeof text, tokens), unit);
}

static void bandwidth_figure(struct page *p, struct view root) {
    struct view array = view_find(root, "bandwidth_curves");
    struct curve curves[CURVES];
    struct chart_series series[CURVES];
    struct chart_mark marks[CROSSINGS], rules[2];
    struct meeting met[MEETINGS];
    const char *unit;
    double low, high, tokens = most_tokens(array);
    size_t n = read_curves(array, tokens, curves);
    if (n == 0) {
        html_raw(&p->html,
                 "<p class=missing>The file holds no curve of step time against bandwidth.</p>\n");
        return;
    }
    bool known = curves_range(curves, n, &low, &high), wide = known && high > 6 * low;
    scale_curves(curves, n, axis_seconds(high, &unit));
    size_t crossed = keep_apart(met, crossings(curves, n, met, MEETINGS), recommended(root, array));
    for (size_t i = 0; i < crossed; i++)
        marks[i] =
            (struct chart_mark){met[i].x, met[i].y, arena_printf(p->arena, "%.3g Gb/s", met[i].x)};
    struct plot *plot =
        plot_add(&p->plots, "bandwidth", "Step time against inter-node bandwidth per GPU");
    plot->alt = crossing_words(curves, met, crossed, p->arena);
    chart_xy(plot,
             &(struct chart_xy){.x = {.label = "inter-node bandwidth per GPU (Gb/s)", .log = true},
                                .y = {.label = bandwidth_label(p->arena, tokens, unit),
                                      .log = wide,
                                      .from_zero = !wide},
                                .series = series,
                                .series_count = curve_series(curves, n, series),
                                .marks = marks,
                                .mark_count = crossed,
                                .rules = rules,
                                .rule_count = network_rules(root, rules)});
    page_figure(p, plot);
}

#define SIZES 16

// The recommended plan on more nodes with the same batch per GPU.
static void scaling_figure(struct page *p, struct view points) {
    double x[SIZES], y[SIZES];
    size_t n = 0;
    for (const cJSON *c = view_first(points); c && n < SIZES; c = c->next) {
        double rate = view_item_number(c, "tokens_per_s_per_gpu");
        double gpus = view_item_number(c, "gpus");
        if (!(rate > 0) || !(gpus > 0))
            continue;
        x[n] = gpus;
        y[n++] = rate;
    }
    if (n < 2)
        return;
    plans_scaling_figure(
        p, &(struct plans_scaling){
               "The recommended plan on more nodes",
               arena_printf(
                   p->arena,
                   "With the same batch per GPU, %.0f GPUs reach %.0f %% of the tokens per second "
                   "and GPU of %.0f GPUs",
                   x[n - 1], 100 * y[n - 1] / y[0], x[0]),
               x, y, n});
}

#define WAYS 24

struct way_rows {
    const char *rows[WAYS], *ends[WAYS];
    double values[2 * WAYS]; // recommended, other
    size_t count;
};

static const char *way_end(struct view way) {
    char step[SHOW_TEXT], whole[SHOW_TEXT];
    double usd = view_number(way, "usd_per_billion_tokens"), days = view_number(way, "days");
    const char *text = arena_printf(way.arena, "%s per step, %s",
                                    show_format(step, "_s", view_number(way, "step_s")),
                                    show_format(whole, "_s", days * UNITS_DAY_S));
    return isnan(usd) ? text : arena_printf(way.arena, "%s, %.0f USD", text, usd);
}

static void add_way(struct way_rows *r, struct view way, bool best) {
    double rate = view_number(way, "tokens_per_s");
    const char *title = view_string(way, "title");
    r->rows[r->count] = title ? title : "way";
    r->ends[r->count] = rate > 0 ? way_end(way) : "no plan fits";
    r->values[2 * r->count + (best ? 0 : 1)] = rate > 0 ? rate / UNITS_KILO : 0;
    r->values[2 * r->count + (best ? 1 : 0)] = 0;
    r->count++;
}

static const char *ways_alt(struct view root, struct view fastest) {
    char text[SHOW_TEXT];
    const char *plan = view_string(fastest, "plan"), *title = view_string(fastest, "title");
    return arena_printf(
        root.arena,
        "The highest throughput has %.80s with %.80s: %s tokens per second. Beside each bar its "
        "step, the time of %s tokens and, where known, the price of 10\xe2\x81\xb9 tokens",
        title ? title : "a way", plan ? plan : "its best plan",
        show_format(text, "tokens_per_s", view_number(fastest, "tokens_per_s")), tokens_text(root));
}

// Throughput of each way; those that are not possible say so.
static void ways_figure(struct page *p, struct view root) {
    static const char *const names[] = {"recommended", "other ways"};
    static const enum plot_colour colours[] = {PLOT_BLUE, PLOT_LIGHT};
    struct view ways = view_find(root, "ways"), fastest = {.path = "$", .arena = root.arena};
    struct way_rows r = {.count = 0};
    double most = 0, best = view_number(root, "best_way");
    size_t i = 0;
    for (const cJSON *c = view_first(ways); c && i < WAYS; c = c->next, i++) {
        struct view way = view_member(ways, c, i);
        add_way(&r, way, (double)i == best);
        if (view_number(way, "tokens_per_s") > most) {
            most = view_number(way, "tokens_per_s");
            fastest = way;
        }
    }
    if (!(most > 0))
        return;
    struct plot *plot = plot_add(&p->plots, "ways", "Throughput of each way");
    plot->alt = ways_alt(root, fastest);
    chart_bars(plot, &(struct chart_bars){.x_label = "thousand tokens per second, all GPUs",
                                          .segments = names,
                                          .colours = colours,
                                          .segment_count = 2,
                                          .rows = r.rows,
                                          .row_count = r.count,
                                          .per_row = 1,
                                          .values = r.values,
                                          .ends = r.ends});
    page_figure(p, plot);
}

static void ways_table(struct page *p, struct view root) {
    const struct show_column columns[] = {
        {"title", "Way"},
        {"gpus", "GPUs"},
        {"plan", "Best plan"},
        {"step_s", "Step"},
        {"tokens_per_s", "Tokens/s, all GPUs"},
        {"days", arena_printf(p->arena, "Days for %s tokens", tokens_text(root))},
        {"usd_per_billion_tokens", "USD per 10\xe2\x81\xb9 tokens"},
        {"bound_by", "Bound by"},
        {"reason", "What it takes"}};
    double best = view_number(root, "best_way");
    if (view_count(view_find(root, "ways")))
        show_rows(&p->html, view_find(root, "ways"),
                  &(struct show_table){"Offload, more bandwidth or more GPUs", columns, 9, 40,
                                       best >= 0 ? (size_t)best + 1 : 0});
}

// A rate, for a network also as it is sold.
static void rate_cell(struct page *p, struct view row, const char *key) {
    const char *link =
        view_string(row, "link") ? view_string(row, "link") : view_string(row, "path");
    double rate = view_number(row, key);
    char text[32];
    html_raw(&p->html, "<td class=r>");
    show_value(&p->html, row, key);
    if (link && strcmp(link, "inter_node") == 0 && rate > 0)
        html_printf(&p->html, "<br><small>%s</small>", units_format_net(text, sizeof text, rate));
    html_raw(&p->html, "</td>");
}

static void break_even_table(struct page *p, struct view links) {
    struct html *h = &p->html;
    size_t i = 0;
    if (view_count(links) == 0)
        return;
    show_table_open(h, "Break-evens: the least rate that brings the step within 5 % of an infinite "
                       "one");
    html_raw(h, "<thead><tr><th scope=col>Link<th scope=col>Now<th scope=col>Enough<th scope=col>"
                "Sold as<th scope=col>Counted<th scope=col>Step now<th scope=col>Step at infinite "
                "rate<th scope=col>Why</tr></thead><tbody>\n");
    for (const cJSON *c = view_first(links); c && i < 40; c = c->next, i++) {
        struct view row = view_member(links, c, i);
        html_raw(h, "<tr><th scope=row>");
        show_value(h, row, "link");
        html_raw(h, "</th>");
        rate_cell(p, row, "current_bytes_per_s");
        rate_cell(p, row, "needed_bytes_per_s");
        rate_cell(p, row, "sold_bytes_per_s");
        html_raw(h, "<td>");
        show_value(h, row, "of");
        html_raw(h, "</td><td class=r>");
        show_value(h, row, "step_s");
        html_raw(h, "</td><td class=r>");
        show_value(h, row, "floor_step_s");
        html_raw(h, "</td><td>");
        show_value(h, row, "reason");
        html_raw(h, "</td></tr>\n");
    }
    html_raw(h, "</tbody>");
    show_table_close(h);
}

static void worth_table(struct page *p, struct view list) {
    struct html *h = &p->html;
    size_t i = 0;
    if (view_count(list) == 0)
        return;
    show_table_open(h, "What more bandwidth is worth");
    html_raw(h, "<thead><tr><th scope=col>Link<th scope=col>Now<th scope=col>Counted<th scope=col>"
                "10 % more saves, of the step</tr></thead><tbody>\n");
    for (const cJSON *c = view_first(list); c && i < 40; c = c->next, i++) {
        struct view row = view_member(list, c, i);
        html_raw(h, "<tr><th scope=row>");
        show_value(h, row, "path");
        html_raw(h, "</th>");
        rate_cell(p, row, "value_bytes_per_s");
        html_raw(h, "<td>");
        show_value(h, row, "of");
        html_raw(h, "</td><td class=r>");
        show_value(h, row, "gain_of_10_percent");
        html_raw(h, "</td></tr>\n");
    }
    html_raw(h, "</tbody>");
    show_table_close(h);
}

// Thresholds that hold for this model on this cluster.
static void thresholds(struct page *p, struct view root) {
    struct html *h = &p->html;
    static const struct {
        const char *key, *before, *after;
    } all[] = {{"hiding_tokens_per_gpu_per_micro_step", "The network hides behind compute from ",
                " tokens per GPU and micro-step."},
               {"offload_pays_tokens_per_step", "Offload costs less than 10 % of the step from ",
                " tokens per step."},
               {"gib_worth_s", "A GiB more on every GPU would save ", " per step."}};
    size_t said = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (isnan(view_number(root, all[i].key)))
            continue;
        html_raw(h, said++ ? "<li>" : "<ul><li>");
        html_raw(h, all[i].before);
        show_value(h, root, all[i].key);
        html_raw(h, all[i].after);
        html_raw(h, "</li>");
    }
    html_raw(h, said ? "</ul>\n" : "");
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
                                          "inputs",
                                          "tokens",
                                          "hiding_tokens_per_gpu_per_micro_step",
                                          "offload_pays_tokens_per_step",
                                          "gib_worth_s",
                                          NULL};
    static const char *const chosen[] = {"strategy",  "micro_batch", "grad_accum",
                                         "recompute", "loss",        NULL};
    struct plans s =
        plans_read(view_find(root, "plans"), view_number(root, "recommendation.plan_index"));
    struct view way = best_way(root);
    const char *kind = view_string(way, "kind"), *title = view_string(way, "plan");
    ways_figure(p, root);
    bandwidth_figure(p, root);
    scaling_figure(p, view_find(root, "scaling"));
    ways_table(p, root);
    break_even_table(p, view_find(root, "break_even"));
    worth_table(p, view_find(root, "sensitivities"));
    thresholds(p, root);
    if (s.count) {
        page_heading(p, "The plans as asked");
        plans_memory_figure(p, &s);
        plans_time_figure(p, &s);
        plans_volume_figure(p, &s);
        plans_table(p, &s, "Plans as asked");
    }
    page_heading(p, "What this rests on");
    origins_recipe(p, view_find(way, "recipe"), root,
                   &(struct recipe_of){title, kind && strcmp(kind, "as is") == 0 ? NULL : chosen});
    origins_assumed(p, view_find(root, "measure_first"));
    plans_nearest(p, &s);
    origins_inputs(p, view_find(root, "inputs"));
    show_rest(&p->html, root, handled);
}
