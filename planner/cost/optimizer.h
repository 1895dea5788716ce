// SPDX-License-Identifier: Apache-2.0
// What the optimizers keep and compute tensor by tensor; docs/method.md §optimizers.
#pragma once

#include "describe/cluster.h"
#include "describe/model.h"
#include "describe/recipe.h"

#include <stdbool.h>

// The optimizer sees flat one-dimensional slices, not tensors: DeepSpeed's ZeRO and FSDP1.
bool optimizer_is_flat(const struct recipe *r);
// Mean bytes of state per element that a rank holds (`shards`: ranks that one tensor is spread
// over).
double optimizer_state_bytes(const struct model *m, const struct recipe *r, double shards);
// Muon takes the matrices of the blocks, AdamW the rest: table, head, norms, biases, router.
bool optimizer_is_muon_matrix(const struct model_unit *u, const struct tensor *t);
double optimizer_muon_elements(const struct model *m,
                               const struct recipe *r); // of this rank's model
// Newton-Schulz holds X and its successor, A and B of one matrix, in 16 bits: the largest.
double optimizer_muon_working_bytes(const struct model *m, const struct recipe *r);
// Newton-Schulz work of one rank, seconds: all matrices where every rank does all, else its share.
double optimizer_muon_s(const struct model *m, const struct cluster *c, const struct recipe *r);
double optimizer_muon_flop(const struct tensor *t); // five iterations on one matrix
// Matrices have to be whole: gathered over the ranks that share them before Newton-Schulz.
bool optimizer_muon_gathers(const struct recipe *r);
// ZeRO-3 also gathers what each rank computed for its share.
bool optimizer_muon_shares(const struct recipe *r);
