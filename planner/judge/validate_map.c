// SPDX-License-Identifier: Apache-2.0
#include "judge/validate_map.h"

#include <math.h>
#include <string.h>

static bool has(const char *text, const char *part) {
    return text != NULL && strcasestr(text, part) != NULL;
}

static const char *architecture_of(const struct run_row *r) {
    if (r->model.experts > 0) {
        return "mixtral";
    }
    if (r->model.gated_mlp) {
        return "llama";
    }
    return has(r->framework, "foundry") || has(r->model.name, "mpt") ? "mpt" : "gpt2";
}

static bool map_model(const struct run_row *r, struct arena *a, struct model *out, struct err *e) {
    const struct run_model *s = &r->model;
    if (s->layers == 0 || s->hidden == 0 || s->heads == 0 || s->vocab == 0 ||
        (s->ffn == 0 && s->experts == 0)) {
        return err_set(e, ERR_INPUT, "architecture not complete");
    }
    struct model m = {.name = s->name,
                      .source = r->source,
                      .layers = s->layers,
                      .hidden = s->hidden,
                      .ffn = s->ffn,
                      .heads = s->heads,
                      .kv_heads = s->kv_heads > 0 ? s->kv_heads : s->heads,
                      .head_dim = s->head_dim,
                      .vocab = s->vocab,
                      .max_positions = r->seq,
                      .stored_dtype = DTYPE_BF16,
                      .experts = s->experts,
                      .experts_per_token = s->experts_per_token,
                      .moe_ffn = s->moe_ffn > 0 ? s->moe_ffn : s->ffn};
    if (!model_architecture(&m, architecture_of(r), e)) {
        return false;
    }
    if (strcmp(r->score.stack, "megatron") == 0) {
        m.dropout = 0.1; // Megatron's own default
    }
    m.tied_embeddings = s->tied_embeddings;
    m.gated_mlp = s->gated_mlp;
    if (s->biases) {
        m.qkv_bias = m.out_bias = m.mlp_bias = m.norm_bias = true;
    }
    if (!model_finish(&m, a, e)) {
        return false;
    }
    *out = m;
    return true;
}

// "V100-SXM2-16GB (p3.8xlarge)": the machine in brackets, when the catalog has it.
static bool named_machine(const struct run_row *r, struct arena *a, struct cluster *out) {
    const char *open = r->gpu != NULL ? strrchr(r->gpu, '(') : NULL;
    const char *close = open != NULL ? strchr(open, ')') : NULL;
    struct err ignored = {0};
    struct cluster c;
    if (close == NULL) {
        return false;
    }
    const char *name = arena_printf(a, "%.*s", (int)(close - open - 1), open + 1);
    if (r->score.gpu_id == NULL || !cluster_load(name, a, &c, &ignored) ||
        strcmp(c.gpu.id, r->score.gpu_id) != 0 ||
        (r->gpus_per_node > 0 && c.gpus_per_node != r->gpus_per_node)) {
        return false;
    }
    *out = c;
    return true;
}

static void map_network(const struct run_row *r, struct cluster *c) {
    const struct run_score *s = &r->score;
    if (s->node_bytes_per_s > 0) {
        const double nics =
            c->nics_per_node > 0 ? (double)c->nics_per_node : (double)c->gpus_per_node;
        const double each = s->node_bytes_per_s / nics;
        c->nics_per_node = (uint64_t)nics;
        c->nic_bytes_per_s =
            s->network_provenance != NULL && strcmp(s->network_provenance, "stated") == 0
                ? figure_known(each, PROVENANCE_SPEC, r->source)
                : figure_assumed(each, each / 2, each * 2, s->network_note);
    }
    const struct {
        const char *word;
        enum fabric_class fabric;
    } words[] = {{"EFA", FABRIC_EFA},
                 {"RoCE", FABRIC_ROCE},
                 {"RDMA", FABRIC_ROCE},
                 {"IB", FABRIC_INFINIBAND},
                 {"Omni", FABRIC_INFINIBAND}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (r->interconnect_inter != NULL && strstr(r->interconnect_inter, words[i].word) != NULL) {
            if (c->inter_fabric != words[i].fabric) {
                c->inter_efficiency = figure_unknown(); // of the other fabric
            }
            c->inter_fabric = words[i].fabric;
            break;
        }
    }
}

static bool map_cluster(const struct run_row *r, struct arena *a, struct cluster *out,
                        struct err *e) {
    struct cluster c;
    if (r->score.gpu_id == NULL || r->gpus == 0) {
        return err_set(e, ERR_INPUT, "GPU or GPU count not stated");
    }
    const uint64_t node = r->gpus_per_node > 0 ? r->gpus_per_node : 8;
    if (!named_machine(r, a, &c)) {
        const char *spec = arena_printf(a, "%llux%s", (unsigned long long)node, r->score.gpu_id);
        if (!cluster_load(spec, a, &c, e)) {
            return false;
        }
    }
    const uint64_t nodes = (r->gpus + node - 1) / node;
    if (!cluster_resize(&c, nodes, r->gpus, e)) {
        return false;
    }
    map_network(r, &c);
    *out = c;
    return true;
}

static bool strategy_of(const struct run_row *r, enum strategy *out, struct err *e) {
    const char *s = r->strategy != NULL ? r->strategy : "";
    const bool fsdp1 = strcmp(r->score.stack, "fsdp1") == 0;
    const struct {
        const char *name;
        enum strategy strategy;
    } table[] = {
        {"fsdp_full", fsdp1 ? STRATEGY_FSDP1 : STRATEGY_FSDP2},
        {"fsdp_shard_grad_op", fsdp1 ? STRATEGY_FSDP1_GRAD_OP : STRATEGY_FSDP2_NORESHARD},
        {"hsdp", fsdp1 ? STRATEGY_FSDP1_HYBRID : STRATEGY_HSDP},
        {"zero1", STRATEGY_ZERO1},
        {"zero2", STRATEGY_ZERO2},
        {"zero3", STRATEGY_ZERO3},
        {"zero3 + qwZ + hpZ + qgZ", STRATEGY_ZEROPP},
        {"ddp", STRATEGY_DDP},
        {"single", STRATEGY_DDP},
        {"tp_only", STRATEGY_DDP},
        {"tp_pp_only", STRATEGY_DDP},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(s, table[i].name) == 0) {
            *out = table[i].strategy;
            return true;
        }
    }
    return err_set(e, ERR_INPUT, "strategy \"%s\" has no counterpart", s);
}

static enum precision precision_of(const struct run_row *r) {
    if (r->float8) {
        return PRECISION_FP8;
    }
    if (has(r->param_dtype, "AMP")) {
        return PRECISION_AMP_BF16;
    }
    return has(r->param_dtype, "fp16") ? PRECISION_FP16_MIXED : PRECISION_BF16_MIXED;
}

static void map_recompute(const struct run_row *r, struct recipe *out) {
    if (has(r->recompute, "every-other")) {
        out->recompute = RECOMPUTE_EVERY_N;
        out->recompute_every = 2;
    } else if (has(r->recompute, "selective:op")) {
        out->recompute = RECOMPUTE_SELECTIVE_OP;
    } else if (has(r->recompute, "attention")) {
        out->recompute = RECOMPUTE_SELECTIVE_ATTENTION;
    } else if (has(r->recompute, "full")) {
        out->recompute = RECOMPUTE_FULL;
    }
}

// Whose kernels ran. Liger, and flash-attn's and apex' layers, replace norms, rope, activation and
// residual by fused ones, as a compiler does.
static void map_kernels(const struct run_row *r, struct recipe *out) {
    const bool liger = has(r->framework, "Liger"), fused = has(r->framework, "fused kernels");
    const bool megatron = strcmp(r->score.stack, "megatron") == 0;
    out->compile = r->compile;
    out->stack = megatron                       ? STACK_MEGATRON
                 : r->compile || liger || fused ? STACK_COMPILED
                                                : STACK_EAGER;
    out->attention = has(r->attention, "eager") ? ATTENTION_MATH : ATTENTION_FLASH;
    out->loss = has(r->loss_head, "fused") ? LOSS_FUSED : liger ? LOSS_CHUNKED : LOSS_TORCH;
    out->optimizer_fused = out->optimizer_fused || megatron || has(r->framework, "torchtitan") ||
                           has(r->optimizer, "fused");
    out->optimizer_foreach = !out->optimizer_fused;
}

// torchtitan compiles its loss, shards embedding and head apart and asks for expandable segments
// since 2025; a source without a date is taken as current.
static void map_torchtitan(const struct run_row *r, struct recipe *out) {
    if (!has(r->framework, "torchtitan")) {
        return;
    }
    const bool old = has(r->framework_version, "2024") || has(r->source, "2024") ||
                     has(r->source, "older revision");
    out->loss_eager = old;
    out->embedding_group = out->expandable_segments = !old;
}

// A stated torch release, else the one of the package's images at that time.
static void map_version(const struct run_row *r, struct recipe *out, struct arena *a) {
    const char *at = r->framework_version != NULL ? strstr(r->framework_version, "torch 2.") : NULL;
    if (recipe_is_deepspeed(out)) {
        return;
    }
    if (at != NULL) {
        at += strlen("torch ");
        out->framework_version = arena_printf(a, "torch-%.*s", (int)strspn(at, "0123456789."), at);
    } else if (has(r->framework, "llm-foundry")) {
        out->framework_version = "torch-2.1"; // the published sweeps are of 2023
    }
}

static enum offload offload_of(const char *text) {
    return has(text, "nvme") ? OFFLOAD_NVME : has(text, "cpu") ? OFFLOAD_CPU : OFFLOAD_NONE;
}

static void map_fields(const struct run_row *r, struct recipe *out, struct arena *a) {
    out->seq = r->seq;
    out->micro_batch = r->micro_batch;
    out->grad_accum = r->grad_accum > 0 ? r->grad_accum : 1;
    out->precision = precision_of(r);
    out->offload_optimizer = offload_of(r->offload_optimizer);
    out->offload_param = offload_of(r->offload_params);
    out->activation_offload = has(r->offload_activations, "cpu");
    out->shard_group = r->shard_group;
    map_recompute(r, out);
    map_kernels(r, out);
    map_torchtitan(r, out);
    map_version(r, out, a);
    if (r->reduce_dtype != NULL && dtype_find(r->reduce_dtype, &out->reduce_dtype)) {
        out->reduce_dtype_given = true;
    }
    if (has(r->optimizer, "main grads")) {
        out->megatron_optimizer = true;
        out->grad_accum_dtype = DTYPE_FP32;
        out->grad_accum_dtype_given = true;
    }
    if (has(r->optimizer, "8bit")) {
        out->optimizer = OPTIMIZER_ADAMW8BIT;
    }
}

// Data-parallel groups are resolved on the ranks that hold the same part of the model, context
// ranks among them; the ways are put back afterwards.
static bool resolve(const struct run_row *r, const struct model *m, const struct cluster *c,
                    struct recipe *out, struct err *e) {
    struct cluster ranks = *c;
    const uint64_t ways = r->tp * r->pp;
    if (ways == 0 || r->cp == 0 || c->gpus % (ways * r->cp) != 0) {
        return err_set(e, ERR_INPUT, "%llu GPUs do not divide into tp x cp x pp",
                       (unsigned long long)c->gpus);
    }
    ranks.gpus = c->gpus / ways;
    if (!recipe_resolve(out, m, &ranks, e)) {
        return false;
    }
    out->tp = r->tp;
    out->cp = r->cp;
    out->pp = r->pp;
    out->virtual_stages = r->virtual_stages;
    out->global_batch /= r->cp;
    out->ep = r->ep;
    if (has(r->param_dtype, "fp16 (AMP)")) { // autocast to fp16: Volta has no bf16
        out->compute_dtype = DTYPE_FP16;
    }
    if (out->megatron_optimizer) {
        out->grad_dtype = out->reduce_dtype = DTYPE_FP32;
    }
    return true;
}

bool validate_map_row(const struct run_row *row, struct arena *a, struct run_setup *out,
                      struct err *e) {
    enum strategy s = STRATEGY_DDP;
    struct run_setup setup = {0};
    if (row->seq == 0 || row->micro_batch == 0) {
        return err_set(e, ERR_INPUT, "sequence or micro-batch not stated");
    }
    if (row->ep > 1) {
        return err_set(e, ERR_INPUT, "expert parallelism is not planned");
    }
    if (!map_model(row, a, &setup.model, e) || !map_cluster(row, a, &setup.cluster, e) ||
        !strategy_of(row, &s, e)) {
        return false;
    }
    recipe_defaults(s, &setup.recipe);
    map_fields(row, &setup.recipe, a);
    if (!resolve(row, &setup.model, &setup.cluster, &setup.recipe, e)) {
        return false;
    }
    *out = setup;
    return true;
}
