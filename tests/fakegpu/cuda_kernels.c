// SPDX-License-Identifier: Apache-2.0
// The launchers of kernels/gpu.h on virtual GPUs: the same arithmetic in loops on stream threads.
#include <math.h>

#include "fakegpu.h"
#include "kernels/adam_arith.h"
#include "kernels/gpu.h"
#include "kernels/quantize.h"

// A kernel that touches what its device cannot reach breaks the context, as on a GPU.
static bool reach(const void *at, size_t bytes) {
    if (fakegpu_reachable(fakegpu_device(), at, bytes))
        return true;
    fakegpu_break(cudaErrorIllegalAddress);
    return false;
}

static int launch(const char *name, fakegpu_work *work, const void *context, size_t bytes,
                  void *stream) {
    cudaError_t error = fakegpu_enter(name);
    return (int)(error != cudaSuccess ? error : fakegpu_enqueue(stream, work, context, bytes));
}
#define LAUNCH(work, context) launch(__func__, work, &(context), sizeof(context), stream)

struct check {
    struct gpu_array array;
    uint64_t *wrong;
};

static uint32_t expected(const struct gpu_array *a, uint64_t i) {
    const struct pattern *p = &a->pattern;
    uint32_t range = pattern_range(p->type, p->ranks), sum = 0;
    if (!a->summed)
        return pattern_bits(p->type, pattern_value(p->seed, p->rank, i, range));
    for (uint32_t r = 0; r < p->ranks; r++)
        sum += pattern_value(p->seed, r, i, range);
    return pattern_bits(p->type, sum);
}

static void do_fill(void *context) {
    const struct gpu_array *a = context;
    size_t each = pattern_bytes(a->pattern.type);
    if (!reach(a->at, a->count * each))
        return;
    for (uint64_t i = 0; i < a->count; i++) {
        uint32_t bits = expected(a, a->first + i);
        memcpy((char *)a->at + i * each, &bits, each);
    }
}

int gpu_pattern_fill(const struct gpu_array *a, void *stream) {
    return LAUNCH(do_fill, *a);
}

static void do_check(void *context) {
    const struct check *c = context;
    const struct gpu_array *a = &c->array;
    size_t each = pattern_bytes(a->pattern.type);
    if (!reach(a->at, a->count * each) || !reach(c->wrong, sizeof(*c->wrong)))
        return;
    for (uint64_t i = 0; i < a->count; i++) {
        uint32_t bits = expected(a, a->first + i);
        *c->wrong += memcmp((const char *)a->at + i * each, &bits, each) != 0;
    }
}

int gpu_pattern_wrong(const struct gpu_array *a, uint64_t *wrong, void *stream) {
    struct check c = {.array = *a, .wrong = wrong};
    return LAUNCH(do_check, c);
}

struct adam_call {
    struct adam_arrays arrays;
    struct adam_hyper hyper;
    uint64_t count;
};

static void do_adam(void *context) {
    const struct adam_call *c = context;
    const struct adam_arrays *a = &c->arrays;
    size_t bytes = c->count * sizeof(float), halves = c->count * sizeof(uint16_t);
    if (!reach(a->parameters, bytes) || !reach(a->first, bytes) || !reach(a->second, bytes) ||
        !(a->gradients ? reach(a->gradients, bytes) : reach(a->gradients_bf16, halves)) ||
        (a->copy_bf16 != NULL && !reach(a->copy_bf16, halves)))
        return;
    for (uint64_t i = 0; i < c->count; i++)
        adam_element(a, &c->hyper, i);
}

int gpu_adam(const struct adam_arrays *a, const struct adam_hyper *h, uint64_t count,
             void *stream) {
    struct adam_call c = {.arrays = *a, .hyper = *h, .count = count};
    return LAUNCH(do_adam, c);
}

static bool reach_quantized(const struct gpu_quantized *q) {
    return reach(q->elements, q->count * sizeof(uint16_t)) &&
           reach(q->codes, q->count * (uint64_t)q->bits / 8) &&
           reach(q->steps, q->count / QUANTIZE_BLOCK * sizeof(float));
}

static void quantize_block(const struct gpu_quantized *q, uint64_t block) {
    uint64_t first = block * QUANTIZE_BLOCK;
    float largest = 0;
    for (uint64_t i = first; i < first + QUANTIZE_BLOCK; i++)
        largest = fmaxf(largest, fabsf(half_from_bf16(q->elements[i])));
    float factor = quantize_factor(largest, q->bits);
    q->steps[block] = 1 / factor;
    for (uint64_t i = first; i < first + QUANTIZE_BLOCK; i++) {
        int code = quantize_code(half_from_bf16(q->elements[i]), factor, q->bits);
        if (q->bits == 8)
            q->codes[i] = (uint8_t)code;
        else if (i % 2 == 0)
            q->codes[i / 2] = (uint8_t)(code & 15);
        else
            q->codes[i / 2] |= (uint8_t)((code & 15) << 4);
    }
}

static void do_quantize(void *context) {
    const struct gpu_quantized *q = context;
    if (!reach_quantized(q))
        return;
    for (uint64_t b = 0; b < q->count / QUANTIZE_BLOCK; b++)
        quantize_block(q, b);
}

int gpu_quantize(const struct gpu_quantized *q, void *stream) {
    return LAUNCH(do_quantize, *q);
}

static void do_dequantize(void *context) {
    const struct gpu_quantized *q = context;
    if (!reach_quantized(q))
        return;
    for (uint64_t i = 0; i < q->count; i++)
        q->elements[i] = half_to_bf16(
            quantize_back(quantize_read(q->codes, i, q->bits), q->steps[i / QUANTIZE_BLOCK]));
}

int gpu_dequantize(const struct gpu_quantized *q, void *stream) {
    return LAUNCH(do_dequantize, *q);
}

struct stream_call {
    const void *x, *y;
    void *to;
    uint64_t count;
};

static void do_to_bf16(void *context) {
    const struct stream_call *c = context;
    if (!reach(c->x, c->count * 4) || !reach(c->to, c->count * 2))
        return;
    for (uint64_t i = 0; i < c->count; i++)
        ((uint16_t *)c->to)[i] = half_to_bf16(((const float *)c->x)[i]);
}

int gpu_cast_to_bf16(const float *from, uint16_t *to, uint64_t count, void *stream) {
    struct stream_call c = {.x = from, .to = to, .count = count};
    return LAUNCH(do_to_bf16, c);
}

static void do_to_fp32(void *context) {
    const struct stream_call *c = context;
    if (!reach(c->x, c->count * 2) || !reach(c->to, c->count * 4))
        return;
    for (uint64_t i = 0; i < c->count; i++)
        ((float *)c->to)[i] = half_from_bf16(((const uint16_t *)c->x)[i]);
}

int gpu_cast_to_fp32(const uint16_t *from, float *to, uint64_t count, void *stream) {
    struct stream_call c = {.x = from, .to = to, .count = count};
    return LAUNCH(do_to_fp32, c);
}

static void do_triad(void *context) {
    const struct stream_call *c = context;
    const float *x = c->x, *y = c->y;
    if (!reach(x, c->count * 4) || !reach(c->to, c->count * 4) || (y && !reach(y, c->count * 4)))
        return;
    for (uint64_t i = 0; i < c->count; i++)
        ((float *)c->to)[i] = y ? fmaf(3.0f, y[i], x[i]) : x[i];
}

int gpu_copy(float *to, const float *from, uint64_t count, void *stream) {
    struct stream_call c = {.x = from, .to = to, .count = count};
    return LAUNCH(do_triad, c);
}

int gpu_triad(float *to, const float *x, const float *y, uint64_t count, void *stream) {
    struct stream_call c = {.x = x, .y = y, .to = to, .count = count};
    return LAUNCH(do_triad, c);
}
