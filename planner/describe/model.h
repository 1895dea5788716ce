// SPDX-License-Identifier: Apache-2.0
// A transformer: architecture and the inventory of its parameter tensors, unit by unit. Counting
// only.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/kinds.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum norm_kind { NORM_LAYER, NORM_RMS, NORM_KIND_COUNT };
enum activation_kind { ACTIVATION_GELU, ACTIVATION_SILU, ACTIVATION_RELU, ACTIVATION_KIND_COUNT };

enum tensor_role {
    TENSOR_EMBEDDING, // token look-up table
    TENSOR_POSITION,  // learned positions
    TENSOR_NORM,      // weight of a norm (1-D)
    TENSOR_LINEAR,    // matmul weight, [rows = out, cols = in]
    TENSOR_BIAS,      // 1-D
    TENSOR_ROUTER,    // MoE gate
    TENSOR_EXPERT,    // matmul weight of one routed expert (count = experts when stacked)
    TENSOR_HEAD,      // output projection; absent when tied
    TENSOR_ROLE_COUNT
};

struct tensor {
    const char *name;   // within the unit, Hugging Face style: "self_attn.q_proj.weight"
    const char *module; // the nn.Module that directly owns it: "self_attn.q_proj"
    enum tensor_role role;
    uint64_t rows, cols; // dim 0 and the product of the rest; 1-D tensors have cols = 1
    bool transposed;     // stored [in, out] (GPT-2's Conv1D): then rows = in, cols = out
    uint64_t count;      // identical copies in one unit (experts); 1 otherwise
};

enum unit_kind { UNIT_EMBEDDING, UNIT_BLOCK, UNIT_FINAL_NORM, UNIT_HEAD, UNIT_KIND_COUNT };

// A run of `repeat` identical consecutive units. Units stand in registration (= forward) order.
struct model_unit {
    enum unit_kind kind;
    const char *name; // "embed_tokens", "layers", "norm", "lm_head"
    uint64_t repeat;
    bool moe; // the block's MLP is a mixture of experts
    const struct tensor *tensors;
    size_t tensor_count;
    uint64_t parameters; // of ONE unit
};

struct model {
    const char *name, *source, *architecture; // architecture: HF model_type, "llama"
    uint64_t stated_parameters;               // as the source states it; 0 when it does not
    const char *weights; // how a folder's safetensors compare, as a sentence; NULL: none there
    uint64_t layers, hidden, ffn, heads, kv_heads, head_dim, vocab, max_positions;
    uint64_t embed_dim;   // width of the look-up table when projected (OPT-350m); 0 = hidden
    uint64_t block_norms; // full-width norms per block: 2, or 1 when a parallel block shares it
    bool gated_mlp, tied_embeddings, learned_positions, parallel_residual;
    bool positions_follow_seq; // the position table has as many rows as the sequence (mpt-bench-*)
    bool qkv_bias, out_bias, mlp_bias, norm_bias, head_bias, qk_norm;
    bool no_final_norm; // OPT-350m: norms stand after each part, none after the last block
    bool post_norms;    // Gemma 2/3: norms after attention and MLP too
    uint64_t sliding_window, sliding_every; // 0 = none; every n-th layer is global
    enum norm_kind norm;
    enum activation_kind activation;
    double dropout; // attention, residual and embedding dropout in training; 0 when absent
    enum dtype stored_dtype;
    // Mixture of experts; experts = 0 when dense.
    uint64_t experts, experts_per_token, moe_ffn, shared_ffn,
        dense_layers; // first dense_layers are dense
    // Multi-head latent attention; kv_lora_rank = 0 when absent.
    uint64_t q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    const struct model_unit *units;
    size_t unit_count;          // runs, not instances
    uint64_t parameters;        // exact, tied weights counted once
    uint64_t active_parameters; // used per token (MoE); = parameters when dense
    uint64_t matmul_parameters; // in matmuls per token: head in (also when tied), look-ups, norms,
                                // biases out
};

// `spec` is a catalog name or alias (any case), a config.json, a folder that holds one, or a size
// such as "7B": then a Llama-like shape near it, said to be assumed in `source`.
bool model_load(const char *spec, struct arena *a, struct model *out, struct err *e);
bool model_read(const char *config_path, struct arena *a, struct model *out, struct err *e);
// The same from memory; `name` stands for the path in messages.
struct model_text {
    const char *text, *name;
    size_t bytes;
};
bool model_read_text(const struct model_text *t, struct arena *a, struct model *out, struct err *e);
// Fill units, counts and derived fields from the architecture fields (for callers that build one).
bool model_finish(struct model *m, struct arena *a, struct err *e);
// Set `architecture` and the flags that this HF model_type implies (norms, biases, tying, gating),
// for callers that build a model by hand; NULL or unknown fails with the list of known types.
bool model_architecture(struct model *m, const char *model_type, struct err *e);
// Change the length of a learned position table and count again; no effect on models without one.
bool model_set_positions(struct model *m, uint64_t positions, struct arena *a, struct err *e);
uint64_t tensor_numel(const struct tensor *t);   // rows * cols (one copy)
uint64_t model_instances(const struct model *m); // total unit instances
// Unit class of the i-th instance in forward order.
const struct model_unit *model_unit_at(const struct model *m, uint64_t i);
