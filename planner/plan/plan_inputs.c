// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_inputs.h"

#include "cost/compute.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// What a figure can change; the others' plans need no second look.
enum affects { AFFECTS_STEP, AFFECTS_FIT, AFFECTS_NETWORK, AFFECTS_COPIES, AFFECTS_NVME };

struct known_figure {
    enum affects affects;
    const char *path, *unit;
    size_t offset;            // of a struct figure in struct cluster
    const char *measure_with; // command that replaces an assumption by a measurement
};

#define CLUSTER_FIGURE(affects, field, unit, measure)                                              \
    { affects, "cluster." #field, unit, offsetof(struct cluster, field), measure }
#define GPU_FIGURE(affects, field, unit, measure)                                                  \
    {                                                                                              \
        affects, "gpu." #field, unit, offsetof(struct cluster, gpu) + offsetof(struct gpu, field), \
            measure                                                                                \
    }

static const struct known_figure figures[] = {
    GPU_FIGURE(AFFECTS_FIT, memory_torch_bytes, "bytes",
               "python3 -c 'import torch; print(torch.cuda.mem_get_info()[1])'"),
    GPU_FIGURE(AFFECTS_FIT, context_bytes, "bytes",
               "nvidia-smi --query-compute-apps=used_memory --format=csv"),
    GPU_FIGURE(AFFECTS_FIT, nccl_first_bytes, "bytes",
               "nvidia-smi --query-compute-apps=used_memory --format=csv"),
    GPU_FIGURE(AFFECTS_STEP, hbm_bytes_per_s, "bytes/s", "shardplan bench copy"),
    GPU_FIGURE(AFFECTS_STEP, hbm_fraction, "fraction", "shardplan bench copy"),
    GPU_FIGURE(AFFECTS_STEP, nvlink_bytes_per_s, "bytes/s", "shardplan bench collectives"),
    GPU_FIGURE(AFFECTS_STEP, nvlink_busbw_bytes_per_s, "bytes/s", "shardplan bench collectives"),
    GPU_FIGURE(AFFECTS_STEP, nvls_busbw_bytes_per_s, "bytes/s", "shardplan bench collectives"),
    GPU_FIGURE(AFFECTS_STEP, pcie_h2d_bytes_per_s, "bytes/s", "shardplan bench copy"),
    GPU_FIGURE(AFFECTS_STEP, pcie_d2h_bytes_per_s, "bytes/s", "shardplan bench copy"),
    GPU_FIGURE(AFFECTS_COPIES, pcie_h2d_both_bytes_per_s, "bytes/s", "shardplan bench copy"),
    GPU_FIGURE(AFFECTS_COPIES, pcie_d2h_both_bytes_per_s, "bytes/s", "shardplan bench copy"),
    CLUSTER_FIGURE(AFFECTS_NETWORK, nic_bytes_per_s, "bytes/s", "shardplan bench collectives"),
    CLUSTER_FIGURE(AFFECTS_NETWORK, inter_efficiency, "fraction", "shardplan bench collectives"),
    CLUSTER_FIGURE(AFFECTS_COPIES, pcie_switch_bytes_per_s, "bytes/s", "shardplan bench copy"),
    CLUSTER_FIGURE(AFFECTS_STEP, cpu_cores, "cores", "lscpu"),
    CLUSTER_FIGURE(AFFECTS_FIT, host_memory_bytes, "bytes", "free -b"),
    CLUSTER_FIGURE(AFFECTS_COPIES, host_dram_bytes_per_s, "bytes/s", "shardplan bench adam"),
    CLUSTER_FIGURE(AFFECTS_NVME, nvme_read_bytes_per_s, "bytes/s", "shardplan bench nvme"),
    CLUSTER_FIGURE(AFFECTS_NVME, nvme_write_bytes_per_s, "bytes/s", "shardplan bench nvme"),
    CLUSTER_FIGURE(AFFECTS_FIT, nvme_capacity_bytes, "bytes", "df -B1"),
    CLUSTER_FIGURE(AFFECTS_COPIES, cpu_adam_s_per_param, "s/parameter", "shardplan bench adam"),
    CLUSTER_FIGURE(AFFECTS_FIT, usd_per_gpu_hour, "USD", NULL),
};
#define FIGURES (sizeof figures / sizeof figures[0])

static struct figure *figure_at(struct cluster *c, size_t i) {
    return (struct figure *)((char *)c + figures[i].offset);
}

static void list_inputs(struct plan_set *s, struct arena *a) {
    struct cluster c = *s->cluster;
    s->inputs = arena_array(a, FIGURES + 2, sizeof *s->inputs);
    s->inputs[s->input_count++] = (struct plan_input){
        .path = "model.parameters",
        .unit = "parameters",
        .figure = figure_known((double)s->model->parameters, PROVENANCE_SPEC, s->model->source)};
    enum dtype t = DTYPE_BF16;
    if (s->plan_count > 0)
        t = compute_peak_dtype(&c.gpu, &s->plans[s->recommendation.plan_index].recipe);
    s->inputs[s->input_count++] =
        (struct plan_input){.path = arena_printf(a, "gpu.peak_flop_per_s.%s", dtype_name(t)),
                            .unit = "flop/s",
                            .figure = c.gpu.peak_flop_per_s[t]};
    for (size_t i = 0; i < FIGURES; i++)
        s->inputs[s->input_count++] = (struct plan_input){
            .path = figures[i].path, .unit = figures[i].unit, .figure = *figure_at(&c, i)};
}

struct question {
    const struct plan_set *set;
    const struct plan *plan; // the recommended one
    struct plan_workspace *workspace;
};

static enum plan_time needed(const struct question *x, enum affects k) {
    const struct recipe *r = &x->plan->recipe;
    const struct cluster *c = x->set->cluster;
    bool nvme = r->offload_optimizer == OFFLOAD_NVME || r->offload_param == OFFLOAD_NVME;
    bool copies = r->offload_optimizer != OFFLOAD_NONE || r->offload_param != OFFLOAD_NONE ||
                  r->activation_offload || c->nic_shares_pcie_switch;
    bool step = k == AFFECTS_STEP || (k == AFFECTS_NETWORK && c->nodes > 1) ||
                (k == AFFECTS_COPIES && copies) || (k == AFFECTS_NVME && nvme);
    return step ? PLAN_TIME_IF_FITS : PLAN_TIME_NEVER;
}

// Step time of the plan with figure i at `value`; a changed capacity shows as a changed fit.
static bool what_if(const struct question *x, size_t i, double value, struct arena *a,
                    struct plan *out, struct err *e) {
    struct cluster c = *x->set->cluster;
    *figure_at(&c, i) = figure_known(value, PROVENANCE_ASSUMED, figure_at(&c, i)->source);
    const struct plan_question q = {x->set->model, &c, &x->plan->recipe,
                                    needed(x, figures[i].affects), x->workspace};
    return plan_answer(&q, a, out, e);
}

static const char *effect_text(const struct plan *low, const struct plan *high, double fraction,
                               struct arena *a) {
    if (low->fits != high->fits)
        return "decides whether this plan fits";
    return arena_printf(a, "step time moves by %.0f %% over its interval", 100 * fraction);
}

static int by_effect(const void *x, const void *y) {
    double a = ((const struct assumption *)x)->effect_fraction;
    double b = ((const struct assumption *)y)->effect_fraction;
    return (a < b) - (a > b);
}

bool plan_inputs(struct plan_set *s, struct plan_workspace *w, struct arena *a, struct err *e) {
    struct assumption all[FIGURES];
    size_t count = 0;
    list_inputs(s, a);
    if (s->plan_count == 0 || s->plans[s->recommendation.plan_index].reason)
        return true;
    const struct plan *p = &s->plans[s->recommendation.plan_index];
    const struct question x = {s, p, w};
    struct cluster c = *s->cluster;
    struct arena *scratch = arena_create();
    for (size_t i = 0; i < FIGURES; i++) {
        struct figure f = *figure_at(&c, i);
        struct plan low, high;
        arena_reset(scratch);
        if (!figure_is_known(f) || f.provenance != PROVENANCE_ASSUMED || !(f.low < f.high))
            continue;
        if (!what_if(&x, i, f.low, scratch, &low, e) ||
            !what_if(&x, i, f.high, scratch, &high, e)) {
            arena_destroy(scratch);
            return false;
        }
        double change = fabs(high.time.step_s - low.time.step_s) / p->time.step_s;
        bool decides = low.fits != high.fits;
        if (!decides && !(change > 0.01))
            continue;
        all[count++] = (struct assumption){.path = figures[i].path,
                                           .effect = effect_text(&low, &high, change, a),
                                           .measure_with = figures[i].measure_with,
                                           .effect_fraction = decides ? INFINITY : change};
    }
    arena_destroy(scratch);
    qsort(all, count, sizeof all[0], by_effect);
    s->assumption_count = count < 8 ? count : 8;
    memcpy(s->assumptions, all, s->assumption_count * sizeof all[0]);
    return true;
}
