// SPDX-License-Identifier: Apache-2.0
// Backward under FSDP, block by block: docs/method.md §memory "FSDP backward".
#include "cost/memory_parts.h"

#include <math.h>

struct walk {
    const struct memory_parts *p;
    const struct memory_backward *in;
    double blocks;                 // wrapped blocks
    double unit, gathered, reduce; // bytes: a block's gradients, its parameters, its reduce input
    double first;                  // gradient of the MLP's last weight, the first to appear
};

static bool unsharded_throughout(const struct recipe *r) {
    return r->strategy == STRATEGY_FSDP2_NORESHARD || r->strategy == STRATEGY_FSDP1_GRAD_OP ||
           r->strategy == STRATEGY_FSDP1_HYBRID_ZERO2;
}

static double gather_at(const struct walk *w, double done) {
    const struct memory_parts *p = w->p;
    const struct recipe *r = p->recipe;
    double left = w->blocks - done, root = memory_gathered_bytes(p) * p->sizes.root;
    if (unsharded_throughout(r))
        return root + left * w->gathered;
    double kept = 0;
    if (r->strategy == STRATEGY_FSDP2_RESHARD && r->reshard_group > 0)
        kept = fmax(0, left - 1) * w->gathered / (double)r->reshard_group; // its own is gone
    bool prefetches = recipe_is_fsdp2(r) || r->backward_prefetch != PREFETCH_BACKWARD_NONE;
    double ahead = left > 1 && prefetches ? w->gathered : 0;
    return root + w->gathered + ahead + kept;
}

// Before the block's own gradients: the reduce input of the block before it, and what waits for the
// root's post-backward. HSDP keeps every reduce output until the end.
static double bucket_at(const struct walk *w, double done) {
    const struct memory_parts *p = w->p;
    const struct recipe *r = p->recipe;
    double head = p->sizes.head > 0 ? p->sizes.head : p->sizes.table;
    double waiting = r->embedding_group ? 0 : p->sizes.trainable_fraction * head * p->gather_bytes;
    bool stands = done > 0 && !recipe_is_fsdp1(r); // FSDP1 drops it within its own hook
    double reducing = stands ? w->reduce : 0;
    if (r->replica_group > 1 && recipe_is_fsdp2(r) && p->reduce_bytes != p->parameter_bytes)
        reducing += done * p->reduce_bytes * p->sizes.block_reduced * p->sizes.trainable_fraction;
    return waiting + reducing;
}

static struct memory_moment block_start(const struct walk *w, double done) {
    struct memory_moment t = {.gather = gather_at(w, done) + w->in->dequantised,
                              .bucket = bucket_at(w, done) + w->first};
    const struct memory_parts *p = w->p;
    double left = (w->blocks - done) / w->blocks;
    double trained = p->sizes.block_reduced * p->sizes.trainable_fraction;
    double reduced = p->parameter_bytes * trained * done;
    t.grads = fmax(w->in->gradients_before, fmin(reduced, p->states[MEMORY_GRADS]));
    t.activations = w->in->kept * left + w->in->working;
    t.side = (recipe_is_fsdp1(p->recipe) ? t.gather : (left * w->blocks > 1 ? w->gathered : 0)) +
             t.grads;
    t.gather += w->in->casts * left;
    return t;
}

// FSDP1's hook: the flat gradient, its cast and the output at once.
static double fsdp1_reduction(const struct memory_parts *p, double elements) {
    double cast = p->reduce_bytes == p->gather_bytes ? 0 : p->reduce_bytes;
    double shards = p->sizes.shard_degree;
    return elements * (p->gather_bytes + cast + (shards > 1 ? p->reduce_bytes / shards : 0));
}

// After it: its activations are gone, all its gradients are there. FSDP1 joins them into a flat
// one, then frees the gathered unit before it reduces.
static struct memory_moment block_end(const struct walk *w, double done) {
    struct memory_moment t = block_start(w, done);
    double building = w->unit, trained = w->p->sizes.block * w->p->sizes.trainable_fraction;
    if (recipe_is_fsdp1(w->p->recipe)) {
        double reducing = fsdp1_reduction(w->p, trained);
        building = 2 * w->unit;
        if (reducing > building + w->gathered) {
            t.gather -= w->gathered;
            t.side -= w->gathered;
            building = reducing;
        }
    }
    t.bucket += building - w->first;
    t.activations = w->in->kept * (w->blocks - done - 1) / w->blocks + w->in->output_gradient;
    return t;
}

// The root last: its gradients become a reduce input. A tied table has two dense gradients (head
// and look-up) at once, beside the table itself; FSDP1 joins all of them into a flat one.
static struct memory_moment root_end(const struct walk *w) {
    const struct memory_parts *p = w->p;
    double b = p->gather_bytes, f = p->sizes.trainable_fraction, root = p->sizes.root;
    double tied = p->model->tied_embeddings ? p->sizes.table : 0;
    double building = memory_gathered_bytes(p) * root + f * b * (root + tied);
    // Gradients are freed once copied in, all but the last, which a loop of foreach_reduce still
    // names; the output comes after.
    double output = root * p->reduce_bytes / p->sizes.shard_degree + b * fmin(p->sizes.head, root);
    double reducing = f * (root * p->reduce_bytes + fmax(b * root, output));
    if (recipe_is_fsdp1(p->recipe)) {
        building = memory_gathered_bytes(p) * root + 2 * f * b * root;
        reducing = fsdp1_reduction(p, f * root);
    }
    struct memory_moment t = {.grads = p->states[MEMORY_GRADS], .side = p->states[MEMORY_GRADS]};
    bool builds = building >= reducing; // then the root is still gathered
    t.gather = builds ? memory_gathered_bytes(p) * root : 0;
    t.bucket = fmax(building, reducing) - t.gather;
    if (p->sizes.table + p->sizes.head > 0) // the embedding's part of the root is not reduced yet
        t.grads -= fmin(t.grads, p->parameter_bytes * f * root / p->sizes.shard_degree);
    t.grads = fmax(t.grads, w->in->gradients_before);
    return t;
}

struct memory_moment memory_fsdp_backward(const struct memory_parts *p,
                                          const struct memory_backward *in) {
    double all = p->sizes.trainable + p->sizes.frozen - p->sizes.root;
    struct walk w = {.p = p, .in = in, .blocks = 1};
    if (p->sizes.block > 0)
        w.blocks = fmax(1, floor(all / p->sizes.block + 0.5));
    double trained = p->sizes.block * p->sizes.trainable_fraction;
    w.unit = p->gather_bytes * trained;
    w.first = p->gather_bytes * p->sizes.block_largest * p->sizes.trainable_fraction;
    w.gathered = memory_gathered_bytes(p) * p->sizes.block;
    w.reduce = p->reduce_bytes * trained;
    const double at[] = {0, 1, w.blocks - 2, w.blocks - 1};
    struct memory_moment most = root_end(&w);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        if (at[i] < 0 || at[i] >= w.blocks)
            continue;
        struct memory_moment start = block_start(&w, at[i]), end = block_end(&w, at[i]);
        if (memory_moment_total(&start) > memory_moment_total(&most))
            most = start;
        if (memory_moment_total(&end) > memory_moment_total(&most))
            most = end;
    }
    return most;
}
