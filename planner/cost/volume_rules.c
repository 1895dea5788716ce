// SPDX-License-Identifier: Apache-2.0
// What each framework sends: docs/method.md §volume.
#include "base/units.h"
#include "cost/optimizer.h"
#include "cost/order.h"
#include "cost/volume_parts.h"

#include <math.h>
#include <string.h>

static struct volume_entry world_entry(const struct volume_parts *v) {
    return (struct volume_entry){.group = GROUP_WORLD,
                                 .group_size = (double)v->memory.recipe->world,
                                 .ranks_per_node = v->local_ranks,
                                 .count = 1};
}

// Shard groups are consecutive ranks.
static struct volume_entry shard_entry(const struct volume_parts *v) {
    struct volume_entry t = world_entry(v);
    const struct recipe *r = v->memory.recipe;
    if (r->shard_group >= r->world)
        return t;
    t.group = GROUP_SHARD;
    t.group_size = (double)r->shard_group;
    t.ranks_per_node = fmin(t.group_size, v->local_ranks);
    return t;
}

// Ranks with the same experts: one in `ep`.
static struct volume_entry expert_entry(const struct volume_parts *v) {
    struct volume_entry t = world_entry(v);
    double ep = (double)v->memory.recipe->ep;
    t.group = GROUP_REPLICA;
    t.group_size /= ep;
    t.ranks_per_node = fmax(1, floor(v->local_ranks / ep));
    return t;
}

// A replica group takes every S-th rank.
static struct volume_entry replica_entry(const struct volume_parts *v) {
    struct volume_entry t = world_entry(v);
    const struct recipe *r = v->memory.recipe;
    t.group = GROUP_REPLICA;
    t.group_size = (double)r->replica_group;
    t.ranks_per_node = fmax(1, floor(v->local_ranks / (double)r->shard_group));
    return t;
}

static void put(struct volume_parts *v, struct volume_entry t, const char *phase, const char *what,
                enum collective c) {
    t.phase = phase;
    t.what = what;
    t.collective = c;
    volume_add(v, &t);
}

// A payload of `elements` over all ranks; the experts among them only over those that share them.
static void add(struct volume_parts *v, struct volume_entry t, const char *phase, const char *what,
                enum collective c) {
    const struct memory_sizes *s = &v->memory.sizes;
    if (v->memory.recipe->ep <= 1 || t.group != GROUP_WORLD || s->expert_sharded > 0) {
        put(v, t, phase, what, c);
        return;
    }
    double share = s->expert / s->trainable;
    struct volume_entry x = expert_entry(v);
    x.dtype = t.dtype;
    x.count = fmax(1, ceil(share * t.count));
    x.payload_bytes = share * t.payload_bytes;
    t.payload_bytes -= x.payload_bytes;
    t.count = fmax(1, t.count - x.count);
    put(v, t, phase, what, c);
    put(v, x, phase, strcmp(phase, "backward") == 0 ? "gradients of experts" : "updated experts",
        c);
}

// ---- bucket counts ------------------------------------------------------------------------------

struct filler {
    double held, limit, next_limit; // elements (DeepSpeed) or bytes (DDP)
    uint64_t closed;
    bool before; // close a bucket before it overflows, not once it is full
};

static void fill(struct filler *f, double size) {
    if (f->before && f->held > 0 && f->held + size > f->limit) {
        f->closed++;
        f->held = 0;
    }
    f->held += size;
    if (!f->before && f->held >= f->limit) {
        f->closed++;
        f->held = 0;
        f->limit = f->next_limit;
    }
}

size_t volume_backward_order(const struct model_unit *u, const struct tensor **out) {
    // Stable by falling rank: each tensor goes behind those that run later or as late.
    int ranks[VOLUME_UNIT_TENSORS_MAX];
    size_t n = 0;
    for (size_t j = u->tensor_count; j-- > 0 && n < VOLUME_UNIT_TENSORS_MAX;) {
        const struct tensor *t = &u->tensors[j];
        int own = u->kind == UNIT_BLOCK ? order_rank(t->module) : 0;
        size_t at = n++;
        for (; at > 0 && ranks[at - 1] < own; at--) {
            ranks[at] = ranks[at - 1];
            out[at] = out[at - 1];
        }
        ranks[at] = own;
        out[at] = t;
    }
    return n;
}

// Gradients become ready in that order, the last unit first.
static uint64_t fill_backward(struct filler *f, const struct model *m, const struct recipe *r,
                              double element) {
    const struct tensor *order[VOLUME_UNIT_TENSORS_MAX];
    for (size_t i = m->unit_count; i-- > 0;) {
        size_t n = volume_backward_order(&m->units[i], order);
        for (uint64_t k = 0; k < recipe_stage_units(r, m, &m->units[i]); k++)
            for (size_t j = 0; j < n; j++)
                for (uint64_t c = 0; c < order[j]->count; c++)
                    fill(f, element * (double)tensor_numel(order[j]));
    }
    return f->closed + (f->held > 0);
}

uint64_t volume_bucket_count(const struct model *m, const struct recipe *r) {
    struct filler f = {.limit = (double)r->reduce_bucket_elements, .before = true};
    return fill_backward(&f, m, r, 1);
}

uint64_t volume_ddp_bucket_count(const struct model *m, const struct recipe *r,
                                 double element_bytes) {
    struct filler f = {.limit = (double)r->ddp_first_bucket_bytes,
                       .next_limit = (double)r->ddp_bucket_bytes};
    return fill_backward(&f, m, r, element_bytes);
}

double volume_units(const struct memory_parts *p) {
    double blocks = 0, largest = 0;
    for (size_t i = 0; i < p->model->unit_count; i++)
        if (p->model->units[i].kind == UNIT_BLOCK) {
            blocks += (double)recipe_stage_units(p->recipe, p->model, &p->model->units[i]);
            largest = fmax(largest, (double)p->model->units[i].parameters);
        }
    if (p->recipe->wrap == WRAP_MODEL)
        return 1;
    if (p->recipe->wrap == WRAP_SIZE && largest > 0)
        blocks = ceil(blocks / fmax(1, floor((double)p->recipe->wrap_parameters / largest)));
    return blocks + (p->sizes.root > 0 ? 1 : 0);
}

// ---- DeepSpeed ----------------------------------------------------------------------------------

// One fp32 scalar a call. FSDP sums inside the shard group, the others over all ranks.
static void norms(struct volume_parts *v, double count) {
    struct volume_entry t = recipe_is_deepspeed(v->memory.recipe) ? world_entry(v) : shard_entry(v);
    t.dtype = DTYPE_FP32;
    t.count = count;
    t.payload_bytes = 4 * count;
    put(v, t, "step", "norm and overflow", COLLECTIVE_ALL_REDUCE);
}

// Calls that one parameter larger than a bucket takes: its slices, cut where partitions end, are
// sent once they exceed the bucket.
static uint64_t slice_calls(double at, double end, double bucket, double partition) {
    uint64_t calls = 0;
    double held = 0;
    while (at < end) {
        double next = fmin(end, (floor(at / partition) + 1) * partition);
        held += next - at;
        at = next;
        if (held > bucket) {
            calls++;
            held = 0;
        }
    }
    return calls + (held > 0);
}

struct large {               // parameters larger than a bucket
    double elements, padded; // padded: each to the shard group
    uint64_t count, calls;
};

static struct large large_parameters(const struct memory_parts *p) {
    const struct model *m = p->model;
    double at = 0, bucket = (double)p->recipe->reduce_bucket_elements;
    struct large sum = {0};
    for (size_t i = 0; i < m->unit_count; i++)
        for (uint64_t k = 0; k < m->units[i].repeat; k++)
            for (size_t j = 0; j < m->units[i].tensor_count; j++)
                for (uint64_t c = 0; c < m->units[i].tensors[j].count; c++) {
                    double n = (double)tensor_numel(&m->units[i].tensors[j]);
                    if (n > bucket) {
                        sum.elements += n;
                        sum.padded += ceil(n / p->sizes.shard_degree) * p->sizes.shard_degree;
                        sum.count++;
                        sum.calls += slice_calls(at, at + n, bucket, p->sizes.owned);
                    }
                    at += n;
                }
    return sum;
}

// Stages 1 and 2 all-reduce their buckets by default; nothing is reduce-scattered.
static void stage12(struct volume_parts *v) {
    const struct memory_parts *p = &v->memory;
    const struct recipe *r = p->recipe;
    double times = r->strategy == STRATEGY_ZERO2 ? v->accumulate : 1;
    double buckets = (double)volume_bucket_count(p->model, r);
    struct volume_entry t = world_entry(v);
    t.dtype = r->reduce_dtype;
    t.payload_bytes = times * p->reduce_bytes * p->sizes.trainable;
    t.count = times * buckets;
    bool owners = r->reduce_scatter && !r->multi_rank_bucket;
    if (!owners && r->lora_rank == 0 && !memory_bf16_optimizer(r)) {
        struct large large = large_parameters(p);
        t.count += times * (double)(large.calls - large.count);
    }
    if (owners) // one reduce per owner that a bucket touches
        t.count = times * (buckets + (double)r->world - 1);
    add(v, t, "backward", "gradients", owners ? COLLECTIVE_REDUCE : COLLECTIVE_ALL_REDUCE);
    if (!memory_bf16_optimizer(r)) // it keeps whole gradients: every rank knows their norm
        norms(v, (r->clip > 0 ? 1 : 0) + (r->param_dtype != DTYPE_FP32 ? 1 : 0));
    t = world_entry(v);
    t.dtype = r->param_dtype;
    t.payload_bytes = p->parameter_bytes * p->sizes.flat;
    add(v, t, "step", "updated parameters", COLLECTIVE_ALL_GATHER);
}

bool volume_quantises(const struct tensor *t, uint64_t world) {
    return t->cols > 1 && tensor_numel(t) % (2 * world) == 0;
}

double volume_quantised_groups(const struct tensor *t, uint64_t world) {
    return fmax(fmax((double)t->rows, (double)t->cols), (double)world);
}

double volume_parameter_count(const struct model *m) {
    double sum = 0;
    for (size_t i = 0; i < m->unit_count; i++)
        for (size_t k = 0; k < m->units[i].tensor_count; k++)
            sum += (double)m->units[i].tensors[k].count * (double)m->units[i].repeat;
    return sum;
}

// What the quantised all-to-all takes: tensors, their elements and their scales.
struct quantisable {
    double count, elements, scales;
};

static struct quantisable quantisable(const struct memory_parts *p) {
    struct quantisable q = {0};
    double share = p->sizes.trainable / (double)p->model->parameters;
    for (size_t i = 0; i < p->model->unit_count; i++)
        for (size_t k = 0; k < p->model->units[i].tensor_count; k++) {
            const struct tensor *t = &p->model->units[i].tensors[k];
            if (!volume_quantises(t, p->recipe->world))
                continue;
            double times = (double)t->count * (double)p->model->units[i].repeat;
            q.count += times;
            q.elements += share * times * (double)tensor_numel(t);
            q.scales += times * volume_quantised_groups(t, p->recipe->world);
        }
    return q;
}

// Tensor by tensor, codes and scales, inside the node and then between nodes
// (runtime/comm/coalesced_collectives.py, all_to_all_quant_reduce). Returns what it took.
static struct quantisable quantised_gradients(struct volume_parts *v) {
    const struct memory_parts *p = &v->memory;
    struct quantisable q = quantisable(p);
    const double scale_bytes = 4, calls = v->accumulate * q.count;
    const double codes = v->accumulate * dtype_bytes(DTYPE_INT4) * q.elements;
    const double scales = v->accumulate * scale_bytes * q.scales;
    struct volume_entry t = {.count = calls, .group = GROUP_NODE};
    t.group_size = t.ranks_per_node = v->local_ranks;
    t.dtype = DTYPE_INT4;
    t.payload_bytes = codes;
    add(v, t, "backward", "gradients, 4 bit, inside the node", COLLECTIVE_ALL_TO_ALL);
    t.dtype = DTYPE_FP32;
    t.payload_bytes = scales;
    add(v, t, "backward", "scales of gradients, inside the node", COLLECTIVE_ALL_TO_ALL);
    t.group = GROUP_REPLICA;
    t.group_size = (double)p->recipe->world / v->local_ranks;
    t.ranks_per_node = 1;
    t.dtype = DTYPE_INT4;
    t.payload_bytes = codes / v->local_ranks;
    add(v, t, "backward", "gradients, 4 bit, between nodes", COLLECTIVE_ALL_TO_ALL);
    t.dtype = DTYPE_FP32;
    t.payload_bytes = scales / v->local_ranks;
    add(v, t, "backward", "scales of gradients, between nodes", COLLECTIVE_ALL_TO_ALL);
    return q;
}

static void stage3_gradients(struct volume_parts *v) {
    const struct memory_parts *p = &v->memory;
    const struct recipe *r = p->recipe;
    double nodes = (double)r->world / v->local_ranks;
    double rest = p->sizes.sharded * p->sizes.shard_degree; // every parameter padded to the group
    double buckets = (double)volume_bucket_count(p->model, r);
    if (r->strategy == STRATEGY_ZEROPP && r->quantized_gradients && nodes > 1) {
        struct quantisable q = quantised_gradients(v);
        rest -= q.elements;
        buckets = volume_parameter_count(p->model) - q.count; // one by one, too
    }
    struct volume_entry t = r->strategy == STRATEGY_MICS ? shard_entry(v) : world_entry(v);
    t.dtype = r->reduce_dtype;
    t.count = v->accumulate * buckets;
    if (!r->reduce_scatter) { // parameters larger than a bucket are scattered all the same
        struct large large = large_parameters(p);
        double share = r->lora_rank == 0 ? p->sizes.trainable_fraction : 0;
        struct volume_entry all = t;
        all.count -= v->accumulate * (double)large.count;
        all.payload_bytes =
            v->accumulate * p->reduce_bytes * (p->sizes.trainable - share * large.elements);
        add(v, all, "backward", "gradients", COLLECTIVE_ALL_REDUCE);
        t.count = v->accumulate * (double)large.count;
        rest = share * large.padded;
    }
    t.payload_bytes = v->accumulate * p->reduce_bytes * rest;
    add(v, t, "backward", "gradients", COLLECTIVE_REDUCE_SCATTER);
    if (r->strategy != STRATEGY_MICS)
        return;
    t = replica_entry(v);
    t.dtype = r->grad_accum_dtype;
    t.count = buckets;
    t.payload_bytes = dtype_bytes(r->grad_accum_dtype) * p->sizes.sharded;
    add(v, t, "backward", "gradient shards", COLLECTIVE_ALL_REDUCE);
}

// qwZ sends a byte per element and one fp32 scale per group of about eight thousand.
static double gather_element_bytes(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    if (r->strategy == STRATEGY_ZEROPP && r->quantized_weights)
        return 1 + 4.0 / 8192;
    if (r->base_4bit)
        return p->frozen_bytes;
    return p->gather_bytes;
}

// Persistent parameters, gathered at the step, are not quantised (partition_parameters.py,
// _all_gather).
static void stage3_gather(struct volume_parts *v, const char *phase, double elements, double calls,
                          bool secondary) {
    const struct memory_parts *p = &v->memory;
    const struct recipe *r = p->recipe;
    struct volume_entry t = world_entry(v);
    if (r->strategy == STRATEGY_MICS || secondary)
        t = shard_entry(v);
    bool whole = strcmp(phase, "step") == 0 && !r->base_4bit;
    t.dtype = r->strategy == STRATEGY_ZEROPP && r->quantized_weights && !whole
                  ? DTYPE_INT8
                  : recipe_gather_dtype(r);
    t.count = calls;
    t.payload_bytes = elements * (whole ? p->gather_bytes : gather_element_bytes(p));
    add(v, t, phase, "parameters",
        r->all_reduce_for_fetch ? COLLECTIVE_ALL_REDUCE : COLLECTIVE_ALL_GATHER);
}

// Sub-groups hold whole parameters: one closes once it has sub_group_size elements of this rank.
static double sub_groups(const struct memory_parts *p) {
    const struct model *m = p->model;
    double size = (double)p->recipe->sub_group_elements, held = 0, closed = 0;
    if (size <= 0 || p->sizes.owned <= size)
        return 1;
    if (p->recipe->lora_rank > 0)
        return ceil(p->sizes.owned / size);
    for (size_t i = 0; i < m->unit_count; i++)
        for (uint64_t k = 0; k < m->units[i].repeat; k++)
            for (size_t j = 0; j < m->units[i].tensor_count; j++)
                for (uint64_t c = 0; c < m->units[i].tensors[j].count; c++) {
                    held +=
                        ceil((double)tensor_numel(&m->units[i].tensors[j]) / p->sizes.shard_degree);
                    if (held >= size) {
                        closed++;
                        held = 0;
                    }
                }
    return closed + (held > 0);
}

static void stage3(struct volume_parts *v) {
    const struct memory_parts *p = &v->memory;
    const struct recipe *r = p->recipe;
    const struct zero3_traffic *z = &p->zero3;
    double split = 1 / ((double)(r->tp ? r->tp : 1) * (double)(r->pp ? r->pp : 1)),
           g = v->accumulate;
    struct zero3_adapters adapters = zero3_adapters(p->model, r, z);
    struct zero3_padding more = zero3_padding(z, (uint64_t)p->sizes.shard_degree);
    double with = 1 + adapters.per_element;
    double forward = split * ((double)z->forward_elements * with + more.forward);
    double backward = split * ((double)z->backward_elements * with + more.backward);
    double calls = (double)z->forward_calls, back_calls = (double)(z->calls - z->forward_calls);
    bool hpz = r->strategy == STRATEGY_ZEROPP && r->hpz;
    if (hpz) { // one global gather after a step; everything later inside the secondary group
        stage3_gather(v, "forward", forward, calls, false);
        stage3_gather(v, "forward", (g - 1) * forward, (g - 1) * calls, true);
    } else {
        stage3_gather(v, "forward", g * forward, g * calls, false);
    }
    stage3_gather(v, "backward", g * backward, g * back_calls, hpz);
    stage3_gradients(v);
    norms(v, (r->clip > 0 ? sub_groups(p) : 0) + (r->param_dtype == DTYPE_FP16 ? 1 : 0));
    stage3_gather(
        v, "step",
        split * ((double)z->persistent_elements + adapters.persistent_elements + more.persistent),
        (double)z->persistent_parameters + adapters.persistent_parameters, false);
}

void volume_deepspeed(struct volume_parts *v) {
    if (recipe_is_stage3(v->memory.recipe))
        stage3(v);
    else
        stage12(v);
}

// ---- torch --------------------------------------------------------------------------------------

static void data_parallel(struct volume_parts *v) {
    const struct memory_parts *p = &v->memory;
    const struct recipe *r = p->recipe;
    struct volume_entry t = world_entry(v);
    bool megatron = memory_is_megatron(r), noshard = r->strategy == STRATEGY_FSDP1_NOSHARD;
    t.dtype = megatron && !r->reduce_dtype_given ? DTYPE_FP32 : r->reduce_dtype;
    double element = dtype_bytes(t.dtype);
    t.payload_bytes = v->syncs * element * p->sizes.trainable;
    t.count = v->syncs *
              (noshard ? volume_units(p) : (double)volume_ddp_bucket_count(p->model, r, element));
    if (megatron && r->strategy != STRATEGY_DDP) { // the distributed optimizer
        add(v, t, "backward", "gradients", COLLECTIVE_REDUCE_SCATTER);
        t.dtype = r->param_dtype;
        t.payload_bytes = p->parameter_bytes * p->sizes.flat;
        add(v, t, "step", "updated parameters", COLLECTIVE_ALL_GATHER);
        return;
    }
    add(v, t, "backward", "gradients", COLLECTIVE_ALL_REDUCE);
}

static bool gathers_once(const struct recipe *r) {
    return r->strategy == STRATEGY_FSDP1_GRAD_OP || r->strategy == STRATEGY_FSDP1_HYBRID_ZERO2 ||
           r->strategy == STRATEGY_FSDP2_NORESHARD;
}

static double mixtures(const struct memory_parts *p) {
    double sum = 0;
    for (size_t i = 0; i < p->model->unit_count; i++)
        if (p->model->units[i].moe)
            sum += (double)p->model->units[i].repeat;
    return sum;
}

// FSDP2 shards a mixture's experts over the ranks that hold the same ones, in calls of their own:
// `each` bytes per element of the padded shards, `times` over.
static void add_experts(struct volume_parts *v, struct volume_entry t, double times, double each) {
    const struct memory_parts *p = &v->memory;
    double ep = (double)p->recipe->ep, ranks = p->sizes.shard_degree / ep;
    if (ep <= 1 || ranks <= 1)
        return;
    t.group = GROUP_REPLICA;
    t.group_size = ranks;
    t.ranks_per_node = fmax(1, fmin(ranks, floor(v->local_ranks / ep)));
    t.count = times * mixtures(p);
    t.payload_bytes = times * each * ranks * p->sizes.expert_sharded;
    volume_add(v, &t);
}

// Bytes of one pass of gathers: the padded shards of every rank.
static double pass_bytes(const struct memory_parts *p) {
    const struct memory_sizes *s = &p->sizes;
    double frozen = p->recipe->base_4bit ? p->frozen_bytes : p->gather_bytes;
    return s->shard_degree *
           (p->gather_bytes * (s->sharded - s->expert_sharded) + frozen * s->sharded_frozen);
}

// Share of a pass that stays gathered from forward to backward: the root, which may be the whole
// model. Adapters lie in the blocks.
double volume_root_share(const struct memory_parts *p, double trained_bytes, double frozen_bytes) {
    const struct memory_sizes *s = &p->sizes;
    if (p->recipe->reshard_root)
        return 0;
    if (p->recipe->wrap == WRAP_MODEL)
        return 1;
    double trained = s->sharded - s->expert_sharded;
    if (p->recipe->lora_rank == 0)
        return s->root_shard / (trained + s->sharded_frozen);
    return frozen_bytes * s->root_shard /
           (trained_bytes * trained + frozen_bytes * s->sharded_frozen);
}

static void fsdp_gathers(struct volume_parts *v) {
    const struct memory_parts *p = &v->memory;
    const struct recipe *r = p->recipe;
    bool held =
        gathers_once(r) && r->no_sync && recipe_is_fsdp1(r); // unsharded between micro-steps
    double passes = held ? 1 : v->accumulate, units = volume_units(p);
    struct volume_entry t = shard_entry(v);
    t.dtype = recipe_gather_dtype(r);
    t.count = passes * units;
    t.payload_bytes = passes * pass_bytes(p);
    add(v, t, "forward", "parameters", COLLECTIVE_ALL_GATHER);
    struct volume_entry x = {.phase = "forward",
                             .what = "parameters of experts",
                             .collective = COLLECTIVE_ALL_GATHER,
                             .dtype = t.dtype};
    add_experts(v, x, passes, p->gather_bytes);
    if (gathers_once(r))
        return;
    x.phase = "backward";
    add_experts(v, x, passes, p->gather_bytes);
    double root =
        volume_root_share(p, p->gather_bytes, r->base_4bit ? p->frozen_bytes : p->gather_bytes);
    if (r->strategy == STRATEGY_FSDP2_RESHARD) {
        t.group = GROUP_SHARD;
        t.group_size = (double)r->reshard_group;
        t.ranks_per_node = fmin(t.group_size, v->local_ranks);
    }
    t.count = passes * (root > 0 ? units - 1 : units);
    t.payload_bytes *= 1 - root;
    add(v, t, "backward", "parameters", COLLECTIVE_ALL_GATHER);
}

static void fsdp_gradients(struct volume_parts *v) {
    const struct memory_parts *p = &v->memory;
    const struct recipe *r = p->recipe;
    struct volume_entry t = shard_entry(v);
    t.dtype = r->reduce_dtype;
    t.count = v->syncs * volume_units(p);
    t.payload_bytes = v->syncs * p->reduce_bytes * p->sizes.shard_degree *
                      (p->sizes.sharded - p->sizes.expert_sharded);
    add(v, t, "backward", "gradients", COLLECTIVE_REDUCE_SCATTER);
    add_experts(v,
                (struct volume_entry){.phase = "backward",
                                      .what = "gradients of experts",
                                      .collective = COLLECTIVE_REDUCE_SCATTER,
                                      .dtype = t.dtype},
                v->syncs, p->reduce_bytes);
    if (r->replica_group > 1) {
        double count = t.count + (r->ep > 1 ? v->syncs * mixtures(p) : 0);
        t = replica_entry(v);
        t.dtype = r->reduce_dtype;
        t.count = count;
        t.payload_bytes = v->syncs * p->reduce_bytes * p->sizes.sharded;
        add(v, t, "backward", "gradient shards", COLLECTIVE_ALL_REDUCE);
    }
    if (r->clip > 0)
        norms(v, r->ep > 1 ? 2 : 1); // torchtitan sums the experts' apart
}

void volume_torch(struct volume_parts *v) {
    if (!recipe_gathers(v->memory.recipe)) {
        data_parallel(v);
        return;
    }
    fsdp_gathers(v);
    fsdp_gradients(v);
}

void volume_muon(struct volume_parts *v) {
    const struct recipe *r = v->memory.recipe;
    const struct model *m = v->memory.model;
    if (!optimizer_muon_gathers(r))
        return;
    struct volume_entry t = shard_entry(v);
    t.count = 0;
    for (size_t i = 0; i < m->unit_count; i++)
        if (m->units[i].kind == UNIT_BLOCK)
            t.count += (double)units_ceil_div(m->units[i].repeat, r->pp);
    double elements = optimizer_muon_elements(m, r);
    t.dtype = optimizer_muon_shares(r) ? r->state_dtype : DTYPE_BF16;
    t.payload_bytes = dtype_bytes(t.dtype) * elements;
    add(v, t, "step", "matrices for Muon", COLLECTIVE_ALL_GATHER);
    if (!optimizer_muon_shares(r))
        return;
    t.dtype = r->grad_dtype;
    t.payload_bytes = dtype_bytes(t.dtype) * elements;
    add(v, t, "step", "Muon's updates", COLLECTIVE_ALL_GATHER);
}
