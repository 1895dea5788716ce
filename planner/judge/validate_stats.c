// SPDX-License-Identifier: Apache-2.0
#include "judge/validate_stats.h"

#include "base/stats.h"

#include <math.h>
#include <string.h>

#define EXPOSED_SHARE 0.10

// What a score is taken over: every non-NULL text must match.
struct selection {
    enum validate_metric metric;
    const char *group, *part;
    int exposed; // 1: rows with at least 10 % exposed communication or offload; 0: any
};

static bool selected(const struct validate_point *p, const struct selection *s) {
    return p->scored && p->metric == s->metric &&
           (s->group == NULL || strcmp(p->group, s->group) == 0) &&
           (s->part == NULL || strcmp(p->part, s->part) == 0) &&
           (s->exposed == 0 || p->exposed_fraction >= EXPOSED_SHARE);
}

// Runs are averaged over their sources, collectives over their clusters.
static const char *macro_key(const struct validate_point *p) {
    return p->metric == METRIC_BUSBW ? p->part : p->source;
}

static double macro_mape(const struct validate_point *p, size_t n, const struct selection *s) {
    double total = 0.0;
    size_t sources = 0;
    for (size_t i = 0; i < n; i++) {
        if (!selected(&p[i], s)) {
            continue;
        }
        double sum = 0.0;
        size_t members = 0;
        bool first = true;
        for (size_t k = 0; k < n; k++) {
            if (!selected(&p[k], s) || strcmp(macro_key(&p[k]), macro_key(&p[i])) != 0) {
                continue;
            }
            first = first && k >= i;
            sum += p[k].ape;
            members++;
        }
        if (first) {
            total += sum / (double)members;
            sources++;
        }
    }
    return sources > 0 ? total / (double)sources : NAN;
}

static struct validate_score score_of(const struct validate_point *p, size_t n,
                                      const struct selection *s, struct arena *a) {
    struct validate_score r = {0, NAN, NAN, NAN, NAN, NAN, NAN};
    double *apes = arena_array(a, n + 1, sizeof *apes);
    double bias = 0.0;
    for (size_t i = 0; i < n; i++) {
        if (selected(&p[i], s)) {
            apes[r.n++] = p[i].ape;
            bias += p[i].predicted / p[i].measured - 1.0;
        }
    }
    if (r.n == 0) {
        return r;
    }
    r.mape = stats_mean(apes, r.n);
    r.bias = bias / (double)r.n;
    r.macro_mape = macro_mape(p, n, s);
    r.median_ape = stats_quantile(apes, r.n, 0.5);
    r.p90_ape = stats_quantile(apes, r.n, 0.9);
    r.max_ape = stats_quantile(apes, r.n, 1.0);
    return r;
}

struct validate_score validate_score_of(const struct validate_point *p, size_t n,
                                        enum validate_metric metric, const char *group,
                                        struct arena *a) {
    const struct selection s = {.metric = metric, .group = group};
    return score_of(p, n, &s, a);
}

static void add_group(struct validate_result *r, const char *name, const char *by,
                      const struct selection *s, struct arena *a) {
    if (r->group_count == VALIDATE_GROUPS_MAX) {
        return;
    }
    const struct validate_score score = score_of(r->points, r->point_count, s, a);
    if (score.n > 0) {
        r->groups[r->group_count++] = (struct validate_group){name, by, s->metric, score};
    }
}

static bool seen_before(const struct validate_result *r, size_t at) {
    for (size_t i = 0; i < at; i++) {
        const struct validate_point *p = &r->points[i], *q = &r->points[at];
        if (p->scored && p->metric == q->metric && strcmp(p->part, q->part) == 0 &&
            strcmp(p->group, q->group) == 0) {
            return true;
        }
    }
    return false;
}

// Share of points whose measurement lies inside the predicted interval.
static double coverage(const struct validate_result *r, const struct selection *s) {
    size_t n = 0, inside = 0;
    for (size_t i = 0; i < r->point_count; i++) {
        const struct validate_point *p = &r->points[i];
        if (selected(p, s) && isfinite(p->low) && isfinite(p->high)) {
            n++;
            inside += p->measured >= p->low && p->measured <= p->high;
        }
    }
    return n > 0 ? (double)inside / (double)n : NAN;
}

static double median_half_width(const struct validate_result *r, const struct selection *s,
                                struct arena *a) {
    double *widths = arena_array(a, r->point_count + 1, sizeof *widths);
    size_t n = 0;
    for (size_t i = 0; i < r->point_count; i++) {
        const struct validate_point *p = &r->points[i];
        if (selected(p, s) && isfinite(p->low) && isfinite(p->high)) {
            widths[n++] = (p->high - p->low) / 2.0 / p->predicted;
        }
    }
    return n > 0 ? stats_median(widths, n) : NAN;
}

static void add_parts(struct validate_result *r, const char *by, struct arena *a) {
    for (size_t i = 0; i < r->point_count; i++) {
        const struct validate_point *p = &r->points[i];
        if (p->scored && !seen_before(r, i)) {
            const struct selection s = {.metric = p->metric, .group = p->group, .part = p->part};
            add_group(r, arena_printf(a, "%s %s", p->group, p->part), by, &s, a);
        }
    }
}

void validate_stats_runs(struct validate_result *r, struct arena *a) {
    const char *dp = score_group_names[SCORE_DATA_PARALLEL];
    const struct selection time = {.metric = METRIC_STEP_TIME, .group = dp};
    const struct selection memory = {.metric = METRIC_MEMORY};
    r->step_time = score_of(r->points, r->point_count, &time, a);
    r->memory = score_of(r->points, r->point_count, &memory, a);
    r->collectives = (struct validate_score){0, NAN, NAN, NAN, NAN, NAN, NAN};
    r->coverage_step_time = coverage(r, &time);
    r->coverage_memory = coverage(r, &memory);
    r->median_half_width = median_half_width(r, &time, a);
    for (int metric = METRIC_STEP_TIME; metric <= METRIC_MEMORY; metric++) {
        for (int g = 0; g < SCORE_GROUP_COUNT; g++) {
            const struct selection s = {.metric = (enum validate_metric)metric,
                                        .group = score_group_names[g]};
            add_group(r, score_group_names[g], "group", &s, a);
        }
    }
    const struct selection exposed = {.metric = METRIC_STEP_TIME, .exposed = 1};
    add_group(r, "exposed communication or offload >= 10 %", "exposed", &exposed, a);
    add_parts(r, "stack/strategy", a);
}

void validate_stats_collectives(struct validate_result *r, struct arena *a) {
    const struct selection all = {.metric = METRIC_BUSBW};
    const struct validate_score none = {0, NAN, NAN, NAN, NAN, NAN, NAN};
    r->step_time = r->memory = none;
    r->coverage_step_time = r->coverage_memory = NAN;
    r->collectives = score_of(r->points, r->point_count, &all, a);
    r->median_half_width = median_half_width(r, &all, a);
    for (size_t i = 0; i < r->point_count; i++) {
        const struct validate_point *p = &r->points[i];
        bool first = p->scored;
        for (size_t k = 0; k < i && first; k++) {
            first = !(r->points[k].scored && strcmp(r->points[k].group, p->group) == 0);
        }
        if (first) {
            const struct selection s = {.metric = METRIC_BUSBW, .group = p->group};
            add_group(r, p->group, "group", &s, a);
        }
    }
    add_parts(r, "cluster", a);
}
