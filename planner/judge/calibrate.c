// SPDX-License-Identifier: Apache-2.0
#include "judge/calibrate.h"

#include "base/stats.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// Two-sided 95 % of a normal.
static const double normal_95 = 1.96;

static bool usable(const struct measure_result *r) {
    return r->errors == 0 && !r->oversubscribed && !r->shared_gpu;
}

static bool is_collective(const struct measure_result *r, enum collective *k) {
    return collective_find(r->kind, k) && r->payload_bytes > 0 && r->median_s > 0 && r->ranks > 1 &&
           r->group == NULL;
}

static struct calibrated_series *series_of(struct calibration *c, enum collective k,
                                           const struct measure_result *r) {
    uint64_t nodes = r->nodes ? r->nodes : 1;
    for (size_t i = 0; i < c->series_count; i++) {
        struct calibrated_series *s = &c->series[i];
        if (s->collective == k && s->ranks == r->ranks && s->nodes == nodes)
            return s;
    }
    c->series[c->series_count] =
        (struct calibrated_series){.collective = k, .nodes = nodes, .ranks = r->ranks};
    return &c->series[c->series_count++];
}

static struct figure fitted(double value, double relative_error, const char *source) {
    double factor = exp(normal_95 * fmin(relative_error, 2));
    return (struct figure){.value = value,
                           .low = value / factor,
                           .high = value * factor,
                           .provenance = PROVENANCE_FITTED,
                           .source = source};
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
        .latency_s = fitted(l->latency_s, l->latency_error, source),
        .busbw_bytes_per_s = fitted(l->bytes_per_s, l->bandwidth_error, source),
        .half_bytes = l->saturates ? fitted(l->half_bytes, l->half_error, source)
                                   : figure_known(0, PROVENANCE_FITTED, source),
        .min_payload_bytes = l->min_payload_bytes,
        .max_payload_bytes = l->max_payload_bytes,
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
            if (!usable(r)) {
                c->left_out++;
                continue;
            }
            if (!is_collective(r, &kind))
                continue;
            add_point(series_of(c, kind, r), kind, r, a);
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
        for (size_t k = 0; k < s->fit.piece_count; k++)
            fits[n++] = to_fit(s, k, a);
    }
    c->cluster.fits = fits;
    c->cluster.fit_count = n;
    return n;
}

// ---- rates of single devices --------------------------------------------------------------------

struct rate_rule {
    const char *kind, *direction; // of a measurement
    bool concurrent;
    const char *path, *unit;
    size_t offset;
};

#define CLUSTER_AT(field) offsetof(struct cluster, field)
#define GPU_AT(field) (offsetof(struct cluster, gpu) + offsetof(struct gpu, field))
static const struct rate_rule rules[] = {
    {"copy", "h2d", false, "gpu.pcie_h2d_bytes_per_s", "bytes/s", GPU_AT(pcie_h2d_bytes_per_s)},
    {"copy", "d2h", false, "gpu.pcie_d2h_bytes_per_s", "bytes/s", GPU_AT(pcie_d2h_bytes_per_s)},
    {"nvme", "read", false, "cluster.nvme_read_bytes_per_s", "bytes/s",
     CLUSTER_AT(nvme_read_bytes_per_s)},
    {"nvme", "write", false, "cluster.nvme_write_bytes_per_s", "bytes/s",
     CLUSTER_AT(nvme_write_bytes_per_s)},
    {"memory", "triad", false, "cluster.host_dram_bytes_per_s", "bytes/s",
     CLUSTER_AT(host_dram_bytes_per_s)},
    {"adam", NULL, false, "cluster.cpu_adam_s_per_param", "s/parameter",
     CLUSTER_AT(cpu_adam_s_per_param)},
};
#define RULES (sizeof rules / sizeof rules[0])

static bool matches(const struct rate_rule *rule, const struct measure_result *r) {
    if (strcmp(r->kind, rule->kind) != 0 || r->concurrent != rule->concurrent)
        return false;
    const char *text = r->direction ? r->direction : r->algorithm; // memory loops name an algorithm
    return !rule->direction || (text && strcmp(text, rule->direction) == 0);
}

// Storage and copies are judged by the best setting tried (block, depth, threads): a user runs that
// one.
static double value_of(const struct rate_rule *rule, const struct measure_result *r) {
    if (strcmp(rule->kind, "adam") == 0)
        return r->n > 0 ? r->median_s / (double)r->n : NAN;
    // The bench counts the line that a store reads first; STREAM does not: 3 of 4 words.
    if (strcmp(rule->kind, "memory") == 0)
        return r->algbw_bytes_per_s * 3 / 4;
    return r->algbw_bytes_per_s;
}

static double relative_error(const struct measure_result *r) {
    if (r->samples < 3 || !(r->median_s > 0))
        return 0.1; // a single figure of another tool: a tenth, by its usual repeatability
    double sorted[MEASURE_SAMPLES_MAX], low, high;
    size_t n = r->samples < MEASURE_SAMPLES_MAX ? r->samples : MEASURE_SAMPLES_MAX;
    memcpy(sorted, r->samples_s, n * sizeof *sorted);
    stats_sort(sorted, n);
    stats_median_interval(sorted, n, 0.95, &low, &high);
    return fmax((high - low) / (2 * normal_95 * r->median_s), 0.005);
}

static void apply_rule(const struct rate_rule *rule, const struct measurement *m, size_t count,
                       struct arena *a, struct calibration *c) {
    const struct measure_result *best = NULL;
    bool smaller = strcmp(rule->kind, "adam") == 0;
    size_t samples = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < m[i].count; k++) {
            const struct measure_result *r = &m[i].results[k];
            double v = value_of(rule, r);
            if (!usable(r) || !matches(rule, r) || !(v > 0))
                continue;
            samples++;
            if (!best || (smaller ? v < value_of(rule, best) : v > value_of(rule, best)))
                best = r;
        }
    if (!best || c->rate_count == CALIBRATE_RATES_MAX)
        return;
    struct figure *at = (struct figure *)(void *)((char *)&c->cluster + rule->offset);
    struct figure after =
        fitted(value_of(rule, best), relative_error(best),
               arena_printf(a, "measured here: best of %zu %s results%s%s", samples, rule->kind,
                            best->software ? ", " : "", best->software ? best->software : ""));
    c->rates[c->rate_count++] = (struct calibrated_rate){
        .path = rule->path, .unit = rule->unit, .before = *at, .after = after, .samples = samples};
    *at = after;
}

bool calibrate(const struct cluster *cluster, const struct measurement *m, size_t count,
               struct arena *a, struct calibration *out, struct err *e) {
    struct calibration c = {.cluster = *cluster};
    collect_series(m, count, a, &c);
    size_t fits = fit_collectives(&c, a);
    for (size_t i = 0; i < RULES; i++)
        apply_rule(&rules[i], m, count, a, &c);
    if (fits == 0 && c.rate_count == 0)
        return err_set(
            e, ERR_RESOURCE,
            "nothing to fit: no collective with 3 payloads, no copy, NVMe, memory or Adam "
            "result (%zu left out as wrong, oversubscribed or sharing a GPU)",
            c.left_out);
    *out = c;
    return true;
}
