// SPDX-License-Identifier: Apache-2.0
#include "bench/rehearse_products.h"

#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "bench/gpu_lane.h"
#include "bench/product.h"
#include "kernels/gpu.h"

#define ROW_GRAIN 16 // what fp8 wants

struct plan {
    struct graph_shape shape; // as in the graph
    struct product product;   // with the rows that run
    bool known;               // cuBLASLt has an algorithm
};

struct products {
    struct products_setup setup;
    cublasLtHandle_t handle;
    struct plan *plans;
    size_t count;
    struct product_arrays arrays;
    size_t bytes[4]; // of them, in their order
};

// What has no type of its own here is bf16.
static const struct product_type *type_of(enum dtype d) {
    const struct product_type *t = product_type_find(d);
    return t != NULL ? t : product_type_find(DTYPE_BF16);
}

static bool same(const struct graph_shape *a, const struct graph_shape *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->dtype == b->dtype;
}

static struct plan *find(struct products *p, const struct graph_shape *s) {
    for (size_t i = 0; i < p->count; i++)
        if (same(&p->plans[i].shape, s))
            return &p->plans[i];
    return NULL;
}

static void grow(size_t *bytes, uint64_t wanted) {
    *bytes = wanted > *bytes ? wanted : *bytes;
}

static void add_plan(struct products *p, const struct graph_shape *s) {
    if (find(p, s) != NULL)
        return;
    p->plans = realloc(p->plans, (p->count + 1) * sizeof(*p->plans));
    if (p->plans == NULL)
        abort();
    struct plan *l = &p->plans[p->count++];
    const struct product_type *t = type_of(s->dtype);
    struct err ignored = {0};
    uint64_t rows = (uint64_t)((double)s->m * p->setup.shrink);
    rows = p->setup.shrink < 1 ? units_ceil_to(rows > 0 ? rows : 1, ROW_GRAIN) : s->m;
    *l = (struct plan){.shape = *s, .product = {.type = t, .m = rows, .n = s->n, .k = s->k}};
    grow(&p->bytes[0], s->n * s->k * t->in_bytes);
    grow(&p->bytes[1], rows * s->k * t->in_bytes);
    grow(&p->bytes[2], rows * s->n * t->out_bytes);
    l->known = product_open(&l->product, p->handle, &ignored);
}

// Small whole numbers: finite in every type, and sums of them too.
static bool allocate(struct products *p, struct err *e) {
    void **arrays[] = {&p->arrays.weights, &p->arrays.input, &p->arrays.output,
                       &p->arrays.workspace};
    p->bytes[3] = PRODUCT_WORKSPACE_BYTES;
    for (size_t i = 0; i < 4; i++) {
        if (!gpu_lane_ok(cudaMalloc(arrays[i], p->bytes[i]), "the products' arrays; use --shrink",
                         e))
            return false;
        struct gpu_array a = {.pattern = {.type = PATTERN_BF16, .seed = i, .ranks = 1},
                              .at = *arrays[i],
                              .count = p->bytes[i] / 2};
        if (i < 2 && !gpu_lane_ok((cudaError_t)gpu_pattern_fill(&a, p->setup.queue), "filling", e))
            return false;
    }
    return true;
}

bool products_open(const struct products_setup *s, struct products **out, struct err *e) {
    const struct graph *g = s->graph;
    struct products *p = calloc(1, sizeof(*p));
    if (p == NULL)
        abort();
    p->setup = *s;
    *out = NULL;
    cublasStatus_t r = cublasLtCreate(&p->handle);
    if (r != CUBLAS_STATUS_SUCCESS) {
        free(p);
        return r == CUBLAS_STATUS_NOT_INITIALIZED || product_ok(r, "cublasLtCreate", e);
    }
    for (size_t i = 0; i < g->task_count; i++)
        for (size_t k = 0; g->tasks[i].stream == s->stream && k < g->tasks[i].shape_count; k++)
            add_plan(p, &g->tasks[i].shapes[k]);
    if (p->count > 0 && !allocate(p, e)) {
        products_close(p);
        return false;
    }
    if (p->count > 0)
        *out = p;
    else
        products_close(p);
    return true;
}

void products_close(struct products *p) {
    if (p == NULL)
        return;
    void *arrays[] = {p->arrays.weights, p->arrays.input, p->arrays.output, p->arrays.workspace};
    for (size_t i = 0; i < p->count; i++)
        product_close(&p->plans[i].product);
    for (size_t i = 0; i < 4; i++)
        cudaFree(arrays[i]);
    cublasLtDestroy(p->handle);
    free(p->plans);
    free(p);
}

static double work_of(const struct graph_shape *s) {
    return (double)s->m * (double)s->n * (double)s->k * (double)s->count;
}

bool products_queue(struct products *p, const struct graph_task *t, double *left, struct err *e) {
    double all = 0, missing = 0;
    for (size_t i = 0; i < t->shape_count; i++) {
        const struct plan *l = p != NULL ? find(p, &t->shapes[i]) : NULL;
        all += work_of(&t->shapes[i]);
        if (l == NULL || !l->known) {
            missing += work_of(&t->shapes[i]);
            continue;
        }
        for (uint64_t n = 0; n < t->shapes[i].count; n++)
            if (!product_queue(&l->product, p->handle, &p->arrays, p->setup.queue, e))
                return false;
    }
    *left = all > 0 ? missing / all : 0;
    return true;
}
