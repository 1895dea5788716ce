// SPDX-License-Identifier: Apache-2.0
#include "bench/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bench/clock.h"
#include "bench/progress.h"

// A run until a device has settled takes as many iterations as it needs.
#define SETTLED_ITERATIONS_MAX 1000000

void run_add_point(struct run *r, struct point_list *list, const struct bench_point *p) {
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 32;
        struct bench_point *items = arena_array(r->arena, room, sizeof(*items));
        if (list->count > 0)
            memcpy(items, list->items, list->count * sizeof(*items));
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = *p;
}

void run_note(struct run *r, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    const char **items = arena_array(r->arena, r->notes.count + 1, sizeof(*items));
    if (r->notes.count > 0)
        memcpy(items, r->notes.items, r->notes.count * sizeof(*items));
    items[r->notes.count++] = arena_strdup(r->arena, text);
    r->notes.items = items;
}

struct backend_config run_config(const struct run *r) {
    const struct options *o = r->options;
    return (struct backend_config){
        .ranks = r->ranks,
        .folder = o->folder,
        .max_bytes = o->max_bytes,
        .devices = o->devices,
        .threads = o->threads,
        .arena = r->arena,
        .nap = o->wait == WAIT_NAP,
        .timeout_s = o->timeout_s,
        .signals = r->signals,
        .fault = o->no_uring ? "no-uring" : o->fault,
    };
}

static struct harness_limits limits_of(const struct run *r) {
    struct harness_limits l = harness_defaults();
    l.budget_s = r->options->budget_s;
    l.target = r->options->target;
    l.min_iterations = r->options->min_iterations;
    l.max_iterations = r->options->max_iterations;
    l.deadline_s = r->deadline_s;
    l.settle_s = r->options->settle_s;
    if (r->options->settle_given) {
        l.least_s = 2 * l.settle_s;
        l.max_iterations = SETTLED_ITERATIONS_MAX;
    }
    l.verify = !r->options->no_verify;
    l.seed = r->options->seed;
    if (l.max_iterations < l.min_iterations)
        l.max_iterations = l.min_iterations;
    return l;
}

// Only rank 0 knows the output file; everybody follows its decision.
static bool already_done(struct run *r, const struct measure_result *id) {
    int done = r->ranks->rank == 0 && sink_has(r->sink, id);
    r->ranks->broadcast(&done, sizeof(done), 0);
    return done != 0;
}

// Rank 0's clock counts.
static bool late(const struct run *r) {
    int late = r->deadline_s > 0 && clock_now_s() > r->deadline_s;
    if (r->deadline_s > 0)
        r->ranks->broadcast(&late, sizeof(late), 0);
    return late != 0;
}

struct run_tally {
    size_t measured, left_out;
    struct err why; // the last reason
};

// A point that cannot be set up is left out with its reason.
static bool run_one(struct run *r, const struct harness *h, const struct bench_point *p,
                    struct run_tally *tally, struct err *e) {
    struct harness_limits limits = limits_of(r);
    struct measure_result result;
    struct err why = {0};
    if (!harness_prepare(h, p, &why)) {
        if (why.kind == ERR_INTERRUPTED)
            return err_set(e, why.kind, "%s", why.text);
        run_note(r, "%s of %llu bytes left out: %s", p->kind, (unsigned long long)p->payload_bytes,
                 why.text);
        tally->why = why;
        tally->left_out++;
        return true;
    }
    if (!harness_run(h, p, &limits, &result, e))
        return false;
    r->wrong += result.errors;
    tally->measured++;
    return r->ranks->rank != 0 || sink_add(r->sink, &result, e);
}

bool run_points(struct run *r, const struct backend *b, const struct point_list *points,
                struct err *e) {
    struct backend_config config = run_config(r);
    struct harness h = {.backend = b, .ranks = r->ranks, .signals = r->signals, .arena = r->arena};
    struct run_tally tally = {0};
    bool ok = true;
    if (!b->open(&config, &h.state, e))
        return false;
    for (size_t i = 0; ok && i < points->count; i++) {
        struct measure_result id;
        harness_identify(&h, &points->items[i], &id);
        if (!r->again && already_done(r, &id)) {
            tally.measured++;
            continue;
        }
        if (late(r)) {
            run_note(r, "%zu point%s of %s left out: the time is up", points->count - i,
                     points->count - i == 1 ? "" : "s", b->name);
            break;
        }
        progress_show(r->progress, &id, i, points->count);
        ok = run_one(r, &h, &points->items[i], &tally, e);
    }
    progress_clear(r->progress);
    b->close(h.state);
    if (ok && tally.measured == 0 && tally.left_out > 0)
        return err_set(e, tally.why.kind, "%s", tally.why.text);
    return ok;
}

bool run_points_or_waive(struct run *r, const struct backend *b, const struct point_list *points,
                         struct err *e) {
    struct err why = {0};
    if (run_points(r, b, points, &why))
        return true;
    if (why.kind != ERR_RESOURCE)
        return err_set(e, why.kind, "%s", why.text);
    run_note(r, "%s waived: %s", b->name, why.text);
    return true;
}
