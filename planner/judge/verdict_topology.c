// SPDX-License-Identifier: Apache-2.0
#include "judge/verdict_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void check_slot(struct judge *j, const struct topology_device *d) {
    const struct gpu *g = &j->q->cluster->gpu;
    if (d->pcie_generation == 0 || d->pcie_lanes == 0 || g->pcie_generation == 0 ||
        g->pcie_lanes == 0)
        return;
    struct verdict_check *c = verdict_add(j, arena_printf(j->a, "PCIe slot of %s", d->name));
    c->status = VERDICT_PASS;
    if (d->pcie_generation < g->pcie_generation || d->pcie_lanes < g->pcie_lanes)
        verdict_fail(
            c, d->name,
            arena_printf(
                j->a, "runs at gen%" PRIu64 " x%" PRIu64 ", the GPU has gen%" PRIu64 " x%" PRIu64,
                d->pcie_generation, d->pcie_lanes, g->pcie_generation, g->pcie_lanes),
            "read the link state under load (idle GPUs slow it down); reseat the card, "
            "check riser, BIOS and slot");
}

static bool nvlinked(const struct cluster *c) {
    return c->intra_fabric == FABRIC_NVSWITCH || c->intra_fabric == FABRIC_NVLINK_MESH;
}

// Every pair over the switch with all of the GPU's links.
static void check_nvlink(struct judge *j, const struct topology *t, size_t x, size_t y) {
    const struct cluster *c = j->q->cluster;
    struct topology_cell cell = topology_between(t, x, y);
    if (c->intra_fabric != FABRIC_NVSWITCH || t->p2p || cell.path == PATH_UNKNOWN)
        return;
    const char *pair = arena_printf(j->a, "%s,%s", t->devices[x].name, t->devices[y].name);
    struct verdict_check *k = verdict_add(j, arena_printf(j->a, "NVLink between %s", pair));
    k->status = VERDICT_PASS;
    if (cell.path != PATH_NVLINK)
        verdict_fail(k, pair, arena_printf(j->a, "no NVLink: %s", topology_cell_text(cell, j->a)),
                     "check the fabric manager and nvidia-smi nvlink --status");
    else if (c->gpu.nvlink_count && cell.links < c->gpu.nvlink_count)
        verdict_fail(
            k, pair,
            arena_printf(j->a, "%" PRIu64 " of %" PRIu64 " links", cell.links, c->gpu.nvlink_count),
            "check nvidia-smi nvlink --status for links that are down");
}

static bool bridges(const struct cluster *c) {
    return c->intra_fabric == FABRIC_PCIE ||
           (c->intra_fabric == FABRIC_NVLINK_MESH && c->gpus_per_node == 2);
}

// All NVLinks of a card in a slot go to the one beside it, over a bridge.
static void check_bridge(struct judge *j, const struct topology *t, size_t x) {
    const struct cluster *c = j->q->cluster;
    size_t bridged = 0, partner = t->gpus;
    for (size_t i = 0; i < t->gpus; i++)
        for (size_t k = 0; k < t->gpus; k++)
            if (i != k && topology_between(t, i, k).path == PATH_NVLINK) {
                partner = i == x ? k : partner;
                bridged++;
                break;
            }
    if (!bridged || (partner < x))
        return; // said of its partner
    struct verdict_check *k;
    if (partner == t->gpus) {
        const char *name = t->devices[x].name;
        k = verdict_add(j, arena_printf(j->a, "NVLink bridge of %s", name));
        verdict_fail(k, name,
                     arena_printf(j->a, "none, and %zu of %zu GPUs have one", bridged, t->gpus),
                     "reseat the bridge; check nvidia-smi nvlink --status");
        return;
    }
    const char *pair = arena_printf(j->a, "%s,%s", t->devices[x].name, t->devices[partner].name);
    uint64_t links = topology_between(t, x, partner).links;
    k = verdict_add(j, arena_printf(j->a, "NVLink bridge between %s", pair));
    k->status = VERDICT_PASS;
    if (links < c->gpu.nvlink_count)
        verdict_fail(
            k, pair,
            arena_printf(j->a, "%" PRIu64 " of %" PRIu64 " links", links, c->gpu.nvlink_count),
            "reseat the bridge; check nvidia-smi nvlink --status for links that are down");
}

// A matrix states no rates: pairs over slots are judged by what copies between them reach.
static void say_unjudged(struct judge *j, const struct topology *t) {
    size_t pairs[PATH_COUNT] = {0};
    for (size_t x = 0; x < t->gpus; x++)
        for (size_t y = x + 1; y < t->gpus; y++)
            pairs[topology_between(t, x, y).path]++;
    for (int p = PATH_PIX; p < PATH_UNKNOWN; p++) {
        if (!pairs[p] || verdict_measured_over(j, (enum topology_path)p))
            continue;
        struct verdict_check *c =
            verdict_add(j, arena_printf(j->a, "%zu pair%s over PCIe (%s)", pairs[p],
                                        pairs[p] > 1 ? "s" : "", topology_path_names[p]));
        c->required = false;
        c->reason = "the matrix names their link and no rate; copies between them would judge it";
        c->next_step = "measure shardplan bench cuda --direction p2p, then accept it with this "
                       "--topology";
    }
}

static void check_peer(struct judge *j, const struct topology *t, size_t x, size_t y) {
    const char *status = t->p2p ? t->p2p[x * t->gpus + y] : NULL;
    if (!status)
        return;
    const char *pair = arena_printf(j->a, "%s,%s", t->devices[x].name, t->devices[y].name);
    struct verdict_check *c = verdict_add(j, arena_printf(j->a, "peer access between %s", pair));
    c->status = VERDICT_PASS;
    if (strcmp(status, "OK") == 0)
        return;
    const char *reason = arena_printf(j->a, "no peer access: %s", status);
    verdict_fail(c, pair, reason,
                 "check the IOMMU and ACS settings, the driver and the virtual machine's topology");
    // GPUs without NVLink may be sold without peer access; the topology model then counts on none.
    if (!nvlinked(j->q->cluster)) {
        c->status = VERDICT_WAIVED;
        c->required = false;
    }
}

static enum topology_path nearest_nic(const struct topology *t, size_t gpu) {
    enum topology_path best = PATH_UNKNOWN;
    for (size_t i = t->gpus; i < t->count; i++) {
        enum topology_path p = topology_between(t, gpu, i).path;
        best = p < best ? p : best;
    }
    return best;
}

// A GPU whose nearest card is behind the other socket while other GPUs have one on theirs.
static void check_placement(struct judge *j, const struct topology *t) {
    size_t near = 0;
    for (size_t i = 0; i < t->gpus; i++)
        near += nearest_nic(t, i) < PATH_SYS;
    for (size_t i = 0; near && t->count > t->gpus && i < t->gpus; i++) {
        enum topology_path p = nearest_nic(t, i);
        if (p == PATH_UNKNOWN)
            continue;
        struct verdict_check *c =
            verdict_add(j, arena_printf(j->a, "NUMA placement of %s", t->devices[i].name));
        c->status = VERDICT_PASS;
        if (p == PATH_SYS)
            verdict_fail(c, t->devices[i].name,
                         "its nearest network card is behind the other socket",
                         "move the card or the GPU, or pin the rank to a card of its socket");
    }
}

// A copy measured from the memory of another NUMA node than the GPU's says nothing about its slot.
static void check_measured_from(struct judge *j, const struct topology *t) {
    for (size_t i = 0; i < j->measured_count; i++) {
        const struct measure_result *r = j->measured[i].result;
        char *end = NULL;
        unsigned long long gpu = r->group ? strtoull(r->group, &end, 10) : 0;
        if (strcmp(r->kind, "copy") != 0 || r->numa == 0 || !end || *end != '\0' ||
            gpu >= t->gpus || t->devices[gpu].numa < 0 ||
            t->devices[gpu].numa == (int64_t)r->numa - 1)
            continue;
        struct verdict_check *c =
            verdict_add(j, arena_printf(j->a, "%s of %s from NUMA node %" PRIu64,
                                        r->direction ? r->direction : "copy", t->devices[gpu].name,
                                        r->numa - 1));
        c->status = VERDICT_WAIVED;
        c->required = false;
        c->measured_bytes_per_s = r->algbw_bytes_per_s;
        c->culprit = t->devices[gpu].name;
        c->reason = arena_printf(j->a, "the GPU is on node %" PRId64, t->devices[gpu].numa);
        c->next_step = "pin the process to the GPU's node and measure again";
    }
}

static void judge_one(struct judge *j, const struct topology *t) {
    for (size_t x = 0; x < t->gpus; x++) {
        check_slot(j, &t->devices[x]);
        for (size_t y = x + 1; y < t->gpus; y++) {
            if (t->cells)
                check_nvlink(j, t, x, y);
            check_peer(j, t, x, y);
        }
    }
    if (t->cells && !t->p2p) {
        for (size_t x = 0; bridges(j->q->cluster) && x < t->gpus; x++)
            check_bridge(j, t, x);
        if (j->q->cluster->intra_fabric != FABRIC_NVSWITCH)
            say_unjudged(j, t);
        check_placement(j, t);
    }
    check_measured_from(j, t);
    if (t->gpus && t->gpus < j->q->cluster->gpus_per_node && t->complete)
        verdict_fail(verdict_add(j, "GPUs of the node"), "node",
                     arena_printf(j->a, "%zu GPUs are there, the cluster's nodes have %" PRIu64,
                                  t->gpus, j->q->cluster->gpus_per_node),
                     "look for a GPU that fell off the bus (dmesg: Xid 79)");
}

void verdict_topology(struct judge *j) {
    for (size_t i = 0; i < j->q->topology_count; i++)
        judge_one(j, &j->q->topologies[i]);
}
