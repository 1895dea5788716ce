// SPDX-License-Identifier: Apache-2.0
#include "cost/collective_fabric.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

#define US UNITS_MICRO
#define FIG(v, l, h, p, s)                                                                         \
    { .value = (v), .low = (l), .high = (h), .provenance = (p), .source = (s) }

#define NCCL_TUNING "NVIDIA/nccl src/graph/tuning.cc latency tables"
#define P5_SWEEP                                                                                   \
    "fit of the public p5.48xlarge sweeps (crazyguitar/aws-gpu-communication-benchmark)"

static const struct fabric_constants fabrics[FABRIC_CLASS_COUNT] = {
    [FABRIC_NVSWITCH] =
        {.ring_step_s = FIG(3.3 * US, 2.5 * US, 4.5 * US, PROVENANCE_FITTED, NCCL_TUNING " (3.4)"),
         .tree_level_s = FIG(4.0 * US, 3.0 * US, 6.0 * US, PROVENANCE_SPEC, NCCL_TUNING),
         .efficiency = FIG(0.80, 0.76, 0.83, PROVENANCE_SPEC, "NVIDIA/nccl src/graph/topo.h")},
    [FABRIC_NVLINK_MESH] = {.ring_step_s =
                                FIG(3.4 * US, 2.5 * US, 6.0 * US, PROVENANCE_SPEC, NCCL_TUNING),
                            .tree_level_s =
                                FIG(4.0 * US, 3.0 * US, 6.0 * US, PROVENANCE_SPEC, NCCL_TUNING),
                            .efficiency = FIG(0.90, 0.80, 0.92, PROVENANCE_MEASURED,
                                              "VIA-Research/vTrain V100 table")},
    [FABRIC_PCIE] = {.ring_step_s =
                         FIG(5.7 * US, 4.0 * US, 12.0 * US, PROVENANCE_SPEC, NCCL_TUNING),
                     .tree_level_s =
                         FIG(5.7 * US, 4.0 * US, 12.0 * US, PROVENANCE_SPEC, NCCL_TUNING),
                     .efficiency = FIG(0.80, 0.40, 1.0, PROVENANCE_MEASURED,
                                       "NVIDIA/nccl-tests issue 178 and NVIDIA/nccl issue 1639")},
    [FABRIC_XGMI] = {.ring_step_s = FIG(5.0 * US, 2.5 * US, 10.0 * US, PROVENANCE_ASSUMED,
                                        "as NVLink, doubled range"),
                     .tree_level_s =
                         FIG(5.0 * US, 2.5 * US, 10.0 * US, PROVENANCE_ASSUMED, "as NVLink"),
                     .efficiency = FIG(0.75, 0.6, 0.9, PROVENANCE_MEASURED,
                                       "stas00/ml-engineering network/README.md")},
    [FABRIC_INFINIBAND] = {.ring_step_s = FIG(17.0 * US, 12.0 * US, 28.0 * US, PROVENANCE_SPEC,
                                              NCCL_TUNING " (14 + overhead 3)"),
                           .tree_level_s = FIG(38.0 * US, 20.0 * US, 60.0 * US, PROVENANCE_FITTED,
                                               "public 2 to 32 node all-reduces"),
                           .efficiency = FIG(0.95, 0.90, 0.97, PROVENANCE_MEASURED,
                                             "NVIDIA/nccl-tests issues 119 and 290")},
    [FABRIC_ROCE] = {.ring_step_s = FIG(18.0 * US, 12.0 * US, 36.0 * US, PROVENANCE_ASSUMED,
                                        "as InfiniBand, wider"),
                     .tree_level_s = FIG(40.0 * US, 20.0 * US, 80.0 * US, PROVENANCE_ASSUMED,
                                         "as InfiniBand, wider"),
                     .efficiency =
                         FIG(0.92, 0.80, 0.97, PROVENANCE_ASSUMED, "as InfiniBand, wider")},
    [FABRIC_EFA] = {.ring_step_s =
                        FIG(41.0 * US, 33.0 * US, 50.0 * US, PROVENANCE_FITTED, P5_SWEEP),
                    .tree_level_s = FIG(89.0 * US, 70.0 * US, 110.0 * US, PROVENANCE_FITTED,
                                        P5_SWEEP),
                    .efficiency = FIG(0.89, 0.80, 0.95, PROVENANCE_FITTED, P5_SWEEP)},
    [FABRIC_TCPX] = {.ring_step_s = FIG(220.0 * US, 120.0 * US, 350.0 * US, PROVENANCE_FITTED,
                                        "dstackai/dstack a3high sweep"),
                     .tree_level_s = FIG(220.0 * US, 120.0 * US, 350.0 * US, PROVENANCE_ASSUMED,
                                         "as the ring step"),
                     .efficiency =
                         FIG(0.52, 0.48, 0.56, PROVENANCE_FITTED, "dstackai/dstack a3high sweep")},
    [FABRIC_TCPXO] = {.ring_step_s = FIG(24.0 * US, 16.0 * US, 40.0 * US, PROVENANCE_FITTED,
                                         "dstackai/dstack a3mega sweep"),
                      .tree_level_s = FIG(40.0 * US, 20.0 * US, 80.0 * US, PROVENANCE_ASSUMED,
                                          "as InfiniBand, wider"),
                      .efficiency =
                          FIG(0.96, 0.90, 0.97, PROVENANCE_FITTED, "dstackai/dstack a3mega sweep")},
    [FABRIC_ETHERNET] = {.ring_step_s = FIG(60.0 * US, 30.0 * US, 150.0 * US, PROVENANCE_ASSUMED,
                                            "kernel TCP round trips"),
                         .tree_level_s = FIG(60.0 * US, 30.0 * US, 150.0 * US, PROVENANCE_ASSUMED,
                                             "kernel TCP round trips"),
                         .efficiency =
                             FIG(0.80, 0.45, 0.95, PROVENANCE_ASSUMED, "sockets below line rate")},
};

const struct collective_constants collective_constants = {
    .base_s = 13.5 * US,
    .ll_step_s = 1.5 * US,
    .ll_fraction = 0.44,
    .nvls_s = 38.0 * US,
    .nvls_rank_loss = 0.042,
    .intra_half_bytes = 4.8 * UNITS_MEGA,
    .intra_half_rate_bytes_per_s = 360.0 * UNITS_GIGA,
    .intra_exponent = 0.61,
    .inter_half_bytes = 3.4 * UNITS_MEGA,
    .inter_half_growth = 1.3,
    .inter_exponent = 0.56,
    .two_node_gain = 1.27,
    .all_to_all_fraction = 0.75,
};

const struct fabric_constants *collective_fabric(enum fabric_class f) {
    return &fabrics[f < FABRIC_CLASS_COUNT ? f : FABRIC_ETHERNET];
}

static struct figure scaled(struct figure f, double by) {
    f.value *= by;
    f.low *= by;
    f.high *= by;
    return f;
}

static struct figure times(struct figure a, struct figure b) {
    struct figure r = a;
    r.value *= b.value;
    r.low *= b.low;
    r.high *= b.high;
    if (b.provenance == PROVENANCE_ASSUMED) {
        r.provenance = PROVENANCE_ASSUMED;
        r.source = b.source;
    }
    return r;
}

// Hybrid cube mesh (V100): NCCL finds one ring of a link for a pair, four for a quad, six for
// eight. A mesh with one link per pair of GPUs (xGMI) grows with the peers.
static double mesh_share(const struct cluster *c, uint64_t ranks) {
    const uint64_t node = c->gpus_per_node;
    if (ranks >= node) {
        return 1.0;
    }
    if (c->intra_fabric == FABRIC_NVLINK_MESH && c->gpu.nvlink_generation == 2) {
        const double links = c->gpu.nvlink_count > 0 ? (double)c->gpu.nvlink_count : 6.0;
        return ranks <= 2 ? 1.0 / links : fmin(1.0, 4.0 / links);
    }
    if (c->intra_fabric == FABRIC_XGMI && node > 1) {
        return (double)(ranks - 1) / (double)(node - 1);
    }
    return 1.0;
}

static struct figure pcie_busbw(const struct cluster *c) {
    const struct gpu *g = &c->gpu;
    struct figure link = g->pcie_d2h_bytes_per_s;
    if (!figure_is_known(link)) {
        link = g->pcie_h2d_bytes_per_s;
    }
    if (!figure_is_known(link)) {
        return figure_unknown();
    }
    return times(link, fabrics[FABRIC_PCIE].efficiency);
}

struct figure collective_intra_busbw(const struct cluster *c, uint64_t ranks) {
    const struct gpu *g = &c->gpu;
    if (c->intra_fabric == FABRIC_PCIE) {
        return pcie_busbw(c);
    }
    if (figure_is_known(g->nvlink_busbw_bytes_per_s)) {
        return scaled(g->nvlink_busbw_bytes_per_s, mesh_share(c, ranks));
    }
    if (figure_is_known(g->nvlink_bytes_per_s)) {
        const struct figure ring =
            times(g->nvlink_bytes_per_s, collective_fabric(c->intra_fabric)->efficiency);
        return scaled(ring, mesh_share(c, ranks));
    }
    return pcie_busbw(c);
}

struct figure collective_node_bytes_per_s(const struct cluster *c) {
    if (c->nics_per_node == 0 || !figure_is_known(c->nic_bytes_per_s)) {
        return figure_unknown();
    }
    const struct figure line = scaled(c->nic_bytes_per_s, (double)c->nics_per_node);
    if (figure_is_known(c->inter_efficiency)) {
        return times(line, c->inter_efficiency);
    }
    return times(line, collective_fabric(c->inter_fabric)->efficiency);
}

// NCCL takes in-switch reduction from five ranks on Hopper and six on Blackwell (ml-engineering's
// partial-node sweep); the loss per missing rank is fitted on the same sweep.
struct figure collective_nvls_busbw(const struct cluster *c, uint64_t ranks) {
    const struct gpu *g = &c->gpu;
    if (c->intra_fabric != FABRIC_NVSWITCH || !figure_is_known(g->nvls_busbw_bytes_per_s)) {
        return figure_unknown();
    }
    const bool blackwell = g->sm != NULL && strncmp(g->sm, "sm_10", 5) == 0;
    if (ranks < (blackwell ? 6u : 5u)) {
        return figure_unknown();
    }
    const uint64_t node = c->gpus_per_node;
    const double missing = node > ranks ? (double)(node - ranks) : 0.0;
    const double share = fmax(0.5, 1.0 - collective_constants.nvls_rank_loss * missing);
    return scaled(g->nvls_busbw_bytes_per_s, share);
}
