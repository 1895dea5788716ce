// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"
#include "describe/profile_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const profile_steps_names[] = {"gpu_user_annotation", "user_annotation", "none"};

// Ends before starts at the same moment, so that back-to-back kernels do not seem to overlap.
static int compare_edges(const void *x, const void *y) {
    const struct profile_edge *a = x, *b = y;
    if (a->at_us != b->at_us)
        return a->at_us < b->at_us ? -1 : 1;
    return a->delta - b->delta;
}

static int compare_windows(const void *x, const void *y) {
    const struct profile_window *a = x, *b = y;
    return a->number < b->number ? -1 : a->number > b->number;
}

static int compare_doubles(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

// Steps touch: each lasts until the next begins, the last until its own end.
static size_t make_windows(struct profile_log *log, struct profile *out,
                           struct profile_window *list) {
    const struct profile_window *from = log->gpu_count ? log->gpu : log->cpu;
    size_t n = log->gpu_count ? log->gpu_count : log->cpu_count;
    out->from = log->gpu_count   ? PROFILE_STEPS_GPU
                : log->cpu_count ? PROFILE_STEPS_CPU
                                 : PROFILE_STEPS_NONE;
    if (n == 0) {
        list[0] =
            (struct profile_window){0, log->edges[0].at_us, log->edges[log->edge_count - 1].at_us};
        return 1;
    }
    memcpy(list, from, n * sizeof *list);
    qsort(list, n, sizeof *list, compare_windows);
    for (size_t i = 0; i + 1 < n; i++)
        list[i].end_us = list[i + 1].start_us;
    return n;
}

struct walk {
    const struct profile_log *log;
    struct profile *out;
    uint32_t running[PROFILE_CLASS_COUNT], compute, comm, copy;
    uint32_t on_stream[PROFILE_STREAMS_MAX];
    double stream_class_us[PROFILE_STREAMS_MAX][PROFILE_CLASS_COUNT];
    double stream_us[PROFILE_STREAMS_MAX];
    uint32_t stream_running[PROFILE_STREAMS_MAX][PROFILE_CLASS_COUNT];
    double class_us[PROFILE_CLASS_COUNT];
    double compute_us, comm_us, copy_us, exposed_comm_us, exposed_copy_us, idle_us, total_us;
};

static void add_span(struct walk *w, double us) {
    if (!(us > 0))
        return;
    w->total_us += us;
    for (size_t i = 0; i < PROFILE_CLASS_COUNT; i++)
        w->class_us[i] += us * w->running[i];
    for (size_t i = 0; i < w->log->stream_count; i++) {
        if (w->on_stream[i] == 0)
            continue;
        w->stream_us[i] += us;
        for (size_t k = 0; k < PROFILE_CLASS_COUNT; k++)
            w->stream_class_us[i][k] += us * w->stream_running[i][k];
    }
    if (w->compute)
        w->compute_us += us;
    if (w->comm)
        w->comm_us += us;
    if (w->copy)
        w->copy_us += us;
    if (w->comm && !w->compute)
        w->exposed_comm_us += us;
    if (w->copy && !w->compute && !w->comm)
        w->exposed_copy_us += us;
    if (!w->compute && !w->comm && !w->copy)
        w->idle_us += us;
}

static void apply(struct walk *w, const struct profile_edge *x) {
    uint32_t delta = (uint32_t)(int32_t)x->delta;
    enum profile_class class = x->class;
    w->running[class] += delta;
    w->on_stream[x->stream] += delta;
    w->stream_running[x->stream][class] += delta;
    if (profile_is_compute(class))
        w->compute += delta;
    else if (profile_is_comm(class))
        w->comm += delta;
    else
        w->copy += delta;
}

static void count_start(struct walk *w, const struct profile_edge *x, bool inside) {
    if (x->delta < 0)
        return;
    w->out->kernels++;
    if (!inside) {
        w->out->outside++;
        return;
    }
    struct profile_class_total *t = &w->out->classes[x->class];
    t->count++;
    t->payload_bytes += x->payload_bytes; // NAN stays: not every call said
}

// One pass over the edges; spans are clipped to the windows, which touch.
static void walk_edges(struct walk *w, const struct profile_window *list, size_t n) {
    double first = list[0].start_us, last = list[n - 1].end_us, at = first;
    for (size_t i = 0; i < w->log->edge_count; i++) {
        const struct profile_edge *x = &w->log->edges[i];
        double to = fmin(fmax(x->at_us, first), last);
        add_span(w, to - at);
        at = fmax(at, to);
        count_start(w, x,
                    x->at_us >= first && (x->at_us < last || w->out->from == PROFILE_STEPS_NONE));
        apply(w, x);
    }
    add_span(w, last - at);
}

static void fill_streams(const struct walk *w, double per_step, struct arena *a,
                         struct profile *out) {
    out->streams = arena_array(a, w->log->stream_count + 1, sizeof *out->streams);
    for (size_t i = 0; i < w->log->stream_count; i++) {
        if (!(w->stream_us[i] > 0))
            continue;
        struct profile_stream *s = &out->streams[out->stream_count++];
        s->number = w->log->streams[i];
        s->busy_s = w->stream_us[i] * per_step;
        for (size_t k = 1; k < PROFILE_CLASS_COUNT; k++)
            if (w->stream_class_us[i][k] > w->stream_class_us[i][s->largest])
                s->largest = (enum profile_class)k;
    }
}

static void fill(const struct walk *w, const struct profile_window *list, size_t n, struct arena *a,
                 struct profile *out) {
    double per_step = 1 / (UNITS_MEGA * (double)n);
    for (size_t i = 0; i < PROFILE_CLASS_COUNT; i++) {
        out->classes[i].busy_s = w->class_us[i] * per_step;
        out->classes[i].count /= (double)n;
        out->classes[i].payload_bytes /= (double)n;
    }
    out->compute_s = w->compute_us * per_step;
    out->comm_s = w->comm_us * per_step;
    out->copy_s = w->copy_us * per_step;
    out->exposed_comm_s = w->exposed_comm_us * per_step;
    out->exposed_copy_s = w->exposed_copy_us * per_step;
    out->idle_s = w->idle_us * per_step;
    out->steps = arena_array(a, n, sizeof *out->steps);
    double *lengths = arena_array(a, n, sizeof *lengths);
    for (size_t i = 0; i < n; i++) {
        lengths[i] = (list[i].end_us - list[i].start_us) / UNITS_MEGA;
        out->steps[i] = (struct profile_step){
            list[i].number, (list[i].start_us - list[0].start_us) / UNITS_MEGA, lengths[i]};
    }
    out->step_count = n;
    qsort(lengths, n, sizeof *lengths, compare_doubles);
    out->step_s = n % 2 ? lengths[n / 2] : (lengths[n / 2 - 1] + lengths[n / 2]) / 2;
    fill_streams(w, per_step, a, out);
}

static void warn(const struct profile_log *log, const char *name, const struct profile *p,
                 struct arena *a, struct warnings *w) {
    if (p->from == PROFILE_STEPS_NONE)
        warnings_add(w, a, WARNING_ASSUMED, name,
                     "no ProfilerStep annotation (prof.step() was not called): the whole trace "
                     "counts as one step");
    if (p->from == PROFILE_STEPS_CPU)
        warnings_add(w, a, WARNING_ASSUMED, name,
                     "steps are annotated on the CPU only: kernels that run late count in the next "
                     "step");
    if (p->outside > 0)
        warnings_add(w, a, WARNING_LEFT_OUT, name,
                     arena_printf(a, "%llu of %llu kernels lie outside the annotated steps",
                                  (unsigned long long)p->outside, (unsigned long long)p->kernels));
    if (log->other_devices > 0)
        warnings_add(w, a, WARNING_LEFT_OUT, name,
                     arena_printf(a, "%llu kernels of other GPUs; only device %llu is counted",
                                  (unsigned long long)log->other_devices,
                                  (unsigned long long)log->device));
}

bool profile_sum(struct profile_log *log, const char *name, struct arena *a, struct warnings *w,
                 struct profile *out, struct err *e) {
    if (log->edge_count == 0)
        return err_set(e, ERR_INPUT,
                       "%s: no GPU kernel among %llu events; profile with "
                       "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
                       name, (unsigned long long)log->events);
    qsort(log->edges, log->edge_count, sizeof *log->edges, compare_edges);
    struct profile p = {.name = arena_strdup(a, name), .rank = log->rank, .world = log->world};
    p.gpu = log->gpu_name[0] ? arena_strdup(a, log->gpu_name) : NULL;
    p.events = log->events;
    struct profile_window *list = arena_array(a, PROFILE_STEPS_MAX, sizeof *list);
    size_t n = make_windows(log, &p, list);
    for (size_t i = 0; i < n; i++)
        if (!(list[i].end_us > list[i].start_us))
            return err_set(e, ERR_INPUT, "%s: step %llu ends no later than it begins", name,
                           (unsigned long long)list[i].number);
    struct walk *x = arena_alloc(a, sizeof *x);
    *x = (struct walk){.log = log, .out = &p};
    walk_edges(x, list, n);
    fill(x, list, n, a, &p);
    warn(log, name, &p, a, w);
    *out = p;
    return true;
}
