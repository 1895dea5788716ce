// SPDX-License-Identifier: Apache-2.0
// confirm and rehearse: predictions held against what ran here.
#include "axis.h"
#include "chart.h"
#include "pairs.h"
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

// Scatter of seconds for an array of pairs, `what` on its upright axis; nothing when it holds none.
static void seconds_figure(struct page *p, struct view array, const char *stem, const char *heading,
                           const char *what) {
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
                                        .y_label = arena_printf(p->arena, "%s (%s)", what, unit),
                                        .sets = &set,
                                        .set_count = 1});
}

static int first_bool(struct view root, const char *a, const char *b) {
    int v = view_bool(root, a);
    return v >= 0 ? v : view_bool(root, b);
}

static void say_pair(struct page *p, struct view root, const char *unit, const char *what) {
    struct html *h = &p->html;
    const char *planned = arena_printf(p->arena, "totals.planned_%s", unit);
    const char *measured = arena_printf(p->arena, "totals.measured_%s", unit);
    double ratio = view_number(root, measured) / view_number(root, planned);
    html_raw(h, what);
    show_value(h, root, measured);
    html_raw(h, " measured, ");
    show_value(h, root, planned);
    html_raw(h, " planned");
    if (isfinite(ratio) && fabs(ratio - 1) < 0.0005)
        html_raw(h, ", the same");
    else if (ratio > 0 && isfinite(ratio))
        html_printf(h, ", %s times as %s", pairs_times(ratio, p->arena),
                    strcmp(unit, "s") == 0 ? "long" : "many");
}

static void confirm_totals(struct page *p, struct view root) {
    struct html *h = &p->html;
    if (isnan(view_number(root, "totals.measured_bytes")))
        return;
    html_raw(h, "<p>");
    say_pair(p, root, "bytes", "Bytes sent by a rank: ");
    if (!isnan(view_number(root, "totals.planned_s")) &&
        !isnan(view_number(root, "totals.measured_s")))
        say_pair(p, root, "s", ". Time of all that ran: ");
    else
        html_raw(h, "; no time was planned for the hardware here");
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
    html_raw(h, ".</p>\n");
}

void page_confirm_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema",    "command", "model", "cluster",
                                          "transfers", "rows",    NULL};
    static const struct show_column columns[] = {{"phase", "Phase"},
                                                 {"kind", "Transfer"},
                                                 {"what", "Of"},
                                                 {"link", "Link"},
                                                 {"count", "Count"},
                                                 {"planned_bytes", "Bytes planned"},
                                                 {"run_planned_bytes", "Run as"},
                                                 {"measured_bytes", "Bytes measured"},
                                                 {"ratio_bytes", "Ratio of bytes"},
                                                 {"wire_bytes", "On the wire"},
                                                 {"planned_s", "Time planned"},
                                                 {"measured_s", "Time measured"},
                                                 {"ratio_s", "Ratio of times"},
                                                 {"status", "Status"},
                                                 {"reason", "Reason"}};
    enum { COLUMNS = sizeof columns / sizeof *columns };
    struct show_column told[COLUMNS];
    struct view rows = first_array(root, "transfers|rows");
    pair_figure(
        p, rows,
        &(struct pair_bars){"confirm-time", "Time of each transfer: planned above, measured below",
                            "time per step", "planned_s", "measured_s", "_s", "planned", NULL});
    pair_figure(p, rows,
                &(struct pair_bars){
                    "confirm-bytes", "Bytes of each transfer: planned above, measured below",
                    "sent per rank and step, as run", "run_planned_bytes|planned_bytes",
                    "measured_bytes", "_bytes", "planned", NULL});
    if (view_count(rows))
        show_rows(&p->html, rows,
                  &(struct show_table){"Planned and measured, transfer by transfer", told,
                                       show_told(rows, columns, COLUMNS, told), 200, 0});
    else
        html_raw(&p->html, "<p class=missing>The file lists no transfer.</p>\n");
    show_rest(&p->html, root, handled);
}

void page_rehearse_answer(struct page *p, struct view root) {
    struct html *h = &p->html;
    double ratio = view_number(root, "step.measured_s") / view_number(root, "step.simulated_s");
    html_raw(h, "<p class=headline>The simulated step was executed: ");
    show_value(h, root, "step.measured_s");
    html_raw(h, " measured, ");
    show_value(h, root, "step.simulated_s");
    html_raw(h, " simulated");
    if (ratio > 0)
        html_printf(h, ": %s times as long", pairs_times(ratio, p->arena));
    html_raw(h, ".</p>\n");
    if (view_number(root, "shrink") < 1) {
        html_raw(h, "<p>Bytes and durations were shrunk to ");
        show_value(h, root, "shrink");
        html_raw(h, " of the step's.</p>\n");
    }
    html_raw(
        h, "<p class=note>A rehearsal checks timing and overlap on this machine; it proves nothing "
           "about what a framework does.</p>\n");
}

enum { GANTT_STREAMS = 10 };

struct turns { // streams with work, each a row as simulated and a row as measured
    const char *streams[GANTT_STREAMS], *rows[2 * GANTT_STREAMS];
    size_t count;
};

static int turn_row(struct turns *t, const char *stream, struct arena *a) {
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->streams[i], stream) == 0)
            return (int)(2 * i);
    if (t->count == GANTT_STREAMS)
        return -1;
    t->streams[t->count] = stream;
    t->rows[2 * t->count] = arena_strdup(a, stream);
    t->rows[2 * t->count + 1] = "measured"; // and the colours say it
    return (int)(2 * t->count++);
}

// The simulated step above and the rehearsed one below, stream by stream.
static void rehearse_gantt(struct page *p, struct view root, struct view tasks) {
    static const enum plot_colour colours[] = {PLOT_LIGHT, PLOT_BLUE};
    static const char *const names[] = {"simulated", "measured"};
    static const char *const starts[] = {"simulated_start_s", "measured_start_s"};
    static const char *const lasts[] = {"simulated_s", "measured_s"};
    struct chart_task *parts = arena_array(p->arena, 2 * view_count(tasks) + 1, sizeof *parts);
    struct turns t = {.count = 0};
    double end = 0;
    size_t n = 0;
    for (const cJSON *c = view_first(tasks); c; c = c->next) {
        const char *stream = view_item_string(c, "stream");
        for (int k = 0; k < 2 && stream; k++) {
            double from = view_item_number(c, starts[k]), lasting = view_item_number(c, lasts[k]);
            int row = from >= 0 && lasting > 0 ? turn_row(&t, stream, p->arena) : -1;
            if (row < 0)
                continue;
            parts[n++] = (struct chart_task){from, from + lasting, row + k, colours[k]};
            end = fmax(end, from + lasting);
        }
    }
    if (n == 0)
        return;
    const char *unit;
    double scale = axis_seconds(end, &unit);
    for (size_t i = 0; i < n; i++) {
        parts[i].start /= scale;
        parts[i].end /= scale;
    }
    char text[2][SHOW_TEXT];
    struct plot *plot = plot_add(&p->plots, "rehearse-gantt",
                                 "The step as simulated and as it ran, stream by stream");
    plot->alt = arena_printf(p->arena, "The step was simulated with %s and took %s",
                             show_format(text[0], "_s", view_number(root, "step.simulated_s")),
                             show_format(text[1], "_s", view_number(root, "step.measured_s")));
    chart_gantt(plot, &(struct chart_gantt){.x_label = arena_printf(p->arena,
                                                                    "time since the step began "
                                                                    "(%s)",
                                                                    unit),
                                            .rows = t.rows,
                                            .row_count = 2 * t.count,
                                            .tasks = parts,
                                            .task_count = n,
                                            .colours = colours,
                                            .colour_names = names,
                                            .colour_count = 2,
                                            .end = end / scale});
    page_figure(p, plot);
}

static void rehearse_tables(struct page *p, struct view root, struct view tasks) {
    static const struct show_column streams[] = {{"name", "Stream"},
                                                 {"simulated_busy_s", "Busy, simulated"},
                                                 {"measured_busy_s", "Busy, measured"},
                                                 {"simulated_exposed_s", "Exposed, simulated"},
                                                 {"measured_exposed_s", "Exposed, measured"}};
    static const struct show_column columns[] = {{"id", "Task"},
                                                 {"kind", "Kind"},
                                                 {"stream", "Stream"},
                                                 {"phase", "Phase"},
                                                 {"unit", "Unit"},
                                                 {"simulated_s", "Simulated"},
                                                 {"measured_s", "Measured"},
                                                 {"simulated_start_s", "Starts, simulated"},
                                                 {"measured_start_s", "Starts, measured"}};
    struct view deviating = view_find(root, "deviating");
    if (view_count(view_find(root, "streams")))
        show_rows(&p->html, view_find(root, "streams"),
                  &(struct show_table){"Streams", streams, 5, 40, 0});
    if (view_count(deviating))
        show_rows(&p->html, deviating,
                  &(struct show_table){"Tasks furthest from the simulation", columns, 9, 20, 0});
    if (view_count(tasks) == 0)
        return;
    html_raw(&p->html, "<details><summary>Every task</summary>\n");
    show_rows(&p->html, tasks, &(struct show_table){"Tasks", columns, 9, 400, 0});
    html_raw(&p->html, "</details>\n");
}

void page_rehearse_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema",  "command", "model",     "cluster", "tasks",
                                          "streams", "note",    "deviating", NULL};
    struct view tasks = first_array(root, "tasks|deviations"), streams = view_find(root, "streams");
    rehearse_gantt(p, root, tasks);
    pair_figure(p, streams,
                &(struct pair_bars){"rehearse-streams",
                                    "Busy time of each stream: simulated above, measured below",
                                    "busy", "simulated_busy_s|busy_simulated_s",
                                    "measured_busy_s|busy_measured_s", "_s", "simulated", NULL});
    pair_figure(
        p, streams,
        &(struct pair_bars){"rehearse-exposed",
                            "Time of each stream with no kernel beside it: simulated above, "
                            "measured below",
                            "exposed", "simulated_exposed_s", "measured_exposed_s", "_s",
                            "simulated", NULL});
    seconds_figure(p, tasks, "rehearse", "Duration of each task: simulated against measured",
                   "simulated");
    if (view_number(root, "ranks") > 0) {
        html_raw(&p->html, "<p>Figures of the median of five turns, on rank 0 of ");
        show_value(&p->html, root, "ranks");
        html_raw(&p->html, ".</p>\n");
    }
    rehearse_tables(p, root, tasks);
    show_rest(&p->html, root, handled);
}
