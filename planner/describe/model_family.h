// SPDX-License-Identifier: Apache-2.0
// How each Hugging Face model_type names and orders its parameters: data for model_units and
// model_read.
#pragma once

#include "describe/model.h"

#include <stdbool.h>
#include <stddef.h>

// One parameter-owning module of a block. Widths follow from the model; docs/method.md §parameters.
enum part {
    PART_NORM,      // full-width norm, always present
    PART_NORM_ONE,  // present when block_norms is 1
    PART_NORM_TWO,  // present when block_norms is 2
    PART_NORM_POST, // present when post_norms
    PART_Q,
    PART_K,
    PART_V,
    PART_QKV, // fused
    PART_OUT,
    PART_Q_NORM, // present when qk_norm
    PART_K_NORM,
    PART_MLA_Q,  // latent attention, when q_lora_rank is 0
    PART_MLA_QA, // latent attention, when q_lora_rank > 0
    PART_MLA_QA_NORM,
    PART_MLA_QB,
    PART_MLA_KVA,
    PART_MLA_KVA_NORM,
    PART_MLA_KVB,
    PART_MLA_OUT,
    PART_GATE, // dense blocks; gated MLP only
    PART_UP,
    PART_DOWN,
    PART_GATE_UP, // fused
    PART_ROUTER,  // mixture blocks
    PART_EXPERT_GATE,
    PART_EXPERT_UP,
    PART_EXPERT_DOWN,
    PART_SHARED_GATE, // when shared_ffn > 0
    PART_SHARED_UP,
    PART_SHARED_DOWN,
    PART_SHARED_ROUTER,
    PART_COUNT
};

struct part_row {
    enum part part;
    const char *module;
};

enum family_flag {
    FAMILY_GATED = 1 << 0,
    FAMILY_TIED = 1 << 1,      // default of tie_word_embeddings
    FAMILY_POSITIONS = 1 << 2, // learned positions
    FAMILY_PARALLEL = 1 << 3,
    FAMILY_QKV_BIAS = 1 << 4,
    FAMILY_OUT_BIAS = 1 << 5,
    FAMILY_MLP_BIAS = 1 << 6,
    FAMILY_NORM_BIAS = 1 << 7,
    FAMILY_HEAD_BIAS = 1 << 8,
    FAMILY_QK_NORM = 1 << 9,
    FAMILY_QK_NORM_WIDE = 1 << 10, // q and k norms span all heads (OLMoE), not one head
    FAMILY_POST_NORMS = 1 << 11,
    FAMILY_LAYER_NORM = 1 << 12, // LayerNorm; RMSNorm without
    FAMILY_CONV1D = 1 << 13,     // linear weights stored [in, out]
    FAMILY_ONE_NORM = 1 << 14,   // block_norms = 1
};

struct family {
    const char *model_type;
    unsigned flags;
    enum activation_kind activation;
    const struct part_row *rows; // registration order of one block
    size_t row_count;
    const char *prefix;      // before every module but the head: "model."
    const char *embed;       // "embed_tokens"
    const char *embed_norm;  // norm after the look-up (BLOOM) or NULL
    const char *position;    // "wpe" or NULL
    uint64_t position_extra; // rows beyond max_positions (OPT: 2)
    const char *layers;      // "layers"
    const char *norm;        // "norm"
    const char *head;        // "lm_head"
};

const struct family *model_family(const char *model_type); // NULL when unknown
// Names of all known types, for messages and listings.
const char *const *model_family_names(size_t *count);
