// SPDX-License-Identifier: Apache-2.0
#include "bench/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"
#include "base/units.h"
#include "bench/clock.h"

#define BATCH_MAX 1000

// What rank 0 decides for everybody between batches.
enum next { NEXT_MORE, NEXT_ENOUGH, NEXT_INTERRUPTED };

struct batch {
    double mine[BATCH_MAX];
    double negated[BATCH_MAX]; // largest of -x is the fastest rank
};

struct harness_limits harness_defaults(void) {
    return (struct harness_limits){
        .warmup_s = 0.02,
        .budget_s = 1,
        .min_iterations = 10,
        .max_iterations = 5000,
        .target = 0.02,
        .verify = true,
        .seed = 1,
    };
}

// True when no rank failed; otherwise every rank gets an error.
static bool all_well(const struct harness *h, bool ok, struct err *e) {
    double failed = ok ? 0 : 1;
    h->ranks->largest(&failed, 1);
    if (failed > 0 && ok)
        err_set(e, ERR_RESOURCE, "another rank could not go on");
    return failed == 0;
}

// One rank out of step leaves the others inside a collective: only ending all of them helps.
static bool lost(const struct harness *h, const struct err *e) {
    if (h->ranks->count > 1)
        h->ranks->abort(err_exit_status(e), e->text);
    return false;
}

static bool is_collective(const struct bench_point *p) {
    return strcmp(p->kind, collective_name(p->collective)) == 0;
}

static uint64_t everybody(const struct harness *h) {
    return h->backend->peers != NULL ? h->backend->peers(h->state) : (uint64_t)h->ranks->count;
}

static uint64_t taking_part(const struct harness *h, const struct bench_point *p) {
    if (p->paired)
        return 2;
    if (p->group_size > 0)
        return p->group_size;
    return everybody(h) - (p->left_out > 0);
}

void harness_identify(const struct harness *h, const struct bench_point *p,
                      struct measure_result *r) {
    measure_result_init(r);
    r->kind = p->kind;
    r->backend = h->backend->name;
    r->algorithm = p->algorithm;
    r->direction = p->direction;
    r->dtype = dtype_name(p->dtype);
    r->in_place = p->in_place;
    r->concurrent = p->concurrent;
    r->payload_bytes = p->payload_bytes;
    r->block_bytes = p->block_bytes;
    r->queue_depth = p->queue_depth;
    r->jobs = p->jobs;
    r->threads = p->threads;
    r->numa = p->numa;
    r->m = p->m;
    r->n = p->n;
    r->k = p->k;
    r->nodes = (uint64_t)h->ranks->nodes;
    r->ranks = taking_part(h, p);
    r->oversubscribed = h->ranks->oversubscribed;
    r->software = h->ranks->count > 1 ? h->ranks->library : NULL;
    r->scope = h->ranks->nodes > 1 ? "inter_node" : "intra_node";
    if (p->timed > 0)
        r->group = arena_printf(h->arena, "gpu %llu", (unsigned long long)p->timed - 1);
    else if (p->paired)
        r->group = arena_printf(h->arena, "%llu,%llu", (unsigned long long)p->first,
                                (unsigned long long)p->second);
    else if (p->group_size > 0 && p->group_size < everybody(h))
        r->group = arena_printf(h->arena, "every %llu of %llu",
                                (unsigned long long)(p->group_stride ? p->group_stride : 1),
                                (unsigned long long)everybody(h));
    else if (p->left_out > 0)
        r->group = arena_printf(h->arena, "all but %llu", (unsigned long long)p->left_out - 1);
    if (h->backend->describe != NULL)
        h->backend->describe(h->state, r);
}

static void rates(const struct harness *h, const struct bench_point *p, struct measure_result *r) {
    if (p->payload_bytes > 0) {
        if (!(r->settled_s > 0))
            r->algbw_bytes_per_s = (double)p->payload_bytes / r->median_s;
        if (is_collective(p))
            r->busbw_bytes_per_s =
                r->algbw_bytes_per_s * collective_bus_factor(p->collective, taking_part(h, p));
    }
    if (p->m > 0 && p->n > 0 && p->k > 0)
        r->flop_per_s = 2.0 * (double)p->m * (double)p->n * (double)p->k / r->median_s;
}

static bool verify(const struct harness *h, uint64_t seed, uint64_t *errors, struct err *e) {
    uint64_t wrong = 0;
    if (!h->backend->verify(h->state, seed, &wrong, e))
        return lost(h, e);
    double worst = (double)wrong;
    h->ranks->largest(&worst, 1);
    *errors += (uint64_t)worst;
    return true;
}

// Returns a typical iteration's duration in seconds, the same on every rank; negative on error.
static double warm_up(const struct harness *h, const struct harness_limits *l, struct err *e) {
    double start = clock_now_s(), spent, one;
    double least_s = fmax(l->warmup_s, h->backend->warmup_s);
    do {
        if (!h->backend->sample(h->state, 1, &one, e)) {
            lost(h, e);
            return -1;
        }
        spent = clock_now_s() - start;
        double both[2] = {spent, one};
        h->ranks->largest(both, 2);
        spent = both[0];
        one = both[1];
    } while (spent < least_s);
    return one > 0 ? one : UNITS_NANO;
}

// What repeat knows so far.
struct taken {
    double *samples;
    size_t n;
    double spent_s;
    size_t look_at; // iterations at which the interval is computed next
    bool settled;   // it is narrow enough; on rank 0
};

// Sorting everything at every batch would cost more than it saves.
static bool settled(struct taken *t, double target) {
    if (t->n < t->look_at)
        return false;
    t->look_at = t->n + t->n / 4 + 1;
    double *sorted = malloc(t->n * sizeof(*sorted));
    if (sorted == NULL)
        abort();
    memcpy(sorted, t->samples, t->n * sizeof(*sorted));
    stats_sort(sorted, t->n);
    double low, high, median = stats_quantile_sorted(sorted, t->n, 0.5);
    stats_median_interval(sorted, t->n, 0.95, &low, &high);
    free(sorted);
    t->settled = (high - low) / 2 <= target * median;
    return t->settled;
}

static enum next decide(const struct harness *h, const struct harness_limits *l, struct taken *t) {
    int next = NEXT_MORE;
    if (h->ranks->rank == 0) {
        bool least = t->n >= l->min_iterations && t->spent_s >= l->least_s;
        bool enough = t->n >= l->max_iterations;
        enough |= least && t->spent_s >= l->budget_s;
        enough |= t->n > 0 && l->deadline_s > 0 && clock_now_s() > l->deadline_s;
        enough = enough || (least && settled(t, l->target));
        next = signals_interrupted(h->signals) ? NEXT_INTERRUPTED
               : enough                        ? NEXT_ENOUGH
                                               : NEXT_MORE;
    }
    h->ranks->broadcast(&next, sizeof(next), 0);
    return (enum next)next;
}

// One batch on every rank; keeps the slowest rank's time of each iteration and the skew.
static bool run_batch(const struct harness *h, struct batch *b, size_t count, double *samples,
                      double *skews, struct err *e) {
    h->ranks->barrier();
    if (!h->backend->sample(h->state, count, b->mine, e))
        return lost(h, e);
    for (size_t i = 0; i < count; i++)
        b->negated[i] = b->mine[i] < 0 ? -INFINITY : -b->mine[i];
    h->ranks->largest(b->mine, count);
    h->ranks->largest(b->negated, count);
    for (size_t i = 0; i < count; i++) {
        samples[i] = b->mine[i];
        skews[i] = b->mine[i] + b->negated[i];
    }
    return true;
}

static size_t batch_size(const struct harness_limits *l, double one_s, size_t done) {
    const double slice_s = l->budget_s / 20;
    double want = slice_s / one_s;
    size_t n = want < 1 ? 1 : want > BATCH_MAX ? BATCH_MAX : (size_t)want;
    size_t left = l->max_iterations - done;
    return n < left ? n : left;
}

// A throttle or a cache gives a burst first, and then in portions, which neither the median of
// few iterations nor the first seconds show. Returns how many iterations to drop.
static size_t settle(const struct harness_limits *l, const struct taken *t,
                     struct measure_result *r) {
    double before_s = 0;
    size_t n = 0;
    if (!(l->settle_s > 0) || t->spent_s < 2 * l->settle_s)
        return 0;
    while (before_s < l->settle_s)
        before_s += t->samples[n++];
    if (n == t->n)
        return 0;
    r->settled_s = before_s;
    r->algbw_bytes_per_s = (double)(r->payload_bytes * (t->n - n)) / (t->spent_s - before_s);
    return n;
}

static bool repeat(const struct harness *h, const struct harness_limits *l, double one_s,
                   struct measure_result *r, struct err *e) {
    bool ok = false;
    struct taken t = {.samples = malloc(l->max_iterations * sizeof(*t.samples))};
    double *skews = malloc(l->max_iterations * sizeof(*skews));
    struct batch *b = malloc(sizeof(*b));
    if (t.samples == NULL || skews == NULL || b == NULL)
        abort();
    enum next next;
    while ((next = decide(h, l, &t)) == NEXT_MORE) {
        size_t count = batch_size(l, one_s, t.n);
        if (!run_batch(h, b, count, t.samples + t.n, skews + t.n, e))
            goto fail;
        for (size_t i = t.n; i < t.n + count; i++)
            t.spent_s += t.samples[i];
        t.n += count;
        // Another look every batch costs an exchange; after the minimum, batches may grow.
        one_s = t.spent_s / (double)t.n > 0 ? t.spent_s / (double)t.n : one_s;
    }
    if (next == NEXT_INTERRUPTED) {
        err_set(e, ERR_INTERRUPTED, "interrupted");
        goto fail;
    }
    r->confident = t.settled;
    size_t burst = settle(l, &t, r);
    measure_summarise(r, t.samples + burst, t.n - burst, h->arena);
    if (h->ranks->count > 1)
        r->rank_skew_s = stats_median(skews, t.n);
    ok = true;
fail:
    free(t.samples);
    free(skews);
    free(b);
    return ok;
}

bool harness_prepare(const struct harness *h, const struct bench_point *p, struct err *e) {
    bool prepared = h->backend->prepare(h->state, p, e);
    if (all_well(h, prepared, e))
        return true;
    h->backend->release(h->state);
    return false;
}

bool harness_run(const struct harness *h, const struct bench_point *p,
                 const struct harness_limits *limits, struct measure_result *out, struct err *e) {
    struct measure_result r;
    uint64_t errors = 0;
    bool check = limits->verify && h->backend->verify != NULL;
    bool ok = !check || verify(h, limits->seed, &errors, e);
    if (ok) {
        double one_s = warm_up(h, limits, e);
        harness_identify(h, p, &r);
        ok = one_s > 0 && repeat(h, limits, one_s, &r, e);
    }
    ok = ok && (!check || verify(h, limits->seed + 1, &errors, e));
    if (ok) {
        rates(h, p, &r);
        r.errors = errors;
        if (h->backend->describe != NULL)
            h->backend->describe(h->state, &r);
        *out = r;
    }
    h->backend->release(h->state);
    return ok;
}
