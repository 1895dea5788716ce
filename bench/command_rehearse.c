// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/stats.h"
#include "base/units.h"
#include "bench/commands.h"
#include "bench/rehearse.h"

#define TURNS 5

static bool read_graph(struct run *r, const struct opt_texts *rest, struct graph *g,
                       struct err *e) {
    if (rest->count != 1)
        return err_set(e, ERR_USAGE, "rehearse takes one GRAPH.json");
    if (!graph_read(rest->items[0], r->arena, g, e))
        return false;
    if (g->ranks == r->rank_count)
        return true;
    return err_set(e, ERR_RESOURCE,
                   "%s is a graph of %llu ranks and here are %llu; make one that fits: "
                   "shardplan simulate MODEL CLUSTER --gpus %llu --graph FILE",
                   rest->items[0], (unsigned long long)g->ranks, (unsigned long long)r->rank_count,
                   (unsigned long long)r->rank_count);
}

static bool keep(struct run *r, const char *kind, const char *group, const double *samples_s,
                 struct err *e) {
    struct measure_result m;
    measure_result_init(&m);
    m.kind = kind;
    m.backend = "rehearse";
    m.group = group;
    m.ranks = r->rank_count;
    m.oversubscribed = r->ranks->oversubscribed;
    measure_summarise(&m, samples_s, TURNS, r->arena);
    if (!(m.median_s > 0))
        m.median_s = UNITS_NANO; // faster than the clock
    return r->ranks->rank != 0 || sink_add(r->sink, &m, e);
}

static bool write_trace(const char *path, const struct graph *g, const double *start_s,
                        const double *end_s, struct err *e) {
    cJSON *list = cJSON_CreateArray();
    for (size_t i = 0; i < g->task_count; i++) {
        const struct graph_task *t = &g->tasks[i];
        cJSON *o = json_append_object(list);
        json_add_string(o, "ph", "X");
        json_add_string(o, "name", t->unit ? t->unit : graph_kind_names[t->kind]);
        json_add_string(o, "cat", t->phase);
        json_add_u64(o, "pid", 0);
        json_add_u64(o, "tid", t->stream);
        json_add_double(o, "ts", start_s[i] / UNITS_MICRO);
        json_add_double(o, "dur", (end_s[i] - start_s[i]) / UNITS_MICRO);
    }
    bool ok = json_write_file(path, list, e);
    cJSON_Delete(list);
    return ok;
}

static bool run_turns(struct run *r, const struct graph *g, struct rehearsal *h, struct err *e) {
    double *start = arena_array(r->arena, g->task_count, sizeof(*start));
    double *end = arena_array(r->arena, g->task_count, sizeof(*end));
    double(*tasks)[TURNS] = arena_array(r->arena, g->task_count, sizeof(*tasks));
    double steps[TURNS], warm_up;
    if (!rehearse_step(h, start, end, &warm_up, e))
        return false;
    for (int turn = 0; turn < TURNS; turn++) {
        int stop = signals_interrupted(r->signals);
        r->ranks->broadcast(&stop, sizeof(stop), 0);
        if (stop)
            return err_set(e, ERR_INTERRUPTED, "interrupted");
        if (!rehearse_step(h, start, end, &steps[turn], e))
            return false;
        for (size_t i = 0; i < g->task_count; i++)
            tasks[i][turn] = end[i] - start[i];
    }
    for (size_t i = 0; i < g->task_count; i++)
        if (!keep(r, "task", arena_printf(r->arena, "task %zu", i), tasks[i], e))
            return false;
    if (r->options->trace != NULL && r->ranks->rank == 0 &&
        !write_trace(r->options->trace, g, start, end, e))
        return false;
    return keep(r, "step", NULL, steps, e);
}

bool command_rehearse(struct run *r, const struct opt_texts *rest, struct err *e) {
    struct graph g;
    if (!read_graph(r, rest, &g, e))
        return false;
    struct rehearse_setup s = {
        .graph = &g, .ranks = r->ranks, .folder = r->options->folder, .shrink = r->options->shrink};
    struct rehearsal *h = rehearse_create(&s, r->arena, e);
    double failed = h == NULL;
    r->ranks->largest(&failed, 1);
    bool ok = failed == 0 && run_turns(r, &g, h, e);
    if (failed > 0 && h != NULL)
        err_set(e, ERR_RESOURCE, "another rank could not set up");
    rehearse_destroy(h);
    return ok;
}

static double find(const struct measurement *m, const char *kind, const char *group) {
    for (size_t i = m->count; i-- > 0;)
        if (strcmp(m->results[i].kind, kind) == 0 &&
            (group == NULL || (m->results[i].group && strcmp(m->results[i].group, group) == 0)))
            return m->results[i].median_s;
    return NAN;
}

static void emit_tasks(struct run *r, const struct graph *g, cJSON *root, double *busy_s) {
    cJSON *list = json_add_array(root, "tasks");
    for (size_t i = 0; i < g->task_count; i++) {
        const struct graph_task *t = &g->tasks[i];
        double measured =
            find(sink_results(r->sink), "task", arena_printf(r->arena, "task %zu", i));
        cJSON *o = json_append_object(list);
        json_add_u64(o, "id", t->id);
        json_add_string(o, "kind", graph_kind_names[t->kind]);
        json_add_string(o, "stream", g->streams[t->stream]);
        json_add_string(o, "phase", t->phase);
        json_add_string(o, "unit", t->unit);
        json_add_double(o, "simulated_s", t->duration_s * r->options->shrink);
        json_add_double(o, "measured_s", measured);
        busy_s[t->stream] += measured;
        busy_s[g->stream_count + t->stream] += t->duration_s * r->options->shrink;
    }
}

bool command_rehearse_result(struct run *r, const struct opt_texts *rest, cJSON **out,
                             struct err *e) {
    struct graph g;
    if (!read_graph(r, rest, &g, e))
        return false;
    double *start = arena_array(r->arena, g.task_count, sizeof(*start));
    double *end = arena_array(r->arena, g.task_count, sizeof(*end));
    double *busy_s = arena_array(r->arena, 2 * g.stream_count + 1, sizeof(*busy_s));
    double simulated = rehearse_predict(&g, start, end) * r->options->shrink;
    double measured = find(sink_results(r->sink), "step", NULL);
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", "shardplan.rehearse/1");
    json_add_string(root, "command", r->command_line);
    json_add_string(root, "note",
                    "timing and overlap only: nothing here shows what a framework "
                    "computes");
    json_add_u64(root, "ranks", r->rank_count);
    json_add_double(root, "shrink", r->options->shrink);
    cJSON *step = json_add_object(root, "step");
    json_add_double(step, "simulated_s", simulated);
    json_add_double(step, "measured_s", measured);
    json_add_double(step, "ratio", measured / simulated);
    emit_tasks(r, &g, root, busy_s);
    cJSON *streams = json_add_array(root, "streams");
    for (size_t s = 0; s < g.stream_count; s++) {
        cJSON *o = json_append_object(streams);
        json_add_string(o, "name", g.streams[s]);
        json_add_double(o, "simulated_busy_s", busy_s[g.stream_count + s]);
        json_add_double(o, "measured_busy_s", busy_s[s]);
    }
    *out = root;
    return true;
}
