// SPDX-License-Identifier: Apache-2.0
#include "plan/sweep_space.h"

#include "base/units.h"

#include <string.h>

const struct sweep_offload sweep_offloads[SWEEP_OFFLOADS] = {
    {OFFLOAD_NONE, OFFLOAD_NONE, "none"},    {OFFLOAD_CPU, OFFLOAD_NONE, "cpu"},
    {OFFLOAD_CPU, OFFLOAD_CPU, "cpu+cpu"},   {OFFLOAD_NVME, OFFLOAD_NONE, "nvme"},
    {OFFLOAD_NVME, OFFLOAD_CPU, "nvme+cpu"}, {OFFLOAD_NVME, OFFLOAD_NVME, "nvme+nvme"},
};

static void set_default(struct sweep_values *v, const uint64_t *items, size_t count) {
    if (v->count)
        return;
    memcpy(v->items, items, count * sizeof *items);
    v->count = count;
}

#define DEFAULT(field, ...)                                                                        \
    do {                                                                                           \
        const uint64_t items[] = {__VA_ARGS__};                                                    \
        set_default(&s->field, items, sizeof items / sizeof items[0]);                             \
    } while (0)

void sweep_space_defaults(struct sweep_space *s, const struct cluster *c, const struct recipe *r) {
    const uint64_t mega = (uint64_t)UNITS_MEGA, giga = (uint64_t)UNITS_GIGA;
    DEFAULT(nodes, c->nodes);
    DEFAULT(shard_group, c->gpus_per_node / 4, c->gpus_per_node / 2, c->gpus_per_node);
    DEFAULT(tp, r->tp);
    DEFAULT(cp, r->cp);
    DEFAULT(pp, r->pp);
    DEFAULT(ep, r->ep);
    DEFAULT(offload, 0, 1, 2, 3, 4, 5);
    DEFAULT(precision, PRECISION_BF16_MIXED, PRECISION_BF16_PURE);
    DEFAULT(micro_batch, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64);
    DEFAULT(recompute, RECOMPUTE_NONE, RECOMPUTE_SELECTIVE_ATTENTION, RECOMPUTE_SELECTIVE_OP,
            RECOMPUTE_FULL);
    DEFAULT(loss, LOSS_TORCH, LOSS_FUSED, LOSS_CHUNKED);
    DEFAULT(reduce_bucket, 20 * mega, 50 * mega, 100 * mega, 200 * mega, 500 * mega);
    DEFAULT(prefetch_bucket, 0, 10 * mega, 50 * mega, 200 * mega, 500 * mega);
    DEFAULT(max_live, 100 * mega, 300 * mega, giga, 3 * giga);
}

// Which offloads a strategy knows: DeepSpeed 1 and 2 the optimizer to CPU, 3 everything; FSDP all
// of it to CPU; DDP none.
static bool offload_known(enum strategy s, const struct sweep_offload *o) {
    if (o->optimizer == OFFLOAD_NONE && o->param == OFFLOAD_NONE)
        return true;
    switch (s) {
    case STRATEGY_ZERO1:
    case STRATEGY_ZERO2:
        return o->optimizer == OFFLOAD_CPU && o->param == OFFLOAD_NONE;
    case STRATEGY_ZERO3:
        return true;
    case STRATEGY_ZEROPP: // hpZ's copy can't lie on NVMe
        return o->param != OFFLOAD_NVME;
    case STRATEGY_DDP:
    case STRATEGY_MICS:
    case STRATEGY_FSDP1_NOSHARD:
        return false;
    default:
        return o->optimizer == OFFLOAD_CPU && o->param == OFFLOAD_CPU;
    }
}

static void inner_ranges(const struct sweep_space *s, struct sweep_family *f) {
    bool deepspeed = recipe_is_deepspeed(&f->recipe), stage3 = recipe_is_stage3(&f->recipe);
    f->reduce_count = deepspeed ? s->reduce_bucket.count : 1;
    f->prefetch_count = stage3 ? s->prefetch_bucket.count : 1;
    f->live_count = stage3 ? s->max_live.count : 1;
}

size_t sweep_family_points(const struct sweep_space *s, const struct sweep_family *f) {
    return s->micro_batch.count * s->recompute.count * s->loss.count * f->reduce_count *
           f->prefetch_count * f->live_count;
}

struct family_choice {
    size_t nodes, group, offload, precision, tp, cp, pp, ep;
};

static bool add_family(const struct sweep_space *s, const struct sweep_basis *b,
                       const struct recipe *base, const struct family_choice *k,
                       struct sweep_family *out, struct err *e) {
    const struct cluster *c = b->cluster;
    struct sweep_family f = {.recipe = *base, .nodes = s->nodes.items[k->nodes]};
    struct cluster sized = *c;
    const struct sweep_offload *o = &sweep_offloads[s->offload.items[k->offload]];
    bool grouped = recipe_has_shard_group(base->strategy);
    if (!offload_known(base->strategy, o) || (!grouped && k->group > 0))
        return false;
    if (f.nodes != c->nodes && !cluster_resize(&sized, f.nodes, f.nodes * c->gpus_per_node, e))
        return false;
    f.gpus = sized.gpus;
    if (grouped && (s->shard_group.items[k->group] < 2 || s->shard_group.items[k->group] >= f.gpus))
        return false;
    f.recipe.precision = (enum precision)s->precision.items[k->precision];
    f.recipe.offload_optimizer = o->optimizer;
    f.recipe.offload_param = o->param;
    if (grouped)
        f.recipe.shard_group = s->shard_group.items[k->group];
    f.recipe.tp = s->tp.items[k->tp];
    f.recipe.cp = s->cp.items[k->cp];
    f.recipe.pp = s->pp.items[k->pp];
    f.recipe.ep = s->ep.items[k->ep];
    f.precision_index = k->precision;
    inner_ranges(s, &f);
    struct recipe probe = f.recipe;
    probe.micro_batch = probe.grad_accum = 1;
    probe.global_batch = 0;
    if (!recipe_resolve(&probe, b->model, &sized, e))
        return false;
    f.replicas = probe.world / probe.cp; // that read batches of their own
    *out = f;
    return true;
}

bool sweep_points_build(const struct sweep_space *s, const struct sweep_basis *b, struct arena *a,
                        struct sweep_points *out, struct err *e) {
    struct sweep_points p = {.space = s, .threads = 1};
    size_t most = b->recipe_count * s->nodes.count * s->shard_group.count * s->offload.count *
                  s->precision.count * s->tp.count * s->cp.count * s->pp.count * s->ep.count;
    struct err why = {0}; // the first that can't run
    p.families = arena_array(a, most, sizeof *p.families);
    for (size_t i = 0; i < most; i++) {
        size_t rest = i;
        struct family_choice k;
        k.precision = rest % s->precision.count, rest /= s->precision.count;
        k.offload = rest % s->offload.count, rest /= s->offload.count;
        k.group = rest % s->shard_group.count, rest /= s->shard_group.count;
        k.nodes = rest % s->nodes.count, rest /= s->nodes.count;
        k.tp = rest % s->tp.count, rest /= s->tp.count;
        k.cp = rest % s->cp.count, rest /= s->cp.count;
        k.pp = rest % s->pp.count, rest /= s->pp.count;
        k.ep = rest % s->ep.count, rest /= s->ep.count;
        const struct recipe *base = &b->recipes[rest];
        struct sweep_family f;
        struct err no = {0};
        if (!add_family(s, b, base, &k, &f, why.text[0] ? &no : &why))
            continue;
        f.first_point = p.point_count;
        f.sequences_per_gpu = b->global_batch % f.replicas == 0 ? b->global_batch / f.replicas : 0;
        p.point_count += sweep_family_points(s, &f);
        p.families[p.family_count++] = f;
    }
    if (p.point_count == 0)
        return err_set(e, ERR_INPUT,
                       "the sweep is empty: no strategy of the space can run here%s%s",
                       why.text[0] ? "; the first: " : "", why.text);
    *out = p;
    return true;
}

size_t sweep_family_of(const struct sweep_points *p, uint64_t point) {
    size_t low = 0, high = p->family_count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (p->families[middle].first_point <= point)
            low = middle;
        else
            high = middle;
    }
    return low;
}

struct sweep_place sweep_place_of(const struct sweep_space *s, const struct sweep_family *f,
                                  uint64_t index) {
    struct sweep_place x;
    x.live = index % f->live_count, index /= f->live_count;
    x.prefetch = index % f->prefetch_count, index /= f->prefetch_count;
    x.reduce = index % f->reduce_count, index /= f->reduce_count;
    x.loss = index % s->loss.count, index /= s->loss.count;
    x.recompute = index % s->recompute.count, index /= s->recompute.count;
    x.micro = index;
    return x;
}

bool sweep_point_recipe(const struct sweep_points *p, uint64_t point, size_t *family,
                        struct recipe *out) {
    const struct sweep_space *s = p->space;
    size_t i = sweep_family_of(p, point);
    const struct sweep_family *f = &p->families[i];
    struct sweep_place x = sweep_place_of(s, f, point - f->first_point);
    struct recipe r = f->recipe;
    r.micro_batch = s->micro_batch.items[x.micro];
    if (f->sequences_per_gpu == 0 || f->sequences_per_gpu % r.micro_batch != 0)
        return false;
    r.grad_accum = f->sequences_per_gpu / r.micro_batch;
    r.global_batch = 0;
    r.recompute = (enum recompute)s->recompute.items[x.recompute];
    r.recompute_every =
        r.recompute == RECOMPUTE_EVERY_N && !r.recompute_every ? 2 : r.recompute_every;
    r.loss = (enum loss_head)s->loss.items[x.loss];
    if (recipe_is_deepspeed(&r))
        r.reduce_bucket_elements = s->reduce_bucket.items[x.reduce];
    if (recipe_is_stage3(&r)) {
        r.prefetch_bucket_elements = s->prefetch_bucket.items[x.prefetch];
        r.max_live_elements = s->max_live.items[x.live];
    }
    *family = i;
    *out = r;
    return true;
}
