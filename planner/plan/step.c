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
    "compute", "host_issue",  "intra_node", "inter_node", "network_latency", "pcie",
    "nvme",    "host_memory", "cpu",        "capacity",   "pipeline_bubble"};
const char *const bound_words[BOUND_COUNT] = {
    [BOUND_COMPUTE] = "compute",
    [BOUND_HOST_ISSUE] = "the host's kernel launches",
    [BOUND_INTRA_NODE] = "the links inside the node",
    [BOUND_INTER_NODE] = "the inter-node network",
    [BOUND_NETWORK_LATENCY] = "the network's latency",
    [BOUND_PCIE] = "PCIe",
    [BOUND_NVME] = "NVMe",
    [BOUND_HOST_MEMORY] = "host memory",
    [BOUND_CPU] = "the CPU",
    [BOUND_CAPACITY] = "capacity",
    [BOUND_PIPELINE_BUBBLE] = "the pipeline's bubble",
};

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

static enum bound bound_of(const struct step_sums *sums, double bubble_s, double step_s) {
    const enum bound bounds[STEP_COST_COUNT] = {[COST_COMPUTE] = BOUND_COMPUTE,
                                                [COST_HOST] = BOUND_HOST_ISSUE,
                                                [COST_INTRA] = BOUND_INTRA_NODE,
                                                [COST_INTER] = BOUND_INTER_NODE,
                                                [COST_LATENCY] = BOUND_NETWORK_LATENCY,
                                                [COST_PCIE] = BOUND_PCIE,
                                                [COST_NVME] = BOUND_NVME,
                                                [COST_DRAM] = BOUND_HOST_MEMORY,
                                                [COST_CPU] = BOUND_CPU};
    double waiting = bubble_s;
    int largest = COST_HOST;
    for (int i = COST_HOST; i < STEP_COST_COUNT; i++) {
        waiting += sums->by_kind[i];
        largest = sums->by_kind[i] > sums->by_kind[largest] ? i : largest;
    }
    if (waiting < bound_fraction * step_s)
        return BOUND_COMPUTE;
    return bubble_s > sums->by_kind[largest] ? BOUND_PIPELINE_BUBBLE : bounds[largest];
}

// Waits for gradients that are reduced once per step: no other stage waits for them.
static double reduced_last_s(const struct recipe *r, const struct step_account *a) {
    bool once =
        r->grad_accum == 1 || r->no_sync || r->strategy == STRATEGY_ZERO1 || memory_is_megatron(r);
    double sum = 0;
    for (uint32_t i = 0; once && i < a->bucket_count; i++)
        if (a->buckets[i].phase == STEP_BACKWARD &&
            (a->buckets[i].op == OP_REDUCE || a->buckets[i].op == OP_REPLICA_REDUCE))
            sum += a->buckets[i].seconds;
    return sum;
}

// The pipeline fills and drains once per step, for which the others' micro-steps of p - 1 stages
// are waited for, in v pieces each. An estimate; docs/method.md §model-parallel.
static void add_bubble(const struct recipe *r, const struct step_account *a, struct step_time *t) {
    if (r->pp <= 1)
        return;
    double bubble = (double)(r->pp - 1) / (double)(r->grad_accum * r->virtual_stages);
    double forward_s = t->forward_s * bubble;
    double backward_s = fmax(t->backward_s - reduced_last_s(r, a), 0) * bubble;
    t->bubble_s = forward_s + backward_s;
    t->forward_s += forward_s;
    t->backward_s += backward_s;
    for (size_t i = 0; i < t->wait_count; i++) {
        const char *phase = t->waits[i].phase;
        if (phase == step_phase_names[STEP_FORWARD])
            t->waits[i].fraction = t->waits[i].seconds / t->forward_s;
        if (phase == step_phase_names[STEP_BACKWARD])
            t->waits[i].fraction = t->waits[i].seconds / t->backward_s;
    }
    struct step_wait wait = {"pipeline", "a bubble (estimate)", t->bubble_s,
                             t->bubble_s / (t->forward_s + t->backward_s)};
    size_t at = 0, room = sizeof t->waits / sizeof *t->waits;
    while (at < t->wait_count && t->waits[at].seconds >= wait.seconds)
        at++; // largest first
    if (at == room)
        return;
    t->wait_count += t->wait_count < room;
    memmove(&t->waits[at + 1], &t->waits[at], (t->wait_count - at - 1) * sizeof wait);
    t->waits[at] = wait;
}

static double offload_s(const double *by_kind) {
    return by_kind[COST_PCIE] + by_kind[COST_NVME] + by_kind[COST_DRAM] + by_kind[COST_CPU];
}

static double comm_s(const double *by_kind) {
    return by_kind[COST_INTRA] + by_kind[COST_INTER] + by_kind[COST_LATENCY];
}

// What the compute stream waits for the host follows the spread of a kernel's issue time.
static struct figure host_spread(const struct step_request *q, double host_s) {
    struct figure f = gpu_kernel(&q->cluster->gpu, q->recipe->stack, KERNEL_ISSUE_S);
    f.low = host_s * (1 - f.low / f.value);
    f.high = host_s * (f.high / f.value - 1);
    return f;
}

// `scale`: the step over what was simulated of it.
static void interval(const struct step_request *q, const struct step_account *a, double scale,
                     struct step_time *t) {
    double low = 0;
    const struct figure host = host_spread(q, t->host_issue_s);
    for (int i = 0; i < CLASS_COUNT; i++) // the classes' constants are independent
        low += a->critical_low_s[i] * a->critical_low_s[i];
    double links = scale * a->slow_links_s - t->step_s;
    double high = hypot(hypot(a->critical_high_s * scale, host.high), links > 0 ? links : 0);
    t->step_low_s = fmax(t->step_s - hypot(sqrt(low) * scale, host.low), 0);
    t->step_high_s = t->step_s + high;
}

static void summarise(const struct step_request *q, const struct step_account *a,
                      struct arena *arena, struct step_time *t) {
    const struct recipe *r = q->recipe;
    const double *by_kind = a->sums.by_kind;
    *t = (struct step_time){
        .forward_s = a->sums.by_phase[STEP_FORWARD],
        .backward_s = a->sums.by_phase[STEP_BACKWARD],
        .optimizer_s = a->sums.by_phase[STEP_OPTIMIZER],
        .compute_s = by_kind[COST_COMPUTE],
        .host_issue_s = by_kind[COST_HOST],
        .exposed_comm_s = comm_s(by_kind),
        .exposed_offload_s = offload_s(by_kind),
        .step_low_s = NAN,
        .step_high_s = NAN,
    };
    double simulated_s = t->forward_s + t->backward_s + t->optimizer_s;
    if (!q->quick)
        t->wait_count = step_account_waits(a, arena, t->waits, sizeof t->waits / sizeof *t->waits);
    add_bubble(r, a, t);
    t->step_s = t->forward_s + t->backward_s + t->optimizer_s;
    t->bound_by = bound_of(&a->sums, t->bubble_s, t->step_s);
    double tokens =
        (double)(r->micro_batch * r->grad_accum * r->seq) / (double)(r->tp * r->cp * r->pp);
    t->tokens_per_s_per_gpu = tokens / t->step_s;
    t->peak_flop_per_s = compute_peak_flop_per_s(&q->cluster->gpu, r);
    t->mfu = compute_model_flop(q->model, r, false) / t->step_s / t->peak_flop_per_s;
    t->hfu = compute_model_flop(q->model, r, true) / t->step_s / t->peak_flop_per_s;
    if (!q->quick)
        interval(q, a, t->step_s / simulated_s, t);
}

// End of the run at the slow end of the links' constants: what is hidden now may show then.
static bool slow_links(const struct step_builder *b, double *out_s, struct err *e) {
    uint32_t count = sim_task_count(b->sim);
    double *multipliers = arena_array(b->arena, count + 1, sizeof *multipliers);
    for (uint32_t i = 0; i < count; i++)
        multipliers[i] = step_ops[b->meta[i].op].class == CLASS_COMPUTE ? 1 : b->meta[i].high;
    struct sim_result slow;
    if (!sim_run(b->sim, multipliers, b->arena, &slow, e))
        return false;
    *out_s = slow.end_s;
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

struct simulated {
    struct step_builder b;
    struct sim_result run;
    struct step_account account;
};

static bool simulate(const struct step_request *q, struct arena *a, struct simulated *out,
                     struct err *e) {
    if (!step_build(q, a, &out->b, e) || !sim_run(out->b.sim, NULL, a, &out->run, e))
        return false;
    step_account(&out->b, &out->run, &out->account);
    return q->quick || slow_links(&out->b, &out->account.slow_links_s, e);
}

// Micro-steps after the first few are alike, so the rest of a long accumulation is added as a
// multiple: of what a third one adds to two, which is what the middle one of three takes;
// docs/method.md §step.
#define MICRO_STEPS_SIMULATED 3

// FSDP2's host waits for gradients on their way to it from the second micro-step on, so that one
// does not yet stand for the rest.
static bool first_differs(const struct recipe *r) {
    return recipe_is_fsdp2(r) && r->offload_param == OFFLOAD_CPU;
}

static bool folds(const struct recipe *r, bool timeline) {
    return r->grad_accum > (timeline ? STEP_WHOLE_MICRO_STEPS : MICRO_STEPS_SIMULATED);
}

bool step_simulate(const struct step_request *q, struct arena *a, struct step_time *out,
                   struct step_timeline *timeline, struct err *e) {
    struct simulated s, two;
    struct step_request part = *q;
    struct recipe r = *q->recipe;
    bool folded = folds(&r, timeline != NULL), both = !q->quick || first_differs(&r);
    part.recipe = &r;
    if (folded && both) {
        r.grad_accum = MICRO_STEPS_SIMULATED - 1;
        if (!simulate(&part, a, &two, e))
            return false;
    }
    if (folded)
        r.grad_accum = MICRO_STEPS_SIMULATED;
    if (!simulate(&part, a, &s, e))
        return false;
    if (folded)
        step_account_lengthen(&s.account, both ? &two.account : NULL,
                              (double)(q->recipe->grad_accum - MICRO_STEPS_SIMULATED));
    if (timeline != NULL)
        step_timeline_fill(&s.b, &s.run, &s.account, timeline);
    summarise(q, &s.account, a, out);
    return true;
}

static bool check_length(const struct recipe *r, const char *what, struct err *e) {
    if (r->grad_accum <= STEP_WHOLE_MICRO_STEPS)
        return true;
    return err_set(
        e, ERR_USAGE,
        "%s holds every task, so at most %d micro-steps, not %llu; those after the first "
        "three are alike",
        what, STEP_WHOLE_MICRO_STEPS, (unsigned long long)r->grad_accum);
}

bool step_graph(const struct step_request *q, struct arena *a, struct graph *out, struct err *e) {
    struct step_builder b;
    struct sim_result run;
    if (!check_length(q->recipe, "a graph", e) || !step_build(q, a, &b, e) ||
        !sim_run(b.sim, NULL, a, &run, e))
        return false;
    step_graph_fill(&b, &run, out);
    return true;
}

bool step_resample(const struct step_request *q, const struct step_draws *d, struct arena *a,
                   double *step_s, struct err *e) {
    struct step_builder b;
    if (!check_length(q->recipe, "a draw", e) || !step_build(q, a, &b, e))
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
