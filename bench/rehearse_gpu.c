// SPDX-License-Identifier: Apache-2.0
#include "bench/rehearse_gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "bench/clock.h"
#include "bench/gpu_lane.h"
#include "bench/pages.h"
#include "bench/rehearse_gpu_private.h"
#include "kernels/gpu.h"

#define SILENCE_S 60                // a task that takes longer hangs
#define COPY_ROOM (256 * UNITS_MIB) // more than a GPU's caches hold
#define CALIBRATIONS 5

struct track_thread {
    struct gpu_rehearsal *rehearsal;
    uint32_t stream;
    pthread_t thread;
};

uint64_t rehearse_gpu_count(const struct ranks *r) {
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n < 1)
        return 0;
    if (r->count > 1)
        return r->local_count <= n ? (uint64_t)r->count : 0;
    return (uint64_t)n;
}

const char *rehearse_gpu_note(const struct gpu_rehearsal *r) {
    return r->stands_in ? "memory traffic of the predicted duration stands in for matrix products "
                          "that cuBLASLt "
                          "does not do here"
                        : NULL;
}

size_t rehearse_gpu_sent(const struct gpu_rehearsal *r, const struct rehearse_sent **list) {
    *list = r->sent;
    return r->sent_count;
}

static struct patience patience_of(const struct gpu_rehearsal *r) {
    return (struct patience){.limit_s = SILENCE_S, .signals = r->setup.signals};
}

static int device_of(const struct gpu_rehearsal *r, size_t gpu) {
    int devices = 1;
    cudaGetDeviceCount(&devices);
    const struct ranks *k = r->setup.ranks;
    return k->count > 1 ? k->local_rank % devices : (int)gpu;
}

// ---- setting up ---------------------------------------------------------------------------------

static size_t track_bytes(const struct gpu_rehearsal *r, uint32_t stream) {
    const struct graph *g = r->setup.graph;
    size_t largest = UNITS_KIB;
    for (size_t i = 0; i < g->task_count; i++) {
        const struct graph_task *t = &g->tasks[i];
        double bytes = t->bytes * r->setup.shrink;
        if (t->stream != stream || rehearse_gpu_is_host(g, t))
            continue;
        if (t->kind == GRAPH_GEMM || t->kind == GRAPH_ELEMENTWISE)
            bytes = fmin(bytes / 2, COPY_ROOM);
        else if (t->kind == GRAPH_COLLECTIVE && t->group >= 0) // in whole chunks of 4 bytes
            bytes += 4.0 * (double)g->groups[t->group].size;
        largest = bytes > (double)largest ? (size_t)bytes : largest;
    }
    return units_ceil_to(largest, UNITS_KIB);
}

static bool open_host_lane(struct gpu_rehearsal *r, uint32_t stream, struct rehearse_lane *lane,
                           struct err *e) {
    const struct graph *g = r->setup.graph;
    bool stores =
        rehearse_has(g, stream, GRAPH_NVME_READ) || rehearse_has(g, stream, GRAPH_NVME_WRITE);
    return (!rehearse_has(g, stream, GRAPH_ADAM) || rehearse_adam_open(lane, e)) &&
           (!stores || rehearse_storage_open(lane, &r->work.file, e));
}

static bool open_gpu_stream(struct gpu_rehearsal *r, uint32_t stream, size_t gpu, struct err *e) {
    const struct graph *g = r->setup.graph;
    const struct gpu_track *k = &r->tracks[stream];
    struct gpu_stream *s = &k->gpus[gpu];
    cudaSetDevice(device_of(r, gpu));
    if (!gpu_lane_ok(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking),
                     "cudaStreamCreateWithFlags", e) ||
        !gpu_lane_ok(cudaMalloc((void **)&s->from, k->bytes), "a stream's buffer; use --shrink",
                     e) ||
        !gpu_lane_ok(cudaMalloc((void **)&s->to, k->bytes), "a stream's buffer; use --shrink", e) ||
        !gpu_lane_ok(cudaMemsetAsync(s->from, 0, k->bytes, s->stream), "cudaMemsetAsync", e))
        return false;
    if (rehearse_has(g, stream, GRAPH_COPY) &&
        !gpu_lane_ok(cudaHostAlloc((void **)&s->host, k->bytes, cudaHostAllocPortable),
                     "pinned memory; use --shrink", e))
        return false;
    struct products_setup products = {
        .graph = g, .stream = stream, .shrink = r->setup.shrink, .queue = s->stream};
    return products_open(&products, &s->products, e) && open_host_lane(r, stream, &s->host_lane, e);
}

// Every rank goes on, or none: the next step of setting up would wait for all of them.
static bool all_agree(const struct gpu_rehearsal *r, bool ok, struct err *e) {
    double failed = ok ? 0 : 1;
    r->setup.ranks->largest(&failed, 1);
    if (failed > 0 && ok)
        err_set(e, ERR_RESOURCE, "another rank could not set up");
    return failed == 0;
}

// Communicators of the groups that this stream's collectives use, one set for each stream.
static bool open_comms(struct gpu_rehearsal *r, uint32_t stream, struct err *e) {
    const struct graph *g = r->setup.graph;
    struct gpu_track *k = &r->tracks[stream];
    const struct ranks *ranks = r->setup.ranks;
    k->comms = arena_array(r->arena, g->group_count + 1, sizeof(*k->comms));
    for (size_t i = 0; i < g->group_count; i++) {
        struct nccl_comms *c = &k->comms[i];
        bool used = false, strided = graph_group_is_strided(&g->groups[i]);
        for (size_t t = 0; t < g->task_count; t++)
            used |= g->tasks[t].kind == GRAPH_COLLECTIVE && g->tasks[t].stream == stream &&
                    g->tasks[t].group == (int64_t)i;
        uint64_t n = g->groups[i].size;
        if (!used || n < 2)
            continue;
        if (g->ranks % n != 0)
            return err_set(e, ERR_INPUT, "groups of %llu do not divide %llu ranks",
                           (unsigned long long)n, (unsigned long long)g->ranks);
        c->ranks = ranks;
        c->count = r->gpus;
        c->all = g->ranks;
        c->patience = patience_of(r);
        c->members = arena_array(r->arena, r->gpus, sizeof(*c->members));
        for (size_t m = 0; m < r->gpus; m++) {
            c->members[m].device = device_of(r, m);
            c->members[m].number = (uint64_t)ranks->rank * r->gpus + m;
        }
        struct bench_point p = {.group_size = n < g->ranks ? n : 0,
                                .group_stride = strided && n < g->ranks ? g->ranks / n : 0};
        if (!all_agree(r, nccl_comms_make(c, &p, e), e))
            return false;
    }
    return true;
}

// What a step frees stays for the next, as with a framework's caching allocator; by default the
// runtime gives it back whenever it is asked whether a stream has ended.
static void keep_freed_memory(int device) {
    cudaMemPool_t pool;
    uint64_t all = UINT64_MAX;
    if (cudaDeviceGetDefaultMemPool(&pool, device) != cudaSuccess ||
        cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all) != cudaSuccess)
        cudaGetLastError(); // a GPU without pools refuses the allocations too
}

static bool open_tracks(struct gpu_rehearsal *r, struct err *e) {
    const struct graph *g = r->setup.graph;
    for (size_t i = 0; i < r->gpus; i++)
        keep_freed_memory(device_of(r, i));
    for (uint32_t s = 0; s < g->stream_count; s++) {
        struct gpu_track *k = &r->tracks[s];
        bool host = false;
        k->bytes = track_bytes(r, s);
        k->gpus = arena_array(r->arena, r->gpus, sizeof(*k->gpus));
        for (size_t i = 0; i < r->gpus; i++)
            if (!open_gpu_stream(r, s, i, e))
                return false;
        for (size_t i = 0; i < g->task_count; i++)
            host |= g->tasks[i].stream == s && rehearse_gpu_is_host(g, &g->tasks[i]);
        k->team = host ? team_create(r->gpus) : NULL;
    }
    return true;
}

static bool open_all_comms(struct gpu_rehearsal *r, struct err *e) {
    for (uint32_t s = 0; s < r->setup.graph->stream_count; s++)
        if (!open_comms(r, s, e))
            return false;
    return true;
}

static bool open_events(struct gpu_rehearsal *r, struct err *e) {
    size_t n = r->setup.graph->task_count * r->gpus;
    r->begin = arena_array(r->arena, n + 1, sizeof(*r->begin));
    r->end = arena_array(r->arena, n + 1, sizeof(*r->end));
    r->zero = arena_array(r->arena, r->gpus, sizeof(*r->zero));
    for (size_t i = 0; i < n + r->gpus; i++) {
        size_t gpu = i % r->gpus;
        cudaSetDevice(device_of(r, gpu));
        if (i >= n) {
            if (!gpu_lane_ok(cudaEventCreate(&r->zero[gpu]), "cudaEventCreate", e))
                return false;
        } else if (!gpu_lane_ok(cudaEventCreate(&r->begin[i]), "cudaEventCreate", e) ||
                   !gpu_lane_ok(cudaEventCreate(&r->end[i]), "cudaEventCreate", e)) {
            return false;
        }
    }
    return true;
}

// How fast memory traffic goes on an idle GPU: the best of several.
static bool calibrate(struct gpu_rehearsal *r, struct err *e) {
    const struct gpu_track *k = &r->tracks[REHEARSE_COMPUTE];
    const struct gpu_stream *s = &k->gpus[0];
    uint64_t n = k->bytes / sizeof(float);
    float ms, best_ms = INFINITY;
    cudaSetDevice(device_of(r, 0));
    for (int i = 0; i < CALIBRATIONS; i++) {
        cudaError_t error = cudaEventRecord(r->begin[0], s->stream);
        if (error == cudaSuccess)
            error = (cudaError_t)gpu_copy((float *)(void *)s->to, (float *)(void *)s->from, n,
                                          s->stream);
        if (error == cudaSuccess)
            error = cudaEventRecord(r->end[0], s->stream);
        if (!gpu_lane_ok(error, "calibrating", e) ||
            !gpu_lane_drain(s->stream, patience_of(r), e) ||
            !gpu_lane_ok(cudaEventElapsedTime(&ms, r->begin[0], r->end[0]), "calibrating", e))
            return false;
        best_ms = fminf(best_ms, ms);
    }
    r->copy_bytes_per_s = 2.0 * (double)k->bytes / fmax((double)best_ms * UNITS_MILLI, UNITS_NANO);
    return true;
}

struct gpu_rehearsal *rehearse_gpu_create(const struct rehearse_setup *s, struct arena *a,
                                          struct err *e) {
    struct gpu_rehearsal *r = calloc(1, sizeof(*r));
    const struct graph *g = s->graph;
    if (r == NULL)
        abort();
    r->setup = *s;
    r->arena = a;
    r->work.shrink = s->shrink;
    r->work.file.fd = -1;
    r->work.cores = 1;
    r->gpus = s->ranks->count > 1 ? 1 : (size_t)g->ranks;
    r->tracks = arena_array(a, g->stream_count + 1, sizeof(*r->tracks));
    r->buffers = arena_array(a, g->buffer_count * r->gpus + 1, sizeof(*r->buffers));
    r->queued = arena_array(a, g->task_count + 1, sizeof(*r->queued));
    r->done = arena_array(a, g->task_count + 1, sizeof(*r->done));
    r->host_start_s = arena_array(a, g->task_count + 1, sizeof(double));
    r->host_end_s = arena_array(a, g->task_count + 1, sizeof(double));
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->moved, NULL);
    bool ok = g->stream_count > 0 && rehearse_open_file(s, &r->work.file, e) && open_tracks(r, e) &&
              open_events(r, e) && calibrate(r, e);
    if (all_agree(r, ok, e) && open_all_comms(r, e)) {
        r->work.units_per_s = rehearse_calibrate();
        return r;
    }
    rehearse_gpu_destroy(r);
    return NULL;
}

static void drop_events(struct gpu_rehearsal *r) {
    size_t n = r->begin != NULL ? r->setup.graph->task_count * r->gpus : 0;
    for (size_t i = 0; i < n; i++) {
        if (r->begin[i] != NULL)
            cudaEventDestroy(r->begin[i]);
        if (r->end[i] != NULL)
            cudaEventDestroy(r->end[i]);
    }
    for (size_t i = 0; r->zero != NULL && i < r->gpus; i++)
        if (r->zero[i] != NULL)
            cudaEventDestroy(r->zero[i]);
}

static void close_track(struct gpu_rehearsal *r, struct gpu_track *k) {
    for (size_t i = 0; k->comms != NULL && i < r->setup.graph->group_count; i++)
        nccl_comms_destroy(&k->comms[i]);
    for (size_t i = 0; k->gpus != NULL && i < r->gpus; i++) {
        struct gpu_stream *s = &k->gpus[i];
        cudaSetDevice(device_of(r, i));
        cudaFree(s->from);
        cudaFree(s->to);
        cudaFreeHost(s->host);
        products_close(s->products);
        if (s->stream != NULL)
            cudaStreamDestroy(s->stream);
        rehearse_storage_close(&s->host_lane);
        rehearse_adam_close(&s->host_lane);
    }
    team_destroy(k->team);
}

void rehearse_gpu_destroy(struct gpu_rehearsal *r) {
    if (r == NULL)
        return;
    for (size_t s = 0; !r->lost && s < r->setup.graph->stream_count; s++)
        close_track(r, &r->tracks[s]);
    if (!r->lost)
        drop_events(r);
    scratch_close(&r->work.file);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->moved);
    free(r);
}

// ---- one step -----------------------------------------------------------------------------------

static void fail(struct gpu_rehearsal *r, const struct err *e) {
    pthread_mutex_lock(&r->lock);
    if (!r->failed)
        r->error = *e;
    r->failed = true;
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->lock);
}

// Waits for *flag, which other threads set under the lock. False: the step has failed.
static bool wait_flag(struct gpu_rehearsal *r, const bool *flag) {
    pthread_mutex_lock(&r->lock);
    while (!*flag && !r->failed)
        pthread_cond_wait(&r->moved, &r->lock);
    bool ok = !r->failed;
    pthread_mutex_unlock(&r->lock);
    return ok;
}

static bool wait_issued(struct gpu_rehearsal *r, const struct graph_task *t) {
    pthread_mutex_lock(&r->lock);
    while (t->id >= r->issued && !r->failed)
        pthread_cond_wait(&r->moved, &r->lock);
    bool ok = !r->failed;
    pthread_mutex_unlock(&r->lock);
    return ok;
}

static void set_flag(struct gpu_rehearsal *r, bool *flag) {
    pthread_mutex_lock(&r->lock);
    *flag = true;
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->lock);
}

// Until the task has ended on every GPU.
static bool wait_ended(struct gpu_rehearsal *r, const struct graph_task *t, struct err *e) {
    if (rehearse_gpu_is_host(r->setup.graph, t))
        return wait_flag(r, &r->done[t->id]);
    if (!wait_flag(r, &r->queued[t->id]))
        return false;
    struct patience_wait left = patience_begin(patience_of(r));
    for (size_t i = 0; i < r->gpus;) {
        cudaError_t state = cudaEventQuery(r->end[t->id * r->gpus + i]);
        if (state == cudaSuccess) {
            i++;
            continue;
        }
        if (state != cudaErrorNotReady)
            return gpu_lane_ok(state, graph_kind_names[t->kind], e);
        if (r->failed)
            return false;
        if (!patience_nap(&left, e))
            return err_set(e, ERR_RESOURCE, "%s of task %u did not end within %d s on GPU %zu",
                           graph_kind_names[t->kind], t->id, SILENCE_S, i);
    }
    return true;
}

// Makes GPU work follow `before`; host work waits itself.
static bool follow(struct gpu_rehearsal *r, const struct graph_task *t,
                   const struct graph_task *before, struct err *e) {
    const struct graph *g = r->setup.graph;
    if (rehearse_gpu_is_host(g, t) || rehearse_gpu_is_host(g, before))
        return wait_ended(r, before, e);
    if (t->stream == before->stream)
        return true;
    if (!wait_flag(r, &r->queued[before->id]))
        return false;
    for (size_t i = 0; i < r->gpus; i++)
        if (!gpu_lane_ok(cudaStreamWaitEvent(r->tracks[t->stream].gpus[i].stream,
                                             r->end[before->id * r->gpus + i], 0),
                         "cudaStreamWaitEvent", e))
            return false;
    return true;
}

static bool mark(struct gpu_rehearsal *r, const struct graph_task *t, cudaEvent_t *events,
                 struct err *e) {
    for (size_t i = 0; i < r->gpus; i++)
        if (!gpu_lane_ok(
                cudaEventRecord(events[t->id * r->gpus + i], r->tracks[t->stream].gpus[i].stream),
                "cudaEventRecord", e))
            return false;
    return true;
}

static bool queue_task(struct gpu_rehearsal *r, const struct graph_task *t, struct err *e) {
    bool ok = mark(r, t, r->begin, e);
    if (ok && t->kind == GRAPH_COLLECTIVE) {
        ok = rehearse_gpu_collective(r, t, e);
        pthread_mutex_lock(&r->lock);
        rehearse_gpu_count_sent(r, t);
        pthread_mutex_unlock(&r->lock);
    }
    for (size_t i = 0; ok && t->kind != GRAPH_COLLECTIVE && i < r->gpus; i++) {
        cudaSetDevice(device_of(r, i));
        ok = rehearse_gpu_queue(r, t, i, e);
    }
    ok = ok && mark(r, t, r->end, e);
    if (ok)
        set_flag(r, &r->queued[t->id]);
    return ok;
}

struct host_task {
    struct gpu_rehearsal *rehearsal;
    const struct graph_task *task;
};

static void run_on_host(void *context, size_t member, size_t size) {
    const struct host_task *h = context;
    struct gpu_rehearsal *r = h->rehearsal;
    struct err e = {0};
    (void)size;
    if (!rehearse_do(h->task, &r->tracks[h->task->stream].gpus[member].host_lane, &r->work, &e))
        fail(r, &e);
}

static bool run_task(struct gpu_rehearsal *r, const struct graph_task *t, struct err *e) {
    const struct graph *g = r->setup.graph;
    struct gpu_track *k = &r->tracks[t->stream];
    if (!wait_issued(r, t))
        return false;
    if (k->last > 0 && !follow(r, t, &g->tasks[k->last - 1], e))
        return false;
    for (size_t i = 0; i < t->dep_count; i++)
        if (!follow(r, t, &g->tasks[t->deps[i]], e))
            return false;
    k->last = t->id + 1;
    if (!rehearse_gpu_is_host(g, t))
        return queue_task(r, t, e);
    struct host_task h = {.rehearsal = r, .task = t};
    r->host_start_s[t->id] = clock_now_s() - r->zero_s;
    team_run(k->team, run_on_host, &h);
    r->host_end_s[t->id] = clock_now_s() - r->zero_s;
    set_flag(r, &r->done[t->id]);
    return true;
}

static void *run_track(void *context) {
    struct track_thread *s = context;
    struct gpu_rehearsal *r = s->rehearsal;
    const struct graph *g = r->setup.graph;
    struct err e = {0};
    r->tracks[s->stream].last = 0;
    for (size_t i = 0; i < g->task_count; i++)
        if (g->tasks[i].stream == s->stream && !run_task(r, &g->tasks[i], &e)) {
            if (e.kind != ERR_NONE)
                fail(r, &e);
            break;
        }
    return NULL;
}

static void issue_all(struct gpu_rehearsal *r) {
    const struct graph *g = r->setup.graph;
    for (size_t i = 0; i < g->task_count && !r->failed; i++) {
        const struct graph_task *t = &g->tasks[i];
        struct err e = {0};
        rehearse_spin(t->issue_s * r->setup.shrink * r->work.units_per_s);
        pthread_mutex_lock(&r->lock);
        r->issued = t->id + 1;
        pthread_cond_broadcast(&r->moved);
        pthread_mutex_unlock(&r->lock);
        if (t->host_blocking && !wait_ended(r, t, &e) && e.kind != ERR_NONE)
            fail(r, &e);
    }
}

// Every GPU starts its clock when all are idle.
static bool start_clocks(struct gpu_rehearsal *r, struct err *e) {
    r->setup.ranks->barrier();
    for (size_t i = 0; i < r->gpus; i++)
        if (!gpu_lane_ok(cudaEventRecord(r->zero[i], r->tracks[0].gpus[i].stream),
                         "cudaEventRecord", e))
            return false;
    r->zero_s = clock_now_s();
    return true;
}

static void run_threads(struct gpu_rehearsal *r) {
    const struct graph *g = r->setup.graph;
    struct track_thread *threads = calloc(g->stream_count + 1, sizeof(*threads));
    if (threads == NULL)
        abort();
    for (uint32_t s = 0; s < g->stream_count; s++) {
        threads[s] = (struct track_thread){.rehearsal = r, .stream = s};
        if (pthread_create(&threads[s].thread, NULL, run_track, &threads[s]) != 0)
            abort();
    }
    issue_all(r);
    for (size_t s = 0; s < g->stream_count; s++)
        pthread_join(threads[s].thread, NULL);
    free(threads);
}

static bool read_times(struct gpu_rehearsal *r, double *start_s, double *end_s, double *step_s,
                       struct err *e) {
    const struct graph *g = r->setup.graph;
    *step_s = 0;
    for (size_t i = 0; i < g->task_count; i++) {
        start_s[i] = r->host_start_s[i];
        end_s[i] = r->host_end_s[i];
        if (rehearse_gpu_is_host(g, &g->tasks[i])) {
            *step_s = fmax(*step_s, end_s[i]);
            continue;
        }
        for (size_t k = r->gpus; k-- > 0;) {
            float from_ms, to_ms;
            size_t at = i * r->gpus + k;
            if (!gpu_lane_ok(cudaEventElapsedTime(&from_ms, r->zero[k], r->begin[at]),
                             "cudaEventElapsedTime", e) ||
                !gpu_lane_ok(cudaEventElapsedTime(&to_ms, r->zero[k], r->end[at]),
                             "cudaEventElapsedTime", e))
                return false;
            start_s[i] = (double)from_ms * UNITS_MILLI;
            end_s[i] = (double)to_ms * UNITS_MILLI;
            *step_s = fmax(*step_s, end_s[i]);
        }
    }
    return true;
}

// What the graph allocates and does not free ends with the step.
static void free_left(struct gpu_rehearsal *r) {
    for (size_t i = 0; i < r->setup.graph->buffer_count * r->gpus; i++) {
        if (r->buffers[i] != NULL)
            cudaFreeAsync(r->buffers[i], r->tracks[0].gpus[i % r->gpus].stream);
        r->buffers[i] = NULL;
    }
}

static void abandon(struct gpu_rehearsal *r) {
    for (size_t s = 0; s < r->setup.graph->stream_count; s++)
        for (size_t i = 0; i < r->setup.graph->group_count; i++)
            nccl_comms_abort(&r->tracks[s].comms[i]);
    r->lost = true;
}

bool rehearse_gpu_step(struct gpu_rehearsal *r, double *start_s, double *end_s, double *step_s,
                       struct err *e) {
    const struct graph *g = r->setup.graph;
    memset(r->queued, 0, g->task_count * sizeof(*r->queued));
    memset(r->done, 0, g->task_count * sizeof(*r->done));
    r->issued = 0;
    r->failed = false;
    r->sent_count = 0;
    bool ok = start_clocks(r, e);
    if (ok) {
        run_threads(r);
        ok = !r->failed || err_set(e, r->error.kind, "%s", r->error.text);
    }
    for (size_t i = 0; ok && i < g->task_count; i++)
        ok = wait_ended(r, &g->tasks[i], e);
    ok = ok && read_times(r, start_s, end_s, step_s, e);
    if (ok)
        free_left(r);
    else
        abandon(r);
    if (!ok && r->setup.ranks->count > 1) // the others may wait for this one on their GPUs
        r->setup.ranks->abort(err_exit_status(e), e->text);
    double both[2] = {ok ? *step_s : 0, ok ? 0 : 1};
    r->setup.ranks->largest(both, 2);
    *step_s = both[0];
    return ok && (both[1] == 0 || err_set(e, ERR_RESOURCE, "another rank's device failed"));
}
