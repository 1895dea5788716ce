// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu_lane.h"

#include <time.h>

#include "base/units.h"

// A gate that nobody opens would hold the stream for ever.
#define GATE_LIMIT_S 2
#define LEAD_IN_FROM 4

bool gpu_lane_ok(cudaError_t r, const char *what, struct err *e) {
    if (r == cudaSuccess)
        return true;
    return err_set(e, ERR_RESOURCE, "%s: %s", what, cudaGetErrorString(r));
}

bool gpu_lane_devices(int *count, struct err *e) {
    int n = 0;
    cudaError_t r = cudaGetDeviceCount(&n);
    if (r != cudaSuccess)
        return err_set(e, ERR_RESOURCE, "no usable GPU: %s", cudaGetErrorString(r));
    if (n < 1)
        return err_set(e, ERR_RESOURCE, "no usable GPU: CUDA lists none");
    *count = n;
    return true;
}

bool gpu_lane_init(struct gpu_lane *l, int device, struct err *e) {
    *l = (struct gpu_lane){.device = device};
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->opened, NULL);
    if (!gpu_lane_ok(cudaSetDevice(device), "cudaSetDevice", e) ||
        !gpu_lane_ok(cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking),
                     "cudaStreamCreateWithFlags", e))
        return false;
    for (size_t i = 0; i <= GPU_LANE_BATCH; i++)
        if (!gpu_lane_ok(cudaEventCreateWithFlags(&l->marks[i], cudaEventDefault),
                         "cudaEventCreateWithFlags", e))
            return false;
    return true;
}

void gpu_lane_finish(struct gpu_lane *l) {
    cudaSetDevice(l->device);
    for (size_t i = 0; i <= GPU_LANE_BATCH; i++)
        if (l->marks[i] != NULL)
            cudaEventDestroy(l->marks[i]);
    if (l->stream != NULL)
        cudaStreamDestroy(l->stream);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->opened);
}

static void set_gate(struct gpu_lane *l, bool open) {
    pthread_mutex_lock(&l->lock);
    l->open = open;
    pthread_cond_broadcast(&l->opened);
    pthread_mutex_unlock(&l->lock);
}

// Runs on a thread of CUDA's, in the stream's order.
static void CUDART_CB wait_at_gate(void *context) {
    struct gpu_lane *l = context;
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += GATE_LIMIT_S;
    pthread_mutex_lock(&l->lock);
    while (!l->open && pthread_cond_timedwait(&l->opened, &l->lock, &limit) == 0)
        continue;
    pthread_mutex_unlock(&l->lock);
}

static bool close_gates(const struct gpu_work *w, struct err *e) {
    for (size_t i = 0; i < w->lane_count; i++) {
        set_gate(&w->lanes[i], false);
        if (!gpu_lane_ok(cudaLaunchHostFunc(w->lanes[i].stream, wait_at_gate, &w->lanes[i]),
                         "cudaLaunchHostFunc", e))
            return false;
    }
    return true;
}

static void open_gates(const struct gpu_work *w) {
    for (size_t i = 0; i < w->lane_count; i++)
        set_gate(&w->lanes[i], true);
}

static bool mark(const struct gpu_work *w, size_t at, struct err *e) {
    for (size_t i = 0; i < w->lane_count; i++)
        if (!gpu_lane_ok(cudaEventRecord(w->lanes[i].marks[at], w->lanes[i].stream), w->name, e))
            return false;
    return true;
}

static bool finished(const struct gpu_work *w, size_t at, bool *all, struct err *e) {
    *all = true;
    for (size_t i = 0; i < w->lane_count; i++) {
        cudaError_t r = cudaEventQuery(w->lanes[i].marks[at]);
        if (r == cudaErrorNotReady)
            *all = false;
        else if (!gpu_lane_ok(r, w->name, e))
            return false;
    }
    return true;
}

// Until every lane is past mark `at`.
static bool wait(const struct gpu_work *w, size_t at, struct err *e) {
    struct patience_wait left = patience_begin(w->patience);
    for (;;) {
        bool all;
        if (!finished(w, at, &all, e))
            return false;
        if (all)
            return true;
        if (w->healthy != NULL && !w->healthy(w->context, e))
            return false;
        if (!patience_nap(&left, e))
            return err_set(e, ERR_RESOURCE, "%s did not finish within %g s", w->name,
                           w->patience.limit_s);
    }
}

static bool read_times(const struct gpu_work *w, size_t count, double *samples_s, struct err *e) {
    for (size_t i = 0; i < count; i++) {
        float slowest_ms = 0;
        for (size_t l = 0; l < w->lane_count; l++) {
            const cudaEvent_t *marks = w->lanes[l].marks;
            float ms;
            if (!gpu_lane_ok(cudaEventElapsedTime(&ms, marks[i], marks[i + 1]),
                             "cudaEventElapsedTime", e))
                return false;
            slowest_ms = ms > slowest_ms ? ms : slowest_ms;
        }
        samples_s[i] = (double)slowest_ms * UNITS_MILLI;
    }
    return true;
}

// Everything between the gates' closing and opening; they are opened whatever happens.
static bool queue(const struct gpu_work *w, size_t count, bool lead_in, struct err *e) {
    bool ok = close_gates(w, e) && (!lead_in || w->launch(w->context, e)) && mark(w, 0, e);
    for (size_t i = 0; ok && i < count; i++)
        ok = w->launch(w->context, e) && mark(w, i + 1, e);
    open_gates(w);
    return ok;
}

bool gpu_lane_time(const struct gpu_work *w, size_t count, double *samples_s, struct err *e) {
    bool lead_in = count >= LEAD_IN_FROM;
    for (size_t done = 0; done < count;) {
        size_t n = count - done < GPU_LANE_BATCH ? count - done : GPU_LANE_BATCH;
        if (!queue(w, n, lead_in, e) || !wait(w, n, e) || !read_times(w, n, samples_s + done, e))
            return false;
        done += n;
    }
    return true;
}

size_t gpu_lane_iterations(size_t count) {
    size_t batches = (count + GPU_LANE_BATCH - 1) / GPU_LANE_BATCH;
    return count + (count >= LEAD_IN_FROM ? batches : 0);
}

bool gpu_lane_once(const struct gpu_work *w, struct err *e) {
    return w->launch(w->context, e) && mark(w, 0, e) && wait(w, 0, e);
}

bool gpu_lane_drain(cudaStream_t stream, struct patience p, struct err *e) {
    struct patience_wait left = patience_begin(p);
    cudaError_t r;
    while ((r = cudaStreamQuery(stream)) == cudaErrorNotReady)
        if (!patience_nap(&left, e))
            return err_set(e, ERR_RESOURCE, "a GPU did not finish within %g s", p.limit_s);
    return gpu_lane_ok(r, "cudaStreamQuery", e);
}
