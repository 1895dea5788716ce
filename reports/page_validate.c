// SPDX-License-Identifier: Apache-2.0
// validate, fit, rehearse and confirm: predictions held against measurements.
#include "axis.h"
#include "scatter.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

// Pairs of one metric among rows[]; scored and unscored apart.
struct pairs {
    double *measured[2], *predicted[2];
    size_t count[2];
};

static struct pairs pairs_of(struct view rows, const char *metric, double scale) {
    struct pairs out = {0};
    size_t n = view_count(rows) + 1;
    for (int k = 0; k < 2; k++) {
        out.measured[k] = arena_array(rows.arena, n, sizeof(double));
        out.predicted[k] = arena_array(rows.arena, n, sizeof(double));
    }
    for (const cJSON *c = view_first(rows); c; c = c->next) {
        const char *own = view_item_string(c, "metric");
        const cJSON *scored = cJSON_GetObjectItemCaseSensitive(c, "scored");
        int k = cJSON_IsFalse(scored) ? 1 : 0;
        if (metric && (!own || strcmp(own, metric) != 0))
            continue;
        out.measured[k][out.count[k]] = view_item_number(c, "measured") / scale;
        out.predicted[k][out.count[k]++] = view_item_number(c, "predicted") / scale;
    }
    return out;
}

static void metric_figure(struct page *p, struct view rows, const char *metric) {
    bool bytes = strstr(metric, "mem") != NULL || strstr(metric, "bytes") != NULL;
    bool time = strstr(metric, "time") != NULL || strstr(metric, "step") != NULL;
    struct pairs pairs = pairs_of(rows, metric, bytes ? (double)UNITS_GIB : 1);
    struct scatter_points sets[2] = {
        {pairs.predicted[0], pairs.measured[0], pairs.count[0], "scored"},
        {pairs.predicted[1], pairs.measured[1], pairs.count[1], "not scored"}};
    scatter_figure(
        p, &(struct scatter){.stem = bytes  ? "validate-memory"
                                     : time ? "validate-time"
                                            : "validate-other",
                             .heading = bytes  ? "Memory: predicted against measured runs"
                                        : time ? "Step time: predicted against measured runs"
                                               : "Predicted against measured",
                             .x_label = bytes  ? "measured (GiB)"
                                        : time ? "measured (s)"
                                               : "measured (unit of the row)",
                             .y_label = bytes  ? "predicted (GiB)"
                                        : time ? "predicted (s)"
                                               : "predicted (unit of the row)",
                             .sets = sets,
                             .set_count = pairs.count[1] ? 2 : 1});
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
    html_raw(h, " measured runs");
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
    static const char *const blocks[] = {"step_time", "memory", "collectives", "fits", "coverage"};
    static const char *const captions[] = {"Step time", "Memory", "Collectives", "Fits",
                                           "Interval coverage"};
    static const struct show_column columns[] = {{"id", "Run"},
                                                 {"metric", "Metric"},
                                                 {"source", "Source"},
                                                 {"measured", "Measured"},
                                                 {"predicted", "Predicted"},
                                                 {"ape", "Error"},
                                                 {"scored", "Scored"},
                                                 {"reason", "Reason"}};
    struct view rows = view_find(root, "rows");
    const char *metrics[METRICS];
    size_t n = metrics_of(rows, metrics);
    for (size_t i = 0; i < n; i++)
        metric_figure(p, rows, metrics[i]);
    if (n == 0)
        html_raw(&p->html,
                 "<p class=missing>The file lists no rows (validate writes them with --rows), so "
                 "there is no scatter to draw.</p>\n");
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        show_any(&p->html, view_find(root, blocks[i]), captions[i]);
    show_any(&p->html, view_find(root, "by_group"), "By group");
    if (view_count(rows))
        show_rows(&p->html, rows, &(struct show_table){"Every run", columns, 8, 400, 0});
    show_rest(&p->html, root, handled);
}

// First array of objects found under any of the names in `keys` ("a|b").
static struct view first_array(struct view root, const char *keys) {
    while (*keys) {
        char key[64];
        size_t length = strcspn(keys, "|");
        snprintf(key, sizeof key, "%.*s", (int)length, keys);
        struct view v = view_find(root, key);
        if (view_is_array(v) && cJSON_IsObject(view_first(v)))
            return v;
        keys += length + (keys[length] == '|');
    }
    return (struct view){.path = "$", .arena = root.arena};
}

#define PREDICTED_S "planned_s|predicted_s|simulated_s|expected_s|fitted_s|model_s"
#define MEASURED_S "measured_s|median_s|observed_s"

// Scatter of seconds for an array of pairs; nothing when it holds none.
static void seconds_figure(struct page *p, struct view array, const char *stem,
                           const char *heading) {
    double *predicted = scatter_column(array, PREDICTED_S);
    double *measured = scatter_column(array, MEASURED_S);
    size_t n = view_count(array), known = 0;
    double most = 0;
    const char *unit;
    for (size_t i = 0; i < n; i++) {
        known += measured[i] > 0 && predicted[i] > 0;
        most = fmax(most, fmax(measured[i], predicted[i]));
    }
    if (known == 0)
        return;
    double scale = axis_seconds(most, &unit);
    for (size_t i = 0; i < n; i++) {
        predicted[i] /= scale;
        measured[i] /= scale;
    }
    struct scatter_points set = {predicted, measured, n, "transfers"};
    scatter_figure(p, &(struct scatter){.stem = stem,
                                        .heading = heading,
                                        .x_label = arena_printf(p->arena, "measured (%s)", unit),
                                        .y_label = arena_printf(p->arena, "predicted (%s)", unit),
                                        .sets = &set,
                                        .set_count = 1});
}

static int first_bool(struct view root, const char *a, const char *b) {
    int v = view_bool(root, a);
    return v >= 0 ? v : view_bool(root, b);
}

void page_confirm_answer(struct page *p, struct view root) {
    struct html *h = &p->html;
    int stands = first_bool(root, "stands", "recommendation.stands");
    const char *reason = view_string(root, "reason");
    html_raw(h, "<p class=headline>");
    if (stands >= 0) {
        page_badge(p, stands ? "yes" : "no");
        html_raw(h, stands ? " The advice stands after running the plan's own transfers."
                           : " The advice does not stand: the transfers ran differently.");
    } else {
        html_raw(h,
                 "The plan's transfers were run; the file does not say whether the advice stands.");
    }
    html_raw(h, "</p>\n<p>");
    html_user(h, reason ? reason : view_string(root, "recommendation.reason"));
    html_raw(h, "</p>\n");
}

void page_confirm_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema",    "command", "model", "cluster",
                                          "transfers", "rows",    NULL};
    struct view rows = first_array(root, "transfers|rows");
    seconds_figure(p, rows, "confirm", "The plan's transfers: measured against planned");
    if (view_count(rows))
        show_any(&p->html, rows, "Planned and measured, transfer by transfer");
    else
        html_raw(&p->html, "<p class=missing>The file lists no transfer.</p>\n");
    show_rest(&p->html, root, handled);
}

void page_fit_answer(struct page *p, struct view root) {
    struct html *h = &p->html;
    struct view fits = first_array(root, "fits|coefficients|results");
    html_printf(h, "<p class=headline>%zu laws fitted to measurements", view_count(fits));
    if (view_string(root, "name")) {
        html_raw(h, " of ");
        html_user(h, view_string(root, "name"));
    }
    html_raw(h, ".</p>\n");
    if (view_count(fits) == 0)
        html_raw(h, "<p class=note>Nothing in this file was fitted.</p>\n");
}

void page_fit_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema", "command", "residuals", "fits", "points", NULL};
    struct view residuals = first_array(root, "residuals|points");
    seconds_figure(p, residuals, "fit", "The fit: measured against fitted");
    if (view_count(residuals))
        show_any(&p->html, residuals, "Residuals");
    show_any(&p->html, first_array(root, "fits|coefficients"), "Fitted coefficients");
    show_rest(&p->html, root, handled);
}

void page_rehearse_answer(struct page *p, struct view root) {
    struct html *h = &p->html;
    html_raw(h, "<p class=headline>The simulated step was executed: ");
    const char *measured[] = {"step.measured_s", "measured_step_s", "measured.step_s",
                              "measured_s"};
    const char *simulated[] = {"step.simulated_s", "simulated_step_s", "simulated.step_s",
                               "simulated_s"};
    for (size_t i = 0; i < 4; i++)
        if (!isnan(view_number(root, measured[i])) || i == 3) {
            show_value(h, root, measured[i]);
            html_raw(h, " measured, ");
            show_value(h, root, simulated[i]);
            html_raw(h, " simulated.</p>\n");
            break;
        }
    html_raw(
        h, "<p class=note>A rehearsal checks timing and overlap on this machine; it proves nothing "
           "about what a framework does.</p>\n");
}

void page_rehearse_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema", "command", "model", "cluster", "tasks", NULL};
    struct view tasks = first_array(root, "tasks|deviations");
    seconds_figure(p, tasks, "rehearse", "Tasks: measured against simulated");
    if (view_count(tasks))
        show_any(&p->html, tasks, "Tasks");
    show_rest(&p->html, root, handled);
}
