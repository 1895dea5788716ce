// SPDX-License-Identifier: Apache-2.0
#include "describe/cluster_fields.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

#define RATE "rate"
#define BYTES "bytes"
#define SECONDS "seconds"
#define NUMBER "number"
#define COUNT "count"
#define CLUSTER(field, value, help)                                                                \
    { "cluster." #field, offsetof(struct cluster, field), false, value, help }
#define WHOLE(field, help)                                                                         \
    { "cluster." #field, offsetof(struct cluster, field), true, COUNT, help }
#define GPU(field, value, help)                                                                    \
    {                                                                                              \
        "gpu." #field, offsetof(struct cluster, gpu) + offsetof(struct gpu, field), false, value,  \
            help                                                                                   \
    }
#define PEAK(name, type)                                                                           \
    {                                                                                              \
        "gpu.peak_flop_per_s." name,                                                               \
            offsetof(struct cluster, gpu) + offsetof(struct gpu, peak_flop_per_s) +                \
                type * sizeof(struct figure),                                                      \
            false, NUMBER, "dense " name " peak, FLOP/s"                                           \
    }

const struct cluster_field cluster_fields[] = {
    WHOLE(nics_per_node, "network cards of a node"),
    CLUSTER(nic_bytes_per_s, RATE, "one network card, line rate"),
    CLUSTER(inter_efficiency, NUMBER, "share of the line rate that large messages reach"),
    WHOLE(gpus_per_pcie_switch, "GPUs that share one PCIe uplink"),
    CLUSTER(pcie_switch_bytes_per_s, RATE, "that uplink"),
    CLUSTER(cpu_cores, NUMBER, "physical cores of a node"),
    CLUSTER(host_memory_bytes, BYTES, "memory of a node"),
    CLUSTER(host_dram_bytes_per_s, RATE, "STREAM triad of a node"),
    CLUSTER(nvme_read_bytes_per_s, RATE, "NVMe of a node, reading"),
    CLUSTER(nvme_write_bytes_per_s, RATE, "NVMe of a node, writing"),
    CLUSTER(nvme_capacity_bytes, BYTES, "NVMe space of a node"),
    CLUSTER(usd_per_gpu_hour, NUMBER, "price"),
    CLUSTER(cpu_adam_s_per_param, SECONDS, "CPU Adam, per parameter, whole node busy"),
    GPU(memory_torch_bytes, BYTES, "memory as torch sees it"),
    GPU(context_bytes, BYTES, "CUDA context of a process"),
    GPU(nccl_first_bytes, BYTES, "first NCCL communicator"),
    GPU(nccl_next_bytes, BYTES, "every further one"),
    GPU(hbm_bytes_per_s, RATE, "GPU memory, peak"),
    GPU(hbm_fraction, NUMBER, "share of that peak kernels reach"),
    GPU(nvlink_bytes_per_s, RATE, "NVLink per direction, all links"),
    GPU(nvlink_busbw_bytes_per_s, RATE, "ring collective on one node"),
    GPU(nvls_busbw_bytes_per_s, RATE, "all-reduce with in-switch reduction"),
    GPU(pcie_h2d_bytes_per_s, RATE, "pinned copies to the GPU"),
    GPU(pcie_d2h_bytes_per_s, RATE, "pinned copies to the host"),
    GPU(pcie_h2d_both_bytes_per_s, RATE, "to the GPU while the other way runs"),
    GPU(pcie_d2h_both_bytes_per_s, RATE, "to the host while the other way runs"),
    PEAK("fp32", DTYPE_FP32),
    PEAK("bf16", DTYPE_BF16),
    PEAK("fp16", DTYPE_FP16),
    PEAK("fp8", DTYPE_FP8),
};
const size_t cluster_field_count = sizeof cluster_fields / sizeof cluster_fields[0];

bool cluster_field_owns(const char *path) {
    return strncmp(path, "cluster.", strlen("cluster.")) == 0 ||
           strncmp(path, "gpu.", strlen("gpu.")) == 0;
}

static const struct cluster_field *find(const char *path, struct err *e) {
    const char *names[sizeof cluster_fields / sizeof cluster_fields[0]];
    for (size_t i = 0; i < cluster_field_count; i++) {
        names[i] = cluster_fields[i].path;
        if (strcmp(names[i], path) == 0)
            return &cluster_fields[i];
    }
    const char *near = kinds_nearest(names, cluster_field_count, path);
    err_set(e, ERR_USAGE, "--set %s: no such figure%s%s%s", path, near ? "; did you mean '" : "",
            near ? near : " (docs/formats.md lists them)", near ? "'?" : "");
    return NULL;
}

static bool parse(const struct cluster_field *f, const char *value, double *out, struct err *e) {
    uint64_t whole = 0;
    bool ok = false;
    if (strcmp(f->value, RATE) == 0) {
        ok = units_parse_rate(value, out, e);
    } else if (strcmp(f->value, SECONDS) == 0) {
        ok = units_parse_seconds(value, out, e);
    } else if (strcmp(f->value, NUMBER) == 0) {
        ok = units_parse_double(value, out, e);
    } else {
        ok = strcmp(f->value, BYTES) == 0 ? units_parse_bytes(value, &whole, e)
                                          : units_parse_count(value, &whole, e);
        *out = (double)whole;
    }
    if (!ok)
        err_note(e, "--set %s", f->path);
    else if (!isfinite(*out) || *out <= 0)
        ok = err_set(e, ERR_USAGE, "--set %s=%s: must be above zero", f->path, value);
    return ok;
}

bool cluster_field_set(struct cluster *c, const char *path, const char *value, struct err *e) {
    const struct cluster_field *f = find(path, e);
    double number = 0;
    if (f == NULL || !parse(f, value, &number, e))
        return false;
    void *at = (char *)c + f->offset;
    if (f->whole)
        *(uint64_t *)at = (uint64_t)number;
    else
        *(struct figure *)at = figure_known(number, PROVENANCE_SPEC, "--set");
    if (at == &c->cpu_adam_s_per_param) // whatever the software
        for (size_t i = 0; i < CLUSTER_ADAM_SOFTWARES; i++)
            c->cpu_adam_by_software[i] = figure_unknown();
    return true;
}
