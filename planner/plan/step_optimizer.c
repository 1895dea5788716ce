// SPDX-License-Identifier: Apache-2.0
// From the end of the last backward to the end of the step: norm, clipping, the optimizer on GPU or
// host, NVMe swapping, updated parameters; docs/method.md §step-optimizer and §offload.
#include "base/units.h"
#include "cost/memory_parts.h"
#include "cost/optimizer.h"
#include "plan/step_build.h"

#include <math.h>

static const double norm_payload_bytes = 4;
// Bytes of host memory per element: DeepSpeed's unscale and clip pass, Adam, and the cast to 16
// bit.
static const double clip_bytes = 8, adam_bytes = 28, cast_bytes = 6;

static bool on_host(const struct recipe *r) {
    return r->offload_optimizer != OFFLOAD_NONE ||
           (!recipe_is_deepspeed(r) && r->offload_param == OFFLOAD_CPU);
}

// Experts are spread over shard/ep ranks, each of which holds 1/ep of them.
double step_share(const struct step_builder *b, double all, double experts) {
    return (all + experts * ((double)b->recipe->ep - 1)) / (double)b->shard;
}

double step_held_elements(const struct step_builder *b) {
    if (b->shard <= 1)
        return b->trainable;
    return step_share(b, b->padding * b->trainable, b->experts);
}

static uint64_t sub_groups(const struct step_builder *b) {
    double n = step_held_elements(b);
    double size = (double)b->recipe->sub_group_elements;
    if (!recipe_is_stage3(b->recipe) || size <= 0 || n <= size)
        return 1;
    return (uint64_t)ceil(n / size);
}

static void reduce_norm(struct step_builder *b) {
    const struct recipe *r = b->recipe;
    uint64_t ranks = recipe_is_deepspeed(r) ? r->world : b->shard;
    if (ranks <= 1)
        return;
    uint64_t count = recipe_is_stage3(r) ? sub_groups(b) : 1;
    if (recipe_is_deepspeed(r) && !recipe_is_stage3(r))
        count++; // the overflow check
    if (recipe_is_fsdp2(r) && r->ep > 1)
        count++; // torchtitan sums the experts' apart
    struct step_collective c = {.op = OP_NORM_REDUCE,
                                .stream = STREAM_COLLECTIVE,
                                .collective = COLLECTIVE_ALL_REDUCE,
                                .group = GROUP_WORLD,
                                .dtype = DTYPE_FP32,
                                .size = ranks,
                                .stride = r->tp,
                                .payload_bytes = norm_payload_bytes,
                                .unit = STEP_NO_UNIT,
                                .host_blocking = recipe_is_deepspeed(r)};
    for (uint64_t i = 0; i < count; i++) {
        c.dep = b->last[STREAM_COMPUTE];
        step_stream_wait(b, STREAM_COMPUTE, step_collective(b, &c));
    }
}

static void clip_on_gpu(struct step_builder *b) {
    double bytes = step_held_elements(b) * b->sizes.grad;
    if (b->recipe->clip <= 0)
        return;
    step_kernel(b, OP_NORM, STREAM_COMPUTE, STEP_NO_UNIT, bytes);
    reduce_norm(b);
    step_kernel(b, OP_CLIP, STREAM_COMPUTE, STEP_NO_UNIT, 2 * bytes);
}

// Whole matrices, block by block: gathered, orthogonalised, and under ZeRO-3 handed round again.
static void muon_gather(struct step_builder *b, enum dtype dtype) {
    const struct recipe *r = b->recipe;
    double blocks = 0;
    for (uint32_t i = 0; i < b->unit_count; i++)
        blocks += b->classes[b->units[i].class].unit->kind == UNIT_BLOCK;
    struct step_collective c = {.op = OP_GATHER_UPDATED,
                                .stream = STREAM_COLLECTIVE,
                                .collective = COLLECTIVE_ALL_GATHER,
                                .group = b->replicas > 1 ? GROUP_SHARD : GROUP_WORLD,
                                .dtype = dtype,
                                .size = b->shard,
                                .stride = r->tp,
                                .payload_bytes = optimizer_muon_elements(b->model, r) / blocks *
                                                 dtype_bytes(dtype),
                                .unit = STEP_NO_UNIT,
                                .dep = b->last[STREAM_COMPUTE]};
    for (double i = 0; i < blocks; i++)
        step_collective(b, &c);
    step_stream_wait(b, STREAM_COMPUTE, b->last[STREAM_COLLECTIVE]);
}

static void orthogonalise(struct step_builder *b) {
    const struct recipe *r = b->recipe;
    double seconds = optimizer_muon_s(b->model, b->cluster, r) / b->scale.compute;
    if (!(seconds > 0))
        return;
    bool shares = optimizer_muon_shares(r);
    if (optimizer_muon_gathers(r) && b->shard > 1)
        muon_gather(b, shares ? r->state_dtype : DTYPE_BF16);
    step_add(b, &(struct step_task){.op = OP_OPTIMIZER,
                                    .stream = STREAM_COMPUTE,
                                    .unit = STEP_NO_UNIT,
                                    .seconds = seconds});
    if (shares && b->shard > 1)
        muon_gather(b, r->grad_dtype);
}

static void optimize_on_gpu(struct step_builder *b, double elements) {
    struct step_task t = {.op = OP_OPTIMIZER,
                          .stream = STREAM_COMPUTE,
                          .unit = STEP_NO_UNIT,
                          .seconds = compute_optimizer_s(b->cluster, b->recipe, elements) /
                                     b->scale.compute};
    t.bytes = isfinite(b->rates.hbm_bytes_per_s) ? t.seconds * b->rates.hbm_bytes_per_s : 0;
    if (b->recipe->optimizer == OPTIMIZER_NONE || elements <= 0)
        return;
    step_claim(b, b->step_transient_bytes);
    step_release(b, b->step_transient_bytes);
    step_add(b, &t);
}

bool step_adam_in_backward(const struct recipe *r) {
    return r->super_offload && r->clip <= 0 && recipe_is_stage3(r) &&
           r->offload_optimizer == OFFLOAD_CPU;
}

uint32_t step_adam(struct step_builder *b, double elements, uint32_t dep, bool wait) {
    double node = elements * (double)b->ranks_per_node;
    struct cluster host = *b->cluster; // its rate may follow the memory's
    host.host_dram_bytes_per_s.value *= b->scale.host_dram;
    struct figure f = compute_cpu_adam_s(&host, b->recipe, node);
    double floor_s = elements * adam_bytes / b->rates.dram_bytes_per_s;
    double seconds = fmax(f.value / b->scale.cpu, floor_s);
    struct step_task t = {
        .op = OP_CPU_ADAM,
        .stream = STREAM_CPU,
        .unit = STEP_NO_UNIT,
        .seconds = seconds,
        .bytes = elements * adam_bytes,
        .low = f.value > 0 ? fmin(f.low / f.value, 1) : 1,
        .high = f.value > 0 ? fmax(f.high / f.value, 1) : 1,
        .deps = {dep},
        .dep_count = 1,
        .host_blocking = wait,
        .demands = {{RESOURCE_CORES, 1}, {RESOURCE_DRAM, elements * adam_bytes / seconds}},
        .demand_count = seconds > 0 ? 2 : 0};
    return step_add(b, &t);
}

static uint32_t pass_on_host(struct step_builder *b, double bytes, uint32_t dep) {
    return step_host(b, OP_CPU_PASS, bytes / b->rates.dram_bytes_per_s, bytes, dep);
}

uint32_t step_swap(struct step_builder *b, bool read, double bytes, uint32_t dep, bool wait) {
    double rate = read ? b->rates.nvme_read_bytes_per_s : b->rates.nvme_write_bytes_per_s;
    double load = read ? b->rates.nvme_read_load : b->rates.nvme_write_load;
    struct step_task t = {.op = read ? OP_NVME_READ : OP_NVME_WRITE,
                          .stream = read ? STREAM_NVME_READ : STREAM_NVME_WRITE,
                          .unit = STEP_NO_UNIT,
                          .seconds = bytes / rate,
                          .bytes = bytes,
                          .deps = {dep},
                          .dep_count = 1,
                          .host_blocking = wait,
                          .demands = {{RESOURCE_NVME, load}, {RESOURCE_DRAM, rate}},
                          .demand_count = isfinite(rate) ? 2 : 0};
    step_spread(&t, read ? b->cluster->nvme_read_bytes_per_s : b->cluster->nvme_write_bytes_per_s);
    return step_add(b, &t);
}

static void updated_to_gpu(struct step_builder *b, double elements, uint32_t dep, bool blocking) {
    step_copy(b, &(struct step_copy){.op = OP_UPDATED_H2D,
                                     .stream = STREAM_COPY,
                                     .to_device = true,
                                     .host_blocking = blocking,
                                     .bytes = elements * b->sizes.param,
                                     .unit = STEP_NO_UNIT,
                                     .dep = dep});
    step_stream_wait(b, STREAM_COMPUTE, b->last[STREAM_COPY]);
}

// One sub-group: clip, Adam, cast; DeepSpeed stage 3 then copies to the GPU and waits.
static uint32_t step_sub_group(struct step_builder *b, double elements, uint32_t dep) {
    const struct recipe *r = b->recipe;
    if (r->clip > 0)
        dep = pass_on_host(b, elements * clip_bytes, dep);
    dep = step_adam(b, elements, dep, true);
    if (!recipe_is_deepspeed(r))
        return dep;
    dep = pass_on_host(b, elements * cast_bytes, dep);
    if (r->offload_param == OFFLOAD_NONE)
        updated_to_gpu(b, elements, dep, recipe_is_stage3(r));
    return dep;
}

// DeepSpeed's optimizer swapper: states and gradients in, master and states out, sub-group by
// sub-group; pipeline_read starts the next read early, pipeline_write leaves the write behind.
static void swap_sub_groups(struct step_builder *b, uint64_t count, double elements) {
    const struct recipe *r = b->recipe;
    const double grad_bytes = 4,
                 out_bytes = 4 + optimizer_state_bytes(b->model, r, 1); // master, m and v
    const double in_bytes = out_bytes + grad_bytes;
    step_swap(b, false, step_held_elements(b) * grad_bytes, b->last[STREAM_D2H], true);
    uint32_t read = step_swap(b, true, elements * in_bytes, SIM_NONE, !r->pipeline_read);
    uint32_t written = SIM_NONE;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t here = read;
        if (r->pipeline_read && i + 1 < count)
            read = step_swap(b, true, elements * in_bytes, here, false);
        uint32_t done = step_sub_group(b, elements, here);
        if (r->pipeline_write && written != SIM_NONE)
            sim_host_wait(b->sim, written);
        written = step_swap(b, false, elements * out_bytes, done, !r->pipeline_write);
        if (!r->pipeline_read && i + 1 < count)
            read = step_swap(b, true, elements * in_bytes, written, true);
    }
}

static void optimize_on_host(struct step_builder *b) {
    const struct recipe *r = b->recipe;
    uint64_t count = sub_groups(b);
    double each = step_held_elements(b) / (double)count;
    uint64_t on_gpu = 0;
    if (r->offload_ratio < 1 && recipe_is_stage3(r))
        on_gpu = (uint64_t)((1 - r->offload_ratio) * (double)count);
    if (recipe_is_deepspeed(r) && r->clip > 0)
        reduce_norm(b);
    // Reading the norm back waits for every gradient, its copies to the host included.
    const enum step_stream holders[] = {STREAM_COMPUTE, STREAM_REDUCE, STREAM_D2H};
    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++)
        if (b->last[holders[i]] != SIM_NONE)
            sim_host_wait(b->sim, b->last[holders[i]]);
    if (r->offload_optimizer == OFFLOAD_NVME) {
        swap_sub_groups(b, count, each);
        return;
    }
    if (step_adam_in_backward(r)) { // all that is left is to send the weights up
        sim_host_wait(b->sim, b->last[STREAM_CPU]);
        updated_to_gpu(b, step_held_elements(b), b->last[STREAM_CPU], true);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (i < on_gpu)
            optimize_on_gpu(b, each);
        else
            step_sub_group(b, each, SIM_NONE);
    }
}

// DeepSpeed stages 1 and 2 gather the 16-bit weights in one call per parameter group.
static void gather_updated(struct step_builder *b) {
    const struct recipe *r = b->recipe;
    double elements = b->padding * b->trainable - b->experts, each = b->sizes.param; // as stored
    if (recipe_is_stage3(r)) {
        elements = b->persistent;
        each = b->sizes.gather;
    } else if (r->strategy != STRATEGY_ZERO1 && r->strategy != STRATEGY_ZERO2) {
        return;
    }
    if (elements <= 0)
        return;
    if (recipe_is_stage3(r) && r->offload_param != OFFLOAD_NONE)
        step_copy(b, &(struct step_copy){.op = OP_PARAM_H2D,
                                         .stream = STREAM_COPY,
                                         .to_device = true,
                                         .host_blocking = true,
                                         .bytes = elements * b->sizes.gather / (double)b->shard,
                                         .unit = STEP_NO_UNIT,
                                         .dep = SIM_NONE});
    step_stream_wait(b, STREAM_COLLECTIVE, b->last[STREAM_COPY]);
    struct step_collective c = {.op = OP_GATHER_UPDATED,
                                .stream = STREAM_COLLECTIVE,
                                .collective = COLLECTIVE_ALL_GATHER,
                                .group = GROUP_WORLD,
                                .dtype = step_dtype_of(each),
                                .size = b->shard,
                                .stride = r->tp,
                                .payload_bytes = elements * each,
                                .unit = STEP_NO_UNIT,
                                .dep = b->last[STREAM_COMPUTE]};
    step_stream_wait(b, STREAM_COMPUTE, step_collective(b, &c));
    if (b->experts > 0 && b->shard > r->ep) {
        c.group = GROUP_REPLICA;
        c.size = b->shard / r->ep;
        c.stride = r->ep;
        c.payload_bytes = b->experts * each;
        step_stream_wait(b, STREAM_COMPUTE, step_collective(b, &c));
    }
}

void step_build_optimizer(struct step_builder *b) {
    b->phase = STEP_OPTIMIZER;
    if (on_host(b->recipe)) {
        optimize_on_host(b);
    } else {
        clip_on_gpu(b);
        orthogonalise(b);
        optimize_on_gpu(b, step_held_elements(b));
    }
    double swapped = step_nvme_share(b) * step_held_elements(b) * b->sizes.param;
    if (b->recipe->offload_param == OFFLOAD_NVME && swapped > 0)
        step_swap(b, false, swapped, SIM_NONE, true);
    gather_updated(b);
}
