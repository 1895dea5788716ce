// SPDX-License-Identifier: Apache-2.0
// Saved tensors of one transformer layer, loss head and embedding; docs/method.md §activations.
#pragma once

#include "describe/model.h"
#include "describe/recipe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// One saved tensor: what it is and how many bytes one micro-batch of it costs on one rank.
struct saved_tensor {
    const char *name;
    uint64_t bytes;
    bool recomputed; // dropped in forward and rebuilt in backward under the recipe's recompute mode
};
#define ACTIVATION_SAVED_MAX 48

// Fills `out` (ACTIVATION_SAVED_MAX entries) for a dense or MoE block; returns the count. Under
// every-N the flags are those of a layer that is recomputed.
size_t activation_layer(const struct model *m, const struct recipe *r, bool moe,
                        struct saved_tensor *out);
uint64_t activation_layer_kept_bytes(const struct model *m, const struct recipe *r,
                                     bool moe); // across forward
uint64_t activation_layer_full_bytes(const struct model *m, const struct recipe *r,
                                     bool moe); // while in backward
// What a layer of the model's unit keeps across forward; under every-N the mean of its layers.
double activation_unit_kept_bytes(const struct model *m, const struct recipe *r,
                                  const struct model_unit *u);
// All blocks between forward and backward: kept by every layer, every-N counted layer by layer.
uint64_t activation_blocks_bytes(const struct model *m, const struct recipe *r);
// What a block in backward adds to the kept ones: rebuilt tensors and the gradient of its output.
uint64_t activation_working_bytes(const struct model *m, const struct recipe *r);
// The gradient of one block's output.
uint64_t activation_gradient_bytes(const struct model *m, const struct recipe *r);
// Final norm, the head's input, and the dropout mask of the embedding.
uint64_t activation_embedding_bytes(const struct model *m, const struct recipe *r);
// Logits and loss: bytes held from head forward to its backward, and the transient peak at the
// loss. LOSS_TORCH: cross-entropy over an fp32 copy (compiled: fused, unless loss_eager).
// LOSS_FUSED: one kernel over 16-bit logits. LOSS_CHUNKED: head and loss fused in chunks of tokens.
void activation_logits(const struct model *m, const struct recipe *r, uint64_t *held_bytes,
                       uint64_t *peak_bytes);
// Tokens of one micro-batch on this rank.
double activation_tokens(const struct recipe *r);
