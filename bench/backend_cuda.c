// SPDX-License-Identifier: Apache-2.0
#include "bench/backend_cuda.h"

#include <stdlib.h>
#include <string.h>

#include "bench/cuda_job.h"

uint64_t backend_cuda_devices(uint64_t wanted) {
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n < 1)
        return 0;
    return wanted > 0 && wanted < (uint64_t)n ? wanted : (uint64_t)n;
}

static const char *version_text(struct arena *a) {
    int runtime = 0, driver = 0;
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver);
    const int major = 1000, minor = 10; // 13020 is 13.2
    return arena_printf(a, "CUDA %d.%d, driver for %d.%d", runtime / major, runtime % major / minor,
                        driver / major, driver % major / minor);
}

static bool cuda_open(const struct backend_config *c, void **state, struct err *e) {
    int devices = 0;
    if (!gpu_lane_devices(&devices, e))
        return false;
    struct cuda_state *s = calloc(1, sizeof(*s));
    if (s == NULL)
        abort();
    s->arena = c->arena;
    s->patience = (struct patience){.limit_s = c->timeout_s, .signals = c->signals};
    s->devices = (int)backend_cuda_devices(c->devices);
    s->software = version_text(c->arena);
    *state = s;
    return true;
}

static void cuda_close(void *state) {
    free(state);
}

bool cuda_job_lanes(struct cuda_state *s, const int *devices, size_t count, struct err *e) {
    s->lanes = calloc(count, sizeof(*s->lanes));
    if (s->lanes == NULL)
        abort();
    s->lane_count = count;
    for (size_t i = 0; i < count; i++) {
        s->lanes_open = i + 1; // also a half-open one is closed
        if (!gpu_lane_init(&s->lanes[i], devices[i], e))
            return false;
    }
    return true;
}

static struct gpu_work work_of(struct cuda_state *s, const char *name, cuda_job_launch *launch) {
    return (struct gpu_work){.lanes = s->lanes,
                             .lane_count = s->lane_count,
                             .name = name,
                             .launch = launch,
                             .context = s,
                             .patience = s->patience};
}

bool cuda_job_once(struct cuda_state *s, const char *name, cuda_job_launch *launch, struct err *e) {
    struct gpu_work w = work_of(s, name, launch);
    s->lost = s->lost || !gpu_lane_once(&w, e);
    return !s->lost;
}

bool cuda_job_time(struct cuda_state *s, cuda_job_launch *launch, size_t count, double *samples_s,
                   struct err *e) {
    struct gpu_work w = work_of(s, s->point->kind, launch);
    s->lost = s->lost || !gpu_lane_time(&w, count, samples_s, e);
    return !s->lost;
}

bool cuda_job_alloc(void *out, size_t bytes, struct err *e) {
    void **to = out;
    size_t left = 0, all = 0;
    cudaError_t r = cudaMalloc(to, bytes);
    if (r == cudaSuccess)
        return true;
    *to = NULL;
    cudaGetLastError(); // a refusal is no broken context
    cudaMemGetInfo(&left, &all);
    return err_set(e, ERR_RESOURCE, "cudaMalloc of %zu bytes: %s (%zu of %zu are free)", bytes,
                   cudaGetErrorString(r), left, all);
}

static bool cuda_prepare(void *state, const struct bench_point *p, struct err *e) {
    struct cuda_state *s = state;
    s->point = p;
    s->job = strcmp(p->kind, "copy") == 0 ? &cuda_copies : &cuda_kernels;
    if (s->lost)
        return err_set(e, ERR_RESOURCE, "the GPU failed before");
    if (p->first >= (uint64_t)s->devices || (p->paired && p->second >= (uint64_t)s->devices))
        return err_set(e, ERR_RESOURCE, "there are %d GPUs", s->devices);
    return s->job->prepare(s, e);
}

static void cuda_release(void *state) {
    struct cuda_state *s = state;
    if (s->lost)
        return;
    s->job->release(s);
    for (size_t i = 0; i < s->lanes_open; i++)
        gpu_lane_finish(&s->lanes[i]);
    free(s->lanes);
    s->lanes = NULL;
    s->lane_count = s->lanes_open = 0;
}

static bool cuda_sample(void *state, size_t count, double *samples_s, struct err *e) {
    struct cuda_state *s = state;
    return s->job->sample(s, count, samples_s, e);
}

static bool cuda_verify(void *state, uint64_t seed, uint64_t *wrong, struct err *e) {
    struct cuda_state *s = state;
    return s->job->verify(s, seed, wrong, e);
}

static void cuda_describe(void *state, struct measure_result *r) {
    struct cuda_state *s = state;
    r->software = s->software;
    r->ranks = r->concurrent && r->group == NULL ? (uint64_t)s->devices : 0;
    r->nodes = 0;
    r->scope = NULL;
    if (strcmp(r->kind, "copy") == 0 || strcmp(r->kind, "memory") == 0)
        r->dtype = NULL;
    if (s->job != NULL && s->lane_count > 0 && !s->lost)
        s->job->describe(s, r);
}

const struct backend backend_cuda = {
    .name = "cuda",
    .summary = "copies to, from, within and between GPUs, and their kernels",
    .open = cuda_open,
    .close = cuda_close,
    .prepare = cuda_prepare,
    .release = cuda_release,
    .sample = cuda_sample,
    .verify = cuda_verify,
    .describe = cuda_describe,
};
