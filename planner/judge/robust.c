// SPDX-License-Identifier: Apache-2.0
#include "judge/robust.h"

#include "base/stats.h"

#include <gsl/gsl_blas.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit_nlinear.h>
#include <math.h>
#include <string.h>

// Beyond 1.345 robust deviations a point pulls like one at the edge (Huber).
static const double edge = 1.345;
#define ROUNDS 4

struct problem {
    const struct robust_problem *of;
    size_t rows; // points, then one row per prior
    double scatter;
};

static size_t priors(const struct robust_problem *p) {
    return p->prior ? p->parameters : 0;
}

static int residuals(const gsl_vector *x, void *context, gsl_vector *f) {
    const struct problem *p = context;
    const struct robust_problem *of = p->of;
    for (size_t i = 0; i < of->points; i++)
        gsl_vector_set(f, i, of->ratio(x->data, i, of->context) - 1);
    for (size_t i = 0; i < priors(of); i++)
        gsl_vector_set(f, of->points + i,
                       p->scatter * (gsl_vector_get(x, i) - of->prior[i]) / of->prior_sd[i]);
    return GSL_SUCCESS;
}

static int jacobian(const gsl_vector *x, void *context, gsl_matrix *j) {
    const struct problem *p = context;
    const struct robust_problem *of = p->of;
    for (size_t i = 0; i < of->points; i++)
        of->gradient(x->data, i, of->context, gsl_matrix_ptr(j, i, 0));
    for (size_t i = 0; i < priors(of); i++)
        for (size_t k = 0; k < of->parameters; k++)
            gsl_matrix_set(j, of->points + i, k, i == k ? p->scatter / of->prior_sd[i] : 0);
    return GSL_SUCCESS;
}

static double reweigh(const struct problem *p, const gsl_vector *f, gsl_vector *weights,
                      double *sorted) {
    size_t n = p->of->points;
    for (size_t i = 0; i < n; i++)
        sorted[i] = fabs(gsl_vector_get(f, i));
    double scale = fmax(1.4826 * stats_median(sorted, n), fmax(p->of->least_scatter, 1e-9));
    gsl_vector_set_all(weights, 1);
    for (size_t i = 0; i < n; i++) {
        double u = fabs(gsl_vector_get(f, i)) / (edge * scale);
        gsl_vector_set(weights, i, u > 1 ? 1 / u : 1);
    }
    return scale;
}

static double root_mean_square(const gsl_vector *f, size_t n) {
    double squares = 0;
    for (size_t i = 0; i < n; i++)
        squares += gsl_vector_get(f, i) * gsl_vector_get(f, i);
    return sqrt(squares / (double)n);
}

// Huber's estimate of the spread behind the parameters' covariance: clipped squares per degree of
// freedom over the squared share of points that pull in full.
static double spread_of(const struct problem *p, const gsl_vector *f, double scale) {
    double squares = 0, inside = 0, n = (double)p->of->points, m = (double)p->of->parameters;
    for (size_t i = 0; i < p->of->points; i++) {
        double u = fmin(fabs(gsl_vector_get(f, i)) / scale, edge);
        squares += u * u;
        inside += u < edge;
    }
    if (p->of->prior) // a prior pays for its own parameter
        return scale * fmax(1, sqrt(squares / n));
    double free = fmax(1.0, n - m), share = fmax(inside / n, 0.2);
    // The correction 1 + p/n (1 - m)/m is Huber's, for small samples.
    double small = 1 + m / n * (1 - share) / share;
    double spread = small * scale * sqrt(squares / free) / share;
    // Too few points to be robust.
    return p->of->points <= p->of->parameters + 2 ? fmax(spread, root_mean_square(f, p->of->points))
                                                  : spread;
}

struct work {
    gsl_multifit_nlinear_workspace *solver;
    gsl_multifit_nlinear_fdf fdf;
    gsl_vector *x, *weights, *plain, *sorted;
    gsl_matrix *covariance;
};

static void work_init(struct work *w, struct problem *p) {
    gsl_multifit_nlinear_parameters how = gsl_multifit_nlinear_default_parameters();
    size_t n = p->of->parameters;
    if (p->of->gradient == NULL)
        how.h_df = 1e-4; // a simulation is smooth only above its own rounding
    w->fdf = (gsl_multifit_nlinear_fdf){
        .f = residuals, .df = p->of->gradient ? jacobian : NULL, .n = p->rows, .p = n, .params = p};
    w->solver = gsl_multifit_nlinear_alloc(gsl_multifit_nlinear_trust, &how, p->rows, n);
    w->x = gsl_vector_alloc(n);
    w->weights = gsl_vector_alloc(p->rows);
    w->plain = gsl_vector_alloc(p->rows);
    w->covariance = gsl_matrix_alloc(n, n);
    w->sorted = gsl_vector_alloc(p->rows);
    gsl_vector_set_all(w->weights, 1);
}

static void work_finish(struct work *w) {
    gsl_vector_free(w->sorted);
    gsl_matrix_free(w->covariance);
    gsl_vector_free(w->plain);
    gsl_vector_free(w->weights);
    gsl_vector_free(w->x);
    gsl_multifit_nlinear_free(w->solver);
}

static bool iterate(struct work *w, struct problem *p, double *spread) {
    double tolerance = p->of->tolerance > 0 ? p->of->tolerance : 1e-9;
    int info, status = GSL_SUCCESS;
    for (int round = 0; round < ROUNDS && status == GSL_SUCCESS; round++) {
        gsl_multifit_nlinear_winit(w->x, w->weights, &w->fdf, w->solver);
        status =
            gsl_multifit_nlinear_driver(100, tolerance, tolerance, 0, NULL, NULL, &info, w->solver);
        if (status == GSL_EMAXITER || status == GSL_ENOPROG)
            status = GSL_SUCCESS; // flat directions end here; the covariance shows it
        gsl_vector_memcpy(w->x, gsl_multifit_nlinear_position(w->solver));
        residuals(w->x, p, w->plain);
        p->scatter = reweigh(p, w->plain, w->weights, w->sorted->data);
        *spread = spread_of(p, w->plain, p->scatter);
    }
    return status == GSL_SUCCESS;
}

bool robust_fit(const struct robust_problem *of, double *x, struct robust_result *out) {
    struct problem p = {.of = of, .rows = of->points + priors(of)};
    struct work w;
    double spread = 0;
    p.scatter = fmax(of->least_scatter, 0.03);
    gsl_error_handler_t *before = gsl_set_error_handler_off();
    work_init(&w, &p);
    memcpy(w.x->data, x, of->parameters * sizeof *x);
    bool ok = iterate(&w, &p, &spread);
    gsl_multifit_nlinear_covar(gsl_multifit_nlinear_jac(w.solver), 1e-12, w.covariance);
    for (size_t i = 0; i < of->parameters; i++)
        ok = ok && isfinite(gsl_vector_get(w.x, i));
    if (ok) {
        memcpy(x, w.x->data, of->parameters * sizeof *x);
        *out = (struct robust_result){.scatter = p.scatter};
        for (size_t i = 0; i < of->parameters; i++)
            out->errors[i] = spread * sqrt(gsl_matrix_get(w.covariance, i, i));
    }
    work_finish(&w);
    gsl_set_error_handler(before);
    return ok;
}
