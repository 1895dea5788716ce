// SPDX-License-Identifier: Apache-2.0
// Blockwise symmetric quantisation of bf16 to int8 or int4, as ZeRO++'s qwZ and qgZ do it: the
// largest magnitude of a block maps to half the code range, codes are rounded to nearest even and
// clamped, two 4-bit codes share a byte (the first in its low half), one fp32 step per block turns
// codes back. DeepSpeed, csrc/includes/quantization_utils.h; docs/method.md §gpu-kernels.
#pragma once

#include "kernels/half.h"
#include "kernels/inline.h"

#include <math.h>
#include <stdint.h>

#define QUANTIZE_BLOCK 2048 // elements

// Multiplies elements into codes; 1 for a block of zeros.
KERNELS_INLINE float quantize_factor(float largest, int bits) {
    return largest > 0 ? (float)(1 << bits) / (2.0f * largest) : 1.0f;
}

KERNELS_INLINE int quantize_code(float x, float factor, int bits) {
    int top = (1 << (bits - 1)) - 1;
    float code = rintf(x * factor);
    return code > (float)top ? top : code < (float)(-top - 1) ? -top - 1 : (int)code;
}

// Code `i` of an array of codes.
KERNELS_INLINE int quantize_read(const uint8_t *codes, uint64_t i, int bits) {
    if (bits == 8)
        return (int8_t)codes[i];
    int half = codes[i / 2] >> (i % 2 * 4) & 15;
    return half >= 8 ? half - 16 : half;
}

// `step` is what one code stands for: 1 / factor.
KERNELS_INLINE float quantize_back(int code, float step) {
    return (float)code * step;
}
