// SPDX-License-Identifier: Apache-2.0
#include "describe/defaults.h"

#include "base/json.h"
#include "describe/catalog.h"

#include <inttypes.h>
#include <string.h>

static struct json_doc *open_defaults(struct arena *a, struct err *e) {
    return json_read_file(arena_printf(a, "%s/defaults.json", catalog_dir()), e);
}

// The figure at `key` when *f is unknown; an absent default leaves it unknown.
static bool fill(struct json_node o, const char *key, struct arena *a, struct figure *f,
                 struct err *e) {
    return figure_is_known(*f) || json_get_figure(o, key, false, a, f, e);
}

static struct figure scaled(struct figure f, double factor, const char *source) {
    if (!figure_is_known(f))
        return f;
    return (struct figure){f.value * factor, f.low * factor, f.high * factor, f.provenance, source};
}

// `share` of a known figure, as an assumption; the interval is that of the share.
static bool fill_share(struct json_node root, const char *key, struct figure of, struct arena *a,
                       struct figure *f, struct err *e) {
    struct figure share = figure_unknown();
    if (figure_is_known(*f) || !figure_is_known(of))
        return true;
    if (!json_get_figure(root, key, true, a, &share, e))
        return false;
    *f = scaled(share, of.value, share.source);
    return true;
}

static bool fill_pcie(struct json_node root, struct arena *a, struct gpu *g, struct err *e) {
    struct json_node all, link;
    if (g->pcie_generation == 0 || !json_find(root, "pcie", &all) ||
        !json_find(all, arena_printf(a, "%" PRIu64, g->pcie_generation), &link))
        return true;
    return fill(link, "pcie_h2d_bytes_per_s", a, &g->pcie_h2d_bytes_per_s, e) &&
           fill(link, "pcie_d2h_bytes_per_s", a, &g->pcie_d2h_bytes_per_s, e) &&
           fill(link, "pcie_h2d_both_bytes_per_s", a, &g->pcie_h2d_both_bytes_per_s, e) &&
           fill(link, "pcie_d2h_both_bytes_per_s", a, &g->pcie_d2h_both_bytes_per_s, e);
}

static bool fill_gpu(struct json_node root, struct arena *a, struct gpu *g, struct err *e) {
    struct json_node o, matmul;
    if (!json_find(root, "gpu", &o))
        return json_fail(root, e, "\"gpu\" is missing");
    if (!fill(o, "context_bytes", a, &g->context_bytes, e) ||
        !fill(o, "nccl_first_bytes", a, &g->nccl_first_bytes, e) ||
        !fill(o, "nccl_next_bytes", a, &g->nccl_next_bytes, e) ||
        !fill(o, "hbm_fraction", a, &g->hbm_fraction, e))
        return false;
    if (json_find(o, "matmul_fraction", &matmul))
        for (size_t t = 0; t < DTYPE_COUNT; t++)
            if (figure_is_known(g->peak_flop_per_s[t]) &&
                !fill(matmul, dtype_name((enum dtype)t), a, &g->matmul_fraction[t], e))
                return false;
    return fill_share(root, "visible_share_of_smi", g->memory_smi_bytes, a, &g->memory_torch_bytes,
                      e) &&
           fill_share(root, "visible_share_of_nominal", g->memory_nominal_bytes, a,
                      &g->memory_torch_bytes, e) &&
           fill_share(root, "nvlink_busbw_share", g->nvlink_bytes_per_s, a,
                      &g->nvlink_busbw_bytes_per_s, e) &&
           fill_pcie(root, a, g, e);
}

static bool fill_network(struct json_node root, struct arena *a, struct cluster *c, struct err *e) {
    struct json_node network, efficiency;
    if (!json_find(root, "network", &network) || !json_find(root, "inter_efficiency", &efficiency))
        return json_fail(root, e, "\"network\" and \"inter_efficiency\" are needed");
    if (!fill(network, "nic_bytes_per_s", a, &c->nic_bytes_per_s, e) ||
        !fill(efficiency, fabric_class_names[c->inter_fabric], a, &c->inter_efficiency, e))
        return false;
    return c->nics_per_node > 0 ||
           json_get_u64(network, "nics_per_node", true, &c->nics_per_node, e);
}

static bool fill_per_gpu(struct json_node o, const char *key, const struct cluster *c,
                         struct arena *a, struct figure *f, struct err *e) {
    struct figure each = figure_unknown();
    if (figure_is_known(*f))
        return true;
    if (!json_get_figure(o, key, true, a, &each, e))
        return false;
    *f = scaled(each, (double)c->gpus_per_node, each.source);
    return true;
}

static bool fill_host(struct json_node root, struct arena *a, struct cluster *c, struct err *e) {
    struct json_node o;
    if (!json_find(root, "cluster", &o))
        return json_fail(root, e, "\"cluster\" is missing");
    return fill_per_gpu(o, "cpu_cores_per_gpu", c, a, &c->cpu_cores, e) &&
           fill_per_gpu(o, "host_memory_bytes_per_gpu", c, a, &c->host_memory_bytes, e) &&
           fill(o, "host_dram_bytes_per_s", a, &c->host_dram_bytes_per_s, e) &&
           fill(o, "nvme_read_bytes_per_s", a, &c->nvme_read_bytes_per_s, e) &&
           fill(o, "nvme_write_bytes_per_s", a, &c->nvme_write_bytes_per_s, e) &&
           fill(o, "nvme_capacity_bytes", a, &c->nvme_capacity_bytes, e);
}

bool defaults_fill_gpu(struct gpu *g, struct arena *a, struct err *e) {
    struct json_doc *doc = open_defaults(a, e);
    bool ok = doc && fill_gpu(json_root(doc), a, g, e);
    json_destroy(doc);
    return ok;
}

bool defaults_fill_cluster(struct cluster *c, struct arena *a, struct err *e) {
    struct json_doc *doc = open_defaults(a, e);
    bool ok = doc && fill_gpu(json_root(doc), a, &c->gpu, e) &&
              fill_network(json_root(doc), a, c, e) && fill_host(json_root(doc), a, c, e);
    json_destroy(doc);
    return ok;
}
