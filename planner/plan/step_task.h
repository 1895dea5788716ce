// SPDX-License-Identifier: Apache-2.0
// Private to plan/step*: the vocabulary of a step's tasks.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum step_stream {
    STREAM_COMPUTE,    // the framework's default stream
    STREAM_COPY,       // copy-in (FSDP2), pre-unshard (FSDP1), all-gather stream (ZeRO-3); H2D
    STREAM_COLLECTIVE, // communicator of the shard group (DDP: world): FIFO in issue order
    STREAM_REPLICA,    // communicator of the replica group
    STREAM_REDUCE,     // casts and copies around reductions
    STREAM_H2D,        // activations on their way back
    STREAM_D2H,        // offloaded gradients and activations
    STREAM_CPU,        // host cores
    STREAM_NVME_READ,
    STREAM_NVME_WRITE,
    STREAM_TENSOR, // tensor- and context-parallel communicators
    STREAM_STAGE,  // between pipeline stages
    STEP_STREAM_COUNT
};

enum step_resource {
    RESOURCE_SM,     // 1 = all multiprocessors of the GPU
    RESOURCE_HBM,    // bytes
    RESOURCE_NVLINK, // bytes sent by this rank inside the node
    RESOURCE_NIC,    // bytes sent by this rank between nodes (its share of the node's cards)
    RESOURCE_PCIE,   // bytes in both directions over this GPU's slot
    RESOURCE_DRAM,   // bytes, this rank's share of the node
    RESOURCE_CORES,  // 1 = this rank's share of the node's cores
    RESOURCE_NVME,   // 1 = this rank's share of the node's drives, read or write
    STEP_RESOURCE_COUNT
};

enum step_op {
    OP_FORWARD,
    OP_BACKWARD,
    OP_COPY_IN,  // shards into the gather buffer
    OP_COPY_OUT, // gather buffer into parameters
    OP_GATHER,   // parameters
    OP_REDUCE,   // gradients: reduce-scatter, all-reduce or reduce
    OP_REPLICA_REDUCE,
    OP_GRAD_COPY, // gradients into or out of a bucket
    OP_ACCUMULATE,
    OP_NORM,
    OP_NORM_REDUCE,
    OP_CLIP,
    OP_OPTIMIZER,
    OP_GATHER_UPDATED, // parameters after the optimizer (ZeRO-1/2)
    OP_PARAM_H2D,
    OP_GRAD_D2H,
    OP_GRAD_H2D,
    OP_ACTIVATION_D2H,
    OP_ACTIVATION_H2D,
    OP_UPDATED_H2D,
    OP_SECONDARY,     // hpZ: this rank's part of a parameter, kept from its first release on
    OP_SECONDARY_D2H, // the same with parameters on the host
    OP_CPU_PASS,      // unscale, clip, cast on the host
    OP_CPU_ADAM,
    OP_NVME_READ,
    OP_NVME_WRITE,
    OP_TENSOR, // tensor- and context-parallel exchange
    OP_STAGE,  // between pipeline stages
    OP_STAGE_GRADIENT,
    OP_STEP_HOST,
    STEP_OP_COUNT
};

enum step_phase { STEP_FORWARD, STEP_BACKWARD, STEP_OPTIMIZER, STEP_PHASE_COUNT };
enum step_class { CLASS_COMPUTE, CLASS_COMM, CLASS_OFFLOAD, CLASS_COUNT };

#define STEP_NO_UNIT UINT32_MAX
#define STEP_WAITS 6

// What a task is, beside what the engine needs of it.
struct step_meta {
    uint8_t op, phase;
    uint8_t collective, dtype; // when it is a collective
    uint8_t group;             // enum transfer_group
    bool spans_nodes, latency_bound;
    uint8_t stream;
    uint32_t group_size;
    uint32_t unit;   // instance, or STEP_NO_UNIT
    float low, high; // duration interval over its value
    double bytes;    // payload, copied bytes or memory traffic
    double exact_s;  // uncontended duration
};

struct step_op_info {
    const char *name;
    enum step_class class;
};
extern const struct step_op_info step_ops[STEP_OP_COUNT];
extern const char *const step_phase_names[STEP_PHASE_COUNT];
extern const char *const step_stream_names[STEP_STREAM_COUNT];
