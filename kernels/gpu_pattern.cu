// SPDX-License-Identifier: Apache-2.0
// Fills and checks verified contents, 16 bytes a thread and turn.
#include "kernels/gpu.h"
#include "kernels/gpu_launch.h"

struct contents {
    struct pattern pattern;
    uint64_t first;
    uint32_t range;
    bool summed;
};

__device__ static uint32_t element(const struct contents &c, uint64_t i) {
    const struct pattern &p = c.pattern;
    if (!c.summed)
        return pattern_bits(p.type, pattern_value(p.seed, p.rank, c.first + i, c.range));
    uint32_t sum = 0;
    for (uint32_t r = 0; r < p.ranks; r++)
        sum += pattern_value(p.seed, r, c.first + i, c.range);
    return pattern_bits(p.type, sum);
}

// The four words of vector `v`.
template <int each>
__device__ static void vector(const struct contents &c, uint64_t v, uint32_t *words) {
    const int per_word = 4 / each;
#pragma unroll
    for (int w = 0; w < 4; w++) {
        words[w] = 0;
#pragma unroll
        for (int e = 0; e < per_word; e++)
            words[w] |= element(c, (v * 4 + w) * per_word + e) << (8 * each * e);
    }
}

template <int each>
__global__ static void fill(struct contents c, unsigned char *to, uint64_t count) {
    uint64_t vectors = count * each / 16;
    for (uint64_t v = GPU_FIRST; v < vectors; v += GPU_STRIDE) {
        alignas(16) uint32_t words[4];
        vector<each>(c, v, words);
        ((uint4 *)to)[v] = *(const uint4 *)words;
    }
    for (uint64_t i = vectors * (16 / each) + GPU_FIRST; i < count; i += GPU_STRIDE) {
        uint32_t bits = element(c, i);
        memcpy(to + i * each, &bits, each);
    }
}

template <int each>
__global__ static void check(struct contents c, const unsigned char *from, uint64_t count,
                             unsigned long long *wrong) {
    uint64_t vectors = count * each / 16;
    unsigned mine = 0;
    for (uint64_t v = GPU_FIRST; v < vectors; v += GPU_STRIDE) {
        alignas(16) uint32_t words[4], found[4];
        *(uint4 *)found = ((const uint4 *)from)[v];
        vector<each>(c, v, words);
        for (int w = 0; w < 4; w++)
            for (int e = 0; e < 4 / each; e++) {
                uint32_t mask =
                    each == 4 ? 0xFFFFFFFFu : ((1u << (8 * each % 32)) - 1) << (8 * each * e);
                mine += ((words[w] ^ found[w]) & mask) != 0;
            }
    }
    for (uint64_t i = vectors * (16 / each) + GPU_FIRST; i < count; i += GPU_STRIDE) {
        uint32_t bits = element(c, i), found = 0;
        memcpy(&found, from + i * each, each);
        mine += bits != found;
    }
    if (mine > 0)
        atomicAdd(wrong, (unsigned long long)mine);
}

static struct contents contents_of(const struct gpu_array *a) {
    struct contents c = {a->pattern, a->first, pattern_range(a->pattern.type, a->pattern.ranks),
                         a->summed};
    return c;
}

extern "C" int gpu_pattern_fill(const struct gpu_array *a, void *stream) {
    struct contents c = contents_of(a);
    unsigned char *to = (unsigned char *)a->at;
    cudaStream_t s = (cudaStream_t)stream;
    size_t each = pattern_bytes(a->pattern.type);
    unsigned blocks = gpu_blocks(a->count * each / 16);
    if (each == 4)
        fill<4><<<blocks, GPU_THREADS, 0, s>>>(c, to, a->count);
    else if (each == 2)
        fill<2><<<blocks, GPU_THREADS, 0, s>>>(c, to, a->count);
    else
        fill<1><<<blocks, GPU_THREADS, 0, s>>>(c, to, a->count);
    return (int)cudaGetLastError();
}

extern "C" int gpu_pattern_wrong(const struct gpu_array *a, uint64_t *wrong, void *stream) {
    struct contents c = contents_of(a);
    const unsigned char *from = (const unsigned char *)a->at;
    unsigned long long *to = (unsigned long long *)wrong;
    cudaStream_t s = (cudaStream_t)stream;
    size_t each = pattern_bytes(a->pattern.type);
    unsigned blocks = gpu_blocks(a->count * each / 16);
    if (each == 4)
        check<4><<<blocks, GPU_THREADS, 0, s>>>(c, from, a->count, to);
    else if (each == 2)
        check<2><<<blocks, GPU_THREADS, 0, s>>>(c, from, a->count, to);
    else
        check<1><<<blocks, GPU_THREADS, 0, s>>>(c, from, a->count, to);
    return (int)cudaGetLastError();
}
