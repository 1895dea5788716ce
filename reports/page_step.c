// SPDX-License-Identifier: Apache-2.0
// One simulated step: time, waits, the streams as a Gantt chart, memory over the step.
#include "chart.h"
#include "page.h"
#include "pairs.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

#define STREAMS 24

struct streams {
    const char *names[STREAMS];
    size_t count;
};

static int stream_row(struct streams *s, const char *name) {
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->names[i], name) == 0)
            return (int)i;
    if (s->count == STREAMS)
        return -1;
    s->names[s->count] = name;
    return (int)s->count++;
}

static double step_seconds(struct view root) {
    double t = view_number(root, "time.step_s");
    return isnan(t) ? view_number(root, "step_s") : t;
}

void page_step_answer(struct page *p, struct view root) {
    struct html *h = &p->html;
    const char *strategy = view_string(root, "strategy"), *bound = view_string(root, "bound_by");
    struct view waits = view_find(root, "waits");
    html_raw(h, "<p class=headline>");
    html_user(h, strategy ? strategy : "The step");
    html_raw(h, ": one optimizer step takes ");
    if (isnan(view_number(root, "time.step_s")))
        show_value(h, root, "step_s");
    else
        show_value(h, root, "time.step_s");
    if (!isnan(view_number(root, "time.step_low_s"))) {
        html_raw(h, " (");
        show_value(h, root, "time.step_low_s");
        html_raw(h, " to ");
        show_value(h, root, "time.step_high_s");
        html_raw(h, ")");
    }
    if (bound) {
        html_raw(h, ", bound by ");
        html_user(h, bound);
    }
    html_raw(h, ".</p>\n");
    if (view_count(waits)) {
        html_raw(h, "<p>It waits: ");
        show_value(h, view_member(waits, view_first(waits), 0), "text");
        html_raw(h, ".</p>\n");
    }
}

static void waits_list(struct page *p, struct view root) {
    struct html *h = &p->html;
    struct view waits = view_find(root, "waits");
    size_t i = 0;
    page_heading(p, "What the step waits for");
    if (view_count(waits) == 0) {
        html_raw(h, "<p>The file states no wait.</p>\n");
        return;
    }
    html_raw(h, "<ul>");
    for (const cJSON *c = view_first(waits); c && i < 20; c = c->next, i++) {
        struct view wait = view_member(waits, c, i);
        html_raw(h, "<li>");
        show_value(h, wait, "text");
        if (!isnan(view_number(wait, "seconds_s"))) {
            html_raw(h, ": ");
            show_value(h, wait, "seconds_s");
        }
        html_raw(h, "</li>");
    }
    html_raw(h, "</ul>\n");
}

static double exposed_seconds(const cJSON *task, double duration) {
    double seconds = view_item_number(task, "exposed_s");
    const cJSON *flag = cJSON_GetObjectItemCaseSensitive(task, "exposed");
    if (!isnan(seconds))
        return fmin(seconds, duration);
    if (cJSON_IsNumber(flag))
        return fmin(fmax(flag->valuedouble, 0), duration);
    return cJSON_IsTrue(flag) ? duration : 0;
}

static bool is_compute(const char *stream) {
    return strstr(stream, "comp") != NULL || strstr(stream, "default") != NULL;
}

// A task as one or two rectangles: the hidden part, then the part that others wait for.
// What runs after the last kernel (`idle_s` on) hides behind nothing.
static size_t task_parts(const cJSON *c, struct streams *s, double scale, double idle_s,
                         struct chart_task out[2]) {
    double start = view_item_number(c, "start_s"), end = view_item_number(c, "end_s");
    const char *stream = view_item_string(c, "stream");
    if (isnan(start) || isnan(end) || end <= start)
        return 0;
    int row = stream_row(s, stream ? stream : "stream");
    if (row < 0)
        return 0;
    bool kernels = is_compute(s->names[row]);
    double exposed = exposed_seconds(c, end - start);
    if (!kernels && end > idle_s)
        exposed = fmax(exposed, end - fmax(start, idle_s));
    double split = end - exposed;
    enum plot_colour colour = kernels ? PLOT_BLUE : PLOT_SKY;
    size_t n = 0;
    if (split > start)
        out[n++] = (struct chart_task){start / scale, split / scale, row, colour};
    if (exposed > 0)
        out[n++] = (struct chart_task){split / scale, end / scale, row, PLOT_VERMILLION};
    return n;
}

static size_t read_phases(struct view root, double scale, struct chart_mark *out, size_t limit) {
    struct view phases = view_find(root, "phases");
    size_t n = 0;
    for (const cJSON *c = view_first(phases); c && n < limit; c = c->next) {
        double start = view_item_number(c, "start_s"), end = view_item_number(c, "end_s");
        const char *name = view_item_string(c, "name");
        if (!isnan(start) && !isnan(end) && end > start)
            out[n++] = (struct chart_mark){start / scale, end / scale, name ? name : ""};
    }
    return n;
}

static double last_end(struct view tasks, bool kernels) {
    double end = 0;
    for (const cJSON *c = view_first(tasks); c; c = c->next) {
        const char *stream = view_item_string(c, "stream");
        if (!kernels || (stream && is_compute(stream)))
            end = fmax(end, view_item_number(c, "end_s"));
    }
    return end;
}

static const char *gantt_alt(struct page *p, struct view root) {
    struct view waits = view_find(root, "waits");
    const char *wait = view_count(waits) ? view_item_string(view_first(waits), "text") : NULL;
    char step[SHOW_TEXT], exposed[SHOW_TEXT];
    return arena_printf(
        p->arena, "The step of %s as its streams run it; %s of communication is exposed%s%.200s",
        show_format(step, "_s", step_seconds(root)),
        show_format(exposed, "_s", view_number(root, "time.exposed_comm_s")), wait ? "; " : "",
        wait ? wait : "");
}

static const char *time_label(const char *what, const char *unit, struct arena *a) {
    return arena_printf(a, "%s (%s)", what, unit);
}

static bool has_tasks(struct view tasks, const char *stream) {
    for (const cJSON *c = view_first(tasks); c && stream; c = c->next) {
        const char *own = view_item_string(c, "stream");
        if (own && strcmp(own, stream) == 0)
            return true;
    }
    return false;
}

static void gantt(struct page *p, struct view root) {
    static const enum plot_colour colours[] = {PLOT_BLUE, PLOT_SKY, PLOT_VERMILLION};
    static const char *const names[] = {"compute", "hidden behind compute",
                                        "exposed: the step waits"};
    struct view tasks = view_find(root, "tasks");
    struct streams s = {.count = 0};
    struct chart_mark phases[16];
    const char *unit;
    size_t count = view_count(tasks), n = 0;
    double scale = axis_seconds(last_end(tasks, false), &unit);
    double idle_s = last_end(tasks, true) > 0 ? last_end(tasks, true) : INFINITY;
    struct view streams = view_find(root, "streams");
    struct chart_task *parts = arena_array(p->arena, 2 * count + 1, sizeof *parts);
    for (const cJSON *c = view_first(streams); c; c = c->next)
        if (has_tasks(tasks, view_item_string(c, "name")))
            stream_row(&s, view_item_string(c, "name"));
    for (const cJSON *c = view_first(tasks); c; c = c->next)
        n += task_parts(c, &s, scale, idle_s, parts + n);
    struct plot *plot = plot_add(&p->plots, "gantt", "The step, stream by stream");
    plot->alt = gantt_alt(p, root);
    chart_gantt(plot, &(struct chart_gantt){
                          .x_label = time_label("time since the step began", unit, p->arena),
                          .rows = s.names,
                          .row_count = s.count,
                          .tasks = parts,
                          .task_count = n,
                          .colours = colours,
                          .colour_names = names,
                          .colour_count = 3,
                          .phases = phases,
                          .phase_count = read_phases(root, scale, phases, 16),
                          .end = last_end(tasks, false) / scale});
    page_figure(p, plot);
}

static const char *memory_alt(struct page *p, struct view root, double peak, double at) {
    char text[SHOW_TEXT], when[SHOW_TEXT];
    double stated = view_number(root, "peak_bytes");
    const char *said = arena_printf(p->arena, "Memory in use peaks at %s, %s into the step",
                                    show_format(text, "_bytes", isnan(stated) ? peak : stated),
                                    show_format(when, "_s", at));
    double planned = view_number(root, "planned_allocated_peak_bytes");
    if (isnan(planned))
        return said;
    return arena_printf(p->arena,
                        "%s. Planned: %s by the allocator's count, which gives a block up when the "
                        "host lets go of it; here it is in use until the GPU is done with it",
                        said, show_format(text, "_bytes", planned));
}

static void memory_over_time(struct page *p, struct view root) {
    struct view points = view_find(root, "memory_over_time");
    size_t count = view_count(points), n = 0;
    double *x = arena_array(p->arena, 2 * count + 1, sizeof *x);
    double *y = arena_array(p->arena, 2 * count + 1, sizeof *y);
    double end = 0, peak = NAN, at = NAN;
    const char *unit;
    if (count == 0) {
        html_raw(&p->html, "<p class=missing>The file does not state memory over the step.</p>\n");
        return;
    }
    for (const cJSON *c = view_first(points); c; c = c->next)
        end = fmax(end, view_item_number(c, "time_s"));
    double scale = axis_seconds(end, &unit);
    for (const cJSON *c = view_first(points); c; c = c->next) {
        double t = view_item_number(c, "time_s"), bytes = view_item_number(c, "allocated_bytes");
        if (isnan(peak) || bytes > peak) {
            peak = bytes;
            at = t;
        }
        if (n > 0) { // a step: the level holds until the next change
            x[n] = t / scale;
            y[n] = y[n - 1];
            n++;
        }
        x[n] = t / scale;
        y[n++] = bytes / (double)UNITS_GIB;
    }
    struct chart_series line = {"", CHART_LINE, PLOT_BLUE, x, y, NULL, NULL, n};
    char text[SHOW_TEXT];
    show_format(text, "_bytes", peak);
    struct chart_mark mark = {at / scale, peak / (double)UNITS_GIB, text};
    struct plot *plot = plot_add(&p->plots, "memory-over-time", "Memory over the step");
    plot->alt = memory_alt(p, root, peak, at);
    chart_xy(plot, &(struct chart_xy){
                       .x = {.label = time_label("time since the step began", unit, p->arena),
                             .from_zero = true},
                       .y = {.label = "in use (GiB per GPU)", .from_zero = true},
                       .series = &line,
                       .series_count = 1,
                       .marks = &mark,
                       .mark_count = 1});
    page_figure(p, plot);
}

static void time_table(struct page *p, struct view time) {
    static const struct show_column rows[] = {{"step_s", "One optimizer step"},
                                              {"step_low_s", "at the least"},
                                              {"step_high_s", "at the most"},
                                              {"forward_s", "Forward"},
                                              {"backward_s", "Backward"},
                                              {"optimizer_s", "Optimizer"},
                                              {"compute_s", "Kernels run for"},
                                              {"exposed_comm_s", "Exposed communication"},
                                              {"exposed_offload_s", "Exposed offload"},
                                              {"host_issue_s", "Waiting for the host's launches"},
                                              {"bubble_s", "Waiting for other pipeline stages"},
                                              {"tokens_per_s_per_gpu", "Tokens per second and GPU"},
                                              {"mfu", "Model FLOPs utilization"},
                                              {"hfu", "the same with recomputation"},
                                              {"peak_flop_per_s", "Peak of the GPU for this type"},
                                              {"reason", "Why there is no time"}};
    if (!view_is_object(time))
        return;
    show_table_open(&p->html, "Time");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!view_is_missing(view_find(time, rows[i].key)))
            show_pair(&p->html, rows[i].heading, time, rows[i].key);
    show_table_close(&p->html);
}

static void nearest_table(struct page *p, struct view nearest) {
    static const struct show_column rows[] = {{"id", "Run"},
                                              {"source", "Published in"},
                                              {"gpu", "GPU"},
                                              {"gpus", "GPUs"},
                                              {"framework", "Framework"},
                                              {"strategy", "Strategy"},
                                              {"parameters", "Parameters"},
                                              {"tokens_per_gpu", "Tokens per GPU and step"},
                                              {"differs", "How it differs from this step"},
                                              {"measured_s", "Step, measured"},
                                              {"predicted_s", "Step, predicted"},
                                              {"error", "Error of the prediction"},
                                              {"group_n", "Runs of the same GPU and strategy"},
                                              {"group_error", "Their mean absolute error"}};
    if (!view_is_object(nearest))
        return;
    show_table_open(&p->html,
                    "The measured run nearest to this step, and how far off it is predicted");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        show_pair(&p->html, rows[i].heading, nearest, rows[i].key);
    show_table_close(&p->html);
}

// What a trace or a snapshot of the real run says, beside what was simulated.
static void comparison(struct page *p, struct view rows, const struct pair_bars *bars,
                       const char *caption) {
    struct html *h = &p->html;
    size_t i = 0;
    if (view_count(rows) == 0)
        return;
    pair_figure(p, rows, bars);
    show_table_open(h, caption);
    html_raw(h, "<thead><tr><th scope=col>What<th scope=col>Simulated<th scope=col>Measured<th "
                "scope=col>Measured over simulated</tr></thead><tbody>\n");
    for (const cJSON *c = view_first(rows); c && i < 60; c = c->next, i++) {
        struct view row = view_member(rows, c, i);
        const char *unit = view_string(row, "unit");
        const char *key = arena_printf(p->arena, "_%.16s", unit ? unit : "");
        html_raw(h, "<tr><th scope=row>");
        show_value(h, row, "name");
        html_raw(h, "</th><td>");
        show_value_as(h, row, "predicted", key);
        html_raw(h, "</td><td>");
        show_value_as(h, row, "measured", key);
        html_raw(h, "</td><td>");
        show_value(h, row, "ratio");
        html_raw(h, "</td></tr>\n");
    }
    html_raw(h, "</tbody>");
    show_table_close(h);
}

void page_step_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema",
                                          "command",
                                          "model",
                                          "cluster",
                                          "strategy",
                                          "waits",
                                          "tasks",
                                          "bound_by",
                                          "memory_over_time",
                                          "streams",
                                          "phases",
                                          "time",
                                          "nearest_measured",
                                          "planned_allocated_peak_bytes",
                                          "planned_reserved_bytes",
                                          NULL};
    static const struct show_column streams[] = {
        {"name", "Stream"}, {"busy_s", "Busy"}, {"exposed_s", "Exposed: others wait for it"}};
    static const struct show_column phases[] = {
        {"name", "Phase"}, {"start_s", "Starts"}, {"end_s", "Ends"}};
    gantt(p, root);
    waits_list(p, root);
    memory_over_time(p, root);
    comparison(p, view_find(root, "profile.comparison"),
               &(struct pair_bars){"step-trace", "The step beside its profiler trace",
                                   "time of a step", "predicted", "measured", "_s", "simulated",
                                   .only = "s"},
               "Simulated and traced");
    comparison(p, view_find(root, "snapshot.comparison"),
               &(struct pair_bars){"step-snapshot", "Memory beside the allocator's snapshot",
                                   "allocated per GPU", "predicted", "measured", "_bytes",
                                   "simulated", .only = "bytes"},
               "Simulated and recorded memory");
    if (view_count(view_find(root, "streams")))
        show_rows(&p->html, view_find(root, "streams"),
                  &(struct show_table){"Streams", streams, 3, 40, 0});
    if (view_count(view_find(root, "phases")))
        show_rows(&p->html, view_find(root, "phases"),
                  &(struct show_table){"Phases", phases, 3, 40, 0});
    time_table(p, view_find(root, "time"));
    nearest_table(p, view_find(root, "nearest_measured"));
    show_rest(&p->html, root, handled);
}
