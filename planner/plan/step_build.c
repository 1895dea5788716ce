// SPDX-License-Identifier: Apache-2.0
#include "plan/step_build.h"

#include "base/units.h"

#include <assert.h>
#include <math.h>
#include <string.h>

const struct step_op_info step_ops[STEP_OP_COUNT] = {
    [OP_FORWARD] = {"forward", CLASS_COMPUTE},
    [OP_BACKWARD] = {"backward", CLASS_COMPUTE},
    [OP_COPY_IN] = {"gather copy-in", CLASS_COMPUTE},
    [OP_COPY_OUT] = {"gather copy-out", CLASS_COMPUTE},
    [OP_GATHER] = {"parameters", CLASS_COMM},
    [OP_REDUCE] = {"gradients", CLASS_COMM},
    [OP_REPLICA_REDUCE] = {"gradients across replicas", CLASS_COMM},
    [OP_GRAD_COPY] = {"gradient copy", CLASS_COMPUTE},
    [OP_ACCUMULATE] = {"gradient accumulation", CLASS_COMPUTE},
    [OP_NORM] = {"gradient norm", CLASS_COMPUTE},
    [OP_NORM_REDUCE] = {"norm", CLASS_COMM},
    [OP_CLIP] = {"gradient clipping", CLASS_COMPUTE},
    [OP_OPTIMIZER] = {"optimizer", CLASS_COMPUTE},
    [OP_GATHER_UPDATED] = {"updated parameters", CLASS_COMM},
    [OP_PARAM_H2D] = {"parameters to GPU", CLASS_OFFLOAD},
    [OP_GRAD_D2H] = {"gradients to host", CLASS_OFFLOAD},
    [OP_GRAD_H2D] = {"gradients to GPU", CLASS_OFFLOAD},
    [OP_ACTIVATION_D2H] = {"activations to host", CLASS_OFFLOAD},
    [OP_ACTIVATION_H2D] = {"activations to GPU", CLASS_OFFLOAD},
    [OP_UPDATED_H2D] = {"updated parameters to GPU", CLASS_OFFLOAD},
    [OP_SECONDARY] = {"secondary copy", CLASS_COMPUTE},
    [OP_SECONDARY_D2H] = {"secondary copy to host", CLASS_OFFLOAD},
    [OP_CPU_PASS] = {"CPU clip and cast", CLASS_OFFLOAD},
    [OP_CPU_ADAM] = {"CPU Adam", CLASS_OFFLOAD},
    [OP_NVME_READ] = {"NVMe read", CLASS_OFFLOAD},
    [OP_NVME_WRITE] = {"NVMe write", CLASS_OFFLOAD},
    [OP_TENSOR] = {"activations", CLASS_COMM},
    [OP_STAGE] = {"activations to the next stage", CLASS_COMM},
    [OP_STAGE_GRADIENT] = {"gradients to the stage before", CLASS_COMM},
    [OP_STEP_HOST] = {"step bookkeeping", CLASS_COMPUTE},
};
const char *const step_phase_names[STEP_PHASE_COUNT] = {"forward", "backward", "optimizer"};
const char *const step_stream_names[STEP_STREAM_COUNT] = {
    "compute", "copy", "collective", "replica",    "reduce", "h2d",
    "d2h",     "cpu",  "nvme read",  "nvme write", "tensor", "stage",
};

// Host time of the calls around the kernels; docs/method.md §step gives the basis of each.
static const double issue_collective_s = 20 * UNITS_MICRO;
static const double issue_kernel_s = 8 * UNITS_MICRO;
// NCCL opens fewer channels over the network than inside a node, and holds so many fewer SMs.
const double step_network_channels = 0.4;
// Bytes of HBM a ring moves per byte it sends: read own and received, write received.
static const double collective_hbm_factor = 3;
static const double dma_setup_s = 10 * UNITS_MICRO;

static struct step_meta *meta_slot(struct step_builder *b, uint32_t id) {
    if (id >= b->meta_capacity) {
        uint32_t bigger = b->meta_capacity ? 2 * b->meta_capacity : 16384;
        struct step_meta *moved = arena_array_raw(b->arena, bigger, sizeof *moved);
        if (id > 0)
            memcpy(moved, b->meta, id * sizeof *moved);
        b->meta = moved;
        b->meta_capacity = bigger;
    }
    return &b->meta[id];
}

void step_claim(struct step_builder *b, double bytes) {
    if (b->memory)
        b->claim_bytes += floor(bytes);
}

void step_release(struct step_builder *b, double bytes) {
    if (b->memory)
        b->free_bytes += floor(bytes);
}

void step_keep_gradients(struct step_builder *b, double bytes, double at_most) {
    double kept = fmin(bytes, at_most - b->kept_grad_bytes);
    if (!b->memory || kept <= 0)
        return;
    step_claim(b, kept);
    b->kept_grad_bytes += floor(kept);
}

void step_micro_done(struct step_builder *b) {
    if (b->micro_count < STEP_MICRO_MARKS)
        b->micro_end[b->micro_count++] = sim_task_count(b->sim);
}

// Streams are FIFO, so the later of two tasks of one stream stands for both.
void step_stream_wait(struct step_builder *b, enum step_stream stream, uint32_t task) {
    if (task == SIM_NONE)
        return;
    uint32_t *held = b->wait[stream], count = b->wait_count[stream];
    for (uint32_t i = 0; i < count; i++) {
        if (b->meta[held[i]].stream != b->meta[task].stream)
            continue;
        held[i] = held[i] < task ? task : held[i];
        return;
    }
    assert(count < STEP_WAITS);
    held[count] = task;
    b->wait_count[stream]++;
}

// A rehearsal runs kernels, copies and collectives on the rank's own cores, so they share those
// instead of multiprocessors and GPU memory; docs/method.md §rehearse.
static void take_cores(const struct step_builder *b, const struct step_task *t,
                       struct sim_task *s) {
    s->demand_count = s->demand_set = 0;
    for (uint32_t i = 0; i < t->demand_count; i++)
        if (t->demands[i].resource != RESOURCE_SM && t->demands[i].resource != RESOURCE_HBM &&
            t->demands[i].resource != RESOURCE_CORES)
            s->demands[s->demand_count++] = t->demands[i];
    double cores = t->op == OP_CPU_ADAM ? b->host_cores : t->cores > 0 ? t->cores : 1;
    if (t->seconds > 0 && s->demand_count < SIM_DEMANDS_MAX)
        s->demands[s->demand_count++] = (struct sim_demand){RESOURCE_CORES, cores / b->host_cores};
}

// What is pending for the next task goes with it.
static uint32_t add(struct step_builder *b, struct sim_task *s, const struct step_meta *m) {
    s->issue_s += b->hook_s;
    s->alloc_bytes_at_start = (int64_t)b->claim_bytes;
    s->free_bytes_at_end = (int64_t)b->free_bytes;
    b->hook_s = b->claim_bytes = b->free_bytes = 0;
    for (uint32_t i = 0; i < b->wait_count[m->stream]; i++)
        s->deps[s->dep_count++] = b->wait[m->stream][i];
    b->wait_count[m->stream] = 0;
    uint32_t id = sim_add(b->sim, s);
    *meta_slot(b, id) = *m;
    b->last[m->stream] = id;
    return id;
}

uint32_t step_add(struct step_builder *b, const struct step_task *t) {
    struct sim_task s;
    s.stream = t->stream;
    s.duration_s = t->seconds;
    s.issue_s = t->issue_s;
    s.detached = false;
    s.host_blocking = t->host_blocking;
    s.issue_overlaps = t->issue_overlaps;
    s.dep_count = 0;
    for (uint32_t i = 0; i < t->dep_count; i++)
        if (t->deps[i] != SIM_NONE)
            s.deps[s.dep_count++] = t->deps[i];
    s.demand_set = 0;
    s.demand_count = t->demand_count;
    for (uint32_t i = 0; i < t->demand_count; i++)
        s.demands[i] = t->demands[i];
    if (b->host_cores > 0)
        take_cores(b, t, &s);
    const struct step_meta m = {
        .op = (uint8_t)t->op,
        .phase = (uint8_t)b->phase,
        .collective = (uint8_t)t->collective,
        .dtype = (uint8_t)t->dtype,
        .group = (uint8_t)t->group,
        .group_size = (uint32_t)t->group_size,
        .spans_nodes = t->spans_nodes,
        .latency_bound = t->latency_bound,
        .stream = (uint8_t)t->stream,
        .unit = t->unit,
        .low = t->low > 0 ? (float)t->low : 1,
        .high = t->high > 0 ? (float)t->high : 1,
        .bytes = t->bytes,
        .exact_s = t->seconds,
    };
    return add(b, &s, &m);
}

static void demand(struct step_task *t, enum step_resource resource, double rate_per_s) {
    if (t->seconds > 0 && rate_per_s > 0 && isfinite(rate_per_s))
        t->demands[t->demand_count++] = (struct sim_demand){resource, rate_per_s};
}

static uint32_t slot_of(double bytes, uint64_t salt) {
    uint64_t bits;
    memcpy(&bits, &bytes, sizeof bits);
    return (uint32_t)((bits ^ salt) * UINT64_C(0x9E3779B97F4A7C15) >> (64 - STEP_REMEMBERED_LOG2));
}

static const struct step_kernel_time *kernel_time(struct step_builder *b, double bytes) {
    struct step_kernel_time *k = &b->kernels[slot_of(bytes, 0)];
    if (k->bytes == bytes && k->seconds > 0)
        return k;
    struct step_task t = {.seconds =
                              compute_memory_bound_s(&b->cluster->gpu, b->recipe->stack, bytes) /
                              b->scale.compute};
    demand(&t, RESOURCE_HBM, bytes / t.seconds);
    *k =
        (struct step_kernel_time){bytes, t.seconds, sim_demands(b->sim, t.demands, t.demand_count)};
    return k;
}

uint32_t step_kernel(struct step_builder *b, enum step_op op, enum step_stream stream,
                     uint32_t unit, double bytes) {
    const struct step_kernel_time *k = kernel_time(b, bytes);
    struct sim_task s;
    s.stream = stream;
    s.duration_s = k->seconds;
    s.issue_s = issue_kernel_s;
    s.detached = s.host_blocking = s.issue_overlaps = false;
    s.dep_count = s.demand_count = 0;
    s.demand_set = k->demand_set;
    if (b->host_cores > 0)
        take_cores(b, &(struct step_task){.op = op, .seconds = k->seconds}, &s);
    const struct step_meta m = {.op = (uint8_t)op,
                                .phase = (uint8_t)b->phase,
                                .stream = (uint8_t)stream,
                                .unit = unit,
                                .low = 1,
                                .high = 1,
                                .bytes = bytes,
                                .exact_s = k->seconds};
    return add(b, &s, &m);
}

// Ranks of a group on one node, and how many such groups a node's cards serve at once.
static struct group_layout layout_of(const struct step_builder *b, uint64_t size, uint64_t stride) {
    uint64_t here = b->ranks_per_node / stride;
    here = here < 1 ? 1 : here > size ? size : here;
    return (struct group_layout){size, here, b->ranks_per_node / here};
}

bool step_collective_spans(const struct step_builder *b, uint64_t size, uint64_t stride) {
    return size > layout_of(b, size, stride).ranks_per_node;
}

static struct figure faster(struct figure f, double by) {
    f.value *= by;
    f.low *= by;
    f.high *= by;
    return f;
}

// The time by the law of a cluster whose links are so much faster; fits were taken on these links,
// so they keep their ratio to the law. docs/method.md §what-if.
static void rescale(const struct step_builder *b, const struct step_collective *c,
                    const struct group_layout *g, struct collective_time *t) {
    struct cluster now = *b->cluster;
    struct collective_time as_is, scaled;
    now.fit_count = 0;
    collective_estimate(&now, c->collective, g, c->payload_bytes, &as_is);
    if (!(as_is.transfer_s > 0))
        return;
    struct gpu *gpu = &now.gpu;
    struct figure *inside[] = {&gpu->nvlink_bytes_per_s,     &gpu->nvlink_busbw_bytes_per_s,
                               &gpu->nvls_busbw_bytes_per_s, &gpu->pcie_h2d_bytes_per_s,
                               &gpu->pcie_d2h_bytes_per_s,   &now.pcie_switch_bytes_per_s};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        *inside[i] = faster(*inside[i], b->scale.intra);
    now.nic_bytes_per_s = faster(now.nic_bytes_per_s, b->scale.inter);
    collective_estimate(&now, c->collective, g, c->payload_bytes, &scaled);
    double low = t->low_s / t->seconds, high = t->high_s / t->seconds;
    t->transfer_s *= scaled.transfer_s / as_is.transfer_s;
    t->latency_s *= as_is.latency_s > 0 ? scaled.latency_s / as_is.latency_s : 1;
    t->seconds = t->latency_s + t->transfer_s;
    t->low_s = low * t->seconds;
    t->high_s = high * t->seconds;
}

static struct step_estimate *estimate(struct step_builder *b, const struct step_collective *c) {
    uint64_t salt = c->size << 16 ^ c->stride << 4 ^ (uint64_t)c->collective;
    struct step_estimate *at = &b->estimates[slot_of(c->payload_bytes, salt)];
    if (at->collective == c->collective && at->size == c->size && at->stride == c->stride &&
        at->payload_bytes == c->payload_bytes)
        return at;
    *at = (struct step_estimate){.collective = c->collective,
                                 .size = c->size,
                                 .stride = c->stride,
                                 .payload_bytes = c->payload_bytes};
    struct group_layout g = layout_of(b, c->size, c->stride);
    collective_estimate(b->cluster, c->collective, &g, c->payload_bytes, &at->time);
    if (b->scale.intra != 1 || b->scale.inter != 1)
        rescale(b, c, &g, &at->time);
    return at;
}

const struct collective_time *step_estimate(struct step_builder *b,
                                            const struct step_collective *c) {
    return &estimate(b, c)->time;
}

// What a collective asks of multiprocessors, links and memory.
static void demand_links(struct step_builder *b, const struct step_collective *c,
                         struct step_task *t) {
    struct group_layout g = layout_of(b, c->size, c->stride);
    double sent = collective_sent_bytes(c->collective, c->payload_bytes, c->size) / t->seconds;
    double *largest = t->spans_nodes ? &b->nic_bytes_per_s : &b->nvlink_bytes_per_s;
    if (isfinite(sent))
        *largest = fmax(*largest, sent);
    double share = compute_overlap_loss(&b->cluster->gpu, b->recipe->stack);
    demand(t, RESOURCE_SM, t->spans_nodes ? step_network_channels * share : share);
    demand(t, t->spans_nodes ? RESOURCE_NIC : RESOURCE_NVLINK, sent);
    demand(t, RESOURCE_HBM, collective_hbm_factor * sent);
    if (t->spans_nodes && b->cluster->nic_shares_pcie_switch)
        demand(t, RESOURCE_PCIE, 2 * sent / (double)g.ranks_per_node);
}

// As the first of its like was added, but for streams, unit and dependency.
static uint32_t repeat_collective(struct step_builder *b, const struct step_collective *c,
                                  const struct step_estimate *at) {
    const double calls = c->repeat > 0 ? c->repeat : 1;
    struct sim_task s;
    s.stream = c->stream;
    s.duration_s = calls * at->time.seconds;
    s.issue_s = calls * issue_collective_s;
    s.detached = s.issue_overlaps = false;
    s.host_blocking = c->host_blocking;
    s.deps[0] = c->dep;
    s.dep_count = c->dep != SIM_NONE;
    s.demand_count = 0;
    s.demand_set = at->demand_set;
    const struct step_meta m = {.op = (uint8_t)c->op,
                                .phase = (uint8_t)b->phase,
                                .collective = (uint8_t)c->collective,
                                .dtype = (uint8_t)c->dtype,
                                .group = (uint8_t)c->group,
                                .group_size = (uint32_t)c->size,
                                .spans_nodes = at->spans_nodes,
                                .latency_bound = at->latency_bound,
                                .stream = (uint8_t)c->stream,
                                .unit = c->unit,
                                .low = at->low,
                                .high = at->high,
                                .bytes = calls * c->payload_bytes,
                                .exact_s = s.duration_s};
    return add(b, &s, &m);
}

// Later ones of its like are then repeated.
static void remember(struct step_builder *b, const struct step_task *t, struct step_estimate *at) {
    at->demand_set = sim_demands(b->sim, t->demands, t->demand_count);
    at->low = t->low > 0 ? (float)t->low : 1;
    at->high = t->high > 0 ? (float)t->high : 1;
    at->spans_nodes = t->spans_nodes;
    at->latency_bound = t->latency_bound;
}

uint32_t step_collective(struct step_builder *b, const struct step_collective *c) {
    struct step_estimate *at = c->size > 1 ? estimate(b, c) : NULL;
    if (at != NULL && at->demand_set != 0)
        return repeat_collective(b, c, at);
    const double calls = c->repeat > 0 ? c->repeat : 1;
    struct step_task t = {.op = c->op,
                          .stream = c->stream,
                          .unit = c->unit,
                          .bytes = calls * c->payload_bytes,
                          .issue_s = calls * issue_collective_s,
                          .deps = {c->dep},
                          .dep_count = 1,
                          .host_blocking = c->host_blocking,
                          .collective = c->collective,
                          .dtype = c->dtype,
                          .group = c->group,
                          .group_size = c->size};
    if (at == NULL) // a group of one: the framework still passes through, nothing travels
        return step_add(b, &t);
    const struct collective_time *e = &at->time;
    t.seconds = e->seconds;
    t.low = e->seconds > 0 ? e->low_s / e->seconds : 1;
    t.high = e->seconds > 0 ? e->high_s / e->seconds : 1;
    t.spans_nodes = step_collective_spans(b, c->size, c->stride);
    t.latency_bound = e->latency_s > e->transfer_s;
    t.cores = e->cores;
    demand_links(b, c, &t);
    if (b->host_cores <= 0)
        remember(b, &t, at);
    t.seconds *= calls;
    return step_add(b, &t);
}

void step_spread(struct step_task *t, struct figure rate) {
    if (!figure_is_known(rate) || !(rate.low > 0) || !(rate.value > 0))
        return;
    t->low = fmin(rate.value / rate.high, 1);
    t->high = fmax(rate.value / rate.low, 1);
}

uint32_t step_copy(struct step_builder *b, const struct step_copy *c) {
    double rate = c->to_device ? b->rates.h2d_bytes_per_s : b->rates.d2h_bytes_per_s;
    uint32_t count = c->count ? c->count : 1;
    struct step_task t = {.op = c->op,
                          .stream = c->stream,
                          .unit = c->unit,
                          .bytes = c->bytes,
                          .seconds = c->bytes / rate * (c->slower > 0 ? c->slower : 1) +
                                     dma_setup_s * count,
                          .issue_s = issue_kernel_s * count,
                          .issue_overlaps = count > 1,
                          .deps = {c->dep},
                          .dep_count = 1,
                          .host_blocking = c->host_blocking};
    step_spread(&t, c->to_device ? b->cluster->gpu.pcie_h2d_bytes_per_s
                                 : b->cluster->gpu.pcie_d2h_bytes_per_s);
    double moved = c->bytes / t.seconds;
    demand(&t, RESOURCE_PCIE, moved);
    demand(&t, RESOURCE_DRAM, moved);
    return step_add(b, &t);
}

static uint32_t exchange(struct step_builder *b, uint32_t unit, bool backward) {
    const struct recipe *r = b->recipe;
    const struct step_unit_class *k = &b->classes[b->units[unit].class];
    uint32_t dep = b->last[STREAM_COMPUTE];
    struct step_collective c = {.op = OP_TENSOR,
                                .stream = STREAM_TENSOR,
                                .collective = COLLECTIVE_ALL_REDUCE,
                                .group = GROUP_TENSOR,
                                .dtype = recipe_activation_dtype(r),
                                .size = r->tp,
                                .stride = 1,
                                .payload_bytes = k->tensor_bytes,
                                .unit = unit,
                                .dep = dep};
    // After attention and after the MLP; full recomputation repeats forward's.
    int calls = backward && r->recompute == RECOMPUTE_FULL ? 4 : 2;
    for (int i = 0; i < calls && r->tp > 1; i++)
        c.dep = step_collective(b, &c);
    if (r->cp > 1) { // keys and values of the whole sequence; their gradients on the way back
        c.collective = backward ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_GATHER;
        c.group = GROUP_CONTEXT;
        c.size = r->cp;
        c.stride = r->tp;
        c.payload_bytes = 2.0 * (double)(r->micro_batch * r->seq * b->model->kv_heads) *
                          (double)b->model->head_dim / (double)r->tp * dtype_bytes(c.dtype);
        c.dep = step_collective(b, &c);
        if (backward) {
            c.collective = COLLECTIVE_ALL_GATHER;
            c.dep = step_collective(b, &c);
        }
    }
    if (r->ep > 1 && k->unit->moe) { // tokens to their experts and back
        c.collective = COLLECTIVE_ALL_TO_ALL;
        c.group = GROUP_EXPERT;
        c.size = r->ep;
        c.payload_bytes = k->tensor_bytes * (double)b->model->experts_per_token;
        // torchtitan's host asks how many tokens come before it sends them; backward remembers.
        bool asks = recipe_is_fsdp2(r) && (!backward || calls > 2);
        for (int i = 0; i < calls; i++) {
            c.host_blocking = asks && i == 0;
            c.dep = step_collective(b, &c);
        }
    }
    return c.dep;
}

// Activations to the next stage and those of the next micro-batch from the one before, or their
// gradients the other way, in one call that 1F1B waits for and an interleaved schedule hides;
// docs/method.md §model-parallel.
static void pass_on(struct step_builder *b, uint32_t unit, bool backward, uint32_t dep) {
    const struct recipe *r = b->recipe;
    const uint64_t ranks = r->world * r->tp; // of a stage
    // Where some stages lie in one node and some do not, the slowest hop sets the pace.
    const bool nodes = ranks * r->pp > b->ranks_per_node && ranks < b->ranks_per_node;
    struct step_collective c = {
        .op = backward ? OP_STAGE_GRADIENT : OP_STAGE,
        .stream = STREAM_STAGE,
        .collective = COLLECTIVE_SEND_RECV,
        .group = GROUP_PIPELINE,
        .dtype = recipe_activation_dtype(r),
        .size = 2,
        .stride = nodes ? b->ranks_per_node : ranks,
        .payload_bytes = (double)(r->micro_batch * r->seq * b->model->hidden) /
                         (double)(r->cp * r->tp) * dtype_bytes(recipe_activation_dtype(r)),
        .unit = unit,
        .dep = dep};
    for (uint64_t i = 0; i < r->virtual_stages; i++) // one behind each piece of the stage
        c.dep = step_collective(b, &c);
    if (r->virtual_stages == 1)
        step_stream_wait(b, STREAM_COMPUTE, c.dep);
}

uint32_t step_compute(struct step_builder *b, uint32_t unit, bool backward) {
    const struct step_unit_class *k = &b->classes[b->units[unit].class];
    const struct unit_cost *c = backward ? &k->backward : &k->forward;
    struct step_task t = {.op = backward ? OP_BACKWARD : OP_FORWARD,
                          .stream = STREAM_COMPUTE,
                          .unit = unit,
                          .seconds = c->duration_s,
                          .bytes = c->memory_bytes,
                          .issue_s = c->issue_s,
                          .issue_overlaps = true,
                          .low = c->duration_s > 0 ? c->low_s / c->duration_s : 1,
                          .high = c->duration_s > 0 ? c->high_s / c->duration_s : 1};
    demand(&t, RESOURCE_SM, 1);
    demand(&t, RESOURCE_HBM, c->memory_bytes / c->duration_s);
    if (backward)
        step_activation_in(b, unit);
    step_claim(b, backward ? k->backward_bytes : k->kept_bytes);
    if (backward)
        step_release(b, floor(k->backward_bytes) + floor(k->kept_bytes));
    uint32_t id = step_add(b, &t);
    if (backward) {
        b->before_last_backward = b->last_backward;
        b->last_backward = id;
    } else {
        step_activation_out(b, unit, id);
    }
    const struct recipe *r = b->recipe;
    bool routed = r->ep > 1 && k->unit->moe;
    uint32_t end = id;
    if (k->unit->kind == UNIT_BLOCK && (r->tp > 1 || r->cp > 1 || routed)) {
        end = exchange(b, unit, backward);
        step_stream_wait(b, STREAM_COMPUTE, end);
    }
    if (r->pp > 1 && unit == (backward ? 0 : b->unit_count - 1))
        pass_on(b, unit, backward, end);
    return id;
}

uint32_t step_host(struct step_builder *b, enum step_op op, double seconds, double dram_bytes,
                   uint32_t dep) {
    struct step_task t = {.op = op,
                          .stream = STREAM_CPU,
                          .unit = STEP_NO_UNIT,
                          .seconds = seconds,
                          .bytes = dram_bytes,
                          .deps = {dep},
                          .dep_count = 1,
                          .host_blocking = true};
    if (dram_bytes > 0)
        step_spread(&t, b->cluster->host_dram_bytes_per_s);
    demand(&t, RESOURCE_CORES, 1);
    demand(&t, RESOURCE_DRAM, dram_bytes / seconds);
    return step_add(b, &t);
}

enum dtype step_dtype_of(double bytes) {
    return bytes > 3 ? DTYPE_FP32 : DTYPE_BF16;
}
