// SPDX-License-Identifier: Apache-2.0
// CUDA kernels behind a C interface. Every function queues work on `stream` (a cudaStream_t of the
// current device) over device memory and returns a cudaError_t as an int: 0 is success. Arrays
// start at multiples of 16 bytes. Arithmetic is that of the inline headers, so results equal the
// host's to the bit.
#pragma once

#include "kernels/adam.h"
#include "kernels/pattern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

// Elements [first, first + count) of a verified array; `at` points at element `first`.
struct gpu_array {
    struct pattern pattern;
    void *at;
    uint64_t first, count;
    bool summed; // contents are the sum over pattern.ranks ranks
};
int gpu_pattern_fill(const struct gpu_array *a, void *stream);
// Adds the number of elements that differ to *wrong, in device memory.
int gpu_pattern_wrong(const struct gpu_array *a, uint64_t *wrong, void *stream);

// One AdamW step over elements [0, count).
int gpu_adam(const struct adam_arrays *a, const struct adam_hyper *h, uint64_t count, void *stream);

// quantize.h over whole blocks: `count` is a multiple of QUANTIZE_BLOCK.
struct gpu_quantized {
    uint16_t *elements; // bf16
    uint8_t *codes;     // count × bits / 8 bytes
    float *steps;       // one per block
    uint64_t count;
    int bits; // 8 or 4
};
int gpu_quantize(const struct gpu_quantized *q, void *stream);
int gpu_dequantize(const struct gpu_quantized *q, void *stream);

int gpu_cast_to_bf16(const float *from, uint16_t *to, uint64_t count, void *stream);
int gpu_cast_to_fp32(const uint16_t *from, float *to, uint64_t count, void *stream);

// Memory at its fastest: to = from; to = x + 3 y, as STREAM's triad.
int gpu_copy(float *to, const float *from, uint64_t count, void *stream);
int gpu_triad(float *to, const float *x, const float *y, uint64_t count, void *stream);

#if defined(__cplusplus)
}
#endif
