// SPDX-License-Identifier: Apache-2.0
// What this machine's GPUs do alone and between them and the host.
#include <string.h>

#include "bench/bench_features.h"
#include "bench/commands.h"
#include "bench/numa.h"
#include "bench/words.h"

#if BENCH_HAVE_CUDA
#include "bench/backend_cuda.h"

uint64_t command_gpus(const struct run *r) {
    return backend_cuda_devices(r->options->devices);
}

// One copy at a time on GPU `device`.
static struct bench_point single(const struct run *r, const char *direction, uint64_t device) {
    bool both = strcmp(direction, "bidirectional") == 0;
    return (struct bench_point){
        .kind = "copy",
        .direction = direction,
        .first = device,
        .timed = command_gpus(r) > 1 ? device + 1 : 0,
        .payload_bytes = (both ? 2 : 1) * r->options->bytes,
    };
}

static void add_host_copies(struct run *r, struct point_list *list, const char *direction) {
    uint64_t devices = command_gpus(r);
    bool both = strcmp(direction, "bidirectional") == 0;
    struct bench_point p;
    for (uint64_t d = 0; d < devices; d++) {
        p = single(r, direction, d);
        p.algorithm = "pinned";
        run_add_point(r, list, &p);
    }
    p = single(r, direction, 0);
    p.algorithm = "pageable";
    if (!both)
        run_add_point(r, list, &p);
    p.algorithm = "pinned";
    for (int node = 0; numa_nodes() > 1 && node < numa_nodes() && !both; node++) {
        p.numa = (uint64_t)node + 1;
        run_add_point(r, list, &p);
    }
    if (devices < 2)
        return;
    p = (struct bench_point){.kind = "copy",
                             .direction = direction,
                             .algorithm = "pinned",
                             .concurrent = true,
                             .payload_bytes = (both ? 2 : 1) * devices * r->options->bytes};
    run_add_point(r, list, &p);
    p.payload_bytes = r->options->bytes;
    for (p.timed = 1; p.timed <= devices && !both; p.timed++)
        run_add_point(r, list, &p);
}

static void add_peer_copies(struct run *r, struct point_list *list, const char *direction) {
    uint64_t devices = command_gpus(r);
    for (uint64_t from = 0; from < devices; from++)
        for (uint64_t to = 0; to < devices; to++) {
            struct bench_point p = single(r, direction, from);
            p.timed = 0;
            p.second = to;
            p.paired = true;
            if (from != to)
                run_add_point(r, list, &p);
        }
    struct bench_point p = {.kind = "copy",
                            .direction = direction,
                            .concurrent = true,
                            .payload_bytes = devices * r->options->bytes};
    if (devices > 1)
        run_add_point(r, list, &p);
}

void command_add_gpu_copies(struct run *r, struct point_list *list, const char *direction) {
    uint64_t devices = command_gpus(r);
    if (strcmp(direction, "p2p") == 0) {
        add_peer_copies(r, list, direction);
    } else if (strcmp(direction, "d2d") == 0) {
        for (uint64_t d = 0; d < devices; d++) {
            struct bench_point p = single(r, direction, d);
            run_add_point(r, list, &p);
        }
    } else {
        add_host_copies(r, list, direction);
    }
}

static const struct {
    const char *kind, *algorithm;
    enum dtype dtype;
    bool everywhere; // a slow GPU shows here
} kernels[] = {
    {"memory", "triad", DTYPE_FP32, true},     {"memory", "copy", DTYPE_FP32, true},
    {"adam", "gpu", DTYPE_FP32, false},        {"adam", "gpu", DTYPE_BF16, false},
    {"cast", "fp32", DTYPE_BF16, false},       {"cast", "bf16", DTYPE_FP32, false},
    {"quantize", "int8", DTYPE_BF16, false},   {"quantize", "int4", DTYPE_BF16, false},
    {"dequantize", "int8", DTYPE_BF16, false}, {"dequantize", "int4", DTYPE_BF16, false},
    {"fill", NULL, DTYPE_BF16, false},         {"verify", NULL, DTYPE_BF16, false},
};
#define KERNELS (sizeof(kernels) / sizeof(kernels[0]))

static void add_kernels(struct run *r, struct point_list *list, const char *kind) {
    uint64_t devices = command_gpus(r);
    for (size_t i = 0; i < KERNELS; i++) {
        if (strcmp(kind, kernels[i].kind) != 0)
            continue;
        for (uint64_t d = 0; d < (kernels[i].everywhere ? devices : 1); d++) {
            struct bench_point p = {.kind = kernels[i].kind,
                                    .algorithm = kernels[i].algorithm,
                                    .dtype = kernels[i].dtype,
                                    .n = r->options->bytes / sizeof(float),
                                    .first = d};
            p.timed = kernels[i].everywhere && devices > 1 ? d + 1 : 0;
            p.payload_bytes = backend_cuda_bytes(&p);
            run_add_point(r, list, &p);
        }
    }
}

#else

uint64_t command_gpus(const struct run *r) {
    (void)r;
    return 0;
}

void command_add_gpu_copies(struct run *r, struct point_list *list, const char *direction) {
    (void)r, (void)list, (void)direction;
}

static void add_kernels(struct run *r, struct point_list *list, const char *kind) {
    (void)r, (void)list, (void)kind;
}

#endif

bool command_cuda(struct run *r, const struct opt_texts *rest, struct err *e) {
    static const char *const names[] = {"cuda", NULL};
    static const char *const directions[] = {"h2d",  "d2h", "bidirectional", "d2d", "p2p",
                                             "none", NULL};
    static const char *const kernel_names[] = {"memory", "adam",   "cast", "quantize", "dequantize",
                                               "fill",   "verify", "none", NULL};
    const struct options *o = r->options;
    struct point_list list = {0};
    (void)rest;
    for (size_t i = 0; i < o->variants.count; i++)
        if (!words_check("--kernel", o->variants.items[i], kernel_names, e))
            return false;
    for (size_t i = 0; i < o->directions.count; i++)
        if (!words_check("--direction", o->directions.items[i], directions, e))
            return false;
    const struct backend *b = command_backend(r, names, e);
    if (b == NULL)
        return false;
    for (size_t i = 0; i < o->directions.count; i++)
        if (strcmp(o->directions.items[i], "none") != 0)
            command_add_gpu_copies(r, &list, o->directions.items[i]);
    for (size_t i = 0; i < o->variants.count; i++)
        if (strcmp(o->variants.items[i], "none") != 0)
            add_kernels(r, &list, o->variants.items[i]);
    return run_points(r, b, &list, e);
}
