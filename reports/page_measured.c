// SPDX-License-Identifier: Apache-2.0
// confirm, fit and rehearse: predictions held against what ran here.
#include "axis.h"
#include "chart.h"
#include "scatter.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

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
    struct scatter_points set = {predicted, measured, n, "measured here"};
    scatter_figure(p, &(struct scatter){.stem = stem,
                                        .heading = heading,
                                        .x_label = arena_printf(p->arena, "measured (%s)", unit),
                                        .y_label = arena_printf(p->arena, "predicted (%s)", unit),
                                        .sets = &set,
                                        .set_count = 1});
}

#define BARS_SHOWN 16

struct pair_bars {
    const char *stem, *heading, *x_label; // constants
    const char *planned, *measured;       // keys
    double scale;
    const char *unit;  // key whose unit the ends are shown in
    const char *first; // name of the upper bar
};

static const char *transfer_name(const cJSON *c, struct arena *a) {
    const char *phase = view_item_string(c, "phase"), *kind = view_item_string(c, "kind");
    const char *what = view_item_string(c, "what"), *name = view_item_string(c, "name");
    if (name && !kind)
        return arena_printf(a, "%.60s", name);
    return arena_printf(a, "%.16s %.24s %.24s", phase ? phase : "", kind ? kind : "transfer",
                        what ? what : "");
}

// Planned above, measured below, per transfer.
static void pair_figure(struct page *p, struct view rows, const struct pair_bars *b) {
    const char *const names[] = {b->first, "measured"};
    static const enum plot_colour colours[] = {PLOT_LIGHT, PLOT_BLUE};
    const char *labels[BARS_SHOWN], *ends[2 * BARS_SHOWN];
    double values[4 * BARS_SHOWN] = {0}, low = INFINITY, high = 0;
    char least[SHOW_TEXT], most[SHOW_TEXT];
    size_t n = 0;
    for (const cJSON *c = view_first(rows); c && n < BARS_SHOWN; c = c->next) {
        char text[SHOW_TEXT], times[SHOW_TEXT];
        double planned = scatter_number(c, b->planned), measured = scatter_number(c, b->measured);
        if (!(planned > 0) || !(measured > 0))
            continue;
        labels[n] = transfer_name(c, p->arena);
        values[4 * n] = planned / b->scale;
        values[4 * n + 3] = measured / b->scale;
        ends[2 * n] = arena_strdup(p->arena, show_format(text, b->unit, planned));
        ends[2 * n + 1] =
            arena_printf(p->arena, "%s (%s\xc3\x97)", show_format(text, b->unit, measured),
                         show_format(times, "ratio", measured / planned));
        low = fmin(low, measured / planned);
        high = fmax(high, measured / planned);
        n++;
    }
    if (n == 0)
        return;
    struct plot *plot = plot_add(&p->plots, b->stem, b->heading);
    show_format(least, "ratio", low);
    show_format(most, "ratio", high);
    plot->alt = strcmp(least, most) == 0
                    ? arena_printf(p->arena, "Measured is %s times %s in %s", least, b->first,
                                   n == 1 ? "the only row" : "every row")
                    : arena_printf(p->arena, "Measured is %s to %s times %s, over %zu rows", least,
                                   most, b->first, n);
    chart_bars(plot, &(struct chart_bars){.x_label = b->x_label,
                                          .segments = names,
                                          .colours = colours,
                                          .segment_count = 2,
                                          .rows = labels,
                                          .row_count = n,
                                          .per_row = 2,
                                          .values = values,
                                          .ends = ends});
    page_figure(p, plot);
}

static int first_bool(struct view root, const char *a, const char *b) {
    int v = view_bool(root, a);
    return v >= 0 ? v : view_bool(root, b);
}

static void confirm_totals(struct page *p, struct view root) {
    struct html *h = &p->html;
    if (isnan(view_number(root, "totals.measured_bytes")))
        return;
    html_raw(h, "<p>Bytes sent: ");
    show_value(h, root, "totals.measured_bytes");
    html_raw(h, " of ");
    show_value(h, root, "totals.planned_bytes");
    html_raw(h, " planned, ratio ");
    show_value(h, root, "totals.ratio_bytes");
    if (!isnan(view_number(root, "totals.ratio_s"))) {
        html_raw(h, "; time: ");
        show_value(h, root, "totals.measured_s");
        html_raw(h, " of ");
        show_value(h, root, "totals.planned_s");
        html_raw(h, ", ratio ");
        show_value(h, root, "totals.ratio_s");
    } else {
        html_raw(h, "; no time was planned for the hardware here");
    }
    html_raw(h, ".");
    if (view_number(root, "scale") < 1) {
        html_raw(h, " Sizes were scaled to ");
        show_value(h, root, "scale");
        html_raw(h, " of the plan's.");
    }
    html_raw(h, "</p>\n");
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
        html_raw(h, "The plan's own transfers were run here.");
    }
    html_raw(h, "</p>\n");
    confirm_totals(p, root);
    html_raw(h, "<p>");
    html_user(h, reason ? reason : view_string(root, "recommendation.reason"));
    html_raw(h, "</p>\n");
}

void page_confirm_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema",    "command", "model", "cluster",
                                          "transfers", "rows",    NULL};
    static const struct show_column columns[] = {{"phase", "Phase"},
                                                 {"kind", "Transfer"},
                                                 {"what", "Of"},
                                                 {"link", "Link"},
                                                 {"count", "Count"},
                                                 {"planned_bytes", "Planned"},
                                                 {"run_planned_bytes", "Run as"},
                                                 {"measured_bytes", "Measured"},
                                                 {"ratio_bytes", "Ratio"},
                                                 {"wire_bytes", "On the wire"},
                                                 {"planned_s", "Planned"},
                                                 {"measured_s", "Measured"},
                                                 {"ratio_s", "Ratio"},
                                                 {"status", "Status"},
                                                 {"reason", "Reason"}};
    struct view rows = first_array(root, "transfers|rows");
    pair_figure(p, rows,
                &(struct pair_bars){"confirm-time",
                                    "Time of each transfer: planned above, measured below",
                                    "milliseconds per step", "planned_s", "measured_s", UNITS_MILLI,
                                    "_s", "planned"});
    pair_figure(p, rows,
                &(struct pair_bars){"confirm-bytes",
                                    "Bytes of each transfer: planned above, measured below",
                                    "MiB sent per rank, as run", "run_planned_bytes|planned_bytes",
                                    "measured_bytes", (double)UNITS_MIB, "_bytes", "planned"});
    if (view_count(rows))
        show_rows(&p->html, rows,
                  &(struct show_table){"Planned and measured, transfer by transfer", columns, 15,
                                       200, 0});
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
    static const char *const handled[] = {"schema",  "command", "model",     "cluster", "tasks",
                                          "streams", "note",    "deviating", NULL};
    struct view tasks = first_array(root, "tasks|deviations"), streams = view_find(root, "streams");
    pair_figure(p, streams,
                &(struct pair_bars){"rehearse-streams",
                                    "Busy time of each stream: simulated above, measured below",
                                    "seconds busy", "simulated_busy_s|busy_simulated_s",
                                    "measured_busy_s|busy_measured_s", 1, "_s", "simulated"});
    pair_figure(
        p, streams,
        &(struct pair_bars){"rehearse-exposed",
                            "Time of each stream with no kernel beside it: simulated above, "
                            "measured below",
                            "seconds exposed", "simulated_exposed_s", "measured_exposed_s", 1, "_s",
                            "simulated"});
    seconds_figure(p, tasks, "rehearse", "Tasks: measured against simulated");
    if (view_count(streams))
        show_any(&p->html, streams, "Streams");
    if (view_count(view_find(root, "deviating")))
        show_any(&p->html, view_find(root, "deviating"), "Tasks furthest from the simulation");
    if (view_count(tasks))
        show_any(&p->html, tasks, "Tasks");
    show_rest(&p->html, root, handled);
}
