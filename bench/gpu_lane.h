// SPDX-License-Identifier: Apache-2.0
// One GPU's stream, and the timed loop over one or several of them. Work is queued behind a gate
// that opens when everything is queued, so that events time the GPU and not the launches; waiting
// polls, and gives up at a deadline instead of hanging. docs/method.md §gpu.
#pragma once

#include "base/err.h"
#include "bench/patience.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define GPU_LANE_BATCH 16 // iterations that may be queued at once

struct gpu_lane {
    int device;
    cudaStream_t stream;
    cudaEvent_t marks[GPU_LANE_BATCH + 1];
    bool open; // of the gate
    pthread_mutex_t lock;
    pthread_cond_t opened;
};

// The lane's address must not change until it is closed. ERR_RESOURCE on any CUDA error.
bool gpu_lane_init(struct gpu_lane *l, int device, struct err *e);
void gpu_lane_finish(struct gpu_lane *l);

struct gpu_work {
    struct gpu_lane *lanes;
    size_t lane_count;
    const char *name;                              // for messages: "all_gather"
    bool (*launch)(void *context, struct err *e);  // queues one iteration on every lane
    bool (*healthy)(void *context, struct err *e); // looked at while waiting; NULL: always
    void *context;
    struct patience patience; // with the queued iterations
};

// Each sample is the slowest lane's. Before four or more iterations an untimed one takes up the
// lanes' different starts.
bool gpu_lane_time(const struct gpu_work *w, size_t count, double *samples_s, struct err *e);

// How many iterations gpu_lane_time runs for `count` timed ones.
size_t gpu_lane_iterations(size_t count);

// One untimed iteration, finished on return.
bool gpu_lane_once(const struct gpu_work *w, struct err *e);

// Waits until nothing is left on the stream.
bool gpu_lane_drain(cudaStream_t stream, struct patience p, struct err *e);

// Fails with `what` and CUDA's text unless r is cudaSuccess.
bool gpu_lane_ok(cudaError_t r, const char *what, struct err *e);

// How many GPUs this process sees; ERR_RESOURCE, with what is missing, when none is usable.
bool gpu_lane_devices(int *count, struct err *e);
