// SPDX-License-Identifier: Apache-2.0
// Execution order inside a transformer block, where registration order differs from it.
#pragma once

#define ORDER_RANKS 6

// Where the module that owns a tensor runs inside its block: 0 first norm, 1 attention, 2 norm
// after attention, 3 norm before the MLP, 4 MLP, 5 norm after the MLP. Registration order holds
// within one rank. Hugging Face registers norms after the layers they precede.
int order_rank(const char *module);
