// SPDX-License-Identifier: Apache-2.0
#include "chart.h"
#include "plans.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

#define CLASSES 9

static const char *const class_keys[CLASSES] = {
    "params_bytes", "grads_bytes",       "optimizer_bytes", "master_bytes",        "gather_bytes",
    "bucket_bytes", "activations_bytes", "logits_bytes",    "step_transient_bytes"};
static const char *const class_names[CLASSES] = {"parameters",  "gradients", "optimizer",
                                                 "master",      "gathered",  "buckets",
                                                 "activations", "logits",    "step transient"};
static const enum plot_colour class_colours[CLASSES] = {PLOT_BLUE,   PLOT_VERMILLION, PLOT_GREEN,
                                                        PLOT_ORANGE, PLOT_SKY,        PLOT_YELLOW,
                                                        PLOT_PURPLE, PLOT_LIGHT,      PLOT_GREY};

static double gib(double bytes) {
    return bytes / (double)UNITS_GIB;
}

static const char *phase_name(struct view phase) {
    const char *name = view_string(phase, "phase");
    return name ? name : view_string(phase, "name");
}

static struct view phase_named(struct view plan, const char *name) {
    struct view phases = view_find(plan, "memory.phases");
    size_t i = 0;
    for (const cJSON *c = view_first(phases); c && name; c = c->next, i++) {
        struct view phase = view_member(phases, c, i);
        const char *own = phase_name(phase);
        if (own && strcmp(own, name) == 0)
            return phase;
    }
    return (struct view){.path = "$", .arena = plan.arena};
}

// The classes at the peak, in GiB; each class's own maximum when the phases are not stated.
static void peak_classes(struct view plan, double *out) {
    struct view phase = phase_named(plan, view_string(plan, "memory.peak_phase"));
    struct view from = phase.item ? phase : view_find(plan, "memory");
    for (size_t k = 0; k < CLASSES; k++)
        out[k] = gib(view_number(from, class_keys[k]));
}

static const char *text_of(struct view plan, const char *key, double v) {
    char text[SHOW_TEXT];
    return arena_strdup(plan.arena, show_format(text, key, v));
}

static const char *capacity_text(struct view plan) {
    return arena_printf(plan.arena, "capacity %s",
                        text_of(plan, "_bytes", view_number(plan, "memory.capacity_bytes")));
}

struct rows { // arrays of one bar chart, in the page's arena
    const char **labels, **ends;
    double *values, *low, *high, *limits;
};

static struct rows rows_create(struct arena *a, size_t bars, size_t segments) {
    return (struct rows){.labels = arena_array(a, bars, sizeof(char *)),
                         .ends = arena_array(a, bars, sizeof(char *)),
                         .values = arena_array(a, bars * segments, sizeof(double)),
                         .low = arena_array(a, bars, sizeof(double)),
                         .high = arena_array(a, bars, sizeof(double)),
                         .limits = arena_array(a, bars, sizeof(double))};
}

static void missing(struct page *p, const char *text) {
    html_raw(&p->html, "<p class=missing>");
    html_text(&p->html, text);
    html_raw(&p->html, "</p>\n");
}

// Names of pictures leave out a title that all plans share, so that the caption says it.
static const char *with_shared(const struct plans *s, const char *alt) {
    return s->shared ? arena_printf(s->items[0].arena, "%s. All plans are %.80s", alt, s->shared)
                     : alt;
}

static const char *memory_alt(struct arena *a, const struct plans *s, const size_t *picked,
                              size_t n) {
    size_t fit = 0, least = picked[0];
    double capacity = view_number(s->items[picked[0]], "memory.capacity_bytes"), peak = INFINITY;
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double v = view_number(s->items[picked[i]], "memory.allocated_peak_bytes");
        fit += strcmp(plans_fits(s->items[picked[i]]), "no") != 0;
        most = fmax(most, v);
        if (v < peak) {
            peak = v;
            least = picked[i];
        }
    }
    char peak_text[SHOW_TEXT], capacity_text[SHOW_TEXT];
    return arena_printf(a,
                        "%zu of %zu plans fit; the smallest peak is %s with %s per GPU, against a "
                        "capacity of %s. Lines on the bars span the reserved memory expected%s",
                        fit, n, s->labels[least],
                        show_format(peak_text, "_bytes", isinf(peak) ? NAN : peak),
                        show_format(capacity_text, "_bytes", capacity),
                        most > CHART_CUT * capacity ? "; bars with an arrow run on" : "");
}

void plans_memory_figure(struct page *p, const struct plans *s) {
    size_t picked[PLANS_SHOWN], n = plans_pick(s, picked);
    bool known = false, limited = false;
    if (n == 0) {
        missing(p, "The file holds no plan, so there is no memory to draw.");
        return;
    }
    struct rows r = rows_create(p->arena, n, CLASSES);
    for (size_t i = 0; i < n; i++) {
        struct view plan = s->items[picked[i]];
        double peak = view_number(plan, "memory.allocated_peak_bytes");
        r.labels[i] = s->names[picked[i]];
        peak_classes(plan, r.values + i * CLASSES);
        r.low[i] = gib(view_number(plan, "memory.reserved_low_bytes"));
        r.high[i] = gib(view_number(plan, "memory.reserved_high_bytes"));
        r.limits[i] = gib(view_number(plan, "memory.capacity_bytes"));
        r.ends[i] = text_of(plan, "_bytes", peak);
        known |= !isnan(peak) || r.values[i * CLASSES] > 0;
        limited |= !isnan(r.limits[i]);
    }
    if (!known) {
        missing(p, "The file states no memory per plan.");
        return;
    }
    struct plot *plot = plot_add(&p->plots, "memory", "Memory per GPU at the peak, by plan");
    plot->alt = with_shared(s, memory_alt(p->arena, s, picked, n));
    chart_bars(plot, &(struct chart_bars){.x_label = "GiB per GPU",
                                          .segments = class_names,
                                          .colours = class_colours,
                                          .segment_count = CLASSES,
                                          .rows = r.labels,
                                          .row_count = n,
                                          .per_row = 1,
                                          .values = r.values,
                                          .low = r.low,
                                          .high = r.high,
                                          .limits = limited ? r.limits : NULL,
                                          .limit_label = "capacity",
                                          .limit_text = capacity_text(s->items[picked[0]]),
                                          .ends = r.ends});
    page_figure(p, plot);
    if (n < s->count)
        html_printf(&p->html,
                    "<p class=note>%zu of %zu plans are drawn: the first of each kind, then the "
                    "best.</p>\n",
                    n, s->count);
}

void plans_phases_figure(struct page *p, const struct plans *s, size_t index) {
    struct view plan = s->items[index], phases = view_find(plan, "memory.phases");
    size_t n = view_count(phases), i = 0;
    const char *peak = view_string(plan, "memory.peak_phase");
    if (n == 0 || n > 40) {
        missing(p, "The file does not split memory by phase.");
        return;
    }
    struct rows r = rows_create(p->arena, n, CLASSES);
    for (const cJSON *c = view_first(phases); c; c = c->next, i++) {
        struct view phase = view_member(phases, c, i);
        const char *name = phase_name(phase);
        r.labels[i] = name ? show_word(name) : "phase";
        for (size_t k = 0; k < CLASSES; k++)
            r.values[i * CLASSES + k] = gib(view_number(phase, class_keys[k]));
        r.ends[i] = text_of(plan, "_bytes", view_number(phase, "allocated_bytes"));
        r.limits[i] = gib(view_number(plan, "memory.capacity_bytes"));
    }
    struct plot *plot = plot_add(&p->plots, "phases", "Memory per GPU by phase");
    plot->alt =
        arena_printf(p->arena, "For %s the peak of a step is in phase %s, %s", s->labels[index],
                     peak ? show_word(peak) : "not stated",
                     text_of(plan, "_bytes", view_number(plan, "memory.allocated_peak_bytes")));
    chart_bars(plot, &(struct chart_bars){.x_label = "GiB per GPU",
                                          .segments = class_names,
                                          .colours = class_colours,
                                          .segment_count = CLASSES,
                                          .rows = r.labels,
                                          .row_count = n,
                                          .per_row = 1,
                                          .values = r.values,
                                          .limits = isnan(r.limits[0]) ? NULL : r.limits,
                                          .limit_label = "capacity",
                                          .limit_text = capacity_text(plan),
                                          .ends = r.ends});
    page_figure(p, plot);
}

#define LINKS 5

static double sum_known(double a, double b) {
    return isnan(a) ? b : isnan(b) ? a : a + b;
}

static void volume_bars(struct view plan, double *values, const char **ends) {
    double textbook = view_number(plan, "volume.textbook_bytes");
    double sent = view_number(plan, "volume.sent_bytes_per_gpu");
    double multiple = view_number(plan, "volume.textbook_multiple");
    values[0] = gib(textbook);
    double *framework = values + LINKS;
    framework[1] = gib(view_number(plan, "volume.intra_node_bytes_per_gpu"));
    framework[2] = gib(view_number(plan, "volume.inter_node_bytes_per_gpu"));
    framework[3] = gib(
        sum_known(view_number(plan, "volume.h2d_bytes"), view_number(plan, "volume.d2h_bytes")));
    framework[4] = gib(sum_known(view_number(plan, "volume.nvme_read_bytes"),
                                 view_number(plan, "volume.nvme_write_bytes")));
    if (isnan(framework[1]) && isnan(framework[2]))
        framework[1] = gib(sent);
    ends[0] = isnan(multiple) ? text_of(plan, "_bytes", textbook)
                              : arena_printf(plan.arena, "%s (%.3g\xc3\x97)",
                                             text_of(plan, "_bytes", textbook), multiple);
    double unit = multiple > 0 ? textbook / multiple : NAN;
    ends[1] = isnan(unit) || isnan(sent) || unit == 0
                  ? text_of(plan, "_bytes", sent)
                  : arena_printf(plan.arena, "network %s (%.3g\xc3\x97)",
                                 text_of(plan, "_bytes", sent), sent / unit);
}

static const char *volume_alt(struct arena *a, const struct plans *s, const size_t *picked,
                              size_t n) {
    double worst = 0;
    size_t at = picked[0];
    for (size_t i = 0; i < n; i++) {
        double ratio = view_number(s->items[picked[i]], "volume.sent_bytes_per_gpu") /
                       view_number(s->items[picked[i]], "volume.textbook_bytes");
        if (isfinite(ratio) && ratio > worst) {
            worst = ratio;
            at = picked[i];
        }
    }
    return arena_printf(
        a,
        "What the framework's code sends per GPU and step, beside the textbook's "
        "count; the largest excess is %s with %.3g times the textbook. Multiples in "
        "brackets count the model's parameters once at their gathered type",
        s->labels[at], worst);
}

void plans_volume_figure(struct page *p, const struct plans *s) {
    static const char *const names[LINKS] = {"textbook", "inside the node", "between nodes",
                                             "PCIe to host", "NVMe"};
    static const enum plot_colour colours[LINKS] = {PLOT_LIGHT, PLOT_BLUE, PLOT_VERMILLION,
                                                    PLOT_GREEN, PLOT_PURPLE};
    size_t picked[PLANS_SHOWN], n = plans_pick(s, picked);
    double most = 0;
    struct rows r = rows_create(p->arena, 2 * n + 1, LINKS);
    for (size_t i = 0; i < n; i++) {
        r.labels[i] = s->names[picked[i]];
        volume_bars(s->items[picked[i]], r.values + 2 * i * LINKS, r.ends + 2 * i);
        for (size_t k = 0; k < 2 * LINKS; k++)
            most = fmax(most, r.values[2 * i * LINKS + k]);
    }
    if (!(most > 0)) {
        missing(p, "No plan in the file states bytes on a link, or none sends any.");
        return;
    }
    struct plot *plot =
        plot_add(&p->plots, "volume", "Bytes per link and step: textbook above, framework below");
    plot->alt = with_shared(s, volume_alt(p->arena, s, picked, n));
    chart_bars(plot, &(struct chart_bars){.x_label = "GiB sent per GPU and optimizer step",
                                          .segments = names,
                                          .colours = colours,
                                          .segment_count = LINKS,
                                          .rows = r.labels,
                                          .row_count = n,
                                          .per_row = 2,
                                          .values = r.values,
                                          .ends = r.ends});
    page_figure(p, plot);
}

enum { TIME_PARTS = 4 }; // work, exposed communication, exposed offload, pipeline bubble

static double known(double x) {
    return isnan(x) ? 0 : x;
}

// All parts where some plan has a bubble, else those before it.
static size_t time_parts(const struct plans *s, const size_t *picked, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (view_number(s->items[picked[i]], "time.bubble_s") > 0)
            return TIME_PARTS;
    return TIME_PARTS - 1;
}

// The step in its parts; the longest step in *most.
static size_t time_rows(const struct plans *s, const size_t *picked, size_t n, struct rows *r,
                        double *most) {
    size_t rows = 0, parts = time_parts(s, picked, n);
    for (size_t i = 0; i < n; i++) {
        struct view plan = s->items[picked[i]];
        double step = view_number(plan, "time.step_s");
        double bubble = known(view_number(plan, "time.bubble_s"));
        if (isnan(step))
            continue;
        double *v = r->values + parts * rows;
        v[1] = known(view_number(plan, "time.exposed_comm_s"));
        v[2] = known(view_number(plan, "time.exposed_offload_s"));
        v[0] = fmax(0, step - v[1] - v[2] - bubble);
        if (parts == TIME_PARTS)
            v[TIME_PARTS - 1] = bubble;
        r->labels[rows] = s->names[picked[i]];
        r->low[rows] = view_number(plan, "time.step_low_s");
        r->high[rows] = view_number(plan, "time.step_high_s");
        r->ends[rows++] = text_of(plan, "step_s", step);
        *most = fmax(*most, step);
    }
    return rows;
}

static const char *time_alt(struct arena *a, const struct plans *s) {
    size_t best = plans_fastest(s);
    if (best >= s->count)
        return "None of these plans fits, so none of these times can be had on this cluster";
    const char *bound = view_string(s->items[best], "bound_by");
    return arena_printf(
        a, "The fastest plan that fits is %s with %s per step%s%s", s->labels[best],
        text_of(s->items[best], "step_s", view_number(s->items[best], "time.step_s")),
        bound ? ", bound by " : "", bound ? show_word(bound) : "");
}

void plans_time_figure(struct page *p, const struct plans *s) {
    static const char *const names[] = {"work", "exposed communication", "exposed offload",
                                        "pipeline bubble"};
    static const enum plot_colour colours[] = {PLOT_BLUE, PLOT_VERMILLION, PLOT_ORANGE, PLOT_SKY};
    static const char *const labels[] = {"step time (s)", "step time (ms)",
                                         "step time (\xc2\xb5s)"};
    size_t picked[PLANS_SHOWN], n = plans_pick(s, picked), parts = time_parts(s, picked, n);
    const char *unit;
    double most = 0;
    struct rows r = rows_create(p->arena, n + 1, TIME_PARTS);
    size_t rows = time_rows(s, picked, n, &r, &most);
    if (rows == 0) {
        missing(p, "No plan in the file has a step time; the reason is in the table below.");
        return;
    }
    double scale = axis_seconds(most, &unit);
    for (size_t i = 0; i < parts * rows; i++)
        r.values[i] /= scale;
    for (size_t i = 0; i < rows; i++) {
        r.low[i] /= scale;
        r.high[i] /= scale;
    }
    struct plot *plot = plot_add(&p->plots, "time", "Time of one optimizer step, by plan");
    plot->alt = with_shared(s, time_alt(p->arena, s));
    chart_bars(plot, &(struct chart_bars){.x_label = labels[unit[0] == 's'   ? 0
                                                            : unit[0] == 'm' ? 1
                                                                             : 2],
                                          .segments = names,
                                          .colours = colours,
                                          .segment_count = parts,
                                          .rows = r.labels,
                                          .row_count = rows,
                                          .per_row = 1,
                                          .values = r.values,
                                          .low = r.low,
                                          .high = r.high,
                                          .ends = r.ends});
    page_figure(p, plot);
}

void plans_scaling_figure(struct page *p, const struct plans_scaling *s) {
    const double *gpus = s->gpus, *rate = s->rate;
    size_t count = s->count;
    double *even = arena_array(p->arena, count, sizeof *even);
    for (size_t i = 0; i < count; i++)
        even[i] = rate[0];
    const struct chart_series series[2] = {
        {"", CHART_LINE_POINTS, PLOT_BLUE, gpus, rate, NULL, NULL, count},
        {"no loss", CHART_DASHED, PLOT_GREY, gpus, even, NULL, NULL, count}};
    const struct chart_mark mark = {
        gpus[count - 1], rate[count - 1],
        arena_printf(p->arena, "%.0f %%", 100 * rate[count - 1] / rate[0])};
    struct plot *plot = plot_add(&p->plots, "scaling", s->heading);
    plot->alt = s->alt;
    chart_xy(plot,
             &(struct chart_xy){.x = {.label = "GPUs", .kind = AXIS_COUNT, .log = true},
                                .y = {.label = "tokens per second and GPU", .from_zero = true},
                                .series = series,
                                .series_count = 2,
                                .marks = &mark,
                                .mark_count = 1});
    page_figure(p, plot);
}
