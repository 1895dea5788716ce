// SPDX-License-Identifier: Apache-2.0
#include "judge/break_even.h"

#include "base/units.h"

#include <math.h>

const char *const break_even_link_names[BREAK_LINK_COUNT] = {
    [BREAK_INTRA] = "intra_node", [BREAK_INTER] = "inter_node",      [BREAK_PCIE] = "pcie",
    [BREAK_NVME] = "nvme",        [BREAK_HOST_DRAM] = "host_memory",
};

static const char *const owners[BREAK_LINK_COUNT] = {
    [BREAK_INTRA] = "per GPU", [BREAK_INTER] = "per GPU",      [BREAK_PCIE] = "per GPU",
    [BREAK_NVME] = "per node", [BREAK_HOST_DRAM] = "per node",
};

// DESIGN §5: enough is within 5 % of infinite; latency-bound is beyond 10 % of compute alone.
static const double enough = 1.05;
static const double latency_limit = 1.10;

double break_even_bandwidth(const struct cluster *c, enum break_even_link link) {
    switch (link) {
    case BREAK_INTRA:
        return figure_is_known(c->gpu.nvlink_bytes_per_s) ? c->gpu.nvlink_bytes_per_s.value
                                                          : c->gpu.pcie_h2d_bytes_per_s.value;
    case BREAK_INTER:
        return (double)c->nics_per_node * c->nic_bytes_per_s.value / (double)c->gpus_per_node;
    case BREAK_PCIE:
        return c->gpu.pcie_h2d_bytes_per_s.value;
    case BREAK_NVME:
        return c->nvme_read_bytes_per_s.value;
    default:
        return c->host_dram_bytes_per_s.value;
    }
}

static void set_scale(struct step_scale *s, enum break_even_link link, double multiple) {
    *s = (struct step_scale){1, 1, 1, 1, 1, 1, 1};
    switch (link) {
    case BREAK_INTRA:
        s->intra = multiple;
        break;
    case BREAK_INTER:
        s->inter = multiple;
        break;
    case BREAK_PCIE:
        s->pcie = multiple;
        break;
    case BREAK_NVME:
        s->nvme = multiple;
        break;
    default:
        s->host_dram = multiple;
    }
}

bool break_even_step(const struct break_even_subject *s, enum break_even_link link, double multiple,
                     struct arena *a, double *step_s, struct err *e) {
    struct step_scale scale;
    struct step_time t;
    set_scale(&scale, link, multiple);
    struct step_request q = {.model = s->model,
                             .cluster = s->cluster,
                             .recipe = &s->plan->recipe,
                             .scale = &scale,
                             .quick = true};
    if (!step_simulate(&q, a, &t, NULL, e))
        return false;
    *step_s = t.step_s;
    return true;
}

// Network ports come in steps; other links are bought as they are.
static double sold(enum break_even_link link, double needed) {
    static const double ports_gbit_per_s[] = {100, 200, 400, 800};
    if (link != BREAK_INTER)
        return NAN;
    for (size_t i = 0; i < sizeof ports_gbit_per_s / sizeof ports_gbit_per_s[0]; i++) {
        double bytes_per_s = ports_gbit_per_s[i] * UNITS_GIGA / 8;
        if (needed <= bytes_per_s)
            return bytes_per_s;
    }
    return NAN;
}

static bool uses(const struct cluster *c, const struct plan *p, enum break_even_link link) {
    const struct volume *v = &p->volume;
    switch (link) {
    case BREAK_INTRA:
        return v->intra_node_bytes_per_gpu > 0;
    case BREAK_INTER:
        return c->nodes > 1 && v->inter_node_bytes_per_gpu > 0;
    case BREAK_PCIE:
        return v->h2d_bytes + v->d2h_bytes > 0;
    case BREAK_NVME:
        return v->nvme_read_bytes + v->nvme_write_bytes > 0;
    default:
        return v->host_dram_bytes_per_node > 0;
    }
}

// Smallest multiple with step <= target, by bisection on the logarithm; the step falls with it.
static bool bisect(const struct break_even_subject *s, struct break_even *b, struct arena *a,
                   struct err *e) {
    double low = -20, high = 20, step_s; // powers of two
    double target = enough * b->floor_step_s;
    for (int i = 0; i < 24; i++) {
        double middle = (low + high) / 2;
        if (!break_even_step(s, b->link, exp2(middle), a, &step_s, e))
            return false;
        if (step_s <= target)
            high = middle;
        else
            low = middle;
    }
    b->needed_bytes_per_s = exp2(high) * b->current_bytes_per_s;
    return true;
}

bool break_even_find(const struct break_even_subject *s, enum break_even_link link, struct arena *a,
                     struct break_even *out, struct err *e) {
    struct break_even b = {.link = link,
                           .unit_of = owners[link],
                           .current_bytes_per_s = break_even_bandwidth(s->cluster, link),
                           .needed_bytes_per_s = NAN,
                           .sold_bytes_per_s = NAN,
                           .step_s = s->plan->time.step_s,
                           .floor_step_s = NAN,
                           .compute_s = s->plan->time.compute_s};
    if (!uses(s->cluster, s->plan, link)) {
        b.reason = "not_used";
        *out = b;
        return true;
    }
    if (!break_even_step(s, link, INFINITY, a, &b.floor_step_s, e))
        return false;
    if (link <= BREAK_INTER && b.floor_step_s > latency_limit * b.compute_s &&
        s->plan->time.exposed_offload_s <= 0)
        b.reason = "latency_bound";
    else if (!bisect(s, &b, a, e))
        return false;
    if (!b.reason) {
        b.sold_bytes_per_s = sold(link, b.needed_bytes_per_s);
        if (b.needed_bytes_per_s <= b.current_bytes_per_s)
            b.reason = "already_enough";
    }
    *out = b;
    return true;
}

bool break_even_sensitivity(const struct break_even_subject *s, enum break_even_link link,
                            struct arena *a, struct sensitivity *out, struct err *e) {
    const double h = 0.01;
    double less_s, more_s, tenth_s, value = break_even_bandwidth(s->cluster, link);
    if (!break_even_step(s, link, 1 - h, a, &less_s, e) ||
        !break_even_step(s, link, 1 + h, a, &more_s, e) ||
        !break_even_step(s, link, 1.1, a, &tenth_s, e))
        return false;
    *out = (struct sensitivity){.path = break_even_link_names[link],
                                .unit = owners[link],
                                .value = value,
                                .step_s_per_unit = (more_s - less_s) / (2 * h * value),
                                .gain_of_10_percent = 1 - tenth_s / s->plan->time.step_s};
    return true;
}
