// SPDX-License-Identifier: Apache-2.0
// The kernels of kernels/gpu.h on one GPU. Checked against the same arithmetic on the host, to the
// bit, over a part of the elements; fill and verify over all of them.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/cuda_job.h"
#include "kernels/adam_arith.h"
#include "kernels/gpu.h"
#include "kernels/quantize.h"

#define CHECKED_ELEMENTS (512 * QUANTIZE_BLOCK)
#define SPOILED 3 // elements that the check of `verify` must find

// The arrays that a kernel works on, in this order.
enum array { FLOAT0, FLOAT1, FLOAT2, FLOAT3, HALF0, HALF1, CODES, STEPS, ARRAY_COUNT };

struct kernels;
typedef int queue_kernel(const struct kernels *k, uint64_t count, cudaStream_t stream);
typedef void host_kernel(void *const *arrays, uint64_t count);

struct kernel_kind {
    const char *kind, *algorithm;
    enum dtype dtype;
    unsigned arrays;     // a bit per enum array
    double bytes;        // read and written per element
    queue_kernel *queue; // on the GPU
    host_kernel *host;   // the same; NULL: contents are patterns
};

struct kernels {
    const struct kernel_kind *kind;
    uint64_t count;
    void *arrays[ARRAY_COUNT];
    uint64_t *wrong;
    struct pattern pattern;
    uint64_t queued; // elements of the next launch
};

static struct adam_hyper hyper(void) {
    return adam_hyper_at((struct adam_settings){1e-3, 0.9, 0.999, 1e-8, 0.01}, 10);
}

static struct adam_arrays adam_of(void *const *a, bool halves) {
    return (struct adam_arrays){.parameters = a[FLOAT0],
                                .first = a[FLOAT1],
                                .second = a[FLOAT2],
                                .gradients = halves ? NULL : a[FLOAT3],
                                .gradients_bf16 = halves ? a[HALF0] : NULL,
                                .copy_bf16 = halves ? a[HALF1] : NULL};
}

static int queue_adam(const struct kernels *k, uint64_t count, cudaStream_t stream) {
    struct adam_arrays a = adam_of(k->arrays, k->kind->dtype == DTYPE_BF16);
    struct adam_hyper h = hyper();
    return gpu_adam(&a, &h, count, stream);
}

static void host_adam(void *const *arrays, uint64_t count) {
    struct adam_arrays a = adam_of(arrays, arrays[FLOAT3] == NULL);
    struct adam_hyper h = hyper();
    for (uint64_t i = 0; i < count; i++)
        adam_element(&a, &h, i);
}

static int queue_triad(const struct kernels *k, uint64_t count, cudaStream_t stream) {
    return gpu_triad(k->arrays[FLOAT0], k->arrays[FLOAT1], k->arrays[FLOAT2], count, stream);
}

static void host_triad(void *const *arrays, uint64_t count) {
    float *to = arrays[FLOAT0], *x = arrays[FLOAT1], *y = arrays[FLOAT2];
    for (uint64_t i = 0; i < count; i++)
        to[i] = fmaf(3.0f, y[i], x[i]);
}

static int queue_copy(const struct kernels *k, uint64_t count, cudaStream_t stream) {
    return gpu_copy(k->arrays[FLOAT0], k->arrays[FLOAT1], count, stream);
}

static void host_copy(void *const *arrays, uint64_t count) {
    memcpy(arrays[FLOAT0], arrays[FLOAT1], count * sizeof(float));
}

static int queue_to_bf16(const struct kernels *k, uint64_t count, cudaStream_t stream) {
    return gpu_cast_to_bf16(k->arrays[FLOAT0], k->arrays[HALF0], count, stream);
}

static void host_to_bf16(void *const *arrays, uint64_t count) {
    const float *from = arrays[FLOAT0];
    uint16_t *to = arrays[HALF0];
    for (uint64_t i = 0; i < count; i++)
        to[i] = half_to_bf16(from[i]);
}

static int queue_to_fp32(const struct kernels *k, uint64_t count, cudaStream_t stream) {
    return gpu_cast_to_fp32(k->arrays[HALF0], k->arrays[FLOAT0], count, stream);
}

static void host_to_fp32(void *const *arrays, uint64_t count) {
    const uint16_t *from = arrays[HALF0];
    float *to = arrays[FLOAT0];
    for (uint64_t i = 0; i < count; i++)
        to[i] = half_from_bf16(from[i]);
}

static int bits_of(const struct kernels *k) {
    return strcmp(k->kind->algorithm, "int4") == 0 ? 4 : 8;
}

static struct gpu_quantized quantized_of(const struct kernels *k, uint64_t count) {
    return (struct gpu_quantized){.elements = k->arrays[HALF0],
                                  .codes = k->arrays[CODES],
                                  .steps = k->arrays[STEPS],
                                  .count = count,
                                  .bits = bits_of(k)};
}

static int queue_quantize(const struct kernels *k, uint64_t count, cudaStream_t stream) {
    struct gpu_quantized q = quantized_of(k, count);
    return gpu_quantize(&q, stream);
}

static int queue_dequantize(const struct kernels *k, uint64_t count, cudaStream_t stream) {
    struct gpu_quantized q = quantized_of(k, count);
    return gpu_dequantize(&q, stream);
}

static void quantize_block(void *const *arrays, uint64_t block, int bits) {
    const uint16_t *in = (uint16_t *)arrays[HALF0] + block * QUANTIZE_BLOCK;
    uint8_t *codes = (uint8_t *)arrays[CODES] + block * QUANTIZE_BLOCK * (unsigned)bits / 8;
    float largest = 0;
    for (size_t i = 0; i < QUANTIZE_BLOCK; i++)
        largest = fmaxf(largest, fabsf(half_from_bf16(in[i])));
    float factor = quantize_factor(largest, bits);
    ((float *)arrays[STEPS])[block] = 1.0f / factor;
    for (size_t i = 0; i < QUANTIZE_BLOCK; i++) {
        unsigned code = (unsigned)quantize_code(half_from_bf16(in[i]), factor, bits);
        if (bits == 8)
            codes[i] = (uint8_t)code;
        else if (i % 2 == 0)
            codes[i / 2] = (uint8_t)(code & 15);
        else
            codes[i / 2] |= (uint8_t)((code & 15) << 4);
    }
}

static void host_quantize(void *const *arrays, uint64_t count, int bits) {
    for (uint64_t b = 0; b < count / QUANTIZE_BLOCK; b++)
        quantize_block(arrays, b, bits);
}

static void host_dequantize(void *const *arrays, uint64_t count, int bits) {
    uint16_t *to = arrays[HALF0];
    for (uint64_t i = 0; i < count; i++)
        to[i] = half_to_bf16(quantize_back(quantize_read(arrays[CODES], i, bits),
                                           ((float *)arrays[STEPS])[i / QUANTIZE_BLOCK]));
}

static void host_quantize8(void *const *arrays, uint64_t count) {
    host_quantize(arrays, count, 8);
}
static void host_quantize4(void *const *arrays, uint64_t count) {
    host_quantize(arrays, count, 4);
}
static void host_dequantize8(void *const *arrays, uint64_t count) {
    host_dequantize(arrays, count, 8);
}
static void host_dequantize4(void *const *arrays, uint64_t count) {
    host_dequantize(arrays, count, 4);
}

static struct gpu_array pattern_of(const struct kernels *k, uint64_t count) {
    return (struct gpu_array){.pattern = k->pattern, .at = k->arrays[HALF0], .count = count};
}

static int queue_fill(const struct kernels *k, uint64_t count, cudaStream_t stream) {
    struct gpu_array a = pattern_of(k, count);
    return gpu_pattern_fill(&a, stream);
}

static int queue_verify(const struct kernels *k, uint64_t count, cudaStream_t stream) {
    struct gpu_array a = pattern_of(k, count);
    return gpu_pattern_wrong(&a, k->wrong, stream);
}

#define BIT(array) (1u << (array))
#define FLOATS(n) ((1u << (n)) - 1)
#define QUANTIZED (BIT(HALF0) | BIT(CODES) | BIT(STEPS))
#define STEP_BYTES (4.0 / QUANTIZE_BLOCK)
static const struct kernel_kind kinds[] = {
    {"memory", "triad", DTYPE_FP32, FLOATS(3), 12, queue_triad, host_triad},
    {"memory", "copy", DTYPE_FP32, FLOATS(2), 8, queue_copy, host_copy},
    {"adam", "gpu", DTYPE_FP32, FLOATS(4), 28, queue_adam, host_adam},
    {"adam", "gpu", DTYPE_BF16, FLOATS(3) | BIT(HALF0) | BIT(HALF1), 28, queue_adam, host_adam},
    {"cast", "fp32", DTYPE_BF16, FLOATS(1) | BIT(HALF0), 6, queue_to_bf16, host_to_bf16},
    {"cast", "bf16", DTYPE_FP32, FLOATS(1) | BIT(HALF0), 6, queue_to_fp32, host_to_fp32},
    {"quantize", "int8", DTYPE_BF16, QUANTIZED, 3 + STEP_BYTES, queue_quantize, host_quantize8},
    {"quantize", "int4", DTYPE_BF16, QUANTIZED, 2.5 + STEP_BYTES, queue_quantize, host_quantize4},
    {"dequantize", "int8", DTYPE_BF16, QUANTIZED, 3 + STEP_BYTES, queue_dequantize,
     host_dequantize8},
    {"dequantize", "int4", DTYPE_BF16, QUANTIZED, 2.5 + STEP_BYTES, queue_dequantize,
     host_dequantize4},
    {"fill", NULL, DTYPE_BF16, BIT(HALF0), 2, queue_fill, NULL},
    {"verify", NULL, DTYPE_BF16, BIT(HALF0), 2, queue_verify, NULL},
};

static const struct kernel_kind *find_kind(const struct bench_point *p) {
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const struct kernel_kind *k = &kinds[i];
        bool same = k->algorithm == NULL ||
                    (p->algorithm != NULL && strcmp(p->algorithm, k->algorithm) == 0);
        if (strcmp(p->kind, k->kind) == 0 && p->dtype == k->dtype && same)
            return k;
    }
    return NULL;
}

uint64_t backend_cuda_bytes(const struct bench_point *p) {
    const struct kernel_kind *k = find_kind(p);
    return k == NULL ? 0 : (uint64_t)(k->bytes * (double)p->n);
}

static size_t array_bytes(const struct kernel_kind *k, int array, uint64_t n) {
    if ((k->arrays & BIT(array)) == 0)
        return 0;
    if (array <= FLOAT3)
        return n * sizeof(float);
    if (array <= HALF1)
        return n * sizeof(uint16_t);
    if (array == CODES)
        return strcmp(k->algorithm, "int4") == 0 ? n / 2 : n;
    return n / QUANTIZE_BLOCK * sizeof(float);
}

static bool launch(void *context, struct err *e) {
    struct cuda_state *s = context;
    const struct kernels *k = s->own;
    cudaError_t r = (cudaError_t)k->kind->queue(k, k->queued, s->lanes[0].stream);
    return gpu_lane_ok(r, s->point->kind, e);
}

// Contents that make no infinities: small whole numbers.
static bool launch_contents(void *context, struct err *e) {
    struct cuda_state *s = context;
    const struct kernels *k = s->own;
    cudaStream_t stream = s->lanes[0].stream;
    cudaError_t r = cudaMemsetAsync(k->wrong, 0, sizeof(*k->wrong), stream);
    for (int i = 0; r == cudaSuccess && i < ARRAY_COUNT; i++) {
        bool halves = i == HALF0 || i == HALF1;
        size_t bytes = array_bytes(k->kind, i, k->count);
        struct gpu_array a = {.pattern = {.type = halves       ? PATTERN_BF16
                                                  : i == CODES ? PATTERN_INT8
                                                               : PATTERN_FP32,
                                          .ranks = 1},
                              .at = k->arrays[i]};
        a.count = bytes / pattern_bytes(a.pattern.type);
        if (bytes > 0)
            r = (cudaError_t)gpu_pattern_fill(&a, stream);
    }
    return gpu_lane_ok(r, "filling", e);
}

static bool kernels_prepare(struct cuda_state *s, struct err *e) {
    const struct bench_point *p = s->point;
    struct kernels *k = calloc(1, sizeof(*k));
    int device = (int)p->first;
    if (k == NULL)
        abort();
    s->own = k;
    k->kind = find_kind(p);
    if (k->kind == NULL)
        return err_set(e, ERR_RESOURCE, "no GPU kernel \"%s %s\"", p->kind,
                       p->algorithm ? p->algorithm : "");
    k->count = k->queued = p->n / QUANTIZE_BLOCK * QUANTIZE_BLOCK;
    k->pattern = (struct pattern){.type = PATTERN_BF16, .ranks = 1};
    if (k->count == 0)
        return err_set(e, ERR_RESOURCE, "GPU kernels want at least %d elements", QUANTIZE_BLOCK);
    if (!cuda_job_lanes(s, &device, 1, e) || !cuda_job_alloc(&k->wrong, sizeof(*k->wrong), e))
        return false;
    for (int i = 0; i < ARRAY_COUNT; i++) {
        size_t bytes = array_bytes(k->kind, i, k->count);
        if (bytes > 0 && !cuda_job_alloc(&k->arrays[i], bytes, e))
            return false;
    }
    return cuda_job_once(s, "filling", launch_contents, e);
}

static void kernels_release(struct cuda_state *s) {
    struct kernels *k = s->own;
    if (k == NULL)
        return;
    cudaSetDevice((int)s->point->first);
    for (int i = 0; i < ARRAY_COUNT; i++)
        cudaFree(k->arrays[i]);
    cudaFree(k->wrong);
    free(k);
    s->own = NULL;
}

static bool kernels_sample(struct cuda_state *s, size_t count, double *samples_s, struct err *e) {
    cudaSetDevice((int)s->point->first);
    return cuda_job_time(s, launch, count, samples_s, e);
}

// ---- verification -------------------------------------------------------------------------------

static bool copy_back(void *to, const void *from, size_t bytes, struct err *e) {
    return gpu_lane_ok(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy", e);
}

// Fill and verify, each by the host's own and by the other.
static bool check_pattern(struct cuda_state *s, uint64_t *wrong, struct err *e) {
    struct kernels *k = s->own;
    bool fills = strcmp(k->kind->kind, "fill") == 0;
    uint64_t found = 0, spoiled[SPOILED] = {0, k->count / 2, k->count - 1};
    uint16_t *at = k->arrays[HALF0];
    cudaStream_t stream = s->lanes[0].stream;
    cudaError_t r = cudaMemsetAsync(k->wrong, 0, sizeof(*k->wrong), stream);
    if (r == cudaSuccess)
        r = (cudaError_t)queue_fill(k, k->count, stream);
    for (size_t i = 0; r == cudaSuccess && !fills && i < SPOILED; i++)
        r = cudaMemsetAsync(at + spoiled[i], 0xFF, sizeof(*at), stream);
    if (r == cudaSuccess)
        r = (cudaError_t)queue_verify(k, k->count, stream);
    if (!gpu_lane_ok(r, "checking", e) || !cuda_job_once(s, "checking", launch, e) ||
        !copy_back(&found, k->wrong, sizeof(found), e))
        return false;
    // A launch of `verify` above looked a second time.
    uint64_t expected = fills ? 0 : 2 * SPOILED;
    *wrong = found > expected ? found - expected : expected - found;
    uint64_t part = k->count < CHECKED_ELEMENTS ? k->count : CHECKED_ELEMENTS;
    uint16_t *host = malloc(part * sizeof(*host));
    if (host == NULL)
        abort();
    uint64_t first = k->count - part;
    bool ok = copy_back(host, at + first, part * sizeof(*host), e);
    uint64_t differ = pattern_wrong(&k->pattern, host, first, part);
    if (ok && fills)
        *wrong += differ;
    free(host);
    return ok;
}

// Signed values with all their bits in use; second moments are not negative.
static void fill_host(void *to, int array, size_t bytes, uint64_t seed) {
    bool floats = array <= FLOAT3 || array == STEPS, halves = array == HALF0 || array == HALF1;
    size_t n = bytes / (floats ? 4 : halves ? 2 : 1);
    for (size_t i = 0; i < n; i++) {
        uint32_t h = pattern_hash(seed, (uint32_t)array, i);
        float f = (float)((double)h / 0x1p31 - 1);
        if (array == FLOAT2 || array == STEPS)
            f = fabsf(f);
        if (floats)
            ((float *)to)[i] = f;
        else if (halves)
            ((uint16_t *)to)[i] = half_to_bf16(f);
        else
            ((uint8_t *)to)[i] = (uint8_t)h;
    }
}

static uint64_t differing(const unsigned char *a, const unsigned char *b, size_t bytes) {
    uint64_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += a[i] != b[i];
    return n;
}

// The same contents on both sides, one run each, every array compared.
static bool check_against_host(struct cuda_state *s, uint64_t seed, uint64_t *wrong,
                               struct err *e) {
    struct kernels *k = s->own;
    void *mine[ARRAY_COUNT] = {0};
    uint64_t part = k->count < CHECKED_ELEMENTS ? k->count : CHECKED_ELEMENTS;
    unsigned char *back = malloc(part * sizeof(float));
    bool ok = back != NULL;
    for (int i = 0; ok && i < ARRAY_COUNT; i++) {
        size_t bytes = array_bytes(k->kind, i, part);
        if (bytes == 0)
            continue;
        mine[i] = malloc(bytes);
        if (mine[i] == NULL)
            abort();
        fill_host(mine[i], i, bytes, seed);
        ok = gpu_lane_ok(cudaMemcpyAsync(k->arrays[i], mine[i], bytes, cudaMemcpyHostToDevice,
                                         s->lanes[0].stream),
                         "cudaMemcpyAsync", e);
    }
    k->queued = part;
    ok = ok && cuda_job_once(s, s->point->kind, launch, e);
    k->queued = k->count;
    if (ok)
        k->kind->host(mine, part);
    *wrong = 0;
    for (int i = 0; ok && i < ARRAY_COUNT; i++) {
        size_t bytes = array_bytes(k->kind, i, part);
        ok = bytes == 0 || copy_back(back, k->arrays[i], bytes, e);
        if (ok && bytes > 0)
            *wrong += differing(back, mine[i], bytes);
    }
    for (int i = 0; i < ARRAY_COUNT; i++)
        free(mine[i]);
    free(back);
    return ok;
}

static bool kernels_verify(struct cuda_state *s, uint64_t seed, uint64_t *wrong, struct err *e) {
    struct kernels *k = s->own;
    cudaSetDevice((int)s->point->first);
    k->pattern.seed = seed;
    return k->kind->host == NULL ? check_pattern(s, wrong, e)
                                 : check_against_host(s, seed, wrong, e);
}

static void kernels_describe(struct cuda_state *s, struct measure_result *r) {
    const struct kernels *k = s->own;
    r->n = k->count;
}

const struct cuda_job cuda_kernels = {
    .prepare = kernels_prepare,
    .release = kernels_release,
    .sample = kernels_sample,
    .verify = kernels_verify,
    .describe = kernels_describe,
};
