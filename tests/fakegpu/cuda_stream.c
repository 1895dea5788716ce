// SPDX-License-Identifier: Apache-2.0
// A stream is a thread with a queue; an event is a number that its stream has reached.
#include <stdlib.h>
#include <string.h>

#include "cuda_private.h"

#define CONTEXT_BYTES 256

struct item {
    struct item *next;
    fakegpu_work *work;
    cudaEvent_t event;   // to reach, or to wait for when `work` is NULL and `waits`
    uint64_t generation; // of the event
    bool waits;
    _Alignas(16) char context[CONTEXT_BYTES];
};

struct CUstream_st {
    cudaStream_t next; // of all that live
    int device;
    pthread_cond_t arrived;
    struct item *first, **last;
    uint64_t queued, done;
    bool stop;
};

struct CUevent_st {
    uint64_t recorded, reached;
    double reached_s;
    size_t holders; // the caller's handle and the items that name it
    bool timing;
};

// With the lock held.
static void let_go(cudaEvent_t event) {
    if (--event->holders == 0)
        free(event);
}

// With the lock held.
static void wait_for_move(void) {
    cuda_state.waiting++;
    pthread_cond_wait(&cuda_state.moved, &cuda_state.lock);
    cuda_state.waiting--;
}

// Runs the item's work as the faults of the device say.
static void perform(int device, const struct item *i) {
    double nth, factor, start = fakegpu_now_s();
    cuda_lock();
    uint64_t n = ++cuda_state.works[device];
    cuda_unlock();
    if (fakegpu_fault("hang", device, &nth) && (uint64_t)nth == n)
        fakegpu_hang();
    if (fakegpu_fault("async", device, &nth) && (uint64_t)nth == n) {
        fakegpu_break(cudaErrorLaunchFailure);
        return;
    }
    i->work((void *)(uintptr_t)i->context);
    if (fakegpu_fault("slow", device, &factor) && factor > 1) {
        double took = fakegpu_now_s() - start;
        fakegpu_sleep((factor - 1) * (took > 1e-4 ? took : 1e-4));
    }
}

// With the lock held.
static void follow_event(const struct item *i) {
    cudaEvent_t event = i->event;
    if (i->waits) {
        while (event->reached < i->generation && cuda_state.broken == cudaSuccess)
            wait_for_move();
    } else if (event->reached < i->generation) {
        event->reached = i->generation;
        event->reached_s = fakegpu_now_s();
    }
    let_go(event);
}

static void *run(void *context) {
    cudaStream_t s = context;
    cuda_set_device(s->device);
    cuda_lock();
    for (;;) {
        while (s->first == NULL && !s->stop)
            pthread_cond_wait(&s->arrived, &cuda_state.lock);
        struct item *i = s->first;
        if (i == NULL)
            break;
        bool broken = cuda_state.broken != cudaSuccess;
        if (i->work != NULL && !broken) {
            cuda_unlock();
            perform(s->device, i);
            cuda_lock();
        } else if (i->event != NULL) {
            follow_event(i);
        }
        s->first = i->next;
        if (s->first == NULL)
            s->last = &s->first;
        s->done++;
        free(i);
        if (cuda_state.waiting > 0)
            pthread_cond_broadcast(&cuda_state.moved);
    }
    cuda_unlock();
    pthread_cond_destroy(&s->arrived);
    free(s);
    return NULL;
}

static cudaStream_t create(int device) {
    pthread_t thread;
    cudaStream_t s = calloc(1, sizeof(*s));
    if (s == NULL)
        abort();
    s->device = device;
    s->last = &s->first;
    pthread_cond_init(&s->arrived, NULL);
    cuda_lock();
    s->next = cuda_state.alive;
    cuda_state.alive = s;
    cuda_unlock();
    if (pthread_create(&thread, NULL, run, s) != 0)
        abort();
    pthread_detach(thread); // a hung one is left behind
    return s;
}

cudaStream_t cuda_stream_of(cudaStream_t given) {
    if (given != NULL && given != cudaStreamLegacy && given != cudaStreamPerThread)
        return given;
    int device = fakegpu_device();
    cuda_lock();
    cudaStream_t s = cuda_state.defaults[device];
    cuda_unlock();
    if (s != NULL)
        return s;
    s = create(device); // kept for the life of the process
    cuda_lock();
    cuda_state.defaults[device] = s;
    cuda_unlock();
    return s;
}

int fakegpu_stream_device(cudaStream_t stream) {
    return cuda_stream_of(stream)->device;
}

static void append(cudaStream_t s, const struct item *given) {
    struct item *i = malloc(sizeof(*i));
    if (i == NULL)
        abort();
    *i = *given;
    cuda_lock();
    if (i->event != NULL)
        i->event->holders++;
    *s->last = i;
    s->last = &i->next;
    s->queued++;
    pthread_cond_signal(&s->arrived);
    cuda_unlock();
}

cudaError_t fakegpu_enqueue(cudaStream_t stream, fakegpu_work *work, const void *context,
                            size_t bytes) {
    struct item i = {.work = work};
    if (bytes > CONTEXT_BYTES)
        abort();
    if (bytes > 0)
        memcpy(i.context, context, bytes);
    append(cuda_stream_of(stream), &i);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int priority) {
    cudaError_t error = fakegpu_enter(__func__);
    (void)flags, (void)priority;
    if (error != cudaSuccess)
        return error;
    *out = create(fakegpu_device());
    cuda_lock();
    cuda_state.streams++;
    cuda_unlock();
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags) {
    return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *out) {
    return cudaStreamCreateWithPriority(out, 0, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return fakegpu_enter(__func__);
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
    cudaError_t error = fakegpu_enter(__func__);
    if (s == NULL)
        return cuda_keep(cudaErrorInvalidResourceHandle);
    cuda_lock();
    cudaStream_t *p = &cuda_state.alive;
    while (*p != s)
        p = &(*p)->next;
    *p = s->next;
    s->stop = true;
    cuda_state.streams--;
    pthread_cond_signal(&s->arrived);
    cuda_unlock();
    return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t given) {
    cudaError_t error = fakegpu_enter(__func__);
    if (error != cudaSuccess)
        return error;
    cudaStream_t s = cuda_stream_of(given);
    cuda_lock();
    uint64_t until = s->queued;
    while (s->done < until && cuda_state.broken == cudaSuccess)
        wait_for_move();
    error = cuda_state.broken;
    cuda_unlock();
    return cuda_keep(error);
}

cudaError_t cudaStreamQuery(cudaStream_t given) {
    cudaError_t error = fakegpu_enter(__func__);
    if (error != cudaSuccess)
        return error;
    cudaStream_t s = cuda_stream_of(given);
    cuda_lock();
    error = cuda_state.broken != cudaSuccess ? cuda_state.broken
            : s->done < s->queued            ? cudaErrorNotReady
                                             : cudaSuccess;
    cuda_unlock();
    return error == cudaErrorNotReady ? error : cuda_keep(error);
}

// Until nothing that was queued on `device` before is left.
cudaError_t cuda_drain(int device) {
    bool left = true;
    cuda_lock();
    while (left && cuda_state.broken == cudaSuccess) {
        left = false;
        for (cudaStream_t s = cuda_state.alive; s != NULL; s = s->next)
            left |= s->device == device && s->done < s->queued;
        if (left)
            wait_for_move();
    }
    cudaError_t error = cuda_state.broken;
    cuda_unlock();
    return cuda_keep(error);
}

cudaError_t cudaDeviceSynchronize(void) {
    cudaError_t error = fakegpu_enter(__func__);
    return error != cudaSuccess ? error : cuda_drain(fakegpu_device());
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags) {
    cudaError_t error = fakegpu_enter(__func__);
    if (error != cudaSuccess)
        return error;
    cudaEvent_t event = calloc(1, sizeof(*event));
    if (event == NULL)
        abort();
    event->holders = 1;
    event->timing = (flags & cudaEventDisableTiming) == 0;
    cuda_lock();
    cuda_state.events++;
    cuda_unlock();
    *out = event;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    cudaError_t error = fakegpu_enter(__func__);
    if (event == NULL)
        return cuda_keep(cudaErrorInvalidResourceHandle);
    cuda_lock();
    cuda_state.events--;
    let_go(event);
    cuda_unlock();
    return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    cudaError_t error = fakegpu_enter(__func__);
    if (error != cudaSuccess)
        return error;
    cuda_lock();
    struct item i = {.event = event, .generation = ++event->recorded};
    cuda_unlock();
    append(cuda_stream_of(stream), &i);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    cudaError_t error = fakegpu_enter(__func__);
    (void)flags;
    if (error != cudaSuccess)
        return error;
    cuda_lock();
    struct item i = {.event = event, .generation = event->recorded, .waits = true};
    cuda_unlock();
    append(cuda_stream_of(stream), &i);
    return cudaSuccess;
}

static cudaError_t event_state(cudaEvent_t event, bool wait) {
    cuda_lock();
    uint64_t until = event->recorded;
    while (wait && event->reached < until && cuda_state.broken == cudaSuccess)
        wait_for_move();
    cudaError_t error = cuda_state.broken != cudaSuccess ? cuda_state.broken
                        : event->reached < until         ? cudaErrorNotReady
                                                         : cudaSuccess;
    cuda_unlock();
    return error == cudaErrorNotReady ? error : cuda_keep(error);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    cudaError_t error = fakegpu_enter(__func__);
    return error != cudaSuccess ? error : event_state(event, false);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    cudaError_t error = fakegpu_enter(__func__);
    return error != cudaSuccess ? error : event_state(event, true);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    cudaError_t error = fakegpu_enter(__func__);
    if (error != cudaSuccess)
        return error;
    cuda_lock();
    if (!start->timing || !end->timing || start->recorded == 0 || end->recorded == 0)
        error = cudaErrorInvalidResourceHandle;
    else if (start->reached < start->recorded || end->reached < end->recorded)
        error = cudaErrorNotReady;
    else
        *ms = (float)((end->reached_s - start->reached_s) * 1e3);
    cuda_unlock();
    return cuda_keep(error);
}

struct host_call {
    cudaHostFn_t function;
    void *data;
};

static void call_host(void *context) {
    const struct host_call *c = context;
    c->function(c->data);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    cudaError_t error = fakegpu_enter(__func__);
    struct host_call c = {.function = function, .data = data};
    return error != cudaSuccess ? error : fakegpu_enqueue(stream, call_host, &c, sizeof(c));
}
