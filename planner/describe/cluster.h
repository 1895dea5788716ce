// SPDX-License-Identifier: Apache-2.0
// A GPU and a cluster of nodes as figures with provenance. Rates are per direction.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/kinds.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Smooth GEMM efficiency law of one GPU and kernel stack; docs/method.md §gemm. Meaning of each
// constant is physical; read from models/gpus/*.json "kernels".
enum kernel_stack { STACK_EAGER, STACK_COMPILED, STACK_MEGATRON, STACK_COUNT };
#define GPU_KERNEL_CONSTANTS 24
struct gpu_kernels {
    struct figure
        constants[GPU_KERNEL_CONSTANTS]; // by enum kernel_constant, describe/gpu_kernels.h
};

struct gpu {
    const char *id, *name, *vendor, *sm; // sm: "sm_90"
    const char *host;                    // cluster whose host "8xTHIS-GPU" borrows; NULL = none
    struct figure memory_nominal_bytes, memory_smi_bytes,
        memory_torch_bytes;                                         // what each tool shows
    struct figure context_bytes, nccl_first_bytes, nccl_next_bytes; // per process, per communicator
    struct figure hbm_bytes_per_s, hbm_fraction;                    // peak, and the achieved share
    struct figure peak_flop_per_s[DTYPE_COUNT];                     // dense
    struct figure matmul_fraction[DTYPE_COUNT]; // best large matmul over the dense peak
    struct figure nvlink_bytes_per_s;           // per direction, all links; unknown = none
    struct figure nvlink_busbw_bytes_per_s;     // ring collective on one full NVSwitch node
    struct figure nvls_busbw_bytes_per_s;       // all-reduce with in-switch reduction
    uint64_t nvlink_generation, nvlink_count, pcie_generation, pcie_lanes;
    struct figure pcie_h2d_bytes_per_s, pcie_d2h_bytes_per_s;           // pinned, one way
    struct figure pcie_h2d_both_bytes_per_s, pcie_d2h_both_bytes_per_s; // while the other runs
    struct gpu_kernels kernels[STACK_COUNT];
};

enum fabric_class {
    FABRIC_NVSWITCH,
    FABRIC_NVLINK_MESH,
    FABRIC_PCIE,
    FABRIC_XGMI,
    FABRIC_INFINIBAND,
    FABRIC_ROCE,
    FABRIC_EFA,
    FABRIC_TCPX,
    FABRIC_TCPXO,
    FABRIC_ETHERNET,
    FABRIC_CLASS_COUNT
};

// Fitted collective coefficients (calibrate writes, collective reads); docs/method.md §collective.
struct cluster_fit {
    enum collective collective;
    uint64_t nodes, ranks;
    struct figure latency_s, busbw_bytes_per_s,
        half_bytes;                              // t = latency + S f / busbw * (1 + sqrt(half / S))
    double min_payload_bytes, max_payload_bytes; // measured range
    double cores; // of the host that one rank kept busy meanwhile; 0 = not measured
};

#define CLUSTER_ADAM_SOFTWARES 3

struct cluster {
    const char *name, *source;
    struct gpu gpu;
    uint64_t nodes, gpus_per_node,
        gpus; // gpus = total used (may be less than nodes * gpus_per_node)
    enum fabric_class intra_fabric, inter_fabric;
    uint64_t nics_per_node;
    struct figure nic_bytes_per_s;  // one NIC, line rate
    struct figure inter_efficiency; // achieved share of line rate, large messages
    uint64_t gpus_per_pcie_switch;  // GPUs that share one uplink; 1 = own
    bool nic_shares_pcie_switch;
    struct figure pcie_switch_bytes_per_s;
    uint64_t sockets, numa_nodes;
    struct figure cpu_cores;             // physical, per node
    struct figure host_memory_bytes;     // per node
    struct figure host_dram_bytes_per_s; // STREAM triad of the node
    struct figure nvme_read_bytes_per_s, nvme_write_bytes_per_s, nvme_capacity_bytes; // per node
    struct figure usd_per_gpu_hour;
    const char *price_date;
    struct figure cpu_adam_s_per_param; // per node, whole node busy; unknown = prior
    // The same measured with one software (recipe's adam_software: own, deepspeed, torch); holds
    // for that one only.
    struct figure cpu_adam_by_software[CLUSTER_ADAM_SOFTWARES];
    const struct cluster_fit *fits;
    size_t fit_count;
    bool other_network; // than the fits were taken on: those over several nodes say nothing
    bool assumed_host;  // "8xA100-80GB": host figures taken from that GPU's DGX
};

extern const char *const fabric_class_names[FABRIC_CLASS_COUNT]; // "nvswitch", "infiniband", …

// Catalog name or alias, file, or "8xA100-80GB". models/defaults.json fills unknown figures as
// assumed.
bool cluster_load(const char *spec, struct arena *a, struct cluster *out, struct err *e);
bool cluster_read(const char *path, struct arena *a, struct cluster *out, struct err *e);
bool cluster_read_text(const char *text, size_t bytes, struct arena *a, struct cluster *out,
                       struct err *e); // the same from memory
bool cluster_write(const char *path, const struct cluster *c, struct err *e);
bool gpu_load(const char *spec, struct arena *a, struct gpu *out, struct err *e);
#define CLUSTER_NODES_MAX (1ULL << 20)
#define CLUSTER_GPUS_MAX (1ULL << 26)
// Change the node or GPU count (0 = follows from the other); fails where it makes no sense.
bool cluster_resize(struct cluster *c, uint64_t nodes, uint64_t gpus, struct err *e);
// Directory of the catalog: $SHARDPLAN_CATALOG, else the source tree's, else the installed one.
const char *cluster_catalog_dir(void);
// Bytes torch sees on the GPU (cudaMemGetInfo total), known or assumed.
struct figure gpu_visible_bytes(const struct gpu *g);
