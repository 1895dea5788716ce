// SPDX-License-Identifier: Apache-2.0
// DDP buckets (torch/csrc/distributed/c10d/reducer.cpp) and DeepSpeed ZeRO-1/2 buckets
// (runtime/zero/stage_1_and_2.py); docs/method.md §step-ddp and §step-zero12.
#include "base/units.h"
#include "cost/memory_parts.h"
#include "cost/volume.h"
#include "plan/step_build.h"

#include <math.h>

static const double hook_s = 20 * UNITS_MICRO; // host time of a bucket's launch
// megatron/core/distributed/distributed_data_parallel.py: the least bucket, in elements.
static const double megatron_bucket_elements = 40 * UNITS_MEGA;

static void forward(struct step_builder *b) {
    b->phase = STEP_FORWARD;
    for (uint32_t i = 0; i < b->unit_count; i++)
        step_compute(b, i, false);
}

// ---- DDP ----------------------------------------------------------------------------------------

// Megatron's DDP and distributed optimizer: fp32 main gradients in buckets of their own, which the
// weight-gradient kernels add to; the latter reduce-scatters them.
struct ddp {
    struct step_builder *b;
    bool megatron, scatter;
    double reduce_bytes;                  // per element
    double filled_bytes[2], cap_bytes[2]; // experts of expert parallelism have buckets of their own
    uint32_t final;
};

// Ranks that share a parameter: all, or with expert parallelism those with the same experts.
static void sharers(const struct step_builder *b, bool experts, struct step_collective *c) {
    c->size = experts ? b->recipe->world / b->recipe->ep : b->recipe->world;
    c->stride = experts ? b->recipe->ep : b->recipe->tp;
    c->group = experts ? GROUP_REPLICA : GROUP_WORLD;
}

static void reduce_bucket(struct ddp *d, uint32_t unit, bool experts) {
    struct step_builder *b = d->b;
    b->hook_s += hook_s;
    struct step_collective c = {.op = OP_REDUCE,
                                .stream = STREAM_COLLECTIVE,
                                .collective =
                                    d->scatter ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_REDUCE,
                                .dtype = step_dtype_of(d->reduce_bytes),
                                .payload_bytes = d->filled_bytes[experts],
                                .unit = unit,
                                .dep = b->last[STREAM_COMPUTE]};
    sharers(b, experts, &c);
    d->filled_bytes[experts] = 0;
    if (!d->megatron)
        d->cap_bytes[experts] = (double)b->recipe->ddp_bucket_bytes;
    if (c.size > 1)
        d->final = step_collective(b, &c);
}

// A bucket closes once a tensor takes it to its cap, so a tensor larger than the cap ends one.
static void fill_buckets(struct ddp *d, uint32_t unit) {
    struct step_builder *b = d->b;
    const struct step_unit_class *k = &b->classes[b->units[unit].class];
    if (k->trainable <= 0)
        return;
    double share = k->trainable / k->elements;
    const struct tensor *order[VOLUME_UNIT_TENSORS_MAX];
    size_t count = volume_backward_order(k->unit, order);
    for (size_t i = 0; i < count; i++) {
        const struct tensor *t = order[i];
        double bytes = (double)tensor_numel(t) / (double)b->recipe->tp * share * d->reduce_bytes;
        bool experts = b->recipe->ep > 1 && t->role == TENSOR_EXPERT;
        uint64_t copies = experts ? t->count / b->recipe->ep : t->count;
        for (uint64_t copy = 0; copy < copies; copy++) {
            d->filled_bytes[experts] += bytes;
            if (d->filled_bytes[experts] >= d->cap_bytes[experts])
                reduce_bucket(d, unit, experts);
        }
    }
}

static void backward_ddp(struct ddp *d, bool sync) {
    struct step_builder *b = d->b;
    const struct recipe *r = b->recipe;
    b->phase = STEP_BACKWARD;
    d->filled_bytes[0] = d->filled_bytes[1] = 0;
    d->cap_bytes[0] = d->cap_bytes[1] = d->megatron ? megatron_bucket_elements * d->reduce_bytes
                                                    : (double)r->ddp_first_bucket_bytes;
    for (uint32_t i = b->unit_count; i-- > 0;) {
        double bytes = b->classes[b->units[i].class].trainable * d->reduce_bytes;
        step_keep_gradients(b, bytes, b->trainable * d->reduce_bytes);
        step_compute(b, i, true);
        if (bytes > 0 &&
            !d->megatron) // gradients into their bucket views, or added to what is there
            step_kernel(b, OP_GRAD_COPY, STREAM_COMPUTE, i, 2 * bytes);
        if (sync)
            fill_buckets(d, i);
    }
    if (!sync)
        return;
    for (int i = 0; i < 2; i++)
        if (d->filled_bytes[i] > 0)
            reduce_bucket(d, 0, i == 1);
    step_stream_wait(b, STREAM_COMPUTE, d->final);
    if (!r->gradient_as_bucket_view && !d->megatron)
        step_kernel(b, OP_GRAD_COPY, STREAM_COMPUTE, STEP_NO_UNIT,
                    2 * b->trainable * d->reduce_bytes);
}

void step_build_ddp(struct step_builder *b) {
    const struct recipe *r = b->recipe;
    struct ddp d = {.b = b, .final = SIM_NONE, .megatron = memory_is_megatron(r)};
    d.scatter = d.megatron && r->strategy == STRATEGY_ZERO1;
    d.reduce_bytes =
        d.megatron && !r->reduce_dtype_given ? dtype_bytes(DTYPE_FP32) : b->sizes.reduce;
    for (uint64_t micro = 0; micro < r->grad_accum; micro++) {
        forward(b);
        backward_ddp(&d, (!r->no_sync && !d.megatron) || micro + 1 == r->grad_accum);
        step_micro_done(b);
    }
}

// ---- ZeRO-1 and ZeRO-2 --------------------------------------------------------------------------

struct zero12 {
    struct step_builder *b;
    double filled[2];  // elements in the bucket; in that of experts under expert parallelism
    double whole;      // accumulated elements over owned ones
    uint32_t previous; // end of the last reduction
    uint64_t micro;
    bool reduces, boundary; // in this micro-step
};

// Gradients of the rank's partition to the host: fp32 at the boundary; between micro-steps stage 2
// reads the sum back and writes the new one. docs/method.md §offload.
static void offload_gradients(struct zero12 *z, double elements, enum step_stream stream) {
    struct step_builder *b = z->b;
    double own = elements / (double)b->shard;
    const double fp32_bytes = 4;
    struct step_copy c = {.op = OP_GRAD_H2D,
                          .stream = stream,
                          .to_device = true,
                          .bytes = own * z->whole * b->sizes.gather,
                          .unit = STEP_NO_UNIT,
                          .dep = b->last[stream]};
    bool stage2 = b->recipe->strategy == STRATEGY_ZERO2;
    if (stage2 && z->micro > 0)
        c.dep = step_copy(b, &c);
    c.op = OP_GRAD_D2H;
    c.to_device = false;
    if (stage2 && b->recipe->grad_accum > 1)
        c.dep = step_copy(b, &c);
    c.bytes = own * fp32_bytes;
    if (z->boundary)
        step_copy(b, &c);
}

// Divide, all-reduce, copy out what this rank owns: in line on the compute stream, or with
// overlap_comm on its own stream while compute waits for the reduction before it.
static void flush(struct zero12 *z, uint32_t unit, bool experts) {
    struct step_builder *b = z->b;
    const struct recipe *r = b->recipe;
    double filled = z->filled[experts];
    double owners = (double)b->shard / (experts ? (double)r->ep : 1);
    if (filled <= 0)
        return;
    bool overlap = recipe_overlaps(r);
    enum step_stream stream = overlap ? STREAM_REDUCE : STREAM_COMPUTE;
    b->hook_s += hook_s;
    if (overlap) {
        step_stream_wait(b, STREAM_REDUCE, b->last[STREAM_COMPUTE]);
        step_stream_wait(b, STREAM_COMPUTE, z->previous);
    }
    double bytes = filled * b->sizes.reduce;
    uint32_t divided = step_kernel(b, OP_GRAD_COPY, stream, unit, 2 * bytes);
    struct step_collective c = {.op = OP_REDUCE,
                                .stream = STREAM_COLLECTIVE,
                                .collective = COLLECTIVE_ALL_REDUCE,
                                .dtype = step_dtype_of(b->sizes.reduce),
                                .payload_bytes = bytes,
                                .unit = unit,
                                .dep = divided};
    sharers(b, experts, &c);
    if (r->reduce_scatter && !r->multi_rank_bucket) { // one reduce per owner: half the bytes
        c.collective = COLLECTIVE_REDUCE;
    }
    if (c.size > 1 || !experts)
        step_stream_wait(b, stream, step_collective(b, &c));
    if (r->strategy == STRATEGY_ZERO2 && r->offload_optimizer == OFFLOAD_NONE)
        step_keep_gradients(b, filled / owners * b->sizes.grad,
                            step_held_elements(b) * b->sizes.grad);
    z->previous = step_kernel(b, OP_GRAD_COPY, stream, unit, 2 * bytes / owners);
    if (r->offload_optimizer != OFFLOAD_NONE)
        offload_gradients(z, filled, stream);
    z->previous = b->last[stream];
    z->filled[experts] = 0;
}

static void fill(struct zero12 *z, uint32_t unit) {
    struct step_builder *b = z->b;
    const struct step_unit_class *k = &b->classes[b->units[unit].class];
    if (k->trainable <= 0)
        return;
    double bucket = (double)b->recipe->reduce_bucket_elements, share = k->trainable / k->elements;
    const struct tensor *order[VOLUME_UNIT_TENSORS_MAX];
    size_t count = volume_backward_order(k->unit, order);
    for (size_t i = 0; i < count; i++) {
        const struct tensor *t = order[i];
        double numel = (double)tensor_numel(t) / (double)b->recipe->tp * share;
        bool experts = b->recipe->ep > 1 && t->role == TENSOR_EXPERT;
        uint64_t copies = experts ? t->count / b->recipe->ep : t->count;
        for (uint64_t copy = 0; copy < copies; copy++) {
            if (z->filled[experts] + numel > bucket)
                flush(z, unit, experts);
            z->filled[experts] += numel;
        }
    }
}

static void backward_zero(struct zero12 *z) {
    struct step_builder *b = z->b;
    b->phase = STEP_BACKWARD;
    const struct recipe *r = b->recipe;
    double buckets =
        r->contiguous_gradients && z->reduces
            ? (double)r->reduce_bucket_elements * b->sizes.reduce * (recipe_overlaps(r) ? 2 : 1)
            : 0;
    step_claim(b, buckets);
    for (uint32_t i = b->unit_count; i-- > 0;) {
        double bytes = b->classes[b->units[i].class].trainable * b->sizes.grad;
        bool kept = z->reduces && b->recipe->strategy == STRATEGY_ZERO2;
        if (kept)
            step_claim(b, bytes);
        else
            step_keep_gradients(b, bytes, b->trainable * b->sizes.grad);
        step_compute(b, i, true);
        if (kept)
            step_release(b, bytes);
        if (bytes > 0 && z->reduces)
            step_kernel(b, OP_GRAD_COPY, STREAM_COMPUTE, i, 2 * bytes);
        else if (bytes > 0 && z->micro > 0)
            step_kernel(b, OP_ACCUMULATE, STREAM_COMPUTE, i, 3 * bytes);
        // Stage 1 without overlap reduces after backward, in one pass.
        if (z->reduces && (b->recipe->strategy == STRATEGY_ZERO2 || recipe_overlaps(b->recipe)))
            fill(z, i);
    }
    if (!z->reduces)
        return;
    if (b->recipe->strategy == STRATEGY_ZERO1 && !recipe_overlaps(b->recipe))
        for (uint32_t i = b->unit_count; i-- > 0;)
            fill(z, i);
    flush(z, 0, false);
    flush(z, 0, true);
    step_stream_wait(b, STREAM_COMPUTE, z->previous);
    step_release(b, buckets);
    if (recipe_overlaps(b->recipe) && z->previous != SIM_NONE)
        sim_host_wait(b->sim, z->previous); // device-wide synchronize of the epilogue
}

void step_build_zero12(struct step_builder *b) {
    const struct recipe *r = b->recipe;
    double owned = b->trainable / (double)b->shard;
    struct zero12 z = {.b = b, .previous = SIM_NONE, .whole = 1};
    if (owned > 0)
        z.whole += volume_straddling_elements(b->model, r, owned) / owned;
    for (z.micro = 0; z.micro < r->grad_accum; z.micro++) {
        z.boundary = z.micro + 1 == r->grad_accum;
        z.reduces = z.boundary || r->strategy == STRATEGY_ZERO2;
        forward(b);
        backward_zero(&z);
        step_micro_done(b);
    }
}
