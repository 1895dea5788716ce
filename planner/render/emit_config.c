// SPDX-License-Identifier: Apache-2.0
#include "render/emit_config.h"

#include "base/json.h"
#include "describe/recipe_fields.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool can_state(enum config_kind kind, enum strategy s) {
    switch (kind) {
    case CONFIG_DEEPSPEED:
        return recipe_framework(s) == FRAMEWORK_DEEPSPEED;
    case CONFIG_ACCELERATE:
        return s != STRATEGY_MICS && s != STRATEGY_ZEROPP && s != STRATEGY_FSDP2_RESHARD;
    case CONFIG_FSDP2:
        return recipe_framework(s) == FRAMEWORK_FSDP2;
    default:
        return recipe_framework(s) == FRAMEWORK_FSDP2 && s != STRATEGY_FSDP2_RESHARD;
    }
}

static const char *better_kind(const struct recipe *r) {
    if (recipe_is_deepspeed(r))
        return "deepspeed";
    return r->strategy == STRATEGY_FSDP2_RESHARD ? "fsdp2" : "accelerate";
}

static const char *torch_dtype(enum dtype t) {
    return t == DTYPE_BF16 ? "bfloat16" : t == DTYPE_FP16 ? "float16" : "float32";
}

// ---- DeepSpeed ----------------------------------------------------------------------------------

static void add_offload(const struct recipe *r, cJSON *zero) {
    if (r->offload_optimizer != OFFLOAD_NONE) {
        cJSON *o = json_add_object(zero, "offload_optimizer");
        json_add_string(o, "device", offload_names[r->offload_optimizer]);
        json_add_bool(o, "pin_memory", r->pin_memory);
        if (r->offload_optimizer == OFFLOAD_NVME) {
            json_add_string(o, "nvme_path", "/local_nvme");
            json_add_u64(o, "buffer_count", r->nvme_buffer_count_optimizer);
            json_add_bool(o, "pipeline_read", r->pipeline_read);
            json_add_bool(o, "pipeline_write", r->pipeline_write);
        }
        if (recipe_is_stage3(r) && r->offload_ratio < 1)
            json_add_double(o, "ratio", r->offload_ratio);
        if (recipe_is_stage3(r) && r->super_offload)
            json_add_bool(o, "super_offload", true);
    }
    if (r->offload_param != OFFLOAD_NONE) {
        cJSON *o = json_add_object(zero, "offload_param");
        json_add_string(o, "device", offload_names[r->offload_param]);
        json_add_bool(o, "pin_memory", r->pin_memory);
        if (r->offload_param == OFFLOAD_NVME) {
            json_add_string(o, "nvme_path", "/local_nvme");
            json_add_u64(o, "buffer_count", r->nvme_buffer_count_param);
            json_add_u64(o, "buffer_size", r->nvme_buffer_elements_param);
            json_add_u64(o, "max_in_cpu", r->max_in_cpu_elements);
        }
    }
}

static void add_stage3(const struct recipe *r, cJSON *zero) {
    json_add_u64(zero, "sub_group_size", r->sub_group_elements);
    json_add_u64(zero, "stage3_prefetch_bucket_size", r->prefetch_bucket_elements);
    json_add_u64(zero, "stage3_param_persistence_threshold", r->persistence_elements);
    if (r->model_persistence_elements != INT64_MAX)
        json_add_u64(zero, "stage3_model_persistence_threshold", r->model_persistence_elements);
    json_add_u64(zero, "stage3_max_live_parameters", r->max_live_elements);
    json_add_u64(zero, "stage3_max_reuse_distance", r->max_reuse_elements);
    json_add_bool(zero, "stage3_gather_16bit_weights_on_model_save", r->gather_16bit_on_save);
    if (r->allgather_sequential)
        json_add_bool(zero, "stage3_allgather_sequential", true);
    if (r->all_reduce_for_fetch)
        json_add_bool(zero, "stage3_use_all_reduce_for_fetch_params", true);
    if (r->strategy == STRATEGY_MICS)
        json_add_u64(zero, "mics_shard_size", r->shard_group);
    if (r->strategy != STRATEGY_ZEROPP)
        return;
    if (r->hpz)
        json_add_u64(zero, "zero_hpz_partition_size", r->shard_group);
    json_add_bool(zero, "zero_quantized_weights", r->quantized_weights);
    json_add_bool(zero, "zero_quantized_gradients", r->quantized_gradients);
}

static void add_zero(const struct recipe *r, cJSON *root) {
    cJSON *zero = json_add_object(root, "zero_optimization");
    int stage = recipe_is_stage3(r) ? 3 : r->strategy == STRATEGY_ZERO2 ? 2 : 1;
    json_add_u64(zero, "stage", (uint64_t)stage);
    json_add_bool(zero, "contiguous_gradients", r->contiguous_gradients);
    json_add_bool(zero, "reduce_scatter", r->reduce_scatter);
    json_add_u64(zero, "reduce_bucket_size", r->reduce_bucket_elements);
    if (r->overlap_comm != OVERLAP_DEFAULT)
        json_add_bool(zero, "overlap_comm", r->overlap_comm == OVERLAP_ON);
    if (stage < 3 && !r->multi_rank_bucket)
        json_add_bool(zero, "use_multi_rank_bucket_allreduce", false);
    if (stage < 3 && r->round_robin_gradients)
        json_add_bool(zero, "round_robin_gradients", true);
    add_offload(r, zero);
    if (stage == 3)
        add_stage3(r, zero);
}

static void add_engine(const struct recipe *r, cJSON *root) {
    bool fp16 = r->precision == PRECISION_FP16_MIXED;
    if (r->precision == PRECISION_FP32)
        return;
    if (r->precision == PRECISION_AMP_BF16) {
        cJSON *o = json_add_object(root, "torch_autocast");
        json_add_bool(o, "enabled", true);
        json_add_string(o, "dtype", "bfloat16");
        return;
    }
    cJSON *o = json_add_object(root, fp16 ? "fp16" : "bf16");
    json_add_bool(o, "enabled", true);
    if (fp16)
        return;
    if (r->bf16_master_weights_and_grads)
        json_add_bool(o, "bf16_master_weights_and_grads", true);
    if (r->bf16_optimizer_states)
        json_add_bool(o, "bf16_optimizer_states", true);
}

static cJSON *deepspeed_json(const struct recipe *r) {
    cJSON *root = cJSON_CreateObject();
    json_add_u64(root, "train_batch_size", r->global_batch);
    json_add_u64(root, "train_micro_batch_size_per_gpu", r->micro_batch);
    json_add_u64(root, "gradient_accumulation_steps", r->grad_accum);
    json_add_double(root, "gradient_clipping", r->clip);
    add_engine(r, root);
    if (r->reduce_dtype_given)
        json_add_string(root, "communication_data_type", dtype_name(r->reduce_dtype));
    if (r->grad_accum_dtype_given)
        json_add_string(json_add_object(root, "data_types"), "grad_accum_dtype",
                        dtype_name(r->grad_accum_dtype));
    if (r->optimizer == OPTIMIZER_SGD || r->optimizer == OPTIMIZER_MUON)
        json_add_string(json_add_object(root, "optimizer"), "type",
                        r->optimizer == OPTIMIZER_SGD ? "SGD" : "Muon");
    else if (r->optimizer != OPTIMIZER_ADAMW)
        json_add_bool(root, "zero_allow_untested_optimizer", true);
    add_zero(r, root);
    if (r->offload_optimizer == OFFLOAD_NVME || r->offload_param == OFFLOAD_NVME) {
        cJSON *aio = json_add_object(root, "aio");
        json_add_u64(aio, "block_size", r->aio_block_bytes);
        json_add_u64(aio, "queue_depth", r->aio_queue_depth);
        json_add_u64(aio, "intra_op_parallelism", r->aio_threads);
    }
    return root;
}

// ---- fully_shard --------------------------------------------------------------------------------

static cJSON *fsdp2_json(const struct recipe *r) {
    cJSON *root = cJSON_CreateObject(), *shard = json_add_object(root, "fully_shard");
    if (r->strategy == STRATEGY_FSDP2_RESHARD)
        json_add_u64(shard, "reshard_after_forward", r->reshard_group);
    else
        json_add_bool(shard, "reshard_after_forward", r->strategy != STRATEGY_FSDP2_NORESHARD);
    if (r->param_dtype != r->compute_dtype && r->precision != PRECISION_AMP_BF16) {
        cJSON *policy = json_add_object(shard, "mp_policy");
        json_add_string(policy, "param_dtype", torch_dtype(recipe_gather_dtype(r)));
        json_add_string(policy, "reduce_dtype", torch_dtype(r->reduce_dtype));
    } else {
        json_add_null(shard, "mp_policy");
    }
    if (r->offload_param == OFFLOAD_CPU)
        json_add_bool(json_add_object(shard, "offload_policy"), "pin_memory", r->pin_memory);
    else
        json_add_null(shard, "offload_policy");
    cJSON *mesh = json_add_object(root, "mesh");
    json_add_u64(mesh, "replicate", r->replica_group);
    json_add_u64(mesh, "shard", r->shard_group);
    return root;
}

// ---- text formats -------------------------------------------------------------------------------

struct text {
    struct arena *a;
    char *s;
};

static void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *t, const char *format, ...) {
    char line[512];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    assert(n >= 0 && (size_t)n < sizeof line);
    (void)n;
    t->s = arena_printf(t->a, "%s%s\n", t->s, line);
}

static const char *yes_no(bool b) {
    return b ? "true" : "false";
}

static void put_accelerate_fsdp(struct text *t, const struct recipe *r) {
    static const char *const sharding[STRATEGY_COUNT] = {
        [STRATEGY_FSDP1] = "FULL_SHARD",
        [STRATEGY_FSDP1_GRAD_OP] = "SHARD_GRAD_OP",
        [STRATEGY_FSDP1_NOSHARD] = "NO_SHARD",
        [STRATEGY_FSDP1_HYBRID] = "HYBRID_SHARD",
        [STRATEGY_FSDP1_HYBRID_ZERO2] = "HYBRID_SHARD_ZERO2",
    };
    static const char *const prefetch[] = {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"};
    static const char *const wrap[] = {"TRANSFORMER_BASED_WRAP", "NO_WRAP", "SIZE_BASED_WRAP"};
    bool two = recipe_is_fsdp2(r);
    put(t, "fsdp_config:");
    put(t, "  fsdp_version: %d", two ? 2 : 1);
    if (two) {
        put(t, "  fsdp_reshard_after_forward: %s", yes_no(r->strategy != STRATEGY_FSDP2_NORESHARD));
    } else {
        put(t, "  fsdp_sharding_strategy: %s", sharding[r->strategy]);
        put(t, "  fsdp_backward_prefetch: %s", prefetch[r->backward_prefetch]);
        put(t, "  fsdp_forward_prefetch: %s", yes_no(r->forward_prefetch));
        put(t, "  fsdp_use_orig_params: %s", yes_no(r->use_orig_params));
        put(t, "  fsdp_sync_module_states: %s", yes_no(r->sync_module_states));
    }
    put(t, "  fsdp_auto_wrap_policy: %s", wrap[r->wrap]);
    if (r->wrap == WRAP_SIZE)
        put(t, "  fsdp_min_num_params: %llu", (unsigned long long)r->wrap_parameters);
    put(t, "  fsdp_state_dict_type: %s",
        r->full_state_dict ? "FULL_STATE_DICT" : "SHARDED_STATE_DICT");
    put(t, "  fsdp_offload_params: %s", yes_no(r->offload_param == OFFLOAD_CPU));
    put(t, "  fsdp_cpu_ram_efficient_loading: %s", yes_no(r->cpu_ram_efficient_loading));
    put(t, "  fsdp_activation_checkpointing: %s", yes_no(r->recompute == RECOMPUTE_FULL));
    if (r->activation_offload)
        put(t, "  fsdp_activation_checkpointing_offload: true");
    if (r->strategy != STRATEGY_HSDP)
        return;
    put(t, "parallelism_config:");
    put(t, "  parallelism_config_dp_replicate_size: %llu", (unsigned long long)r->replica_group);
    put(t, "  parallelism_config_dp_shard_size: %llu", (unsigned long long)r->shard_group);
}

static void put_accelerate_deepspeed(struct text *t, const struct recipe *r) {
    put(t, "deepspeed_config:");
    put(t, "  zero_stage: %d", recipe_is_stage3(r) ? 3 : r->strategy == STRATEGY_ZERO2 ? 2 : 1);
    put(t, "  gradient_accumulation_steps: %llu", (unsigned long long)r->grad_accum);
    put(t, "  gradient_clipping: %.12g", r->clip);
    put(t, "  offload_optimizer_device: %s", offload_names[r->offload_optimizer]);
    put(t, "  offload_param_device: %s", offload_names[r->offload_param]);
    if (!recipe_is_stage3(r))
        return;
    put(t, "  zero3_init_flag: %s", yes_no(r->zero_init));
    put(t, "  zero3_save_16bit_model: %s", yes_no(r->gather_16bit_on_save));
}

static char *accelerate_text(const struct emit_config *q) {
    const struct recipe *r = q->recipe;
    struct text t = {q->arena, arena_strdup(q->arena, "")};
    static const char *const precision[PRECISION_COUNT] = {
        [PRECISION_FP32] = "'no'",       [PRECISION_BF16_PURE] = "'no'",
        [PRECISION_BF16_MIXED] = "bf16", [PRECISION_FP16_MIXED] = "fp16",
        [PRECISION_AMP_BF16] = "bf16",   [PRECISION_FP8] = "fp8",
    };
    bool deepspeed = recipe_is_deepspeed(r), ddp = r->framework == FRAMEWORK_DDP;
    put(&t, "compute_environment: LOCAL_MACHINE");
    put(&t, "distributed_type: %s", deepspeed ? "DEEPSPEED" : ddp ? "MULTI_GPU" : "FSDP");
    if (deepspeed)
        put_accelerate_deepspeed(&t, r);
    else if (!ddp)
        put_accelerate_fsdp(&t, r);
    put(&t, "machine_rank: 0");
    put(&t, "main_training_function: main");
    put(&t, "mixed_precision: %s", precision[r->precision]);
    put(&t, "num_machines: %llu", (unsigned long long)q->cluster->nodes);
    put(&t, "num_processes: %llu", (unsigned long long)r->world);
    put(&t, "rdzv_backend: static");
    put(&t, "same_network: true");
    return t.s;
}

static void put_titan_parallelism(struct text *t, const struct recipe *r) {
    put(t, "[parallelism]");
    put(t, "data_parallel_replicate_degree = %llu", (unsigned long long)r->replica_group);
    // torchtitan multiplies it by the context ways to get the ranks it shards over.
    put(t, "data_parallel_shard_degree = %llu", (unsigned long long)(r->shard_group / r->cp));
    put(t, "fsdp_reshard_after_forward = \"%s\"",
        r->strategy == STRATEGY_FSDP2_NORESHARD ? "never"
        : r->reshard_root                       ? "always"
                                                : "default");
    put(t, "tensor_parallel_degree = %llu", (unsigned long long)r->tp);
    put(t, "context_parallel_degree = %llu", (unsigned long long)r->cp);
    put(t, "pipeline_parallel_degree = %llu", (unsigned long long)r->pp);
    if (r->ep > 1)
        put(t, "expert_parallel_degree = %llu", (unsigned long long)r->ep);
    put(t, "%s", "");
}

static char *torchtitan_text(const struct emit_config *q) {
    const struct recipe *r = q->recipe;
    struct text t = {q->arena, arena_strdup(q->arena, "")};
    put(&t, "[training]");
    put(&t, "local_batch_size = %llu", (unsigned long long)r->micro_batch);
    put(&t, "global_batch_size = %llu", (unsigned long long)r->global_batch);
    put(&t, "seq_len = %llu", (unsigned long long)r->seq);
    put(&t, "max_norm = %.12g", r->clip);
    put(&t, "dtype = \"%s\"", r->param_dtype == DTYPE_BF16 ? "bfloat16" : "float32");
    if (r->param_dtype == DTYPE_FP32) {
        bool autocast = r->precision == PRECISION_AMP_BF16;
        put(&t, "mixed_precision_param = \"%s\"",
            torch_dtype(autocast ? DTYPE_FP32 : recipe_gather_dtype(r)));
    }
    put(&t, "mixed_precision_reduce = \"%s\"", torch_dtype(r->reduce_dtype));
    put(&t, "enable_cpu_offload = %s\n", yes_no(r->offload_param == OFFLOAD_CPU));
    put_titan_parallelism(&t, r);
    put(&t, "[activation_checkpoint]");
    bool every = r->recompute == RECOMPUTE_EVERY_N;
    put(&t, "mode = \"%s\"",
        r->recompute == RECOMPUTE_FULL                    ? "full"
        : every || r->recompute == RECOMPUTE_SELECTIVE_OP ? "selective"
                                                          : "none");
    if (every)
        put(&t, "selective_ac_option = \"%llu\"", (unsigned long long)r->recompute_every);
    else if (r->recompute == RECOMPUTE_SELECTIVE_OP)
        put(&t, "selective_ac_option = \"op\"");
    put(&t, "\n[optimizer]\nname = \"AdamW\"");
    put(&t, "implementation = \"%s\"\n",
        r->optimizer_fused     ? "fused"
        : r->optimizer_foreach ? "foreach"
                               : "for-loop");
    put(&t, "[compile]\nenable = %s", yes_no(r->compile));
    return t.s;
}

// ---- what the format has no key for -------------------------------------------------------------

static bool is_json(enum config_kind k) {
    return k == CONFIG_DEEPSPEED || k == CONFIG_FSDP2;
}

static bool parse_back(const struct emit_config *q, const char *text, struct recipe *out,
                       struct err *e) {
    struct config_text t = {"emitted configuration", text, strlen(text)};
    struct config_context x = {.arena = q->arena, .model = q->model};
    struct recipe r;
    if (!recipe_parse_config(q->kind, &t, &x, &r, e) ||
        !recipe_resolve(&r, q->model, q->cluster, e))
        return false;
    *out = r;
    return true;
}

// Adds the fields in which `back` differs; returns how many.
static size_t add_missing(const struct emit_config *q, const struct recipe *back, cJSON *own) {
    size_t count = 0;
    for (size_t i = 0; i < recipe_field_count; i++) {
        const struct recipe_field *f = &recipe_fields[i];
        const char *want = recipe_field_text(q->recipe, f, q->arena);
        if (f->derived || cJSON_HasObjectItem(own, f->name) ||
            strcmp(want, recipe_field_text(back, f, q->arena)) == 0)
            continue;
        json_add_string(own, f->name, want);
        count++;
    }
    return count;
}

static const char *with_fields(const struct emit_config *q, cJSON *root, const char *text,
                               cJSON *own) {
    if (root != NULL) {
        cJSON_DeleteItemFromObject(root, "_shardplan");
        if (own->child != NULL)
            cJSON_AddItemToObject(root, "_shardplan", cJSON_Duplicate(own, true));
        char *json = json_to_text(root);
        const char *out = arena_strdup(q->arena, json);
        free(json);
        return out;
    }
    if (own->child != NULL)
        text = arena_printf(q->arena,
                            "%s\n# This format has no key for the following; they are "
                            "settings of the training script.\n",
                            text);
    for (const cJSON *at = own->child; at != NULL; at = at->next)
        text = arena_printf(q->arena, "%s# shardplan: recipe.%s=%s\n", text, at->string,
                            at->valuestring);
    return text;
}

bool emit_config_text(const struct emit_config *q, const char **out, struct err *e) {
    const char *result = NULL;
    const char *kind = config_kind_names[q->kind], *text = NULL;
    cJSON *root = NULL, *own = NULL;
    struct recipe back;
    size_t added = 0;
    bool ok = false;
    if (!can_state(q->kind, q->recipe->strategy))
        return err_set(e, ERR_USAGE, "emit %s: this format can't state %s; use emit %s", kind,
                       strategy_names[q->recipe->strategy], better_kind(q->recipe));
    if (is_json(q->kind))
        root = q->kind == CONFIG_DEEPSPEED ? deepspeed_json(q->recipe) : fsdp2_json(q->recipe);
    else
        text = q->kind == CONFIG_ACCELERATE ? accelerate_text(q) : torchtitan_text(q);
    own = cJSON_CreateObject();
    result = with_fields(q, root, text, own);
    // A field left beside the format can change the default of another: two or three rounds.
    do {
        if (!parse_back(q, result, &back, e))
            goto fail;
        added = add_missing(q, &back, own);
        if (added > 0)
            result = with_fields(q, root, text, own);
    } while (added > 0);
    const struct recipe_field *f = recipe_field_difference(q->recipe, &back);
    ok = f == NULL || err_set(e, ERR_INPUT, "emit %s: recipe.%s = %s does not survive reading back",
                              kind, f->name, recipe_field_text(q->recipe, f, q->arena));
    if (ok)
        *out = result;
fail:
    cJSON_Delete(own);
    cJSON_Delete(root);
    return ok;
}
