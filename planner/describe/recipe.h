// SPDX-License-Identifier: Apache-2.0
// How a run is set up: framework, strategy, precisions, batch, recompute, offload, buckets.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/kinds.h"
#include "describe/cluster.h"
#include "describe/model.h"
#include "describe/recipe_origin.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum strategy {
    STRATEGY_DDP,
    STRATEGY_ZERO1,
    STRATEGY_ZERO2,
    STRATEGY_ZERO3,
    STRATEGY_FSDP1,
    STRATEGY_FSDP2,
    STRATEGY_HSDP,
    STRATEGY_FSDP1_GRAD_OP,
    STRATEGY_FSDP1_NOSHARD,
    STRATEGY_FSDP1_HYBRID,
    STRATEGY_FSDP1_HYBRID_ZERO2,
    STRATEGY_FSDP2_NORESHARD,
    STRATEGY_FSDP2_RESHARD, // reshard_group = K
    STRATEGY_MICS,
    STRATEGY_ZEROPP,
    STRATEGY_COUNT
};
#define STRATEGY_ALL_COUNT 7 // "all" = the first seven

enum framework {
    FRAMEWORK_DDP,
    FRAMEWORK_FSDP1,
    FRAMEWORK_FSDP2,
    FRAMEWORK_DEEPSPEED,
    FRAMEWORK_COUNT
};
enum precision {
    PRECISION_FP32,
    PRECISION_BF16_PURE,
    PRECISION_BF16_MIXED,
    PRECISION_FP16_MIXED,
    PRECISION_AMP_BF16,
    PRECISION_FP8,
    PRECISION_COUNT
};
enum optimizer {
    OPTIMIZER_ADAMW,
    OPTIMIZER_ADAMW_BF16,
    OPTIMIZER_ADAMW8BIT,
    OPTIMIZER_SGD,
    OPTIMIZER_ADAFACTOR,
    OPTIMIZER_MUON,
    OPTIMIZER_NONE,
    OPTIMIZER_COUNT
};
enum recompute {
    RECOMPUTE_NONE,
    RECOMPUTE_FULL,
    RECOMPUTE_SELECTIVE_ATTENTION,
    RECOMPUTE_SELECTIVE_OP,
    RECOMPUTE_EVERY_N,
    RECOMPUTE_COUNT
};
enum attention { ATTENTION_FLASH, ATTENTION_MATH, ATTENTION_COUNT };
enum loss_head { LOSS_TORCH, LOSS_FUSED, LOSS_CHUNKED, LOSS_COUNT };
enum wrap { WRAP_BLOCK, WRAP_MODEL, WRAP_SIZE, WRAP_COUNT };
enum offload { OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME, OFFLOAD_COUNT };
enum prefetch {
    PREFETCH_BACKWARD_PRE,
    PREFETCH_BACKWARD_POST,
    PREFETCH_BACKWARD_NONE,
    PREFETCH_COUNT
};
enum adam_software { ADAM_OWN, ADAM_DEEPSPEED, ADAM_TORCH, ADAM_SOFTWARE_COUNT };
_Static_assert(ADAM_SOFTWARE_COUNT == CLUSTER_ADAM_SOFTWARES, "one figure per software");
enum overlap {
    OVERLAP_DEFAULT,
    OVERLAP_ON,
    OVERLAP_OFF
}; // DEFAULT: on for stage 3, off for 1 and 2

struct zero3_traffic; // cost/zero3.h

struct recipe {
    enum strategy strategy;
    enum framework framework;
    const char *framework_version; // "deepspeed-0.19.6", "torch-2.9"
    enum kernel_stack stack;       // eager | compiled | megatron; --compile sets compiled
    bool megatron_optimizer;       // Megatron's distributed optimizer memory rules
    // N = S * R, filled by recipe_resolve. zero++ shards its states over all of world; there
    // shard_group is the secondary (hpZ) group. Given before recipe_resolve: a shard group wish.
    uint64_t world, shard_group, replica_group;
    bool shard_group_derived; // by recipe_resolve: the GPUs of a node
    uint64_t reshard_group;   // fsdp2-reshard=K
    uint64_t tp, cp, pp, ep;  // 1 = off
    uint64_t virtual_stages;  // pieces of a pipeline stage, interleaved; 1 = plain 1F1B
    enum wrap wrap;
    uint64_t wrap_parameters; // WRAP_SIZE: units merge up to this many parameters
    // Batch
    uint64_t seq, micro_batch, grad_accum, global_batch; // global_batch in sequences; 0 = derived
    double tokens;                                       // training length; 0 = not asked
    bool no_sync; // accumulate without communication where the framework can
    // Precision (types resolved from `precision` unless overridden)
    enum precision precision;
    enum dtype param_dtype, compute_dtype, grad_dtype, reduce_dtype, master_dtype, state_dtype;
    bool has_master; // a separate fp32 copy beside param_dtype
    bool reduce_dtype_given;
    enum optimizer optimizer;
    bool optimizer_fused,
        optimizer_foreach; // torch.optim implementation; foreach is torch's default
    double clip;           // 0 = off
    // Activations
    enum recompute recompute;
    uint64_t recompute_every; // every-N
    enum attention attention;
    enum loss_head loss;
    bool compile;
    bool embedding_group; // FSDP2: embedding, [norm, head] are groups (torchtitan 2025)
    bool loss_eager;      // compiled model, eager loss (torchtitan before 2025)
    bool tp_without_sequence_parallel; // norms and residuals not split over tp
    bool expandable_segments;          // PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    bool activation_offload;           // saved activations to host
    // Offload
    enum offload offload_optimizer, offload_param;
    bool pin_memory;
    double offload_ratio; // Twin-Flow; 1 = everything
    bool super_offload;
    enum adam_software adam_software;
    bool pipeline_read, pipeline_write; // NVMe optimizer swapper
    uint64_t nvme_buffer_count_optimizer, nvme_buffer_count_param, nvme_buffer_elements_param,
        max_in_cpu_elements;
    uint64_t aio_block_bytes, aio_queue_depth, aio_threads;
    // DeepSpeed
    uint64_t reduce_bucket_elements, prefetch_bucket_elements, max_live_elements,
        max_reuse_elements, persistence_elements, model_persistence_elements, sub_group_elements;
    enum overlap overlap_comm;
    bool contiguous_gradients, reduce_scatter, multi_rank_bucket, round_robin_gradients,
        allgather_sequential, all_reduce_for_fetch, gather_16bit_on_save, zero_init,
        zero_init_given;
    enum dtype grad_accum_dtype; // DeepSpeed data_types.grad_accum_dtype
    bool grad_accum_dtype_given;
    bool bf16_optimizer_states, bf16_master_weights_and_grads;
    const struct zero3_traffic *zero3; // memo of the coordinator for these limits, or NULL
    // ZeRO++ switches
    bool quantized_weights, quantized_gradients, hpz;
    // DDP and FSDP
    uint64_t ddp_bucket_bytes, ddp_first_bucket_bytes;
    bool gradient_as_bucket_view, find_unused_parameters, static_graph;
    bool limit_all_gathers, forward_prefetch, use_orig_params, reshard_root;
    enum prefetch backward_prefetch;
    bool cpu_ram_efficient_loading, sync_module_states, meta_init, full_state_dict;
    // Fine-tuning
    uint64_t lora_rank;       // 0 = off
    const char *lora_targets; // comma-separated module suffixes; NULL = all linear of blocks
    bool base_4bit;           // QLoRA: frozen base in 4 bit
    double frozen_fraction;   // share of parameters frozen without LoRA
};

extern const char *const strategy_names[STRATEGY_COUNT]; // and one table per enum below
extern const char *const precision_names[PRECISION_COUNT];
extern const char *const optimizer_names[OPTIMIZER_COUNT];
extern const char *const recompute_names[RECOMPUTE_COUNT];
extern const char *const attention_names[ATTENTION_COUNT];
extern const char *const loss_names[LOSS_COUNT];
extern const char *const offload_names[OFFLOAD_COUNT];
extern const char *const framework_names[FRAMEWORK_COUNT];
extern const char *const stack_names[STACK_COUNT];
extern const char *const adam_software_names[ADAM_SOFTWARE_COUNT];
extern const char *const wrap_names[WRAP_COUNT];
extern const char *const prefetch_names[PREFETCH_COUNT];
extern const char *const overlap_names[OVERLAP_OFF + 1];

// Framework defaults for one strategy; docs/method.md §defaults.
void recipe_defaults(enum strategy s, struct recipe *out);
// Fill derived fields (types, groups, batch) for this model and cluster; rejects what can't run
// (indivisible groups, offload_param below stage 3, fp8 on a GPU without it, unknown --tp use).
bool recipe_resolve(struct recipe *r, const struct model *m, const struct cluster *c,
                    struct err *e);
// Batch: of micro_batch, grad_accum and global_batch the one that is 0 is derived.
// What is modelled of tp, cp, pp and ep (part of recipe_resolve); docs/method.md §model-parallel.
bool recipe_check_parallel(const struct recipe *r, const struct model *m, const struct cluster *c,
                           struct err *e);
bool recipe_check_context(const struct recipe *r, struct err *e); // once seq is known
// How many of these units the described rank holds: all, or of a pipeline those of the last stage,
// which is the longest and, but for activations, the largest.
uint64_t recipe_stage_units(const struct recipe *r, const struct model *m,
                            const struct model_unit *u);
bool recipe_strategy_parse(const char *text, enum strategy *out, uint64_t *reshard_group,
                           struct err *e);
enum framework recipe_framework(enum strategy s);
bool recipe_is_deepspeed(const struct recipe *r);
bool recipe_is_fsdp1(const struct recipe *r);
bool recipe_is_fsdp2(const struct recipe *r);
bool recipe_is_stage3(const struct recipe *r); // zero3, mics, zero++
bool recipe_has_shard_group(enum strategy s);  // takes --shard-group
// Parameters are gathered for compute and freed again (ZeRO-3 family and FSDP except NO_SHARD).
bool recipe_gathers(const struct recipe *r);
enum dtype recipe_gather_dtype(const struct recipe *r);     // type parameters travel in
enum dtype recipe_activation_dtype(const struct recipe *r); // type saved activations have
bool recipe_overlaps(const struct recipe *r);               // overlap_comm resolved
uint64_t recipe_trainable(const struct recipe *r,
                          const struct model *m); // parameters with gradients
// Of LoRA's adapters the matrices of at most `numel` elements: their number and their elements.
struct recipe_adapters {
    uint64_t count, elements;
};
struct recipe_adapters recipe_adapters(const struct recipe *r, const struct model *m,
                                       uint64_t numel);
// Every name of lora_targets stands for some linear layer of a block.
bool recipe_check_targets(const struct recipe *r, const struct model *m, struct err *e);
// LoRA puts adapters beside this tensor of a block.
bool recipe_adapts(const struct recipe *r, const struct tensor *t);
uint64_t recipe_frozen(const struct recipe *r, const struct model *m);
// Share of a base weight's elements that get a gradient: none beside adapters.
double recipe_trained_share(const struct recipe *r);
