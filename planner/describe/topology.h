// SPDX-License-Identifier: Apache-2.0
// What is connected to what inside one node, as tools report it. docs/formats.md §topology.
#pragma once

#include "base/arena.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum topology_path { // nearest first, as nvidia-smi names them
    PATH_SELF,
    PATH_NVLINK, // links counts them
    PATH_PIX,    // at most one PCIe bridge
    PATH_PXB,    // several bridges
    PATH_PHB,    // through a host bridge
    PATH_NODE,   // between host bridges of one NUMA node
    PATH_SYS,    // between sockets
    PATH_UNKNOWN,
    PATH_COUNT
};
extern const char *const topology_path_names[PATH_COUNT];

struct topology_cell {
    enum topology_path path;
    uint64_t links; // NVLinks when path is PATH_NVLINK
};

struct topology_device {
    const char *name; // "GPU0", "NIC3", "mlx5_0"
    bool nic;
    const char *cpu_affinity;             // "0-23"; NULL = not stated
    int64_t numa;                         // -1 = not stated
    uint64_t pcie_generation, pcie_lanes; // 0 = not stated
    double nic_bytes_per_s;               // NAN = not stated
};

struct topology {
    struct topology_device *devices; // GPUs first
    size_t count, gpus;
    struct topology_cell *cells; // count * count, row by row
    bool complete;               // false: rows or columns were cut off or merged (see warnings)
    const char **p2p;            // gpus * gpus peer status ("OK", "GNS", ...); NULL = not stated
};

struct topology_cell topology_between(const struct topology *t, size_t a, size_t b);
// Name of a path with its link count: "NV12", "PIX". In `a`.
const char *topology_cell_text(struct topology_cell c, struct arena *a);
cJSON *topology_to_json(const struct topology *t, struct arena *a);
