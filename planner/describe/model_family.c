// SPDX-License-Identifier: Apache-2.0
#include "describe/model_family.h"

#include <string.h>

#define ROWS(array) array, sizeof(array) / sizeof((array)[0])

static const struct part_row llama_rows[] = {
    {PART_Q, "self_attn.q_proj"},
    {PART_K, "self_attn.k_proj"},
    {PART_V, "self_attn.v_proj"},
    {PART_OUT, "self_attn.o_proj"},
    {PART_Q_NORM, "self_attn.q_norm"},
    {PART_K_NORM, "self_attn.k_norm"},
    {PART_GATE, "mlp.gate_proj"},
    {PART_UP, "mlp.up_proj"},
    {PART_DOWN, "mlp.down_proj"},
    {PART_ROUTER, "mlp.gate"},
    {PART_EXPERT_GATE, "mlp.experts.*.gate_proj"},
    {PART_EXPERT_UP, "mlp.experts.*.up_proj"},
    {PART_EXPERT_DOWN, "mlp.experts.*.down_proj"},
    {PART_SHARED_GATE, "mlp.shared_expert.gate_proj"},
    {PART_SHARED_UP, "mlp.shared_expert.up_proj"},
    {PART_SHARED_DOWN, "mlp.shared_expert.down_proj"},
    {PART_SHARED_ROUTER, "mlp.shared_expert_gate"},
    {PART_NORM, "input_layernorm"},
    {PART_NORM, "post_attention_layernorm"},
    {PART_NORM_POST, "pre_feedforward_layernorm"},
    {PART_NORM_POST, "post_feedforward_layernorm"},
};

static const struct part_row mixtral_rows[] = {
    {PART_Q, "self_attn.q_proj"},
    {PART_K, "self_attn.k_proj"},
    {PART_V, "self_attn.v_proj"},
    {PART_OUT, "self_attn.o_proj"},
    {PART_ROUTER, "block_sparse_moe.gate"},
    {PART_EXPERT_GATE, "block_sparse_moe.experts.*.w1"},
    {PART_EXPERT_DOWN, "block_sparse_moe.experts.*.w2"},
    {PART_EXPERT_UP, "block_sparse_moe.experts.*.w3"},
    {PART_NORM, "input_layernorm"},
    {PART_NORM, "post_attention_layernorm"},
};

static const struct part_row deepseek_rows[] = {
    {PART_MLA_Q, "self_attn.q_proj"},
    {PART_MLA_QA, "self_attn.q_a_proj"},
    {PART_MLA_QA_NORM, "self_attn.q_a_layernorm"},
    {PART_MLA_QB, "self_attn.q_b_proj"},
    {PART_MLA_KVA, "self_attn.kv_a_proj_with_mqa"},
    {PART_MLA_KVA_NORM, "self_attn.kv_a_layernorm"},
    {PART_MLA_KVB, "self_attn.kv_b_proj"},
    {PART_MLA_OUT, "self_attn.o_proj"},
    {PART_GATE, "mlp.gate_proj"},
    {PART_UP, "mlp.up_proj"},
    {PART_DOWN, "mlp.down_proj"},
    {PART_EXPERT_GATE, "mlp.experts.*.gate_proj"},
    {PART_EXPERT_UP, "mlp.experts.*.up_proj"},
    {PART_EXPERT_DOWN, "mlp.experts.*.down_proj"},
    {PART_ROUTER, "mlp.gate"},
    {PART_SHARED_GATE, "mlp.shared_experts.gate_proj"},
    {PART_SHARED_UP, "mlp.shared_experts.up_proj"},
    {PART_SHARED_DOWN, "mlp.shared_experts.down_proj"},
    {PART_NORM, "input_layernorm"},
    {PART_NORM, "post_attention_layernorm"},
};

static const struct part_row phi3_rows[] = {
    {PART_OUT, "self_attn.o_proj"},     {PART_QKV, "self_attn.qkv_proj"},
    {PART_GATE_UP, "mlp.gate_up_proj"}, {PART_DOWN, "mlp.down_proj"},
    {PART_NORM, "input_layernorm"},     {PART_NORM, "post_attention_layernorm"},
};

static const struct part_row phi_rows[] = {
    {PART_Q, "self_attn.q_proj"},   {PART_K, "self_attn.k_proj"}, {PART_V, "self_attn.v_proj"},
    {PART_OUT, "self_attn.dense"},  {PART_UP, "mlp.fc1"},         {PART_DOWN, "mlp.fc2"},
    {PART_NORM, "input_layernorm"},
};

static const struct part_row gpt2_rows[] = {
    {PART_NORM, "ln_1"}, {PART_QKV, "attn.c_attn"}, {PART_OUT, "attn.c_proj"},
    {PART_NORM, "ln_2"}, {PART_UP, "mlp.c_fc"},     {PART_DOWN, "mlp.c_proj"},
};

static const struct part_row neox_rows[] = {
    {PART_NORM, "input_layernorm"},          {PART_NORM, "post_attention_layernorm"},
    {PART_QKV, "attention.query_key_value"}, {PART_OUT, "attention.dense"},
    {PART_UP, "mlp.dense_h_to_4h"},          {PART_DOWN, "mlp.dense_4h_to_h"},
};

static const struct part_row gptj_rows[] = {
    {PART_NORM, "ln_1"},       {PART_K, "attn.k_proj"},     {PART_V, "attn.v_proj"},
    {PART_Q, "attn.q_proj"},   {PART_OUT, "attn.out_proj"}, {PART_UP, "mlp.fc_in"},
    {PART_DOWN, "mlp.fc_out"},
};

static const struct part_row opt_rows[] = {
    {PART_K, "self_attn.k_proj"},
    {PART_V, "self_attn.v_proj"},
    {PART_Q, "self_attn.q_proj"},
    {PART_OUT, "self_attn.out_proj"},
    {PART_NORM, "self_attn_layer_norm"},
    {PART_UP, "fc1"},
    {PART_DOWN, "fc2"},
    {PART_NORM, "final_layer_norm"},
};

static const struct part_row bloom_rows[] = {
    {PART_NORM, "input_layernorm"},     {PART_QKV, "self_attention.query_key_value"},
    {PART_OUT, "self_attention.dense"}, {PART_NORM, "post_attention_layernorm"},
    {PART_UP, "mlp.dense_h_to_4h"},     {PART_DOWN, "mlp.dense_4h_to_h"},
};

static const struct part_row falcon_rows[] = {
    {PART_QKV, "self_attention.query_key_value"},
    {PART_OUT, "self_attention.dense"},
    {PART_UP, "mlp.dense_h_to_4h"},
    {PART_DOWN, "mlp.dense_4h_to_h"},
    {PART_NORM_TWO, "ln_attn"},
    {PART_NORM_TWO, "ln_mlp"},
    {PART_NORM_ONE, "input_layernorm"},
};

static const struct part_row mpt_rows[] = {
    {PART_NORM, "norm_1"}, {PART_QKV, "attn.Wqkv"},  {PART_OUT, "attn.out_proj"},
    {PART_NORM, "norm_2"}, {PART_UP, "ffn.up_proj"}, {PART_DOWN, "ffn.down_proj"},
};

// Linear layers and norms all carry biases, as in GPT-2.
#define ALL_BIASES (FAMILY_QKV_BIAS | FAMILY_OUT_BIAS | FAMILY_MLP_BIAS | FAMILY_NORM_BIAS)

#define LLAMA_NAMES "model.", "embed_tokens", NULL, NULL, 0, "layers", "norm", "lm_head"

static const struct family families[] = {
    {"llama", FAMILY_GATED, ACTIVATION_SILU, ROWS(llama_rows), LLAMA_NAMES},
    {"mistral", FAMILY_GATED, ACTIVATION_SILU, ROWS(llama_rows), LLAMA_NAMES},
    {"qwen2", FAMILY_GATED | FAMILY_QKV_BIAS, ACTIVATION_SILU, ROWS(llama_rows), LLAMA_NAMES},
    {"qwen3", FAMILY_GATED | FAMILY_QK_NORM, ACTIVATION_SILU, ROWS(llama_rows), LLAMA_NAMES},
    {"gemma", FAMILY_GATED | FAMILY_TIED, ACTIVATION_GELU, ROWS(llama_rows), LLAMA_NAMES},
    {"gemma2", FAMILY_GATED | FAMILY_TIED | FAMILY_POST_NORMS, ACTIVATION_GELU, ROWS(llama_rows),
     LLAMA_NAMES},
    {"gemma3", FAMILY_GATED | FAMILY_TIED | FAMILY_POST_NORMS | FAMILY_QK_NORM, ACTIVATION_GELU,
     ROWS(llama_rows), LLAMA_NAMES},
    {"mixtral", FAMILY_GATED, ACTIVATION_SILU, ROWS(mixtral_rows), LLAMA_NAMES},
    {"qwen2_moe", FAMILY_GATED | FAMILY_QKV_BIAS, ACTIVATION_SILU, ROWS(llama_rows), LLAMA_NAMES},
    {"qwen3_moe", FAMILY_GATED | FAMILY_QK_NORM, ACTIVATION_SILU, ROWS(llama_rows), LLAMA_NAMES},
    {"olmoe", FAMILY_GATED | FAMILY_QK_NORM | FAMILY_QK_NORM_WIDE, ACTIVATION_SILU,
     ROWS(llama_rows), LLAMA_NAMES},
    {"deepseek_v2", FAMILY_GATED, ACTIVATION_SILU, ROWS(deepseek_rows), LLAMA_NAMES},
    {"deepseek_v3", FAMILY_GATED, ACTIVATION_SILU, ROWS(deepseek_rows), LLAMA_NAMES},
    {"phi3", FAMILY_GATED, ACTIVATION_SILU, ROWS(phi3_rows), LLAMA_NAMES},
    {"phi", ALL_BIASES | FAMILY_HEAD_BIAS | FAMILY_PARALLEL | FAMILY_LAYER_NORM | FAMILY_ONE_NORM,
     ACTIVATION_GELU, ROWS(phi_rows), "model.", "embed_tokens", NULL, NULL, 0, "layers",
     "final_layernorm", "lm_head"},
    {"gpt2", ALL_BIASES | FAMILY_TIED | FAMILY_POSITIONS | FAMILY_LAYER_NORM | FAMILY_CONV1D,
     ACTIVATION_GELU, ROWS(gpt2_rows), "transformer.", "wte", NULL, "wpe", 0, "h", "ln_f",
     "lm_head"},
    {"gpt_neox", ALL_BIASES | FAMILY_PARALLEL | FAMILY_LAYER_NORM, ACTIVATION_GELU, ROWS(neox_rows),
     "gpt_neox.", "embed_in", NULL, NULL, 0, "layers", "final_layer_norm", "embed_out"},
    {"gptj",
     FAMILY_MLP_BIAS | FAMILY_NORM_BIAS | FAMILY_HEAD_BIAS | FAMILY_PARALLEL | FAMILY_LAYER_NORM |
         FAMILY_ONE_NORM,
     ACTIVATION_GELU, ROWS(gptj_rows), "transformer.", "wte", NULL, NULL, 0, "h", "ln_f",
     "lm_head"},
    {"opt", ALL_BIASES | FAMILY_TIED | FAMILY_POSITIONS | FAMILY_LAYER_NORM, ACTIVATION_RELU,
     ROWS(opt_rows), "model.decoder.", "embed_tokens", NULL, "embed_positions", 2, "layers",
     "final_layer_norm", "lm_head"},
    {"bloom", ALL_BIASES | FAMILY_TIED | FAMILY_LAYER_NORM, ACTIVATION_GELU, ROWS(bloom_rows),
     "transformer.", "word_embeddings", "word_embeddings_layernorm", NULL, 0, "h", "ln_f",
     "lm_head"},
    {"falcon",
     FAMILY_TIED | FAMILY_NORM_BIAS | FAMILY_PARALLEL | FAMILY_LAYER_NORM | FAMILY_ONE_NORM,
     ACTIVATION_GELU, ROWS(falcon_rows), "transformer.", "word_embeddings", NULL, NULL, 0, "h",
     "ln_f", "lm_head"},
    {"mpt", FAMILY_TIED | FAMILY_LAYER_NORM, ACTIVATION_GELU, ROWS(mpt_rows), "transformer.", "wte",
     NULL, "wpe", 0, "blocks", "norm_f", "lm_head"},
};

#define FAMILY_COUNT (sizeof families / sizeof families[0])

// Configs nest a text model under another type, or reuse a shape under another name.
static const struct {
    const char *alias, *model_type;
} aliases[] = {
    {"gemma3_text", "gemma3"},      {"qwen2_vl", "qwen2"},         {"qwen2_5_vl", "qwen2"},
    {"mllama_text_model", "llama"}, {"RefinedWebModel", "falcon"}, {"RefinedWeb", "falcon"},
};

const struct family *model_family(const char *model_type) {
    if (!model_type)
        return NULL;
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (!strcmp(aliases[i].alias, model_type))
            model_type = aliases[i].model_type;
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        if (!strcmp(families[i].model_type, model_type))
            return &families[i];
    return NULL;
}

const char *const *model_family_names(size_t *count) {
    static const char *const names[] = {
        "llama",       "mistral", "qwen2",     "qwen3",     "gemma",    "gemma2",
        "gemma3",      "mixtral", "qwen2_moe", "qwen3_moe", "olmoe",    "deepseek_v2",
        "deepseek_v3", "phi3",    "phi",       "gpt2",      "gpt_neox", "gptj",
        "opt",         "bloom",   "falcon",    "mpt",
    };
    _Static_assert(sizeof names / sizeof names[0] == FAMILY_COUNT, "one name per family");
    *count = FAMILY_COUNT;
    return names;
}
