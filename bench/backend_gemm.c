// SPDX-License-Identifier: Apache-2.0
#include "bench/backend_gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "bench/gpu_lane.h"
#include "bench/product.h"
#include "bench/ranks.h"
#include "kernels/half.h"
#include "kernels/pattern.h"

// Contents repeat after a prime number of elements, so that no row looks like another.
#define PERIOD 1048573
#define PROBES 256 // elements of the product that are recomputed
#define VERSION_STEP 10000

struct gemm_state {
    struct gpu_lane *lane; // NULL: another rank of this node works on this rank's GPU
    struct arena *arena;
    struct patience patience;
    cublasLtHandle_t handle;
    void *workspace;
    char *staging; // pinned, PERIOD elements: copies from it never hold the host up
    const struct bench_point *point;
    struct product product;
    void *weights, *input, *output; // [n,k], [m,k], [m,n] row-major
    const char *software;
    bool shared, lost;
};

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
        !product_ok(cublasLtCreate(&s->handle), "cublasLtCreate", e) ||
        !gpu_lane_ok(cudaMalloc(&s->workspace, PRODUCT_WORKSPACE_BYTES), "cuBLASLt's workspace",
                     e) ||
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
    product_close(&s->product);
}

// A number as an element of the input. fp8 (e4m3) only takes -1, 0 and 1.
static void encode(const struct product_type *t, double value, void *at) {
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

static void make_period(const struct product_type *t, uint64_t seed, uint32_t which, bool small,
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
    size_t each = s->product.type->in_bytes, all = elements * each, done = PERIOD * each;
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
    make_period(s->product.type, seed, 0, small, s->staging);
    if (!spread(s, s->staging, s->input, p->m * p->k, e))
        return false;
    make_period(s->product.type, seed, 1, small, s->staging);
    return spread(s, s->staging, s->weights, p->n * p->k, e);
}

static bool allocate(struct gemm_state *s, struct err *e) {
    const struct bench_point *p = s->point;
    const char *what = "no GPU memory for the matrices";
    return gpu_lane_ok(cudaMalloc(&s->weights, p->n * p->k * s->product.type->in_bytes), what, e) &&
           gpu_lane_ok(cudaMalloc(&s->input, p->m * p->k * s->product.type->in_bytes), what, e) &&
           gpu_lane_ok(cudaMalloc(&s->output, p->m * p->n * s->product.type->out_bytes), what, e);
}

static bool gemm_prepare(void *state, const struct bench_point *p, struct err *e) {
    struct gemm_state *s = state;
    s->point = p;
    if (s->lost)
        return err_set(e, ERR_RESOURCE, "the GPU was lost earlier in this run");
    s->product =
        (struct product){.type = product_type_find(p->dtype), .m = p->m, .n = p->n, .k = p->k};
    if (s->product.type == NULL)
        return err_set(e, ERR_RESOURCE, "the gemm backend does not do %s", dtype_name(p->dtype));
    if (s->lane == NULL)
        return true;
    cudaSetDevice(s->lane->device);
    if (!product_open(&s->product, s->handle, e) || !allocate(s, e))
        return false;
    s->lost = !fill(s, 1, false, e);
    return !s->lost;
}

static bool launch(void *context, struct err *e) {
    struct gemm_state *s = context;
    const struct product_arrays arrays = {s->weights, s->input, s->output, s->workspace};
    return product_queue(&s->product, s->handle, &arrays, s->lane->stream, e);
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

static double decode_half(const struct product_type *t, uint16_t half) {
    return t->dtype == DTYPE_FP16 ? half_from_fp16(half) : half_from_bf16(half);
}

static double decode(const struct product_type *t, const void *at) {
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
    if (s->product.type->out_bytes == sizeof(float))
        return (double)sum;
    uint16_t half =
        s->product.type->dtype == DTYPE_FP16 ? half_to_fp16((float)sum) : half_to_bf16((float)sum);
    return decode_half(s->product.type, half);
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
            (const char *)s->output + (row * s->point->n + column) * s->product.type->out_bytes;
        if (!gpu_lane_ok(cudaMemcpyAsync(s->staging + i * sizeof(float), at,
                                         s->product.type->out_bytes, cudaMemcpyDeviceToHost,
                                         s->lane->stream),
                         "cudaMemcpyAsync", e))
            return false;
    }
    if (!wait(s, e))
        return false;
    for (uint32_t i = 0; i < PROBES; i++) {
        place_probe(s, seed, i, &row, &column);
        *wrong += decode(s->product.type, s->staging + i * sizeof(float)) !=
                  expected(s, seed, row, column);
    }
    return true;
}

static bool gemm_verify(void *state, uint64_t seed, uint64_t *wrong, struct err *e) {
    struct gemm_state *s = state;
    *wrong = 0;
    if (s->lane == NULL)
        return true;
    struct gpu_work w = work(s);
    size_t bytes = s->point->m * s->point->n * s->product.type->out_bytes;
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
    .warmup_s = 0.2, // an idle GPU's clock takes a tenth of a second to rise
    .open = gemm_open,
    .close = gemm_close,
    .prepare = gemm_prepare,
    .release = gemm_release,
    .sample = gemm_sample,
    .verify = gemm_verify,
    .describe = gemm_describe,
};
