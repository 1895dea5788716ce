// SPDX-License-Identifier: Apache-2.0
#include "describe/gpu.h"

#include "describe/catalog.h"
#include "describe/defaults.h"
#include "describe/figures.h"
#include "describe/gpu_kernels.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#define GPU_FIGURE(member)                                                                         \
    { #member, offsetof(struct gpu, member) }

static const struct figure_field fields[] = {
    GPU_FIGURE(memory_nominal_bytes),      GPU_FIGURE(memory_smi_bytes),
    GPU_FIGURE(memory_torch_bytes),        GPU_FIGURE(context_bytes),
    GPU_FIGURE(nccl_first_bytes),          GPU_FIGURE(nccl_next_bytes),
    GPU_FIGURE(hbm_bytes_per_s),           GPU_FIGURE(hbm_fraction),
    GPU_FIGURE(nvlink_bytes_per_s),        GPU_FIGURE(nvlink_busbw_bytes_per_s),
    GPU_FIGURE(nvls_busbw_bytes_per_s),    GPU_FIGURE(pcie_h2d_bytes_per_s),
    GPU_FIGURE(pcie_d2h_bytes_per_s),      GPU_FIGURE(pcie_h2d_both_bytes_per_s),
    GPU_FIGURE(pcie_d2h_both_bytes_per_s),
};
static const struct figure_table figures = {fields, sizeof fields / sizeof fields[0]};

static const char *const keys[] = {
    "schema",
    "base",
    "id",
    "name",
    "vendor",
    "sm",
    "aliases",
    "host",
    "memory_nominal_bytes",
    "memory_smi_bytes",
    "memory_torch_bytes",
    "context_bytes",
    "nccl_first_bytes",
    "nccl_next_bytes",
    "hbm_bytes_per_s",
    "hbm_fraction",
    "peak_flop_per_s",
    "matmul_fraction",
    "nvlink_bytes_per_s",
    "nvlink_busbw_bytes_per_s",
    "nvls_busbw_bytes_per_s",
    "nvlink_generation",
    "nvlink_count",
    "pcie_generation",
    "pcie_lanes",
    "pcie_h2d_bytes_per_s",
    "pcie_d2h_bytes_per_s",
    "pcie_h2d_both_bytes_per_s",
    "pcie_d2h_both_bytes_per_s",
    "kernels",
};

void gpu_init(struct gpu *g) {
    memset(g, 0, sizeof *g);
    figures_clear(&figures, g);
    for (size_t t = 0; t < DTYPE_COUNT; t++)
        g->peak_flop_per_s[t] = g->matmul_fraction[t] = figure_unknown();
    gpu_kernels_clear(g->kernels);
}

bool gpu_read_u64(struct json_node o, const char *key, uint64_t max, uint64_t *out, struct err *e) {
    uint64_t v = *out;
    struct json_node n;
    if (!json_get_u64(o, key, false, &v, e))
        return false;
    if (v > max && json_find(o, key, &n))
        return json_fail(n, e, "%" PRIu64 " is above the limit of %" PRIu64, v, max);
    *out = v;
    return true;
}

// An object of figures by tensor type.
static bool read_by_dtype(struct json_node n, const char *key, struct arena *a, struct figure *out,
                          struct err *e) {
    struct json_node o;
    if (!json_find(n, key, &o) || json_is_null(o))
        return true;
    const char *names[DTYPE_COUNT];
    for (int t = 0; t < DTYPE_COUNT; t++)
        names[t] = dtype_name((enum dtype)t);
    if (!json_check_keys(o, names, DTYPE_COUNT, e))
        return false;
    for (size_t t = 0; t < DTYPE_COUNT; t++)
        if (!figures_read_one(o, names[t], a, &out[t], e))
            return false;
    return true;
}

static bool read_kernels(struct json_node n, struct arena *a, struct gpu *g, struct err *e) {
    struct json_node o;
    return !json_find(n, "kernels", &o) || json_is_null(o) || gpu_kernels_read(o, a, g->kernels, e);
}

static bool read_numbers(struct json_node n, struct gpu *g, struct err *e) {
    return gpu_read_u64(n, "nvlink_generation", 100, &g->nvlink_generation, e) &&
           gpu_read_u64(n, "nvlink_count", 1000, &g->nvlink_count, e) &&
           gpu_read_u64(n, "pcie_generation", 100, &g->pcie_generation, e) &&
           gpu_read_u64(n, "pcie_lanes", 1000, &g->pcie_lanes, e);
}

static bool read_gpu_file(const char *path, struct arena *a, struct gpu *out, struct err *e);

// One level of base only: a catalog GPU has none, so there is no cycle.
static bool read_base(struct json_node n, struct arena *a, struct gpu *g, struct err *e) {
    const char *base = NULL, *path;
    if (!json_get_string(n, "base", false, &base, e))
        return false;
    return !base || (catalog_find(CATALOG_GPUS, base, a, &path, e) && read_gpu_file(path, a, g, e));
}

static bool read_members(struct json_node n, struct arena *a, struct gpu *g, struct err *e) {
    if (!figures_read_text(n, "id", a, &g->id, e) ||
        !figures_read_text(n, "name", a, &g->name, e) ||
        !figures_read_text(n, "vendor", a, &g->vendor, e) ||
        !figures_read_text(n, "sm", a, &g->sm, e) || !figures_read_text(n, "host", a, &g->host, e))
        return false;
    if (!figures_read(&figures, n, a, g, e) ||
        !read_by_dtype(n, "peak_flop_per_s", a, g->peak_flop_per_s, e) ||
        !read_by_dtype(n, "matmul_fraction", a, g->matmul_fraction, e) || !read_numbers(n, g, e) ||
        !read_kernels(n, a, g, e))
        return false;
    if (!g->id)
        return json_fail(n, e, "\"id\" is missing");
    if (!g->name)
        g->name = g->id;
    if (!figure_is_known(g->memory_nominal_bytes) && !figure_is_known(g->memory_torch_bytes) &&
        !figure_is_known(g->memory_smi_bytes))
        return json_fail(n, e,
                         "a GPU needs memory_torch_bytes, memory_smi_bytes or "
                         "memory_nominal_bytes");
    return true;
}

// A size of its own makes another part: the base's readings are of the base's memory.
static void forget_memory(struct json_node n, struct gpu *g) {
    static const char *const sizes[] = {"memory_nominal_bytes", "memory_smi_bytes",
                                        "memory_torch_bytes"};
    struct json_node size;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (json_find(n, sizes[i], &size) && !json_is_null(size))
            g->memory_nominal_bytes = g->memory_smi_bytes = g->memory_torch_bytes =
                figure_unknown();
}

bool gpu_read_node(struct json_node n, struct arena *a, struct gpu *g, struct err *e) {
    struct gpu read = *g;
    if (!json_check_keys(n, keys, sizeof keys / sizeof keys[0], e) || !read_base(n, a, &read, e))
        return false;
    forget_memory(n, &read);
    if (!read_members(n, a, &read, e))
        return false;
    *g = read;
    return true;
}

// The file of a base: the same, but it may not itself have one.
static bool read_gpu_file(const char *path, struct arena *a, struct gpu *out, struct err *e) {
    struct json_doc *doc = json_read_file(path, e);
    if (!doc)
        return false;
    struct gpu g;
    gpu_init(&g);
    struct json_node root = json_root(doc), base;
    bool ok = json_check_keys(root, keys, sizeof keys / sizeof keys[0], e);
    if (ok && json_find(root, "base", &base))
        ok = json_fail(base, e, "a base cannot have a base");
    ok = ok && read_members(root, a, &g, e);
    json_destroy(doc);
    if (ok)
        *out = g;
    return ok;
}

static bool read_user_file(const char *path, struct arena *a, struct gpu *out, struct err *e) {
    struct json_doc *doc = json_read_file(path, e);
    if (!doc)
        return false;
    struct gpu g;
    gpu_init(&g);
    bool ok = gpu_read_node(json_root(doc), a, &g, e);
    json_destroy(doc);
    if (ok)
        *out = g;
    return ok;
}

bool gpu_load(const char *spec, struct arena *a, struct gpu *out, struct err *e) {
    struct stat st;
    struct gpu g;
    const char *path = spec;
    bool is_file = stat(spec, &st) == 0 && S_ISREG(st.st_mode);
    if (!is_file && !catalog_find(CATALOG_GPUS, spec, a, &path, e))
        return false;
    if (!read_user_file(path, a, &g, e) || !defaults_fill_gpu(&g, a, e))
        return false;
    *out = g;
    return true;
}

struct figure gpu_visible_bytes(const struct gpu *g) {
    if (figure_is_known(g->memory_torch_bytes))
        return g->memory_torch_bytes;
    return figure_is_known(g->memory_smi_bytes) ? g->memory_smi_bytes : g->memory_nominal_bytes;
}

static void write_by_dtype(cJSON *o, const char *key, const struct figure *f) {
    cJSON *by = json_add_object(o, key);
    for (size_t t = 0; t < DTYPE_COUNT; t++)
        if (figure_is_known(f[t]))
            json_add_figure(by, dtype_name((enum dtype)t), f[t]);
}

static void write_kernels(cJSON *o, const struct gpu *g) {
    cJSON *kernels = json_add_object(o, "kernels");
    for (size_t s = 0; s < STACK_COUNT; s++) {
        cJSON *stack = NULL;
        for (size_t i = 0; i < KERNEL_CONSTANT_COUNT; i++) {
            if (!figure_is_known(g->kernels[s].constants[i]))
                continue;
            if (!stack)
                stack = json_add_object(kernels, kernel_stack_keys[s]);
            json_add_figure(stack, kernel_constant_names[i], g->kernels[s].constants[i]);
        }
    }
}

void gpu_write_node(cJSON *o, const struct gpu *g) {
    json_add_string(o, "id", g->id);
    json_add_string(o, "name", g->name);
    json_add_string(o, "vendor", g->vendor);
    json_add_string(o, "sm", g->sm);
    json_add_string(o, "host", g->host);
    figures_write(&figures, o, g);
    write_by_dtype(o, "peak_flop_per_s", g->peak_flop_per_s);
    write_by_dtype(o, "matmul_fraction", g->matmul_fraction);
    json_add_u64(o, "nvlink_generation", g->nvlink_generation);
    json_add_u64(o, "nvlink_count", g->nvlink_count);
    json_add_u64(o, "pcie_generation", g->pcie_generation);
    json_add_u64(o, "pcie_lanes", g->pcie_lanes);
    write_kernels(o, g);
}
