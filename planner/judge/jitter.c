// SPDX-License-Identifier: Apache-2.0
#include "judge/jitter.h"

#include "base/stats.h"

#include <math.h>

enum { STREAM_STRAGGLER = 1, STREAM_TASKS = 2 }; // of the counter-based generator

struct draws {
    const struct jitter_request *q;
    uint64_t ranks;
};

// P. J. Acklam's rational approximation, relative error below 1.2e-9.
double jitter_normal_quantile(double upper_tail) {
    static const double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                               -2.759285104469687e+02, 1.383577518672690e+02,
                               -3.066479806614716e+01, 2.506628277459239e+00};
    static const double b[] = {-5.447609879822406e+01, 1.615858368580409e+02,
                               -1.556989798598866e+02, 6.680131188771972e+01,
                               -1.328068155288572e+01};
    static const double c[] = {-7.784894002430293e-03, -3.223964580411365e-01,
                               -2.400758277161838e+00, -2.549732539343734e+00,
                               4.374664141464968e+00,  2.938163982698783e+00};
    static const double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                               3.754408661907416e+00};
    const double tail = 0.02425;
    double p = upper_tail;
    if (p > 0.5)
        return -jitter_normal_quantile(1 - p);
    if (p < tail) {
        double t = sqrt(-2 * log(p));
        return -(((((c[0] * t + c[1]) * t + c[2]) * t + c[3]) * t + c[4]) * t + c[5]) /
               ((((d[0] * t + d[1]) * t + d[2]) * t + d[3]) * t + 1);
    }
    double t = p - 0.5, r = t * t;
    return -(((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * t /
           (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
}

static bool has_straggler(const struct draws *d, uint64_t draw) {
    double none = pow(1 - d->q->straggler_rate, (double)d->ranks);
    return stats_random_uniform(d->q->seed, STREAM_STRAGGLER, draw) >= none;
}

// The largest of `ranks` independent normal draws has distribution function F^ranks, so one uniform
// number gives it, however many ranks there are.
static double multiplier(void *context, uint64_t draw, uint32_t task, bool compute) {
    const struct draws *d = context;
    if (!compute)
        return 1;
    double u = stats_random_uniform(d->q->seed, STREAM_TASKS + draw, task);
    double smallest = 1e-12;
    double upper_tail = -expm1(log(fmax(u, smallest)) / (double)d->ranks);
    double worst = 1 + d->q->relative_sd * jitter_normal_quantile(fmax(upper_tail, smallest));
    double slow = has_straggler(d, draw) ? d->q->straggler_slowdown : 1;
    return fmax(worst, 0) * slow;
}

static bool check(const struct jitter_request *q, struct err *e) {
    if (!(q->relative_sd >= 0 && q->relative_sd < 1))
        return err_set(e, ERR_USAGE, "jitter must be at least 0 and below 1");
    if (!(q->straggler_rate >= 0 && q->straggler_rate < 1) || !(q->straggler_slowdown >= 1))
        return err_set(e, ERR_USAGE, "stragglers: the rate is in [0, 1), the slowdown at least 1");
    if (q->draws == 0)
        return err_set(e, ERR_USAGE, "jitter needs at least one draw");
    return true;
}

static double base(void *context, uint64_t draw, uint32_t task, bool compute) {
    (void)context, (void)draw, (void)task, (void)compute;
    return 1;
}

bool jitter_estimate(const struct jitter_request *q, struct arena *a, struct jitter_result *out,
                     struct err *e) {
    struct draws d = {.q = q, .ranks = q->ranks ? q->ranks : q->step.recipe->world};
    struct step_draws draws = {.count = q->draws, .multiplier = multiplier, .context = &d};
    struct step_draws once = {.count = 1, .multiplier = base};
    struct jitter_result r = {0};
    if (!check(q, e))
        return false;
    double *step_s = arena_array(a, q->draws, sizeof *step_s);
    if (!step_resample(&q->step, &once, a, &r.base_s, e) ||
        !step_resample(&q->step, &draws, a, step_s, e))
        return false;
    for (uint64_t i = 0; i < q->draws; i++)
        r.straggler_share += has_straggler(&d, i) ? 1.0 / (double)q->draws : 0;
    r.mean_s = stats_mean(step_s, q->draws);
    stats_sort(step_s, q->draws);
    r.p50_s = stats_quantile_sorted(step_s, q->draws, 0.50);
    r.p95_s = stats_quantile_sorted(step_s, q->draws, 0.95);
    r.p99_s = stats_quantile_sorted(step_s, q->draws, 0.99);
    *out = r;
    return true;
}
