// SPDX-License-Identifier: Apache-2.0
// Four elements a thread and turn, loaded as 16 bytes; the arithmetic is adam_element's.
#include "kernels/adam_arith.h"
#include "kernels/gpu.h"
#include "kernels/gpu_launch.h"

template <typename T> __device__ static void load(T *to, const T *from, uint64_t quad) {
    if (sizeof(T) == 4)
        *(uint4 *)to = ((const uint4 *)from)[quad];
    else
        *(uint2 *)to = ((const uint2 *)from)[quad];
}

template <typename T> __device__ static void store(T *to, const T *from, uint64_t quad) {
    if (sizeof(T) == 4)
        ((uint4 *)to)[quad] = *(const uint4 *)from;
    else
        ((uint2 *)to)[quad] = *(const uint2 *)from;
}

template <bool halves, bool copies>
__global__ static void adam(struct adam_arrays a, struct adam_hyper h, uint64_t count) {
    uint64_t quads = count / 4;
    for (uint64_t i = GPU_FIRST; i < quads; i += GPU_STRIDE) {
        alignas(16) float p[4], m[4], v[4], g[4];
        alignas(8) uint16_t g16[4], p16[4];
        load(p, a.parameters, i);
        load(m, a.first, i);
        load(v, a.second, i);
        if (halves)
            load(g16, a.gradients_bf16, i);
        else
            load(g, a.gradients, i);
        struct adam_arrays four = {
            p, m, v, halves ? nullptr : g, halves ? g16 : nullptr, copies ? p16 : nullptr};
#pragma unroll
        for (int j = 0; j < 4; j++)
            adam_element(&four, &h, j);
        store(a.parameters, p, i);
        store(a.first, m, i);
        store(a.second, v, i);
        if (copies)
            store(a.copy_bf16, p16, i);
    }
    for (uint64_t i = 4 * quads + GPU_FIRST; i < count; i += GPU_STRIDE)
        adam_element(&a, &h, i);
}

extern "C" int gpu_adam(const struct adam_arrays *a, const struct adam_hyper *h, uint64_t count,
                        void *stream) {
    unsigned blocks = gpu_blocks(count / 4);
    cudaStream_t s = (cudaStream_t)stream;
    bool halves = a->gradients == nullptr, copies = a->copy_bf16 != nullptr;
    if (halves && copies)
        adam<true, true><<<blocks, GPU_THREADS, 0, s>>>(*a, *h, count);
    else if (halves)
        adam<true, false><<<blocks, GPU_THREADS, 0, s>>>(*a, *h, count);
    else if (copies)
        adam<false, true><<<blocks, GPU_THREADS, 0, s>>>(*a, *h, count);
    else
        adam<false, false><<<blocks, GPU_THREADS, 0, s>>>(*a, *h, count);
    return (int)cudaGetLastError();
}
