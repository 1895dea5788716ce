// SPDX-License-Identifier: Apache-2.0
// Verified contents (kernels/pattern.h) in a GPU's memory.
#pragma once

#include "base/err.h"
#include "bench/patience.h"
#include "kernels/pattern.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

// Elements [first, first + count) of an array; `at` is where element `first` lies on the GPU.
struct gpu_contents {
    struct pattern pattern;
    const uint32_t *members; // non-NULL: the sum over pattern.ranks listed ranks
    void *at;
    uint64_t first, count;
    cudaStream_t stream; // on the current device; empty on return
    struct patience patience;
};

bool gpu_contents_fill(const struct gpu_contents *c, struct err *e);
bool gpu_contents_wrong(const struct gpu_contents *c, uint64_t *wrong, struct err *e); // adds
