// SPDX-License-Identifier: Apache-2.0
// On the GPU where its kernels can; else by way of host memory, a piece at a time: sums over chosen
// ranks, and arrays that start off their grain.
#include "bench/gpu_contents.h"

#include "base/units.h"
#include "bench/gpu_lane.h"
#include "kernels/gpu.h"

#define PIECE_BYTES (4 * UNITS_MIB)
#define KERNEL_GRAIN_BYTES 16

typedef bool piece_function(const struct gpu_contents *c, void *host, uint64_t *wrong,
                            struct err *e);

static bool each_piece(const struct gpu_contents *c, piece_function *work, uint64_t *wrong,
                       struct err *e) {
    size_t size = pattern_bytes(c->pattern.type);
    uint64_t most = PIECE_BYTES / size;
    void *host = NULL;
    bool ok = gpu_lane_ok(cudaMallocHost(&host, PIECE_BYTES), "cudaMallocHost", e);
    for (uint64_t done = 0; ok && done < c->count; done += most) {
        struct gpu_contents piece = *c;
        piece.at = (char *)c->at + done * size;
        piece.first = c->first + done;
        piece.count = c->count - done < most ? c->count - done : most;
        ok = work(&piece, host, wrong, e);
    }
    if (ok) // a lost stream may still write to it
        cudaFreeHost(host);
    return ok;
}

static bool settle(const struct gpu_contents *c, struct err *e) {
    return gpu_lane_drain(c->stream, c->patience, e);
}

static bool fill_piece(const struct gpu_contents *c, void *host, uint64_t *wrong, struct err *e) {
    size_t bytes = c->count * pattern_bytes(c->pattern.type);
    (void)wrong;
    pattern_fill(&c->pattern, host, c->first, c->count);
    return gpu_lane_ok(cudaMemcpyAsync(c->at, host, bytes, cudaMemcpyHostToDevice, c->stream),
                       "cudaMemcpyAsync", e) &&
           settle(c, e);
}

static bool check_piece(const struct gpu_contents *c, void *host, uint64_t *wrong, struct err *e) {
    size_t bytes = c->count * pattern_bytes(c->pattern.type);
    if (!gpu_lane_ok(cudaMemcpyAsync(host, c->at, bytes, cudaMemcpyDeviceToHost, c->stream),
                     "cudaMemcpyAsync", e) ||
        !settle(c, e))
        return false;
    *wrong += c->members != NULL
                  ? pattern_wrong_sum(&c->pattern, c->members, host, c->first, c->count)
                  : pattern_wrong(&c->pattern, host, c->first, c->count);
    return true;
}

// The kernels add up ranks 0, 1, ... and want arrays on their grain.
static bool on_gpu(const struct gpu_contents *c, struct gpu_array *out) {
    for (uint32_t i = 0; c->members != NULL && i < c->pattern.ranks; i++)
        if (c->members[i] != i)
            return false;
    *out = (struct gpu_array){.pattern = c->pattern,
                              .at = c->at,
                              .first = c->first,
                              .count = c->count,
                              .summed = c->members != NULL};
    return (uintptr_t)c->at % KERNEL_GRAIN_BYTES == 0;
}

bool gpu_contents_fill(const struct gpu_contents *c, struct err *e) {
    struct gpu_array a;
    if (!on_gpu(c, &a))
        return each_piece(c, fill_piece, NULL, e);
    return gpu_lane_ok((cudaError_t)gpu_pattern_fill(&a, c->stream), "gpu_pattern_fill", e) &&
           settle(c, e);
}

// Pinned, so that no copy holds the host up. A lost stream may still write to what is left behind.
static bool count_on_gpu(const struct gpu_contents *c, const struct gpu_array *a, uint64_t *wrong,
                         struct err *e) {
    void *counter = NULL, *found = NULL;
    const size_t bytes = sizeof(uint64_t);
    if (!gpu_lane_ok(cudaMalloc(&counter, bytes), "cudaMalloc", e) ||
        !gpu_lane_ok(cudaMallocHost(&found, bytes), "cudaMallocHost", e) ||
        !gpu_lane_ok(cudaMemsetAsync(counter, 0, bytes, c->stream), "cudaMemsetAsync", e) ||
        !gpu_lane_ok((cudaError_t)gpu_pattern_wrong(a, counter, c->stream), "gpu_pattern_wrong",
                     e) ||
        !gpu_lane_ok(cudaMemcpyAsync(found, counter, bytes, cudaMemcpyDeviceToHost, c->stream),
                     "cudaMemcpyAsync", e) ||
        !settle(c, e))
        return false;
    *wrong += *(uint64_t *)found;
    return gpu_lane_ok(cudaFreeHost(found), "cudaFreeHost", e) &&
           gpu_lane_ok(cudaFree(counter), "cudaFree", e);
}

bool gpu_contents_wrong(const struct gpu_contents *c, uint64_t *wrong, struct err *e) {
    struct gpu_array a;
    return on_gpu(c, &a) ? count_on_gpu(c, &a, wrong, e) : each_piece(c, check_piece, wrong, e);
}
