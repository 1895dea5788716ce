// SPDX-License-Identifier: Apache-2.0
#include "plan/step.h"

#include "base/units.h"
#include "cost/memory_parts.h"
#include "describe/gpu_kernels.h"
#include "plan/step_account.h"
#include "plan/step_build.h"
#include "plan/step_timeline.h"

#include <math.h>
#include <string.h>

const char *const bound_names[BOUND_COUNT] = {
    "compute", "host_issue", "intra_node",  "inter_node", "network_latency",
    "pcie",    "nvme",       "host_memory", "cpu",        "capacity"};

// Below this share of the step, waiting is not what bounds it.
static const double bound_fraction = 0.10;

static bool build(struct step_builder *b, struct err *e) {
    const struct recipe *r = b->recipe;
    b->phase = STEP_FORWARD;
    if (recipe_is_stage3(r)) {
        if (!step_build_zero3(b, e))
            return false;
    } else if (recipe_is_fsdp2(r)) {
        step_build_fsdp2(b);
    } else if (recipe_is_fsdp1(r)) {
        step_build_fsdp1(b);
    } else if (recipe_is_deepspeed(r) && !memory_is_megatron(r)) {
        step_build_zero12(b);
    } else {
        step_build_ddp(b);
    }
    step_build_optimizer(b);
    uint32_t end = b->last[STREAM_COMPUTE];
    b->phase = STEP_OPTIMIZER;
    step_release(b, b->kept_grad_bytes); // zero_grad
    step_host(b, OP_STEP_HOST, compute_step_host_s(b->cluster, r), 0, end);
    return true;
}

// A link serves the fastest collective at full speed and shares that rate between two at once.
static void set_capacities(struct step_builder *b) {
    const double all = 1;
    sim_resource(b->sim, RESOURCE_SM, all);
    sim_resource(b->sim, RESOURCE_CORES, all);
    sim_resource(b->sim, RESOURCE_NVME, all);
    sim_resource(b->sim, RESOURCE_HBM, b->rates.hbm_bytes_per_s);
    sim_resource(b->sim, RESOURCE_NVLINK,
                 b->nvlink_bytes_per_s > 0 ? b->nvlink_bytes_per_s : INFINITY);
    sim_resource(b->sim, RESOURCE_NIC, b->nic_bytes_per_s > 0 ? b->nic_bytes_per_s : INFINITY);
    sim_resource(b->sim, RESOURCE_PCIE, b->rates.pcie_both_bytes_per_s);
    sim_resource(b->sim, RESOURCE_DRAM, b->rates.dram_bytes_per_s);
}

static enum bound bound_of(const struct step_account *a, double step_s) {
    const enum bound bounds[STEP_COST_COUNT] = {[COST_COMPUTE] = BOUND_COMPUTE,
                                                [COST_HOST] = BOUND_HOST_ISSUE,
                                                [COST_INTRA] = BOUND_INTRA_NODE,
                                                [COST_INTER] = BOUND_INTER_NODE,
                                                [COST_LATENCY] = BOUND_NETWORK_LATENCY,
                                                [COST_PCIE] = BOUND_PCIE,
                                                [COST_NVME] = BOUND_NVME,
                                                [COST_DRAM] = BOUND_HOST_MEMORY,
                                                [COST_CPU] = BOUND_CPU};
    double waiting = 0;
    int largest = COST_HOST;
    for (int i = COST_HOST; i < STEP_COST_COUNT; i++) {
        waiting += a->by_kind[i];
        largest = a->by_kind[i] > a->by_kind[largest] ? i : largest;
    }
    return waiting < bound_fraction * step_s ? BOUND_COMPUTE : bounds[largest];
}

// The pipeline fills and drains once per step: forward and backward last (g + pp - 1) / g of their
// time without bubbles. An estimate; docs/method.md §model-parallel.
static void add_bubble(const struct step_builder *b, struct step_time *t) {
    const struct recipe *r = b->recipe;
    if (r->pp <= 1)
        return;
    double bubble = (double)(r->pp - 1) / (double)r->grad_accum;
    double lost_s = (t->forward_s + t->backward_s) * bubble;
    t->forward_s *= 1 + bubble;
    t->backward_s *= 1 + bubble;
    t->step_s += lost_s;
    t->exposed_comm_s += lost_s;
    if (t->wait_count < sizeof t->waits / sizeof *t->waits)
        t->waits[t->wait_count++] =
            (struct step_wait){"backward", "pipeline bubble (estimate)", lost_s,
                               lost_s / (t->forward_s + t->backward_s)};
}

static double offload_s(const double *by_kind) {
    return by_kind[COST_PCIE] + by_kind[COST_NVME] + by_kind[COST_DRAM] + by_kind[COST_CPU];
}

static double comm_s(const double *by_kind) {
    return by_kind[COST_INTRA] + by_kind[COST_INTER] + by_kind[COST_LATENCY];
}

static void summarise(const struct step_builder *b, const struct step_account *a,
                      struct step_time *t) {
    const struct recipe *r = b->recipe;
    *t = (struct step_time){
        .forward_s = a->by_phase[STEP_FORWARD],
        .backward_s = a->by_phase[STEP_BACKWARD],
        .optimizer_s = a->by_phase[STEP_OPTIMIZER],
        .compute_s = a->by_kind[COST_COMPUTE],
        .host_issue_s = a->by_kind[COST_HOST],
        .exposed_comm_s = comm_s(a->by_kind),
        .exposed_offload_s = offload_s(a->by_kind),
    };
    t->step_s = t->forward_s + t->backward_s + t->optimizer_s;
    t->bound_by = bound_of(a, t->step_s);
    size_t room = sizeof t->waits / sizeof *t->waits;
    t->wait_count = a->wait_count < room ? a->wait_count : room;
    for (size_t i = 0; i < t->wait_count; i++)
        t->waits[i] = a->waits[i];
    add_bubble(b, t);
    double tokens =
        (double)(r->micro_batch * r->grad_accum * r->seq) / (double)(r->tp * r->cp * r->pp);
    t->tokens_per_s_per_gpu = tokens / t->step_s;
    t->peak_flop_per_s = compute_peak_flop_per_s(&b->cluster->gpu, r);
    t->mfu = compute_model_flop(b->model, r, false) / t->step_s / t->peak_flop_per_s;
    t->hfu = compute_model_flop(b->model, r, true) / t->step_s / t->peak_flop_per_s;
}

// Step at the slow end of the links' constants: what is hidden now may show then.
static bool slow_links_s(const struct step_builder *b, struct step_time *t, double base_s,
                         double *out_s, struct err *e) {
    uint32_t count = sim_task_count(b->sim);
    double *multipliers = arena_array(b->arena, count + 1, sizeof *multipliers);
    for (uint32_t i = 0; i < count; i++)
        multipliers[i] = step_ops[b->meta[i].op].class == CLASS_COMPUTE ? 1 : b->meta[i].high;
    struct sim_result slow;
    if (!sim_run(b->sim, multipliers, b->arena, &slow, e))
        return false;
    *out_s = slow.end_s / base_s * t->step_s;
    return true;
}

// What the compute stream waits for the host follows the spread of a kernel's issue time.
static struct figure host_spread(const struct step_builder *b, double host_s) {
    struct figure f = gpu_kernel(&b->cluster->gpu, b->recipe->stack, KERNEL_ISSUE_S);
    f.low = host_s * (1 - f.low / f.value);
    f.high = host_s * (f.high / f.value - 1);
    return f;
}

static bool interval(const struct step_builder *b, const struct step_account *a, double base_s,
                     struct step_time *t, struct err *e) {
    double slow_s, scale = t->step_s / base_s;
    if (b->quick) {
        t->step_low_s = t->step_high_s = NAN;
        return true;
    }
    if (!slow_links_s(b, t, base_s, &slow_s, e))
        return false;
    const struct figure host = host_spread(b, t->host_issue_s);
    double links = slow_s - t->step_s;
    double high = hypot(hypot(a->critical_high_s * scale, host.high), links > 0 ? links : 0);
    t->step_low_s = fmax(t->step_s - hypot(a->critical_low_s * scale, host.low), 0);
    t->step_high_s = t->step_s + high;
    return true;
}

// What is allocated when the step starts, and what the optimizer takes while it runs.
static bool start_memory(struct step_builder *b, struct err *e) {
    struct memory m;
    if (!b->memory)
        return true;
    if (!memory_estimate(b->model, b->cluster, b->recipe, &m, e))
        return false;
    // Gradients come and go within the step; ZeRO-3 holds their buffer and bucket throughout.
    b->steady_bytes = (double)m.steady_bytes;
    if (recipe_is_stage3(b->recipe))
        b->steady_bytes += (double)m.classes_bytes[MEMORY_BUCKET];
    else
        b->steady_bytes -= (double)m.classes_bytes[MEMORY_GRADS];
    b->step_transient_bytes = (double)m.classes_bytes[MEMORY_STEP_TRANSIENT];
    return true;
}

bool step_build(const struct step_request *q, struct arena *a, struct step_builder *b,
                struct err *e) {
    if (!step_builder_init(b, q, a, e) || !start_memory(b, e) || !build(b, e))
        return false;
    set_capacities(b);
    return true;
}

static bool simulate_all(const struct step_request *q, struct arena *a, struct step_time *out,
                         struct step_account *account, struct step_timeline *timeline,
                         struct err *e) {
    struct step_builder b;
    struct sim_result run;
    struct step_time time;
    if (!step_build(q, a, &b, e) || !sim_run(b.sim, NULL, a, &run, e))
        return false;
    step_account(&b, &run, account);
    summarise(&b, account, &time);
    if (!interval(&b, account, run.end_s, &time, e))
        return false;
    if (timeline != NULL)
        step_timeline_fill(&b, &run, account, timeline);
    *out = time;
    return true;
}

// Micro-steps after the first few are alike, so the rest of a long accumulation is added as a
// multiple: of what a third one adds to two, which is what the middle one of three takes;
// docs/method.md §step.
#define MICRO_STEPS_SIMULATED 3

static void lengthen(struct step_time *t, const struct step_sums *one, double more, double g) {
    double shorter_s = t->step_s, sum = g / MICRO_STEPS_SIMULATED;
    t->forward_s += more * one->by_phase[STEP_FORWARD];
    t->backward_s += more * one->by_phase[STEP_BACKWARD];
    t->optimizer_s += more * one->by_phase[STEP_OPTIMIZER];
    t->step_s = t->forward_s + t->backward_s + t->optimizer_s;
    t->compute_s += more * one->by_kind[COST_COMPUTE];
    t->host_issue_s += more * one->by_kind[COST_HOST];
    t->exposed_comm_s += more * comm_s(one->by_kind);
    t->exposed_offload_s += more * offload_s(one->by_kind);
    double rate = sum * shorter_s / t->step_s;
    t->tokens_per_s_per_gpu *= rate;
    t->mfu *= rate;
    t->hfu *= rate;
    for (size_t i = 0; i < t->wait_count; i++)
        t->waits[i].seconds *= sum;
}

// How far the interval reaches from the value grows by what one more micro-step added to it.
static double reach(double two, double three, double more) {
    return three + more * (three - two);
}

static struct step_sums difference(const struct step_account *a, const struct step_account *b) {
    struct step_sums d;
    for (int i = 0; i < STEP_PHASE_COUNT; i++)
        d.by_phase[i] = a->by_phase[i] - b->by_phase[i];
    for (int i = 0; i < STEP_COST_COUNT; i++)
        d.by_kind[i] = a->by_kind[i] - b->by_kind[i];
    return d;
}

// FSDP2's host waits for gradients on their way to it from the second micro-step on, so that one
// does not yet stand for the rest.
static bool first_differs(const struct recipe *r) {
    return recipe_is_fsdp2(r) && r->offload_param == OFFLOAD_CPU;
}

static bool simulate_accumulation(const struct step_request *q, struct arena *a,
                                  struct step_time *out, struct err *e) {
    struct recipe r = *q->recipe;
    struct step_request part = *q;
    struct step_time two, t;
    struct step_account account, shorter;
    const bool both = !q->quick || first_differs(&r);
    double g = (double)r.grad_accum, more = g - MICRO_STEPS_SIMULATED;
    part.recipe = &r;
    r.grad_accum = MICRO_STEPS_SIMULATED - 1;
    if (both && !simulate_all(&part, a, &two, &shorter, NULL, e))
        return false;
    r.grad_accum = MICRO_STEPS_SIMULATED;
    if (!simulate_all(&part, a, &t, &account, NULL, e))
        return false;
    double low_s = t.step_s - t.step_low_s, high_s = t.step_high_s - t.step_s;
    const struct step_sums one =
        first_differs(&r) ? difference(&account, &shorter) : account.second;
    lengthen(&t, &one, more, g);
    if (!q->quick) {
        t.step_low_s = t.step_s - reach(two.step_s - two.step_low_s, low_s, more);
        t.step_high_s = t.step_s + reach(two.step_high_s - two.step_s, high_s, more);
    }
    *out = t;
    return true;
}

bool step_simulate(const struct step_request *q, struct arena *a, struct step_time *out,
                   struct step_timeline *timeline, struct err *e) {
    struct step_account account;
    // A pipeline's bubble depends on the number of micro-steps itself.
    if (timeline != NULL || q->recipe->grad_accum <= MICRO_STEPS_SIMULATED || q->recipe->pp > 1)
        return simulate_all(q, a, out, &account, timeline, e);
    return simulate_accumulation(q, a, out, e);
}

bool step_graph(const struct step_request *q, struct arena *a, struct graph *out, struct err *e) {
    struct step_builder b;
    struct sim_result run;
    if (!step_build(q, a, &b, e) || !sim_run(b.sim, NULL, a, &run, e))
        return false;
    step_graph_fill(&b, &run, out);
    return true;
}

bool step_resample(const struct step_request *q, const struct step_draws *d, struct arena *a,
                   double *step_s, struct err *e) {
    struct step_builder b;
    if (!step_build(q, a, &b, e))
        return false;
    uint32_t count = sim_task_count(b.sim);
    double *multipliers = arena_array(a, count + 1, sizeof *multipliers);
    struct arena *scratch = arena_create();
    bool ok = true;
    for (uint64_t draw = 0; ok && draw < d->count; draw++) {
        struct sim_result run;
        arena_reset(scratch);
        for (uint32_t i = 0; i < count; i++)
            multipliers[i] =
                d->multiplier(d->context, draw, i, step_ops[b.meta[i].op].class == CLASS_COMPUTE);
        ok = sim_run(b.sim, multipliers, scratch, &run, e);
        if (ok)
            step_s[draw] = run.end_s;
    }
    arena_destroy(scratch);
    return ok;
}
