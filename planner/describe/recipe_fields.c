// SPDX-License-Identifier: Apache-2.0
#include "describe/recipe_fields.h"

#include "base/units.h"

#include <string.h>
#include <strings.h>

#define AT(field) offsetof(struct recipe, field)
#define GIVEN(field) .given_offset = AT(field)
#define ALONE .given_offset = SIZE_MAX
#define CHOICE(field, table, text)                                                                 \
    { #field, FIELD_CHOICE, AT(field), table, sizeof table / sizeof table[0], ALONE, .help = text }
#define COUNT(field, text)                                                                         \
    { #field, FIELD_COUNT, AT(field), ALONE, .help = text }
#define BYTES(field, text)                                                                         \
    { #field, FIELD_BYTES, AT(field), ALONE, .help = text }
#define NUMBER(field, text)                                                                        \
    { #field, FIELD_NUMBER, AT(field), ALONE, .help = text }
#define SWITCH(field, text)                                                                        \
    { #field, FIELD_BOOL, AT(field), ALONE, .help = text }
#define TEXT(field, text)                                                                          \
    { #field, FIELD_TEXT, AT(field), ALONE, .help = text }
#define DERIVED(field, kind, text)                                                                 \
    { #field, kind, AT(field), .derived = true, ALONE, .help = text }

const struct recipe_field recipe_fields[] = {
    CHOICE(strategy, strategy_names, "sharding strategy"),
    {"framework", FIELD_CHOICE, AT(framework), framework_names, FRAMEWORK_COUNT, .derived = true,
     ALONE, .help = "follows from strategy"},
    TEXT(framework_version, "deepspeed-X.Y.Z or torch-X.Y"),
    CHOICE(stack, stack_names, "kernel stack"),
    DERIVED(megatron_optimizer, FIELD_BOOL,
            "Megatron's distributed optimizer: stack megatron with zero1"),
    DERIVED(world, FIELD_COUNT, "data-parallel ranks, with the context ranks"),
    COUNT(shard_group, "GPUs that share one copy of the states (hsdp, mics, zero++, hybrid)"),
    DERIVED(replica_group, FIELD_COUNT, "copies of the states"),
    COUNT(reshard_group, "K of fsdp2-reshard=K"),
    COUNT(tp, "tensor-parallel size"),
    COUNT(cp, "context-parallel size"),
    COUNT(pp, "pipeline stages"),
    COUNT(virtual_stages, "pieces of each pipeline stage (interleaved 1F1B)"),
    COUNT(ep, "expert-parallel size"),
    CHOICE(wrap, wrap_names, "what one FSDP unit holds"),
    COUNT(wrap_parameters, "wrap size: parameters per unit"),
    COUNT(seq, "tokens per sequence"),
    COUNT(micro_batch, "sequences per GPU and micro-step; 0 = derived"),
    COUNT(grad_accum, "micro-steps per optimizer step; 0 = derived"),
    COUNT(global_batch, "sequences per optimizer step; 0 = derived"),
    NUMBER(tokens, "length of training in tokens; 0 = not asked"),
    SWITCH(no_sync, "accumulate gradients without communication"),
    CHOICE(precision, precision_names, "precision scheme; the types below follow from it"),
    DERIVED(param_dtype, FIELD_DTYPE, "stored parameters"),
    DERIVED(compute_dtype, FIELD_DTYPE, "matmul inputs"),
    DERIVED(grad_dtype, FIELD_DTYPE, "gradients as left for the optimizer"),
    {"reduce_dtype", FIELD_DTYPE, AT(reduce_dtype), GIVEN(reduce_dtype_given),
     .help = "type gradients are reduced in"},
    DERIVED(master_dtype, FIELD_DTYPE, "separate master copy"),
    DERIVED(state_dtype, FIELD_DTYPE, "optimizer states"),
    DERIVED(has_master, FIELD_BOOL, "a separate master copy exists"),
    CHOICE(optimizer, optimizer_names, "optimizer"),
    SWITCH(optimizer_fused, "fused optimizer kernels"),
    SWITCH(optimizer_foreach, "torch foreach optimizer (a temporary as large as one state)"),
    NUMBER(clip, "gradient norm limit; 0 = off"),
    CHOICE(recompute, recompute_names, "activation recomputation"),
    COUNT(recompute_every, "N of every-N"),
    CHOICE(attention, attention_names, "attention kernel"),
    CHOICE(loss, loss_names, "loss head"),
    SWITCH(compile, "torch.compile"),
    SWITCH(embedding_group, "FSDP2: embedding and head are groups of their own (torchtitan)"),
    SWITCH(loss_eager, "compiled model with an eager cross-entropy"),
    SWITCH(tp_without_sequence_parallel, "norms and residuals are not split over tp"),
    SWITCH(expandable_segments, "the allocator grows segments (expandable_segments:True)"),
    SWITCH(activation_offload, "saved activations go to host memory"),
    CHOICE(offload_optimizer, offload_names, "where optimizer states live"),
    CHOICE(offload_param, offload_names, "where parameters live"),
    SWITCH(pin_memory, "page-locked host buffers"),
    NUMBER(offload_ratio, "Twin-Flow: share of the optimizer on the CPU"),
    SWITCH(super_offload, "DeepSpeed SuperOffload"),
    CHOICE(adam_software, adam_software_names, "whose CPU Adam"),
    SWITCH(pipeline_read, "NVMe optimizer swapper reads ahead"),
    SWITCH(pipeline_write, "NVMe optimizer swapper writes behind"),
    COUNT(nvme_buffer_count_optimizer, "offload_optimizer.buffer_count"),
    COUNT(nvme_buffer_count_param, "offload_param.buffer_count"),
    COUNT(nvme_buffer_elements_param, "offload_param.buffer_size, elements"),
    COUNT(max_in_cpu_elements, "offload_param.max_in_cpu, elements"),
    BYTES(aio_block_bytes, "aio.block_size"),
    COUNT(aio_queue_depth, "aio.queue_depth"),
    COUNT(aio_threads, "aio.intra_op_parallelism"),
    COUNT(reduce_bucket_elements, "reduce_bucket_size, elements"),
    COUNT(prefetch_bucket_elements, "stage3_prefetch_bucket_size, elements"),
    COUNT(max_live_elements, "stage3_max_live_parameters, elements"),
    COUNT(max_reuse_elements, "stage3_max_reuse_distance, elements"),
    COUNT(persistence_elements, "stage3_param_persistence_threshold, elements"),
    COUNT(model_persistence_elements, "stage3_model_persistence_threshold, elements"),
    COUNT(sub_group_elements, "sub_group_size, elements of one rank's partition"),
    CHOICE(overlap_comm, overlap_names, "overlap_comm; default is on for stage 3 only"),
    SWITCH(contiguous_gradients, "contiguous_gradients"),
    SWITCH(reduce_scatter, "reduce_scatter"),
    SWITCH(multi_rank_bucket, "use_multi_rank_bucket_allreduce"),
    SWITCH(round_robin_gradients, "round_robin_gradients"),
    SWITCH(allgather_sequential, "stage3_allgather_sequential"),
    SWITCH(all_reduce_for_fetch, "stage3_use_all_reduce_for_fetch_params"),
    SWITCH(gather_16bit_on_save, "stage3_gather_16bit_weights_on_model_save"),
    {"zero_init", FIELD_BOOL, AT(zero_init), GIVEN(zero_init_given),
     .help = "model is built under zero.Init"},
    {"grad_accum_dtype", FIELD_DTYPE, AT(grad_accum_dtype), GIVEN(grad_accum_dtype_given),
     .help = "data_types.grad_accum_dtype"},
    SWITCH(bf16_optimizer_states, "bf16.bf16_optimizer_states"),
    SWITCH(bf16_master_weights_and_grads, "bf16.bf16_master_weights_and_grads"),
    SWITCH(quantized_weights, "zero_quantized_weights (qwZ)"),
    SWITCH(quantized_gradients, "zero_quantized_gradients (qgZ)"),
    SWITCH(hpz, "secondary shard per node (hpZ)"),
    BYTES(ddp_bucket_bytes, "DDP bucket_cap_mb"),
    BYTES(ddp_first_bucket_bytes, "DDP first bucket"),
    SWITCH(gradient_as_bucket_view, "DDP gradients alias the buckets"),
    SWITCH(find_unused_parameters, "DDP find_unused_parameters"),
    SWITCH(static_graph, "DDP static_graph"),
    SWITCH(limit_all_gathers, "FSDP1 limit_all_gathers"),
    SWITCH(forward_prefetch, "FSDP1 forward_prefetch"),
    SWITCH(use_orig_params, "FSDP1 use_orig_params"),
    SWITCH(reshard_root, "FSDP2 reshards the root unit too"),
    CHOICE(backward_prefetch, prefetch_names, "FSDP1 backward_prefetch"),
    SWITCH(cpu_ram_efficient_loading, "only rank 0 of a node loads the weights"),
    SWITCH(sync_module_states, "FSDP1 sync_module_states"),
    SWITCH(meta_init, "model is built on the meta device"),
    SWITCH(full_state_dict, "checkpoints gather the whole model"),
    COUNT(lora_rank, "LoRA rank; 0 = off"),
    TEXT(lora_targets, "LoRA module names, comma-separated; none = all linear layers"),
    SWITCH(base_4bit, "frozen base in 4 bit (QLoRA)"),
    NUMBER(frozen_fraction, "share of parameters frozen without LoRA"),
};
const size_t recipe_field_count = sizeof recipe_fields / sizeof recipe_fields[0];

const struct recipe_field *recipe_field_find(const char *path) {
    const char *prefix = "recipe.";
    if (strncmp(path, prefix, strlen(prefix)) == 0)
        path += strlen(prefix);
    for (size_t i = 0; i < recipe_field_count; i++)
        if (strcmp(recipe_fields[i].name, path) == 0)
            return &recipe_fields[i];
    return NULL;
}

static bool unknown_path(const char *path, struct err *e) {
    const char *names[sizeof recipe_fields / sizeof recipe_fields[0]];
    for (size_t i = 0; i < recipe_field_count; i++)
        names[i] = recipe_fields[i].name;
    const char *bare = strncmp(path, "recipe.", 7) == 0 ? path + 7 : path;
    const char *near = kinds_nearest(names, recipe_field_count, bare);
    if (near == NULL)
        return err_set(e, ERR_USAGE, "--set %s: no such recipe field (docs/formats.md lists them)",
                       path);
    return err_set(e, ERR_USAGE, "--set %s: no such recipe field; did you mean 'recipe.%s'?", path,
                   near);
}

static bool parse_bool(const char *value, bool *out) {
    static const char *const yes[] = {"true", "on", "yes", "1"};
    static const char *const no[] = {"false", "off", "no", "0"};
    if (kinds_find(yes, 4, value) >= 0)
        *out = true;
    else if (kinds_find(no, 4, value) >= 0)
        *out = false;
    else
        return false;
    return true;
}

static bool set_choice(void *at, const struct recipe_field *f, const char *value, struct err *e) {
    int found = kinds_find(f->names, f->name_count, value);
    if (found < 0) {
        const char *near = kinds_nearest(f->names, f->name_count, value);
        return err_set(e, ERR_USAGE, "recipe.%s: unknown value '%s'%s%s%s", f->name, value,
                       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    *(unsigned *)at = (unsigned)found;
    return true;
}

static bool set_dtype(void *at, const struct recipe_field *f, const char *value, struct err *e) {
    enum dtype t;
    if (!dtype_find(value, &t))
        return err_set(e, ERR_USAGE, "recipe.%s: '%s' is not a type (fp32, bf16, fp16)", f->name,
                       value);
    *(enum dtype *)at = t;
    return true;
}

static bool set_value(void *at, const struct recipe_field *f, const char *value, struct arena *a,
                      struct err *e) {
    bool ok = true;
    switch (f->type) {
    case FIELD_BOOL:
        if (!parse_bool(value, at))
            return err_set(e, ERR_USAGE, "recipe.%s: '%s' is neither true nor false", f->name,
                           value);
        break;
    case FIELD_COUNT:
        ok = units_parse_count(value, at, e);
        break;
    case FIELD_BYTES:
        ok = units_parse_bytes(value, at, e);
        break;
    case FIELD_NUMBER:
        ok = units_parse_double(value, at, e);
        break;
    case FIELD_TEXT:
        *(const char **)at = strcasecmp(value, "none") == 0 ? NULL : arena_strdup(a, value);
        break;
    case FIELD_CHOICE:
        return set_choice(at, f, value, e);
    case FIELD_DTYPE:
        return set_dtype(at, f, value, e);
    }
    if (!ok)
        err_note(e, "recipe.%s", f->name);
    return ok;
}

bool recipe_field_set(struct recipe *r, const char *path, const char *value, struct arena *a,
                      struct err *e) {
    const struct recipe_field *f = recipe_field_find(path);
    if (f == NULL)
        return unknown_path(path, e);
    if (f->derived)
        return err_set(e, ERR_USAGE, "recipe.%s is derived (%s); it can't be set", f->name,
                       f->help);
    if (!set_value((char *)r + f->offset, f, value, a, e))
        return false;
    r->framework = recipe_framework(r->strategy);
    if (f->given_offset != SIZE_MAX)
        *(bool *)((char *)r + f->given_offset) = true;
    return true;
}

const char *recipe_field_text(const struct recipe *r, const struct recipe_field *f,
                              struct arena *a) {
    const void *at = (const char *)r + f->offset;
    switch (f->type) {
    case FIELD_BOOL:
        return *(const bool *)at ? "true" : "false";
    case FIELD_COUNT:
    case FIELD_BYTES:
        return arena_printf(a, "%llu", (unsigned long long)*(const uint64_t *)at);
    case FIELD_NUMBER:
        return arena_printf(a, "%.12g", *(const double *)at);
    case FIELD_TEXT:
        return *(const char *const *)at ? *(const char *const *)at : "none";
    case FIELD_CHOICE:
        return f->names[*(const unsigned *)at];
    case FIELD_DTYPE:
        return dtype_name(*(const enum dtype *)at);
    }
    return "";
}

void recipe_fields_add_json(const struct recipe *r, cJSON *object) {
    for (size_t i = 0; i < recipe_field_count; i++) {
        const struct recipe_field *f = &recipe_fields[i];
        const void *at = (const char *)r + f->offset;
        switch (f->type) {
        case FIELD_BOOL:
            json_add_bool(object, f->name, *(const bool *)at);
            break;
        case FIELD_COUNT:
        case FIELD_BYTES:
            json_add_u64(object, f->name, *(const uint64_t *)at);
            break;
        case FIELD_NUMBER:
            json_add_double(object, f->name, *(const double *)at);
            break;
        case FIELD_TEXT:
            json_add_string(object, f->name, *(const char *const *)at);
            break;
        case FIELD_CHOICE:
            json_add_string(object, f->name, f->names[*(const unsigned *)at]);
            break;
        case FIELD_DTYPE:
            json_add_string(object, f->name, dtype_name(*(const enum dtype *)at));
            break;
        }
    }
}

static bool same_value(const void *x, const void *y, enum recipe_field_type type) {
    const char *const *s = x, *const *t = y;
    switch (type) {
    case FIELD_BOOL:
        return *(const bool *)x == *(const bool *)y;
    case FIELD_COUNT:
    case FIELD_BYTES:
        return *(const uint64_t *)x == *(const uint64_t *)y;
    case FIELD_NUMBER:
        return *(const double *)x == *(const double *)y;
    case FIELD_TEXT:
        return *s == *t || (*s && *t && strcmp(*s, *t) == 0);
    case FIELD_CHOICE:
    case FIELD_DTYPE:
        return *(const unsigned *)x == *(const unsigned *)y;
    }
    return false;
}

const struct recipe_field *recipe_field_difference(const struct recipe *x, const struct recipe *y) {
    for (size_t i = 0; i < recipe_field_count; i++) {
        const struct recipe_field *f = &recipe_fields[i];
        if (!f->derived &&
            !same_value((const char *)x + f->offset, (const char *)y + f->offset, f->type))
            return f;
    }
    return NULL;
}
