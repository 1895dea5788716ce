// SPDX-License-Identifier: Apache-2.0
// Model states by class: docs/method.md §memory "States".
#include "cost/memory_parts.h"
#include "cost/optimizer.h"

#include <math.h>

double memory_state_bytes(const struct memory_parts *p) {
    double shards = recipe_gathers(p->recipe) ? p->sizes.shard_degree : 1;
    return optimizer_state_bytes(p->model, p->recipe, shards);
}

bool memory_is_megatron(const struct recipe *r) {
    return r->stack == STACK_MEGATRON &&
           (r->strategy == STRATEGY_DDP || r->strategy == STRATEGY_ZERO1);
}

double memory_gathered_bytes(const struct memory_parts *p) {
    return p->recipe->base_4bit ? p->frozen_bytes : p->gather_bytes;
}

bool memory_bf16_optimizer(const struct recipe *r) {
    return r->strategy == STRATEGY_ZERO1 && r->param_dtype == DTYPE_BF16 &&
           r->grad_accum_dtype == DTYPE_FP32 && r->offload_optimizer == OFFLOAD_NONE &&
           !memory_is_megatron(r);
}

bool memory_optimizer_on_gpu(const struct recipe *r) {
    return r->offload_optimizer == OFFLOAD_NONE;
}

double memory_gpu_share(const struct recipe *r, double owned) {
    if (memory_optimizer_on_gpu(r))
        return 1;
    if (!recipe_is_stage3(r) || r->offload_ratio >= 1 || r->sub_group_elements == 0)
        return 0;
    double group = (double)r->sub_group_elements, groups = ceil(owned / group);
    double on_gpu = floor((1 - r->offload_ratio) * groups); // truncated as DeepSpeed's int()
    return fmin(1, on_gpu * group / owned);
}

static double replicated(const struct memory_parts *p) {
    const struct memory_sizes *s = &p->sizes;
    return p->parameter_bytes * s->flat + p->frozen_bytes * s->frozen;
}

static double parameters_bytes(const struct memory_parts *p) {
    const struct memory_sizes *s = &p->sizes;
    const struct recipe *r = p->recipe;
    if (!recipe_gathers(r))
        return replicated(p);
    if (r->offload_param != OFFLOAD_NONE)
        return 0;
    return p->parameter_bytes * s->sharded + p->frozen_bytes * s->sharded_frozen;
}

static double unsynced_gradient_bytes(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    bool keeps = r->no_sync && r->grad_accum > 1 && recipe_gathers(r);
    if (!keeps || recipe_is_deepspeed(r))
        return 0;
    double each = p->gather_bytes;
    if (recipe_is_fsdp2(r) && p->reduce_bytes != p->gather_bytes)
        each = p->reduce_bytes;
    return each * p->sizes.trainable;
}

static double stage_gradient_bytes(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    const struct memory_sizes *s = &p->sizes;
    double accumulate = dtype_bytes(r->grad_accum_dtype);
    if (r->strategy == STRATEGY_ZERO1) {
        if (memory_bf16_optimizer(r))
            return (4 + p->parameter_bytes) * s->trainable;
        bool separate = r->grad_accum_dtype != r->param_dtype;
        return (separate ? accumulate : p->parameter_bytes) * s->trainable;
    }
    if (r->offload_optimizer != OFFLOAD_NONE)
        return 4 * s->owned * memory_gpu_share(r, s->owned);
    if (r->strategy == STRATEGY_ZERO2)
        return p->parameter_bytes * s->owned; // the model's type whatever grad_accum_dtype says
    return accumulate * s->sharded;
}

static double gradient_bytes(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    if (r->optimizer == OPTIMIZER_NONE)
        return 0;
    if (memory_is_megatron(r))
        return 4 * p->sizes.trainable; // fp32 main gradients, whole on every rank
    if (recipe_is_deepspeed(r))
        return stage_gradient_bytes(p);
    if (!recipe_gathers(r))
        return dtype_bytes(r->grad_dtype) * p->sizes.trainable;
    double sharded = r->offload_param == OFFLOAD_NONE ? p->parameter_bytes * p->sizes.sharded : 0;
    return sharded + unsynced_gradient_bytes(p);
}

double memory_frozen_element_bytes(const struct recipe *r) {
    if (r->lora_rank == 0)
        return dtype_bytes(r->param_dtype);
    // NF4 with double quantisation: 4 bits, and 8-bit scales of 64 whose own scales are per 256.
    const double nf4_bytes = 0.5 + 1.0 / 64 + 4.0 / (64 * 256);
    return r->base_4bit ? nf4_bytes : dtype_bytes(recipe_activation_dtype(r));
}

void memory_states_fill(struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    p->parameter_bytes = dtype_bytes(r->param_dtype);
    p->gather_bytes = dtype_bytes(recipe_gather_dtype(r));
    p->reduce_bytes = dtype_bytes(r->reduce_dtype);
    p->frozen_bytes = memory_frozen_element_bytes(r);
    double owned = p->sizes.owned, share = memory_gpu_share(r, owned);
    double master = r->has_master || memory_is_megatron(r) ? dtype_bytes(r->master_dtype) : 0;
    if (share > 0 && share < 1)
        master = 4; // Twin-Flow's GPU sub-groups step an fp32 copy
    p->states[MEMORY_PARAMS] = parameters_bytes(p);
    p->states[MEMORY_GRADS] = gradient_bytes(p);
    p->states[MEMORY_MASTER] = master * owned * share;
    p->states[MEMORY_OPTIMIZER] = memory_state_bytes(p) * owned * share;
    if (r->optimizer == OPTIMIZER_NONE)
        p->states[MEMORY_MASTER] = 0;
}
