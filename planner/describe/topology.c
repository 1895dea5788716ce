// SPDX-License-Identifier: Apache-2.0
#include "describe/topology.h"

#include <assert.h>
#include <inttypes.h>

const char *const topology_path_names[PATH_COUNT] = {
    [PATH_SELF] = "X",  [PATH_NVLINK] = "NV", [PATH_PIX] = "PIX", [PATH_PXB] = "PXB",
    [PATH_PHB] = "PHB", [PATH_NODE] = "NODE", [PATH_SYS] = "SYS", [PATH_UNKNOWN] = "unknown",
};

struct topology_cell topology_between(const struct topology *t, size_t a, size_t b) {
    assert(a < t->count && b < t->count);
    return t->cells[a * t->count + b];
}

const char *topology_cell_text(struct topology_cell c, struct arena *a) {
    if (c.path == PATH_NVLINK)
        return arena_printf(a, "NV%" PRIu64, c.links);
    return topology_path_names[c.path];
}

static void add_count(cJSON *o, const char *key, uint64_t n) {
    if (n)
        json_add_u64(o, key, n);
    else
        json_add_null(o, key);
}

cJSON *topology_to_json(const struct topology *t, struct arena *a) {
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", "shardplan.topology/1");
    json_add_bool(root, "complete", t->complete);
    cJSON *list = json_add_array(root, "devices");
    for (size_t i = 0; i < t->count; i++) {
        const struct topology_device *d = &t->devices[i];
        cJSON *o = json_append_object(list);
        json_add_string(o, "name", d->name);
        json_add_string(o, "kind", d->nic ? "nic" : "gpu");
        json_add_string(o, "cpu_affinity", d->cpu_affinity);
        if (d->numa >= 0)
            json_add_u64(o, "numa", (uint64_t)d->numa);
        else
            json_add_null(o, "numa");
        add_count(o, "pcie_generation", d->pcie_generation);
        add_count(o, "pcie_lanes", d->pcie_lanes);
        json_add_double(o, "nic_bytes_per_s", d->nic_bytes_per_s);
    }
    list = json_add_array(root, "paths");
    for (size_t i = 0; i < t->count; i++) {
        cJSON *row = cJSON_CreateArray();
        for (size_t k = 0; k < t->count; k++)
            cJSON_AddItemToArray(
                row, cJSON_CreateString(topology_cell_text(topology_between(t, i, k), a)));
        cJSON_AddItemToArray(list, row);
    }
    if (t->p2p) {
        list = json_add_array(root, "p2p");
        for (size_t i = 0; i < t->gpus; i++) {
            cJSON *row = cJSON_CreateArray();
            for (size_t k = 0; k < t->gpus; k++)
                cJSON_AddItemToArray(row, cJSON_CreateString(t->p2p[i * t->gpus + k]));
            cJSON_AddItemToArray(list, row);
        }
    }
    return root;
}
