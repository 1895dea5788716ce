// SPDX-License-Identifier: Apache-2.0
#include "judge/verdict.h"

#include "base/stats.h"
#include "base/units.h"
#include "cost/collective.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const verdict_status_names[VERDICT_STATUS_COUNT] = {[VERDICT_PASS] = "PASS",
                                                                [VERDICT_FAIL] = "FAIL",
                                                                [VERDICT_WAIVED] = "WAIVED",
                                                                [VERDICT_NODATA] = "NODATA"};

// Share of the topology model that a sound cluster reaches at or above the knee.
static const double model_floor = 0.70;
// Of a baseline: at best 95 %, less where the baseline itself scattered.
static const double baseline_share = 0.95;
// A link this far below the median of its peers is named.
static const double peer_share = 0.80;
// The knee: where transfer takes as long as latency, but at least this.
#define KNEE_MIN_BYTES (4 * UNITS_MIB)

struct judge {
    const struct verdict_request *q;
    struct arena *a;
    struct verdict *out;
    size_t capacity;
};

static struct verdict_check *add(struct judge *j, const char *name) {
    struct verdict *v = j->out;
    if (v->count == j->capacity) {
        size_t capacity = j->capacity ? 2 * j->capacity : 32;
        struct verdict_check *more = arena_array(j->a, capacity, sizeof *more);
        if (v->count)
            memcpy(more, v->checks, v->count * sizeof *more);
        v->checks = more;
        j->capacity = capacity;
    }
    struct verdict_check *c = &v->checks[v->count++];
    *c = (struct verdict_check){.name = name,
                                .status = VERDICT_NODATA,
                                .measured_bytes_per_s = NAN,
                                .limit_bytes_per_s = NAN,
                                .baseline_bytes_per_s = NAN,
                                .model_bytes_per_s = NAN,
                                .required = true};
    return c;
}

static const char *size_text(struct judge *j, uint64_t bytes) {
    char text[32];
    return arena_strdup(j->a, units_format_bytes(text, sizeof text, (double)bytes));
}

static bool sound(const struct measure_result *r) {
    return r->errors == 0 && r->median_s > 0;
}

// Median over repeats of one point, and how many there are.
static double median_rate(const struct measurement *m, size_t count, const char *key,
                          struct arena *a, double *cv, size_t *n) {
    const struct measure_result *only = NULL;
    double *rates = NULL;
    size_t have = 0, all = 0;
    for (size_t i = 0; i < count; i++)
        all += m[i].count;
    rates = arena_array(a, all + 1, sizeof *rates);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < m[i].count; k++) {
            const struct measure_result *r = &m[i].results[k];
            double rate =
                isfinite(r->busbw_bytes_per_s) ? r->busbw_bytes_per_s : r->algbw_bytes_per_s;
            if (sound(r) && rate > 0 && strcmp(measure_key(r, a), key) == 0) {
                rates[have++] = rate;
                only = r;
            }
        }
    *n = have;
    *cv = have > 1 ? stats_stddev(rates, have) / stats_mean(rates, have) : 0;
    if (have == 1 && only->samples > 2) // one run: its own iterations say how it scatters
        *cv = stats_stddev(only->samples_s, only->samples) /
              stats_mean(only->samples_s, only->samples);
    return have ? stats_median(rates, have) : NAN;
}

// What the topology should give at this size: the prior, never a fit of the same measurement.
static double model_rate(const struct judge *j, enum collective k, const struct measure_result *r) {
    struct cluster c = *j->q->cluster;
    struct collective_time t;
    uint64_t nodes = r->nodes ? r->nodes : 1;
    struct group_layout g = {
        .size = r->ranks, .ranks_per_node = (r->ranks + nodes - 1) / nodes, .concurrent_groups = 1};
    c.fit_count = 0;
    collective_estimate(&c, k, &g, (double)r->payload_bytes, &t);
    return (double)r->payload_bytes / t.seconds * collective_bus_factor(k, r->ranks);
}

static bool above_knee(const struct judge *j, enum collective k, const struct measure_result *r) {
    struct cluster c = *j->q->cluster;
    struct collective_time t;
    uint64_t nodes = r->nodes ? r->nodes : 1;
    struct group_layout g = {
        .size = r->ranks, .ranks_per_node = (r->ranks + nodes - 1) / nodes, .concurrent_groups = 1};
    if (r->payload_bytes < KNEE_MIN_BYTES)
        return false;
    c.fit_count = 0;
    collective_estimate(&c, k, &g, (double)r->payload_bytes, &t);
    return t.transfer_s >= t.latency_s;
}

// max(min(0.95, 1 - 3 CV) x baseline, floor x model): the limit of one point.
static void set_limit(struct judge *j, struct verdict_check *c, const char *key, double model) {
    double cv = 0, limit = model_floor * model;
    size_t n = 0;
    c->model_bytes_per_s = model;
    if (j->q->baseline_count) {
        double base = median_rate(j->q->baselines, j->q->baseline_count, key, j->a, &cv, &n);
        if (n) {
            c->baseline_bytes_per_s = base;
            double share = fmin(baseline_share, 1 - 3 * cv);
            // A baseline is this machine's own word; the model only backs it up.
            limit = isfinite(model) ? fmax(share * base, fmin(limit, base)) : share * base;
        }
    }
    c->limit_bytes_per_s = limit;
}

static void decide(struct judge *j, struct verdict_check *c, const char *next_step) {
    if (!isfinite(c->limit_bytes_per_s)) {
        c->status = VERDICT_NODATA;
        c->reason = "nothing to compare with: no baseline, and the topology's rate is unknown";
        c->next_step = "save a healthy run and give it as --baseline";
    } else if (c->measured_bytes_per_s >= c->limit_bytes_per_s) {
        c->status = VERDICT_PASS;
    } else {
        char measured[32], limit[32];
        units_format_rate(measured, sizeof measured, c->measured_bytes_per_s);
        units_format_rate(limit, sizeof limit, c->limit_bytes_per_s);
        c->status = VERDICT_FAIL;
        c->reason = arena_printf(j->a, "%s is below the limit of %s", measured, limit);
        c->next_step = next_step;
    }
}

static bool seen(const struct measurement *m, size_t mi, size_t ki, const char *key,
                 struct arena *a) {
    for (size_t i = 0; i <= mi; i++)
        for (size_t k = 0; k < (i == mi ? ki : m[i].count); k++)
            if (strcmp(measure_key(&m[i].results[k], a), key) == 0)
                return true;
    return false;
}

static void judge_wrong(struct judge *j, const struct measure_result *r) {
    struct verdict_check *c =
        add(j, arena_printf(j->a, "%s %s: data", r->kind, size_text(j, r->payload_bytes)));
    c->status = VERDICT_FAIL;
    c->culprit = r->group;
    c->reason = arena_printf(j->a, "%" PRIu64 " wrong elements", r->errors);
    c->next_step = "a transfer that corrupts data: take the hardware out of service";
}

static bool two_node_all_reduce(const struct measure_result *r, enum collective k) {
    return k == COLLECTIVE_ALL_REDUCE && r->nodes == 2;
}

static void judge_collective(struct judge *j, const struct measure_result *r, enum collective k,
                             const char *key) {
    double cv;
    size_t n;
    if (!above_knee(j, k, r))
        return;
    struct verdict_check *c = add(j, arena_printf(j->a, "%s %s, %" PRIu64 " ranks%s", r->kind,
                                                  size_text(j, r->payload_bytes), r->ranks,
                                                  r->in_place ? ", in place" : ""));
    c->measured_bytes_per_s =
        median_rate(j->q->measurements, j->q->measurement_count, key, j->a, &cv, &n);
    if (r->oversubscribed || r->shared_gpu) {
        c->status = VERDICT_WAIVED;
        c->reason = r->shared_gpu ? "several ranks shared one GPU" : "more ranks than processors";
        c->next_step = "run one rank per device";
        return;
    }
    set_limit(j, c, key, model_rate(j, k, r));
    decide(
        j, c,
        "shardplan bench collectives --pairs names the slow link; look at its cable and counters");
    if (c->status == VERDICT_PASS && two_node_all_reduce(r, k)) {
        c->status = VERDICT_WAIVED;
        c->required = false;
        c->reason = "an all-reduce over two nodes halves the bytes on the wire; it is no measure "
                    "of a network";
        c->next_step = "judge all_gather and reduce_scatter, or three nodes and more";
    }
}

static double peer_median(struct judge *j, const struct measure_result *r) {
    size_t n = 0, all = 0;
    for (size_t i = 0; i < j->q->measurement_count; i++)
        all += j->q->measurements[i].count;
    double *rates = arena_array(j->a, all + 1, sizeof *rates);
    for (size_t i = 0; i < j->q->measurement_count; i++)
        for (size_t k = 0; k < j->q->measurements[i].count; k++) {
            const struct measure_result *x = &j->q->measurements[i].results[k];
            bool like = strcmp(x->kind, r->kind) == 0 && x->group &&
                        x->payload_bytes == r->payload_bytes &&
                        (x->direction == r->direction ||
                         (x->direction && r->direction && strcmp(x->direction, r->direction) == 0));
            if (like && x->algbw_bytes_per_s > 0)
                rates[n++] = x->algbw_bytes_per_s;
        }
    return n >= 3 ? stats_median(rates, n) : NAN;
}

// A pair or device among its like: slow against the median of the others.
static void judge_group(struct judge *j, const struct measure_result *r) {
    double median = peer_median(j, r);
    struct verdict_check *c =
        add(j, arena_printf(j->a, "%s %s%s%s between %s", r->kind, r->direction ? r->direction : "",
                            r->payload_bytes ? " " : "",
                            r->payload_bytes ? size_text(j, r->payload_bytes) : "", r->group));
    c->measured_bytes_per_s = r->algbw_bytes_per_s;
    if (!isfinite(median)) {
        c->status = VERDICT_NODATA;
        c->required = false;
        c->reason = "fewer than three peers to compare with";
        c->next_step = "measure every pair";
        return;
    }
    c->limit_bytes_per_s = peer_share * median;
    decide(j, c,
           "swap the cable or port; compare link speed, width and NUMA placement with its peers");
    if (c->status == VERDICT_FAIL)
        c->culprit = arena_printf(j->a, "pair %s", r->group);
}

struct device_rule {
    const char *kind, *direction, *name, *command;
    size_t offset;
};

static const struct device_rule device_rules[] = {
    {"nvme", "read", "NVMe read", "shardplan bench nvme",
     offsetof(struct cluster, nvme_read_bytes_per_s)},
    {"nvme", "write", "NVMe write", "shardplan bench nvme",
     offsetof(struct cluster, nvme_write_bytes_per_s)},
    {"copy", "h2d", "host to device", "shardplan bench copy",
     offsetof(struct cluster, gpu) + offsetof(struct gpu, pcie_h2d_bytes_per_s)},
    {"copy", "d2h", "device to host", "shardplan bench copy",
     offsetof(struct cluster, gpu) + offsetof(struct gpu, pcie_d2h_bytes_per_s)},
};

static const struct measure_result *best_device(struct judge *j, const struct device_rule *rule) {
    const struct measure_result *best = NULL;
    for (size_t i = 0; i < j->q->measurement_count; i++)
        for (size_t k = 0; k < j->q->measurements[i].count; k++) {
            const struct measure_result *r = &j->q->measurements[i].results[k];
            bool like = strcmp(r->kind, rule->kind) == 0 && r->direction &&
                        strcmp(r->direction, rule->direction) == 0 && !r->concurrent &&
                        r->errors == 0;
            if (like && r->algbw_bytes_per_s > 0 &&
                (!best || r->algbw_bytes_per_s > best->algbw_bytes_per_s))
                best = r;
        }
    return best;
}

static void judge_device(struct judge *j, const struct device_rule *rule) {
    struct figure f =
        *(const struct figure *)(const void *)((const char *)j->q->cluster + rule->offset);
    const struct measure_result *best = best_device(j, rule);
    bool nvme = strcmp(rule->kind, "nvme") == 0;
    if (!best && !(nvme && j->q->needs_nvme))
        return; // not asked for
    struct verdict_check *c = add(j, rule->name);
    if (!best) {
        c->reason = "the plan needs it and no measurement has it";
        c->next_step = rule->command;
        return;
    }
    c->measured_bytes_per_s = best->algbw_bytes_per_s;
    // An assumed figure judges nobody: only a specification, measurement or baseline does.
    bool known = figure_is_known(f) && f.provenance != PROVENANCE_ASSUMED;
    set_limit(j, c, measure_key(best, j->a), known ? f.value : NAN);
    if (isfinite(c->limit_bytes_per_s) || known) {
        decide(j, c,
               nvme ? "check the drive's PCIe width, its fill and its health"
                    : "check PCIe generation, width and NUMA placement");
        return;
    }
    c->status = VERDICT_NODATA;
    c->required = nvme && j->q->needs_nvme;
    c->reason = "no baseline, and the cluster's own figure is only assumed";
    c->next_step = "give --baseline, or the drive's rated speed in the cluster file";
}

static void judge_host_memory(struct judge *j) {
    uint64_t have = 0, need = j->q->host_needed_bytes;
    if (!need)
        return;
    for (size_t i = 0; i < j->q->measurement_count; i++)
        if (j->q->measurements[i].host.memory_bytes > have)
            have = j->q->measurements[i].host.memory_bytes;
    struct verdict_check *c = add(j, "host memory");
    if (!have) {
        c->reason = "the measurement does not say how much the host has";
        c->next_step = "measure with shardplan bench, which records it";
        return;
    }
    c->status = have >= need ? VERDICT_PASS : VERDICT_FAIL;
    if (c->status == VERDICT_FAIL) {
        c->reason = arena_printf(j->a, "the plan needs %s per node, the host has %s",
                                 size_text(j, need), size_text(j, have));
        c->next_step = "add memory, or offload less (shardplan advise)";
    }
}

static void judge_results(struct judge *j) {
    const struct measurement *m = j->q->measurements;
    for (size_t i = 0; i < j->q->measurement_count; i++)
        for (size_t k = 0; k < m[i].count; k++) {
            const struct measure_result *r = &m[i].results[k];
            const char *key = measure_key(r, j->a);
            enum collective kind;
            if (r->errors)
                judge_wrong(j, r);
            else if (seen(m, i, k, key, j->a))
                continue;
            else if (r->group &&
                     (strcmp(r->kind, "copy") == 0 || strcmp(r->kind, "send_recv") == 0))
                judge_group(j, r);
            else if (collective_find(r->kind, &kind) && r->median_s > 0 && r->ranks > 1)
                judge_collective(j, r, kind, key);
        }
}

static bool any_collective(const struct verdict *v) {
    for (size_t i = 0; i < v->count; i++)
        if (isfinite(v->checks[i].model_bytes_per_s))
            return true;
    return false;
}

// One failure fails; a required check without data or waived is no pass.
static void sum_up(struct judge *j) {
    struct verdict *v = j->out;
    size_t open = 0;
    const char *culprit = NULL;
    for (size_t i = 0; i < v->count; i++) {
        v->by_status[v->checks[i].status]++;
        open += v->checks[i].required &&
                (v->checks[i].status == VERDICT_NODATA || v->checks[i].status == VERDICT_WAIVED);
        if (v->checks[i].status == VERDICT_FAIL && !culprit)
            culprit = v->checks[i].culprit ? v->checks[i].culprit : v->checks[i].name;
    }
    if (v->by_status[VERDICT_FAIL]) {
        v->overall = VERDICT_FAIL;
        v->reason = arena_printf(j->a, "%zu of %zu checks fail, first: %s",
                                 v->by_status[VERDICT_FAIL], v->count, culprit);
    } else if (open || v->by_status[VERDICT_PASS] == 0) {
        v->overall = v->by_status[VERDICT_WAIVED] && !v->by_status[VERDICT_NODATA] ? VERDICT_WAIVED
                                                                                   : VERDICT_NODATA;
        v->reason = v->by_status[VERDICT_PASS] == 0
                        ? "nothing was judged: no data never passes"
                        : arena_printf(j->a, "%zu required checks have no answer", open);
    } else {
        v->overall = VERDICT_PASS;
        v->reason = arena_printf(j->a, "all %zu judged checks pass", v->by_status[VERDICT_PASS]);
    }
}

bool verdict_judge(const struct verdict_request *q, struct arena *a, struct verdict *out,
                   struct err *e) {
    struct verdict v = {0};
    struct judge j = {.q = q, .a = a, .out = &v};
    (void)e;
    judge_results(&j);
    for (size_t i = 0; i < sizeof device_rules / sizeof device_rules[0]; i++)
        judge_device(&j, &device_rules[i]);
    judge_host_memory(&j);
    if (q->needs_collectives && !any_collective(&v)) {
        struct verdict_check *c = add(&j, "collectives");
        c->reason = "the plan communicates and no collective at or above the knee was measured";
        c->next_step = "shardplan bench collectives";
    }
    sum_up(&j);
    *out = v;
    return true;
}
