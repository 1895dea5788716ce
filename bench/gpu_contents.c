// SPDX-License-Identifier: Apache-2.0
// By way of host memory, a piece at a time: no kernel to trust, and the same comparison as for the
// host's own collectives.
#include "bench/gpu_contents.h"

#include <stdlib.h>

#include "base/units.h"
#include "bench/gpu_lane.h"

#define PIECE_BYTES (4 * UNITS_MIB)

typedef bool piece_function(const struct gpu_contents *c, void *host, uint64_t *wrong,
                            struct err *e);

static bool each_piece(const struct gpu_contents *c, piece_function *work, uint64_t *wrong,
                       struct err *e) {
    size_t size = pattern_bytes(c->pattern.type);
    uint64_t most = PIECE_BYTES / size;
    void *host = malloc(PIECE_BYTES);
    bool ok = true;
    if (host == NULL)
        abort();
    for (uint64_t done = 0; ok && done < c->count; done += most) {
        struct gpu_contents piece = *c;
        piece.at = (char *)c->at + done * size;
        piece.first = c->first + done;
        piece.count = c->count - done < most ? c->count - done : most;
        ok = work(&piece, host, wrong, e);
    }
    free(host);
    return ok;
}

static bool fill_piece(const struct gpu_contents *c, void *host, uint64_t *wrong, struct err *e) {
    size_t bytes = c->count * pattern_bytes(c->pattern.type);
    (void)wrong;
    pattern_fill(&c->pattern, host, c->first, c->count);
    return gpu_lane_ok(cudaMemcpyAsync(c->at, host, bytes, cudaMemcpyHostToDevice, c->stream),
                       "cudaMemcpyAsync", e) &&
           gpu_lane_ok(cudaStreamSynchronize(c->stream), "cudaStreamSynchronize", e);
}

static bool check_piece(const struct gpu_contents *c, void *host, uint64_t *wrong, struct err *e) {
    size_t bytes = c->count * pattern_bytes(c->pattern.type);
    if (!gpu_lane_ok(cudaMemcpyAsync(host, c->at, bytes, cudaMemcpyDeviceToHost, c->stream),
                     "cudaMemcpyAsync", e) ||
        !gpu_lane_ok(cudaStreamSynchronize(c->stream), "cudaStreamSynchronize", e))
        return false;
    *wrong += c->members != NULL
                  ? pattern_wrong_sum(&c->pattern, c->members, host, c->first, c->count)
                  : pattern_wrong(&c->pattern, host, c->first, c->count);
    return true;
}

bool gpu_contents_fill(const struct gpu_contents *c, struct err *e) {
    return each_piece(c, fill_piece, NULL, e);
}

bool gpu_contents_wrong(const struct gpu_contents *c, uint64_t *wrong, struct err *e) {
    return each_piece(c, check_piece, wrong, e);
}
