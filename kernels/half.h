// SPDX-License-Identifier: Apache-2.0
// bf16 and IEEE fp16 as stored bits, rounded to nearest even.
#pragma once

#include "kernels/inline.h"

#include <stdint.h>
#include <string.h>

KERNELS_INLINE float half_from_bf16(uint16_t bits) {
    uint32_t u = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

KERNELS_INLINE uint16_t half_to_bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    uint32_t rounded = (u + 0x7FFF + ((u >> 16) & 1)) >> 16;
    uint32_t quiet = (u >> 16) | 0x40; // rounding could carry a NaN into infinity
    return (uint16_t)((u & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

KERNELS_INLINE float half_from_fp16(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, magnitude = bits & 0x7FFF;
    uint32_t u;
    float f;
    if (magnitude >= 0x7C00) {
        u = 0x7F800000 | (magnitude << 13);
        memcpy(&f, &u, sizeof(f));
    } else {
        u = magnitude << 13;
        memcpy(&f, &u, sizeof(f));
        f *= 0x1p112f; // moves the exponent bias from 15 to 127, subnormals included
    }
    memcpy(&u, &f, sizeof(u));
    u |= sign;
    memcpy(&f, &u, sizeof(f));
    return f;
}

KERNELS_INLINE uint16_t half_to_fp16(float f) {
    uint32_t u, out;
    memcpy(&u, &f, sizeof(u));
    uint32_t sign = (u >> 16) & 0x8000, magnitude = u & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) {
        out = 0x7E00;
    } else if (magnitude >= 0x477FF000) { // rounds to 2^16 or more
        out = 0x7C00;
    } else if (magnitude >= 0x38800000) { // normal in fp16
        out = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
    } else { // subnormal: let the adder round at 2^-24
        float g;
        memcpy(&g, &magnitude, sizeof(g));
        g += 0.5f;
        memcpy(&out, &g, sizeof(out));
        out -= 0x3F000000;
    }
    return (uint16_t)(sign | out);
}
