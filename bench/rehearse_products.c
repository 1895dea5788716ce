// SPDX-License-Identifier: Apache-2.0
#include "bench/rehearse_products.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "bench/gpu_lane.h"
#include "kernels/gpu.h"

#define WORKSPACE_BYTES (32 * UNITS_MIB)
#define ROW_GRAIN 16 // what fp8 wants

struct plan {
    struct graph_shape shape; // as in the graph
    uint64_t rows;            // of the product that runs
    bool known;               // cuBLASLt has an algorithm
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t weights, input, output;
    cublasLtMatmulAlgo_t algorithm;
};

struct products {
    struct products_setup setup;
    cublasLtHandle_t handle;
    struct plan *plans;
    size_t count;
    char *arrays[4]; // weights, input, output, workspace
    size_t bytes[4];
};

struct precision {
    cudaDataType_t in, out;
    cublasComputeType_t compute;
    size_t in_bytes, out_bytes;
};

static struct precision precision_of(enum dtype d) {
    switch (d) {
    case DTYPE_FP32:
        return (struct precision){CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 4, 4};
    case DTYPE_TF32:
        return (struct precision){CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4, 4};
    case DTYPE_FP16:
        return (struct precision){CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, 2, 2};
    case DTYPE_FP8:
        return (struct precision){CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 1, 2};
    default:
        return (struct precision){CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2, 2};
    }
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

// cuBLASLt is column-major: weights are stored [n,k], the product is [n,m].
static cublasStatus_t describe(struct plan *l) {
    struct precision t = precision_of(l->shape.dtype);
    const struct graph_shape *s = &l->shape;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasStatus_t r = cublasLtMatmulDescCreate(&l->operation, t.compute, CUDA_R_32F);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = cublasLtMatmulDescSetAttribute(l->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                           sizeof(transposed));
    if (r == CUBLAS_STATUS_SUCCESS)
        r = cublasLtMatrixLayoutCreate(&l->weights, t.in, s->k, s->n, (int64_t)s->k);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = cublasLtMatrixLayoutCreate(&l->input, t.in, s->k, l->rows, (int64_t)s->k);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = cublasLtMatrixLayoutCreate(&l->output, t.out, s->n, l->rows, (int64_t)s->n);
    return r;
}

static void choose(struct products *p, struct plan *l) {
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t best = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
    const size_t workspace = WORKSPACE_BYTES;
    int found = 0;
    if (cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS)
        return;
    cublasStatus_t r = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
    if (r == CUBLAS_STATUS_SUCCESS)
        r = cublasLtMatmulAlgoGetHeuristic(p->handle, l->operation, l->weights, l->input, l->output,
                                           l->output, preference, 1, &best, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    l->known = r == CUBLAS_STATUS_SUCCESS && found > 0 && best.state == CUBLAS_STATUS_SUCCESS;
    l->algorithm = best.algo;
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
    struct precision t = precision_of(s->dtype);
    *l = (struct plan){.shape = *s};
    l->rows = (uint64_t)((double)s->m * p->setup.shrink);
    l->rows = p->setup.shrink < 1 ? units_ceil_to(l->rows > 0 ? l->rows : 1, ROW_GRAIN) : s->m;
    grow(&p->bytes[0], s->n * s->k * t.in_bytes);
    grow(&p->bytes[1], l->rows * s->k * t.in_bytes);
    grow(&p->bytes[2], l->rows * s->n * t.out_bytes);
    if (describe(l) == CUBLAS_STATUS_SUCCESS)
        choose(p, l);
}

// Small whole numbers: finite in every type, and sums of them too.
static bool allocate(struct products *p, struct err *e) {
    p->bytes[3] = WORKSPACE_BYTES;
    for (size_t i = 0; i < 4; i++) {
        if (!gpu_lane_ok(cudaMalloc((void **)&p->arrays[i], p->bytes[i]),
                         "the products' arrays; use --shrink", e))
            return false;
        struct gpu_array a = {.pattern = {.type = PATTERN_BF16, .seed = i, .ranks = 1},
                              .at = p->arrays[i],
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
    if (cublasLtCreate(&p->handle) != CUBLAS_STATUS_SUCCESS) {
        free(p);
        return err_set(e, ERR_RESOURCE, "cublasLtCreate failed");
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
    for (size_t i = 0; i < p->count; i++) {
        struct plan *l = &p->plans[i];
        cublasLtMatrixLayout_t layouts[] = {l->weights, l->input, l->output};
        for (size_t k = 0; k < 3; k++)
            if (layouts[k] != NULL)
                cublasLtMatrixLayoutDestroy(layouts[k]);
        if (l->operation != NULL)
            cublasLtMatmulDescDestroy(l->operation);
    }
    for (size_t i = 0; i < 4; i++)
        cudaFree(p->arrays[i]);
    cublasLtDestroy(p->handle);
    free(p->plans);
    free(p);
}

static double work_of(const struct graph_shape *s) {
    return (double)s->m * (double)s->n * (double)s->k * (double)s->count;
}

bool products_queue(struct products *p, const struct graph_task *t, double *left, struct err *e) {
    const float one = 1, zero = 0;
    double all = 0, missing = 0;
    for (size_t i = 0; i < t->shape_count; i++) {
        const struct plan *l = p != NULL ? find(p, &t->shapes[i]) : NULL;
        all += work_of(&t->shapes[i]);
        if (l == NULL || !l->known) {
            missing += work_of(&t->shapes[i]);
            continue;
        }
        for (uint64_t n = 0; n < t->shapes[i].count; n++) {
            cublasStatus_t r = cublasLtMatmul(
                p->handle, l->operation, &one, p->arrays[0], l->weights, p->arrays[1], l->input,
                &zero, p->arrays[2], l->output, p->arrays[2], l->output, &l->algorithm,
                p->arrays[3], WORKSPACE_BYTES, p->setup.queue);
            if (r != CUBLAS_STATUS_SUCCESS)
                return err_set(e, ERR_RESOURCE, "cublasLtMatmul: %s", cublasLtGetStatusString(r));
        }
    }
    *left = all > 0 ? missing / all : 0;
    return true;
}
