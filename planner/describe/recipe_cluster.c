// SPDX-License-Identifier: Apache-2.0
// What the command line's options change on a cluster.
#include "base/units.h"
#include "describe/cluster_fields.h"
#include "describe/recipe_options.h"

#include <string.h>

static bool parse_nvme(const char *text, double *read, double *write, struct err *e) {
    struct err ignored = {0};
    char left[64];
    for (const char *slash = strchr(text, '/'); slash; slash = strchr(slash + 1, '/')) {
        size_t n = (size_t)(slash - text);
        if (n >= sizeof left)
            break;
        memcpy(left, text, n);
        left[n] = '\0';
        double r = 0, w = 0;
        if (units_parse_rate(left, &r, &ignored) && units_parse_rate(slash + 1, &w, &ignored)) {
            if (r < 1 || w < 1)
                return err_set(e, ERR_USAGE, "--nvme %s: rates must be above zero", text);
            *read = r;
            *write = w;
            return true;
        }
    }
    return err_set(e, ERR_USAGE, "--nvme %s: expected READ/WRITE, such as 12GB/s/6GB/s", text);
}

static bool apply_sets(const struct opt_texts *set, struct cluster *c, struct err *e) {
    char path[128];
    for (size_t i = 0; i < set->count; i++) {
        const char *text = set->items[i], *eq = strchr(text, '=');
        size_t n = eq ? (size_t)(eq - text) : 0;
        if (!cluster_field_owns(text))
            continue;
        if (n == 0 || n >= sizeof path)
            return err_set(e, ERR_USAGE, "--set %s: expected PATH=VALUE", text);
        memcpy(path, text, n);
        path[n] = '\0';
        if (!cluster_field_set(c, path, eq + 1, e))
            return err_of_usage(e);
    }
    return true;
}

bool recipe_apply_cluster(const struct recipe_request *q, struct cluster *c, struct err *e) {
    struct cluster next = *c;
    double read = 0, write = 0;
    if ((q->given.nodes || q->given.gpus) &&
        !cluster_resize(&next, q->given.nodes ? q->nodes : 0, q->given.gpus ? q->gpus : 0, e))
        return false;
    if (q->given.net) {
        double nics = next.nics_per_node ? (double)next.nics_per_node : 1;
        next.nic_bytes_per_s = figure_known(q->net_bytes_per_s * (double)next.gpus_per_node / nics,
                                            PROVENANCE_SPEC, "--net");
        next.nics_per_node = (uint64_t)nics;
        next.other_network = true;
    }
    if (q->given.host_memory)
        next.host_memory_bytes =
            figure_known((double)q->host_memory_bytes, PROVENANCE_SPEC, "--host-memory");
    if (q->nvme) {
        if (!parse_nvme(q->nvme, &read, &write, e))
            return false;
        next.nvme_read_bytes_per_s = figure_known(read, PROVENANCE_SPEC, "--nvme");
        next.nvme_write_bytes_per_s = figure_known(write, PROVENANCE_SPEC, "--nvme");
    }
    if (!apply_sets(&q->set, &next, e))
        return false;
    *c = next;
    return true;
}
