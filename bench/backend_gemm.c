// SPDX-License-Identifier: Apache-2.0
#include "bench/backend_gemm.h"

#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/units.h"
#include "bench/gpu_lane.h"
#include "bench/ranks.h"
#include "kernels/half.h"
#include "kernels/pattern.h"

#define WORKSPACE_BYTES (32 * UNITS_MIB)
// Contents repeat after a prime number of elements, so that no row looks like another.
#define PERIOD 1048573
#define PROBES 256 // elements of the product that are recomputed
#define VERSION_STEP 10000

// What of a type cuBLASLt wants to know.
struct precision {
    enum dtype dtype;
    cudaDataType_t in, out;
    cublasComputeType_t compute;
    size_t in_bytes, out_bytes;
};
static const struct precision precisions[] = {
    {DTYPE_FP32, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 4, 4},
    {DTYPE_TF32, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4, 4},
    {DTYPE_BF16, CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2, 2},
    {DTYPE_FP16, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, 2, 2},
    {DTYPE_FP8, CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 1, 2},
};

struct gemm_state {
    struct gpu_lane *lane; // NULL: another rank of this node works on this rank's GPU
    struct arena *arena;
    struct patience patience;
    cublasLtHandle_t handle;
    void *workspace;
    char *staging; // pinned, PERIOD elements: copies from it never hold the host up
    const struct bench_point *point;
    const struct precision *type;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t weights_layout, input_layout, output_layout;
    cublasLtMatmulAlgo_t algorithm;
    void *weights, *input, *output; // [n,k], [m,k], [m,n] row-major
    const char *software;
    bool shared, lost;
};

static bool lt_ok(cublasStatus_t r, const char *what, struct err *e) {
    if (r == CUBLAS_STATUS_SUCCESS)
        return true;
    return err_set(e, ERR_RESOURCE, "%s: %s", what, cublasLtGetStatusString(r));
}

static void gemm_close(void *state) {
    struct gemm_state *s = state;
    if (s == NULL)
        return;
    if (s->lane != NULL && !s->lost) {
        cudaSetDevice(s->lane->device);
        if (s->workspace != NULL)
            cudaFree(s->workspace);
        if (s->staging != NULL)
            cudaFreeHost(s->staging);
        if (s->handle != NULL)
            cublasLtDestroy(s->handle);
        gpu_lane_finish(s->lane);
        free(s->lane);
    }
    free(s);
}

static bool open_gpu(struct gemm_state *s, int device, struct err *e) {
    struct cudaDeviceProp properties;
    size_t version = cublasLtGetVersion();
    s->lane = calloc(1, sizeof(*s->lane));
    if (s->lane == NULL)
        abort();
    if (!gpu_lane_init(s->lane, device, e) ||
        !gpu_lane_ok(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties", e) ||
        !lt_ok(cublasLtCreate(&s->handle), "cublasLtCreate", e) ||
        !gpu_lane_ok(cudaMalloc(&s->workspace, WORKSPACE_BYTES), "cuBLASLt's workspace", e) ||
        !gpu_lane_ok(cudaMallocHost((void **)&s->staging, PERIOD * sizeof(float)), "cudaMallocHost",
                     e))
        return false;
    s->software = arena_printf(s->arena, "cuBLASLt %zu.%zu.%zu, %s", version / VERSION_STEP,
                               version / 100 % 100, version % 100, properties.name);
    return true;
}

static bool gemm_open(const struct backend_config *c, void **state, struct err *e) {
    int devices = 0;
    if (!gpu_lane_devices(&devices, e))
        return false;
    struct gemm_state *s = calloc(1, sizeof(*s));
    if (s == NULL)
        abort();
    s->arena = c->arena;
    s->patience = (struct patience){.limit_s = c->timeout_s, .signals = c->signals};
    s->shared = c->ranks->local_count > devices;
    if (c->ranks->local_rank < devices && !open_gpu(s, c->ranks->local_rank, e)) {
        gemm_close(s);
        return false;
    }
    *state = s;
    return true;
}

static void gemm_release(void *state) {
    struct gemm_state *s = state;
    if (s->lane == NULL || s->lost)
        return;
    cudaSetDevice(s->lane->device);
    void **arrays[] = {&s->weights, &s->input, &s->output};
    for (size_t i = 0; i < 3; i++) {
        cudaFree(*arrays[i]);
        *arrays[i] = NULL;
    }
    cublasLtMatrixLayout_t *layouts[] = {&s->weights_layout, &s->input_layout, &s->output_layout};
    for (size_t i = 0; i < 3; i++) {
        if (*layouts[i] != NULL)
            cublasLtMatrixLayoutDestroy(*layouts[i]);
        *layouts[i] = NULL;
    }
    if (s->operation != NULL)
        cublasLtMatmulDescDestroy(s->operation);
    s->operation = NULL;
}

static bool choose_type(struct gemm_state *s, enum dtype dtype, struct err *e) {
    s->type = NULL;
    for (size_t i = 0; i < sizeof(precisions) / sizeof(precisions[0]); i++)
        if (precisions[i].dtype == dtype)
            s->type = &precisions[i];
    return s->type != NULL ||
           err_set(e, ERR_RESOURCE, "the gemm backend does not do %s", dtype_name(dtype));
}

// cuBLASLt is column-major: its product is the transpose of ours, [n,m] = weights' x input'.
static bool describe_product(struct gemm_state *s, struct err *e) {
    const struct bench_point *p = s->point;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    return lt_ok(cublasLtMatmulDescCreate(&s->operation, s->type->compute, CUDA_R_32F),
                 "cublasLtMatmulDescCreate", e) &&
           lt_ok(cublasLtMatmulDescSetAttribute(s->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                &transposed, sizeof(transposed)),
                 "cublasLtMatmulDescSetAttribute", e) &&
           lt_ok(cublasLtMatrixLayoutCreate(&s->weights_layout, s->type->in, p->k, p->n,
                                            (int64_t)p->k),
                 "cublasLtMatrixLayoutCreate", e) &&
           lt_ok(
               cublasLtMatrixLayoutCreate(&s->input_layout, s->type->in, p->k, p->m, (int64_t)p->k),
               "cublasLtMatrixLayoutCreate", e) &&
           lt_ok(cublasLtMatrixLayoutCreate(&s->output_layout, s->type->out, p->n, p->m,
                                            (int64_t)p->n),
                 "cublasLtMatrixLayoutCreate", e);
}

static bool choose_algorithm(struct gemm_state *s, struct err *e) {
    const struct bench_point *p = s->point;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t best = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
    const size_t workspace = WORKSPACE_BYTES;
    int found = 0;
    if (!lt_ok(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate", e))
        return false;
    cublasStatus_t r = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
    if (r == CUBLAS_STATUS_SUCCESS)
        r = cublasLtMatmulAlgoGetHeuristic(s->handle, s->operation, s->weights_layout,
                                           s->input_layout, s->output_layout, s->output_layout,
                                           preference, 1, &best, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (r != CUBLAS_STATUS_SUCCESS || found < 1 || best.state != CUBLAS_STATUS_SUCCESS)
        return err_set(e, ERR_RESOURCE, "cuBLASLt has no algorithm for %s %llux%llux%llu here: %s",
                       dtype_name(s->type->dtype), (unsigned long long)p->m,
                       (unsigned long long)p->n, (unsigned long long)p->k,
                       cublasLtGetStatusString(r != CUBLAS_STATUS_SUCCESS ? r : best.state));
    s->algorithm = best.algo;
    return true;
}

// A number as an element of the input. fp8 (e4m3) only takes -1, 0 and 1.
static void encode(const struct precision *t, double value, void *at) {
    float f = (float)value;
    uint16_t half;
    switch (t->dtype) {
    case DTYPE_BF16:
        half = half_to_bf16(f);
        memcpy(at, &half, sizeof(half));
        break;
    case DTYPE_FP16:
        half = half_to_fp16(f);
        memcpy(at, &half, sizeof(half));
        break;
    case DTYPE_FP8:
        *(uint8_t *)at = value == 0 ? 0 : value > 0 ? 0x38 : 0xB8;
        break;
    default:
        memcpy(at, &f, sizeof(f));
    }
}

static int small_value(uint64_t seed, uint32_t which, uint64_t index) {
    return (int)(pattern_hash(seed, which, index % PERIOD) % 3) - 1;
}

// Near a normal distribution, as activations and weights are: what a GPU draws depends on it.
static double random_value(uint64_t seed, uint32_t which, uint64_t index) {
    double sum = -6;
    for (uint32_t i = 0; i < 12; i++)
        sum += pattern_hash(seed + i, which, index) * 0x1p-32;
    return sum;
}

// Sign, an exponent below 2 and the mantissa at random: never fp8's NaN.
static uint8_t random_fp8(uint64_t seed, uint32_t which, uint64_t index) {
    return (uint8_t)(pattern_hash(seed, which, index) & 0xBF);
}

static void make_period(const struct precision *t, uint64_t seed, uint32_t which, bool small,
                        char *to) {
    for (uint64_t i = 0; i < PERIOD; i++) {
        char *at = to + i * t->in_bytes;
        if (small)
            encode(t, small_value(seed, which, i), at);
        else if (t->dtype == DTYPE_FP8)
            *(uint8_t *)at = random_fp8(seed, which, i);
        else
            encode(t, random_value(seed, which, i), at);
    }
}

static bool wait(struct gemm_state *s, struct err *e) {
    return gpu_lane_drain(s->lane->stream, s->patience, e);
}

// The first period comes from the host, the rest is copied on the GPU.
static bool spread(struct gemm_state *s, const char *period, void *to, uint64_t elements,
                   struct err *e) {
    size_t each = s->type->in_bytes, all = elements * each, done = PERIOD * each;
    done = done < all ? done : all;
    if (!gpu_lane_ok(cudaMemcpyAsync(to, period, done, cudaMemcpyHostToDevice, s->lane->stream),
                     "cudaMemcpyAsync", e))
        return false;
    while (done < all) {
        size_t bytes = all - done < done ? all - done : done; // whole periods, then their rest
        if (!gpu_lane_ok(cudaMemcpyAsync((char *)to + done, to, bytes, cudaMemcpyDeviceToDevice,
                                         s->lane->stream),
                         "cudaMemcpyAsync", e))
            return false;
        done += bytes;
    }
    return wait(s, e);
}

static bool fill(struct gemm_state *s, uint64_t seed, bool small, struct err *e) {
    const struct bench_point *p = s->point;
    make_period(s->type, seed, 0, small, s->staging);
    if (!spread(s, s->staging, s->input, p->m * p->k, e))
        return false;
    make_period(s->type, seed, 1, small, s->staging);
    return spread(s, s->staging, s->weights, p->n * p->k, e);
}

static bool allocate(struct gemm_state *s, struct err *e) {
    const struct bench_point *p = s->point;
    const char *what = "no GPU memory for the matrices";
    return gpu_lane_ok(cudaMalloc(&s->weights, p->n * p->k * s->type->in_bytes), what, e) &&
           gpu_lane_ok(cudaMalloc(&s->input, p->m * p->k * s->type->in_bytes), what, e) &&
           gpu_lane_ok(cudaMalloc(&s->output, p->m * p->n * s->type->out_bytes), what, e);
}

static bool gemm_prepare(void *state, const struct bench_point *p, struct err *e) {
    struct gemm_state *s = state;
    s->point = p;
    if (s->lost)
        return err_set(e, ERR_RESOURCE, "the GPU was lost earlier in this run");
    if (!choose_type(s, p->dtype, e))
        return false;
    if (s->lane == NULL)
        return true;
    cudaSetDevice(s->lane->device);
    if (!describe_product(s, e) || !choose_algorithm(s, e) || !allocate(s, e))
        return false;
    s->lost = !fill(s, 1, false, e);
    return !s->lost;
}

static bool launch(void *context, struct err *e) {
    struct gemm_state *s = context;
    const float one = 1, zero = 0;
    return lt_ok(cublasLtMatmul(s->handle, s->operation, &one, s->weights, s->weights_layout,
                                s->input, s->input_layout, &zero, s->output, s->output_layout,
                                s->output, s->output_layout, &s->algorithm, s->workspace,
                                WORKSPACE_BYTES, s->lane->stream),
                 "cublasLtMatmul", e);
}

static struct gpu_work work(struct gemm_state *s) {
    return (struct gpu_work){.lanes = s->lane,
                             .lane_count = 1,
                             .name = "gemm",
                             .launch = launch,
                             .context = s,
                             .patience = s->patience};
}

static bool gemm_sample(void *state, size_t count, double *samples_s, struct err *e) {
    struct gemm_state *s = state;
    for (size_t i = 0; s->lane == NULL && i < count; i++)
        samples_s[i] = BENCH_IDLE_S;
    if (s->lane == NULL)
        return true;
    struct gpu_work w = work(s);
    s->lost = !gpu_lane_time(&w, count, samples_s, e);
    return !s->lost;
}

static double decode_half(const struct precision *t, uint16_t half) {
    return t->dtype == DTYPE_FP16 ? half_from_fp16(half) : half_from_bf16(half);
}

static double decode(const struct precision *t, const void *at) {
    float f;
    uint16_t half;
    if (t->out_bytes == sizeof(f)) {
        memcpy(&f, at, sizeof(f));
        return f;
    }
    memcpy(&half, at, sizeof(half));
    return decode_half(t, half);
}

// The exact sum, rounded as the output's type is.
static double expected(const struct gemm_state *s, uint64_t seed, uint64_t row, uint64_t column) {
    const struct bench_point *p = s->point;
    int64_t sum = 0;
    for (uint64_t i = 0; i < p->k; i++)
        sum += small_value(seed, 0, row * p->k + i) * small_value(seed, 1, column * p->k + i);
    if (s->type->out_bytes == sizeof(float))
        return (double)sum;
    uint16_t half =
        s->type->dtype == DTYPE_FP16 ? half_to_fp16((float)sum) : half_to_bf16((float)sum);
    return decode_half(s->type, half);
}

// The corners, then anywhere.
static void place_probe(const struct gemm_state *s, uint64_t seed, uint32_t i, uint64_t *row,
                        uint64_t *column) {
    const struct bench_point *p = s->point;
    *row = i < 2 ? 0 : i < 4 ? p->m - 1 : pattern_hash(seed, 2, i) % p->m;
    *column = i < 4 ? (i % 2) * (p->n - 1) : pattern_hash(seed, 3, i) % p->n;
}

static bool probe(struct gemm_state *s, uint64_t seed, uint64_t *wrong, struct err *e) {
    uint64_t row, column;
    for (uint32_t i = 0; i < PROBES; i++) {
        place_probe(s, seed, i, &row, &column);
        const char *at =
            (const char *)s->output + (row * s->point->n + column) * s->type->out_bytes;
        if (!gpu_lane_ok(cudaMemcpyAsync(s->staging + i * sizeof(float), at, s->type->out_bytes,
                                         cudaMemcpyDeviceToHost, s->lane->stream),
                         "cudaMemcpyAsync", e))
            return false;
    }
    if (!wait(s, e))
        return false;
    for (uint32_t i = 0; i < PROBES; i++) {
        place_probe(s, seed, i, &row, &column);
        *wrong += decode(s->type, s->staging + i * sizeof(float)) != expected(s, seed, row, column);
    }
    return true;
}

static bool gemm_verify(void *state, uint64_t seed, uint64_t *wrong, struct err *e) {
    struct gemm_state *s = state;
    *wrong = 0;
    if (s->lane == NULL)
        return true;
    struct gpu_work w = work(s);
    size_t bytes = s->point->m * s->point->n * s->type->out_bytes;
    bool ok = fill(s, seed, true, e) &&
              gpu_lane_ok(cudaMemsetAsync(s->output, 0xFF, bytes, s->lane->stream),
                          "cudaMemsetAsync", e) &&
              gpu_lane_once(&w, e);
    ok = ok && probe(s, seed, wrong, e) && fill(s, seed, false, e); // timed on random numbers
    s->lost = !ok;
    return ok;
}

static void gemm_describe(void *state, struct measure_result *r) {
    struct gemm_state *s = state;
    r->software = s->software;
    if (s->shared)
        r->note = "one rank of each GPU works, the others wait";
}

const struct backend backend_gemm = {
    .name = "gemm",
    .summary = "matrix products on a GPU by cuBLASLt",
    .open = gemm_open,
    .close = gemm_close,
    .prepare = gemm_prepare,
    .release = gemm_release,
    .sample = gemm_sample,
    .verify = gemm_verify,
    .describe = gemm_describe,
};
