// SPDX-License-Identifier: Apache-2.0
// The parts that memory.c adds up; private to cost/. Element counts and bytes as doubles: every
// count below 2^53 is exact, and memory.c checks the range once.
#pragma once

#include "cost/memory.h"
#include "cost/zero3.h"
#include "describe/cluster.h"
#include "describe/model.h"
#include "describe/recipe.h"

#include <stdbool.h>

// Elements, after tensor and pipeline parallelism; docs/method.md §memory "Padding".
struct memory_sizes {
    double shard_degree;            // ranks one copy of the parameters is spread over
    double trainable, frozen;       // of the whole model
    double sharded, sharded_frozen; // stored by this rank, padding included
    double owned;                   // whose master and optimizer states this rank holds
    double block, root;             // one wrapped unit; everything outside the wrapped units
    double root_shard;              // stored by this rank of the units that stay gathered
    double block_largest;           // largest tensor of a wrapped unit
    double block_reduced;           // stored by this rank of a wrapped unit, without padding
    double table, head;             // embedding table and output head inside root
    double largest_parameter;
    double trainable_fraction;
    double flat;   // ZeRO-1/2: the padded flat group
    double expert; // of trainable: experts of this rank, which shard/ep ranks share (DDP: world/ep)
    double expert_sharded; // FSDP2: of sharded, experts under expert parallelism
};

struct memory_phase_double {
    double classes[MEMORY_CLASS_COUNT];
    double side; // of them: inside the allocator pools of side streams
};

struct memory_moment { // transient classes at one point of the step
    double grads, gather, bucket, activations, logits, transient;
    double side; // of them: inside the pools of side streams
};

// What a backward pass starts from.
struct memory_backward {
    double kept, working, output_gradient; // activations: all, rebuilt in a block, of its output
    double gradients_before;               // standing before backward
    double casts, dequantised;             // autocast's copies; one 4-bit weight in 16 bits
};

// What the phases of one plan are built from.
struct memory_parts {
    const struct model *model;
    const struct cluster *cluster;
    const struct recipe *recipe;
    struct memory_sizes sizes;
    struct zero3_traffic zero3;                                       // stage 3 only
    double parameter_bytes, gather_bytes, reduce_bytes, frozen_bytes; // per element
    double states[MEMORY_CLASS_COUNT]; // resident after the last backward: first four classes
    double side_peak;                  // of the side-stream pools over the step
    double waste;                      // a hole that no later block of the compute stream fits
    struct memory_phase_double phases[PHASE_COUNT];
};

struct memory_host {
    double classes[PHASE_COUNT][HOST_CLASS_COUNT]; // per node
    double pinned, pinned_rounding, nvme;          // per node
};

double memory_moment_total(const struct memory_moment *t);
// The largest moment of an FSDP backward.
struct memory_moment memory_fsdp_backward(const struct memory_parts *p,
                                          const struct memory_backward *in);
bool memory_sizes_fill(struct memory_parts *p, struct err *e);
// Elements that one of `shards` ranks stores of a block's experts of one name, under expert
// parallelism with FSDP2; docs/method.md §model-parallel.
double memory_expert_shard(const struct tensor *t, const struct recipe *r, double shards);
void memory_states_fill(struct memory_parts *p);
void memory_phases_fill(struct memory_parts *p);
void memory_host_fill(const struct memory_parts *p, struct memory_host *out);

// Adam's m and v, or what stands for them, per owned element.
double memory_state_bytes(const struct memory_parts *p);
// Bytes of one frozen parameter as stored: a LoRA base is kept in 16 or 4 bits.
double memory_frozen_element_bytes(const struct recipe *r);
bool memory_bf16_optimizer(const struct recipe *r); // ZeRO-1 with fp32 accumulation: BF16_Optimizer
bool memory_optimizer_on_gpu(const struct recipe *r);
bool memory_is_megatron(const struct recipe *r); // its own DDP or distributed optimizer
// Bytes in which one element of a gathered unit lives and travels.
double memory_gathered_bytes(const struct memory_parts *p);
// Share of the optimizer that stays on the GPU: 1, 0, or Twin-Flow's whole sub-groups.
double memory_gpu_share(const struct recipe *r, double owned);
uint64_t memory_local_ranks(const struct cluster *c,
                            const struct recipe *r); // GPUs of a node in use
// Of a node's GPUs, those of one data-parallel group: model parallelism stays inside the node.
uint64_t memory_local_replicas(const struct cluster *c, const struct recipe *r);
