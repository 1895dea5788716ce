// SPDX-License-Identifier: Apache-2.0
// One measured training run as its source states it, and the block that says how to score it;
// docs/formats.md §runs, docs/validation.md §rules.
#pragma once

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum score_group { SCORE_DATA_PARALLEL, SCORE_MIXED, SCORE_FLOAT8, SCORE_GROUP_COUNT };
enum memory_reading {
    READING_NONE,
    READING_ALLOCATED,
    READING_RESERVED,
    READING_NVIDIA_SMI,
    READING_COUNT
};
extern const char *const score_group_names[SCORE_GROUP_COUNT];
extern const char *const memory_reading_names[READING_COUNT]; // NULL for none

// Numbers that the source does not state are 0 (counts) or NAN (measurements); texts are NULL.
struct run_model {
    const char *name, *positions;
    uint64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, experts, experts_per_token,
        moe_ffn;
    double parameters;
    bool gated_mlp, tied_embeddings, biases;
};

struct run_measured {
    double step_s, step_derived_s, tokens_per_s_per_gpu, tokens_per_s, samples_per_s,
        flop_per_s_per_gpu;
    const char *flop_counting;
    double memory_gib;
    const char *memory_kind;
    bool out_of_memory;
};

struct run_score {
    const char *gpu_id, *stack, *step_basis, *network_note, *network_provenance;
    enum score_group group;
    double step_s, memory_gib;
    enum memory_reading memory_reading;
    double node_bytes_per_s; // 0 on one node or unknown
    bool time_scored, memory_scored;
    const char *time_reason, *memory_reason; // why not
};

struct run_row {
    const char *id, *source, *tier, *value_kind, *notes;
    struct run_model model;
    const char *gpu, *interconnect_inter, *framework, *framework_version, *strategy;
    uint64_t gpus, gpus_per_node, shard_group, tp, pp, cp, ep, virtual_stages;
    const char *offload_optimizer, *offload_params, *offload_activations;
    uint64_t seq, micro_batch, grad_accum;
    const char *param_dtype, *reduce_dtype, *optimizer, *recompute, *attention, *loss_head;
    bool compile, float8;
    struct run_measured measured;
    struct run_score score;
};

// Reads an array of rows; rows without a `score` block get one by the same rules.
bool validate_row_read(const char *path, struct arena *a, struct run_row **out, size_t *count,
                       struct err *e);
// Fill `row->score` from the row alone.
void validate_row_score(struct run_row *row, struct arena *a);
