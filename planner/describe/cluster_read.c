// SPDX-License-Identifier: Apache-2.0
// The JSON form of a cluster: docs/formats.md §cluster. Our own format, so unknown keys are errors.
#include "describe/cluster.h"

#include "base/json.h"
#include "describe/catalog.h"
#include "describe/defaults.h"
#include "describe/figures.h"
#include "describe/gpu.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

const char *const fabric_class_names[] = {
    [FABRIC_NVSWITCH] = "nvswitch",
    [FABRIC_NVLINK_MESH] = "nvlink_mesh",
    [FABRIC_PCIE] = "pcie",
    [FABRIC_XGMI] = "xgmi",
    [FABRIC_INFINIBAND] = "infiniband",
    [FABRIC_ROCE] = "roce",
    [FABRIC_EFA] = "efa",
    [FABRIC_TCPX] = "tcpx",
    [FABRIC_TCPXO] = "tcpxo",
    [FABRIC_ETHERNET] = "ethernet",
};
_Static_assert(sizeof fabric_class_names / sizeof fabric_class_names[0] == FABRIC_CLASS_COUNT,
               "one name per fabric");

#define CLUSTER_FIGURE(member)                                                                     \
    { #member, offsetof(struct cluster, member) }

static const struct figure_field fields[] = {
    CLUSTER_FIGURE(nic_bytes_per_s),         CLUSTER_FIGURE(inter_efficiency),
    CLUSTER_FIGURE(pcie_switch_bytes_per_s), CLUSTER_FIGURE(cpu_cores),
    CLUSTER_FIGURE(host_memory_bytes),       CLUSTER_FIGURE(host_dram_bytes_per_s),
    CLUSTER_FIGURE(nvme_read_bytes_per_s),   CLUSTER_FIGURE(nvme_write_bytes_per_s),
    CLUSTER_FIGURE(nvme_capacity_bytes),     CLUSTER_FIGURE(usd_per_gpu_hour),
    CLUSTER_FIGURE(cpu_adam_s_per_param),
};
static const struct figure_table figures = {fields, sizeof fields / sizeof fields[0]};

#define CLUSTER_NUMBER(member, max)                                                                \
    { #member, offsetof(struct cluster, member), max }

static const struct {
    const char *key;
    size_t offset;
    uint64_t max;
} numbers[] = {
    CLUSTER_NUMBER(nodes, CLUSTER_NODES_MAX), CLUSTER_NUMBER(gpus_per_node, 1024),
    CLUSTER_NUMBER(gpus, CLUSTER_GPUS_MAX),   CLUSTER_NUMBER(nics_per_node, 1024),
    CLUSTER_NUMBER(gpus_per_pcie_switch, 64), CLUSTER_NUMBER(sockets, 64),
    CLUSTER_NUMBER(numa_nodes, 256),
};
#define NUMBER_COUNT (sizeof numbers / sizeof numbers[0])

static const char *const keys[] = {
    "schema",
    "base",
    "name",
    "aliases",
    "source",
    "gpu",
    "nodes",
    "gpus_per_node",
    "gpus",
    "intra_fabric",
    "inter_fabric",
    "nics_per_node",
    "nic_bytes_per_s",
    "inter_efficiency",
    "gpus_per_pcie_switch",
    "nic_shares_pcie_switch",
    "pcie_switch_bytes_per_s",
    "sockets",
    "numa_nodes",
    "cpu_cores",
    "host_memory_bytes",
    "host_dram_bytes_per_s",
    "nvme_read_bytes_per_s",
    "nvme_write_bytes_per_s",
    "nvme_capacity_bytes",
    "usd_per_gpu_hour",
    "price_date",
    "cpu_adam_s_per_param",
    "cpu_adam_by_software",
    "assumed_host",
    "fits",
};

static const char *const adam_names[CLUSTER_ADAM_SOFTWARES] = {"own", "deepspeed", "torch"};

static void cluster_init(struct cluster *c) {
    memset(c, 0, sizeof *c);
    figures_clear(&figures, c);
    for (size_t i = 0; i < CLUSTER_ADAM_SOFTWARES; i++)
        c->cpu_adam_by_software[i] = figure_unknown();
    gpu_init(&c->gpu);
    c->nodes = 1;
    c->gpus_per_pcie_switch = 1;
    c->inter_fabric = FABRIC_ETHERNET;
    c->intra_fabric = FABRIC_PCIE;
}

static bool read_fabric(struct json_node n, const char *key, enum fabric_class *out,
                        struct err *e) {
    const char *text = NULL;
    struct json_node at;
    if (!json_get_string(n, key, false, &text, e))
        return false;
    if (!text)
        return true;
    int i = kinds_find(fabric_class_names, FABRIC_CLASS_COUNT, text);
    if (i < 0 && json_find(n, key, &at)) {
        const char *near = kinds_nearest(fabric_class_names, FABRIC_CLASS_COUNT, text);
        return json_fail(at, e, "unknown fabric \"%.40s\"; %s%s", text,
                         near ? "did you mean "
                              : "known: nvswitch, nvlink_mesh, pcie, xgmi, "
                                "infiniband, roce, efa, tcpx, tcpxo, ethernet",
                         near ? near : "");
    }
    *out = (enum fabric_class)i;
    return true;
}

// A catalog name, or an object as in a GPU file.
static bool read_gpu(struct json_node n, struct arena *a, struct gpu *g, struct err *e) {
    struct json_node at;
    if (!json_find(n, "gpu", &at) || json_is_null(at))
        return g->id ? true : json_fail(n, e, "\"gpu\" is missing");
    if (json_is_string(at)) {
        const char *text = NULL;
        if (!json_get_string(n, "gpu", true, &text, e))
            return false;
        if (!gpu_load(text, a, g, e)) {
            err_note(e, "the cluster's \"gpu\"");
            return false;
        }
        return true;
    }
    return gpu_read_node(at, a, g, e);
}

static bool read_fit(struct json_node n, struct arena *a, struct cluster_fit *fit, struct err *e) {
    static const char *const fit_keys[] = {"collective",
                                           "nodes",
                                           "ranks",
                                           "latency_s",
                                           "busbw_bytes_per_s",
                                           "half_bytes",
                                           "min_payload_bytes",
                                           "max_payload_bytes",
                                           "cores"};
    const char *name = NULL;
    if (!json_check_keys(n, fit_keys, sizeof fit_keys / sizeof fit_keys[0], e) ||
        !json_get_string(n, "collective", true, &name, e))
        return false;
    if (!collective_find(name, &fit->collective))
        return json_fail(n, e, "unknown collective \"%.40s\"", name);
    fit->latency_s = fit->busbw_bytes_per_s = fit->half_bytes = figure_unknown();
    return json_get_u64(n, "nodes", true, &fit->nodes, e) &&
           json_get_u64(n, "ranks", true, &fit->ranks, e) &&
           json_get_figure(n, "latency_s", true, a, &fit->latency_s, e) &&
           figures_read_one(n, "busbw_bytes_per_s", a, &fit->busbw_bytes_per_s, e) &&
           json_get_figure(n, "half_bytes", false, a, &fit->half_bytes, e) &&
           json_get_double(n, "min_payload_bytes", false, &fit->min_payload_bytes, e) &&
           json_get_double(n, "max_payload_bytes", false, &fit->max_payload_bytes, e) &&
           json_get_double(n, "cores", false, &fit->cores, e);
}

// An object of figures by the recipe's adam_software.
static bool read_adam(struct json_node n, struct arena *a, struct cluster *c, struct err *e) {
    struct json_node by;
    if (!json_find(n, "cpu_adam_by_software", &by) || json_is_null(by))
        return true;
    if (!json_check_keys(by, adam_names, CLUSTER_ADAM_SOFTWARES, e))
        return false;
    for (size_t i = 0; i < CLUSTER_ADAM_SOFTWARES; i++)
        if (!figures_read_one(by, adam_names[i], a, &c->cpu_adam_by_software[i], e))
            return false;
    return true;
}

static bool read_fits(struct json_node n, struct arena *a, struct cluster *c, struct err *e) {
    struct json_node list;
    if (!json_find(n, "fits", &list) || json_is_null(list))
        return true;
    if (!json_is_array(list))
        return json_fail(list, e, "expected an array of fits");
    size_t count = json_size(list);
    struct cluster_fit *fits = arena_array(a, count + 1, sizeof *fits);
    for (size_t i = 0; i < count; i++)
        if (!read_fit(json_at(list, i), a, &fits[i], e))
            return false;
    c->fits = fits;
    c->fit_count = count;
    return true;
}

static bool read_numbers(struct json_node n, struct cluster *c, struct err *e) {
    for (size_t i = 0; i < NUMBER_COUNT; i++) {
        uint64_t *out = (uint64_t *)(void *)((char *)c + numbers[i].offset);
        if (!gpu_read_u64(n, numbers[i].key, numbers[i].max, out, e))
            return false;
    }
    return true;
}

static bool check_counts(struct json_node n, struct cluster *c, bool gpus_given, struct err *e) {
    if (c->nodes == 0 || c->gpus_per_node == 0)
        return json_fail(n, e, "\"nodes\" and \"gpus_per_node\" are at least 1");
    uint64_t all = c->nodes * c->gpus_per_node;
    if (!gpus_given)
        c->gpus = all;
    if (c->gpus == 0 || c->gpus > all || c->gpus % c->nodes)
        return json_fail(n, e,
                         "%" PRIu64 " GPUs do not fit %" PRIu64 " nodes of %" PRIu64 " GPUs evenly",
                         c->gpus, c->nodes, c->gpus_per_node);
    if (c->gpus_per_pcie_switch == 0)
        return json_fail(n, e, "\"gpus_per_pcie_switch\" is at least 1");
    return true;
}

static bool read_base(struct json_node n, struct arena *a, struct cluster *c, struct err *e);

static bool read_node(struct json_node n, struct arena *a, struct cluster *c, bool allow_base,
                      struct err *e) {
    struct json_node at;
    bool gpus_given = json_find(n, "gpus", &at) && !json_is_null(at);
    if (!json_check_keys(n, keys, sizeof keys / sizeof keys[0], e))
        return false;
    if (!allow_base && json_find(n, "base", &at))
        return json_fail(at, e, "a base cannot have a base");
    if (!read_base(n, a, c, e) || !figures_read_text(n, "name", a, &c->name, e) ||
        !figures_read_text(n, "source", a, &c->source, e) ||
        !figures_read_text(n, "price_date", a, &c->price_date, e) || !read_gpu(n, a, &c->gpu, e) ||
        !read_numbers(n, c, e) || !read_fabric(n, "intra_fabric", &c->intra_fabric, e) ||
        !read_fabric(n, "inter_fabric", &c->inter_fabric, e) ||
        !json_get_bool(n, "nic_shares_pcie_switch", false, &c->nic_shares_pcie_switch, e) ||
        !json_get_bool(n, "assumed_host", false, &c->assumed_host, e))
        return false;
    return figures_read(&figures, n, a, c, e) && read_adam(n, a, c, e) && read_fits(n, a, c, e) &&
           check_counts(n, c, gpus_given, e);
}

static bool read_file(const char *path, struct arena *a, struct cluster *c, bool allow_base,
                      struct err *e) {
    struct json_doc *doc = json_read_file(path, e);
    if (!doc)
        return false;
    cluster_init(c);
    bool ok = read_node(json_root(doc), a, c, allow_base, e);
    json_destroy(doc);
    if (ok && !c->name)
        c->name = arena_strdup(a, path);
    if (ok && !c->source)
        c->source = arena_strdup(a, path);
    return ok;
}

static bool read_base(struct json_node n, struct arena *a, struct cluster *c, struct err *e) {
    const char *base = NULL, *path;
    if (!json_get_string(n, "base", false, &base, e))
        return false;
    return !base ||
           (catalog_find(CATALOG_CLUSTERS, base, a, &path, e) && read_file(path, a, c, false, e));
}

bool cluster_read(const char *path, struct arena *a, struct cluster *out, struct err *e) {
    struct cluster c;
    if (!read_file(path, a, &c, true, e) || !defaults_fill_cluster(&c, a, e))
        return false;
    *out = c;
    return true;
}

bool cluster_read_text(const char *text, size_t bytes, struct arena *a, struct cluster *out,
                       struct err *e) {
    struct cluster c;
    struct json_doc *doc = json_read_text(text, bytes, "cluster", e);
    cluster_init(&c);
    bool ok = doc && read_node(json_root(doc), a, &c, true, e);
    json_destroy(doc);
    if (!ok || !defaults_fill_cluster(&c, a, e))
        return false;
    *out = c;
    return true;
}

static void write_adam(cJSON *root, const struct cluster *c) {
    cJSON *by = json_add_object(root, "cpu_adam_by_software");
    for (size_t i = 0; i < CLUSTER_ADAM_SOFTWARES; i++)
        if (figure_is_known(c->cpu_adam_by_software[i]))
            json_add_figure(by, adam_names[i], c->cpu_adam_by_software[i]);
}

static void write_fits(cJSON *root, const struct cluster *c) {
    cJSON *list = json_add_array(root, "fits");
    for (size_t i = 0; i < c->fit_count; i++) {
        const struct cluster_fit *f = &c->fits[i];
        cJSON *o = json_append_object(list);
        json_add_string(o, "collective", collective_name(f->collective));
        json_add_u64(o, "nodes", f->nodes);
        json_add_u64(o, "ranks", f->ranks);
        json_add_figure(o, "latency_s", f->latency_s);
        json_add_figure(o, "busbw_bytes_per_s", f->busbw_bytes_per_s);
        json_add_figure(o, "half_bytes", f->half_bytes);
        json_add_double(o, "min_payload_bytes", f->min_payload_bytes);
        json_add_double(o, "max_payload_bytes", f->max_payload_bytes);
        if (f->cores > 0)
            json_add_double(o, "cores", f->cores);
    }
}

bool cluster_write(const char *path, const struct cluster *c, struct err *e) {
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", "shardplan.cluster/1");
    json_add_string(root, "name", c->name);
    json_add_string(root, "source", c->source);
    gpu_write_node(json_add_object(root, "gpu"), &c->gpu);
    for (size_t i = 0; i < NUMBER_COUNT; i++)
        json_add_u64(root, numbers[i].key,
                     *(const uint64_t *)(const void *)((const char *)c + numbers[i].offset));
    json_add_string(root, "intra_fabric", fabric_class_names[c->intra_fabric]);
    json_add_string(root, "inter_fabric", fabric_class_names[c->inter_fabric]);
    json_add_bool(root, "nic_shares_pcie_switch", c->nic_shares_pcie_switch);
    figures_write(&figures, root, c);
    write_adam(root, c);
    json_add_string(root, "price_date", c->price_date);
    json_add_bool(root, "assumed_host", c->assumed_host);
    write_fits(root, c);
    bool ok = json_write_file(path, root, e);
    cJSON_Delete(root);
    return ok;
}
