// SPDX-License-Identifier: Apache-2.0
#include "judge/series.h"

#include "base/stats.h"

#include <gsl/gsl_blas.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit_nlinear.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Logarithms of the parameters keep them positive; residuals are relative, so a microsecond message
// counts as much as a second-long one.
struct problem {
    const struct series_point *points;
    size_t count;
    bool saturates;
    double prior_half; // the saturation is held near a payload it can be seen at
};

static double law(const gsl_vector *x, const struct problem *p, size_t i) {
    const struct series_point *s = &p->points[i];
    double half = p->saturates ? exp(gsl_vector_get(x, 2)) : 0;
    return exp(gsl_vector_get(x, 0)) +
           s->sent_bytes / exp(gsl_vector_get(x, 1)) * (1 + sqrt(half / s->payload_bytes));
}

static int residuals(const gsl_vector *x, void *context, gsl_vector *f) {
    const struct problem *p = context;
    for (size_t i = 0; i < p->count; i++)
        gsl_vector_set(f, i, law(x, p, i) / p->points[i].seconds - 1);
    return GSL_SUCCESS;
}

static int jacobian(const gsl_vector *x, void *context, gsl_matrix *j) {
    const struct problem *p = context;
    double latency = exp(gsl_vector_get(x, 0)), rate = exp(gsl_vector_get(x, 1));
    double half = p->saturates ? exp(gsl_vector_get(x, 2)) : 0;
    for (size_t i = 0; i < p->count; i++) {
        const struct series_point *s = &p->points[i];
        double root = sqrt(half / s->payload_bytes), base = s->sent_bytes / rate;
        gsl_matrix_set(j, i, 0, latency / s->seconds);
        gsl_matrix_set(j, i, 1, -base * (1 + root) / s->seconds);
        if (p->saturates)
            gsl_matrix_set(j, i, 2, base * root / 2 / s->seconds);
    }
    return GSL_SUCCESS;
}

// Start from the ends: the smallest message is latency, the largest bandwidth.
static void start(const struct problem *p, gsl_vector *x) {
    const struct series_point *small = &p->points[0], *large = &p->points[p->count - 1];
    double rate =
        large->sent_bytes / fmax(large->seconds - 0.5 * small->seconds, 0.1 * large->seconds);
    gsl_vector_set(x, 0,
                   log(fmax(small->seconds - small->sent_bytes / rate, 0.2 * small->seconds)));
    gsl_vector_set(x, 1, log(rate));
    if (p->saturates)
        gsl_vector_set(x, 2, log(p->prior_half));
}

// Beyond 1.345 robust deviations a point pulls like one at the edge (Huber).
static const double edge = 1.345;

static double reweigh(const gsl_vector *f, gsl_vector *weights, double *sorted) {
    for (size_t i = 0; i < f->size; i++)
        sorted[i] = fabs(gsl_vector_get(f, i));
    double scale = fmax(1.4826 * stats_median(sorted, f->size), 1e-9);
    for (size_t i = 0; i < f->size; i++) {
        double u = fabs(gsl_vector_get(f, i)) / (edge * scale);
        gsl_vector_set(weights, i, u > 1 ? 1 / u : 1);
    }
    return scale;
}

// Huber's estimate of the spread behind the parameters' covariance: clipped squares per degree of
// freedom over the squared share of points that pull in full.
static double spread_of(const gsl_vector *f, double scale, size_t parameters) {
    double squares = 0, inside = 0;
    for (size_t i = 0; i < f->size; i++) {
        double u = fmin(fabs(gsl_vector_get(f, i)) / scale, edge);
        squares += u * u;
        inside += u < edge;
    }
    double n = (double)f->size, free = fmax(1.0, n - (double)parameters);
    double share = fmax(inside / n, 0.2);
    // The correction 1 + p/n (1 - m)/m is Huber's, for small samples.
    double small = 1 + (double)parameters / n * (1 - share) / share;
    return small * scale * sqrt(squares / free) / share;
}

struct spread {
    double scatter, parameters;
};

static void keep(const struct problem *p, const gsl_vector *x, const gsl_matrix *covariance,
                 const struct spread *w, struct series_law *out) {
    double spread = w->parameters;
    *out = (struct series_law){.latency_s = exp(gsl_vector_get(x, 0)),
                               .bytes_per_s = exp(gsl_vector_get(x, 1)),
                               .half_bytes = p->saturates ? exp(gsl_vector_get(x, 2)) : 0,
                               .latency_error = spread * sqrt(gsl_matrix_get(covariance, 0, 0)),
                               .bandwidth_error = spread * sqrt(gsl_matrix_get(covariance, 1, 1)),
                               .scatter = w->scatter,
                               .min_payload_bytes = p->points[0].payload_bytes,
                               .max_payload_bytes = p->points[p->count - 1].payload_bytes,
                               .points = p->count,
                               .saturates = p->saturates};
    if (p->saturates)
        out->half_error = spread * sqrt(gsl_matrix_get(covariance, 2, 2));
}

static double root_mean_square(const gsl_vector *f) {
    return gsl_blas_dnrm2(f) / sqrt((double)f->size);
}

static bool solve(const struct problem *p, struct series_law *out) {
    size_t n = p->saturates ? 3 : 2;
    gsl_multifit_nlinear_parameters how = gsl_multifit_nlinear_default_parameters();
    gsl_multifit_nlinear_fdf fdf = {
        .f = residuals, .df = jacobian, .n = p->count, .p = n, .params = (void *)(uintptr_t)p};
    gsl_multifit_nlinear_workspace *w =
        gsl_multifit_nlinear_alloc(gsl_multifit_nlinear_trust, &how, p->count, n);
    gsl_vector *x = gsl_vector_alloc(n), *weights = gsl_vector_alloc(p->count);
    gsl_matrix *covariance = gsl_matrix_alloc(n, n);
    double *sorted = calloc(p->count, sizeof *sorted);
    struct spread spread = {0};
    int info, status = GSL_SUCCESS;
    start(p, x);
    gsl_vector_set_all(weights, 1);
    for (int round = 0; round < 4 && status == GSL_SUCCESS; round++) {
        gsl_multifit_nlinear_winit(x, weights, &fdf, w);
        status = gsl_multifit_nlinear_driver(100, 1e-9, 1e-9, 0, NULL, NULL, &info, w);
        if (status == GSL_EMAXITER || status == GSL_ENOPROG)
            status = GSL_SUCCESS; // flat directions end here; the covariance shows it
        gsl_vector_memcpy(x, gsl_multifit_nlinear_position(w));
        gsl_vector *plain = gsl_vector_alloc(p->count);
        residuals(x, (void *)(uintptr_t)p, plain);
        spread.scatter = reweigh(plain, weights, sorted);
        spread.parameters = spread_of(plain, spread.scatter, n);
        if (p->count <= n + 2) // too few points to be robust
            spread.parameters = fmax(spread.parameters, root_mean_square(plain));
        gsl_vector_free(plain);
    }
    gsl_multifit_nlinear_covar(gsl_multifit_nlinear_jac(w), 1e-12, covariance);
    bool ok =
        status == GSL_SUCCESS && isfinite(gsl_vector_get(x, 0)) && isfinite(gsl_vector_get(x, 1));
    if (ok)
        keep(p, x, covariance, &spread, out);
    free(sorted);
    gsl_matrix_free(covariance);
    gsl_vector_free(weights);
    gsl_vector_free(x);
    gsl_multifit_nlinear_free(w);
    return ok;
}

double series_seconds(const struct series_law *l, double payload_bytes, double sent_bytes) {
    double root = l->half_bytes > 0 ? sqrt(l->half_bytes / payload_bytes) : 0;
    return l->latency_s + sent_bytes / l->bytes_per_s * (1 + root);
}

static size_t distinct(const struct series_point *points, size_t count) {
    size_t n = count > 0;
    for (size_t i = 1; i < count; i++)
        n += points[i].payload_bytes > points[i - 1].payload_bytes;
    return n;
}

static bool fit_law(const struct series_point *points, size_t count, bool saturates,
                    struct series_law *out) {
    struct problem p = {.points = points, .count = count, .saturates = saturates};
    p.prior_half = sqrt(points[0].payload_bytes * points[count - 1].payload_bytes);
    return distinct(points, count) >= (saturates ? 4U : 2U) && solve(&p, out);
}

// Mean relative error of each payload when it is left out; the two ends stay in, since a law is not
// asked beyond what it saw.
static double left_out_error(const struct series_point *points, size_t count, bool saturates,
                             struct series_point *rest) {
    double sum = 0, ends[] = {points[0].payload_bytes, points[count - 1].payload_bytes};
    size_t n = 0;
    for (size_t i = 0, next; i < count; i = next) {
        struct series_law l;
        size_t kept = 0;
        for (next = i; next < count && !(points[next].payload_bytes > points[i].payload_bytes);)
            next++;
        if (!(points[i].payload_bytes > ends[0]) || !(points[i].payload_bytes < ends[1]))
            continue;
        for (size_t k = 0; k < count; k++)
            if (k < i || k >= next)
                rest[kept++] = points[k];
        if (!fit_law(rest, kept, saturates, &l))
            return INFINITY;
        for (size_t k = i; k < next; k++, n++)
            sum += fabs(series_seconds(&l, points[k].payload_bytes, points[k].sent_bytes) /
                            points[k].seconds -
                        1);
    }
    return n ? sum / (double)n : INFINITY;
}

static void consider(struct series_fit *best, const struct series_law *pieces, size_t count,
                     double error) {
    // A richer law must earn its parameters: a fifth better on points it did not see.
    if (best->piece_count && !(error < 0.8 * best->cross_validation))
        return;
    memcpy(best->pieces, pieces, count * sizeof *pieces);
    best->piece_count = count;
    best->cross_validation = error;
}

static void consider_pieces(const struct series_point *points, size_t count,
                            struct series_point *rest, struct series_fit *best) {
    for (size_t cut = 3; cut + 3 <= count; cut++) {
        struct series_law pieces[SERIES_PIECES_MAX];
        if (!(points[cut].payload_bytes > points[cut - 1].payload_bytes) ||
            distinct(points, cut) < 3 || distinct(points + cut, count - cut) < 3 ||
            !fit_law(points, cut, false, &pieces[0]) ||
            !fit_law(points + cut, count - cut, false, &pieces[1]))
            continue;
        double left = left_out_error(points, cut, false, rest);
        double right = left_out_error(points + cut, count - cut, false, rest);
        double error = (left * (double)cut + right * (double)(count - cut)) / (double)count;
        consider(best, pieces, SERIES_PIECES_MAX, error);
    }
}

static int by_payload(const void *x, const void *y) {
    const struct series_point *a = x, *b = y;
    if (a->payload_bytes != b->payload_bytes)
        return a->payload_bytes < b->payload_bytes ? -1 : 1;
    return (a->seconds > b->seconds) - (a->seconds < b->seconds);
}

bool series_fit(const struct series_point *points, size_t count, struct arena *a,
                struct series_fit *out, struct err *e) {
    struct series_point *sorted = arena_array(a, count + 1, sizeof *sorted);
    struct series_point *rest = arena_array(a, count + 1, sizeof *rest);
    struct series_fit best = {0};
    struct series_law l;
    memcpy(sorted, points, count * sizeof *points);
    qsort(sorted, count, sizeof *sorted, by_payload);
    if (distinct(sorted, count) < 3)
        return err_set(e, ERR_RESOURCE, "a fit needs 3 payloads at least; %zu measured",
                       distinct(sorted, count));
    gsl_error_handler_t *before = gsl_set_error_handler_off();
    if (fit_law(sorted, count, false, &l))
        consider(&best, &l, 1, left_out_error(sorted, count, false, rest));
    if (distinct(sorted, count) >= 5 && fit_law(sorted, count, true, &l))
        consider(&best, &l, 1, left_out_error(sorted, count, true, rest));
    if (distinct(sorted, count) >= 8)
        consider_pieces(sorted, count, rest, &best);
    gsl_set_error_handler(before);
    if (best.piece_count == 0)
        return err_set(e, ERR_RESOURCE, "no law of latency and bandwidth fits these %zu points",
                       count);
    *out = best;
    return true;
}
