// SPDX-License-Identifier: Apache-2.0
// Copies over PCIe and to NVMe, per rank and optimizer step: docs/method.md §volume "Offload".
#include "cost/volume_parts.h"

#include <math.h>

// CPU Adam in fp32: p, g, m, v read and p, m, v written; a cast pass; a scaling pass when clipping.
static double adam_bytes(const struct recipe *r) {
    double cast = recipe_is_deepspeed(r) ? 6 : 0;
    return 28 + cast + (r->clip > 0 ? 8 : 0);
}

double volume_straddling_elements(const struct model *m, const struct recipe *r, double end) {
    double at = 0;
    for (size_t i = 0; i < m->unit_count && r->lora_rank == 0; i++)
        for (uint64_t k = 0; k < m->units[i].repeat; k++)
            for (size_t j = 0; j < m->units[i].tensor_count; j++)
                for (uint64_t c = 0; c < m->units[i].tensors[j].count; c++) {
                    double n = (double)tensor_numel(&m->units[i].tensors[j]);
                    if (at < end && at + n > end)
                        return at + n - end;
                    at += n;
                }
    return 0;
}

static void stage12_copies(struct volume_parts *v, double n) {
    const struct memory_parts *p = &v->memory;
    double b = p->parameter_bytes, g = v->accumulate, buckets = 1;
    if (p->recipe->strategy == STRATEGY_ZERO2 && g > 1) {
        // Every micro-step adds to a 16-bit accumulation buffer in host memory.
        double whole = n + volume_straddling_elements(p->model, p->recipe, p->sizes.owned);
        volume_copy(v, &(struct volume_copy){"backward", "accumulated gradients", TRANSFER_D2H, g,
                                             g * b * whole});
        volume_copy(v, &(struct volume_copy){"backward", "accumulated gradients", TRANSFER_H2D,
                                             g - 1, (g - 1) * b * whole});
    }
    buckets = (double)volume_bucket_count(p->model, p->recipe);
    volume_copy(v,
                &(struct volume_copy){"backward", "fp32 gradients", TRANSFER_D2H, buckets, 4 * n});
    volume_copy(v, &(struct volume_copy){"step", "updated parameters", TRANSFER_H2D, 1, b * n});
}

static void stage3_copies(struct volume_parts *v, double n) {
    const struct memory_parts *p = &v->memory;
    const struct recipe *r = p->recipe;
    double accumulate = dtype_bytes(r->grad_accum_dtype), g = v->accumulate;
    double groups = ceil(n / (double)(r->sub_group_elements ? r->sub_group_elements : 1));
    double buckets = (double)volume_bucket_count(p->model, r);
    // The first micro-step writes the host buffer and reads it back; later ones read, add, write.
    volume_copy(v, &(struct volume_copy){"backward", "accumulated gradients", TRANSFER_D2H,
                                         g * buckets, g * accumulate * n});
    volume_copy(v, &(struct volume_copy){"backward", "accumulated gradients", TRANSFER_H2D,
                                         g * buckets, g * accumulate * n});
    volume_copy(v,
                &(struct volume_copy){"backward", "fp32 gradients", TRANSFER_D2H, buckets, 4 * n});
    if (r->offload_param == OFFLOAD_NONE)
        volume_copy(v, &(struct volume_copy){"step", "updated parameters", TRANSFER_H2D, groups,
                                             p->parameter_bytes * n});
    if (r->offload_optimizer != OFFLOAD_NVME)
        return;
    double states = memory_state_bytes(&v->memory) + 4; // master, m and v
    volume_copy(v,
                &(struct volume_copy){"backward", "gradients", TRANSFER_NVME_WRITE, groups, 4 * n});
    volume_copy(v, &(struct volume_copy){"step", "optimizer states", TRANSFER_NVME_READ, groups,
                                         (states + 4) * n});
    volume_copy(v, &(struct volume_copy){"step", "optimizer states", TRANSFER_NVME_WRITE, groups,
                                         states * n});
}

static void stage3_parameter_copies(struct volume_parts *v) {
    const struct memory_parts *p = &v->memory;
    const struct recipe *r = p->recipe;
    double b = p->parameter_bytes, g = v->accumulate, ranks = p->sizes.shard_degree, later = ranks;
    bool hpz = r->strategy == STRATEGY_ZEROPP && r->hpz;
    if (hpz) // then on from the secondary copy's own shard
        later = (double)r->shard_group;
    struct zero3_padding more = zero3_padding(&p->zero3, (uint64_t)ranks);
    struct zero3_adapters adapters = zero3_adapters(p->model, r, &p->zero3);
    double with = 1 + adapters.per_element;
    double forward = b * ((double)p->zero3.forward_elements * with + more.forward) *
                     (1 / ranks + (g - 1) / later);
    double backward = g * b * ((double)p->zero3.backward_elements * with + more.backward) / later;
    double calls = (double)p->zero3.forward_calls, all = (double)p->zero3.calls;
    volume_copy(v,
                &(struct volume_copy){"forward", "parameters", TRANSFER_H2D, g * calls, forward});
    volume_copy(v, &(struct volume_copy){"backward", "parameters", TRANSFER_H2D, g * (all - calls),
                                         backward});
    double kept = (double)p->zero3.persistent_elements + adapters.persistent_elements;
    volume_copy(v, &(struct volume_copy){"step", "persistent parameters", TRANSFER_H2D,
                                         (double)p->zero3.persistent_parameters +
                                             adapters.persistent_parameters,
                                         b * (kept + more.persistent) / ranks});
    double n = p->sizes.sharded + p->sizes.sharded_frozen;
    if (hpz) // what each parameter's first release after a step leaves there
        volume_copy(v, &(struct volume_copy){"forward", "secondary copies", TRANSFER_D2H,
                                             volume_parameter_count(p->model) -
                                                 (double)p->zero3.persistent_parameters,
                                             b * (n * ranks - kept - more.persistent) / later});
    if (r->offload_param != OFFLOAD_NVME || n <= 0)
        return;
    double outside = fmax(0, n - (double)r->max_in_cpu_elements) / n;
    volume_copy(v, &(struct volume_copy){"forward", "parameters", TRANSFER_NVME_READ, g * calls,
                                         outside * forward});
    volume_copy(v, &(struct volume_copy){"backward", "parameters", TRANSFER_NVME_READ,
                                         g * (all - calls), outside * backward});
    volume_copy(v, &(struct volume_copy){"step", "updated parameters", TRANSFER_NVME_WRITE, 1,
                                         outside * b * n});
}

// FSDP moves the stored type and casts on the GPU; its root is not fetched again for backward, nor
// are units partly resharded, whose backward gather starts from a copy on the GPU
// (torch/distributed/fsdp/_fully_shard/_fsdp_param.py, all_gather_inputs).
static void fsdp_copies(struct volume_parts *v) {
    const struct memory_parts *p = &v->memory;
    const struct memory_sizes *s = &p->sizes;
    double pass = p->parameter_bytes * s->sharded + p->frozen_bytes * s->sharded_frozen;
    double units = volume_units(p), g = v->accumulate,
           kept = volume_root_share(p, p->parameter_bytes, p->frozen_bytes);
    bool once =
        volume_textbook_multiple(p->recipe) < 3 || p->recipe->strategy == STRATEGY_FSDP2_RESHARD;
    volume_copy(v,
                &(struct volume_copy){"forward", "parameters", TRANSFER_H2D, g * units, g * pass});
    if (!once)
        volume_copy(v, &(struct volume_copy){"backward", "parameters", TRANSFER_H2D,
                                             g * (kept > 0 ? units - 1 : units),
                                             g * pass * (1 - kept)});
    volume_copy(v, &(struct volume_copy){"backward", "gradients", TRANSFER_D2H, v->syncs * units,
                                         v->syncs * p->parameter_bytes * s->sharded});
}

void volume_offload(struct volume_parts *v) {
    const struct memory_parts *p = &v->memory;
    const struct recipe *r = p->recipe;
    double n = p->sizes.owned * (1 - memory_gpu_share(r, p->sizes.owned));
    if (r->offload_optimizer != OFFLOAD_NONE && r->optimizer != OPTIMIZER_NONE)
        v->out->host_dram_bytes_per_node +=
            (double)memory_local_ranks(p->cluster, r) * n * adam_bytes(r);
    if (!recipe_is_deepspeed(r)) {
        if (r->offload_param != OFFLOAD_NONE)
            fsdp_copies(v);
        return;
    }
    if (r->offload_optimizer != OFFLOAD_NONE) {
        if (recipe_is_stage3(r))
            stage3_copies(v, n);
        else
            stage12_copies(v, n);
    }
    if (r->offload_param != OFFLOAD_NONE)
        stage3_parameter_copies(v);
}
