// SPDX-License-Identifier: Apache-2.0
// validate: predictions held against measured runs.
#include "scatter.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

#define ROWS_SHOWN 500

#define SETS 8 // groups of scored rows, and what is not scored

// Pairs of one metric among rows[], by group.
struct pairs {
    struct scatter_points sets[SETS];
    double *measured[SETS], *predicted[SETS];
    size_t count;
};

static size_t set_of(struct pairs *out, const char *name, size_t room, struct arena *a) {
    size_t i = 0;
    while (i < out->count && strcmp(out->sets[i].name, name) != 0)
        i++;
    if (i < out->count || i == SETS)
        return i < SETS ? i : SETS - 1;
    out->measured[i] = arena_array(a, room, sizeof(double));
    out->predicted[i] = arena_array(a, room, sizeof(double));
    out->sets[i] = (struct scatter_points){out->predicted[i], out->measured[i], 0, name};
    return out->count++;
}

static struct pairs pairs_of(struct view rows, const char *metric, double scale) {
    struct pairs out = {.count = 0};
    size_t room = view_count(rows) + 1;
    for (int unscored = 0; unscored < 2; unscored++)
        for (const cJSON *c = view_first(rows); c; c = c->next) {
            const char *own = view_item_string(c, "metric"), *group = view_item_string(c, "group");
            const cJSON *scored = cJSON_GetObjectItemCaseSensitive(c, "scored");
            if (cJSON_IsFalse(scored) != unscored || (metric && (!own || strcmp(own, metric) != 0)))
                continue;
            const char *name = unscored ? "not scored"
                               : group  ? show_spaced(group, rows.arena)
                                        : "scored";
            size_t k = set_of(&out, name, room, rows.arena), at = out.sets[k].count++;
            out.measured[k][at] = view_item_number(c, "measured") / scale;
            out.predicted[k][at] = view_item_number(c, "predicted") / scale;
        }
    return out;
}

// How a metric is drawn and shown.
struct metric {
    const char *stem, *heading, *measured, *predicted, *key;
    double scale;
};

static struct metric metric_of(const char *name) {
    if (strstr(name, "mem") || strstr(name, "bytes"))
        return (struct metric){"validate-memory", "Memory: predicted against measured runs",
                               "measured (GiB)",  "predicted (GiB)",
                               "_bytes",          (double)UNITS_GIB};
    if (strstr(name, "bus") || strstr(name, "bandwidth"))
        return (struct metric){
            "validate-busbw",  "Collectives: predicted against measured bus bandwidth",
            "measured (GB/s)", "predicted (GB/s)",
            "_bytes_per_s",    UNITS_GIGA};
    if (strstr(name, "time") || strstr(name, "step"))
        return (struct metric){"validate-time",
                               "Step time: predicted against measured runs",
                               "measured (s)",
                               "predicted (s)",
                               "_s",
                               1};
    return (struct metric){"validate-other",
                           "Predicted against measured",
                           "measured (unit of the row)",
                           "predicted (unit of the row)",
                           "value",
                           1};
}

static void metric_figure(struct page *p, struct view rows, const char *name) {
    struct metric m = metric_of(name);
    struct pairs pairs = pairs_of(rows, name, m.scale);
    scatter_figure(p, &(struct scatter){.stem = m.stem,
                                        .heading = m.heading,
                                        .x_label = m.measured,
                                        .y_label = m.predicted,
                                        .sets = pairs.sets,
                                        .set_count = pairs.count});
}

static void score_table(struct page *p, struct view root) {
    static const char *const blocks[] = {"step_time", "memory", "collectives"};
    static const char *const names[] = {"Step time", "Memory", "Collectives"};
    static const char *const columns[] = {"n",       "mape",    "macro_mape", "median_ape",
                                          "p90_ape", "max_ape", "bias"};
    struct html *h = &p->html;
    show_table_open(h, "Error by metric");
    html_raw(
        h, "<thead><tr><th scope=col>Metric<th scope=col>Runs<th scope=col>Mean error<th scope=col>"
           "Mean over sources<th scope=col>Median<th scope=col>90th percentile<th scope=col>Largest"
           "<th scope=col>Bias<th scope=col>Inside the interval</tr></thead><tbody>\n");
    for (size_t i = 0; i < 3; i++) {
        struct view block = view_find(root, blocks[i]);
        if (!view_is_object(block))
            continue;
        html_printf(h, "<tr><th scope=row>%s</th>", names[i]);
        for (size_t k = 0; k < sizeof columns / sizeof *columns; k++) {
            html_raw(h, "<td>");
            show_value(h, block, columns[k]);
            html_raw(h, "</td>");
        }
        html_raw(h, "<td>");
        show_value_as(h, view_find(root, "coverage"), blocks[i], "coverage");
        html_raw(h, "</td></tr>\n");
    }
    html_raw(h, "</tbody>");
    show_table_close(h);
}

static void rows_table(struct page *p, struct view rows) {
    static const char *const cells[] = {"measured", "predicted", "low", "high"};
    struct html *h = &p->html;
    size_t i = 0;
    show_table_open(h, "Every run");
    html_raw(h,
             "<thead><tr><th scope=col>Run<th scope=col>Metric<th scope=col>Measured<th scope=col>"
             "Predicted<th scope=col>Low<th scope=col>High<th scope=col>Error<th scope=col>Scored"
             "<th scope=col>Why not</tr></thead><tbody>\n");
    for (const cJSON *c = view_first(rows); c && i < ROWS_SHOWN; c = c->next, i++) {
        struct view row = view_member(rows, c, i);
        const char *metric = view_string(row, "metric");
        struct metric m = metric_of(metric ? metric : "");
        html_raw(h, view_number(row, "ape") > 0.15 && view_bool(row, "scored") == 1
                        ? "<tr class=marked><th scope=row>"
                        : "<tr><th scope=row>");
        show_value(h, row, "id");
        html_raw(h, "</th><td>");
        show_value(h, row, "metric");
        for (size_t k = 0; k < sizeof cells / sizeof *cells; k++) {
            html_raw(h, "</td><td>");
            show_value_as(h, row, cells[k], m.key);
        }
        html_raw(h, "</td><td>");
        show_value(h, row, "ape");
        html_raw(h, "</td><td>");
        show_value(h, row, "scored");
        html_raw(h, "</td><td>");
        show_value(h, row, "reason");
        html_raw(h, "</td></tr>\n");
    }
    html_raw(h, "</tbody>");
    show_table_close(h);
    html_printf(h,
                "<p class=note>%zu of %zu rows; those stressed are scored and off by more than 15 "
                "%%.</p>\n",
                i, view_count(rows));
}

#define METRICS 6

static size_t metrics_of(struct view rows, const char *metrics[METRICS]) {
    size_t n = 0;
    for (const cJSON *c = view_first(rows); c; c = c->next) {
        const char *metric = view_item_string(c, "metric");
        size_t i = 0;
        if (!metric)
            continue;
        while (i < n && strcmp(metrics[i], metric) != 0)
            i++;
        if (i == n && n < METRICS)
            metrics[n++] = metric;
    }
    return n;
}

static void say_error(struct page *p, struct view root, const char *what, const char *words) {
    struct view block = view_find(root, what);
    struct html *h = &p->html;
    if (isnan(view_number(block, "mape")))
        return;
    html_raw(h, "<p class=headline>");
    html_text(h, words);
    html_raw(h, ": mean error ");
    show_value(h, block, "mape");
    html_raw(h, ", median ");
    show_value(h, block, "median_ape");
    html_raw(h, ", 90th percentile ");
    show_value(h, block, "p90_ape");
    html_raw(h, " over ");
    show_value(h, block, "n");
    html_raw(h, strcmp(what, "step_time") == 0 ? " measured data-parallel runs" : " measured runs");
    if (view_number(block, "n") < 5)
        html_raw(h, " (too few to claim accuracy)");
    html_raw(h, ".</p>\n");
}

void page_validate_answer(struct page *p, struct view root) {
    struct html *h = &p->html;
    say_error(p, root, "step_time", "Step time");
    say_error(p, root, "memory", "Memory");
    say_error(p, root, "collectives", "Collectives");
    if (!isnan(view_number(root, "fits.n"))) {
        html_raw(h, "<p>Fits: ");
        show_value(h, root, "fits.false_fit");
        html_raw(h, " false fits and ");
        show_value(h, root, "fits.false_oom");
        html_raw(h, " false out-of-memory verdicts in ");
        show_value(h, root, "fits.n");
        html_raw(h, " runs.</p>\n");
    }
}

void page_validate_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema", "command",     "step_time", "memory",   "fits",
                                          "rows",   "collectives", "coverage",  "by_group", NULL};
    static const struct show_column groups[] = {{"name", "Group"},
                                                {"by", "By"},
                                                {"metric", "Metric"},
                                                {"score.n", "Runs"},
                                                {"score.mape", "Mean error"},
                                                {"score.median_ape", "Median"},
                                                {"score.p90_ape", "90th percentile"},
                                                {"score.bias", "Bias"},
                                                {"claim", "Claim"}};
    struct view rows = view_find(root, "rows");
    const char *metrics[METRICS];
    size_t n = metrics_of(rows, metrics);
    for (size_t i = 0; i < n; i++)
        metric_figure(p, rows, metrics[i]);
    if (n == 0)
        html_raw(&p->html,
                 "<p class=missing>The file lists no rows, so there is no scatter to draw.</p>\n");
    score_table(p, root);
    if (view_count(view_find(root, "by_group")))
        show_rows(&p->html, view_find(root, "by_group"),
                  &(struct show_table){"Error by group (no claim is made below five runs)", groups,
                                       9, 80, 0});
    if (view_count(rows)) {
        html_raw(&p->html, "<details><summary>Every run</summary>\n");
        rows_table(p, rows);
        html_raw(&p->html, "</details>\n");
    }
    show_rest(&p->html, root, handled);
}
