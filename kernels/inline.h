// SPDX-License-Identifier: Apache-2.0
// Arithmetic that the host and CUDA kernels share is inline for both.
#pragma once

#if defined(__CUDACC__)
#define KERNELS_INLINE static __host__ __device__ inline
#else
#define KERNELS_INLINE static inline
#endif
