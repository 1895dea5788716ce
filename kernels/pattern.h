// SPDX-License-Identifier: Apache-2.0
// Verified contents: every element is a pure function of seed, rank and index, small enough that
// sums over ranks are exact in the element's type. Plain C, also compiled into CUDA kernels.
#pragma once

#include "kernels/half.h"
#include "kernels/inline.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum pattern_type { PATTERN_FP32, PATTERN_BF16, PATTERN_FP16, PATTERN_INT8, PATTERN_TYPE_COUNT };

// A well-mixed 32-bit value of a position.
KERNELS_INLINE uint32_t pattern_hash(uint64_t seed, uint32_t rank, uint64_t index) {
    uint64_t x = seed * 0x9E3779B97F4A7C15ull + index;
    x ^= (uint64_t)rank << 40;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 32;
    x *= 0x94D049BB133111EBull;
    return (uint32_t)(x >> 32);
}

// Number of distinct values so that a sum over `ranks` stays exact: bf16 holds every integer to
// 256, int8 to 127, fp16 to 2048. At least 2; sums of more ranks than that wrap or round.
KERNELS_INLINE uint32_t pattern_range(enum pattern_type type, uint32_t ranks) {
    uint32_t top = type == PATTERN_INT8 ? 127 : type == PATTERN_BF16 ? 255 : 2047;
    uint32_t range = top / ranks + 1;
    if (range > 100)
        range = 100;
    return range < 2 ? 2 : range;
}

KERNELS_INLINE uint32_t pattern_value(uint64_t seed, uint32_t rank, uint64_t index,
                                      uint32_t range) {
    return pattern_hash(seed, rank, index) % range;
}

KERNELS_INLINE size_t pattern_bytes(enum pattern_type type) {
    return type == PATTERN_FP32 ? 4 : type == PATTERN_INT8 ? 1 : 2;
}

// The element `type` of a small non-negative integer, as its stored bits.
KERNELS_INLINE uint32_t pattern_bits(enum pattern_type type, uint32_t value) {
    float f = (float)value;
    uint32_t bits;
    switch (type) {
    case PATTERN_FP32:
        memcpy(&bits, &f, sizeof(bits));
        return bits;
    case PATTERN_BF16:
        return half_to_bf16(f);
    case PATTERN_FP16:
        return half_to_fp16(f);
    default:
        return value & 0xFF;
    }
}
void pattern_store(enum pattern_type type, void *at, uint32_t value);

// Fills elements [first, first + count) of rank `rank`'s array of a job of `ranks` ranks; `to`
// points at element `first`.
struct pattern {
    enum pattern_type type;
    uint64_t seed;
    uint32_t rank, ranks;
};
void pattern_fill(const struct pattern *p, void *to, uint64_t first, uint64_t count);

// Counts elements of `from` that differ from rank p->rank's contents.
uint64_t pattern_wrong(const struct pattern *p, const void *from, uint64_t first, uint64_t count);

// Counts elements that differ from the sum over the listed ranks; members NULL = all of p->ranks.
uint64_t pattern_wrong_sum(const struct pattern *p, const uint32_t *members, const void *from,
                           uint64_t first, uint64_t count);
