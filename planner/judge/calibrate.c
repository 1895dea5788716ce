// SPDX-License-Identifier: Apache-2.0
#include "judge/calibrate_private.h"

#include <math.h>
#include <string.h>

// Two-sided 95 % of a normal.
static const double normal_95 = 1.96;

bool calibrate_usable(const struct measure_result *r) {
    return r->errors == 0 && !r->oversubscribed && !r->shared_gpu;
}

static bool is_collective(const struct measure_result *r, enum collective *k) {
    return collective_find(r->kind, k) && r->payload_bytes > 0 && r->median_s > 0 && r->ranks > 1 &&
           r->group == NULL;
}

static bool same(const char *x, const char *y) {
    return x == y || (x && y && strcmp(x, y) == 0);
}

static struct calibrated_series *series_of(struct calibration *c, enum collective k,
                                           const struct measure_result *r) {
    uint64_t nodes = r->nodes ? r->nodes : 1;
    for (size_t i = 0; i < c->series_count; i++) {
        struct calibrated_series *s = &c->series[i];
        if (s->collective == k && s->ranks == r->ranks && s->nodes == nodes &&
            same(s->algorithm, r->algorithm))
            return s;
    }
    c->series[c->series_count] = (struct calibrated_series){
        .collective = k, .nodes = nodes, .ranks = r->ranks, .algorithm = r->algorithm};
    return &c->series[c->series_count++];
}

struct figure calibrate_figure(double value, double log_error, const char *source) {
    double factor = exp(normal_95 * fmin(log_error, 2));
    return (struct figure){.value = value,
                           .low = value / factor,
                           .high = value * factor,
                           .provenance = PROVENANCE_FITTED,
                           .source = source};
}

void calibrate_set(struct calibration *c, struct figure *at, struct calibrated_rate r) {
    r.before = *at;
    if (c->rate_count < CALIBRATE_RATES_MAX)
        c->rates[c->rate_count++] = r;
    *at = r.after;
}

static const char *source_of(const struct calibrated_series *s, struct arena *a) {
    return arena_printf(a, "fit of %zu measured points, cross-validation error %.1f %%",
                        s->point_count, 100 * s->fit.cross_validation);
}

static struct cluster_fit to_fit(const struct calibrated_series *s, size_t piece, struct arena *a) {
    const struct series_law *l = &s->fit.pieces[piece];
    const char *source = source_of(s, a);
    return (struct cluster_fit){
        .collective = s->collective,
        .nodes = s->nodes,
        .ranks = s->ranks,
        .latency_s = calibrate_figure(l->latency_s, l->latency_error, source),
        .busbw_bytes_per_s = calibrate_figure(l->bytes_per_s, l->bandwidth_error, source),
        .half_bytes = l->saturates ? calibrate_figure(l->half_bytes, l->half_error, source)
                                   : figure_known(0, PROVENANCE_FITTED, source),
        .min_payload_bytes = l->min_payload_bytes,
        .max_payload_bytes = l->max_payload_bytes,
        .cores = s->measured_s > 0 ? s->cpu_s / s->measured_s : 0,
    };
}

// Room doubles, so that a long measurement costs a linear amount of memory.
static void add_point(struct calibrated_series *s, enum collective k,
                      const struct measure_result *r, struct arena *a) {
    if ((s->point_count & (s->point_count - 1)) == 0) {
        struct series_point *more =
            arena_array(a, s->point_count ? 2 * s->point_count : 1, sizeof *more);
        if (s->point_count)
            memcpy(more, s->points, s->point_count * sizeof *more);
        s->points = more;
    }
    if (r->cpu_s > 0) {
        s->cpu_s += r->cpu_s;
        s->measured_s += r->median_s;
    }
    s->points[s->point_count++] = (struct series_point){
        .sent_bytes = collective_sent_bytes(k, (double)r->payload_bytes, r->ranks),
        .payload_bytes = (double)r->payload_bytes,
        .seconds = r->median_s};
}

static void collect_series(const struct measurement *m, size_t count, struct arena *a,
                           struct calibration *c) {
    size_t all = 0;
    for (size_t i = 0; i < count; i++)
        all += m[i].count;
    c->series = arena_array(a, all + 1, sizeof *c->series);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < m[i].count; k++) {
            const struct measure_result *r = &m[i].results[k];
            enum collective kind;
            if (!calibrate_usable(r)) {
                c->left_out++;
                continue;
            }
            if (!is_collective(r, &kind))
                continue;
            add_point(series_of(c, kind, r), kind, r, a);
        }
}

static double largest_payload(const struct calibrated_series *s) {
    double largest = 0;
    for (size_t i = 0; i < s->point_count; i++)
        largest = fmax(largest, s->points[i].payload_bytes);
    return largest;
}

// Of two algorithms for one group the one that is faster at large messages counts, as a library
// chooses.
static void keep_fastest(struct calibration *c, struct arena *a) {
    for (size_t i = 0; i < c->series_count; i++)
        for (size_t k = 0; k < c->series_count; k++) {
            struct calibrated_series *s = &c->series[i], *other = &c->series[k];
            if (i == k || s->refused || other->refused || s->collective != other->collective ||
                s->ranks != other->ranks || s->nodes != other->nodes)
                continue;
            double at = fmin(largest_payload(s), largest_payload(other));
            double sent = collective_sent_bytes(s->collective, at, s->ranks);
            if (series_fit_seconds(&s->fit, at, sent) > series_fit_seconds(&other->fit, at, sent))
                s->refused =
                    arena_printf(a, "slower than %s",
                                 other->algorithm ? other->algorithm : "the other algorithm");
        }
}

static size_t fit_collectives(struct calibration *c, struct arena *a) {
    struct cluster_fit *fits = arena_array(a, 2 * c->series_count + 1, sizeof *fits);
    size_t n = 0;
    for (size_t i = 0; i < c->series_count; i++) {
        struct calibrated_series *s = &c->series[i];
        struct err why = {0};
        if (!series_fit(s->points, s->point_count, a, &s->fit, &why)) {
            s->refused = arena_strdup(a, why.text);
            continue;
        }
    }
    keep_fastest(c, a);
    for (size_t i = 0; i < c->series_count; i++)
        for (size_t k = 0; !c->series[i].refused && k < c->series[i].fit.piece_count; k++)
            fits[n++] = to_fit(&c->series[i], k, a);
    if (n == 0) // what was fitted before stays
        return 0;
    c->cluster.fits = fits;
    c->cluster.fit_count = n;
    return n;
}

bool calibrate(const struct cluster *cluster, const struct measurement *m, size_t count,
               struct arena *a, struct calibration *out, struct err *e) {
    const struct calibrated_law unasked = {.before = NAN, .after = NAN, .left_out = NAN};
    struct calibration c = {.cluster = *cluster, .gemm = unasked, .runs.law = unasked};
    collect_series(m, count, a, &c);
    size_t fits = fit_collectives(&c, a);
    calibrate_rates(m, count, a, &c);
    calibrate_gpu(m, count, a, &c);
    if (count > 0 && fits == 0 && c.rate_count == 0)
        return err_set(
            e, ERR_RESOURCE,
            "nothing to fit: no collective with 3 payloads, no copy, NVMe, memory, Adam or matrix "
            "product (%zu left out as wrong, oversubscribed or sharing a GPU)",
            c.left_out);
    *out = c;
    return true;
}
