// SPDX-License-Identifier: Apache-2.0
// Copies between host and GPU memory, within and between GPUs, and the kernels of kernels/gpu.h.
// Kinds: "copy"; "memory", "fill", "verify", "cast", "quantize", "dequantize", "adam" on GPU
// bench_point.first. docs/method.md §gpu-copies, §gpu-kernels.
#pragma once

#include "bench/backend.h"

extern const struct backend backend_cuda;

// GPUs that this process may use, at most `wanted` (0: all); 0 without a usable driver.
uint64_t backend_cuda_devices(uint64_t wanted);

// Bytes of GPU memory that one iteration of a kernel reads and writes for `n` elements; 0 when
// there is no such kernel. `n` counts whole quantisation blocks.
uint64_t backend_cuda_bytes(const struct bench_point *p);
