// SPDX-License-Identifier: Apache-2.0
// NCCL's calls: arguments, groups, communicators that join without blocking.
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fakegpu.h"
#include "nccl_private.h"

#define CALLS_MAX 256
#define BUSY_LOOKS 2

struct nccl_group {
    int depth;
    struct nccl_call calls[CALLS_MAX];
    size_t count;
    ncclComm_t comms[ROOM_RANKS * ROOM_RANKS]; // that join in it
    size_t joining;
    ncclResult_t failed;
};
static _Thread_local struct nccl_group group;
static _Thread_local char last_text[ROOM_TEXT];

static ncclResult_t refuse(ncclResult_t r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static ncclResult_t refuse(ncclResult_t r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last_text, sizeof(last_text), format, args);
    va_end(args);
    if (group.depth > 0 && group.failed == ncclSuccess)
        group.failed = r;
    return r;
}

ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t r) {
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "internal error - please report this issue to the NCCL developers",
        "invalid argument (run with NCCL_DEBUG=WARN for details)",
        "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "remote process exited or there was a network error",
        "NCCL operation in progress"};
    return (unsigned)r < sizeof(texts) / sizeof(texts[0]) ? texts[r] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm) {
    if (comm != NULL && comm->text[0] != '\0')
        return comm->text;
    if (comm != NULL && comm->room != NULL && atomic_load(&comm->room->failed) != 0)
        return comm->room->text;
    return last_text;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static _Atomic unsigned made;
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "/fakenccl.%ld.%lld.%u", (long)getpid(),
             (long long)time(NULL), atomic_fetch_add(&made, 1));
    return ncclSuccess;
}

// The last to join takes the name away and looks whether two ranks have one GPU.
static ncclResult_t enter(ncclComm_t c, const ncclUniqueId *id) {
    double code;
    c->room = room_enter(id->internal);
    if (c->room == NULL)
        return refuse(ncclSystemError, "no shared memory for a communicator");
    if (fakegpu_fault("nccl_init_hang", c->rank, &code))
        return ncclSuccess;
    if (fakegpu_fault("nccl_init", c->rank, &code))
        nccl_fail(c, (ncclResult_t)code, "injected: no socket interface found");
    c->room->devices[c->rank] = c->device + 1;
    if (atomic_fetch_add(&c->room->joined, 1) + 1 < c->size)
        return ncclSuccess;
    shm_unlink(id->internal);
    for (int a = 0; a < c->size; a++)
        for (int b = a + 1; b < c->size; b++)
            if (c->room->devices[a] == c->room->devices[b] &&
                getenv("NCCL_MULTI_RANK_GPU_ENABLE") == NULL)
                nccl_fail(c, ncclInvalidUsage,
                          "Duplicate GPU detected : rank %d and rank %d both on CUDA device %d", a,
                          b, c->device);
    return ncclSuccess;
}

static bool has_joined(ncclComm_t c) {
    if (c->room != NULL && atomic_load(&c->room->joined) >= c->size)
        c->joined = true;
    return c->joined;
}

static ncclResult_t state_of(ncclComm_t c) {
    if (atomic_load(&c->error) != 0)
        return (ncclResult_t)atomic_load(&c->error);
    if (c->room != NULL && atomic_load(&c->room->failed) != 0)
        return ncclRemoteError;
    if (!has_joined(c))
        return ncclInProgress;
    return c->busy_looks > 0 ? ncclInProgress : ncclSuccess;
}

static ncclResult_t wait_if_blocking(ncclComm_t c) {
    while (c->blocking && state_of(c) == ncclInProgress) {
        c->busy_looks = 0;
        fakegpu_sleep(1e-4);
    }
    return c->blocking ? state_of(c) : ncclInProgress;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    if (out == NULL || size < 1 || rank < 0 || rank >= size)
        return refuse(ncclInvalidArgument, "rank %d of %d", rank, size);
    if (size > ROOM_RANKS)
        return refuse(ncclInvalidUsage, "the double has room for %d ranks", ROOM_RANKS);
    if (fakegpu_enter(__func__) != cudaSuccess)
        return refuse(ncclUnhandledCudaError, "CUDA is broken");
    ncclComm_t c = calloc(1, sizeof(*c));
    if (c == NULL)
        abort();
    c->rank = rank;
    c->size = size;
    c->device = fakegpu_device();
    c->blocking = config == NULL || config->blocking != 0;
    c->busy_looks = BUSY_LOOKS;
    *out = c;
    ncclResult_t r = enter(c, &id);
    if (r != ncclSuccess)
        return r;
    if (group.depth > 0) {
        group.comms[group.joining++] = c;
        return c->blocking ? ncclSuccess : ncclInProgress;
    }
    return wait_if_blocking(c);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out) {
    if (c == NULL || out == NULL)
        return refuse(ncclInvalidArgument, "no communicator");
    *out = state_of(c);
    if (c->busy_looks > 0 && has_joined(c))
        c->busy_looks--;
    return ncclSuccess;
}

static void discard(ncclComm_t c) {
    while (atomic_load(&c->pending) > 0)
        fakegpu_sleep(1e-4);
    if (c->room != NULL)
        room_leave(c->room);
    free(c);
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
    if (c == NULL)
        return refuse(ncclInvalidArgument, "no communicator");
    if (state_of(c) == ncclInProgress)
        return refuse(ncclInvalidArgument, "ncclCommFinalize while an operation is in progress");
    c->busy_looks = c->blocking ? 0 : BUSY_LOOKS;
    return c->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
    if (c == NULL)
        return ncclSuccess;
    discard(c);
    return ncclSuccess;
}

// Work that a stuck stream never starts keeps the communicator's memory.
ncclResult_t ncclCommAbort(ncclComm_t c) {
    if (c == NULL)
        return ncclSuccess;
    atomic_store(&c->aborted, true);
    double until = fakegpu_now_s() + 0.5;
    while (atomic_load(&c->pending) > 0 && fakegpu_now_s() < until)
        fakegpu_sleep(1e-4);
    if (atomic_load(&c->pending) == 0)
        discard(c);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) {
    if (group.depth++ == 0) {
        group.count = group.joining = 0;
        group.failed = ncclSuccess;
    }
    return ncclSuccess;
}

struct work {
    struct nccl_call *calls;
    size_t count;
};

static void perform(void *context) {
    struct work *w = context;
    ncclComm_t comm = w->calls[0].comm;
    if (atomic_load(&comm->aborted))
        ;
    else if (w->calls[0].kind == SEND || w->calls[0].kind == RECEIVE)
        nccl_run_exchange(w->calls, w->count);
    else
        nccl_run_collective(w->calls);
    // A failed or aborted one leaves its stream stuck until the abort, as a spinning kernel does.
    while (atomic_load(&comm->error) != 0 && !atomic_load(&comm->aborted))
        fakegpu_sleep(1e-3);
    free(w->calls);
    atomic_fetch_sub(&comm->pending, 1);
}

static ncclResult_t queue(const struct nccl_call *calls, size_t count) {
    struct work w = {.calls = malloc(count * sizeof(*calls)), .count = count};
    if (w.calls == NULL)
        abort();
    memcpy(w.calls, calls, count * sizeof(*calls));
    if (calls[0].kind != SEND && calls[0].kind != RECEIVE)
        nccl_debug_choice(&calls[0]);
    calls[0].comm->busy_looks = calls[0].comm->blocking ? 0 : BUSY_LOOKS;
    atomic_fetch_add(&calls[0].comm->pending, 1);
    cudaError_t error = fakegpu_enqueue(calls[0].stream, perform, &w, sizeof(w));
    return error == cudaSuccess ? ncclSuccess
                                : refuse(ncclUnhandledCudaError, "%s", cudaGetErrorString(error));
}

static bool point_to_point(const struct nccl_call *c) {
    return c->kind == SEND || c->kind == RECEIVE;
}

// Sends and receives of one communicator and stream are one piece of work.
static ncclResult_t queue_all(void) {
    static _Thread_local struct nccl_call together[CALLS_MAX];
    static _Thread_local bool taken[CALLS_MAX];
    memset(taken, 0, sizeof(taken));
    for (size_t i = 0; i < group.count; i++) {
        size_t n = 0;
        if (taken[i])
            continue;
        together[n++] = group.calls[i];
        for (size_t j = i + 1; point_to_point(&group.calls[i]) && j < group.count; j++) {
            if (!point_to_point(&group.calls[j]) || group.calls[j].comm != group.calls[i].comm ||
                group.calls[j].stream != group.calls[i].stream)
                continue;
            together[n++] = group.calls[j];
            taken[j] = true;
        }
        ncclResult_t r = queue(together, n);
        if (r != ncclSuccess)
            return r;
    }
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    bool in_progress = false;
    if (group.depth == 0)
        return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--group.depth > 0)
        return ncclSuccess;
    if (group.failed != ncclSuccess)
        return group.failed;
    for (size_t i = 0; i < group.joining; i++) {
        ncclResult_t r = wait_if_blocking(group.comms[i]);
        if (r != ncclSuccess && r != ncclInProgress)
            return r;
        in_progress |= r == ncclInProgress;
    }
    ncclResult_t r = queue_all();
    for (size_t i = 0; i < group.count; i++)
        in_progress |= !group.calls[i].comm->blocking;
    return r == ncclSuccess && in_progress ? ncclInProgress : r;
}

// Bytes that the call reads and writes.
static void extent(const struct nccl_call *c, size_t *reads, size_t *writes) {
    size_t one = c->count * nccl_type_bytes(c->type), all = one * (size_t)c->comm->size;
    bool root = c->comm->rank == c->root;
    *reads = c->kind == REDUCE_SCATTER                               ? all
             : c->kind == RECEIVE || (c->kind == BROADCAST && !root) ? 0
                                                                     : one;
    *writes = c->kind == ALL_GATHER                             ? all
              : c->kind == SEND || (c->kind == REDUCE && !root) ? 0
                                                                : one;
}

// In place is allowed only where NCCL says so; any other overlap is wrong.
static bool overlaps_badly(const struct nccl_call *c, size_t reads, size_t writes) {
    uintptr_t s = (uintptr_t)c->send, r = (uintptr_t)c->receive;
    if (reads == 0 || writes == 0 || s + reads <= r || r + writes <= s)
        return false;
    size_t own = (size_t)c->comm->rank * c->count * nccl_type_bytes(c->type);
    if (c->kind == ALL_GATHER)
        return s != r + own;
    if (c->kind == REDUCE_SCATTER)
        return r != s + own;
    return s != r;
}

static ncclResult_t check(const struct nccl_call *c) {
    size_t reads, writes;
    if (c->comm == NULL)
        return refuse(ncclInvalidArgument, "%s: no communicator", c->name);
    if (state_of(c->comm) != ncclSuccess)
        return refuse(ncclInvalidArgument, "%s: the communicator is %s", c->name,
                      ncclGetErrorString(state_of(c->comm)));
    if (nccl_type_bytes(c->type) == 0)
        return refuse(ncclInvalidArgument, "%s: type %d", c->name, (int)c->type);
    if (c->root < 0 || c->root >= c->comm->size)
        return refuse(ncclInvalidArgument, "%s: root or peer %d of %d", c->name, c->root,
                      c->comm->size);
    if (fakegpu_stream_device(c->stream) != c->comm->device)
        return refuse(ncclInvalidUsage, "%s: the stream is of GPU %d, the communicator of GPU %d",
                      c->name, fakegpu_stream_device(c->stream), c->comm->device);
    extent(c, &reads, &writes);
    if ((reads > 0 && !fakegpu_reachable(c->comm->device, c->send, reads)) ||
        (writes > 0 && !fakegpu_reachable(c->comm->device, c->receive, writes)))
        return refuse(ncclInvalidArgument, "%s: %zu bytes read or %zu written outside GPU %d",
                      c->name, reads, writes, c->comm->device);
    if (overlaps_badly(c, reads, writes))
        return refuse(ncclInvalidArgument, "%s: the buffers overlap", c->name);
    return ncclSuccess;
}

static ncclResult_t add(const struct nccl_call *c) {
    ncclResult_t r = check(c);
    if (r != ncclSuccess)
        return r;
    if (group.depth == 0) {
        group.count = group.joining = 0;
        group.failed = ncclSuccess;
    }
    if (group.count == CALLS_MAX)
        return refuse(ncclInternalError, "the double has no room for so large a group");
    group.calls[group.count++] = *c;
    if (group.depth > 0)
        return c->comm->blocking ? ncclSuccess : ncclInProgress;
    r = queue_all();
    return r == ncclSuccess && !c->comm->blocking ? ncclInProgress : r;
}

#define CALL(...)                                                                                  \
    struct nccl_call c = {.name = __func__,                                                        \
                          .count = count,                                                          \
                          .type = type,                                                            \
                          .comm = comm,                                                            \
                          .stream = stream,                                                        \
                          __VA_ARGS__};                                                            \
    return add(&c)

ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    CALL(.kind = ALL_GATHER, .send = send, .receive = receive);
}

ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
    CALL(.kind = REDUCE_SCATTER, .send = send, .receive = receive, .operation = operation);
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
    CALL(.kind = ALL_REDUCE, .send = send, .receive = receive, .operation = operation);
}

ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
    CALL(.kind = BROADCAST, .send = send, .receive = receive, .root = root);
}

ncclResult_t ncclReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t comm, cudaStream_t stream) {
    CALL(.kind = REDUCE, .send = send, .receive = receive, .operation = operation, .root = root);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    CALL(.kind = SEND, .send = send, .root = peer);
}

ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    CALL(.kind = RECEIVE, .receive = receive, .root = peer);
}

void nccl_debug_choice(const struct nccl_call *c) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static FILE *file;
    static bool read;
    pthread_mutex_lock(&lock);
    const char *level = getenv("NCCL_DEBUG"), *path = getenv("NCCL_DEBUG_FILE");
    if (!read && level != NULL && strcmp(level, "INFO") == 0 && path != NULL)
        file = fopen(path, "w");
    read = true;
    if (file != NULL) {
        size_t bytes = c->count * nccl_type_bytes(c->type);
        fprintf(file,
                "host:%ld:%ld [%d] NCCL INFO %s: %zu Bytes -> Algo %s proto %s "
                "channel{Lo..Hi}={0..1}\n",
                (long)getpid(), (long)getpid(), c->comm->device, c->name + 4, bytes, "RING",
                bytes < 65536 ? "LL" : "SIMPLE");
        fflush(file);
    }
    pthread_mutex_unlock(&lock);
}
