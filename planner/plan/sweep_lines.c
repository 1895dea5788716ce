// SPDX-License-Identifier: Apache-2.0
// Follows step_fsdp1.c, step_fsdp2.c, step_ddp.c and step_zero3.c: the same kernels, collectives
// and copies, added up instead of simulated.
#include "plan/sweep_lines.h"

#include "base/units.h"
#include "cost/memory_parts.h"

#include <math.h>

struct tally {
    struct step_builder *b;
    const struct sweep_coordinator *z;
    struct sweep_lines *out;
};

struct ranks { // of a collective
    enum collective collective;
    uint64_t size, stride;
};

static double kernel_s(const struct tally *t, double bytes) {
    return compute_memory_bound_s(&t->b->cluster->gpu, t->b->recipe->stack, bytes);
}

static double down_s(const struct tally *t, double bytes) {
    return bytes / t->b->rates.d2h_bytes_per_s;
}

static double up_s(const struct tally *t, double bytes) {
    return bytes / t->b->rates.h2d_bytes_per_s;
}

static double collective_s(const struct tally *t, const struct ranks *g, double payload_bytes) {
    const struct step_collective c = {.collective = g->collective,
                                      .size = g->size,
                                      .stride = g->stride,
                                      .payload_bytes = payload_bytes};
    if (g->size < 2 || payload_bytes <= 0)
        return 0;
    return step_estimate(t->b, &c)->seconds;
}

// `total` bytes in messages of at most `most`: at the best rate of any such size.
static double messages_s(const struct tally *t, const struct ranks *g, double total, double most) {
    double best = INFINITY;
    if (g->size < 2 || total <= 0 || most <= 0)
        return 0;
    for (int i = 0; i < 8; i++, most /= 2)
        best = fmin(best, collective_s(t, g, most) / most);
    return total * best;
}

// Multiprocessors that this collective holds for so long.
static double held_s(const struct tally *t, const struct ranks *g, double seconds) {
    double share = compute_overlap_loss(&t->b->cluster->gpu, t->b->recipe->stack);
    bool spans = step_collective_spans(t->b, g->size, g->stride);
    return (spans ? step_network_channels : 1) * share * seconds;
}

static struct ranks shard_group(const struct step_builder *b, enum collective c) {
    return (struct ranks){c, b->shard, b->recipe->tp};
}

static struct ranks replica_group(const struct step_builder *b) {
    return (struct ranks){COLLECTIVE_ALL_REDUCE, b->replicas, b->shard * b->recipe->tp};
}

static void add_link(const struct tally *t, struct sweep_micro *m, const struct ranks *g,
                     double seconds) {
    m->link_s += seconds;
    m->sm_s += held_s(t, g, seconds);
}

// ---- FSDP ---------------------------------------------------------------------------------------

static bool gathered_again(const struct step_builder *b, const struct step_group *g) {
    switch (b->recipe->strategy) {
    case STRATEGY_FSDP2_NORESHARD:
    case STRATEGY_FSDP1_GRAD_OP:
    case STRATEGY_FSDP1_HYBRID_ZERO2:
        return false;
    default:
        return !g->root || b->recipe->reshard_root;
    }
}

// Without synchronisation FSDP1 keeps over all micro-steps what it does not free after forward.
static bool stays_gathered(const struct step_builder *b, const struct step_group *g) {
    return b->recipe->no_sync && recipe_is_fsdp1(b->recipe) && !gathered_again(b, g);
}

// Shards brought up and cast, before a group's gather.
static double shard_s(const struct tally *t, const struct step_group *g) {
    const struct step_builder *b = t->b;
    double ranks = (double)b->shard, s = 0;
    if (b->recipe->offload_param == OFFLOAD_CPU)
        s += up_s(t, g->stored_bytes / ranks);
    if (recipe_is_fsdp2(b->recipe) || b->sizes.param != b->sizes.gather)
        s += kernel_s(t, (g->stored_bytes + g->gather_bytes) / ranks);
    return s;
}

static double copy_out_s(const struct tally *t, const struct step_group *g) {
    return recipe_is_fsdp2(t->b->recipe) ? kernel_s(t, 2 * g->gather_bytes) : 0;
}

static void add_gathers(const struct tally *t, struct sweep_micro *m) {
    struct step_builder *b = t->b;
    struct ranks all = shard_group(b, COLLECTIVE_ALL_GATHER), again = all;
    if (b->recipe->strategy == STRATEGY_FSDP2_RESHARD)
        again.size = b->recipe->reshard_group;
    for (uint32_t i = 0; i < b->group_count; i++) {
        const struct step_group *g = &b->groups[i];
        double bytes = g->gather_bytes;
        if (g->elements <= 0 || (!g->root && stays_gathered(b, g)))
            continue;
        add_link(t, m, &all, collective_s(t, &all, bytes));
        m->inline_s += copy_out_s(t, g);
        m->gathers_s += shard_s(t, g);
        if (!gathered_again(b, g))
            continue;
        const struct ranks *ranks = g->root ? &all : &again; // the root is whole or sharded
        add_link(t, m, ranks, collective_s(t, ranks, bytes));
        m->inline_s += copy_out_s(t, g);
    }
    const struct step_group *root = &b->groups[0], *next = &b->groups[b->group_count > 1];
    double root_s = collective_s(t, &all, root->gather_bytes);
    m->first_s = shard_s(t, root) + root_s;
    if (next != root && !stays_gathered(b, next))
        m->ahead_s = collective_s(t, &all, next->gather_bytes) - copy_out_s(t, root);
}

struct reduction { // of one group: until the collective's end, and until all of it is done
    double sent_s, all_s;
};

static struct reduction add_reduction(const struct tally *t, struct sweep_micro *m,
                                      const struct step_group *g) {
    struct step_builder *b = t->b;
    const struct step_sizes *s = &b->sizes;
    struct ranks scatter = shard_group(b, COLLECTIVE_REDUCE_SCATTER), copies = replica_group(b);
    bool fsdp1 = recipe_is_fsdp1(b->recipe), whole = b->recipe->strategy == STRATEGY_FSDP1_NOSHARD;
    double bytes = g->trainable * s->reduce, own = g->trainable / (double)b->shard;
    if (whole)
        scatter = (struct ranks){COLLECTIVE_ALL_REDUCE, b->replicas, b->recipe->tp};
    double reduce_s = collective_s(t, &scatter, bytes), cast_s = 0, after_s = 0;
    add_link(t, m, &scatter, reduce_s);
    if (!whole && b->replicas > 1) {
        after_s = collective_s(t, &copies, bytes / (double)b->shard);
        m->sm_s += held_s(t, &copies, after_s);
    }
    if (fsdp1) {
        double casts = s->gather != s->reduce ? s->gather + s->reduce : 0;
        cast_s = kernel_s(t, g->trainable * (casts + 2 * s->reduce));
        after_s += kernel_s(t, own * (s->reduce + s->param));
    } else {
        m->inline_s += kernel_s(t, g->trainable * (s->gather + s->reduce));
    }
    if (b->recipe->offload_param == OFFLOAD_CPU)
        after_s += down_s(t, own * s->param);
    struct reduction r = {.sent_s = cast_s + reduce_s, .all_s = cast_s + reduce_s + after_s};
    if (fsdp1)
        m->reductions_s += r.all_s;
    return r;
}

static double accumulate_s(const struct tally *t, const struct step_group *g) {
    const struct step_sizes *s = &t->b->sizes;
    double kept = s->reduce != s->gather ? s->reduce : s->gather;
    return kernel_s(t, g->trainable *
                           (recipe_is_fsdp2(t->b->recipe) ? s->gather + 2 * kept : 3 * s->gather));
}

static void add_fsdp(const struct tally *t) {
    const struct step_builder *b = t->b;
    struct sweep_micro m = {0};
    struct sweep_lines *out = t->out;
    struct reduction last = {0};
    if (b->recipe->strategy != STRATEGY_FSDP1_NOSHARD)
        add_gathers(t, &m);
    m.turn_s = m.first_s;
    out->plain = out->boundary = m;
    for (uint32_t i = b->group_count; i-- > 0;) {
        const struct step_group *g = &b->groups[i];
        if (g->trainable <= 0)
            continue;
        last = add_reduction(t, &out->boundary, g);
        if (i != 0) // only the root's has nothing behind it
            last = (struct reduction){0};
        if (b->recipe->no_sync)
            out->plain.inline_s += accumulate_s(t, g);
    }
    out->boundary.last_s = last.all_s;
    if (b->recipe->no_sync)
        return;
    // The next gather queues behind the last reduction; its shards come up beside that.
    double shard = m.first_s > 0 ? shard_s(t, &b->groups[0]) : 0;
    out->boundary.turn_s = fmax(last.all_s, m.first_s - shard + fmax(shard, last.sent_s));
    out->plain = out->boundary;
}

// ---- DDP ----------------------------------------------------------------------------------------

static double largest_tensor(const struct step_builder *b) {
    double largest = 0;
    for (uint32_t i = 0; i < b->class_count; i++)
        for (size_t k = 0; k < b->classes[i].unit->tensor_count; k++)
            largest = fmax(largest, (double)tensor_numel(&b->classes[i].unit->tensors[k]));
    return largest / (double)b->recipe->tp;
}

static double unit_kernels_s(const struct tally *t, double passes, double bytes) {
    const struct step_builder *b = t->b;
    double sum = 0;
    for (uint32_t i = 0; i < b->unit_count; i++)
        sum += kernel_s(t, passes * bytes * b->classes[b->units[i].class].trainable);
    return sum;
}

static void add_ddp(const struct tally *t) {
    const struct step_builder *b = t->b;
    const struct recipe *r = b->recipe;
    struct sweep_lines *out = t->out;
    bool megatron = memory_is_megatron(r), scatter = megatron && r->strategy == STRATEGY_ZERO1;
    struct ranks world = {scatter ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_REDUCE, r->world,
                          r->tp};
    double bytes = megatron && !r->reduce_dtype_given ? dtype_bytes(DTYPE_FP32) : b->sizes.reduce;
    const double megatron_elements = 40 * UNITS_MEGA;
    double cap = megatron ? megatron_elements * bytes
                          : fmax((double)r->ddp_bucket_bytes, (double)r->ddp_first_bucket_bytes);
    if (!megatron)
        out->plain.inline_s = unit_kernels_s(t, 2, bytes);
    out->boundary = out->plain;
    double seconds = messages_s(t, &world, b->trainable * bytes, cap + largest_tensor(b) * bytes);
    add_link(t, &out->boundary, &world, seconds);
    out->boundary.reductions_s = seconds;
    if (!r->gradient_as_bucket_view && !megatron)
        out->boundary.last_s = kernel_s(t, 2 * b->trainable * bytes);
    out->boundary.turn_s = out->boundary.last_s;
    if (!r->no_sync && !megatron)
        out->plain = out->boundary;
}

// ---- ZeRO-1 and 2 -------------------------------------------------------------------------------

// Buckets fill in the order of backward and are flushed when the next parameter would not fit.
struct buckets {
    const struct tally *t;
    struct sweep_micro *m;
    double (*flush)(const struct tally *t, struct sweep_micro *m, double elements);
    double all_s, first_unit_s; // all of them; those behind the first unit's backward
    double filled;
};

static void flush_bucket(struct buckets *k, uint32_t unit) {
    double seconds = k->filled > 0 ? k->flush(k->t, k->m, k->filled) : 0;
    k->all_s += seconds;
    k->first_unit_s += unit == 0 ? seconds : 0;
    k->filled = 0;
}

// Stage 3 takes a unit's parameters as registered, stages 1 and 2 as autograd reaches them.
static size_t bucket_order(const struct step_builder *b, const struct model_unit *u,
                           const struct tensor **out) {
    size_t count = 0;
    if (!recipe_is_stage3(b->recipe))
        return volume_backward_order(u, out);
    for (size_t i = u->tensor_count; i-- > 0 && count < VOLUME_UNIT_TENSORS_MAX;)
        out[count++] = &u->tensors[i];
    return count;
}

static void fill_buckets(struct buckets *k) {
    const struct step_builder *b = k->t->b;
    double limit = (double)b->recipe->reduce_bucket_elements;
    for (uint32_t i = b->unit_count; i-- > 0;) {
        const struct step_unit_class *c = &b->classes[b->units[i].class];
        const struct tensor *order[VOLUME_UNIT_TENSORS_MAX];
        size_t count = c->trainable > 0 ? bucket_order(b, c->unit, order) : 0;
        for (size_t n = 0; n < count; n++) {
            double numel =
                (double)tensor_numel(order[n]) / (double)b->recipe->tp * c->trainable / c->elements;
            for (uint64_t copy = 0; copy < order[n]->count; copy++) {
                if (k->filled + numel > limit)
                    flush_bucket(k, i);
                k->filled += numel;
            }
        }
    }
    flush_bucket(k, 0);
}

// Divide, reduce, copy out what is owned.
static double flush_zero12(const struct tally *t, struct sweep_micro *m, double elements) {
    struct step_builder *b = t->b;
    const struct recipe *r = b->recipe;
    bool owners = r->reduce_scatter && !r->multi_rank_bucket;
    struct ranks world = {owners ? COLLECTIVE_REDUCE : COLLECTIVE_ALL_REDUCE, r->world, r->tp};
    double bytes = elements * b->sizes.reduce, reduce_s = collective_s(t, &world, bytes);
    add_link(t, m, &world, reduce_s);
    return kernel_s(t, 2 * bytes) + reduce_s + kernel_s(t, 2 * bytes / (double)b->shard);
}

static void add_zero12(const struct tally *t) {
    struct step_builder *b = t->b;
    const struct recipe *r = b->recipe;
    struct sweep_lines *out = t->out;
    const double fp32_bytes = 4;
    bool stage2 = r->strategy == STRATEGY_ZERO2, offloads = r->offload_optimizer != OFFLOAD_NONE;
    double own = b->trainable / (double)b->shard;
    struct sweep_micro m = {.inline_s = unit_kernels_s(t, 2, b->sizes.grad)};
    struct buckets k = {.t = t, .m = &m, .flush = flush_zero12};
    fill_buckets(&k);
    *(recipe_overlaps(r) ? &m.reductions_s : &m.inline_s) += k.all_s;
    m.last_s = m.turn_s = recipe_overlaps(r) ? k.first_unit_s : 0; // the host synchronizes
    out->boundary = m;
    if (stage2)
        out->plain = m;
    else
        out->between_s = unit_kernels_s(t, 3, b->sizes.grad);
    if (!offloads)
        return;
    double down = down_s(t, own * fp32_bytes);
    *(recipe_overlaps(r) ? &out->boundary.reductions_s : &out->boundary.inline_s) += down;
}

// ---- ZeRO-3 -------------------------------------------------------------------------------------

static double payload_bytes(const struct step_builder *b) {
    const double quantized = 1 + 4.0 / 8192;
    return b->recipe->quantized_weights ? quantized : b->sizes.gather;
}

static struct ranks gather_group(const struct step_builder *b) {
    const struct recipe *r = b->recipe;
    return (struct ranks){r->all_reduce_for_fetch ? COLLECTIVE_ALL_REDUCE : COLLECTIVE_ALL_GATHER,
                          b->shard, r->tp};
}

// hpZ gathers over all ranks once per step, else inside its group: the faster of the two.
static double gathers_s(const struct tally *t, double elements, double most, bool *inside) {
    const struct step_builder *b = t->b;
    struct ranks all = gather_group(b), near = all;
    double bytes = payload_bytes(b) / (double)b->recipe->tp;
    double seconds = messages_s(t, &all, elements * bytes, most * bytes);
    *inside = false;
    if (b->recipe->strategy != STRATEGY_ZEROPP || !b->recipe->hpz)
        return seconds;
    near.size = b->recipe->shard_group;
    double near_s = messages_s(t, &near, elements * bytes, most * bytes);
    *inside = near_s < seconds;
    return fmin(seconds, near_s);
}

// Around gathers of so many elements: packing and unpacking, shards from host and drives.
struct packing {
    double kernels_s, up_s, read_s;
};

static struct packing packing_of(const struct tally *t, double elements) {
    const struct step_builder *b = t->b;
    const struct recipe *r = b->recipe;
    uint64_t size = b->shard;
    if (r->strategy == STRATEGY_ZEROPP && r->hpz && r->shard_group > size)
        size = r->shard_group;
    double bytes = elements / (double)r->tp * b->sizes.gather, own = bytes / (double)size;
    struct packing p = {.kernels_s = kernel_s(t, 2 * own) + kernel_s(t, 2 * bytes)};
    double stored = elements / (double)r->tp * b->sizes.param / (double)size;
    if (r->offload_param == OFFLOAD_NVME)
        p.read_s = step_nvme_share(b) * stored / b->rates.nvme_read_bytes_per_s;
    if (r->offload_param != OFFLOAD_NONE)
        p.up_s = up_s(t, stored);
    return p;
}

static void add_zero3_gathers(const struct tally *t, struct sweep_micro *m) {
    const struct step_builder *b = t->b;
    const struct zero3_traffic *z = &t->z->traffic;
    double elements = (double)(z->forward_elements + z->backward_elements);
    double largest = (double)t->z->largest_elements, first = (double)t->z->first_elements;
    struct ranks all = gather_group(b);
    bool inside;
    double seconds = gathers_s(t, elements, largest, &inside);
    if (inside)
        all.size = b->recipe->shard_group;
    add_link(t, m, &all, seconds);
    struct packing p = packing_of(t, elements), one = packing_of(t, first);
    m->gathers_s = fmax(p.kernels_s, p.read_s) + p.up_s; // the host waits for what comes up
    m->first_s = one.kernels_s + one.up_s + one.read_s + gathers_s(t, first, first, &inside);
    if (!recipe_overlaps(b->recipe))
        m->inline_s += p.kernels_s + p.up_s;
}

// Concatenate and divide, reduce, take what is owned.
static double flush_zero3(const struct tally *t, struct sweep_micro *m, double elements) {
    struct step_builder *b = t->b;
    const struct recipe *r = b->recipe;
    struct ranks g =
        shard_group(b, r->reduce_scatter ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_REDUCE);
    double bytes = elements * b->sizes.reduce, own = elements / (double)b->shard, reduce_s = 0;
    // ZeRO++ across nodes: all-to-alls over two other groups.
    if (!r->quantized_gradients || r->world <= b->ranks_per_node)
        reduce_s = collective_s(t, &g, bytes);
    add_link(t, m, &g, reduce_s);
    double copies_s = 0;
    if (r->offload_optimizer != OFFLOAD_NONE)
        copies_s = down_s(t, own * b->sizes.grad) + up_s(t, own * b->sizes.grad);
    return kernel_s(t, 4 * bytes) + reduce_s + kernel_s(t, 2 * own * b->sizes.grad) + copies_s;
}

static void add_zero3(const struct tally *t) {
    struct step_builder *b = t->b;
    const struct recipe *r = b->recipe;
    struct sweep_lines *out = t->out;
    const double fp32_bytes = 4;
    struct sweep_micro m = {0};
    add_zero3_gathers(t, &m);
    struct buckets k = {.t = t, .m = &m, .flush = flush_zero3};
    fill_buckets(&k);
    double seconds = unit_kernels_s(t, 2, b->sizes.reduce) + k.all_s;
    double first = b->classes[b->units[0].class].trainable;
    if (recipe_overlaps(r)) {
        m.reductions_s = seconds;
        m.last_s = k.first_unit_s + kernel_s(t, 2 * first * b->sizes.reduce);
    } else {
        m.inline_s += seconds;
    }
    m.turn_s = m.first_s + m.last_s; // the host synchronizes
    out->plain = out->boundary = m;
    if (r->offload_optimizer != OFFLOAD_NONE)
        *(recipe_overlaps(r) ? &out->boundary.reductions_s : &out->boundary.inline_s) +=
            down_s(t, b->trainable / (double)b->shard * fp32_bytes);
}

void sweep_lines_fill(struct step_builder *b, const struct sweep_coordinator *z,
                      struct sweep_lines *out) {
    const struct recipe *r = b->recipe;
    struct tally t = {.b = b, .z = z, .out = out};
    double share = compute_overlap_loss(&b->cluster->gpu, r->stack);
    *out = (struct sweep_lines){.idle_share = fmax(1 - (b->replicas > 1 ? 2 : 1) * share, 0)};
    if (recipe_is_stage3(r))
        add_zero3(&t);
    else if (recipe_is_fsdp1(r) || recipe_is_fsdp2(r))
        add_fsdp(&t);
    else if (recipe_is_deepspeed(r) && !memory_is_megatron(r))
        add_zero12(&t);
    else
        add_ddp(&t);
}

// Its own graph, run alone. What the host needs to issue it may have been done before.
double sweep_lines_optimizer_s(struct step_builder *b, const struct sweep_coordinator *z) {
    struct sim_result run;
    struct err ignored = {0};
    double host_s = compute_step_host_s(b->cluster, b->recipe);
    if (step_adam_in_backward(b->recipe)) // waits for backward's own tasks
        return host_s;
    b->persistent = z ? (double)z->traffic.persistent_elements : 0;
    step_build_optimizer(b);
    step_host(b, OP_STEP_HOST, host_s, 0, b->last[STREAM_COMPUTE]);
    sim_resource(b->sim, RESOURCE_CORES, 1);
    sim_resource(b->sim, RESOURCE_NVME, 1);
    if (!sim_run(b->sim, NULL, b->arena, &run, &ignored))
        return host_s;
    return fmax(run.end_s - run.host_busy_s, host_s);
}
