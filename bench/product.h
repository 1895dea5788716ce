// SPDX-License-Identifier: Apache-2.0
// One matrix product by cuBLASLt, laid out as a linear layer: output[m,n] = input[m,k]
// weights[n,k]', all row-major. docs/method.md §gemm-bench.
#pragma once

#include "base/err.h"
#include "base/kinds.h"
#include "base/units.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PRODUCT_WORKSPACE_BYTES (32 * UNITS_MIB) // what the library's manual advises for Hopper

// What of a type cuBLASLt wants to know. fp8 (e4m3) gives bf16.
struct product_type {
    enum dtype dtype;
    cudaDataType_t in, out;
    cublasComputeType_t compute;
    size_t in_bytes, out_bytes;
};
const struct product_type *product_type_find(enum dtype d); // NULL: cuBLASLt does not do it

struct product {
    const struct product_type *type; // set these four before product_open
    uint64_t m, n, k;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t weights, input, output;
    cublasLtMatmulAlgo_t algorithm;
};

struct product_arrays {
    void *weights, *input, *output; // in the GPU, as cudaMalloc aligns
    void *workspace;                // PRODUCT_WORKSPACE_BYTES
};

// On the current device. ERR_RESOURCE when cuBLASLt has no algorithm for it here; nothing is then
// left to close. Sums of split products are never rounded in between.
bool product_open(struct product *p, cublasLtHandle_t handle, struct err *e);
void product_close(struct product *p); // also after memset to 0

bool product_queue(const struct product *p, cublasLtHandle_t handle, const struct product_arrays *a,
                   cudaStream_t stream, struct err *e);

bool product_ok(cublasStatus_t r, const char *what, struct err *e);
