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
#include "bench/rehearse_gpu.h"
#include "bench/words.h"

#define TURNS 5
#define DEVIATING 10

// Rehearsals with GPUs have a GPU per rank.
static bool choose_gpus(struct run *r, bool *gpus, struct err *e) {
    const char *name = r->options->backend;
    uint64_t n = rehearse_gpu_count(r->ranks);
    bool asked = name != NULL && strcmp(name, "gpu") == 0;
    if (r->options->devices > 0 && r->options->devices < n && r->ranks->count == 1)
        n = r->options->devices;
    if (asked && n > 0 && r->ranks->count == 1 && r->options->ranks > 1)
        n = r->options->ranks; // this process only waits for them
    static const char *const known[] = {"gpu", "mpi", NULL};
    if (name != NULL && !words_check("--backend", name, known, e))
        return false;
    if (asked && n == 0 && r->ranks->count > 1)
        return err_set(e, ERR_RESOURCE, "no usable GPU with NCCL for each of the %d ranks here",
                       r->ranks->local_count);
    if (asked && n == 0)
        return err_set(e, ERR_RESOURCE, "no usable GPU with NCCL here");
    *gpus = asked || (name == NULL && r->options->ranks == 0 && r->ranks->count == 1 && n > 1);
    if (*gpus)
        r->rank_count = n;
    return true;
}

static bool read_graph(struct run *r, const struct opt_texts *rest, struct graph *g,
                       struct err *e) {
    bool gpus;
    if (rest->count != 1)
        return err_set(e, ERR_USAGE, "rehearse takes one GRAPH.json");
    if (!choose_gpus(r, &gpus, e))
        return false;
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

// When each task started and ended, in every turn.
struct turns {
    double (*start_s)[TURNS], (*end_s)[TURNS], step_s[TURNS];
};

static bool keep_all(struct run *r, const struct graph *g, const struct turns *t, struct err *e) {
    for (size_t i = 0; i < g->task_count; i++)
        if (!keep(r, "task", arena_printf(r->arena, "start %zu", i), t->start_s[i], e) ||
            !keep(r, "task", arena_printf(r->arena, "end %zu", i), t->end_s[i], e))
            return false;
    return keep(r, "step", NULL, t->step_s, e);
}

// Of every rank, in one array; places that no rank filled have no calls.
static const struct rehearse_sent *gather_sent(struct run *r, const struct gpu_rehearsal *h,
                                               size_t *count) {
    const struct rehearse_sent *mine;
    size_t n = rehearse_gpu_sent(h, &mine), ranks = (size_t)r->ranks->count;
    double most = (double)n;
    r->ranks->largest(&most, 1);
    size_t each = (size_t)most;
    struct rehearse_sent *padded = arena_array(r->arena, each + 1, sizeof(*padded));
    struct rehearse_sent *all = arena_array(r->arena, each * ranks + 1, sizeof(*all));
    if (n > 0)
        memcpy(padded, mine, n * sizeof(*padded));
    r->ranks->gather(padded, each * sizeof(*padded), all);
    *count = each * ranks;
    return all;
}

// What each GPU gave to NCCL in one step.
static bool keep_sent(struct run *r, const struct graph *g, const struct gpu_rehearsal *h,
                      const double *step_s, struct err *e) {
    size_t n;
    const struct rehearse_sent *list = gather_sent(r, h, &n);
    for (size_t i = 0; r->ranks->rank == 0 && i < n; i++) {
        struct measure_result m;
        if (list[i].calls == 0)
            continue;
        measure_result_init(&m);
        m.kind = collective_name(list[i].collective);
        m.backend = "rehearse";
        m.group = arena_printf(r->arena, "rank %llu of %s", (unsigned long long)list[i].rank,
                               g->groups[list[i].group].kind);
        m.dtype = dtype_name(list[i].dtype);
        m.ranks = r->rank_count;
        m.n = list[i].calls;
        m.payload_bytes = (uint64_t)list[i].payload_bytes;
        m.sent_bytes = list[i].sent_bytes;
        measure_summarise(&m, step_s, TURNS, r->arena);
        if (!sink_add(r->sink, &m, e))
            return false;
    }
    return true;
}

// Either kind of rehearsal.
struct rehearser {
    struct rehearsal *host;
    struct gpu_rehearsal *gpu;
};

static bool step(const struct rehearser *h, double *start_s, double *end_s, double *step_s,
                 struct err *e) {
    return h->gpu != NULL ? rehearse_gpu_step(h->gpu, start_s, end_s, step_s, e)
                          : rehearse_step(h->host, start_s, end_s, step_s, e);
}

static bool run_turns(struct run *r, const struct graph *g, const struct rehearser *h,
                      struct err *e) {
    double *start = arena_array(r->arena, g->task_count + 1, sizeof(*start));
    double *end = arena_array(r->arena, g->task_count + 1, sizeof(*end)), warm_up;
    struct turns t = {.start_s = arena_array(r->arena, g->task_count + 1, sizeof(*t.start_s)),
                      .end_s = arena_array(r->arena, g->task_count + 1, sizeof(*t.end_s))};
    if (h->host != NULL)
        rehearse_prepare(h->host);
    if (!step(h, start, end, &warm_up, e))
        return false;
    for (int turn = 0; turn < TURNS; turn++) {
        int stop = signals_interrupted(r->signals);
        r->ranks->broadcast(&stop, sizeof(stop), 0);
        if (stop)
            return err_set(e, ERR_INTERRUPTED, "interrupted");
        if (!step(h, start, end, &t.step_s[turn], e))
            return false;
        for (size_t i = 0; i < g->task_count; i++) {
            t.start_s[i][turn] = start[i];
            t.end_s[i][turn] = end[i];
        }
    }
    return keep_all(r, g, &t, e) && (h->gpu == NULL || keep_sent(r, g, h->gpu, t.step_s, e));
}

bool command_rehearse(struct run *r, const struct opt_texts *rest, struct err *e) {
    struct graph g;
    bool gpus = false;
    double wrong = !read_graph(r, rest, &g, e) || !choose_gpus(r, &gpus, e);
    r->ranks->largest(&wrong, 1);
    if (wrong > 0)
        return err_set(e, ERR_RESOURCE, "another rank cannot rehearse");
    struct rehearse_setup s = {.graph = &g,
                               .ranks = r->ranks,
                               .folder = r->options->folder,
                               .shrink = r->options->shrink,
                               .signals = r->signals};
    struct rehearser h = {.host = gpus ? NULL : rehearse_create(&s, r->arena, e),
                          .gpu = gpus ? rehearse_gpu_create(&s, r->arena, e) : NULL};
    double failed = h.host == NULL && h.gpu == NULL;
    bool here = failed == 0;
    r->ranks->largest(&failed, 1);
    bool ok = failed == 0 && run_turns(r, &g, &h, e);
    if (failed > 0 && here)
        err_set(e, ERR_RESOURCE, "another rank could not set up");
    if (h.gpu != NULL && rehearse_gpu_note(h.gpu) != NULL)
        run_note(r, "%s", rehearse_gpu_note(h.gpu));
    rehearse_destroy(h.host);
    rehearse_gpu_destroy(h.gpu);
    return ok;
}

// ---- the result -----------------------------------------------------------------------------

struct outcome {
    const struct graph *graph;
    double *start_s, *end_s; // of the median turn, on rank 0
    double *planned_start_s, *planned_end_s;
    double step_s, planned_step_s;
};

static const struct measure_result *find(const struct measurement *m, const char *kind,
                                         const char *group) {
    for (size_t i = m->count; i-- > 0;)
        if (strcmp(m->results[i].kind, kind) == 0 &&
            (group == NULL || (m->results[i].group && strcmp(m->results[i].group, group) == 0)))
            return &m->results[i];
    return NULL;
}

// The turn whose step is the median one: a trace of one step, not a mixture.
static size_t median_turn(const struct measure_result *step) {
    size_t best = 0;
    for (size_t i = 0; i < step->samples; i++)
        if (fabs(step->samples_s[i] - step->median_s) <
            fabs(step->samples_s[best] - step->median_s))
            best = i;
    return best;
}

static double sample(struct run *r, const char *what, size_t task, size_t turn) {
    const struct measure_result *m =
        find(sink_results(r->sink), "task", arena_printf(r->arena, "%s %zu", what, task));
    return m != NULL && turn < m->samples ? m->samples_s[turn] : NAN;
}

static void collect(struct run *r, const struct graph *g, struct outcome *o) {
    const struct measure_result *step = find(sink_results(r->sink), "step", NULL);
    size_t turn = step != NULL ? median_turn(step) : 0;
    double **arrays[] = {&o->start_s, &o->end_s, &o->planned_start_s, &o->planned_end_s};
    for (size_t i = 0; i < 4; i++)
        *arrays[i] = arena_array(r->arena, g->task_count + 1, sizeof(double));
    o->graph = g;
    o->step_s = step != NULL ? step->median_s : NAN;
    o->planned_step_s =
        rehearse_predict(g, o->planned_start_s, o->planned_end_s) * r->options->shrink;
    for (size_t i = 0; i < g->task_count; i++) {
        o->start_s[i] = sample(r, "start", i, turn);
        o->end_s[i] = sample(r, "end", i, turn);
        o->planned_start_s[i] *= r->options->shrink;
        o->planned_end_s[i] *= r->options->shrink;
    }
}

static void emit_task(cJSON *list, const struct outcome *x, size_t i) {
    const struct graph_task *t = &x->graph->tasks[i];
    cJSON *o = json_append_object(list);
    json_add_u64(o, "id", t->id);
    json_add_string(o, "kind", graph_kind_names[t->kind]);
    json_add_string(o, "stream", x->graph->streams[t->stream]);
    json_add_string(o, "phase", t->phase);
    json_add_string(o, "unit", t->unit);
    json_add_double(o, "simulated_s", x->planned_end_s[i] - x->planned_start_s[i]);
    json_add_double(o, "measured_s", x->end_s[i] - x->start_s[i]);
    json_add_double(o, "simulated_start_s", x->planned_start_s[i]);
    json_add_double(o, "measured_start_s", x->start_s[i]);
}

static double excess_s(const struct outcome *x, size_t i) {
    return fabs((x->end_s[i] - x->start_s[i]) - (x->planned_end_s[i] - x->planned_start_s[i]));
}

// The tasks whose time is furthest from the simulated one, furthest first.
static void emit_deviating(struct run *r, const struct outcome *x, cJSON *root) {
    cJSON *list = json_add_array(root, "deviating");
    bool *taken = arena_array(r->arena, x->graph->task_count + 1, sizeof(*taken));
    for (size_t n = 0; n < DEVIATING && n < x->graph->task_count; n++) {
        size_t worst = SIZE_MAX;
        for (size_t i = 0; i < x->graph->task_count; i++)
            if (!taken[i] && (worst == SIZE_MAX || excess_s(x, i) > excess_s(x, worst)))
                worst = i;
        taken[worst] = true;
        if (excess_s(x, worst) > 0)
            emit_task(list, x, worst);
    }
}

static void emit_streams(const struct outcome *x, cJSON *root) {
    cJSON *list = json_add_array(root, "streams");
    const struct graph *g = x->graph;
    for (uint32_t s = 0; s < g->stream_count; s++) {
        double busy_s = 0, planned_s = 0;
        for (size_t i = 0; i < g->task_count; i++) {
            if (g->tasks[i].stream != s)
                continue;
            busy_s += x->end_s[i] - x->start_s[i];
            planned_s += x->planned_end_s[i] - x->planned_start_s[i];
        }
        cJSON *o = json_append_object(list);
        json_add_string(o, "name", g->streams[s]);
        json_add_double(o, "simulated_busy_s", planned_s);
        json_add_double(o, "measured_busy_s", busy_s);
        json_add_double(o, "simulated_exposed_s",
                        rehearse_exposed_s(g, s, x->planned_start_s, x->planned_end_s));
        json_add_double(o, "measured_exposed_s", rehearse_exposed_s(g, s, x->start_s, x->end_s));
    }
}

static void name_row(cJSON *list, const char *what, uint64_t pid, const char *name) {
    cJSON *o = json_append_object(list);
    json_add_string(o, "ph", "M");
    json_add_string(o, "name", what);
    json_add_u64(o, "pid", pid);
    json_add_u64(o, "tid", 0);
    json_add_string(json_add_object(o, "args"), "name", name);
}

static void trace_rows(cJSON *list, const struct outcome *x, uint64_t pid) {
    const double *start_s = pid ? x->start_s : x->planned_start_s;
    const double *end_s = pid ? x->end_s : x->planned_end_s;
    for (size_t i = 0; i < x->graph->task_count; i++) {
        const struct graph_task *t = &x->graph->tasks[i];
        cJSON *o = json_append_object(list);
        json_add_string(o, "ph", "X");
        json_add_string(o, "name", t->unit ? t->unit : graph_kind_names[t->kind]);
        json_add_string(o, "cat", t->phase);
        json_add_u64(o, "pid", pid);
        json_add_u64(o, "tid", t->stream);
        json_add_double(o, "ts", start_s[i] / UNITS_MICRO);
        json_add_double(o, "dur", (end_s[i] - start_s[i]) / UNITS_MICRO);
    }
}

// The simulated step and the measured one, one above the other.
static bool write_trace(const char *path, const struct outcome *x, struct err *e) {
    cJSON *list = cJSON_CreateArray();
    name_row(list, "process_name", 0, "simulated");
    name_row(list, "process_name", 1, "measured");
    trace_rows(list, x, 0);
    trace_rows(list, x, 1);
    bool ok = json_write_file(path, list, e);
    cJSON_Delete(list);
    return ok;
}

static void emit_sent(struct run *r, cJSON *root) {
    const struct measurement *m = sink_results(r->sink);
    cJSON *list = json_add_array(root, "collectives");
    for (size_t i = 0; i < m->count; i++) {
        const struct measure_result *x = &m->results[i];
        unsigned long long rank;
        char group[32];
        if (strcmp(x->backend, "rehearse") != 0 || x->group == NULL ||
            sscanf(x->group, "rank %llu of %31s", &rank, group) != 2)
            continue;
        cJSON *o = json_append_object(list);
        json_add_u64(o, "rank", rank);
        json_add_string(o, "group", group);
        json_add_string(o, "kind", x->kind);
        json_add_string(o, "dtype", x->dtype);
        json_add_u64(o, "calls", x->n);
        json_add_u64(o, "payload_bytes", x->payload_bytes);
        json_add_double(o, "sent_bytes", x->sent_bytes);
    }
}

bool command_rehearse_result(struct run *r, const struct opt_texts *rest, cJSON **out,
                             struct err *e) {
    struct graph g;
    struct outcome x;
    if (!read_graph(r, rest, &g, e))
        return false;
    collect(r, &g, &x);
    if (r->options->trace != NULL && isfinite(x.step_s) && !write_trace(r->options->trace, &x, e))
        return false;
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", "shardplan.rehearse/1");
    json_add_string(root, "command", r->command_line);
    json_add_string(root, "note",
                    "timing and overlap only: nothing here shows what a framework "
                    "computes");
    json_add_u64(root, "ranks", r->rank_count);
    json_add_double(root, "shrink", r->options->shrink);
    cJSON *step = json_add_object(root, "step");
    json_add_double(step, "simulated_s", x.planned_step_s);
    json_add_double(step, "measured_s", x.step_s);
    json_add_double(step, "ratio", x.step_s / x.planned_step_s);
    cJSON *tasks = json_add_array(root, "tasks");
    for (size_t i = 0; i < g.task_count; i++)
        emit_task(tasks, &x, i);
    emit_streams(&x, root);
    emit_deviating(r, &x, root);
    emit_sent(r, root);
    *out = root;
    return true;
}
