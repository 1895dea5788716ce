// SPDX-License-Identifier: Apache-2.0
// Time of one collective over a topology: NCCL-like prior, saturation, fitted coefficients;
// method.md §collective.
#pragma once

#include "base/kinds.h"
#include "describe/cluster.h"

#include <stdint.h>

enum time_basis { TIME_PRIOR, TIME_FITTED, TIME_EXTRAPOLATED, TIME_BASIS_COUNT };

// Where the group's ranks sit: `ranks_per_node` of them on each node it touches;
// `concurrent_groups` groups of the same kind on a node share its NICs (HSDP replica groups: GPUs
// per node of them).
struct group_layout {
    uint64_t size, ranks_per_node, concurrent_groups;
};

struct collective_time {
    double seconds, low_s, high_s;
    double latency_s, transfer_s; // the two parts of seconds
    enum time_basis basis;
    const char *algorithm;   // "ring", "tree", "nvls", "fitted"
    double cores;            // of a host that the transfer keeps busy, where that was measured
    double wire_bytes_per_s; // demanded rate on the slowest link while it runs
};

void collective_estimate(const struct cluster *c, enum collective k, const struct group_layout *g,
                         double payload_bytes, struct collective_time *out);
extern const char *const time_basis_names[TIME_BASIS_COUNT];
