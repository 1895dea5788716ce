// SPDX-License-Identifier: Apache-2.0
// Between the files of the CUDA backend.
#pragma once

#include "base/arena.h"
#include "bench/backend_cuda.h"
#include "bench/gpu_lane.h"

struct cuda_state {
    struct arena *arena;
    struct patience patience;
    int devices;
    const char *software;
    bool lost; // something hangs or is broken: freeing would hang with it
    const struct bench_point *point;
    struct gpu_lane *lanes; // of the point: one per stream that works at once
    size_t lane_count, lanes_open;
    const struct cuda_job *job;
    void *own; // the job's
};

// A family of points. `prepare` sets the lanes up; the others follow backend.h.
struct cuda_job {
    bool (*prepare)(struct cuda_state *s, struct err *e);
    void (*release)(struct cuda_state *s);
    bool (*sample)(struct cuda_state *s, size_t count, double *samples_s, struct err *e);
    bool (*verify)(struct cuda_state *s, uint64_t seed, uint64_t *wrong, struct err *e);
    void (*describe)(struct cuda_state *s, struct measure_result *r);
};
extern const struct cuda_job cuda_copies, cuda_kernels;

// One lane on each of `devices`.
bool cuda_job_lanes(struct cuda_state *s, const int *devices, size_t count, struct err *e);

// Runs `launch` once over all lanes and waits; a failure loses the state.
typedef bool cuda_job_launch(void *context, struct err *e);
bool cuda_job_once(struct cuda_state *s, const char *name, cuda_job_launch *launch, struct err *e);
bool cuda_job_time(struct cuda_state *s, cuda_job_launch *launch, size_t count, double *samples_s,
                   struct err *e);

// Device memory of the current device; the message says how much there is.
bool cuda_job_alloc(void *out, size_t bytes, struct err *e);
