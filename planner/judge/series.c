// SPDX-License-Identifier: Apache-2.0
#include "judge/series.h"

#include "judge/robust.h"

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

static double ratio(const double *x, size_t i, const void *context) {
    const struct problem *p = context;
    const struct series_point *s = &p->points[i];
    double half = p->saturates ? exp(x[2]) : 0;
    return (exp(x[0]) + s->sent_bytes / exp(x[1]) * (1 + sqrt(half / s->payload_bytes))) /
           s->seconds;
}

static void gradient(const double *x, size_t i, const void *context, double *out) {
    const struct problem *p = context;
    const struct series_point *s = &p->points[i];
    double half = p->saturates ? exp(x[2]) : 0;
    double root = sqrt(half / s->payload_bytes), base = s->sent_bytes / exp(x[1]);
    out[0] = exp(x[0]) / s->seconds;
    out[1] = -base * (1 + root) / s->seconds;
    if (p->saturates)
        out[2] = base * root / 2 / s->seconds;
}

// Start from the ends: the smallest message is latency, the largest bandwidth.
static void start(const struct problem *p, double *x) {
    const struct series_point *small = &p->points[0], *large = &p->points[p->count - 1];
    double rate =
        large->sent_bytes / fmax(large->seconds - 0.5 * small->seconds, 0.1 * large->seconds);
    x[0] = log(fmax(small->seconds - small->sent_bytes / rate, 0.2 * small->seconds));
    x[1] = log(rate);
    x[2] = p->saturates ? log(p->prior_half) : 0;
}

static bool solve(const struct problem *p, struct series_law *out) {
    double x[ROBUST_PARAMETERS_MAX];
    struct robust_result r;
    const struct robust_problem q = {.points = p->count,
                                     .parameters = p->saturates ? 3 : 2,
                                     .ratio = ratio,
                                     .gradient = gradient,
                                     .context = p};
    start(p, x);
    if (!robust_fit(&q, x, &r))
        return false;
    *out = (struct series_law){.latency_s = exp(x[0]),
                               .bytes_per_s = exp(x[1]),
                               .half_bytes = p->saturates ? exp(x[2]) : 0,
                               .latency_error = r.errors[0],
                               .bandwidth_error = r.errors[1],
                               .half_error = p->saturates ? r.errors[2] : 0,
                               .scatter = r.scatter,
                               .min_payload_bytes = p->points[0].payload_bytes,
                               .max_payload_bytes = p->points[p->count - 1].payload_bytes,
                               .points = p->count,
                               .saturates = p->saturates};
    return true;
}

double series_seconds(const struct series_law *l, double payload_bytes, double sent_bytes) {
    double root = l->half_bytes > 0 ? sqrt(l->half_bytes / payload_bytes) : 0;
    return l->latency_s + sent_bytes / l->bytes_per_s * (1 + root);
}

double series_fit_seconds(const struct series_fit *f, double payload_bytes, double sent_bytes) {
    size_t i = 0;
    while (i + 1 < f->piece_count && payload_bytes > f->pieces[i].max_payload_bytes)
        i++;
    return series_seconds(&f->pieces[i], payload_bytes, sent_bytes);
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
    if (fit_law(sorted, count, false, &l))
        consider(&best, &l, 1, left_out_error(sorted, count, false, rest));
    if (distinct(sorted, count) >= 5 && fit_law(sorted, count, true, &l))
        consider(&best, &l, 1, left_out_error(sorted, count, true, rest));
    if (distinct(sorted, count) >= 8)
        consider_pieces(sorted, count, rest, &best);
    if (best.piece_count == 0)
        return err_set(e, ERR_RESOURCE, "no law of latency and bandwidth fits these %zu points",
                       count);
    *out = best;
    return true;
}
