// SPDX-License-Identifier: Apache-2.0
#include "describe/recipe.h"

#include "base/units.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *const strategy_names[STRATEGY_COUNT] = {
    [STRATEGY_DDP] = "ddp",
    [STRATEGY_ZERO1] = "zero1",
    [STRATEGY_ZERO2] = "zero2",
    [STRATEGY_ZERO3] = "zero3",
    [STRATEGY_FSDP1] = "fsdp1",
    [STRATEGY_FSDP2] = "fsdp2",
    [STRATEGY_HSDP] = "hsdp",
    [STRATEGY_FSDP1_GRAD_OP] = "fsdp1-grad-op",
    [STRATEGY_FSDP1_NOSHARD] = "fsdp1-noshard",
    [STRATEGY_FSDP1_HYBRID] = "fsdp1-hybrid",
    [STRATEGY_FSDP1_HYBRID_ZERO2] = "fsdp1-hybrid-zero2",
    [STRATEGY_FSDP2_NORESHARD] = "fsdp2-noreshard",
    [STRATEGY_FSDP2_RESHARD] = "fsdp2-reshard",
    [STRATEGY_MICS] = "mics",
    [STRATEGY_ZEROPP] = "zero++",
};
const char *const precision_names[PRECISION_COUNT] = {
    [PRECISION_FP32] = "fp32",
    [PRECISION_BF16_PURE] = "bf16-pure",
    [PRECISION_BF16_MIXED] = "bf16-mixed",
    [PRECISION_FP16_MIXED] = "fp16-mixed",
    [PRECISION_AMP_BF16] = "amp-bf16",
    [PRECISION_FP8] = "fp8",
};
const char *const optimizer_names[OPTIMIZER_COUNT] = {
    [OPTIMIZER_ADAMW] = "adamw",         [OPTIMIZER_ADAMW_BF16] = "adamw-bf16",
    [OPTIMIZER_ADAMW8BIT] = "adamw8bit", [OPTIMIZER_SGD] = "sgd",
    [OPTIMIZER_ADAFACTOR] = "adafactor", [OPTIMIZER_MUON] = "muon",
    [OPTIMIZER_NONE] = "none",
};
const char *const recompute_names[RECOMPUTE_COUNT] = {
    [RECOMPUTE_NONE] = "none",
    [RECOMPUTE_FULL] = "full",
    [RECOMPUTE_SELECTIVE_ATTENTION] = "selective-attention",
    [RECOMPUTE_SELECTIVE_OP] = "selective-op",
    [RECOMPUTE_EVERY_N] = "every-N",
};
const char *const attention_names[ATTENTION_COUNT] = {"flash", "math"};
const char *const loss_names[LOSS_COUNT] = {"torch", "fused", "chunked"};
const char *const offload_names[OFFLOAD_COUNT] = {"none", "cpu", "nvme"};
const char *const framework_names[FRAMEWORK_COUNT] = {"ddp", "fsdp1", "fsdp2", "deepspeed"};
const char *const stack_names[STACK_COUNT] = {"eager", "compiled", "megatron"};
const char *const adam_software_names[ADAM_SOFTWARE_COUNT] = {"own", "deepspeed", "torch"};
const char *const wrap_names[WRAP_COUNT] = {"block", "model", "size"};
const char *const prefetch_names[PREFETCH_COUNT] = {"backward-pre", "backward-post", "none"};
const char *const overlap_names[OVERLAP_OFF + 1] = {"default", "on", "off"};

enum framework recipe_framework(enum strategy s) {
    switch (s) {
    case STRATEGY_DDP:
        return FRAMEWORK_DDP;
    case STRATEGY_FSDP1:
    case STRATEGY_FSDP1_GRAD_OP:
    case STRATEGY_FSDP1_NOSHARD:
    case STRATEGY_FSDP1_HYBRID:
    case STRATEGY_FSDP1_HYBRID_ZERO2:
        return FRAMEWORK_FSDP1;
    case STRATEGY_FSDP2:
    case STRATEGY_HSDP:
    case STRATEGY_FSDP2_NORESHARD:
    case STRATEGY_FSDP2_RESHARD:
        return FRAMEWORK_FSDP2;
    default:
        return FRAMEWORK_DEEPSPEED;
    }
}

bool recipe_is_deepspeed(const struct recipe *r) {
    return r->framework == FRAMEWORK_DEEPSPEED;
}

bool recipe_is_fsdp1(const struct recipe *r) {
    return r->framework == FRAMEWORK_FSDP1;
}

bool recipe_is_fsdp2(const struct recipe *r) {
    return r->framework == FRAMEWORK_FSDP2;
}

bool recipe_is_stage3(const struct recipe *r) {
    return r->strategy == STRATEGY_ZERO3 || r->strategy == STRATEGY_MICS ||
           r->strategy == STRATEGY_ZEROPP;
}

bool recipe_has_shard_group(enum strategy s) {
    return s == STRATEGY_HSDP || s == STRATEGY_FSDP1_HYBRID || s == STRATEGY_FSDP1_HYBRID_ZERO2 ||
           s == STRATEGY_MICS || s == STRATEGY_ZEROPP;
}

bool recipe_gathers(const struct recipe *r) {
    if (r->strategy == STRATEGY_FSDP1_NOSHARD)
        return false;
    return recipe_is_stage3(r) || recipe_is_fsdp1(r) || recipe_is_fsdp2(r);
}

bool recipe_overlaps(const struct recipe *r) {
    if (r->overlap_comm != OVERLAP_DEFAULT)
        return r->overlap_comm == OVERLAP_ON;
    return recipe_is_stage3(r) || !recipe_is_deepspeed(r);
}

enum dtype recipe_gather_dtype(const struct recipe *r) {
    // torch autocast under FSDP gathers the fp32 weights; DeepSpeed's torch_autocast gathers the
    // lower type for the modules it lists, which are the matmul weights.
    if (r->precision == PRECISION_AMP_BF16)
        return recipe_is_deepspeed(r) ? r->compute_dtype : r->param_dtype;
    return r->precision == PRECISION_FP8 ? DTYPE_BF16 : r->compute_dtype;
}

enum dtype recipe_activation_dtype(const struct recipe *r) {
    return r->precision == PRECISION_FP8 ? DTYPE_BF16 : r->compute_dtype;
}

static void default_deepspeed(struct recipe *r) {
    r->framework_version = "deepspeed-0.19.6";
    r->adam_software = ADAM_DEEPSPEED;
    r->optimizer_fused = true;
    r->zero_init = recipe_is_stage3(r);
    if (r->strategy == STRATEGY_ZEROPP)
        r->quantized_weights = r->quantized_gradients = r->hpz = true;
}

static void default_torch(struct recipe *r) {
    r->framework_version = "torch-2.9";
    r->adam_software = ADAM_TORCH;
    r->optimizer_foreach = true;
    r->no_sync = r->framework == FRAMEWORK_DDP;
    r->meta_init = r->framework == FRAMEWORK_FSDP2;
    r->full_state_dict = r->framework == FRAMEWORK_FSDP1;
}

// Switches that only the other frameworks read keep their framework's default, so that turning
// one strategy into another needs no second table.
static void default_switches(struct recipe *r) {
    r->pin_memory = true;
    r->offload_ratio = 1;
    r->nvme_buffer_count_optimizer = 4;
    r->nvme_buffer_count_param = 5;
    r->nvme_buffer_elements_param = (uint64_t)(100 * UNITS_MEGA);
    r->max_in_cpu_elements = (uint64_t)UNITS_GIGA;
    r->aio_block_bytes = UNITS_MIB;
    r->aio_queue_depth = 8;
    r->aio_threads = 1;
    r->reduce_bucket_elements = (uint64_t)(500 * UNITS_MEGA);
    r->prefetch_bucket_elements = (uint64_t)(50 * UNITS_MEGA);
    r->max_live_elements = (uint64_t)UNITS_GIGA;
    r->max_reuse_elements = (uint64_t)UNITS_GIGA;
    r->persistence_elements = (uint64_t)(100 * UNITS_KILO);
    r->model_persistence_elements = INT64_MAX;
    r->sub_group_elements = (uint64_t)UNITS_GIGA;
    r->contiguous_gradients = r->reduce_scatter = r->multi_rank_bucket = true;
    r->ddp_bucket_bytes = 25 * UNITS_MIB;
    r->ddp_first_bucket_bytes = UNITS_MIB;
    r->limit_all_gathers = true;
    r->backward_prefetch = PREFETCH_BACKWARD_PRE;
}

void recipe_defaults(enum strategy s, struct recipe *out) {
    struct recipe r = {.strategy = s, .framework = recipe_framework(s)};
    r.tp = r.cp = r.pp = r.ep = r.virtual_stages = 1;
    r.micro_batch = r.grad_accum = 1;
    r.precision = PRECISION_BF16_MIXED;
    r.clip = 1;
    default_switches(&r);
    if (r.framework == FRAMEWORK_DEEPSPEED)
        default_deepspeed(&r);
    else
        default_torch(&r);
    *out = r;
}

bool recipe_strategy_parse(const char *text, enum strategy *out, uint64_t *reshard_group,
                           struct err *e) {
    static const char *const aliases[][2] = {
        {"zeropp", "zero++"}, {"fsdp", "fsdp2"},       {"zero-1", "zero1"},
        {"zero-2", "zero2"},  {"zero-3", "zero3"},     {"fsdp2-hsdp", "hsdp"},
        {"dp", "ddp"},        {"fsdp1-full", "fsdp1"}, {"deepspeed-zero3", "zero3"},
    };
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcasecmp(text, aliases[i][0]) == 0)
            text = aliases[i][1];
    const char *prefix = "fsdp2-reshard=";
    if (strncasecmp(text, prefix, strlen(prefix)) == 0) {
        uint64_t k = 0;
        if (!units_parse_count(text + strlen(prefix), &k, e))
            return false;
        if (k < 2)
            return err_set(e, ERR_USAGE, "strategy %s: K must be 2 or more", text);
        *out = STRATEGY_FSDP2_RESHARD;
        *reshard_group = k;
        return true;
    }
    int found = kinds_find(strategy_names, STRATEGY_COUNT, text);
    if (found == STRATEGY_FSDP2_RESHARD)
        return err_set(e, ERR_USAGE, "strategy fsdp2-reshard needs its group: fsdp2-reshard=K");
    if (found < 0) {
        const char *near = kinds_nearest(strategy_names, STRATEGY_COUNT, text);
        return err_set(e, ERR_USAGE, "unknown strategy '%s'%s%s%s", text,
                       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    *out = (enum strategy)found;
    return true;
}

// ---- types --------------------------------------------------------------------------------------

struct type_row {
    enum dtype param, compute, grad, reduce, master, state;
    bool has_master;
};

#define P32 DTYPE_FP32
#define B16 DTYPE_BF16
#define F16 DTYPE_FP16
#define F8 DTYPE_FP8
// docs/method.md §defaults. DeepSpeed and DDP keep a 16-bit copy and an fp32 master; FSDP's fp32
// shard is the parameter itself.
static const struct type_row types_deepspeed[PRECISION_COUNT] = {
    [PRECISION_FP32] = {P32, P32, P32, P32, P32, P32, false},
    [PRECISION_BF16_PURE] = {B16, B16, B16, B16, B16, B16, true},
    [PRECISION_BF16_MIXED] = {B16, B16, B16, B16, P32, P32, true},
    [PRECISION_FP16_MIXED] = {F16, F16, F16, F16, P32, P32, true},
    [PRECISION_AMP_BF16] = {P32, B16, P32, B16, P32, P32, false},
    [PRECISION_FP8] = {B16, F8, B16, B16, P32, P32, true},
};
static const struct type_row types_fsdp[PRECISION_COUNT] = {
    [PRECISION_FP32] = {P32, P32, P32, P32, P32, P32, false},
    [PRECISION_BF16_PURE] = {B16, B16, B16, P32, B16, B16, false},
    [PRECISION_BF16_MIXED] = {P32, B16, P32, P32, P32, P32, false},
    [PRECISION_FP16_MIXED] = {P32, F16, P32, P32, P32, P32, false},
    [PRECISION_AMP_BF16] = {P32, B16, P32, P32, P32, P32, false},
    [PRECISION_FP8] = {P32, F8, P32, P32, P32, P32, false},
};
static const struct type_row types_ddp[PRECISION_COUNT] = {
    [PRECISION_FP32] = {P32, P32, P32, P32, P32, P32, false},
    [PRECISION_BF16_PURE] = {B16, B16, B16, B16, B16, B16, false},
    [PRECISION_BF16_MIXED] = {B16, B16, B16, B16, P32, P32, true},
    [PRECISION_FP16_MIXED] = {F16, F16, F16, F16, P32, P32, true},
    [PRECISION_AMP_BF16] = {P32, B16, P32, P32, P32, P32, false},
    [PRECISION_FP8] = {B16, F8, B16, B16, P32, P32, true},
};

static void resolve_types(struct recipe *r) {
    const struct type_row *row = &types_ddp[r->precision];
    if (recipe_is_deepspeed(r))
        row = &types_deepspeed[r->precision];
    else if (r->framework != FRAMEWORK_DDP)
        row = &types_fsdp[r->precision];
    r->param_dtype = row->param;
    r->compute_dtype = row->compute;
    r->grad_dtype = row->grad;
    r->master_dtype = row->master;
    r->state_dtype = row->state;
    r->has_master = row->has_master;
    if (!r->reduce_dtype_given)
        r->reduce_dtype = row->reduce;
    if (recipe_is_deepspeed(r)) {
        // Stages 1 and 2, and any offload, step a copy even of fp32 parameters.
        bool copies = r->strategy == STRATEGY_ZERO1 || r->strategy == STRATEGY_ZERO2 ||
                      r->offload_optimizer != OFFLOAD_NONE;
        if (r->param_dtype == DTYPE_FP32 && copies && r->stack != STACK_MEGATRON)
            r->has_master = true;
        if (r->precision == PRECISION_BF16_PURE)
            r->bf16_master_weights_and_grads = r->bf16_optimizer_states = true;
        if (r->bf16_master_weights_and_grads && r->has_master)
            r->master_dtype = DTYPE_BF16;
        if (r->bf16_optimizer_states)
            r->state_dtype = DTYPE_BF16;
        if (!r->grad_accum_dtype_given)
            r->grad_accum_dtype = r->param_dtype;
    }
    if (r->optimizer == OPTIMIZER_ADAMW_BF16)
        r->state_dtype = DTYPE_BF16;
    else if (r->optimizer == OPTIMIZER_ADAMW8BIT)
        r->state_dtype = DTYPE_INT8;
}

// ---- groups -------------------------------------------------------------------------------------

static bool resolve_reshard(const struct recipe *r, struct err *e) {
    uint64_t k = r->reshard_group;
    if (r->strategy != STRATEGY_FSDP2_RESHARD)
        return true;
    if (k < 2 || k >= r->shard_group || r->shard_group % k != 0)
        return err_set(e, ERR_USAGE,
                       "fsdp2-reshard=%llu: K must divide the shard group of %llu GPUs and be "
                       "neither 1 nor the whole group",
                       (unsigned long long)k, (unsigned long long)r->shard_group);
    return true;
}

// The GPUs of one node that hold the same part of the model. A pipeline's stages lie one behind the
// other, so one of them may end within a node: then the most that fit both.
static uint64_t node_group(const struct recipe *r, const struct cluster *c, uint64_t world) {
    uint64_t here = world * r->pp / (c->nodes ? c->nodes : 1), rest = world;
    while (r->pp > 1 && here > 0 && rest > 0) { // greatest common divisor
        uint64_t left = here % rest;
        here = rest;
        rest = left;
    }
    return here > 0 ? here : 1;
}

static bool resolve_groups(struct recipe *r, const struct cluster *c, struct err *e) {
    const char *name = strategy_names[r->strategy];
    uint64_t world = c->gpus ? c->gpus : c->nodes * c->gpus_per_node;
    if (world == 0)
        return err_set(e, ERR_INPUT, "cluster %s has no GPU", c->name ? c->name : "?");
    world /= r->tp * r->pp; // context ranks hold the same weights and share in their states
    uint64_t shard = world;
    if (r->strategy == STRATEGY_DDP || r->strategy == STRATEGY_FSDP1_NOSHARD) {
        shard = 1;
    } else if (recipe_has_shard_group(r->strategy)) {
        shard = r->shard_group;
        if (shard == 0) {
            shard = node_group(r, c, world);
            r->shard_group_derived = true;
        }
        if (shard > world || world % shard != 0)
            return err_set(e, ERR_USAGE, "%s: shard group %llu does not divide %llu GPUs", name,
                           (unsigned long long)shard, (unsigned long long)world);
    }
    r->world = world;
    r->shard_group = shard;
    r->replica_group = world / shard;
    return resolve_reshard(r, e);
}

// ---- offload ------------------------------------------------------------------------------------

static bool resolve_offload_deepspeed(const struct recipe *r, struct err *e) {
    const char *name = strategy_names[r->strategy];
    if (r->offload_param != OFFLOAD_NONE && !recipe_is_stage3(r))
        return err_set(e, ERR_USAGE,
                       "%s: parameter offload needs ZeRO stage 3 (lower stages keep every "
                       "parameter on every GPU); drop --offload-param or use --strategy zero3",
                       name);
    if (r->offload_optimizer == OFFLOAD_NVME && !recipe_is_stage3(r))
        return err_set(e, ERR_USAGE,
                       "%s: NVMe optimizer offload needs ZeRO stage 3; use --offload-optimizer "
                       "cpu or --strategy zero3",
                       name);
    if (r->strategy == STRATEGY_MICS && r->offload_optimizer != OFFLOAD_NONE &&
        r->replica_group > 1)
        return err_set(e, ERR_USAGE,
                       "mics: optimizer offload works only with one replica group; there are %llu",
                       (unsigned long long)r->replica_group);
    if (r->strategy == STRATEGY_ZEROPP && r->hpz && r->offload_param == OFFLOAD_NVME)
        return err_set(e, ERR_USAGE,
                       "zero++: hpZ makes its secondary copy on the device of offload_param, and "
                       "torch has no device 'nvme'; use --offload-param cpu, or leave hpZ out");
    if (r->offload_ratio < 0 || r->offload_ratio > 1)
        return err_set(e, ERR_USAGE, "offload ratio %g is outside 0 to 1", r->offload_ratio);
    if (r->super_offload && (!recipe_is_stage3(r) || r->offload_optimizer != OFFLOAD_CPU))
        return err_set(e, ERR_USAGE,
                       "%s: SuperOffload needs ZeRO stage 3 with the optimizer on the CPU", name);
    if (r->bf16_master_weights_and_grads && !r->bf16_optimizer_states &&
        r->offload_optimizer == OFFLOAD_NONE)
        return err_set(e, ERR_USAGE,
                       "%s: bf16_master_weights_and_grads with fp32 optimizer states needs "
                       "--offload-optimizer cpu, or bf16_optimizer_states as well",
                       name);
    return true;
}

static bool resolve_offload(struct recipe *r, struct err *e) {
    const char *name = strategy_names[r->strategy];
    bool any = r->offload_optimizer != OFFLOAD_NONE || r->offload_param != OFFLOAD_NONE;
    if (recipe_is_deepspeed(r))
        return resolve_offload_deepspeed(r, e);
    if (!any)
        return true;
    if (r->framework == FRAMEWORK_DDP || r->strategy == STRATEGY_FSDP1_NOSHARD)
        return err_set(e, ERR_USAGE,
                       "%s: offload is not offered by this strategy; use zero2, "
                       "zero3 or fsdp2",
                       name);
    if (r->offload_optimizer == OFFLOAD_NVME || r->offload_param == OFFLOAD_NVME)
        return err_set(e, ERR_USAGE, "%s: FSDP can't offload to NVMe; use zero3", name);
    // FSDP moves parameters, gradients and optimizer together.
    r->offload_optimizer = r->offload_param = OFFLOAD_CPU;
    return true;
}

// ---- batch --------------------------------------------------------------------------------------

static bool divide_batch(uint64_t global, uint64_t by, const char *what, uint64_t *out,
                         struct err *e) {
    if (by == 0 || global % by != 0 || global < by)
        return err_set(e, ERR_USAGE, "global batch %llu is not a multiple of %s = %llu sequences",
                       (unsigned long long)global, what, (unsigned long long)by);
    *out = global / by;
    return true;
}

static bool resolve_batch(struct recipe *r, struct err *e) {
    const uint64_t ranks = r->world / r->cp; // that read batches of their own
    if (r->global_batch == 0) {
        r->micro_batch = r->micro_batch ? r->micro_batch : 1;
        r->grad_accum = r->grad_accum ? r->grad_accum : 1;
        uint64_t per_rank = 0;
        return units_mul(r->micro_batch, r->grad_accum, &per_rank, e) &&
               units_mul(per_rank, ranks, &r->global_batch, e);
    }
    uint64_t by = 0;
    if (r->grad_accum == 0) {
        r->micro_batch = r->micro_batch ? r->micro_batch : 1;
        return units_mul(r->micro_batch, ranks, &by, e) &&
               divide_batch(r->global_batch, by, "micro batch x GPUs", &r->grad_accum, e);
    }
    if (r->micro_batch == 0)
        return units_mul(r->grad_accum, ranks, &by, e) &&
               divide_batch(r->global_batch, by, "accumulation x GPUs", &r->micro_batch, e);
    if (!units_mul(r->micro_batch, r->grad_accum, &by, e) || !units_mul(by, ranks, &by, e))
        return false;
    if (by != r->global_batch)
        return err_set(e, ERR_USAGE,
                       "micro batch %llu x accumulation %llu x %llu GPUs = %llu sequences, but "
                       "the global batch is %llu",
                       (unsigned long long)r->micro_batch, (unsigned long long)r->grad_accum,
                       (unsigned long long)ranks, (unsigned long long)by,
                       (unsigned long long)r->global_batch);
    return true;
}

static bool resolve_seq(struct recipe *r, const struct model *m, struct err *e) {
    const uint64_t usual = 4096;
    if (r->seq == 0)
        r->seq = m->max_positions && m->max_positions < usual ? m->max_positions : usual;
    if (m->learned_positions && m->max_positions && r->seq > m->max_positions)
        return err_set(e, ERR_USAGE, "sequence %llu is longer than the %llu positions %s learned",
                       (unsigned long long)r->seq, (unsigned long long)m->max_positions,
                       m->name ? m->name : "the model");
    return true;
}

static bool resolve_optimizer(struct recipe *r, struct err *e) {
    if (r->optimizer != OPTIMIZER_MUON)
        return true;
    r->reduce_scatter &= !recipe_is_deepspeed(r); // which refuses the two together
    if (recipe_is_fsdp1(r))
        return err_set(e, ERR_USAGE,
                       "%s: FSDP1 hands the optimizer flat slices and Muon needs matrices; use "
                       "fsdp2 or zero3",
                       strategy_names[r->strategy]);
    if (r->offload_optimizer != OFFLOAD_NONE || r->offload_param != OFFLOAD_NONE)
        return err_set(e, ERR_USAGE,
                       "%s: Muon with offload is not modelled (its products run on the GPU); drop "
                       "the offload or use --optimizer adamw",
                       strategy_names[r->strategy]);
    return true;
}

static bool resolve_kernel(struct recipe *r, const struct model *m, const struct cluster *c,
                           struct err *e) {
    if (r->precision == PRECISION_FP8 && !figure_is_known(c->gpu.peak_flop_per_s[DTYPE_FP8]))
        return err_set(e, ERR_USAGE, "precision fp8: %s has no fp8 matrix units; use bf16-mixed",
                       c->gpu.name ? c->gpu.name : "this GPU");
    if (r->recompute == RECOMPUTE_EVERY_N &&
        (r->recompute_every == 0 || r->recompute_every > m->layers))
        return err_set(e, ERR_USAGE, "recompute every-%llu: N must be 1 to %llu (the layers)",
                       (unsigned long long)r->recompute_every, (unsigned long long)m->layers);
    if (r->compile && r->stack == STACK_EAGER)
        r->stack = STACK_COMPILED;
    if (r->stack == STACK_MEGATRON && r->strategy == STRATEGY_ZERO1)
        r->megatron_optimizer = true;
    if (r->frozen_fraction < 0 || r->frozen_fraction >= 1)
        return err_set(e, ERR_USAGE, "frozen fraction %g is outside 0 to 1", r->frozen_fraction);
    if (r->base_4bit && r->lora_rank == 0)
        return err_set(e, ERR_USAGE,
                       "a 4-bit base model is trained through LoRA: give --lora-rank");
    return true;
}

bool recipe_resolve(struct recipe *r, const struct model *m, const struct cluster *c,
                    struct err *e) {
    assert((unsigned)r->strategy < STRATEGY_COUNT && (unsigned)r->precision < PRECISION_COUNT);
    struct recipe next = *r;
    next.framework = recipe_framework(next.strategy);
    if (!recipe_check_parallel(&next, m, c, e) || !resolve_groups(&next, c, e))
        return false;
    resolve_types(&next);
    if (!resolve_offload(&next, e) || !resolve_batch(&next, e) || !resolve_seq(&next, m, e) ||
        !recipe_check_context(&next, e) || !resolve_optimizer(&next, e) ||
        !resolve_kernel(&next, m, c, e) || !recipe_check_targets(&next, m, e))
        return false;
    *r = next;
    return true;
}

// ---- origins ------------------------------------------------------------------------------------

void recipe_note(struct recipe_origins *o, struct arena *a, const char *path, const char *value,
                 const char *source) {
    if (o == NULL)
        return;
    for (size_t i = 0; i < o->count; i++) {
        struct recipe_origin *at = &o->items[i];
        if (strcmp(at->path, path) != 0)
            continue;
        at->value = arena_strdup(a, value);
        at->source = arena_printf(a, "%s (overrides %s)", source, at->source);
        return;
    }
    if (o->count == o->capacity) {
        size_t capacity = o->capacity ? 2 * o->capacity : 16;
        struct recipe_origin *items = arena_array(a, capacity, sizeof *items);
        if (o->count)
            memcpy(items, o->items, o->count * sizeof *items);
        o->items = items;
        o->capacity = capacity;
    }
    o->items[o->count++] = (struct recipe_origin){arena_strdup(a, path), arena_strdup(a, value),
                                                  arena_strdup(a, source)};
}
