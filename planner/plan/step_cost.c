// SPDX-License-Identifier: Apache-2.0
// Units, FSDP groups and rates of one rank: everything a builder needs before it adds tasks.
#include "base/units.h"
#include "cost/activation.h"
#include "cost/memory_parts.h"
#include "plan/step_build.h"

#include <math.h>
#include <string.h>

static double known(struct figure f, double otherwise) {
    return figure_is_known(f) && f.value > 0 ? f.value : otherwise;
}

static void scale_unit_cost(struct unit_cost *c, double speed) {
    c->duration_s /= speed;
    c->low_s /= speed;
    c->high_s /= speed;
}

// Under autocast a matmul keeps its weight's 16-bit copy until backward; DeepSpeed's weights are 16
// bits already. docs/method.md §memory.
static double autocast_bytes(const struct step_builder *b, const struct step_unit_class *k) {
    const struct recipe *r = b->recipe;
    double matmul = (double)b->model->matmul_parameters / (double)b->model->parameters;
    bool casts = r->precision == PRECISION_AMP_BF16 && !recipe_is_deepspeed(r);
    return casts ? 2 * fmin(1, matmul) * k->elements : 0;
}

static void class_activations(struct step_builder *b, struct step_unit_class *k) {
    const struct model *m = b->model;
    const struct recipe *r = b->recipe;
    const enum unit_kind kind = k->unit->kind;
    uint64_t held = 0, peak = 0;
    if (kind == UNIT_BLOCK) {
        double kept = (double)activation_layer_kept_bytes(m, r, k->unit->moe);
        k->kept_bytes = activation_unit_kept_bytes(m, r, k->unit);
        k->backward_bytes = fmax((double)activation_layer_full_bytes(m, r, k->unit->moe) - kept, 0);
    } else if (kind == UNIT_EMBEDDING) {
        k->kept_bytes = (double)activation_embedding_bytes(m, r);
    } else if (kind == UNIT_HEAD || m->tied_embeddings) { // a tied head computes after the norm
        activation_logits(m, r, &held, &peak);
        k->kept_bytes = (double)held;
        k->backward_bytes = (double)(peak > held ? peak - held : 0);
    }
    double casts = autocast_bytes(b, k);
    *(r->recompute == RECOMPUTE_FULL && kind == UNIT_BLOCK ? &k->backward_bytes : &k->kept_bytes) +=
        casts;
}

static double padded(double elements, double multiple) {
    return ceil(elements / multiple) * multiple;
}

// FSDP2 cuts dim 0: every rank keeps, sends and receives as many rows as the first one. FSDP1 may
// let every parameter start at a multiple of 16 bytes.
static double class_elements(const struct step_builder *b, const struct model_unit *u) {
    const struct recipe *r = b->recipe;
    double sum = 0, shards = (double)b->shard;
    bool aligns = recipe_is_fsdp1(r) && r->use_orig_params;
    if (!recipe_is_fsdp2(r) && !aligns)
        return ((double)u->parameters - (r->ep > 1 ? volume_unit_experts(u) : 0)) / (double)r->tp;
    for (size_t i = 0; i < u->tensor_count; i++) {
        const struct tensor *t = &u->tensors[i];
        if (r->ep > 1 && t->role == TENSOR_EXPERT)
            continue;
        if (aligns) {
            double all = (double)tensor_numel(t) * (double)(t->count ? t->count : 1);
            sum += padded(all, 16 / b->sizes.gather);
            continue;
        }
        double rows = padded((double)t->rows, shards);
        sum += rows * (double)(t->cols ? t->cols : 1) * (double)(t->count ? t->count : 1);
    }
    return sum / (double)b->recipe->tp;
}

// Experts that this rank computes with, as FSDP2 gathers them or as DDP and ZeRO keep them.
static double class_experts(const struct step_builder *b, const struct model_unit *u) {
    double sum = 0, ep = (double)b->recipe->ep, shards = (double)b->shard;
    if (!recipe_is_fsdp2(b->recipe))
        return volume_unit_experts(u) / ep;
    for (size_t i = 0; i < u->tensor_count; i++)
        if (u->tensors[i].role == TENSOR_EXPERT)
            sum += memory_expert_shard(&u->tensors[i], b->recipe, shards) * shards / ep;
    return sum;
}

// A LoRA base stays in 16 bits, or 4 bits and gathered so, beside its adapters.
static void class_bytes(const struct step_builder *b, struct step_unit_class *k) {
    const struct step_sizes *s = &b->sizes;
    if (b->recipe->lora_rank == 0) {
        k->gather_bytes = k->elements * s->gather;
        k->stored_bytes = k->elements * s->param;
        return;
    }
    double frozen = memory_frozen_element_bytes(b->recipe);
    k->gather_bytes =
        k->elements * (b->recipe->base_4bit ? frozen : s->gather) + k->trainable * s->gather;
    k->stored_bytes = k->elements * frozen + k->trainable * s->param;
}

static double class_trainable(const struct step_builder *b, const struct step_unit_class *k) {
    const struct recipe *r = b->recipe;
    if (r->lora_rank == 0)
        return k->elements * (1 - r->frozen_fraction);
    if (k->unit->kind != UNIT_BLOCK)
        return 0;
    return (double)recipe_trainable(r, b->model) / (double)b->model->layers / (double)r->tp;
}

static void init_classes(struct step_builder *b) {
    const struct recipe *r = b->recipe;
    b->class_count = (uint32_t)b->model->unit_count;
    b->classes = arena_array(b->arena, b->class_count + 1, sizeof *b->classes);
    for (uint32_t i = 0; i < b->class_count; i++) {
        struct step_unit_class *k = &b->classes[i];
        k->unit = &b->model->units[i];
        const struct compute_context x = {b->model, b->cluster, r};
        compute_unit(&x, k->unit, &k->forward, &k->backward);
        scale_unit_cost(&k->forward, b->scale.compute);
        scale_unit_cost(&k->backward, b->scale.compute);
        k->elements = class_elements(b, k->unit);
        if (r->ep > 1) {
            k->experts = class_experts(b, k->unit);
            k->elements += k->experts;
        }
        k->trainable = class_trainable(b, k);
        class_bytes(b, k);
        if (k->unit->kind == UNIT_BLOCK)
            k->tensor_bytes = (double)(r->micro_batch * r->seq * b->model->hidden) / (double)r->cp *
                              dtype_bytes(recipe_activation_dtype(r));
        if (b->memory || r->activation_offload)
            class_activations(b, k);
    }
}

// Those of one pipeline stage.
static uint64_t instances_of(const struct step_builder *b, const struct model_unit *u) {
    return recipe_stage_units(b->recipe, b->model, u);
}

static void init_units(struct step_builder *b) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < b->class_count; i++)
        count += instances_of(b, b->classes[i].unit);
    b->units = arena_array(b->arena, count + 1, sizeof *b->units);
    uint32_t layer = 0;
    for (uint32_t i = 0; i < b->class_count; i++) {
        bool block = b->classes[i].unit->kind == UNIT_BLOCK;
        for (uint64_t k = 0; k < instances_of(b, b->classes[i].unit); k++) {
            b->units[b->unit_count++] =
                (struct step_unit){.class = i, .layer = block ? layer++ : 0};
            b->elements += b->classes[i].elements;
            b->trainable += b->classes[i].trainable;
            b->experts += b->classes[i].experts;
        }
    }
}

static void join(struct step_builder *b, uint32_t unit, uint32_t group) {
    struct step_group *g = &b->groups[group];
    const struct step_unit_class *k = &b->classes[b->units[unit].class];
    if (g->elements == 0 && g->last == 0)
        g->first = unit;
    g->last = unit;
    g->elements += k->elements;
    g->trainable += k->trainable;
    g->experts += k->experts;
    g->gather_bytes += k->gather_bytes;
    g->stored_bytes += k->stored_bytes;
    b->units[unit].group = group;
}

// What is not a wrapped block belongs to the root, which is gathered first and reduced last.
static void init_groups(struct step_builder *b) {
    const struct recipe *r = b->recipe;
    b->groups = arena_array(b->arena, b->unit_count + 1, sizeof *b->groups);
    b->groups[0].root = true;
    b->group_count = 1;
    double filled = INFINITY;
    for (uint32_t i = 0; i < b->unit_count; i++) {
        const struct step_unit_class *k = &b->classes[b->units[i].class];
        if (r->wrap == WRAP_MODEL || k->unit->kind != UNIT_BLOCK) {
            join(b, i, 0);
            continue;
        }
        bool merge = r->wrap == WRAP_SIZE && filled + k->elements <= (double)r->wrap_parameters;
        if (!merge) {
            b->group_count++;
            filled = 0;
        }
        filled += k->elements;
        join(b, i, b->group_count - 1);
    }
}

// FSDP1 pads the flat parameter of a group to the ranks that share it.
static void pad_groups(struct step_builder *b) {
    for (uint32_t i = 0; i < b->group_count && recipe_is_fsdp1(b->recipe); i++) {
        struct step_group *g = &b->groups[i];
        double tp = (double)b->recipe->tp;
        double by =
            g->elements > 0 ? padded(g->elements * tp, (double)b->shard) / tp / g->elements : 1;
        g->elements *= by;
        g->trainable *= by;
        g->gather_bytes *= by;
        g->stored_bytes *= by;
    }
}

// Stages 1 and 2 pad the whole, stage 3 each parameter; of adapters only their sum is known.
static double padding_of(const struct step_builder *b) {
    const struct model *m = b->model;
    double all = 0, stored = 0, shards = (double)b->shard;
    bool stage12 = b->recipe->strategy == STRATEGY_ZERO1 || b->recipe->strategy == STRATEGY_ZERO2;
    double align = memory_is_megatron(b->recipe) ? shards : 2 * shards;
    if (b->trainable <= 0)
        return 1;
    if (stage12 && b->recipe->ep <= 1)
        return padded(b->trainable, align) / b->trainable;
    if (!recipe_is_stage3(b->recipe))
        return 1;
    if (b->recipe->lora_rank > 0)
        return padded(b->trainable, shards) / b->trainable;
    for (size_t i = 0; i < m->unit_count; i++)
        for (size_t k = 0; k < m->units[i].tensor_count; k++) {
            const struct tensor *t = &m->units[i].tensors[k];
            double times = (double)(t->count ? t->count : 1) * (double)m->units[i].repeat;
            all += times * (double)tensor_numel(t);
            stored += times * padded((double)tensor_numel(t), shards);
        }
    return stored / all;
}

// What drives read and write passes through the host's memory.
static void init_drives(const struct step_builder *b, struct step_link_rates *v) {
    double share = (double)b->ranks_per_node;
    double reads = known(b->cluster->nvme_read_bytes_per_s, NAN) / share * b->scale.nvme;
    double writes = known(b->cluster->nvme_write_bytes_per_s, NAN) / share * b->scale.nvme;
    v->nvme_read_bytes_per_s = reads > v->dram_bytes_per_s ? v->dram_bytes_per_s : reads;
    v->nvme_write_bytes_per_s = writes > v->dram_bytes_per_s ? v->dram_bytes_per_s : writes;
    v->nvme_read_load = v->nvme_read_bytes_per_s < reads ? v->nvme_read_bytes_per_s / reads : 1;
    v->nvme_write_load =
        v->nvme_write_bytes_per_s < writes ? v->nvme_write_bytes_per_s / writes : 1;
}

static void init_rates(struct step_builder *b) {
    const struct cluster *c = b->cluster;
    const struct gpu *g = &c->gpu;
    const double assumed_pcie_bytes_per_s = 20 * UNITS_GIGA;
    double share = (double)b->ranks_per_node, pcie = b->scale.pcie;
    double uplink = known(c->pcie_switch_bytes_per_s, INFINITY) /
                    (double)(c->gpus_per_pcie_switch ? c->gpus_per_pcie_switch : 1);
    struct step_link_rates *v = &b->rates;
    v->dram_bytes_per_s = known(c->host_dram_bytes_per_s, INFINITY) / share * b->scale.host_dram;
    double h2d = known(g->pcie_h2d_bytes_per_s, assumed_pcie_bytes_per_s);
    double d2h = known(g->pcie_d2h_bytes_per_s, assumed_pcie_bytes_per_s);
    v->h2d_bytes_per_s = fmin(fmin(h2d, uplink) * pcie, v->dram_bytes_per_s);
    v->d2h_bytes_per_s = fmin(fmin(d2h, uplink) * pcie, v->dram_bytes_per_s);
    v->pcie_both_bytes_per_s =
        fmin(known(g->pcie_h2d_both_bytes_per_s, h2d) + known(g->pcie_d2h_both_bytes_per_s, d2h),
             2 * uplink) *
        pcie;
    init_drives(b, v);
    v->hbm_bytes_per_s = known(g->hbm_bytes_per_s, INFINITY) * known(g->hbm_fraction, 1);
}

static bool has_links(const struct step_builder *b) {
    const struct gpu *g = &b->cluster->gpu;
    const struct figure any[] = {g->nvlink_bytes_per_s, g->nvlink_busbw_bytes_per_s,
                                 g->pcie_h2d_bytes_per_s, g->pcie_d2h_bytes_per_s};
    for (size_t i = 0; i < sizeof any / sizeof any[0]; i++)
        if (known(any[i], NAN) > 0)
            return true;
    return b->cluster->fit_count > 0 || b->ranks_per_node <= 1;
}

// What has no default: without it there is no time.
static bool check(const struct step_builder *b, struct err *e) {
    const struct recipe *r = b->recipe;
    const struct gpu *g = &b->cluster->gpu;
    if (!(compute_peak_flop_per_s(g, r) > 0))
        return err_set(e, ERR_INPUT, "GPU %s states no peak for %s: give peak_flop_per_s",
                       g->name ? g->name : "?", dtype_name(r->compute_dtype));
    if (!(known(g->hbm_bytes_per_s, NAN) > 0))
        return err_set(e, ERR_INPUT, "GPU %s states no hbm_bytes_per_s", g->name ? g->name : "?");
    if (!has_links(b))
        return err_set(e, ERR_INPUT,
                       "GPU %s states no rate between GPUs: give pcie_generation, or "
                       "pcie_h2d_bytes_per_s or nvlink_bytes_per_s",
                       g->name ? g->name : "?");
    if (r->offload_optimizer == OFFLOAD_NVME || r->offload_param == OFFLOAD_NVME)
        if (!(b->rates.nvme_read_bytes_per_s > 0) || !(b->rates.nvme_write_bytes_per_s > 0))
            return err_set(e, ERR_INPUT,
                           "cluster %s states no NVMe rate; give --nvme READ/WRITE or measure it",
                           b->cluster->name ? b->cluster->name : "?");
    return true;
}

bool step_builder_init(struct step_builder *b, const struct step_request *q, struct arena *a,
                       struct err *e) {
    const struct step_scale as_is = {1, 1, 1, 1, 1, 1, 1};
    const struct recipe *r = q->recipe;
    *b = (struct step_builder){.model = q->model,
                               .cluster = q->cluster,
                               .recipe = r,
                               .scale = q->scale ? *q->scale : as_is,
                               .memory = q->want_timeline,
                               .quick = q->quick,
                               .arena = a};
    uint64_t gpus = q->cluster->gpus ? q->cluster->gpus : r->world;
    b->ranks_per_node = q->cluster->gpus_per_node < gpus ? q->cluster->gpus_per_node : gpus;
    b->ranks_per_node = b->ranks_per_node ? b->ranks_per_node : 1;
    b->shard = r->strategy == STRATEGY_ZEROPP ? r->world : r->shard_group;
    b->replicas = r->strategy == STRATEGY_ZEROPP ? 1 : r->replica_group;
    b->sizes = (struct step_sizes){.param = dtype_bytes(r->param_dtype),
                                   .gather = dtype_bytes(recipe_gather_dtype(r)),
                                   .grad = dtype_bytes(r->grad_dtype),
                                   .reduce = dtype_bytes(r->reduce_dtype)};
    for (int i = 0; i < STEP_STREAM_COUNT; i++)
        b->last[i] = SIM_NONE;
    b->activation_copy = b->last_backward = b->before_last_backward = SIM_NONE;
    if (q->cluster->gpu.vendor != NULL && strcmp(q->cluster->gpu.vendor, "host") == 0)
        b->host_cores = known(q->cluster->cpu_cores, 1) / (double)b->ranks_per_node;
    b->sim = sim_create(a, STEP_STREAM_COUNT, STEP_RESOURCE_COUNT);
    init_rates(b);
    if (!check(b, e))
        return false;
    init_classes(b);
    init_units(b);
    init_groups(b);
    pad_groups(b);
    b->padding = padding_of(b);
    return true;
}
