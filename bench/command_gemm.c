// SPDX-License-Identifier: Apache-2.0
// Matrix products: squares, shapes that are given, or all those of a simulated step.
#include <stdio.h>
#include <string.h>

#include "bench/commands.h"
#include "bench/inventory.h"
#include "bench/words.h"
#include "describe/graph.h"

static bool parse_shape(const char *text, struct bench_point *p, struct err *e) {
    unsigned long long m, n, k;
    char rest;
    if (sscanf(text, "%llux%llux%llu%c", &m, &n, &k, &rest) != 3 || m == 0 || n == 0 || k == 0)
        return err_set(e, ERR_USAGE, "--shape: \"%s\" is not MxNxK", text);
    p->m = m;
    p->n = n;
    p->k = k;
    return true;
}

static struct bench_point product(const struct run *r, bool gpu) {
    uint64_t threads = r->options->threads;
    if (gpu || threads == 0)
        threads = gpu ? 0 : (uint64_t)inventory_processors();
    return (struct bench_point){.kind = "gemm", .threads = threads};
}

static void add_once(struct run *r, struct point_list *list, const struct bench_point *p) {
    for (size_t i = 0; i < list->count; i++) {
        const struct bench_point *q = &list->items[i];
        if (p->m == q->m && p->n == q->n && p->k == q->k && p->dtype == q->dtype)
            return;
    }
    run_add_point(r, list, p);
}

static const char *const types[] = {"bf16", "fp16", "fp32", "tf32", "fp8", NULL};

// `given` types, or when there are none the shape's own on a GPU and fp32 on the host.
static bool add_shape(struct run *r, struct point_list *list, struct bench_point p,
                      const struct opt_texts *given, struct err *e) {
    for (size_t i = 0; i < given->count; i++) {
        if (!dtype_find(given->items[i], &p.dtype))
            return words_refuse("--dtype", given->items[i], types, e);
        add_once(r, list, &p);
    }
    if (given->count == 0)
        add_once(r, list, &p);
    return true;
}

static bool add_graph(struct run *r, const char *path, bool gpu, struct point_list *list,
                      struct err *e) {
    struct graph g;
    if (!graph_read(path, r->arena, &g, e))
        return false;
    for (size_t t = 0; t < g.task_count; t++) {
        for (size_t i = 0; i < g.tasks[t].shape_count; i++) {
            const struct graph_shape *s = &g.tasks[t].shapes[i];
            struct bench_point p = product(r, gpu);
            p.m = s->m;
            p.n = s->n;
            p.k = s->k;
            p.dtype = gpu ? s->dtype : DTYPE_FP32;
            if (!add_shape(r, list, p, &r->options->dtypes, e))
                return false;
        }
    }
    return list->count > 0 || err_set(e, ERR_INPUT, "%s: no task lists a matrix product", path);
}

static bool add_shapes(struct run *r, bool gpu, struct point_list *list, struct err *e) {
    const char *gpu_shapes[] = {"1024x1024x1024", "2048x2048x2048", "4096x4096x4096",
                                "8192x8192x8192"};
    const char *host_shapes[] = {"512x512x512", "1024x1024x1024"};
    const char *gpu_types[] = {"bf16", "fp16", "fp32", "fp8"};
    const char *host_types[] = {"fp32"};
    struct opt_texts shapes = r->options->shapes, dtypes = r->options->dtypes;
    if (shapes.count == 0)
        shapes = gpu ? (struct opt_texts){.items = gpu_shapes, .count = 4}
                     : (struct opt_texts){.items = host_shapes, .count = 2};
    if (dtypes.count == 0)
        dtypes = gpu ? (struct opt_texts){.items = gpu_types, .count = 4}
                     : (struct opt_texts){.items = host_types, .count = 1};
    for (size_t i = 0; i < shapes.count; i++) {
        struct bench_point p = product(r, gpu);
        if (!parse_shape(shapes.items[i], &p, e) || !add_shape(r, list, p, &dtypes, e))
            return false;
    }
    return true;
}

bool command_gemm(struct run *r, const struct opt_texts *rest, struct err *e) {
    static const char *const names[] = {"gemm", "host", NULL};
    struct point_list list = {0};
    if (rest->count > 1)
        return err_set(e, ERR_USAGE, "gemm takes one graph at most");
    const struct backend *b = command_backend(r, names, e);
    if (b == NULL)
        return false;
    bool gpu = strcmp(b->name, "host") != 0;
    bool ok = rest->count == 1 ? add_graph(r, rest->items[0], gpu, &list, e)
                               : add_shapes(r, gpu, &list, e);
    return ok && run_points(r, b, &list, e);
}
