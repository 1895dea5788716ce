// SPDX-License-Identifier: Apache-2.0
// The used part of cuBLASLt: products computed on the stream's thread, arguments checked as the
// library's manual has them.
//
// FAKEGPU_NO_CUBLASLT=1: as on a machine without the library.
// Faults, in FAKEGPU_FAULTS beside those of fakegpu.h:
//   gemm_unsupported:TYPE:1  the heuristic finds nothing for inputs of that cudaDataType_t
//   gemm_wrong:DEVICE:N      the Nth product on DEVICE has a wrong first column
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "fakegpu.h"
#include "kernels/half.h"

struct operation {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t transposed[2]; // A, B
};
struct layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t stride;
};
struct preference {
    size_t workspace_bytes;
    uint32_t schemes; // cublasLtReductionScheme_t, of split products
};
_Static_assert(sizeof(struct operation) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");
_Static_assert(sizeof(struct layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");
_Static_assert(sizeof(struct preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits");

// C[rows,columns] = op(A) op(B), all column-major.
struct product {
    struct operation operation;
    struct layout a_layout, b_layout, d_layout;
    const char *a, *b;
    char *d;
    float alpha;
    uint64_t rows, columns, depth;
    int device;
    bool rounds; // between the two halves of its depth, as split products may
};

static _Atomic uint64_t products[FAKEGPU_DEVICES_MAX];

size_t cublasLtGetVersion(void) {
    return CUBLAS_VERSION;
}

const char *cublasLtGetStatusString(cublasStatus_t s) {
    switch (s) {
    case CUBLAS_STATUS_SUCCESS:
        return "the operation completed successfully";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the requested functionality is not supported";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "the library was not initialized";
    default:
        return "the function failed to launch on the GPU";
    }
}

// A handle is of the device it was made on.
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    int *device = malloc(sizeof(*device));
    if (device == NULL)
        abort();
    *device = fakegpu_device();
    *handle = (cublasLtHandle_t)(void *)device;
    if (fakegpu_enter(__func__) == cudaSuccess && getenv("FAKEGPU_NO_CUBLASLT") == NULL)
        return CUBLAS_STATUS_SUCCESS;
    free(device);
    return CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free((void *)handle);
    return CUBLAS_STATUS_SUCCESS;
}

static void *opaque(size_t bytes, const void *contents, size_t used) {
    void *p = calloc(1, bytes);
    if (p == NULL)
        abort();
    memcpy(p, contents, used);
    return p;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    struct operation o = {.compute = compute, .scale = scale};
    o.transposed[0] = o.transposed[1] = CUBLAS_OP_N;
    *out = opaque(sizeof(**out), &o, sizeof(o));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
    free(d);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
    struct operation *o = (struct operation *)(void *)d;
    bool a = attribute == CUBLASLT_MATMUL_DESC_TRANSA;
    if ((!a && attribute != CUBLASLT_MATMUL_DESC_TRANSB) || bytes != sizeof(o->transposed[0]))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&o->transposed[a ? 0 : 1], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
    struct layout l = {type, rows, columns, stride};
    if (stride < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    *out = opaque(sizeof(**out), &l, sizeof(l));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    free(l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    struct preference p = {.schemes = CUBLASLT_REDUCTION_SCHEME_MASK};
    *out = opaque(sizeof(**out), &p, sizeof(p));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
    struct preference *mine = (struct preference *)(void *)p;
    bool room = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    if ((!room && attribute != CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) ||
        bytes != (room ? sizeof(mine->workspace_bytes) : sizeof(mine->schemes)))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(room ? (void *)&mine->workspace_bytes : (void *)&mine->schemes, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static size_t type_bytes(cudaDataType_t type) {
    return type == CUDA_R_32F                          ? 4
           : type == CUDA_R_16BF || type == CUDA_R_16F ? 2
           : type == CUDA_R_8F_E4M3                    ? 1
                                                       : 0;
}

static bool types_fit(const struct operation *o, const struct layout *a, const struct layout *b,
                      const struct layout *d) {
    bool tensor = o->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    if (a->type != b->type || type_bytes(a->type) == 0 || o->scale != CUDA_R_32F ||
        (o->compute != CUBLAS_COMPUTE_32F && !tensor) || (tensor && a->type != CUDA_R_32F))
        return false;
    return a->type == CUDA_R_8F_E4M3 ? d->type == CUDA_R_16BF : d->type == a->type;
}

// fp8 wants A transposed, B not, and multiples of sixteen.
static bool supported(const struct operation *o, const struct product *p) {
    double ignored;
    if (fakegpu_fault("gemm_unsupported", (long)p->a_layout.type, &ignored))
        return false;
    if (p->a_layout.type != CUDA_R_8F_E4M3)
        return true;
    return o->transposed[0] == CUBLAS_OP_T && o->transposed[1] == CUBLAS_OP_N &&
           p->rows % 16 == 0 && p->columns % 16 == 0 && p->depth % 16 == 0;
}

// The shapes must meet; what is left is the product's.
static bool shape(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                  cublasLtMatrixLayout_t d, struct product *p) {
    memcpy(&p->operation, desc, sizeof(p->operation));
    memcpy(&p->a_layout, a, sizeof(p->a_layout));
    memcpy(&p->b_layout, b, sizeof(p->b_layout));
    memcpy(&p->d_layout, d, sizeof(p->d_layout));
    bool ta = p->operation.transposed[0] == CUBLAS_OP_T;
    bool tb = p->operation.transposed[1] == CUBLAS_OP_T;
    uint64_t depth = tb ? p->b_layout.columns : p->b_layout.rows;
    p->rows = ta ? p->a_layout.columns : p->a_layout.rows;
    p->depth = ta ? p->a_layout.rows : p->a_layout.columns;
    p->columns = tb ? p->b_layout.rows : p->b_layout.columns;
    return p->depth == depth && p->d_layout.rows == p->rows && p->d_layout.columns == p->columns &&
           types_fit(&p->operation, &p->a_layout, &p->b_layout, &p->d_layout);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *found) {
    struct product p;
    const struct preference *wish = (const struct preference *)(const void *)preference;
    (void)handle, (void)c;
    *found = 0;
    if (wanted < 1 || !shape(desc, a, b, d, &p))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!supported(&p.operation, &p))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(results, 0, sizeof(*results));
    results[0].algo.data[0] = p.rows;
    results[0].algo.data[1] = p.columns;
    results[0].algo.data[2] = p.depth;
    results[0].algo.data[3] = (uint64_t)p.a_layout.type;
    results[0].algo.data[4] = (wish->schemes & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) != 0;
    results[0].workspaceSize = wish->workspace_bytes;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static float from_e4m3(uint8_t bits) {
    int exponent = bits >> 3 & 15, mantissa = bits & 7;
    float magnitude = (float)(mantissa + (exponent > 0 ? 8 : 0)) * 0x1p-9f;
    for (int i = 1; i < exponent; i++)
        magnitude *= 2;
    return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

static float from_half(cudaDataType_t type, uint16_t half) {
    return type == CUDA_R_16F ? half_from_fp16(half) : half_from_bf16(half);
}

static uint16_t to_half(cudaDataType_t type, float value) {
    return type == CUDA_R_16F ? half_to_fp16(value) : half_to_bf16(value);
}

static float element(const struct layout *l, const char *at, uint64_t row, uint64_t column) {
    const char *p = at + (column * (uint64_t)l->stride + row) * type_bytes(l->type);
    uint16_t half;
    float f;
    if (l->type == CUDA_R_8F_E4M3)
        return from_e4m3((uint8_t)*p);
    if (l->type == CUDA_R_32F) {
        memcpy(&f, p, sizeof(f));
        return f;
    }
    memcpy(&half, p, sizeof(half));
    return from_half(l->type, half);
}

static float rounded(const struct layout *l, float value) {
    return l->type == CUDA_R_32F ? value : from_half(l->type, to_half(l->type, value));
}

static void store(const struct layout *l, char *at, uint64_t row, uint64_t column, float value) {
    char *p = at + (column * (uint64_t)l->stride + row) * type_bytes(l->type);
    uint16_t half = to_half(l->type, value);
    if (l->type == CUDA_R_32F)
        memcpy(p, &value, sizeof(value));
    else
        memcpy(p, &half, sizeof(half));
}

static void multiply(void *context) {
    const struct product *p = context;
    bool ta = p->operation.transposed[0] == CUBLAS_OP_T;
    bool tb = p->operation.transposed[1] == CUBLAS_OP_T;
    double nth;
    bool wrong =
        fakegpu_fault("gemm_wrong", p->device, &nth) && (uint64_t)nth == products[p->device] + 1;
    products[p->device]++;
    for (uint64_t j = 0; j < p->columns; j++) {
        for (uint64_t i = 0; i < p->rows; i++) {
            float sum = 0;
            for (uint64_t k = 0; k < p->depth; k++) {
                if (p->rounds && k == p->depth / 2)
                    sum = rounded(&p->d_layout, sum);
                sum += element(&p->a_layout, p->a, ta ? k : i, ta ? i : k) *
                       element(&p->b_layout, p->b, tb ? j : k, tb ? k : j);
            }
            store(&p->d_layout, p->d, i, j, p->alpha * sum + (wrong && j == 0 ? 64 : 0));
        }
    }
}

static size_t extent(const struct layout *l) {
    return ((l->columns - 1) * (uint64_t)l->stride + l->rows) * type_bytes(l->type);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream) {
    struct product p = {.a = a, .b = b, .d = d, .alpha = *(const float *)alpha};
    (void)c, (void)c_layout;
    if (fakegpu_enter(__func__) != cudaSuccess)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    p.device = *(const int *)(const void *)handle;
    if (!shape(desc, a_layout, b_layout, d_layout, &p) || *(const float *)beta != 0 ||
        !supported(&p.operation, &p))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (algo == NULL || algo->data[0] != p.rows || algo->data[1] != p.columns ||
        algo->data[2] != p.depth || algo->data[3] != (uint64_t)p.a_layout.type)
        return CUBLAS_STATUS_INVALID_VALUE; // an algorithm of another product
    p.rounds = algo->data[4] != 0;
    if (fakegpu_stream_device(stream) != p.device ||
        !fakegpu_reachable(p.device, a, extent(&p.a_layout)) ||
        !fakegpu_reachable(p.device, b, extent(&p.b_layout)) ||
        !fakegpu_reachable(p.device, d, extent(&p.d_layout)) ||
        !fakegpu_reachable(p.device, workspace, workspace_bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    return fakegpu_enqueue(stream, multiply, &p, sizeof(p)) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
