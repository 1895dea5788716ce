// SPDX-License-Identifier: Apache-2.0
// Copy, triad and casts: 16 bytes a thread and load, the tail by single elements.
#include "kernels/gpu.h"
#include "kernels/gpu_launch.h"

#include <math.h>

__global__ static void triad(float *to, const float *x, const float *y, uint64_t count) {
    uint64_t quads = count / 4;
    for (uint64_t i = GPU_FIRST; i < quads; i += GPU_STRIDE) {
        float4 a = ((const float4 *)x)[i], b = ((const float4 *)y)[i];
        a.x = fmaf(3.0f, b.x, a.x);
        a.y = fmaf(3.0f, b.y, a.y);
        a.z = fmaf(3.0f, b.z, a.z);
        a.w = fmaf(3.0f, b.w, a.w);
        ((float4 *)to)[i] = a;
    }
    for (uint64_t i = 4 * quads + GPU_FIRST; i < count; i += GPU_STRIDE)
        to[i] = fmaf(3.0f, y[i], x[i]);
}

__global__ static void copy(float *to, const float *from, uint64_t count) {
    uint64_t quads = count / 4;
    for (uint64_t i = GPU_FIRST; i < quads; i += GPU_STRIDE)
        ((float4 *)to)[i] = ((const float4 *)from)[i];
    for (uint64_t i = 4 * quads + GPU_FIRST; i < count; i += GPU_STRIDE)
        to[i] = from[i];
}

__global__ static void to_bf16(const float *from, uint16_t *to, uint64_t count) {
    uint64_t quads = count / 4;
    for (uint64_t i = GPU_FIRST; i < quads; i += GPU_STRIDE) {
        float4 a = ((const float4 *)from)[i];
        ushort4 h = {half_to_bf16(a.x), half_to_bf16(a.y), half_to_bf16(a.z), half_to_bf16(a.w)};
        ((ushort4 *)to)[i] = h;
    }
    for (uint64_t i = 4 * quads + GPU_FIRST; i < count; i += GPU_STRIDE)
        to[i] = half_to_bf16(from[i]);
}

__global__ static void to_fp32(const uint16_t *from, float *to, uint64_t count) {
    uint64_t quads = count / 4;
    for (uint64_t i = GPU_FIRST; i < quads; i += GPU_STRIDE) {
        ushort4 h = ((const ushort4 *)from)[i];
        float4 a = {half_from_bf16(h.x), half_from_bf16(h.y), half_from_bf16(h.z),
                    half_from_bf16(h.w)};
        ((float4 *)to)[i] = a;
    }
    for (uint64_t i = 4 * quads + GPU_FIRST; i < count; i += GPU_STRIDE)
        to[i] = half_from_bf16(from[i]);
}

extern "C" int gpu_triad(float *to, const float *x, const float *y, uint64_t count, void *stream) {
    triad<<<gpu_blocks(count / 4), GPU_THREADS, 0, (cudaStream_t)stream>>>(to, x, y, count);
    return (int)cudaGetLastError();
}

extern "C" int gpu_copy(float *to, const float *from, uint64_t count, void *stream) {
    copy<<<gpu_blocks(count / 4), GPU_THREADS, 0, (cudaStream_t)stream>>>(to, from, count);
    return (int)cudaGetLastError();
}

extern "C" int gpu_cast_to_bf16(const float *from, uint16_t *to, uint64_t count, void *stream) {
    to_bf16<<<gpu_blocks(count / 4), GPU_THREADS, 0, (cudaStream_t)stream>>>(from, to, count);
    return (int)cudaGetLastError();
}

extern "C" int gpu_cast_to_fp32(const uint16_t *from, float *to, uint64_t count, void *stream) {
    to_fp32<<<gpu_blocks(count / 4), GPU_THREADS, 0, (cudaStream_t)stream>>>(from, to, count);
    return (int)cudaGetLastError();
}
