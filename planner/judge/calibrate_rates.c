// SPDX-License-Identifier: Apache-2.0
#include "judge/calibrate_private.h"

#include "base/stats.h"
#include "describe/recipe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// Two-sided 95 % of a normal.
static const double normal_95 = 1.96;

// Which results say what a figure is. Text that is NULL asks nothing.
struct rate_rule {
    const char *kind, *direction, *algorithm, *backend, *note, *software;
    bool concurrent;
    bool native;   // no import of another tool
    bool host_gpu; // only where the cluster's "GPU" is the host itself: a thread per rank
    const char *path, *unit;
    size_t offset;
    double share; // of the measured rate
};

#define CLUSTER_AT(field) offsetof(struct cluster, field)
#define GPU_AT(field) (offsetof(struct cluster, gpu) + offsetof(struct gpu, field))
#define RATE(field) .path = "cluster." #field, .unit = "bytes/s", .offset = CLUSTER_AT(field)
#define GPU_RATE(field) .path = "gpu." #field, .unit = "bytes/s", .offset = GPU_AT(field)
#define ADAM(name, index)                                                                          \
    .kind = "adam", .backend = "adam", .software = name,                                           \
    .path = "cluster.cpu_adam_by_software." name, .unit = "s/parameter",                           \
    .offset = CLUSTER_AT(cpu_adam_by_software) + index * sizeof(struct figure), .share = 1
static const struct rate_rule rules[] = {
    {.kind = "copy", .direction = "h2d", GPU_RATE(pcie_h2d_bytes_per_s), .share = 1},
    {.kind = "copy", .direction = "d2h", GPU_RATE(pcie_d2h_bytes_per_s), .share = 1},
    {.kind = "copy",
     .direction = "bidirectional",
     .note = "host_to_device_bidirectional",
     GPU_RATE(pcie_h2d_both_bytes_per_s),
     .share = 1},
    {.kind = "copy",
     .direction = "bidirectional",
     .note = "device_to_host_bidirectional",
     GPU_RATE(pcie_d2h_both_bytes_per_s),
     .share = 1},
    // shardbench counts both ways together.
    {.kind = "copy",
     .direction = "bidirectional",
     .native = true,
     GPU_RATE(pcie_h2d_both_bytes_per_s),
     .share = 0.5},
    {.kind = "copy",
     .direction = "bidirectional",
     .native = true,
     GPU_RATE(pcie_d2h_both_bytes_per_s),
     .share = 0.5},
    // What one GPU gets while all of them copy; turned into its switch's rate below.
    {.kind = "copy",
     .direction = "h2d",
     .concurrent = true,
     RATE(pcie_switch_bytes_per_s),
     .share = 1},
    // Rehearsals copy in host memory what would travel to a GPU, all ranks at once.
    {.kind = "copy",
     .direction = "h2h",
     .host_gpu = true,
     GPU_RATE(pcie_h2d_bytes_per_s),
     .share = 1},
    {.kind = "copy",
     .direction = "h2h",
     .host_gpu = true,
     GPU_RATE(pcie_d2h_bytes_per_s),
     .share = 1},
    {.kind = "nvme", .direction = "read", RATE(nvme_read_bytes_per_s), .share = 1},
    {.kind = "nvme", .direction = "write", RATE(nvme_write_bytes_per_s), .share = 1},
    // The bench counts the line that a store reads first; STREAM does not: 3 of 4 words.
    {.kind = "memory",
     .algorithm = "triad",
     .backend = "adam",
     RATE(host_dram_bytes_per_s),
     .share = 0.75},
    {ADAM("own", ADAM_OWN)},
    {ADAM("deepspeed", ADAM_DEEPSPEED)},
    {ADAM("torch", ADAM_TORCH)},
};
#define RULES (sizeof rules / sizeof rules[0])

static bool same(const char *wanted, const char *text) {
    return !wanted || (text && strcmp(text, wanted) == 0);
}

static bool holds(const char *wanted, const char *text) {
    return !wanted || (text && strcasestr(text, wanted) != NULL);
}

// Results of shardbench itself are those of its own kernel.
static bool software_is(const char *wanted, const char *text) {
    if (wanted && strcmp(wanted, "own") == 0)
        return !text || (!strcasestr(text, "deepspeed") && !strcasestr(text, "torch"));
    return holds(wanted, text);
}

static bool matches(const struct rate_rule *rule, const struct measure_result *r,
                    const struct cluster *c) {
    bool host = c->gpu.vendor && strcmp(c->gpu.vendor, "host") == 0;
    return strcmp(r->kind, rule->kind) == 0 && r->concurrent == rule->concurrent &&
           same(rule->direction, r->direction) &&
           (same(rule->algorithm, r->algorithm) || same(rule->algorithm, r->direction)) &&
           same(rule->backend, r->backend) && holds(rule->note, r->note) &&
           software_is(rule->software, r->software) &&
           (!rule->native || !r->note || !strstr(r->note, "nvbandwidth")) &&
           (!rule->host_gpu || (host && r->threads == c->gpus_per_node));
}

static double value_of(const struct rate_rule *rule, const struct measure_result *r) {
    if (strcmp(rule->kind, "adam") == 0)
        return r->n > 0 ? r->median_s / (double)r->n : NAN;
    return r->algbw_bytes_per_s * rule->share;
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

// The best setting tried (block, depth, threads) counts: a user runs that one. Of devices that all
// copy at once the slowest counts: a step waits for it.
static const struct measure_result *choose(const struct rate_rule *rule,
                                           const struct measurement *m, size_t count,
                                           const struct cluster *c, size_t *samples) {
    const struct measure_result *best = NULL;
    bool smaller = strcmp(rule->kind, "adam") == 0 || rule->concurrent;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < m[i].count; k++) {
            const struct measure_result *r = &m[i].results[k];
            double v = value_of(rule, r);
            if (!calibrate_usable(r) || !matches(rule, r, c) || !(v > 0))
                continue;
            ++*samples;
            if (!best || (smaller ? v < value_of(rule, best) : v > value_of(rule, best)))
                best = r;
        }
    return best;
}

static bool same_text(const char *x, const char *y) {
    return x == y || (x && y && strcmp(x, y) == 0);
}

// The same but for its size: a block of NVMe, the parameters of Adam.
static bool same_setting(const struct measure_result *x, const struct measure_result *y) {
    return same_text(x->algorithm, y->algorithm) && same_text(x->dtype, y->dtype) &&
           same_text(x->protocol, y->protocol) && x->queue_depth == y->queue_depth &&
           x->jobs == y->jobs && x->threads == y->threads;
}

static struct series_point size_point(const struct measure_result *r) {
    if (strcmp(r->kind, "adam") == 0)
        return (struct series_point){(double)r->n, (double)r->n, r->median_s};
    double block = (double)r->block_bytes;
    return (struct series_point){block, block, r->median_s * block / (double)r->payload_bytes};
}

// Does one law hold over the sizes? Says so in the table; the figure is the best size's own.
static void check_sizes(const struct rate_rule *rule, const struct measurement *m, size_t count,
                        const struct measure_result *best, struct arena *a, struct calibration *c) {
    struct calibrated_rate *out = &c->rates[c->rate_count - 1];
    struct series_fit f;
    struct err few = {0};
    size_t all = 0, n = 0;
    for (size_t i = 0; i < count; i++)
        all += m[i].count;
    struct series_point *points = arena_array(a, all + 1, sizeof *points);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < m[i].count; k++) {
            const struct measure_result *r = &m[i].results[k];
            bool sized = r->n > 0 || (r->block_bytes > 0 && r->payload_bytes > 0);
            if (sized && calibrate_usable(r) && matches(rule, r, &c->cluster) && r->median_s > 0 &&
                same_setting(r, best))
                points[n++] = size_point(r);
        }
    if (n < 4 || !series_fit(points, n, a, &f, &few))
        return;
    out->sizes = n;
    out->left_out = f.cross_validation;
}

static void apply(const struct rate_rule *rule, const struct measurement *m, size_t count,
                  struct arena *a, struct calibration *c) {
    size_t samples = 0;
    const struct measure_result *best = choose(rule, m, count, &c->cluster, &samples);
    if (!best)
        return;
    double value = value_of(rule, best);
    if (rule->host_gpu)
        value /= (double)c->cluster.gpus_per_node;
    if (rule->concurrent) {
        // A result without a group is the sum over the node's GPUs.
        uint64_t gpus = best->ranks > 1 ? best->ranks : c->cluster.gpus_per_node;
        if (!best->group && gpus > 0)
            value /= (double)gpus;
        value *= (double)(c->cluster.gpus_per_pcie_switch ? c->cluster.gpus_per_pcie_switch : 1);
    }
    const char *source = arena_printf(
        a, "measured here: %s of %zu %s results%s%s", rule->concurrent ? "slowest" : "best",
        samples, rule->kind, best->software ? ", " : "", best->software ? best->software : "");
    struct figure *at = (struct figure *)(void *)((char *)&c->cluster + rule->offset);
    calibrate_set(
        c, at,
        (struct calibrated_rate){.path = rule->path,
                                 .unit = rule->unit,
                                 .after = calibrate_figure(value, relative_error(best), source),
                                 .samples = samples,
                                 .left_out = NAN});
    if (strcmp(rule->kind, "nvme") == 0 || strcmp(rule->kind, "adam") == 0)
        check_sizes(rule, m, count, best, a, c);
}

void calibrate_rates(const struct measurement *m, size_t count, struct arena *a,
                     struct calibration *c) {
    for (size_t i = 0; i < RULES; i++)
        apply(&rules[i], m, count, a, c);
}
