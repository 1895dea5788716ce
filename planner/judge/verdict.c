// SPDX-License-Identifier: Apache-2.0
#include "judge/verdict_private.h"

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
// This close below its limit a point is measured again before it counts.
static const double near_share = 0.75;
// The knee: where transfer takes as long as latency, but at least this.
#define KNEE_MIN_BYTES (4 * UNITS_MIB)

struct verdict_check *verdict_add(struct judge *j, const char *name) {
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

const char *verdict_size_text(struct judge *j, uint64_t bytes) {
    char text[32];
    return arena_strdup(j->a, units_format_bytes(text, sizeof text, (double)bytes));
}

static bool sound(const struct measure_result *r) {
    return r->errors == 0 && r->median_s > 0;
}

struct scatter {
    double cv;
    size_t repeats;
};

// Median over repeats of one point, and how they scatter.
static double median_rate(const struct judge *j, const struct verdict_point *points, size_t count,
                          const char *key, struct scatter *out) {
    const struct measure_result *only = NULL;
    double *rates = arena_array(j->a, count + 1, sizeof *rates);
    size_t have = 0;
    for (size_t i = 0; i < count; i++) {
        const struct measure_result *r = points[i].result;
        double rate = isfinite(r->busbw_bytes_per_s) ? r->busbw_bytes_per_s : r->algbw_bytes_per_s;
        if (sound(r) && rate > 0 && strcmp(points[i].key, key) == 0) {
            rates[have++] = rate;
            only = r;
        }
    }
    *out = (struct scatter){.repeats = have};
    if (have > 1)
        out->cv = stats_stddev(rates, have) / stats_mean(rates, have);
    else if (have == 1 && only->samples > 2) // one run: its iterations say how it scatters
        out->cv = stats_stddev(only->samples_s, only->samples) /
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

// Root mean square of the scatter over a baseline's points: a few repeats say little about one
// point, many points together say how the fabric scatters.
static double usual_cv(const struct judge *j) {
    double squares = 0;
    struct scatter x;
    size_t n = 0;
    for (size_t i = 0; i < j->baseline_count; i++) {
        bool first = true;
        for (size_t k = 0; k < i && first; k++)
            first = strcmp(j->baseline[k].key, j->baseline[i].key) != 0;
        const struct measure_result *r = j->baseline[i].result;
        if (!first || r->payload_bytes < KNEE_MIN_BYTES)
            continue;
        if (isfinite(median_rate(j, j->baseline, j->baseline_count, j->baseline[i].key, &x))) {
            squares += x.cv * x.cv;
            n++;
        }
    }
    return n ? sqrt(squares / (double)n) : 0;
}

// max(min(0.95, 1 - 3 CV) x baseline, floor x model): the limit of one point.
static void set_limit(struct judge *j, struct verdict_check *c, const char *key, double model) {
    double limit = model_floor * model;
    struct scatter x;
    c->model_bytes_per_s = model;
    if (j->baseline_count) {
        double base = median_rate(j, j->baseline, j->baseline_count, key, &x);
        if (isfinite(base)) {
            c->baseline_bytes_per_s = base;
            // The median of few repeats is off itself: its variance is pi / 2n of one repeat's.
            double cv = fmax(x.cv, j->usual_cv) * sqrt(1 + M_PI_2 / (double)x.repeats);
            double share = fmin(baseline_share, 1 - 3 * cv);
            // A baseline is this machine's own word; the model only backs it up.
            limit = isfinite(model) ? fmax(share * base, fmin(limit, base)) : share * base;
        }
    }
    c->limit_bytes_per_s = limit;
}

void verdict_decide(struct judge *j, struct verdict_check *c, const char *next_step) {
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
        verdict_fail(c, NULL, arena_printf(j->a, "%s is below the limit of %s", measured, limit),
                     next_step);
        c->near = c->measured_bytes_per_s >= near_share * c->limit_bytes_per_s;
    }
}

void verdict_fail(struct verdict_check *c, const char *culprit, const char *reason,
                  const char *next_step) {
    c->status = VERDICT_FAIL;
    c->culprit = culprit;
    c->reason = reason;
    c->next_step = next_step;
}

bool verdict_wants_retry(const struct verdict *v) {
    bool near = v->by_status[VERDICT_FAIL] > 0;
    for (size_t i = 0; i < v->count; i++)
        near &= v->checks[i].status != VERDICT_FAIL || v->checks[i].near;
    return near;
}

static bool seen(const struct judge *j, size_t at) {
    for (size_t i = 0; i < at; i++)
        if (strcmp(j->measured[i].key, j->measured[at].key) == 0)
            return true;
    return false;
}

static void judge_wrong(struct judge *j, const struct measure_result *r) {
    struct verdict_check *c = verdict_add(
        j, arena_printf(j->a, "%s %s: data", r->kind, verdict_size_text(j, r->payload_bytes)));
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
    struct scatter unused;
    if (!above_knee(j, k, r))
        return;
    struct verdict_check *c = verdict_add(
        j, arena_printf(j->a, "%s %s, %" PRIu64 " ranks%s%s%s", r->kind,
                        verdict_size_text(j, r->payload_bytes), r->ranks, r->algorithm ? ", " : "",
                        r->algorithm ? r->algorithm : "", r->in_place ? ", in place" : ""));
    c->measured_bytes_per_s = median_rate(j, j->measured, j->measured_count, key, &unused);
    if (r->oversubscribed || r->shared_gpu) {
        c->status = VERDICT_WAIVED;
        c->reason = r->shared_gpu ? "several ranks shared one GPU" : "more ranks than processors";
        c->next_step = "run one rank per device";
        return;
    }
    set_limit(j, c, key, model_rate(j, k, r));
    verdict_decide(
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

static const struct verdict_point *best_device(struct judge *j, const struct device_rule *rule) {
    const struct verdict_point *best = NULL;
    for (size_t i = 0; i < j->measured_count; i++) {
        const struct measure_result *r = j->measured[i].result;
        bool wanted = strcmp(r->kind, rule->kind) == 0 && r->direction &&
                      strcmp(r->direction, rule->direction) == 0 && !r->concurrent &&
                      r->errors == 0;
        if (wanted && r->algbw_bytes_per_s > 0 &&
            (!best || r->algbw_bytes_per_s > best->result->algbw_bytes_per_s))
            best = &j->measured[i];
    }
    return best;
}

static void judge_device(struct judge *j, const struct device_rule *rule) {
    struct figure f =
        *(const struct figure *)(const void *)((const char *)j->q->cluster + rule->offset);
    const struct verdict_point *best = best_device(j, rule);
    bool nvme = strcmp(rule->kind, "nvme") == 0;
    if (!best && !(nvme && j->q->needs_nvme))
        return; // not asked for
    struct verdict_check *c = verdict_add(j, rule->name);
    if (!best) {
        c->reason = "the plan needs it and no measurement has it";
        c->next_step = rule->command;
        return;
    }
    c->measured_bytes_per_s = best->result->algbw_bytes_per_s;
    // An assumed figure judges nobody: only a specification, measurement or baseline does.
    bool known = figure_is_known(f) && f.provenance != PROVENANCE_ASSUMED;
    set_limit(j, c, best->key, known ? f.value : NAN);
    if (isfinite(c->limit_bytes_per_s) || known) {
        verdict_decide(j, c,
                       nvme ? "check the drive's PCIe width, its fill and its health"
                            : "check PCIe generation, width and NUMA placement");
        if (c->status == VERDICT_FAIL)
            c->culprit = rule->name;
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
    struct verdict_check *c = verdict_add(j, "host memory");
    if (!have) {
        c->reason = "the measurement does not say how much the host has";
        c->next_step = "measure with shardplan bench, which records it";
        return;
    }
    c->status = have >= need ? VERDICT_PASS : VERDICT_FAIL;
    if (c->status == VERDICT_FAIL) {
        c->reason = arena_printf(j->a, "the plan needs %s per node, the host has %s",
                                 verdict_size_text(j, need), verdict_size_text(j, have));
        c->next_step = "add memory, or offload less (shardplan advise)";
        c->culprit = "host memory";
    }
}

static void judge_results(struct judge *j) {
    for (size_t i = 0; i < j->measured_count; i++) {
        const struct measure_result *r = j->measured[i].result;
        enum collective kind;
        if (r->errors)
            judge_wrong(j, r);
        else if (!verdict_is_link(r) && collective_find(r->kind, &kind) && r->median_s > 0 &&
                 r->ranks > 1 && !seen(j, i))
            judge_collective(j, r, kind, j->measured[i].key);
    }
    verdict_links(j);
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
    const char *culprit = NULL, *first = NULL;
    for (size_t i = 0; i < v->count; i++) {
        v->by_status[v->checks[i].status]++;
        open += v->checks[i].required &&
                (v->checks[i].status == VERDICT_NODATA || v->checks[i].status == VERDICT_WAIVED);
        if (v->checks[i].status == VERDICT_FAIL && !culprit)
            culprit = v->checks[i].culprit;
        if (v->checks[i].status == VERDICT_FAIL && !first)
            first = v->checks[i].name;
    }
    if (v->by_status[VERDICT_FAIL]) {
        v->overall = VERDICT_FAIL;
        v->reason =
            arena_printf(j->a, "%zu of %zu checks fail, %s%s", v->by_status[VERDICT_FAIL], v->count,
                         culprit ? "culprit: " : "first: ", culprit ? culprit : first);
    } else if (open || v->by_status[VERDICT_PASS] == 0) {
        v->overall = v->by_status[VERDICT_WAIVED] && !v->by_status[VERDICT_NODATA] ? VERDICT_WAIVED
                                                                                   : VERDICT_NODATA;
        v->reason = v->by_status[VERDICT_PASS] == 0
                        ? "nothing was judged, and no data never passes: give what "
                          "`shardplan bench all` measured"
                        : arena_printf(j->a, "%zu required checks have no answer", open);
    } else {
        v->overall = VERDICT_PASS;
        v->reason = arena_printf(j->a, "all %zu judged checks pass", v->by_status[VERDICT_PASS]);
    }
}

static const struct verdict_point *flatten(const struct measurement *m, size_t count,
                                           struct arena *a, size_t *out) {
    size_t all = 0, n = 0;
    for (size_t i = 0; i < count; i++)
        all += m[i].count;
    struct verdict_point *points = arena_array(a, all + 1, sizeof *points);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < m[i].count; k++)
            points[n++] =
                (struct verdict_point){&m[i].results[k], measure_key(&m[i].results[k], a)};
    *out = n;
    return points;
}

bool verdict_judge(const struct verdict_request *q, struct arena *a, struct verdict *out,
                   struct err *e) {
    struct verdict v = {0};
    struct judge j = {.q = q, .a = a, .out = &v};
    (void)e;
    j.measured = flatten(q->measurements, q->measurement_count, a, &j.measured_count);
    j.baseline = flatten(q->baselines, q->baseline_count, a, &j.baseline_count);
    j.usual_cv = usual_cv(&j);
    judge_results(&j);
    verdict_topology(&j);
    for (size_t i = 0; i < sizeof device_rules / sizeof device_rules[0]; i++)
        judge_device(&j, &device_rules[i]);
    judge_host_memory(&j);
    if (q->needs_collectives && !any_collective(&v)) {
        struct verdict_check *c = verdict_add(&j, "collectives");
        c->reason = "the plan communicates and no collective at or above the knee was measured";
        c->next_step = "shardplan bench collectives";
    }
    sum_up(&j);
    *out = v;
    return true;
}
