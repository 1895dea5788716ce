// SPDX-License-Identifier: Apache-2.0
// Bytes each link carries in one optimizer step: the textbook multiple and what the code really
// sends.
#pragma once

#include "base/err.h"
#include "base/kinds.h"
#include "describe/cluster.h"
#include "describe/model.h"
#include "describe/recipe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum transfer_group {
    GROUP_WORLD,
    GROUP_SHARD,
    GROUP_REPLICA,
    GROUP_NODE,
    GROUP_HOST,
    GROUP_TENSOR,
    GROUP_CONTEXT,
    GROUP_EXPERT,
    GROUP_PIPELINE,
    TRANSFER_GROUP_COUNT
};
enum transfer_kind {
    TRANSFER_COLLECTIVE,
    TRANSFER_H2D,
    TRANSFER_D2H,
    TRANSFER_NVME_READ,
    TRANSFER_NVME_WRITE,
    TRANSFER_KIND_COUNT
};

struct transfer {
    const char *phase; // "forward", "backward", "step", "init"
    enum transfer_kind kind;
    enum collective collective; // when kind is TRANSFER_COLLECTIVE
    enum dtype dtype;
    enum transfer_group group;
    uint64_t group_size;
    uint64_t count;          // calls per optimizer step
    double payload_bytes;    // FULL buffer summed over all calls (per-rank bytes for copies)
    double sent_bytes;       // ring-sent by one rank, summed over calls
    double inter_node_bytes; // of them: node egress / GPUs per node
    enum link link;          // the slowest link it crosses
    const char *what;        // "parameters", "gradients", "updated parameters", "norm"
};
#define VOLUME_TRANSFERS_MAX 32

struct volume {
    double textbook_multiple, textbook_bytes;
    double textbook_inter_node_multiple; // NAN unless hierarchical
    double all_gather_bytes, reduce_scatter_bytes, all_reduce_bytes, other_bytes;
    double sent_bytes_per_gpu, intra_node_bytes_per_gpu, inter_node_bytes_per_gpu,
        inter_node_bytes_per_nic;
    double h2d_bytes, d2h_bytes, nvme_read_bytes, nvme_write_bytes; // per GPU
    double host_dram_bytes_per_node;
    struct transfer transfers[VOLUME_TRANSFERS_MAX];
    size_t transfer_count;
};

bool volume_estimate(const struct model *m, const struct cluster *c, const struct recipe *r,
                     struct volume *out, struct err *e);
// Textbook multiple of a strategy (DESIGN §5): ddp 2, zero1/2 2, zero3/fsdp 3, hsdp/mics 3 + 2/S,
// ...
double volume_textbook_multiple(const struct recipe *r);
// Share of a ring's sent bytes that leaves the node, given ranks of the group per node;
// docs/method.md §volume.
double volume_inter_fraction(uint64_t group_size, uint64_t ranks_per_node);

// Elements beyond `end` of the parameter that reaches over the end of the first partition: stage 2
// accumulates gradients of whole parameters on the host.
double volume_straddling_elements(const struct model *m, const struct recipe *r, double end);

// Elements of a unit's routed experts, all of them; 0 for a dense unit.
double volume_unit_experts(const struct model_unit *u);
// A unit's tensors in the order in which their gradients become ready: against the order in which
// their modules ran. Fills out[] and returns how many.
#define VOLUME_UNIT_TENSORS_MAX 64
size_t volume_backward_order(const struct model_unit *u, const struct tensor **out);

// Whether ZeRO++'s quantised all-to-all takes this gradient: 2-D, and its size divides by twice the
// ranks. deepspeed/runtime/comm/coalesced_collectives.py
bool volume_quantises(const struct tensor *t, uint64_t world);
// Groups of its elements that share a scale inside the node.
double volume_quantised_groups(const struct tensor *t, uint64_t world);
double volume_parameter_count(const struct model *m); // tensors, a tied table once
