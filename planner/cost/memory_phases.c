// SPDX-License-Identifier: Apache-2.0
// What lives on the GPU in every phase: docs/method.md §memory "Phases" and "Buffers".
#include "cost/activation.h"
#include "cost/memory_parts.h"
#include "cost/optimizer.h"

#include "describe/version.h"

#include <math.h>

static bool is_stage12(const struct recipe *r) {
    return r->strategy == STRATEGY_ZERO1 || r->strategy == STRATEGY_ZERO2;
}

static bool older_than(const struct recipe *r, unsigned major, unsigned minor) {
    struct version v;
    struct err ignored = {0};
    return r->framework_version && version_parse(r->framework_version, &v, &ignored) &&
           version_before(&v, major, minor, 0);
}

// ---- buckets ------------------------------------------------------------------------------------

static double stage12_bucket(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    if (!r->contiguous_gradients && r->offload_optimizer == OFFLOAD_NONE)
        return 0;
    if (memory_bf16_optimizer(r) || memory_is_megatron(r))
        return 0;
    double buffers = recipe_overlaps(r) ? 2 : 1;
    double bytes = p->parameter_bytes * (double)r->reduce_bucket_elements * buffers;
    return older_than(r, 0, 4) ? 4.5 * bytes : bytes; // releases before 0.4 sized it 4.5 times
}

// The slices of a bucket are flattened into one more buffer, cast when the wire type differs.
static double stage12_flatten(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    double n = fmin((double)r->reduce_bucket_elements, p->sizes.trainable);
    if (memory_is_megatron(r))
        return 0;
    if (memory_bf16_optimizer(r)) // its fp32 gradients are flat already: only the cast
        return p->reduce_bytes == 4 ? 0 : p->reduce_bytes * p->sizes.trainable;
    double from = p->parameter_bytes;
    return n * (from + (from != p->reduce_bytes ? p->reduce_bytes : 0));
}

static double stage3_flat(const struct memory_parts *p) {
    double n = fmax((double)p->recipe->reduce_bucket_elements, p->sizes.largest_parameter);
    return fmin(n, p->sizes.trainable) * p->reduce_bytes;
}

// temp_grad_buffer_for_gpu_offload of stages 1 and 2: one gradient on its way to the host.
static double offload_staging(const struct memory_parts *p) {
    bool stages = is_stage12(p->recipe) && p->recipe->offload_optimizer != OFFLOAD_NONE;
    return stages ? p->parameter_bytes * p->sizes.largest_parameter : 0;
}

static double standing_bucket(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    if (r->framework == FRAMEWORK_DDP && !r->gradient_as_bucket_view && !memory_is_megatron(r))
        return dtype_bytes(r->grad_dtype) * p->sizes.trainable;
    if (recipe_is_stage3(r))
        return (double)r->reduce_bucket_elements * p->reduce_bytes;
    double staging = offload_staging(p);
    if (r->strategy == STRATEGY_ZERO1 && r->grad_accum > 1)
        return stage12_bucket(p) + staging; // held through the following forwards
    return staging;
}

// ---- gathered parameters ------------------------------------------------------------------------

static double autocast_copies(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    if (r->precision != PRECISION_AMP_BF16 || recipe_is_deepspeed(r))
        return 0;
    if (recipe_gathers(r) && r->recompute == RECOMPUTE_FULL)
        return 2 * p->sizes.block; // rebuilt unit by unit
    double share = (double)p->model->matmul_parameters / (double)p->model->parameters;
    return 2 * fmin(1, share) * (p->sizes.trainable + p->sizes.frozen);
}

// A 4-bit weight is turned into 16 bits for its matmul, one at a time.
static double dequantised(const struct memory_parts *p) {
    return p->recipe->base_4bit ? p->gather_bytes * p->sizes.largest_parameter : 0;
}

static double stage3_gather(const struct memory_parts *p) {
    const struct zero3_traffic *z = &p->zero3;
    double live = (double)z->peak_live_elements + (double)z->persistent_elements +
                  zero3_adapters(p->model, p->recipe, z).persistent_elements;
    double copied = p->recipe->allgather_sequential || p->recipe->all_reduce_for_fetch
                        ? 0
                        : (double)z->largest_handle_elements;
    double secondary = 0;
    if (p->recipe->hpz && p->recipe->shard_group > 0 && p->recipe->offload_param == OFFLOAD_NONE)
        secondary = (p->sizes.trainable + p->sizes.frozen) / (double)p->recipe->shard_group;
    return memory_gathered_bytes(p) * (live + copied + secondary) + dequantised(p);
}

static bool keeps_unsharded(const struct recipe *r) {
    return r->strategy == STRATEGY_FSDP2_NORESHARD || r->strategy == STRATEGY_FSDP1_GRAD_OP ||
           r->strategy == STRATEGY_FSDP1_HYBRID_ZERO2;
}

static double unit_elements(const struct memory_parts *p) {
    return p->sizes.block > 0 ? p->sizes.block : 0;
}

// Units that stay gathered from forward to backward: everything, or FSDP2's share of a group of K.
static double kept_units(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    double blocks = p->sizes.trainable + p->sizes.frozen - p->sizes.root;
    if (keeps_unsharded(r))
        return memory_gathered_bytes(p) * blocks;
    if (r->strategy == STRATEGY_FSDP2_RESHARD && r->reshard_group > 0)
        return memory_gathered_bytes(p) * blocks / (double)r->reshard_group;
    return 0;
}

// FSDP2 holds the next unit's all-gather output beside the unit in use. FSDP1 gives a unit back
// before it gathers the next one, unless it prefetches.
static double gather_in(const struct memory_parts *p, enum memory_phase phase) {
    const struct recipe *r = p->recipe;
    if (recipe_is_stage3(r))
        return stage3_gather(p);
    bool cast = r->strategy == STRATEGY_FSDP1_NOSHARD && p->gather_bytes < p->parameter_bytes;
    if (!recipe_gathers(r) && !cast) // NO_SHARD casts unit by unit where others gather
        return dequantised(p);
    double root = memory_gathered_bytes(p) * p->sizes.root,
           unit = memory_gathered_bytes(p) * unit_elements(p);
    if (phase == PHASE_LOSS)
        return root + kept_units(p) + dequantised(p);
    if (keeps_unsharded(r))
        return root + kept_units(p) + (recipe_is_fsdp2(r) ? unit : 0);
    bool ahead = phase == PHASE_FORWARD ? r->forward_prefetch
                                        : r->backward_prefetch != PREFETCH_BACKWARD_NONE;
    double units = recipe_is_fsdp1(r) && !ahead ? 1 : 2;
    return root + units * unit + kept_units(p) + dequantised(p);
}

// DDP's reducer keeps its buckets for ever; as their views, gradients live as long.
static bool gradients_are_buckets(const struct recipe *r) {
    return r->framework == FRAMEWORK_DDP && r->gradient_as_bucket_view && !memory_is_megatron(r);
}

// ---- reduction buffers in backward --------------------------------------------------------------

static double backward_bucket(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    double largest = p->sizes.largest_parameter * p->sizes.trainable_fraction;
    if (r->optimizer == OPTIMIZER_NONE)
        return standing_bucket(p);
    if (is_stage12(r)) { // offload takes each gradient's norm in fp64 where it is
        double norm = r->offload_optimizer != OFFLOAD_NONE ? 8 * largest : 0;
        double standing = fmax(stage12_bucket(p) + offload_staging(p), standing_bucket(p));
        return standing + fmax(stage12_flatten(p), norm);
    }
    if (recipe_is_stage3(r)) // the bucket, its flat copy, and the gradient being copied
        return standing_bucket(p) + stage3_flat(p) + largest * p->gather_bytes;
    if (gradients_are_buckets(r)) // the gradient being copied into its bucket
        return standing_bucket(p) + largest * dtype_bytes(r->grad_dtype);
    return standing_bucket(p);
}

// ---- moments ------------------------------------------------------------------------------------

static double gradients_before_backward(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    bool standing = recipe_is_stage3(r) || memory_bf16_optimizer(r) || memory_is_megatron(r) ||
                    gradients_are_buckets(r);
    return standing || r->grad_accum > 1 ? p->states[MEMORY_GRADS] : 0;
}

static double blocks_kept(const struct memory_parts *p) {
    double all = (double)activation_blocks_bytes(p->model, p->recipe);
    if (!p->recipe->activation_offload || p->model->layers == 0)
        return all;
    return fmin(all, 2 * all / (double)p->model->layers); // one in use, one travelling
}

static struct memory_moment forward_moment(const struct memory_parts *p) {
    struct memory_moment t = {.gather = gather_in(p, PHASE_FORWARD), .bucket = standing_bucket(p)};
    const struct recipe *r = p->recipe;
    double transient = 0;
    if (r->recompute != RECOMPUTE_NONE) // a layer's tensors die as its forward goes on
        transient = (double)activation_working_bytes(p->model, r) / 2;
    t.grads = gradients_before_backward(p);
    t.activations = blocks_kept(p) + transient;
    if (recipe_is_fsdp2(r) && p->sizes.block <= 0) // no later unit frees the root's output
        t.bucket += memory_gathered_bytes(p) * p->sizes.root;
    t.side = recipe_is_stage3(r) || recipe_is_fsdp1(r)
                 ? t.gather
                 : (recipe_is_fsdp2(r) ? p->gather_bytes * unit_elements(p) : 0);
    t.gather += autocast_copies(p);
    return t;
}

// FSDP2's first block: the root's all-gather output still stands beside its parameters.
static struct memory_moment first_block(const struct memory_parts *p) {
    struct memory_moment t = {.bucket = standing_bucket(p), .grads = gradients_before_backward(p)};
    double outputs = memory_gathered_bytes(p) * (p->sizes.root + unit_elements(p));
    t.gather = outputs + dequantised(p);
    t.bucket += outputs;
    t.activations = (double)activation_gradient_bytes(p->model, p->recipe); // the block's input
    t.side = outputs;
    return t;
}

static struct memory_moment loss_moment(const struct memory_parts *p) {
    struct memory_moment t = {.gather = gather_in(p, PHASE_LOSS), .bucket = standing_bucket(p)};
    uint64_t held, peak;
    activation_logits(p->model, p->recipe, &held, &peak);
    t.grads = gradients_before_backward(p);
    t.activations = blocks_kept(p) + (double)activation_embedding_bytes(p->model, p->recipe);
    t.logits = (double)peak;
    t.side = recipe_is_stage3(p->recipe) || recipe_is_fsdp1(p->recipe) ? t.gather : 0;
    t.gather += autocast_copies(p);
    return t;
}

// Stage 2 makes the gradients of its whole partition with the first one that belongs there.
static bool makes_partition_at_once(const struct recipe *r) {
    return r->strategy == STRATEGY_ZERO2 && r->contiguous_gradients &&
           r->offload_optimizer == OFFLOAD_NONE;
}

// Stage 1 leaves all gradients where backward made them; the engine's epilogue reduces them.
static bool reduces_after_backward(const struct recipe *r) {
    return r->strategy == STRATEGY_ZERO1 && !memory_bf16_optimizer(r) && !memory_is_megatron(r);
}

// The last layer, first in backward: every kept activation is still there.
static struct memory_moment backward_start(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    struct memory_moment t = {.gather = gather_in(p, PHASE_BACKWARD), .bucket = backward_bucket(p)};
    double layers = (double)(p->model->layers ? p->model->layers : 1);
    double before = gradients_before_backward(p);
    t.grads = fmax(before, p->states[MEMORY_GRADS] / layers);
    if (makes_partition_at_once(r)) // the last rank's comes with the first gradient
        t.grads = before + p->states[MEMORY_GRADS];
    t.activations = blocks_kept(p) + (double)activation_working_bytes(p->model, r);
    if (memory_bf16_optimizer(r)) // it reduces after backward
        t.bucket -= stage12_flatten(p);
    if (reduces_after_backward(r))
        t.bucket = fmax(stage12_bucket(p) + offload_staging(p), standing_bucket(p));
    if (recipe_is_stage3(r))
        t.side = t.gather + stage3_flat(p);
    t.gather += autocast_copies(p);
    return t;
}

// The first layer and the embedding, last in backward: every gradient is there.
static struct memory_moment backward_end(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    struct memory_moment t = {.gather = gather_in(p, PHASE_BACKWARD), .bucket = backward_bucket(p)};
    double layers = (double)(p->model->layers ? p->model->layers : 1);
    t.grads = p->states[MEMORY_GRADS];
    t.activations = blocks_kept(p) / layers + (double)activation_working_bytes(p->model, r);
    if (memory_bf16_optimizer(r))
        t.activations = 0; // reduced when backward is over
    if (reduces_after_backward(r)) {
        t.activations = 0;
        if (r->offload_optimizer == OFFLOAD_NONE)
            t.grads += p->parameter_bytes * p->sizes.owned; // the owned slice, copied out
    }
    if (r->strategy == STRATEGY_ZERO2 && r->offload_optimizer == OFFLOAD_NONE && r->grad_accum > 1)
        t.grads *= 2; // what was averaged before and what is averaged now
    if (recipe_is_stage3(r))
        t.side = t.gather + stage3_flat(p);
    t.gather += autocast_copies(p) / layers;
    return t;
}

// Without contiguous gradients the last rank's stay where backward made them, until its partition
// is through: the activations before it are still there.
static struct memory_moment own_partition_done(const struct memory_parts *p) {
    struct memory_moment t = backward_end(p);
    double layers = (double)(p->model->layers ? p->model->layers : 1);
    double before = 1 - (p->sizes.flat > 0 ? p->sizes.owned / p->sizes.flat : 0);
    t.activations += blocks_kept(p) * fmax(0, before - 1 / layers);
    t.gather += autocast_copies(p) * fmax(0, before - 1 / layers);
    return t;
}

static struct memory_moment backward_moment(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    bool fsdp = recipe_is_fsdp1(r) || recipe_is_fsdp2(r);
    if (fsdp && r->optimizer != OPTIMIZER_NONE) {
        uint64_t rebuilt = activation_working_bytes(p->model, r);
        struct memory_backward in = {.kept = blocks_kept(p),
                                     .working = (double)rebuilt,
                                     .output_gradient =
                                         (double)activation_gradient_bytes(p->model, r),
                                     .gradients_before = gradients_before_backward(p),
                                     .casts = autocast_copies(p),
                                     .dequantised = dequantised(p)};
        return memory_fsdp_backward(p, &in);
    }
    struct memory_moment start = backward_start(p), end = backward_end(p);
    if (r->strategy == STRATEGY_ZERO2 && !r->contiguous_gradients &&
        r->offload_optimizer == OFFLOAD_NONE)
        end = own_partition_done(p);
    return memory_moment_total(&start) >= memory_moment_total(&end) ? start : end;
}

static double step_transient(const struct memory_parts *p, double on_gpu) {
    const struct recipe *r = p->recipe;
    double n = p->sizes.owned * on_gpu;
    if (r->optimizer == OPTIMIZER_NONE || on_gpu <= 0)
        return 0;
    if (memory_is_megatron(r))
        return 0;
    if (is_stage12(
            r)) { // flattened in the model's type, then in fp32; before, checked for overflow
        if (memory_bf16_optimizer(r))
            return 0; // its fp32 gradients are there
        double check = 11 * fmin(p->sizes.largest_parameter, n);
        double cast = p->parameter_bytes == 4 ? 0 : 4;
        return fmax(n * (p->parameter_bytes + cast), check);
    }
    if (recipe_is_stage3(r)) {
        double group = fmin(n, (double)r->sub_group_elements);
        return group * (dtype_bytes(r->grad_accum_dtype) + 4);
    }
    if (r->optimizer_fused || !r->optimizer_foreach || r->optimizer == OPTIMIZER_SGD)
        return 0;
    double lists = older_than(r, 2, 1) ? 2 : 1; // sqrt of v, and before 2.1 the denominator
    return lists * n * dtype_bytes(r->state_dtype);
}

static struct memory_moment step_moment(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    struct memory_moment t = {.grads = p->states[MEMORY_GRADS], .bucket = standing_bucket(p)};
    if (reduces_after_backward(r)) // foreign gradients are freed by now, all with an offload
        t.grads = r->offload_optimizer == OFFLOAD_NONE ? p->parameter_bytes * p->sizes.owned : 0;
    t.transient = step_transient(p, memory_gpu_share(r, p->sizes.owned)) +
                  optimizer_muon_working_bytes(p->model, r);
    if (recipe_is_stage3(r) && r->hpz && r->shard_group > 0 && r->offload_param == OFFLOAD_NONE)
        t.gather =
            p->gather_bytes * (p->sizes.trainable + p->sizes.frozen) / (double)r->shard_group;
    t.side = recipe_is_fsdp1(r) || recipe_is_fsdp2(r) ? t.grads : 0;
    return t;
}

double memory_moment_total(const struct memory_moment *t) {
    return t->grads + t->gather + t->bucket + t->activations + t->logits + t->transient;
}

static void put(struct memory_parts *p, enum memory_phase phase, const struct memory_moment *t) {
    struct memory_phase_double *out = &p->phases[phase];
    out->classes[MEMORY_PARAMS] = p->states[MEMORY_PARAMS];
    out->classes[MEMORY_MASTER] = p->states[MEMORY_MASTER];
    out->classes[MEMORY_OPTIMIZER] = p->states[MEMORY_OPTIMIZER];
    out->classes[MEMORY_GRADS] = t->grads;
    out->classes[MEMORY_GATHER] = t->gather;
    out->classes[MEMORY_BUCKET] = t->bucket;
    out->classes[MEMORY_ACTIVATIONS] = t->activations;
    out->classes[MEMORY_LOGITS] = t->logits;
    out->classes[MEMORY_STEP_TRANSIENT] = t->transient;
    out->side = t->side;
}

// ---- load, init, save, resume -------------------------------------------------------------------

static double whole_model(const struct memory_parts *p) {
    return p->parameter_bytes * p->sizes.trainable + p->frozen_bytes * p->sizes.frozen;
}

static void fill_load(struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    double whole = whole_model(p), shards = p->states[MEMORY_PARAMS];
    double load = whole;
    if (recipe_gathers(r)) {
        bool sharded =
            recipe_is_stage3(r) ? r->zero_init : r->meta_init || r->cpu_ram_efficient_loading;
        load = sharded ? shards + p->parameter_bytes * p->sizes.largest_parameter : whole;
    }
    p->phases[PHASE_LOAD].classes[MEMORY_PARAMS] = load;
    double init = fmax(shards, load);
    double owned = p->sizes.owned * memory_gpu_share(r, p->sizes.owned);
    double master = p->states[MEMORY_MASTER], transient = 0;
    if (is_stage12(r) && !memory_is_megatron(r)) {
        // The flat group is built beside the parameters; then the fp32 slice through a clone.
        transient = fmax(p->parameter_bytes * p->sizes.flat, master + p->parameter_bytes * owned);
        master = 0;
    } else if (recipe_is_stage3(r)) {
        double group = fmin(owned, (double)r->sub_group_elements);
        transient = fmax(2 * 4 * group, r->offload_param == OFFLOAD_NONE ? shards : 0);
    } else if (recipe_is_fsdp1(r) && recipe_gathers(r)) {
        transient = p->parameter_bytes * fmax(p->sizes.block, p->sizes.root); // one unit flattened
    }
    p->phases[PHASE_INIT].classes[MEMORY_PARAMS] = init;
    p->phases[PHASE_INIT].classes[MEMORY_MASTER] = master;
    p->phases[PHASE_INIT].classes[MEMORY_BUCKET] = recipe_is_stage3(r) ? standing_bucket(p) : 0;
    p->phases[PHASE_INIT].classes[MEMORY_STEP_TRANSIENT] = transient;
}

static void fill_checkpoint(struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    struct memory_moment t = {.bucket = standing_bucket(p)};
    if (recipe_is_stage3(r) || memory_bf16_optimizer(r) || gradients_are_buckets(r))
        t.grads = p->states[MEMORY_GRADS];
    if (recipe_is_fsdp1(r) && recipe_gathers(r) && r->full_state_dict)
        t.gather = whole_model(p); // FULL_STATE_DICT without offload keeps every clone
    else if (recipe_is_stage3(r) && r->gather_16bit_on_save)
        t.gather = p->gather_bytes * fmax(p->sizes.block, p->sizes.largest_parameter);
    put(p, PHASE_SAVE, &t);
    t.gather = 0;
    t.transient = p->states[MEMORY_PARAMS] + p->states[MEMORY_MASTER] + p->states[MEMORY_OPTIMIZER];
    if (recipe_is_deepspeed(r))
        t.transient = 0; // DeepSpeed reads a checkpoint into host memory first
    put(p, PHASE_RESUME, &t);
}

// ---- allocator pools ----------------------------------------------------------------------------

// Peaks of the pools that belong to side streams: their blocks never serve the compute stream.
static double side_pools(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    double unit = p->gather_bytes * unit_elements(p), root = p->gather_bytes * p->sizes.root;
    double grads = p->states[MEMORY_GRADS];
    if (!recipe_gathers(r))
        return 0;
    if (recipe_is_stage3(r))
        return recipe_overlaps(r) ? stage3_gather(p) + stage3_flat(p) : 0;
    if (recipe_is_fsdp2(r))
        return fmax(root, 2 * unit) + grads;
    return gather_in(p, PHASE_BACKWARD) + grads;
}

// Eager cross-entropy frees the 16-bit logits before it asks for blocks twice their size.
static double loss_hole(const struct memory_parts *p) {
    const struct recipe *r = p->recipe;
    if (r->expandable_segments || r->loss != LOSS_TORCH || (r->compile && !r->loss_eager) ||
        recipe_activation_dtype(r) == DTYPE_FP32 || memory_is_megatron(r))
        return 0;
    double tp = (double)(r->tp ? r->tp : 1);
    return dtype_bytes(recipe_activation_dtype(r)) * (double)p->model->vocab / tp *
           activation_tokens(r);
}

void memory_phases_fill(struct memory_parts *p) {
    struct memory_moment t = forward_moment(p), first = first_block(p);
    bool early =
        recipe_is_fsdp2(p->recipe) && memory_moment_total(&first) > memory_moment_total(&t);
    put(p, PHASE_FORWARD, early ? &first : &t);
    t = loss_moment(p);
    put(p, PHASE_LOSS, &t);
    t = backward_moment(p);
    put(p, PHASE_BACKWARD, &t);
    t = step_moment(p);
    put(p, PHASE_STEP_FIRST, &t);
    put(p, PHASE_STEP, &t);
    fill_load(p);
    fill_checkpoint(p);
    p->side_peak = side_pools(p);
    p->waste = loss_hole(p);
}
