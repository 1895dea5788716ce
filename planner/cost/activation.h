// SPDX-License-Identifier: Apache-2.0
// Saved tensors of one transformer layer, loss head and embedding; docs/method.md §activations.
#pragma once

#include "describe/model.h"
#include "describe/recipe.h"

#include <stddef.h>
#include <stdint.h>

// One saved tensor: what it is and how many bytes one micro-batch of it costs.
struct saved_tensor {
    const char *name;
    uint64_t bytes;
    bool recomputed; // dropped in forward and rebuilt in backward under the recipe's recompute mode
};
#define ACTIVATION_SAVED_MAX 48

// Fills `out` (ACTIVATION_SAVED_MAX entries) for a dense or MoE block; returns the count.
size_t activation_layer(const struct model *m, const struct recipe *r, bool moe, struct saved_tensor *out);
uint64_t activation_layer_kept_bytes(const struct model *m, const struct recipe *r, bool moe);  // across forward
uint64_t activation_layer_full_bytes(const struct model *m, const struct recipe *r, bool moe);  // while in backward
uint64_t activation_embedding_bytes(const struct model *m, const struct recipe *r);
// Logits and loss: bytes held from head forward to its backward, and the transient peak at the loss.
void activation_logits(const struct model *m, const struct recipe *r, uint64_t *held_bytes, uint64_t *peak_bytes);
