// SPDX-License-Identifier: Apache-2.0
// One thread block per quantisation block, eight elements a thread, held in registers between
// finding the largest and coding.
#include "kernels/gpu.h"
#include "kernels/gpu_launch.h"
#include "kernels/quantize.h"

#define EACH (QUANTIZE_BLOCK / GPU_THREADS)
#define WARP 32

struct eight {
    alignas(16) uint16_t half[EACH];
};
static_assert(sizeof(struct eight) == sizeof(uint4), "a thread loads 16 bytes");

__device__ static float largest_of_block(float mine) {
    __shared__ float warps[GPU_THREADS / WARP];
    for (int off = WARP / 2; off > 0; off /= 2)
        mine = fmaxf(mine, __shfl_xor_sync(0xFFFFFFFFu, mine, off));
    if (threadIdx.x % WARP == 0)
        warps[threadIdx.x / WARP] = mine;
    __syncthreads();
    mine = warps[0];
    for (int w = 1; w < GPU_THREADS / WARP; w++)
        mine = fmaxf(mine, warps[w]);
    __syncthreads(); // before the next turn writes
    return mine;
}

template <int bits> __global__ static void quantize(struct gpu_quantized q) {
    for (uint64_t block = blockIdx.x; block < q.count / QUANTIZE_BLOCK; block += gridDim.x) {
        struct eight in;
        uint64_t at = block * GPU_THREADS + threadIdx.x;
        *(uint4 *)&in = ((const uint4 *)q.elements)[at];
        float largest = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            largest = fmaxf(largest, fabsf(half_from_bf16(in.half[i])));
        float factor = quantize_factor(largest_of_block(largest), bits);
        uint64_t codes = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int code = quantize_code(half_from_bf16(in.half[i]), factor, bits);
            codes |= (uint64_t)(code & ((1 << bits) - 1)) << (bits * i);
        }
        if (bits == 8)
            ((uint64_t *)q.codes)[at] = codes;
        else
            ((uint32_t *)q.codes)[at] = (uint32_t)codes;
        if (threadIdx.x == 0)
            q.steps[block] = 1.0f / factor;
    }
}

template <int bits> __global__ static void dequantize(struct gpu_quantized q) {
    uint64_t groups = q.count / EACH;
    for (uint64_t at = GPU_FIRST; at < groups; at += GPU_STRIDE) {
        uint64_t codes =
            bits == 8 ? ((const uint64_t *)q.codes)[at] : ((const uint32_t *)q.codes)[at];
        float step = q.steps[at * EACH / QUANTIZE_BLOCK];
        struct eight out;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int code = (int)(codes >> (bits * i) & ((1 << bits) - 1));
            code = code >= 1 << (bits - 1) ? code - (1 << bits) : code;
            out.half[i] = half_to_bf16(quantize_back(code, step));
        }
        ((uint4 *)q.elements)[at] = *(const uint4 *)&out;
    }
}

extern "C" int gpu_quantize(const struct gpu_quantized *q, void *stream) {
    unsigned blocks = gpu_blocks(q->count / EACH);
    cudaStream_t s = (cudaStream_t)stream;
    if (q->bits == 8)
        quantize<8><<<blocks, GPU_THREADS, 0, s>>>(*q);
    else
        quantize<4><<<blocks, GPU_THREADS, 0, s>>>(*q);
    return (int)cudaGetLastError();
}

extern "C" int gpu_dequantize(const struct gpu_quantized *q, void *stream) {
    unsigned blocks = gpu_blocks(q->count / EACH);
    cudaStream_t s = (cudaStream_t)stream;
    if (q->bits == 8)
        dequantize<8><<<blocks, GPU_THREADS, 0, s>>>(*q);
    else
        dequantize<4><<<blocks, GPU_THREADS, 0, s>>>(*q);
    return (int)cudaGetLastError();
}
