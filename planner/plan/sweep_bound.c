// SPDX-License-Identifier: Apache-2.0
#include "plan/sweep_bound.h"

#include "base/units.h"
#include "cost/activation.h"
#include "cost/collective.h"
#include "cost/compute.h"
#include "cost/memory.h"

#include <math.h>
#include <string.h>

// Below this share a bound stays under the simulated value although units overlap at their edges.
static const double margin = 0.999;

struct work { // one micro-step
    double compute_s;
    double kept_bytes; // activations of all blocks
};

struct family_bound {
    const struct work *work; // [micro][recompute][loss]
    double link_micro_s;     // collectives of one micro-step on their one communicator
    double step_s;           // GPU optimizer, once per step
    double resident_bytes, capacity_bytes;
};

struct sweep_bounds {
    const struct sweep_points *points;
    struct family_bound *families;
};

struct work_key {
    enum precision precision;
    enum framework framework;
    enum kernel_stack stack;
};

static double blocks_kept(const struct model *m, const struct recipe *r) {
    double bytes = 0;
    if (r->activation_offload)
        return 0;
    for (size_t i = 0; i < m->unit_count; i++)
        if (m->units[i].kind == UNIT_BLOCK)
            bytes += (double)m->units[i].repeat *
                     (double)activation_layer_kept_bytes(m, r, m->units[i].moe);
    return bytes;
}

static struct work work_of(const struct model *m, const struct cluster *c, const struct recipe *r) {
    struct work w = {.kept_bytes = blocks_kept(m, r)};
    for (size_t i = 0; i < m->unit_count; i++) {
        struct unit_cost forward, backward;
        compute_unit(&(struct compute_context){m, c, r}, &m->units[i], &forward, &backward);
        w.compute_s += (double)m->units[i].repeat * (forward.duration_s + backward.duration_s);
    }
    return w;
}

static bool fill_work(const struct sweep_space *s, const struct sweep_basis *b,
                      const struct recipe *family, struct work *table, struct err *e) {
    for (size_t i = 0; i < s->micro_batch.count; i++)
        for (size_t k = 0; k < s->recompute.count; k++)
            for (size_t l = 0; l < s->loss.count; l++) {
                struct recipe r = *family;
                r.micro_batch = s->micro_batch.items[i];
                r.grad_accum = 1;
                r.global_batch = 0;
                r.recompute = (enum recompute)s->recompute.items[k];
                r.loss = (enum loss_head)s->loss.items[l];
                if (!recipe_resolve(&r, b->model, b->cluster, e))
                    return false;
                *table++ = work_of(b->model, b->cluster, &r);
            }
    return true;
}

// Gathers that every micro-step makes at least: ZeRO-3 may keep parameters until backward, FSDP's
// root stays gathered.
static double gathered_blocks(const struct recipe *r) {
    if (!recipe_gathers(r))
        return 0;
    switch (r->strategy) {
    case STRATEGY_FSDP1:
    case STRATEGY_FSDP1_HYBRID:
    case STRATEGY_FSDP2:
    case STRATEGY_HSDP:
        return 2;
    case STRATEGY_ZEROPP:
        return 0;
    default:
        return 1;
    }
}

static double seconds_per_byte(const struct cluster *c, enum collective k, uint64_t size,
                               uint64_t ranks_per_node) {
    struct collective_time t;
    struct group_layout g = {
        .size = size, .ranks_per_node = ranks_per_node, .concurrent_groups = 1};
    if (size < 2)
        return 0;
    collective_estimate(c, k, &g, (double)UNITS_TIB, &t);
    return t.transfer_s / (double)UNITS_TIB;
}

static double link_micro_s(const struct model *m, const struct cluster *c, const struct recipe *r) {
    double blocks = 0;
    uint64_t per_node = c->gpus_per_node < r->shard_group ? c->gpus_per_node : r->shard_group;
    if (r->lora_rank || r->frozen_fraction > 0 || r->no_sync || !recipe_gathers(r))
        return 0;
    for (size_t i = 0; i < m->unit_count; i++)
        if (m->units[i].kind == UNIT_BLOCK)
            blocks += (double)(m->units[i].repeat * m->units[i].parameters);
    double gather = gathered_blocks(r) * blocks * dtype_bytes(recipe_gather_dtype(r)) *
                    seconds_per_byte(c, COLLECTIVE_ALL_GATHER, r->shard_group, per_node);
    double reduce = r->quantized_gradients ? 0
                                           : blocks * dtype_bytes(r->reduce_dtype) *
                                                 seconds_per_byte(c, COLLECTIVE_REDUCE_SCATTER,
                                                                  r->shard_group, per_node);
    // Persistent parameters of ZeRO-3 are gathered once per step, not per micro-step.
    return (recipe_is_stage3(r) ? 0.9 : 1.0) * gather + reduce;
}

// Ranks that share the optimizer's work.
static uint64_t optimizer_shards(const struct recipe *r) {
    if (r->strategy == STRATEGY_DDP || r->strategy == STRATEGY_FSDP1_NOSHARD)
        return 1;
    return recipe_gathers(r) ? r->shard_group : r->world;
}

static bool fill_family(const struct sweep_basis *b, const struct sweep_family *f,
                        const struct sweep_space *s, struct family_bound *out, struct err *e) {
    struct recipe r = f->recipe;
    struct cluster c = *b->cluster;
    struct memory mem;
    if (f->nodes != c.nodes && !cluster_resize(&c, f->nodes, f->gpus, e))
        return false;
    r.micro_batch = s->micro_batch.items[0];
    r.grad_accum = 1;
    r.global_batch = 0;
    if (!recipe_resolve(&r, b->model, &c, e) || !memory_estimate(b->model, &c, &r, &mem, e))
        return false;
    out->resident_bytes =
        (double)(mem.classes_bytes[MEMORY_PARAMS] + mem.classes_bytes[MEMORY_OPTIMIZER] +
                 mem.classes_bytes[MEMORY_MASTER]);
    out->capacity_bytes = (double)mem.capacity_bytes;
    out->link_micro_s = link_micro_s(b->model, &c, &r);
    if (r.offload_optimizer == OFFLOAD_NONE && r.frozen_fraction <= 0)
        out->step_s = compute_optimizer_s(
            &c, &r, (double)recipe_trainable(&r, b->model) / (double)optimizer_shards(&r));
    return true;
}

bool sweep_bounds_build(const struct sweep_points *p, const struct sweep_basis *b, struct arena *a,
                        const struct sweep_bounds **out, struct err *e) {
    const struct sweep_space *s = p->space;
    size_t cells = s->micro_batch.count * s->recompute.count * s->loss.count, keys = 0;
    struct sweep_bounds *t = arena_alloc(a, sizeof *t);
    struct work_key *key = arena_array(a, p->family_count, sizeof *key);
    struct work **tables = arena_array(a, p->family_count, sizeof *tables);
    t->points = p;
    t->families = arena_array(a, p->family_count, sizeof *t->families);
    for (size_t i = 0; i < p->family_count; i++) {
        const struct recipe *r = &p->families[i].recipe;
        struct work_key k = {r->precision, r->framework, r->stack};
        size_t j = 0;
        while (j < keys && memcmp(&key[j], &k, sizeof k) != 0)
            j++;
        if (j == keys) {
            key[keys] = k;
            tables[keys++] = arena_array(a, cells, sizeof **tables);
            if (!fill_work(s, b, r, tables[j], e))
                return false;
        }
        t->families[i].work = tables[j];
        if (!fill_family(b, &p->families[i], s, &t->families[i], e))
            return false;
    }
    *out = t;
    return true;
}

bool sweep_bound(const struct sweep_bounds *b, uint64_t point, struct sweep_bound *out) {
    const struct sweep_space *s = b->points->space;
    size_t i = sweep_family_of(b->points, point);
    const struct sweep_family *f = &b->points->families[i];
    const struct family_bound *t = &b->families[i];
    struct sweep_place x = sweep_place_of(s, f, point - f->first_point);
    uint64_t micro = s->micro_batch.items[x.micro];
    if (f->sequences_per_gpu == 0 || f->sequences_per_gpu % micro != 0)
        return false;
    double accum = (double)(f->sequences_per_gpu / micro);
    const struct work *w =
        &t->work[(x.micro * s->recompute.count + x.recompute) * s->loss.count + x.loss];
    out->step_s = margin * (accum * fmax(w->compute_s, t->link_micro_s) + t->step_s);
    out->peak_bytes = t->resident_bytes + w->kept_bytes;
    out->capacity_bytes = t->capacity_bytes;
    return true;
}
