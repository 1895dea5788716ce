// SPDX-License-Identifier: Apache-2.0
// What a user may write for CLUSTER: a file, a catalog name, or "8xA100-80GB"; and its resizing.
#include "describe/cluster.h"

#include "describe/catalog.h"
#include "describe/defaults.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *cluster_catalog_dir(void) {
    return catalog_dir();
}

struct shorthand {
    uint64_t nodes, gpus;
    const char *gpu;
};

// "8xH100" or "2x8xH100".
static bool parse_shorthand(const char *spec, struct shorthand *out) {
    uint64_t counts[2];
    size_t n = 0;
    while (n < 2 && isdigit((unsigned char)*spec)) {
        char *end;
        uint64_t v = strtoull(spec, &end, 10);
        if ((*end != 'x' && *end != 'X') || v == 0 || v > 100000)
            break;
        counts[n++] = v;
        spec = end + 1;
    }
    if (n == 0 || !*spec)
        return false;
    *out = (struct shorthand){n == 2 ? counts[0] : 1, counts[n - 1], spec};
    return true;
}

// A host figure that belongs to another machine is an assumption here.
static struct figure borrowed(struct figure f, const char *host, struct arena *a) {
    if (!figure_is_known(f))
        return f;
    const char *basis = f.provenance == PROVENANCE_ASSUMED
                            ? f.source
                            : arena_printf(a, "as %s: %s", host, f.source);
    double low = f.low < f.value / 2 ? f.low : f.value / 2;
    double high = f.high > f.value * 2 ? f.high : f.value * 2;
    return figure_assumed(f.value, low, high, basis);
}

static void borrow_host(struct cluster *c, const char *host, struct arena *a) {
    struct figure *const figures[] = {
        &c->nic_bytes_per_s,        &c->pcie_switch_bytes_per_s, &c->cpu_cores,
        &c->host_memory_bytes,      &c->host_dram_bytes_per_s,   &c->nvme_read_bytes_per_s,
        &c->nvme_write_bytes_per_s, &c->nvme_capacity_bytes,
    };
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        *figures[i] = borrowed(*figures[i], host, a);
    c->usd_per_gpu_hour = figure_unknown();
    c->price_date = NULL;
}

static void bare_host(struct cluster *c) {
    memset(c, 0, sizeof *c);
    struct figure *const figures[] = {
        &c->nic_bytes_per_s,         &c->inter_efficiency,
        &c->pcie_switch_bytes_per_s, &c->cpu_cores,
        &c->host_memory_bytes,       &c->host_dram_bytes_per_s,
        &c->nvme_read_bytes_per_s,   &c->nvme_write_bytes_per_s,
        &c->nvme_capacity_bytes,     &c->usd_per_gpu_hour,
        &c->cpu_adam_s_per_param,
    };
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        *figures[i] = figure_unknown();
    for (size_t i = 0; i < CLUSTER_ADAM_SOFTWARES; i++)
        c->cpu_adam_by_software[i] = figure_unknown();
    c->intra_fabric = FABRIC_PCIE;
    c->inter_fabric = FABRIC_ETHERNET;
    c->gpus_per_pcie_switch = 1;
}

enum { NODE_GPUS_USUAL = 8, NODE_GPUS_MOST = 16 };

// "512xH100" is meant as a cluster, but would be one machine whose NVLink joins all of them.
static bool check_node(const char *spec, const struct shorthand *s, uint64_t host_gpus,
                       struct err *e) {
    uint64_t node = host_gpus ? host_gpus : NODE_GPUS_USUAL;
    uint64_t most = node > NODE_GPUS_MOST ? node : NODE_GPUS_MOST;
    if (s->gpus <= most)
        return true;
    return err_set(e, ERR_INPUT,
                   "\"%s\" would be nodes of %" PRIu64 " GPUs each; for nodes of %" PRIu64
                   " write %" PRIu64 "x%" PRIu64 "x%s",
                   spec, s->gpus, node, s->nodes * ((s->gpus + node - 1) / node), node, s->gpu);
}

static bool load_shorthand(const char *spec, const struct shorthand *s, struct arena *a,
                           struct cluster *out, struct err *e) {
    struct gpu gpu;
    struct cluster c;
    const char *path;
    if (!gpu_load(s->gpu, a, &gpu, e))
        return false;
    if (gpu.host) {
        if (!catalog_find(CATALOG_CLUSTERS, gpu.host, a, &path, e) || !cluster_read(path, a, &c, e))
            return false;
        if (!check_node(spec, s, c.gpus_per_node, e))
            return false;
        // One NIC per GPU at most where the host is larger than what was asked for.
        if (s->gpus < c.gpus_per_node && c.nics_per_node * s->gpus / c.gpus_per_node > 0)
            c.nics_per_node = c.nics_per_node * s->gpus / c.gpus_per_node;
        borrow_host(&c, gpu.host, a);
        c.source = arena_printf(a, "assumed: %s in the host of %s", gpu.id, gpu.host);
    } else {
        if (!check_node(spec, s, 0, e))
            return false;
        bare_host(&c);
        c.source = arena_printf(a, "assumed: %s in an unknown host", gpu.id);
    }
    c.gpu = gpu;
    c.name = catalog_normalise(spec, a);
    c.assumed_host = true;
    c.gpus_per_node = s->gpus;
    c.nodes = 1;
    c.gpus = s->gpus;
    if (!cluster_resize(&c, s->nodes, 0, e) || !defaults_fill_cluster(&c, a, e))
        return false;
    *out = c;
    return true;
}

static bool catalog_has(const char *spec, struct arena *a, const char **path) {
    struct stat st;
    *path = arena_printf(a, "%s/clusters/%s.json", catalog_dir(), catalog_normalise(spec, a));
    return stat(*path, &st) == 0;
}

bool cluster_load(const char *spec, struct arena *a, struct cluster *out, struct err *e) {
    struct stat st;
    struct shorthand s;
    const char *path;
    struct err gpu_err = {0}, name_err = {0};
    if (stat(spec, &st) == 0 && S_ISREG(st.st_mode))
        return cluster_read(spec, a, out, e);
    size_t n = strlen(spec);
    if (stat(spec, &st) == 0 && strchr(spec, '/'))
        return err_set(e, ERR_INPUT, "%s: not a regular file", spec);
    if (strchr(spec, '/') || (n > strlen(".json") && !strcmp(spec + n - strlen(".json"), ".json")))
        return err_set(e, ERR_INPUT, "%s: no such file", spec);
    if (catalog_has(spec, a, &path))
        return cluster_read(path, a, out, e);
    bool short_form = parse_shorthand(spec, &s);
    if (short_form && load_shorthand(spec, &s, a, out, &gpu_err))
        return true;
    if (catalog_find(CATALOG_CLUSTERS, spec, a, &path, &name_err))
        return cluster_read(path, a, out, e);
    if (!short_form && catalog_find(CATALOG_GPUS, spec, a, &path, &gpu_err))
        return err_set(e, ERR_INPUT, "\"%s\" is a GPU; how many of them? such as 8x%s", spec, spec);
    const struct err *said = short_form ? &gpu_err : &name_err;
    return err_set(e, said->kind, "%s", said->text);
}

static bool fail_resize(struct err *e, uint64_t gpus, uint64_t nodes, uint64_t per_node) {
    return err_set(e, ERR_USAGE,
                   "%" PRIu64 " GPUs do not spread evenly over %" PRIu64 " nodes of %" PRIu64
                   " GPUs",
                   gpus, nodes, per_node);
}

bool cluster_resize(struct cluster *c, uint64_t nodes, uint64_t gpus, struct err *e) {
    if (c->gpus_per_node == 0)
        return err_set(e, ERR_INPUT, "cluster %s has no GPUs per node", c->name);
    if (nodes > CLUSTER_NODES_MAX || gpus > CLUSTER_GPUS_MAX)
        return err_set(e, ERR_USAGE, "at most %llu nodes and %llu GPUs", CLUSTER_NODES_MAX,
                       CLUSTER_GPUS_MAX);
    if (nodes == 0 && gpus == 0)
        return true;
    if (nodes == 0)
        nodes = (gpus + c->gpus_per_node - 1) / c->gpus_per_node;
    if (gpus == 0)
        gpus = nodes * c->gpus_per_node;
    if (gpus > nodes * c->gpus_per_node || gpus % nodes)
        return fail_resize(e, gpus, nodes, c->gpus_per_node);
    c->nodes = nodes;
    c->gpus = gpus;
    return true;
}
