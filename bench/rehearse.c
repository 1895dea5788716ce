// SPDX-License-Identifier: Apache-2.0
#include "bench/rehearse.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "bench/clock.h"
#include "bench/pages.h"
#include "bench/rehearse_private.h"
#include "bench/slice.h"

struct rehearsal {
    struct rehearse_setup setup;
    struct rehearse_work work;
    struct rehearse_lane *lanes; // one per stream
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool *done;
    uint32_t issued; // tasks before this one
    bool failed;
    struct err error;
    double zero_s, *start_s, *end_s; // of the step that runs
};

struct stream_thread {
    struct rehearsal *rehearsal;
    uint32_t stream;
    pthread_t thread;
};

// The largest buffer that the stream's tasks ask for.
static size_t lane_bytes(const struct rehearsal *r, uint32_t stream) {
    const struct graph *g = r->setup.graph;
    size_t largest = 4 * UNITS_MIB;
    for (size_t i = 0; i < g->task_count; i++) {
        const struct graph_task *t = &g->tasks[i];
        size_t bytes = 0;
        if (t->stream != stream)
            continue;
        if (t->kind == GRAPH_COPY)
            bytes = (size_t)(t->bytes * r->setup.shrink);
        else if (t->kind == GRAPH_COLLECTIVE && t->group >= 0)
            bytes = rehearse_collective_bytes(t->bytes * r->setup.shrink, g->groups[t->group].size);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

static bool open_lanes(struct rehearsal *r, struct err *e) {
    const struct graph *g = r->setup.graph;
    for (uint32_t s = 0; s < g->stream_count; s++) {
        struct rehearse_lane *lane = &r->lanes[s];
        lane->bytes = lane_bytes(r, s);
        lane->from = pages_map(lane->bytes);
        lane->to = pages_map(lane->bytes);
        if (lane->from == NULL || lane->to == NULL)
            return err_set(e, ERR_RESOURCE, "no memory for %zu bytes; use --shrink", lane->bytes);
        memset(lane->from, 0, lane->bytes);
        memset(lane->to, 0, lane->bytes);
        if (rehearse_has(g, s, GRAPH_ADAM) && !rehearse_adam_open(lane, e))
            return false;
        if ((rehearse_has(g, s, GRAPH_NVME_READ) || rehearse_has(g, s, GRAPH_NVME_WRITE)) &&
            !rehearse_storage_open(lane, &r->work.file, e))
            return false;
        if (!rehearse_collectives_open(g, r->setup.ranks, &lane->collectives, e))
            return false;
    }
    return true;
}

// Ranks of one node get equal parts of its processors, all their threads together, so that what one
// rank may use does not depend on what another does. Nodes that share a machine, as namespaces do,
// keep what their launcher gave them.
static int take_cores(const struct ranks *ranks) {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    int online = (int)sysconf(_SC_NPROCESSORS_ONLN), each = online / ranks->local_count;
    if (ranks->nodes == 1 && ranks->count > 1 && each > 0) {
        for (int i = 0; i < each; i++)
            CPU_SET(ranks->local_rank * each + i, &mine);
        sched_setaffinity(0, sizeof(mine), &mine); // refused: as it was
    }
    if (sched_getaffinity(0, sizeof(mine), &mine) != 0)
        return 1;
    int cores = CPU_COUNT(&mine);
    return cores < 1 ? 1 : cores > REHEARSE_CORES_MAX ? REHEARSE_CORES_MAX : cores;
}

void rehearse_prepare(struct rehearsal *r) {
    r->setup.ranks->barrier();
    r->work.units_per_s = rehearse_calibrate();
    r->setup.ranks->barrier();
}

struct rehearsal *rehearse_create(const struct rehearse_setup *s, struct arena *a, struct err *e) {
    struct rehearsal *r = calloc(1, sizeof(*r));
    if (r == NULL)
        abort();
    const struct graph *g = s->graph;
    r->setup = *s;
    r->work.shrink = s->shrink;
    r->work.file.fd = -1;
    r->work.cores = take_cores(s->ranks);
    r->lanes = arena_array(a, g->stream_count, sizeof(*r->lanes));
    r->done = arena_array(a, g->task_count, sizeof(*r->done));
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->moved, NULL);
    if (!rehearse_open_file(s, &r->work.file, e) || !open_lanes(r, e)) {
        rehearse_destroy(r);
        return NULL;
    }
    return r;
}

void rehearse_destroy(struct rehearsal *r) {
    if (r == NULL)
        return;
    for (size_t s = 0; s < r->setup.graph->stream_count; s++) {
        struct rehearse_lane *lane = &r->lanes[s];
        pages_unmap(lane->from, lane->bytes);
        pages_unmap(lane->to, lane->bytes);
        rehearse_adam_close(lane);
        rehearse_storage_close(lane);
        rehearse_collectives_close(lane->collectives, r->setup.graph);
    }
    scratch_close(&r->work.file);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->moved);
    free(r);
}

static bool may_start(const struct rehearsal *r, const struct graph_task *t) {
    if (t->id >= r->issued)
        return false;
    for (size_t i = 0; i < t->dep_count; i++)
        if (!r->done[t->deps[i]])
            return false;
    return true;
}

static void run_task(struct rehearsal *r, const struct graph_task *t) {
    struct rehearse_lane *lane = &r->lanes[t->stream];
    struct err e = {0};
    pthread_mutex_lock(&r->lock);
    while (!may_start(r, t))
        pthread_cond_wait(&r->moved, &r->lock);
    bool skip = r->failed && t->kind != GRAPH_COLLECTIVE; // other ranks wait in collectives
    pthread_mutex_unlock(&r->lock);
    double start = clock_now_s();
    bool ok = true;
    if (t->kind == GRAPH_COLLECTIVE)
        rehearse_collective(t, lane, r->setup.shrink);
    else if (!skip)
        ok = rehearse_do(t, lane, &r->work, &e);
    double end = clock_now_s();
    pthread_mutex_lock(&r->lock);
    r->start_s[t->id] = start - r->zero_s;
    r->end_s[t->id] = end - r->zero_s;
    r->done[t->id] = true;
    if (!ok && !r->failed) {
        r->failed = true;
        r->error = e;
    }
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->lock);
}

static void *run_stream(void *context) {
    struct stream_thread *s = context;
    const struct graph *g = s->rehearsal->setup.graph;
    if (rehearse_has(g, s->stream, GRAPH_COLLECTIVE))
        slice_make_short(); // it naps while it waits for other ranks
    for (size_t i = 0; i < g->task_count; i++)
        if (g->tasks[i].stream == s->stream)
            run_task(s->rehearsal, &g->tasks[i]);
    return NULL;
}

// The host issues in order; the issuing itself takes a core.
static void issue_all(struct rehearsal *r) {
    const struct graph *g = r->setup.graph;
    for (size_t i = 0; i < g->task_count; i++) {
        const struct graph_task *t = &g->tasks[i];
        rehearse_spin(t->issue_s * r->setup.shrink * r->work.units_per_s);
        pthread_mutex_lock(&r->lock);
        r->issued = t->id + 1;
        pthread_cond_broadcast(&r->moved);
        while (t->host_blocking && !r->done[t->id])
            pthread_cond_wait(&r->moved, &r->lock);
        pthread_mutex_unlock(&r->lock);
    }
}

bool rehearse_step(struct rehearsal *r, double *start_s, double *end_s, double *step_s,
                   struct err *e) {
    const struct graph *g = r->setup.graph;
    struct stream_thread *threads = calloc(g->stream_count + 1, sizeof(*threads));
    if (threads == NULL)
        abort();
    memset(r->done, 0, g->task_count * sizeof(*r->done));
    r->issued = 0;
    r->failed = false;
    r->start_s = start_s;
    r->end_s = end_s;
    r->setup.ranks->barrier();
    r->zero_s = clock_now_s();
    for (uint32_t s = 0; s < g->stream_count; s++) {
        threads[s] = (struct stream_thread){.rehearsal = r, .stream = s};
        if (pthread_create(&threads[s].thread, NULL, run_stream, &threads[s]) != 0)
            abort();
    }
    issue_all(r);
    for (size_t s = 0; s < g->stream_count; s++)
        pthread_join(threads[s].thread, NULL);
    free(threads);
    double both[2] = {clock_now_s() - r->zero_s, r->failed ? 1 : 0};
    r->setup.ranks->largest(both, 2);
    *step_s = both[0];
    if (r->failed)
        return err_set(e, r->error.kind, "%s", r->error.text);
    return both[1] == 0 || err_set(e, ERR_RESOURCE, "another rank's device failed");
}

static double predict(const struct graph *g, double *start_s, double *end_s) {
    double host_s = 0, step_s = 0;
    double *free_s = calloc(g->stream_count + 1, sizeof(*free_s));
    if (free_s == NULL)
        abort();
    for (size_t i = 0; i < g->task_count; i++) {
        const struct graph_task *t = &g->tasks[i];
        host_s += t->issue_s;
        double start = fmax(host_s, free_s[t->stream]);
        for (size_t d = 0; d < t->dep_count; d++)
            start = fmax(start, end_s[t->deps[d]]);
        start_s[i] = start;
        end_s[i] = free_s[t->stream] = start + t->duration_s;
        if (t->host_blocking)
            host_s = end_s[i];
        step_s = fmax(step_s, fmax(end_s[i], host_s));
    }
    free(free_s);
    return step_s;
}

double rehearse_predict(const struct graph *g, double *start_s, double *end_s) {
    if (!(g->step_s > 0))
        return predict(g, start_s, end_s);
    for (size_t i = 0; i < g->task_count; i++) {
        start_s[i] = g->tasks[i].start_s;
        end_s[i] = g->tasks[i].end_s;
    }
    return g->step_s;
}

double rehearse_exposed_s(const struct graph *g, uint32_t stream, const double *start_s,
                          const double *end_s) {
    double sum_s = 0;
    for (size_t i = 0; i < g->task_count; i++) {
        if (g->tasks[i].stream != stream)
            continue;
        double covered_s = 0;
        for (size_t k = 0; stream != REHEARSE_COMPUTE && k < g->task_count; k++)
            if (g->tasks[k].stream == REHEARSE_COMPUTE)
                covered_s += fmax(0, fmin(end_s[i], end_s[k]) - fmax(start_s[i], start_s[k]));
        sum_s += end_s[i] - start_s[i] - covered_s;
    }
    return sum_s;
}
