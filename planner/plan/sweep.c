// SPDX-License-Identifier: Apache-2.0
#include "plan/sweep.h"

#include "base/units.h"
#include "plan/sweep_bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

const char *const sweep_objective_names[SWEEP_OBJECTIVE_COUNT] = {
    [SWEEP_TOKENS] = "tokens", [SWEEP_COST] = "cost", [SWEEP_HEADROOM] = "headroom"};

// Points simulated between two looks at the pruning limit. Fixed, so that what is simulated does
// not depend on the number of threads.
#define BLOCK 64

struct candidate {
    uint64_t point;
    double best; // no simulation of this point scores higher
};

struct outcome {
    uint64_t point;
    bool simulated, fits;
    double score, step_s, peak_bytes, gpus;
};

struct search {
    const struct sweep_request *q;
    const struct sweep_points *points;
    const struct sweep_bounds *bounds;
    struct candidate *candidates;
    uint64_t candidate_count;
    struct outcome *outcomes; // of simulated points, in candidate order
    uint64_t simulated;
    struct arena **arenas; // one per thread, and so the workspaces
    struct plan_workspace **workspaces;
    int threads;
};

static double job_tokens(const struct search *s) {
    return (double)s->q->basis.global_batch * (double)s->q->basis.recipes[0].seq;
}

// Higher is better for every objective.
static double score_of(const struct search *s, double step_s, double headroom_bytes, double gpus) {
    switch (s->q->objective) {
    case SWEEP_COST:
        return 1 / (step_s * gpus);
    case SWEEP_HEADROOM:
        return headroom_bytes;
    default:
        return 1 / step_s;
    }
}

static int by_best(const void *x, const void *y) {
    const struct candidate *a = x, *b = y;
    if (a->best != b->best)
        return a->best < b->best ? 1 : -1;
    return (a->point > b->point) - (a->point < b->point);
}

static int by_score(const void *x, const void *y) {
    const struct outcome *a = x, *b = y;
    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return (a->point > b->point) - (a->point < b->point);
}

// No simulation of the point scores higher; -INFINITY where it can't win anything.
static double best_score(const struct search *s, const struct sweep_bound *b, uint64_t point) {
    const struct sweep_family *f = &s->points->families[sweep_family_of(s->points, point)];
    if (!b->fits)
        return -INFINITY;
    return score_of(s, b->step_s, b->capacity_bytes - b->peak_bytes, (double)f->gpus);
}

// Every point but the duplicates; an exhaustive search takes their word for nothing else.
static void bound_all(struct search *s, struct arena *a, struct sweep_result *r) {
    uint64_t n = s->points->point_count, bounded = 0, duplicates = 0;
    s->candidates = arena_array(a, n, sizeof *s->candidates);
#pragma omp parallel for schedule(static) reduction(+ : bounded, duplicates) num_threads(s->threads)
    for (uint64_t i = 0; i < n; i++) {
        struct sweep_bound b;
        s->candidates[i] = (struct candidate){.point = i, .best = -INFINITY};
        if (!sweep_bound(s->bounds, i, &b))
            continue;
        duplicates += b.duplicate;
        bounded += !b.duplicate;
        if (!b.duplicate)
            s->candidates[i].best = s->q->exhaustive ? 0 : best_score(s, &b, i);
    }
    for (uint64_t i = 0; i < n; i++)
        if (s->candidates[i].best > -INFINITY)
            s->candidates[s->candidate_count++] = s->candidates[i];
    qsort(s->candidates, s->candidate_count, sizeof *s->candidates, by_best);
    r->bounded = bounded;
    r->duplicates = duplicates;
}

static bool cluster_of(const struct search *s, uint64_t nodes, uint64_t gpus, struct cluster *c,
                       struct err *e) {
    *c = *s->q->basis.cluster;
    return nodes == c->nodes || cluster_resize(c, nodes, gpus, e);
}

static int own_thread(void) {
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

static bool evaluate(const struct search *s, uint64_t point, enum plan_time time, struct arena *a,
                     struct plan *p, struct sweep_family const **family) {
    struct recipe r;
    struct cluster c;
    struct err ignored = {0};
    size_t f;
    if (!sweep_point_recipe(s->points, point, &f, &r))
        return false;
    *family = &s->points->families[f];
    r.zero3 = sweep_bound_traffic(s->bounds, point);
    const struct plan_question q = {s->q->basis.model, &c, &r, time, s->workspaces[own_thread()]};
    bool ok = cluster_of(s, (*family)->nodes, (*family)->gpus, &c, &ignored) &&
              plan_answer(&q, a, p, &ignored) && !p->reason;
    p->recipe.zero3 = NULL; // gone before the plan is
    return ok;
}

static void simulate(const struct search *s, uint64_t point, struct arena *a, struct outcome *out) {
    struct plan p;
    const struct sweep_family *f;
    *out = (struct outcome){.point = point, .simulated = true, .score = -INFINITY};
    if (!evaluate(s, point, PLAN_TIME_IF_FITS, a, &p, &f) || !p.fits || !isfinite(p.time.step_s))
        return;
    if (s->q->sure && p.memory.fits_state != FITS_YES)
        return;
    out->fits = true;
    out->step_s = p.time.step_s;
    out->peak_bytes = (double)p.memory.allocated_peak_bytes;
    out->gpus = (double)f->gpus;
    out->score = score_of(s, p.time.step_s, (double)p.memory.headroom_bytes, out->gpus);
}

// The score that a candidate must reach to enter the best `top`; -INFINITY until there are `top`.
static double limit_of(struct outcome *best, size_t *count, size_t top, const struct outcome *block,
                       size_t block_count) {
    for (size_t i = 0; i < block_count; i++)
        if (block[i].fits)
            best[(*count)++] = block[i];
    qsort(best, *count, sizeof *best, by_score);
    if (*count > top)
        *count = top;
    return *count == top ? best[top - 1].score : -INFINITY;
}

struct state {
    struct outcome *best, *front;
    size_t best_count, front_count;
    double limit;
};

// What is beaten in every aim by a simulated point is on no front.
static bool dominated(const struct search *s, const struct state *t, const struct sweep_bound *b,
                      uint64_t point) {
    double gpus = (double)s->points->families[sweep_family_of(s->points, point)].gpus;
    for (size_t i = 0; i < t->front_count; i++)
        if (t->front[i].step_s < b->step_s && t->front[i].peak_bytes < b->peak_bytes &&
            t->front[i].gpus <= gpus)
            return true;
    return false;
}

static bool may_win(const struct search *s, const struct state *t, const struct sweep_bound *b,
                    uint64_t point) {
    return b->fits &&
           (best_score(s, b, point) >= t->limit || (s->q->pareto && !dominated(s, t, b, point)));
}

static bool stopped(const struct sweep_request *q) {
    return q->stop && q->stop();
}

static struct arena *own_arena(const struct search *s) {
    struct arena *a = s->arenas[own_thread()];
    arena_reset(a);
    return a;
}

// A closer look at each, then the simulation of those that may still win.
static size_t run_block(struct search *s, const struct state *t, const uint64_t *points,
                        size_t count) {
    struct outcome *out = s->outcomes + s->simulated;
#pragma omp parallel for schedule(dynamic, 1) num_threads(s->threads)
    for (size_t i = 0; i < count; i++) {
        struct arena *a = own_arena(s);
        struct sweep_bound b;
        out[i].simulated = false;
        if (!s->q->exhaustive &&
            (!sweep_bound_close(s->bounds, points[i], a, &b) || !may_win(s, t, &b, points[i])))
            continue;
        arena_reset(a);
        simulate(s, points[i], a, &out[i]);
    }
    size_t simulated = 0;
    for (size_t i = 0; i < count; i++)
        if (out[i].simulated)
            out[simulated++] = out[i];
    s->simulated += simulated;
    return simulated;
}

// The front's members seen so far, so that `dominated` compares with few points.
static size_t keep_front(struct outcome *front, size_t count, const struct outcome *block,
                         size_t n) {
    for (size_t i = 0; i < n; i++) {
        bool beaten = !block[i].fits;
        for (size_t k = 0; k < count && !beaten; k++)
            beaten = front[k].step_s <= block[i].step_s &&
                     front[k].peak_bytes <= block[i].peak_bytes && front[k].gpus <= block[i].gpus;
        if (beaten)
            continue;
        size_t kept = 0;
        for (size_t k = 0; k < count; k++)
            if (!(block[i].step_s <= front[k].step_s &&
                  block[i].peak_bytes <= front[k].peak_bytes && block[i].gpus <= front[k].gpus))
                front[kept++] = front[k];
        front[kept++] = block[i];
        count = kept;
    }
    return count;
}

static bool worth(const struct search *s, const struct state *t, const struct candidate *c) {
    struct sweep_bound b;
    if (s->q->exhaustive || c->best >= t->limit)
        return true;
    return s->q->pareto && sweep_bound(s->bounds, c->point, &b) && !dominated(s, t, &b, c->point);
}

static bool search_all(struct search *s, struct arena *a, struct state *t) {
    t->best = arena_array(a, s->q->top + BLOCK, sizeof *t->best);
    t->front = arena_array(a, s->candidate_count + 1, sizeof *t->front);
    s->outcomes = arena_array(a, s->candidate_count + BLOCK, sizeof *s->outcomes);
    t->limit = -INFINITY;
    for (uint64_t next = 0; next < s->candidate_count;) {
        uint64_t points[BLOCK];
        size_t count = 0;
        while (next < s->candidate_count && count < BLOCK) {
            const struct candidate *c = &s->candidates[next++];
            if (worth(s, t, c))
                points[count++] = c->point;
            else if (!s->q->pareto && !s->q->exhaustive)
                next = s->candidate_count; // sorted: nothing after it can win
        }
        const struct outcome *block = s->outcomes + s->simulated;
        count = run_block(s, t, points, count);
        t->limit = limit_of(t->best, &t->best_count, s->q->top, block, count);
        t->front_count = keep_front(t->front, t->front_count, block, count);
        if (s->q->progress)
            s->q->progress(s->q->progress_context, next, s->candidate_count);
        if (stopped(s->q))
            return false;
    }
    return true;
}

// Plans are evaluated again into the result's arena; the workers' arenas are gone by then.
static size_t fill_plans(const struct search *s, const struct outcome *from, size_t count,
                         struct arena *a, struct sweep_plan *out) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        struct sweep_plan *p = &out[n];
        const struct sweep_family *f;
        if (!evaluate(s, from[i].point, PLAN_TIME_ALWAYS, a, &p->plan, &f))
            continue;
        p->point = from[i].point;
        p->nodes = f->nodes;
        p->gpus = f->gpus;
        p->tokens_per_s = job_tokens(s) / p->plan.time.step_s;
        p->usd_per_billion_tokens = s->q->basis.cluster->usd_per_gpu_hour.value * (double)f->gpus /
                                    UNITS_HOUR_S * UNITS_GIGA / p->tokens_per_s;
        n++;
    }
    return n;
}

static int by_step(const void *x, const void *y) {
    const struct outcome *a = x, *b = y;
    if (a->step_s != b->step_s)
        return a->step_s < b->step_s ? -1 : 1;
    return (a->point > b->point) - (a->point < b->point);
}

static int threads_of(const struct sweep_request *q) {
#ifdef _OPENMP
    return q->threads > 0 ? q->threads : omp_get_num_procs();
#else
    (void)q;
    return 1;
#endif
}

static void make_arenas(struct search *s, struct arena *a) {
    s->arenas = arena_array(a, (size_t)s->threads, sizeof *s->arenas);
    s->workspaces = arena_array(a, (size_t)s->threads, sizeof *s->workspaces);
    for (int i = 0; i < s->threads; i++) {
        s->arenas[i] = arena_create();
        s->workspaces[i] = plan_workspace_create();
    }
}

bool sweep_run(const struct sweep_request *q, struct arena *a, struct sweep_result *out,
               struct err *e) {
    struct sweep_result r = {.space = q->space};
    struct sweep_points points;
    struct search s = {.q = q, .points = &points, .threads = threads_of(q)};
    struct state t = {0};
    sweep_space_defaults(&r.space, q->basis.cluster, &q->basis.recipes[0]);
    if (!sweep_points_build(&r.space, &q->basis, a, &points, e))
        return false;
    points.threads = s.threads;
    if (!sweep_bounds_build(&points, &q->basis, a, &s.bounds, e))
        return false;
    make_arenas(&s, a);
    r.points = points.point_count;
    bound_all(&s, a, &r);
    r.interrupted = !search_all(&s, a, &t);
    r.simulated = s.simulated;
    r.pruned = r.bounded - s.simulated;
    for (uint64_t i = 0; i < s.simulated; i++)
        r.feasible += s.outcomes[i].fits;
    r.plans = arena_array(a, t.best_count + 1, sizeof *r.plans);
    r.plan_count = fill_plans(&s, t.best, t.best_count, a, r.plans);
    if (q->pareto) {
        qsort(t.front, t.front_count, sizeof *t.front, by_step);
        r.pareto = arena_array(a, t.front_count + 1, sizeof *r.pareto);
        r.pareto_count = fill_plans(&s, t.front, t.front_count, a, r.pareto);
    }
    for (int i = 0; i < s.threads; i++) {
        arena_destroy(s.arenas[i]);
        plan_workspace_destroy(s.workspaces[i]);
    }
    *out = r;
    out->space = r.space;
    return true;
}

static double plan_score(const struct sweep_request *q, const struct sweep_plan *p) {
    const struct search s = {.q = q};
    return score_of(&s, p->plan.time.step_s, (double)p->plan.memory.headroom_bytes,
                    (double)p->gpus);
}

static const struct sweep_plan *best_of(const struct sweep_result *r, enum strategy strategy) {
    for (size_t i = 0; i < r->plan_count; i++)
        if (r->plans[i].plan.recipe.strategy == strategy)
            return &r->plans[i];
    return NULL;
}

static bool search_strategy(const struct sweep_request *q, const struct recipe *recipe,
                            struct arena *a, struct sweep_result *out, struct err *e) {
    struct sweep_request own = *q;
    own.basis.recipes = recipe;
    own.basis.recipe_count = 1;
    own.top = 1;
    own.pareto = false;
    own.progress = NULL;
    own.sure = true;
    if (!sweep_run(&own, a, out, e))
        return false;
    if (out->plan_count > 0 || out->interrupted)
        return true;
    own.sure = false;
    return sweep_run(&own, a, out, e);
}

bool sweep_each_strategy(const struct sweep_request *q, const struct sweep_result *r,
                         struct arena *a, struct sweep_plan **out, size_t *count, struct err *e) {
    struct sweep_plan *list = arena_array(a, STRATEGY_COUNT, sizeof *list);
    bool seen[STRATEGY_COUNT] = {false};
    size_t n = 0;
    for (size_t i = 0; i < q->basis.recipe_count; i++) {
        const struct recipe *recipe = &q->basis.recipes[i];
        struct sweep_result own = {0};
        const struct sweep_plan *best = best_of(r, recipe->strategy);
        if (seen[recipe->strategy] || stopped(q))
            continue;
        seen[recipe->strategy] = true;
        if (!best && !search_strategy(q, recipe, a, &own, e))
            return false;
        if (!best && own.plan_count == 0)
            continue;
        size_t at = n++;
        const struct sweep_plan p = best ? *best : own.plans[0];
        for (; at > 0 && plan_score(q, &list[at - 1]) < plan_score(q, &p); at--)
            list[at] = list[at - 1];
        list[at] = p;
    }
    *out = list;
    *count = n;
    return true;
}
