// SPDX-License-Identifier: Apache-2.0
// How the CUDA kernels of this folder are launched: 256 threads a block, a bounded grid whose
// threads stride over what is left.
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

#define GPU_THREADS 256
#define GPU_BLOCKS_MAX 8192

static inline unsigned gpu_blocks(uint64_t threads) {
    uint64_t blocks = (threads + GPU_THREADS - 1) / GPU_THREADS;
    return blocks < 1 ? 1 : blocks > GPU_BLOCKS_MAX ? GPU_BLOCKS_MAX : (unsigned)blocks;
}

#define GPU_FIRST ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x)
#define GPU_STRIDE ((uint64_t)gridDim.x * blockDim.x)
