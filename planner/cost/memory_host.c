// SPDX-License-Identifier: Apache-2.0
// Host and NVMe bytes of offload: docs/method.md §memory "Host".
#include "cost/activation.h"
#include "cost/memory_parts.h"

#include "base/units.h"

#include <math.h>

// torch's pinned allocator rounds every block up to a power of two.
static double power_of_two(double bytes) {
    double p = 512;
    while (p < bytes)
        p *= 2;
    return bytes > 0 ? p : 0;
}

struct sums { // one rank
    double classes[HOST_CLASS_COUNT];
    double pinned, rounding, nvme;
};

static void add(struct sums *s, enum host_class class, double bytes) {
    s->classes[class] += bytes;
}

// `count` pinned blocks of `bytes` each.
static void add_pinned(struct sums *s, const struct recipe *r, enum host_class class, double bytes,
                       double count) {
    add(s, class, bytes * count);
    if (!r->pin_memory)
        return;
    s->pinned += bytes * count;
    s->rounding += (power_of_two(bytes) - bytes) * count;
}

// `total` bytes as blocks of at most `block`.
static void add_pinned_blocks(struct sums *s, const struct recipe *r, enum host_class class,
                              double total, double block) {
    double whole = block > 0 ? floor(total / block) : 0;
    add_pinned(s, r, class, block, whole);
    if (total - whole * block > 0)
        add_pinned(s, r, class, total - whole * block, 1);
}

static void stage12_optimizer(const struct memory_parts *p, struct sums *s) {
    const struct recipe *r = p->recipe;
    double n = p->sizes.owned, b = p->parameter_bytes;
    add_pinned(s, r, HOST_MASTER, dtype_bytes(r->master_dtype) * n, 1);
    add_pinned(s, r, HOST_GRADS, 4 * n, 1);
    add_pinned(s, r, HOST_STAGING, b * n, 1);
    add_pinned(s, r, HOST_STAGING, b * p->sizes.largest_parameter, 1);
    add(s, HOST_OPTIMIZER, memory_state_bytes(p) * n);
    if (r->strategy == STRATEGY_ZERO2 && r->grad_accum > 1)
        add(s, HOST_GRADS, b * n); // accumulation buffers of the parameters in the slice
}

static double swap_buffer_bytes(const struct recipe *r, double owned) {
    double group = fmin(owned, (double)r->sub_group_elements);
    double align = (double)UNITS_KIB * (double)(r->aio_threads ? r->aio_threads : 1);
    return ceil(4 * group / align) * align;
}

static void stage3_optimizer(const struct memory_parts *p, struct sums *s) {
    const struct recipe *r = p->recipe;
    double all = p->sizes.owned, n = all * (1 - memory_gpu_share(r, all));
    double group = 4 * fmin(n, (double)r->sub_group_elements);
    add_pinned(s, r, HOST_GRADS, dtype_bytes(r->grad_accum_dtype) * all, 1);
    if (r->offload_optimizer == OFFLOAD_NVME) {
        s->nvme += (memory_state_bytes(p) + 8) * n; // master, m, v and the fp32 gradient
        add_pinned(s, r, HOST_SWAP_BUFFERS, swap_buffer_bytes(r, n),
                   (double)r->nvme_buffer_count_optimizer);
        return;
    }
    add(s, HOST_MASTER, dtype_bytes(r->master_dtype) * n);
    add_pinned_blocks(s, r, HOST_GRADS, 4 * n, group);
    add(s, HOST_OPTIMIZER, memory_state_bytes(p) * n);
    if (r->super_offload)
        add_pinned(s, r, HOST_SWAP_BUFFERS, group, 1);
}

static void stage3_parameters(const struct memory_parts *p, struct sums *s) {
    const struct recipe *r = p->recipe;
    double n = p->sizes.sharded + p->sizes.sharded_frozen, b = p->parameter_bytes;
    double block = b * (double)r->sub_group_elements;
    if (r->hpz && r->shard_group > 0) // the secondary copy lies with the shards
        add_pinned_blocks(s, r, HOST_PARAMS,
                          b * (p->sizes.trainable + p->sizes.frozen) / (double)r->shard_group,
                          block);
    if (r->offload_param == OFFLOAD_CPU) {
        add_pinned_blocks(s, r, HOST_PARAMS, b * n, block);
        return;
    }
    double in_cpu = fmin(n, (double)r->max_in_cpu_elements);
    add_pinned_blocks(s, r, HOST_PARAMS, b * in_cpu, block);
    s->nvme += b * (n - in_cpu);
    add_pinned(s, r, HOST_SWAP_BUFFERS, b * (double)r->nvme_buffer_elements_param,
               (double)r->nvme_buffer_count_param);
}

// FSDP pins every unit's flat shard (FSDP1) or every parameter's shard (FSDP2), and its gradient.
static void fsdp_pinned(const struct memory_parts *p, struct sums *s) {
    const struct recipe *r = p->recipe;
    const struct model *m = p->model;
    double b = p->parameter_bytes, copies = 1 + p->sizes.trainable_fraction;
    double rounding = 0;
    for (size_t i = 0; i < m->unit_count; i++) {
        const struct model_unit *u = &m->units[i];
        double unit = b * (double)u->parameters / p->sizes.shard_degree, each = 0;
        for (size_t k = 0; k < u->tensor_count; k++) {
            double rows = ceil((double)u->tensors[k].rows / p->sizes.shard_degree);
            double bytes = b * rows * (double)u->tensors[k].cols;
            each += (power_of_two(bytes) - bytes) * (double)u->tensors[k].count;
        }
        double one = recipe_is_fsdp1(r) ? power_of_two(unit) - unit : each;
        rounding += one * (double)u->repeat;
    }
    double params = b * p->sizes.sharded + p->frozen_bytes * p->sizes.sharded_frozen;
    add(s, HOST_PARAMS, params);
    add(s, HOST_GRADS, b * p->sizes.sharded);
    add(s, HOST_OPTIMIZER, memory_state_bytes(p) * p->sizes.owned);
    if (!r->pin_memory)
        return;
    s->pinned += params + b * p->sizes.sharded;
    s->rounding += rounding * copies;
}

static struct sums training_sums(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    struct sums s = {0};
    if (recipe_is_deepspeed(r)) {
        if (r->offload_optimizer != OFFLOAD_NONE && !recipe_is_stage3(r))
            stage12_optimizer(p, &s);
        else if (r->offload_optimizer != OFFLOAD_NONE)
            stage3_optimizer(p, &s);
        if (r->offload_param != OFFLOAD_NONE)
            stage3_parameters(p, &s);
    } else if (r->offload_param != OFFLOAD_NONE) {
        fsdp_pinned(p, &s);
    }
    if (r->activation_offload) {
        double bytes = (double)activation_blocks_bytes(p->model, r);
        double layers = (double)(p->model->layers ? p->model->layers : 1);
        add_pinned_blocks(&s, r, HOST_ACTIVATIONS, bytes, bytes / layers);
    }
    return s;
}

// Host copies that every rank of the node makes while the model loads.
static double load_bytes(const struct memory_parts *p, double ranks) {
    const struct recipe *r = p->recipe;
    double all = p->sizes.trainable + p->sizes.frozen;
    double each = p->frozen_bytes > p->parameter_bytes ? p->frozen_bytes : p->parameter_bytes;
    if (r->lora_rank > 0)
        each = dtype_bytes(recipe_activation_dtype(r));
    double whole = each * all;
    if (recipe_is_stage3(r) && r->zero_init) // every rank reads each checkpoint file in turn
        return ranks * fmin(whole, 5 * UNITS_GIGA);
    if (r->meta_init)
        return 0;
    return r->cpu_ram_efficient_loading ? whole : ranks * whole;
}

// Rank 0 of the first node writes, or every rank its own shard straight from the GPU.
static double save_bytes(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    double all = p->sizes.trainable + p->sizes.frozen;
    if (recipe_is_stage3(r))
        return r->gather_16bit_on_save ? p->gather_bytes * all : 0;
    if (recipe_is_fsdp1(r) && r->full_state_dict)
        return p->parameter_bytes * p->sizes.trainable + p->frozen_bytes * p->sizes.frozen +
               memory_state_bytes(p) * p->sizes.trainable;
    return 0;
}

static double resume_bytes(const struct memory_parts *p, double ranks) {
    const struct recipe *r = p->recipe;
    if (!recipe_is_deepspeed(r))
        return 0;
    double master = r->has_master ? dtype_bytes(r->master_dtype) : 0;
    return ranks * p->sizes.owned * (master + memory_state_bytes(p));
}

void memory_host_fill(const struct memory_parts *p, struct memory_host *out) {
    double ranks = (double)memory_local_ranks(p->cluster, p->recipe);
    struct sums s = training_sums(p);
    s.classes[HOST_PINNED_ROUNDING] = s.rounding;
    *out = (struct memory_host){.pinned = ranks * (s.pinned + s.rounding),
                                .pinned_rounding = ranks * s.rounding,
                                .nvme = ranks * s.nvme};
    for (int phase = PHASE_INIT; phase < PHASE_COUNT; phase++)
        for (int k = 0; k < HOST_CLASS_COUNT; k++)
            out->classes[phase][k] = ranks * s.classes[k];
    // States are created by the first step, except by the NVMe swapper at init.
    if (p->recipe->offload_optimizer != OFFLOAD_NVME)
        out->classes[PHASE_INIT][HOST_OPTIMIZER] = 0;
    out->classes[PHASE_LOAD][HOST_LOAD] = load_bytes(p, ranks);
    out->classes[PHASE_SAVE][HOST_LOAD] = save_bytes(p);
    out->classes[PHASE_RESUME][HOST_LOAD] = resume_bytes(p, ranks);
}
