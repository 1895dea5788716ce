// SPDX-License-Identifier: Apache-2.0
// The laws of compute: GPU memory, matrix products. docs/method.md §calibration-gpu.
#include "judge/calibrate_private.h"

#include "base/stats.h"
#include "cost/compute.h"
#include "describe/gpu_kernels.h"
#include "judge/robust.h"

#include <math.h>
#include <string.h>

// ---- GPU memory ---------------------------------------------------------------------------------

static bool on_gpu(const struct measure_result *r) {
    return r->backend && strcmp(r->backend, "cuda") == 0 && r->median_s > 0 &&
           r->algbw_bytes_per_s > 0 && !r->concurrent && calibrate_usable(r);
}

// Bytes that cross the memory's pins in one iteration; 0: no such result. A copy reads and writes.
static double moved_bytes(const struct measure_result *r) {
    double bytes = r->algbw_bytes_per_s * r->median_s;
    if (!on_gpu(r))
        return 0;
    if (strcmp(r->kind, "copy") == 0 && r->direction && strcmp(r->direction, "d2d") == 0)
        return 2 * bytes;
    return strcmp(r->kind, "memory") == 0 ? bytes : 0;
}

static void set_hbm(struct calibration *c, double bytes_per_s, double log_error, size_t n,
                    struct arena *a) {
    struct gpu *g = &c->cluster.gpu;
    struct figure peak = g->hbm_bytes_per_s;
    const char *source = arena_printf(a, "fit of %zu results in GPU memory", n);
    if (!figure_is_known(peak) || !(peak.value > 0)) {
        calibrate_set(
            c, &g->hbm_bytes_per_s,
            (struct calibrated_rate){.path = "gpu.hbm_bytes_per_s",
                                     .unit = "bytes/s",
                                     .after = calibrate_figure(bytes_per_s, log_error, source),
                                     .samples = n});
        peak.value = bytes_per_s;
    }
    struct figure share = calibrate_figure(bytes_per_s / peak.value, log_error, source);
    calibrate_set(
        c, &g->hbm_fraction,
        (struct calibrated_rate){
            .path = "gpu.hbm_fraction", .unit = "fraction", .after = share, .samples = n});
    calibrate_set(c, &g->kernels[STACK_EAGER].constants[KERNEL_HBM_FRACTION],
                  (struct calibrated_rate){.path = "gpu.kernels.eager.hbm_fraction",
                                           .unit = "fraction",
                                           .after = share,
                                           .samples = n});
}

static void fit_memory(const struct measurement *m, size_t count, struct arena *a,
                       struct calibration *c) {
    size_t n = 0, all = 0;
    double best = 0;
    for (size_t i = 0; i < count; i++)
        all += m[i].count;
    struct series_point *points = arena_array(a, all + 1, sizeof *points);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < m[i].count; k++) {
            double bytes = moved_bytes(&m[i].results[k]);
            if (!(bytes > 0))
                continue;
            points[n++] = (struct series_point){bytes, bytes, m[i].results[k].median_s};
            best = fmax(best, bytes / m[i].results[k].median_s);
        }
    struct series_fit f;
    struct err few = {0};
    if (n && series_fit(points, n, a, &f, &few)) {
        const struct series_law *last = &f.pieces[f.piece_count - 1];
        set_hbm(c, last->bytes_per_s, last->bandwidth_error, n, a);
        if (f.pieces[0].latency_s > 0) // sizes close to each other may say nothing about it
            calibrate_set(
                c, &c->cluster.gpu.kernels[STACK_EAGER].constants[KERNEL_LAUNCH_S],
                (struct calibrated_rate){.path = "gpu.kernels.eager.launch_s",
                                         .unit = "s",
                                         .after = calibrate_figure(f.pieces[0].latency_s,
                                                                   f.pieces[0].latency_error,
                                                                   "latency of GPU memory kernels"),
                                         .samples = n});
    } else if (n) {
        set_hbm(c, best, 0.05, n, a); // one size: repeatability of a single figure
    }
}

// ---- matrix products ----------------------------------------------------------------------------

enum { GEMM_FRACTION, GEMM_HALF_K, GEMM_HALF_TILES, GEMM_LAUNCH, GEMM_FP8, GEMM_PARAMETERS };
static const enum kernel_constant constants[GEMM_PARAMETERS] = {
    [GEMM_FRACTION] = KERNEL_GEMM_FRACTION,
    [GEMM_HALF_K] = KERNEL_GEMM_HALF_K,
    [GEMM_HALF_TILES] = KERNEL_GEMM_HALF_TILES,
    [GEMM_LAUNCH] = KERNEL_LAUNCH_S,
    [GEMM_FP8] = KERNEL_GEMM_FP8_RATIO};

struct product {
    struct gemm_shape shape;
    double seconds;
};

struct gemm_problem {
    const struct gpu *gpu;
    const struct product *points;
    size_t count, skip; // skip: this point is left out; count or more: none
};

static const struct product *point_of(const struct gemm_problem *p, size_t i) {
    return &p->points[i + (i >= p->skip)];
}

static double seconds_with(const struct gpu *gpu, const double *x, const struct gemm_shape *s) {
    struct gpu g = *gpu;
    for (int i = 0; i < GEMM_PARAMETERS; i++)
        g.kernels[STACK_EAGER].constants[constants[i]] =
            figure_known(exp(x[i]), PROVENANCE_FITTED, "fit");
    return compute_gemm_s(&g, STACK_EAGER, s);
}

static double ratio(const double *x, size_t i, const void *context) {
    const struct gemm_problem *p = context;
    const struct product *q = point_of(p, i);
    return seconds_with(p->gpu, x, &q->shape) / q->seconds;
}

static size_t collect(const struct measurement *m, size_t count, bool fp32, struct product *out) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < m[i].count; k++) {
            const struct measure_result *r = &m[i].results[k];
            enum dtype t;
            if (strcmp(r->kind, "gemm") != 0 || (r->backend && strcmp(r->backend, "host") == 0) ||
                !calibrate_usable(r) || !(r->median_s > 0) || !r->m || !r->n || !r->k ||
                !r->dtype || !dtype_find(r->dtype, &t) ||
                (t == DTYPE_FP32 || t == DTYPE_TF32) != fp32)
                continue;
            out[n++] = (struct product){{r->m, r->n, r->k, 1, t}, r->median_s};
        }
    return n;
}

// What the catalog believes, as a prior: three shapes cannot tell five constants.
static void priors(const struct gpu *g, double *x, double *sd) {
    for (int i = 0; i < GEMM_PARAMETERS; i++) {
        struct figure f = gpu_kernel(g, STACK_EAGER, constants[i]);
        double width = f.low > 0 && f.high > f.low ? log(f.high / f.low) / (2 * 1.96) : 0.2;
        x[i] = log(f.value);
        sd[i] = fmax(width, i == GEMM_FP8 ? 0.1 : 0.3);
    }
}

static bool solve(const struct gemm_problem *p, double *x, struct robust_result *r) {
    double before[GEMM_PARAMETERS], sd[GEMM_PARAMETERS];
    priors(p->gpu, before, sd);
    memcpy(x, before, sizeof before);
    const struct robust_problem q = {.points = p->count - (p->skip < p->count),
                                     .parameters = GEMM_PARAMETERS,
                                     .ratio = ratio,
                                     .context = p,
                                     .prior = before,
                                     .prior_sd = sd,
                                     .least_scatter = 0.01,
                                     .tolerance = 1e-6};
    return robust_fit(&q, x, r);
}

static double median_error(const struct gemm_problem *p, const double *x, double *scratch) {
    for (size_t i = 0; i < p->count; i++)
        scratch[i] = fabs(seconds_with(p->gpu, x, &p->points[i].shape) / p->points[i].seconds - 1);
    return stats_median(scratch, p->count);
}

static double left_out_error(struct gemm_problem p, double *scratch) {
    size_t n = 0;
    for (p.skip = 0; p.skip < p.count; p.skip++) {
        double x[GEMM_PARAMETERS];
        struct robust_result r;
        const struct product *q = &p.points[p.skip];
        if (solve(&p, x, &r))
            scratch[n++] = fabs(seconds_with(p.gpu, x, &q->shape) / q->seconds - 1);
    }
    return n ? stats_median(scratch, n) : NAN;
}

static const char *const paths[GEMM_PARAMETERS] = {
    "gpu.kernels.eager.gemm_fraction", "gpu.kernels.eager.gemm_half_k",
    "gpu.kernels.eager.gemm_half_tiles", "gpu.kernels.eager.launch_s",
    "gpu.kernels.eager.gemm_fp8_ratio"};

static bool has_fp8(const struct gemm_problem *p) {
    for (size_t i = 0; i < p->count; i++)
        if (p->points[i].shape.dtype == DTYPE_FP8)
            return true;
    return false;
}

// Other stacks call the same library: their own constants keep their ratio to the eager one.
static void keep_ratio(struct gpu *g, double factor, const char *source) {
    for (int s = 0; s < STACK_COUNT; s++) {
        struct figure *f = &g->kernels[s].constants[KERNEL_GEMM_FRACTION];
        if (s == STACK_EAGER || !figure_is_known(*f) || !f->source)
            continue;
        *f = (struct figure){.value = fmin(f->value * factor, 1),
                             .low = fmin(f->low * factor, 1),
                             .high = fmin(f->high * factor, 1),
                             .provenance = f->provenance,
                             .source = source};
    }
}

static void apply(const struct gemm_problem *p, const double *x, const struct robust_result *r,
                  struct arena *a, struct calibration *c) {
    struct gpu *g = &c->cluster.gpu;
    const char *source = arena_printf(a, "fit of %zu matrix products", p->count);
    double before = gpu_kernel(g, STACK_EAGER, KERNEL_GEMM_FRACTION).value;
    for (int i = 0; i < GEMM_PARAMETERS; i++)
        if (i != GEMM_FP8 || has_fp8(p))
            calibrate_set(
                c, &g->kernels[STACK_EAGER].constants[constants[i]],
                (struct calibrated_rate){.path = paths[i],
                                         .unit = i == GEMM_LAUNCH ? "s" : "1",
                                         .after = calibrate_figure(exp(x[i]), r->errors[i], source),
                                         .samples = p->count});
    keep_ratio(g, exp(x[GEMM_FRACTION]) / before,
               arena_printf(a, "scaled as the eager figure by a %s", source));
}

// fp32 has a share of its own: the rate of the law's other factors held.
static void fit_fp32(const struct measurement *m, size_t count, struct product *room,
                     double *scratch, struct calibration *c) {
    struct gpu *g = &c->cluster.gpu;
    size_t n = collect(m, count, true, room);
    struct gpu unit = *g;
    unit.matmul_fraction[DTYPE_FP32] = figure_known(1, PROVENANCE_FITTED, "unit");
    double launch_s = gpu_kernel(g, STACK_EAGER, KERNEL_LAUNCH_S).value;
    for (size_t i = 0; i < n; i++) {
        room[i].shape.dtype = DTYPE_FP32;
        scratch[i] = (compute_gemm_s(&unit, STACK_EAGER, &room[i].shape) - launch_s) /
                     fmax(room[i].seconds - launch_s, 0.1 * room[i].seconds);
    }
    if (n == 0)
        return;
    double share = stats_median(scratch, n);
    double spread = n > 1 ? stats_stddev(scratch, n) / share / sqrt((double)n) : 0.05;
    calibrate_set(
        c, &g->matmul_fraction[DTYPE_FP32],
        (struct calibrated_rate){
            .path = "gpu.matmul_fraction.fp32",
            .unit = "fraction",
            .after = calibrate_figure(fmin(share, 1), spread, "fp32 matrix products measured here"),
            .samples = n});
}

#define GEMM_LEAST 3

void calibrate_gpu(const struct measurement *m, size_t count, struct arena *a,
                   struct calibration *c) {
    size_t all = 0;
    for (size_t i = 0; i < count; i++)
        all += m[i].count;
    struct product *points = arena_array(a, all + 1, sizeof *points);
    double *scratch = arena_array(a, all + 1, sizeof *scratch);
    double x[GEMM_PARAMETERS], sd[GEMM_PARAMETERS];
    struct robust_result r;
    fit_memory(m, count, a, c);
    struct gpu before = c->cluster.gpu;
    struct gemm_problem p = {.gpu = &before, .points = points};
    p.count = collect(m, count, false, points);
    p.skip = p.count;
    c->gemm =
        (struct calibrated_law){.points = p.count, .before = NAN, .after = NAN, .left_out = NAN};
    if (p.count > 0 && p.count < GEMM_LEAST)
        c->gemm.refused = "fewer than three products";
    if (p.count >= GEMM_LEAST) {
        priors(&before, x, sd);
        c->gemm.before = median_error(&p, x, scratch);
        if (solve(&p, x, &r)) {
            c->gemm.after = median_error(&p, x, scratch);
            c->gemm.left_out = left_out_error(p, scratch);
            apply(&p, x, &r, a, c);
        } else {
            c->gemm.refused = "no law fits these products";
        }
    }
    fit_fp32(m, count, points, scratch, c);
}
