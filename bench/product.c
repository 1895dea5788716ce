// SPDX-License-Identifier: Apache-2.0
#include "bench/product.h"

static const struct product_type types[] = {
    {DTYPE_FP32, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 4, 4},
    {DTYPE_TF32, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4, 4},
    {DTYPE_BF16, CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2, 2},
    {DTYPE_FP16, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, 2, 2},
    {DTYPE_FP8, CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 1, 2},
};

const struct product_type *product_type_find(enum dtype d) {
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (types[i].dtype == d)
            return &types[i];
    return NULL;
}

bool product_ok(cublasStatus_t r, const char *what, struct err *e) {
    if (r == CUBLAS_STATUS_SUCCESS)
        return true;
    return err_set(e, ERR_RESOURCE, "%s: %s", what, cublasLtGetStatusString(r));
}

static bool layout(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows,
                   uint64_t columns, struct err *e) {
    return product_ok(cublasLtMatrixLayoutCreate(out, type, rows, columns, (int64_t)rows),
                      "cublasLtMatrixLayoutCreate", e);
}

// cuBLASLt is column-major: its product is the transpose of ours, [n,m] = weights' x input'.
static bool describe(struct product *p, struct err *e) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    return product_ok(cublasLtMatmulDescCreate(&p->operation, p->type->compute, CUDA_R_32F),
                      "cublasLtMatmulDescCreate", e) &&
           product_ok(cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                     &transposed, sizeof(transposed)),
                      "cublasLtMatmulDescSetAttribute", e) &&
           layout(&p->weights, p->type->in, p->k, p->n, e) &&
           layout(&p->input, p->type->in, p->k, p->m, e) &&
           layout(&p->output, p->type->out, p->n, p->m, e);
}

// By default the library may add the parts of a split product up in the output's type.
static cublasStatus_t prefer(cublasLtMatmulPreference_t preference) {
    const size_t workspace = PRODUCT_WORKSPACE_BYTES;
    const uint32_t schemes =
        CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasStatus_t r = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
    if (r != CUBLAS_STATUS_SUCCESS)
        return r;
    return cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes));
}

static bool choose(struct product *p, cublasLtHandle_t handle, struct err *e) {
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t best = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
    int found = 0;
    if (!product_ok(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate",
                    e))
        return false;
    cublasStatus_t r = prefer(preference);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = cublasLtMatmulAlgoGetHeuristic(handle, p->operation, p->weights, p->input, p->output,
                                           p->output, preference, 1, &best, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (r != CUBLAS_STATUS_SUCCESS || found < 1 || best.state != CUBLAS_STATUS_SUCCESS)
        return err_set(e, ERR_RESOURCE, "cuBLASLt has no algorithm for %s %llux%llux%llu here: %s",
                       dtype_name(p->type->dtype), (unsigned long long)p->m,
                       (unsigned long long)p->n, (unsigned long long)p->k,
                       cublasLtGetStatusString(r != CUBLAS_STATUS_SUCCESS ? r : best.state));
    p->algorithm = best.algo;
    return true;
}

bool product_open(struct product *p, cublasLtHandle_t handle, struct err *e) {
    if (describe(p, e) && choose(p, handle, e))
        return true;
    product_close(p);
    return false;
}

void product_close(struct product *p) {
    cublasLtMatrixLayout_t *layouts[] = {&p->weights, &p->input, &p->output};
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        if (*layouts[i] != NULL)
            cublasLtMatrixLayoutDestroy(*layouts[i]);
        *layouts[i] = NULL;
    }
    if (p->operation != NULL)
        cublasLtMatmulDescDestroy(p->operation);
    p->operation = NULL;
}

bool product_queue(const struct product *p, cublasLtHandle_t handle, const struct product_arrays *a,
                   cudaStream_t stream, struct err *e) {
    const float one = 1, zero = 0;
    return product_ok(cublasLtMatmul(handle, p->operation, &one, a->weights, p->weights, a->input,
                                     p->input, &zero, a->output, p->output, a->output, p->output,
                                     &p->algorithm, a->workspace, PRODUCT_WORKSPACE_BYTES, stream),
                      "cublasLtMatmul", e);
}
