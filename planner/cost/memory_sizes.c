// SPDX-License-Identifier: Apache-2.0
#include "cost/memory_parts.h"
#include "cost/volume.h"

#include "base/units.h"

#include <math.h>

static double max2(double a, double b) {
    return a > b ? a : b;
}

static double tensor_elements(const struct tensor *t) {
    return (double)t->rows * (double)t->cols;
}

static double ceil_div(double a, double b) {
    return ceil(a / b);
}

// FSDP2 shards dim 0; every rank stores the padded chunk. `scale` is 1/(tp pp) of the columns.
static double fsdp2_shard(const struct tensor *t, double shards) {
    return ceil_div((double)t->rows, shards) * (double)t->cols;
}

// FSDP1 flattens a unit; with use_orig_params each tensor starts at a multiple of 16 bytes.
static double fsdp1_flat(const struct model_unit *u, const struct recipe *r) {
    double align = 16 / dtype_bytes(recipe_gather_dtype(r)), flat = 0;
    for (size_t i = 0; i < u->tensor_count; i++) {
        double n = tensor_elements(&u->tensors[i]) * (double)u->tensors[i].count;
        flat += r->use_orig_params ? ceil_div(n, align) * align : n;
    }
    return flat;
}

// torchtitan's GroupedExperts: E/ep experts of a name are one parameter, cut over the shards/ep
// ranks that hold the same ones by expert, or by row where there are more ranks than experts.
double memory_expert_shard(const struct tensor *t, const struct recipe *r, double shards) {
    double ep = (double)r->ep, local = (double)t->count / ep, ranks = shards / ep;
    if (shards <= (double)t->count)
        return ceil_div(local, ranks) * tensor_elements(t);
    return local * ceil_div((double)t->rows, ranks) * (double)t->cols;
}

static bool is_grouped(const struct tensor *t, const struct recipe *r) {
    return r->ep > 1 && recipe_is_fsdp2(r) && t->role == TENSOR_EXPERT;
}

static double tensor_shard(const struct tensor *t, const struct recipe *r, double shards) {
    if (is_grouped(t, r))
        return memory_expert_shard(t, r, shards);
    double one = recipe_is_fsdp2(r) ? fsdp2_shard(t, shards) : ceil_div(tensor_elements(t), shards);
    return one * (double)t->count;
}

static double unit_shard(const struct model_unit *u, const struct recipe *r, double shards) {
    if (recipe_is_fsdp1(r))
        return fsdp1_flat(u, r);
    double sum = 0;
    for (size_t i = 0; i < u->tensor_count; i++)
        sum += tensor_shard(&u->tensors[i], r, shards);
    return sum;
}

static bool is_wrapped(const struct model_unit *u, const struct recipe *r) {
    return u->kind == UNIT_BLOCK && r->wrap != WRAP_MODEL;
}

// Padded elements of one rank; `root_shard`: of them, outside the wrapped units. FSDP1 pads every
// unit's flat parameter once, and the root is one.
static double stored_elements(const struct model *m, const struct recipe *r, double shards,
                              double *root_shard) {
    double wrapped = 0, root = 0;
    for (size_t i = 0; i < m->unit_count; i++) {
        const struct model_unit *u = &m->units[i];
        double one = unit_shard(u, r, shards);
        if (!is_wrapped(u, r))
            root += one * (double)recipe_stage_units(r, m, u);
        else
            wrapped += (double)recipe_stage_units(r, m, u) *
                       (recipe_is_fsdp1(r) ? ceil_div(one, shards) : one);
    }
    *root_shard = recipe_is_fsdp1(r) ? ceil_div(root, shards) : root;
    return wrapped + *root_shard;
}

static double table_shard(const struct model *m, const struct recipe *r, double shards) {
    for (size_t i = 0; i < m->unit_count; i++)
        for (size_t k = 0; k < m->units[i].tensor_count; k++)
            if (m->units[i].tensors[k].role == TENSOR_EMBEDDING)
                return tensor_shard(&m->units[i].tensors[k], r, shards);
    return 0;
}

static void add_unit(struct memory_sizes *s, const struct model_unit *u, bool wrapped,
                     uint64_t repeat) {
    double elements = 0;
    for (size_t i = 0; i < u->tensor_count; i++) {
        const struct tensor *t = &u->tensors[i];
        double n = tensor_elements(t);
        elements += n * (double)t->count;
        s->largest_parameter = max2(s->largest_parameter, n);
        if (wrapped)
            s->block_largest = max2(s->block_largest, n);
        s->table = t->role == TENSOR_EMBEDDING ? n : s->table;
        s->head = t->role == TENSOR_HEAD ? n : s->head;
    }
    if (wrapped)
        s->block = max2(s->block, elements);
    else
        s->root += elements * (double)repeat;
}

static void wrap_units(struct memory_sizes *s, const struct model *m, const struct recipe *r) {
    for (size_t i = 0; i < m->unit_count; i++)
        if (recipe_stage_units(r, m, &m->units[i]) > 0)
            add_unit(s, &m->units[i], is_wrapped(&m->units[i], r),
                     recipe_stage_units(r, m, &m->units[i]));
    bool apart = r->embedding_group && recipe_is_fsdp2(r) && !m->tied_embeddings && s->block > 0 &&
                 s->table > 0;
    if (apart) { // the table is gathered for its own look-up only
        s->root = max2(s->root - s->table, s->table);
        s->root_shard -= table_shard(m, r, s->shard_degree);
    }
    if (r->wrap == WRAP_SIZE && s->block > 0) {
        double wish = (double)r->wrap_parameters;
        s->block *= max2(1, floor(wish / s->block)); // whole blocks merge up to the size
    }
}

static void scale(struct memory_sizes *s, double by) {
    double *const all[] = {&s->trainable,      &s->frozen,        &s->sharded,
                           &s->sharded_frozen, &s->block,         &s->root,
                           &s->table,          &s->head,          &s->largest_parameter,
                           &s->root_shard,     &s->block_largest, &s->block_reduced};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        *all[i] *= by;
}

static void fill_owned(struct memory_sizes *s, const struct recipe *r) {
    bool stage12 = r->strategy == STRATEGY_ZERO1 || r->strategy == STRATEGY_ZERO2;
    double n = (double)r->world; // data-parallel ranks
    s->owned = s->sharded;
    s->flat = s->trainable;
    if (!stage12)
        return;
    double align = memory_is_megatron(r) ? n : 2 * n;
    s->flat = ceil_div(s->trainable, align) * align;
    // Experts are spread over world/ep ranks only, but each rank holds 1/ep of them.
    s->owned = (s->flat + s->expert * ((double)r->ep - 1)) / n;
}

// Experts of a name are one tensor, stored by fewer ranks.
static void add_grouped(struct memory_sizes *s, const struct model *m, const struct recipe *r) {
    for (size_t i = 0; i < m->unit_count; i++)
        for (size_t k = 0; k < m->units[i].tensor_count; k++) {
            const struct tensor *t = &m->units[i].tensors[k];
            if (!is_grouped(t, r))
                continue;
            double whole = tensor_elements(t) * (double)(t->count / r->ep);
            s->block_largest = max2(s->block_largest, whole);
            s->largest_parameter = max2(s->largest_parameter, whole);
            s->expert_sharded +=
                (double)m->units[i].repeat * memory_expert_shard(t, r, s->shard_degree);
        }
}

// Experts that live on other ranks. docs/method.md §model-parallel.
static void leave_experts(struct memory_sizes *s, const struct model *m, const struct recipe *r) {
    double all = 0, block = 0;
    if (r->ep <= 1)
        return;
    for (size_t i = 0; i < m->unit_count; i++) {
        double one = volume_unit_experts(&m->units[i]);
        all += one * (double)m->units[i].repeat;
        block = max2(block, one);
    }
    double away = 1 - 1 / (double)r->ep;
    s->expert = all / (double)r->ep;
    s->trainable -= all * away;
    s->block -= block * away;
    if (recipe_is_fsdp2(r)) // which cuts what is left over the fewer ranks that share it
        add_grouped(s, m, r);
    else
        s->sharded -= all * away;
}

// Share of all parameters in the described pipeline stage.
static double stage_share(const struct model *m, const struct recipe *r) {
    double held = 0, all = 0;
    for (size_t i = 0; i < m->unit_count; i++) {
        all += (double)m->units[i].parameters * (double)m->units[i].repeat;
        held += (double)m->units[i].parameters * (double)recipe_stage_units(r, m, &m->units[i]);
    }
    return held / all;
}

bool memory_sizes_fill(struct memory_parts *p, struct err *e) {
    const struct model *m = p->model;
    const struct recipe *r = p->recipe;
    struct memory_sizes s = {.shard_degree = 1};
    double tensor_parallel = (double)(r->tp ? r->tp : 1), stage = stage_share(m, r);
    if (r->world == 0 || m->unit_count == 0)
        return err_set(e, ERR_INPUT, "memory: the recipe is not resolved or the model is empty");
    if (recipe_gathers(r))
        s.shard_degree = r->strategy == STRATEGY_ZEROPP ? (double)r->world : (double)r->shard_group;
    s.trainable = (double)recipe_trainable(r, m) * stage;
    s.frozen = (double)recipe_frozen(r, m) * stage;
    double base = stored_elements(m, r, s.shard_degree, &s.root_shard);
    double all = (double)m->parameters * stage, share = s.trainable / all;
    s.trainable_fraction = s.trainable / (s.trainable + s.frozen);
    if (r->lora_rank > 0) { // adapters beside the whole frozen base
        s.sharded = ceil_div(s.trainable, s.shard_degree);
        s.sharded_frozen = base;
    } else {
        s.sharded = base * share;
        s.sharded_frozen = base * (1 - share);
    }
    wrap_units(&s, m, r);
    s.block_reduced = s.block / s.shard_degree;
    leave_experts(&s, m, r);
    scale(&s, 1 / tensor_parallel);
    fill_owned(&s, r);
    p->sizes = s;
    return true;
}
