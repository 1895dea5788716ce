// SPDX-License-Identifier: Apache-2.0
// Training runs move the GPU's and host's constants; docs/method.md §calibration-runs.
#include "judge/calibrate_private.h"

#include "base/stats.h"
#include "describe/gpu_kernels.h"
#include "judge/robust.h"
#include "judge/validate_map.h"
#include "plan/step.h"

#include <math.h>
#include <string.h>
#include <strings.h>

// Constants that a handful of step times can tell apart: each group moves by one factor.
static const struct group {
    enum kernel_constant members[2];
    size_t count;
} groups[] = {
    {{KERNEL_GEMM_FRACTION}, 1},
    {{KERNEL_ATTENTION_FORWARD_FRACTION, KERNEL_ATTENTION_BACKWARD_FRACTION}, 2},
    {{KERNEL_HBM_FRACTION}, 1},
    {{KERNEL_ISSUE_S, KERNEL_UNIT_HOST_S}, 2},
    {{KERNEL_STEP_HOST_S}, 1},
    {{KERNEL_OVERLAP_LOSS}, 1},
};
#define GROUPS (sizeof groups / sizeof groups[0])
_Static_assert(GROUPS <= ROBUST_PARAMETERS_MAX, "a parameter per group");
#define FOLDS_MAX 10
// Step times of one machine repeat within a few percent.
static const double run_scatter = 0.03;

struct run {
    struct run_setup setup;
    double step_s;
};

struct runs {
    const struct run *items;
    size_t count;
    size_t fold, folds; // rows of this fold are left out; folds 0: none
};

static struct figure moved(struct figure f, double factor) {
    return figure_known(f.value * factor, PROVENANCE_FITTED, "fit");
}

static void move_constants(const struct gpu *from, const double *x, enum kernel_stack s,
                           struct gpu *to) {
    for (size_t i = 0; i < GROUPS; i++)
        for (size_t k = 0; k < groups[i].count; k++) {
            enum kernel_constant c = groups[i].members[k];
            to->kernels[s].constants[c] = moved(gpu_kernel(from, s, c), exp(x[i]));
        }
}

static double ratio_of(const struct run *r, const double *x) {
    struct cluster c = r->setup.cluster;
    struct step_request q = {
        .model = &r->setup.model, .cluster = &c, .recipe = &r->setup.recipe, .quick = true};
    struct arena *a = arena_create();
    struct step_time t;
    struct err e = {0};
    move_constants(&r->setup.cluster.gpu, x, r->setup.recipe.stack, &c.gpu);
    double ratio = step_simulate(&q, a, &t, NULL, &e) ? t.step_s / r->step_s : NAN;
    arena_destroy(a);
    return ratio;
}

static const struct run *kept(const struct runs *r, size_t i) {
    for (size_t k = 0; k < r->count; k++)
        if (!(r->folds && k % r->folds == r->fold) && i-- == 0)
            return &r->items[k];
    return NULL;
}

static double ratio(const double *x, size_t i, const void *context) {
    return ratio_of(kept(context, i), x);
}

static size_t kept_count(const struct runs *r) {
    size_t n = 0;
    while (kept(r, n))
        n++;
    return n;
}

// The catalog's own intervals say how far a constant may move.
static void prior_of(const struct run *r, double *mean, double *sd) {
    for (size_t i = 0; i < GROUPS; i++) {
        struct figure f =
            gpu_kernel(&r->setup.cluster.gpu, r->setup.recipe.stack, groups[i].members[0]);
        double width = f.low > 0 && f.high > f.low ? log(f.high / f.low) / (2 * 1.96) : 0.1;
        mean[i] = 0;
        sd[i] = fmin(fmax(width, 0.05), 0.7);
    }
}

static bool solve(const struct runs *r, double *x, struct robust_result *out) {
    double mean[GROUPS], sd[GROUPS];
    prior_of(&r->items[0], mean, sd);
    memcpy(x, mean, sizeof mean);
    const struct robust_problem q = {.points = kept_count(r),
                                     .parameters = GROUPS,
                                     .ratio = ratio,
                                     .context = r,
                                     .prior = mean,
                                     .prior_sd = sd,
                                     .least_scatter = run_scatter,
                                     .tolerance = 1e-3};
    return q.points > 0 && robust_fit(&q, x, out);
}

static double median_error(const struct runs *r, const double *x, double *scratch) {
    for (size_t i = 0; i < r->count; i++)
        scratch[i] = fabs(ratio_of(&r->items[i], x) - 1);
    return stats_median(scratch, r->count);
}

static double left_out_error(struct runs r, double *scratch) {
    size_t n = 0;
    for (r.fold = 0; r.fold < r.folds; r.fold++) {
        double x[GROUPS];
        struct robust_result unused;
        if (!solve(&r, x, &unused))
            return NAN;
        for (size_t i = r.fold; i < r.count; i += r.folds)
            scratch[n++] = fabs(ratio_of(&r.items[i], x) - 1);
    }
    return n ? stats_median(scratch, n) : NAN;
}

static bool same_gpu(const struct run_row *row, const struct gpu *g) {
    return (row->score.gpu_id && strcasecmp(row->score.gpu_id, g->id) == 0) ||
           (row->gpu && (strcasecmp(row->gpu, g->id) == 0 || strcasecmp(row->gpu, g->name) == 0));
}

// The row on this cluster; on the row's own network where its source states one.
static bool place(const struct run_row *row, const struct cluster *c, struct run_setup *s,
                  struct err *e) {
    const char *network = row->score.network_provenance;
    bool stated = network && strcmp(network, "stated") == 0;
    uint64_t nodes = s->cluster.nodes, gpus = s->cluster.gpus;
    if (!stated && s->cluster.gpus_per_node == c->gpus_per_node) {
        s->cluster = *c;
        return cluster_resize(&s->cluster, nodes, gpus, e);
    }
    s->cluster.gpu = c->gpu;
    return true;
}

static bool take(const struct run_row *row, const struct cluster *c, struct arena *a,
                 struct run *out, struct err *e) {
    const double as_is[GROUPS] = {0};
    if (!same_gpu(row, &c->gpu))
        return err_set(e, ERR_INPUT, "ran on another GPU than %s", c->gpu.id);
    if (!row->score.time_scored || !(row->score.step_s > 0))
        return err_set(e, ERR_INPUT, "%s",
                       row->score.time_reason ? row->score.time_reason : "no step time");
    if (row->float8)
        return err_set(e, ERR_INPUT, "float8 runs are not fitted");
    if (!validate_map_row(row, a, &out->setup, e) || !place(row, c, &out->setup, e))
        return false;
    out->step_s = row->score.step_s;
    return isfinite(ratio_of(out, as_is)) || err_set(e, ERR_INPUT, "its step has no time");
}

static void apply(const struct runs *r, const double *x, const struct robust_result *fit,
                  struct arena *a, struct calibration *c) {
    const char *source = arena_printf(a, "fit of %zu training runs", r->count);
    const struct gpu before = c->cluster.gpu;
    bool used[STACK_COUNT] = {false};
    for (size_t i = 0; i < r->count; i++)
        used[r->items[i].setup.recipe.stack] = true;
    for (int s = 0; s < STACK_COUNT; s++)
        for (size_t i = 0; used[s] && i < GROUPS; i++)
            for (size_t k = 0; k < groups[i].count; k++) {
                enum kernel_constant m = groups[i].members[k];
                const char *name = kernel_constant_names[m];
                double value = gpu_kernel(&before, (enum kernel_stack)s, m).value * exp(x[i]);
                if (strstr(name, "fraction"))
                    value = fmin(value, 1);
                calibrate_set(
                    c, &c->cluster.gpu.kernels[s].constants[m],
                    (struct calibrated_rate){
                        .path = arena_printf(a, "gpu.kernels.%s.%s", kernel_stack_keys[s], name),
                        .unit = strstr(name, "_s") ? "s" : "1",
                        .after = calibrate_figure(value, fit->errors[i], source),
                        .samples = r->count});
            }
}

static bool fit_runs(struct runs *r, struct arena *a, struct calibration *c, struct err *e) {
    double x[GROUPS] = {0}, *scratch = arena_array(a, r->count + 1, sizeof *scratch);
    struct calibrated_law *law = &c->runs.law;
    struct robust_result fit;
    law->points = r->count;
    law->before = median_error(r, x, scratch);
    law->left_out = NAN;
    if (!solve(r, x, &fit))
        return err_set(e, ERR_RESOURCE, "no constants fit these %zu runs", r->count);
    law->after = median_error(r, x, scratch);
    if (r->count > 1) {
        struct runs folds = *r;
        folds.folds = c->runs.folds = r->count < FOLDS_MAX ? r->count : FOLDS_MAX;
        law->left_out = left_out_error(folds, scratch);
        if (!(law->left_out < law->before))
            law->refused = "runs that were left out are predicted no better with them";
    }
    if (!law->refused)
        apply(r, x, &fit, a, c);
    return true;
}

bool calibrate_runs(const char *path, struct arena *a, struct calibration *c, struct err *e) {
    struct run_row *rows;
    size_t count;
    if (!validate_row_read(path, a, &rows, &count, e))
        return false;
    struct run *items = arena_array(a, count + 1, sizeof *items);
    struct runs r = {.items = items};
    for (size_t i = 0; i < count; i++) {
        struct err why = {0};
        if (take(&rows[i], &c->cluster, a, &items[r.count], &why)) {
            r.count++;
            continue;
        }
        if (c->runs.left_out++ == 0)
            c->runs.left_out_note = arena_printf(a, "%s: %s", rows[i].id, why.text);
    }
    if (r.count == 0)
        return err_set(e, ERR_RESOURCE, "none of %zu runs can be used%s%s", count,
                       count ? "; first: " : "", count ? c->runs.left_out_note : "");
    return fit_runs(&r, a, c, e);
}
