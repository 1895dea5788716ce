// SPDX-License-Identifier: Apache-2.0
#include "describe/import_deepspeed_keys.h"

#include "base/kinds.h"

#include <string.h>

#define ZERO "zero_optimization."
#define COUNT(key, to, how)                                                                        \
    { key, DS_COUNT, to, how, NULL, false }
#define COUNT3(key, to, how)                                                                       \
    { ZERO key, DS_COUNT, to, how, NULL, true }
#define BOOL(key, to)                                                                              \
    { key, DS_BOOL, to, AUTO_NONE, NULL, false }
#define BOOL3(key, to)                                                                             \
    { ZERO key, DS_BOOL, to, AUTO_NONE, NULL, true }
#define SPECIAL(key, how)                                                                          \
    { key, DS_SPECIAL, NULL, how, NULL, false }
#define SECTION(key)                                                                               \
    { key, DS_SECTION, NULL, AUTO_NONE, NULL, false }
#define OPAQUE(key)                                                                                \
    { key, DS_OPAQUE, NULL, AUTO_TRAINER, NULL, false }
#define INERT(key, why)                                                                            \
    { key, DS_INERT, NULL, AUTO_TRAINER, why, false }
#define UNMODELLED(key)                                                                            \
    { key, DS_UNMODELLED, NULL, AUTO_TRAINER, "not modelled; planned without it", false }
#define ALIAS(key, to)                                                                             \
    { key, DS_ALIAS, to, AUTO_NONE, NULL, false }
#define CHECKPOINTING "only models that call deepspeed.checkpointing read this section"

const struct ds_key ds_keys[] = {
    SPECIAL("train_batch_size", AUTO_TRAINER),
    SPECIAL("train_micro_batch_size_per_gpu", AUTO_TRAINER),
    SPECIAL("gradient_accumulation_steps", AUTO_TRAINER),
    {"gradient_clipping", DS_NUMBER, "clip", AUTO_TRAINER, NULL, false},
    {"communication_data_type", DS_DTYPE, "reduce_dtype", AUTO_NONE, NULL, false},
    SECTION("optimizer"),
    SPECIAL("optimizer.type", AUTO_TRAINER),
    OPAQUE("optimizer.params"),
    OPAQUE("optimizer.legacy_fusion"),
    SECTION("fp16"),
    SPECIAL("fp16.enabled", AUTO_TRAINER),
    OPAQUE("fp16.auto_cast"),
    OPAQUE("fp16.loss_scale"),
    OPAQUE("fp16.initial_scale_power"),
    OPAQUE("fp16.loss_scale_window"),
    OPAQUE("fp16.hysteresis"),
    OPAQUE("fp16.consecutive_hysteresis"),
    OPAQUE("fp16.min_loss_scale"),
    OPAQUE("fp16.fp16_master_weights_and_grads"),
    SECTION("bf16"),
    SPECIAL("bf16.enabled", AUTO_TRAINER),
    OPAQUE("bf16.immediate_grad_update"),
    OPAQUE("bf16.check_grad_overflow"),
    BOOL("bf16.bf16_master_weights_and_grads", "bf16_master_weights_and_grads"),
    BOOL("bf16.bf16_optimizer_states", "bf16_optimizer_states"),
    ALIAS("bfloat16", "bf16"),
    SECTION("torch_autocast"),
    SPECIAL("torch_autocast.enabled", AUTO_NONE),
    SPECIAL("torch_autocast.dtype", AUTO_NONE),
    OPAQUE("torch_autocast.lower_precision_safe_modules"),
    SECTION("data_types"),
    {"data_types.grad_accum_dtype", DS_DTYPE, "grad_accum_dtype", AUTO_NONE, NULL, false},
    SECTION("aio"),
    COUNT("aio.block_size", "aio_block_bytes", AUTO_NONE),
    COUNT("aio.queue_depth", "aio_queue_depth", AUTO_NONE),
    COUNT("aio.intra_op_parallelism", "aio_threads", AUTO_NONE),
    OPAQUE("aio.single_submit"),
    OPAQUE("aio.overlap_events"),
    OPAQUE("aio.use_gds"),
    INERT("aio.thread_count",
          "DeepSpeed does not read thread_count; aio.intra_op_parallelism sets the threads"),
    SECTION("activation_checkpointing"),
    INERT("activation_checkpointing.partition_activations", CHECKPOINTING),
    INERT("activation_checkpointing.cpu_checkpointing", CHECKPOINTING),
    OPAQUE("activation_checkpointing.number_checkpoints"),
    INERT("activation_checkpointing.contiguous_memory_optimization", CHECKPOINTING),
    OPAQUE("activation_checkpointing.synchronize_checkpoint_boundary"),
    OPAQUE("activation_checkpointing.profile"),
    SECTION("zero_optimization"),
    SPECIAL(ZERO "stage", AUTO_NONE),
    BOOL(ZERO "contiguous_gradients", "contiguous_gradients"),
    BOOL(ZERO "reduce_scatter", "reduce_scatter"),
    COUNT(ZERO "reduce_bucket_size", "reduce_bucket_elements", AUTO_HIDDEN2),
    BOOL(ZERO "use_multi_rank_bucket_allreduce", "multi_rank_bucket"),
    INERT(ZERO "allgather_partitions", "DeepSpeed parses this key and reads it nowhere"),
    INERT(ZERO "allgather_bucket_size", "without effect on current PyTorch: parameters are "
                                        "gathered in place, in one call per group"),
    SPECIAL(ZERO "overlap_comm", AUTO_NONE),
    OPAQUE(ZERO "load_from_fp32_weights"),
    OPAQUE(ZERO "elastic_checkpoint"),
    SECTION(ZERO "offload_param"),
    {ZERO "offload_param.device", DS_DEVICE, "offload_param", AUTO_NONE, NULL, false},
    OPAQUE(ZERO "offload_param.nvme_path"),
    COUNT(ZERO "offload_param.buffer_count", "nvme_buffer_count_param", AUTO_NONE),
    COUNT(ZERO "offload_param.buffer_size", "nvme_buffer_elements_param", AUTO_NONE),
    COUNT(ZERO "offload_param.max_in_cpu", "max_in_cpu_elements", AUTO_NONE),
    BOOL(ZERO "offload_param.pin_memory", "pin_memory"),
    SECTION(ZERO "offload_optimizer"),
    {ZERO "offload_optimizer.device", DS_DEVICE, "offload_optimizer", AUTO_NONE, NULL, false},
    OPAQUE(ZERO "offload_optimizer.nvme_path"),
    COUNT(ZERO "offload_optimizer.buffer_count", "nvme_buffer_count_optimizer", AUTO_NONE),
    BOOL(ZERO "offload_optimizer.pin_memory", "pin_memory"),
    BOOL(ZERO "offload_optimizer.pipeline_read", "pipeline_read"),
    BOOL(ZERO "offload_optimizer.pipeline_write", "pipeline_write"),
    OPAQUE(ZERO "offload_optimizer.fast_init"),
    {ZERO "offload_optimizer.ratio", DS_NUMBER, "offload_ratio", AUTO_NONE, NULL, false},
    BOOL(ZERO "offload_optimizer.super_offload", "super_offload"),
    OPAQUE(ZERO "offload_optimizer.cpuadam_cores_perc"),
    UNMODELLED(ZERO "zenflow"),
    COUNT(ZERO "sub_group_size", "sub_group_elements", AUTO_NONE),
    COUNT3("stage3_prefetch_bucket_size", "prefetch_bucket_elements", AUTO_HIDDEN2_09),
    COUNT3("stage3_param_persistence_threshold", "persistence_elements", AUTO_HIDDEN_10),
    COUNT3("stage3_model_persistence_threshold", "model_persistence_elements", AUTO_NONE),
    COUNT3("stage3_max_live_parameters", "max_live_elements", AUTO_NONE),
    COUNT3("stage3_max_reuse_distance", "max_reuse_elements", AUTO_NONE),
    BOOL3("stage3_gather_16bit_weights_on_model_save", "gather_16bit_on_save"),
    ALIAS(ZERO "stage3_gather_fp16_weights_on_model_save",
          ZERO "stage3_gather_16bit_weights_on_model_save"),
    OPAQUE(ZERO "stage3_module_granularity_threshold"),
    BOOL3("stage3_use_all_reduce_for_fetch_params", "all_reduce_for_fetch"),
    BOOL3("stage3_allgather_sequential", "allgather_sequential"),
    OPAQUE(ZERO "leaf_module"),
    OPAQUE(ZERO "ignore_unused_parameters"),
    BOOL(ZERO "round_robin_gradients", "round_robin_gradients"),
    SPECIAL(ZERO "legacy_stage1", AUTO_NONE),
    SPECIAL(ZERO "zero_hpz_partition_size", AUTO_NONE),
    BOOL3("zero_quantized_weights", "quantized_weights"),
    OPAQUE(ZERO "zero_quantized_nontrainable_weights"),
    BOOL3("zero_quantized_gradients", "quantized_gradients"),
    UNMODELLED(ZERO "zeropp_loco_param"),
    SPECIAL(ZERO "mics_shard_size", AUTO_NONE),
    OPAQUE(ZERO "mics_hierarchical_params_gather"),
    OPAQUE(ZERO "memory_efficient_linear"),
    OPAQUE(ZERO "override_module_apply"),
    OPAQUE(ZERO "log_trace_cache_warnings"),
    OPAQUE(ZERO "enable_sanity_checks"),
    OPAQUE(ZERO "save_muon_momentum_buffer_in_memory"),
    OPAQUE(ZERO "pipeline_loading_checkpoint"),
    ALIAS(ZERO "cpu_offload", ZERO "offload_optimizer"),
    ALIAS(ZERO "cpu_offload_param", ZERO "offload_param"),
    INERT(ZERO "cpu_offload_use_pin_memory",
          "deprecated and ignored; set pin_memory in the offload section"),
    // Known, without a say in memory, bytes or time.
    OPAQUE("scheduler"),
    OPAQUE("seq_parallel_communication_data_type"),
    OPAQUE("prescale_gradients"),
    OPAQUE("gradient_predivide_factor"),
    UNMODELLED("sparse_gradients"),
    OPAQUE("amp"),
    OPAQUE("zero_allow_untested_optimizer"),
    OPAQUE("zero_force_ds_cpu_optimizer"),
    OPAQUE("steps_per_print"),
    OPAQUE("wall_clock_breakdown"),
    OPAQUE("dump_state"),
    OPAQUE("memory_breakdown"),
    OPAQUE("flops_profiler"),
    OPAQUE("tensorboard"),
    OPAQUE("wandb"),
    OPAQUE("csv_monitor"),
    OPAQUE("comet"),
    OPAQUE("comms_logger"),
    OPAQUE("monitor_config"),
    OPAQUE("autotuning"),
    OPAQUE("elasticity"),
    OPAQUE("data_efficiency"),
    OPAQUE("curriculum_learning"),
    OPAQUE("compile"),
    OPAQUE("checkpoint"),
    OPAQUE("nebula"),
    UNMODELLED("compression_training"),
    OPAQUE("sparse_attention"),
    OPAQUE("pipeline"),
    OPAQUE("hybrid_engine"),
    OPAQUE("graph_harvesting"),
    OPAQUE("use_data_before_expert_parallelism"),
    OPAQUE("timers"),
    OPAQUE("eigenvalue"),
    OPAQUE("progressive_layer_drop"),
    UNMODELLED("tensor_parallel"),
    UNMODELLED("sequence_parallel_size"),
    OPAQUE("data_parallel_size"),
    OPAQUE("dataloader_drop_last"),
    OPAQUE("disable_allgather"),
    OPAQUE("weight_quantization"),
    INERT("fp32_allreduce", "deprecated; use communication_data_type"),
    OPAQUE("_shardplan"),
};
const size_t ds_key_count = sizeof ds_keys / sizeof ds_keys[0];

const struct ds_key *ds_key_find(const char *path) {
    for (size_t i = 0; i < ds_key_count; i++)
        if (strcmp(ds_keys[i].path, path) == 0)
            return &ds_keys[i];
    return NULL;
}

bool ds_section_is_strict(const char *section) {
    return strncmp(section, "zero_optimization", strlen("zero_optimization")) == 0 ||
           strcmp(section, "fp16") == 0 || strcmp(section, "bf16") == 0;
}

const char *ds_key_nearest(const char *section, const char *name) {
    const char *names[sizeof ds_keys / sizeof ds_keys[0]];
    size_t count = 0, skip = strlen(section) ? strlen(section) + 1 : 0;
    for (size_t i = 0; i < ds_key_count; i++) {
        const char *path = ds_keys[i].path;
        bool inside = skip == 0 || (strncmp(path, section, skip - 1) == 0 && path[skip - 1] == '.');
        if (inside && path[0] != '_' && strchr(path + skip, '.') == NULL)
            names[count++] = path + skip;
    }
    return kinds_nearest(names, count, name);
}
