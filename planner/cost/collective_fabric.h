// SPDX-License-Identifier: Apache-2.0
// Constants of the collective law, one set per fabric class and never per cluster;
// docs/method.md §collective gives each one's source.
#pragma once

#include "describe/cluster.h"

struct fabric_constants {
    struct figure ring_step_s;  // one hop of a ring over this fabric, Simple protocol
    struct figure tree_level_s; // one level of a tree, one way
    struct figure efficiency; // large-message share of the NICs' line rate (unknown inside a node)
};

// Constants that hold for every fabric.
struct collective_constants {
    double base_s;           // launch, protocol set-up, first and last chunk
    double ll_step_s;        // one ring hop of the low-latency protocols inside a node
    double ll_fraction;      // their share of the Simple bandwidth
    double nvls_s;           // all-reduce by in-switch reduction, fixed part
    double nvls_rank_loss;   // bandwidth lost per rank missing from a full node
    double intra_half_bytes; // saturation inside a node, at intra_half_rate_bytes_per_s
    double intra_half_rate_bytes_per_s;
    double intra_exponent;
    double inter_half_bytes;  // saturation across nodes, at two nodes
    double inter_half_growth; // power of nodes / 2 by which it grows
    double inter_exponent;
    double two_node_gain;       // two-node all-reduce crosses the wire once, not twice
    double all_to_all_fraction; // of the ring rate that many small sends reach
};

const struct fabric_constants *collective_fabric(enum fabric_class f);
extern const struct collective_constants collective_constants;

// Ring bandwidth of `ranks` GPUs of one node, bytes/s (nccl-tests busbw), large messages.
struct figure collective_intra_busbw(const struct cluster *c, uint64_t ranks);
// All NICs of a node together, achieved for large messages; unknown without NICs.
struct figure collective_node_bytes_per_s(const struct cluster *c);
// In-switch reduction bandwidth for `ranks` GPUs of one node; unknown where the hardware or NCCL's
// rule says no.
struct figure collective_nvls_busbw(const struct cluster *c, uint64_t ranks);
