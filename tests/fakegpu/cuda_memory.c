// SPDX-License-Identifier: Apache-2.0
// Device memory is host memory that is tracked: who owns it, how much there is, what may reach it.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_private.h"

#define HOST (-1)
#define REGISTERED (-3) // pinned, but the caller's own memory

struct cuda_allocation {
    struct cuda_allocation *next;
    char *at;
    size_t bytes;
    int device;
};

size_t cuda_allocation_count(void) {
    size_t n = 0;
    for (const struct cuda_allocation *a = cuda_state.allocations; a; a = a->next)
        n++;
    return n;
}

static struct cuda_allocation *find(const void *at) {
    uintptr_t p = (uintptr_t)at;
    for (struct cuda_allocation *a = cuda_state.allocations; a; a = a->next)
        if (p >= (uintptr_t)a->at && p - (uintptr_t)a->at < a->bytes)
            return a;
    return NULL;
}

static bool holds(const struct cuda_allocation *a, const void *at, size_t bytes) {
    return a != NULL && (size_t)((const char *)at - a->at) + bytes <= a->bytes;
}

bool fakegpu_reachable(int device, const void *at, size_t bytes) {
    cuda_lock();
    const struct cuda_allocation *a = bytes > 0 ? find(at) : NULL;
    bool ok = bytes == 0 || (holds(a, at, bytes) && (a->device < 0 || a->device == device ||
                                                     cuda_state.peers[device][a->device]));
    cuda_unlock();
    return ok;
}

int fakegpu_owner(const void *at) {
    cuda_lock();
    const struct cuda_allocation *a = find(at);
    int owner = a == NULL ? -2 : a->device < 0 ? -1 : a->device;
    cuda_unlock();
    return owner;
}

static cudaError_t add(void *at, size_t bytes, int device) {
    struct cuda_allocation *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return cudaErrorMemoryAllocation;
    *a = (struct cuda_allocation){
        .next = cuda_state.allocations, .at = at, .bytes = bytes, .device = device};
    cuda_state.allocations = a;
    if (device >= 0)
        cuda_state.used_bytes[device] += bytes;
    return cudaSuccess;
}

static cudaError_t allocate(void **out, size_t bytes, int device) {
    cudaError_t error = cudaErrorMemoryAllocation;
    size_t room = bytes > 0 ? bytes : 1;
    cuda_lock();
    if (device < 0 || cuda_state.used_bytes[device] + room <= cuda_state.memory_bytes) {
        void *at = NULL;
        if (posix_memalign(&at, room < 4096 ? 256 : 4096, room) == 0) {
            memset(at, 0xA5, room < 4096 ? room : 4096); // nobody may count on zeros
            error = add(at, room, device);
            *out = at;
        }
    }
    cuda_unlock();
    return cuda_keep(error);
}

static cudaError_t release(void *at, bool host) {
    cudaError_t error = cudaErrorInvalidValue;
    cuda_lock();
    for (struct cuda_allocation **p = &cuda_state.allocations; *p != NULL; p = &(*p)->next) {
        struct cuda_allocation *a = *p;
        if (a->at != at || (a->device < 0) != host)
            continue;
        *p = a->next;
        if (a->device >= 0)
            cuda_state.used_bytes[a->device] -= a->bytes;
        if (a->device != REGISTERED)
            free(a->at);
        free(a);
        error = cudaSuccess;
        break;
    }
    cuda_unlock();
    return cuda_keep(error);
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
    cudaError_t error = fakegpu_enter(__func__);
    return error != cudaSuccess ? error : allocate(out, bytes, fakegpu_device());
}

cudaError_t cudaFree(void *at) {
    cudaError_t error = fakegpu_enter(__func__);
    if (error == cudaSuccess && at != NULL) {
        cuda_drain(fakegpu_device()); // as the real one does
        error = release(at, false);
    }
    return error;
}

// The device's number, off by one, is its pool.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    cudaError_t error = fakegpu_enter(__func__);
    *pool = (cudaMemPool_t)(uintptr_t)(device + 1);
    return error;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *to) {
    cudaError_t error = fakegpu_enter(__func__);
    bool known = pool != NULL && attribute == cudaMemPoolAttrReleaseThreshold && to != NULL;
    return error != cudaSuccess || known ? error : cudaErrorInvalidValue;
}

cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream) {
    cudaError_t error = fakegpu_enter(__func__);
    return error != cudaSuccess ? error : allocate(out, bytes, fakegpu_stream_device(stream));
}

static void free_later(void *context) {
    if (release(*(void **)context, false) != cudaSuccess)
        fakegpu_break(cudaErrorInvalidValue);
}

cudaError_t cudaFreeAsync(void *at, cudaStream_t stream) {
    cudaError_t error = fakegpu_enter(__func__);
    if (error != cudaSuccess || at == NULL)
        return error;
    return fakegpu_enqueue(stream, free_later, &at, sizeof(at));
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int flags) {
    cudaError_t error = fakegpu_enter(__func__);
    (void)flags;
    return error != cudaSuccess ? error : allocate(out, bytes, HOST);
}

cudaError_t cudaMallocHost(void **out, size_t bytes) {
    cudaError_t error = fakegpu_enter(__func__);
    return error != cudaSuccess ? error : allocate(out, bytes, HOST);
}

cudaError_t cudaFreeHost(void *at) {
    cudaError_t error = fakegpu_enter(__func__);
    return error != cudaSuccess || at == NULL ? error : release(at, true);
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned int flags) {
    cudaError_t error = fakegpu_enter(__func__);
    (void)flags;
    if (error != cudaSuccess)
        return error;
    cuda_lock();
    error = find(at) != NULL ? cudaErrorInvalidValue : add(at, bytes, REGISTERED);
    cuda_unlock();
    return cuda_keep(error);
}

cudaError_t cudaHostUnregister(void *at) {
    cudaError_t error = fakegpu_enter(__func__);
    return error != cudaSuccess ? error : release(at, true);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    cudaError_t error = fakegpu_enter(__func__);
    if (error != cudaSuccess)
        return error;
    cuda_lock();
    *total_bytes = cuda_state.memory_bytes;
    *free_bytes = cuda_state.memory_bytes - cuda_state.used_bytes[fakegpu_device()];
    cuda_unlock();
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *at) {
    cudaError_t error = fakegpu_enter(__func__);
    if (error != cudaSuccess)
        return error;
    int owner = fakegpu_owner(at);
    memset(out, 0, sizeof(*out));
    out->type = owner == -2   ? cudaMemoryTypeUnregistered
                : owner == -1 ? cudaMemoryTypeHost
                              : cudaMemoryTypeDevice;
    out->device = owner < 0 ? 0 : owner;
    out->devicePointer = owner == -2 ? NULL : (void *)(uintptr_t)at;
    out->hostPointer = owner == -1 ? (void *)(uintptr_t)at : NULL;
    return cudaSuccess;
}

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    int value; // of a memset
};

// The nth copy that a device receives, with one bit wrong when the list says so.
static void spoil(int device, void *to, size_t bytes) {
    double nth;
    if (device < 0 || bytes == 0)
        return;
    cuda_lock();
    uint64_t n = ++cuda_state.copies[device];
    cuda_unlock();
    if (fakegpu_fault("wrong", device, &nth) && (uint64_t)nth == n)
        ((unsigned char *)to)[bytes / 2] ^= 1;
}

static void do_copy(void *context) {
    const struct copy *c = context;
    memmove(c->to, c->from, c->bytes);
    spoil(fakegpu_owner(c->to), c->to, c->bytes);
}

static void do_set(void *context) {
    const struct copy *c = context;
    memset(c->to, c->value, c->bytes);
}

static bool whole(const void *at, size_t bytes) {
    cuda_lock();
    const struct cuda_allocation *a = bytes > 0 ? find(at) : NULL;
    bool ok = a == NULL || holds(a, at, bytes);
    cuda_unlock();
    return ok;
}

// The direction that the addresses have, against the one that the caller claims.
static bool right_direction(const struct copy *c, enum cudaMemcpyKind kind) {
    bool to_device = fakegpu_owner(c->to) >= 0, from_device = fakegpu_owner(c->from) >= 0;
    if (!whole(c->to, c->bytes) || !whole(c->from, c->bytes))
        return false;
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
        return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
        return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
        return to_device && from_device;
    default:
        return true;
    }
}

static cudaError_t copy(const struct copy *c, enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (c->bytes == 0)
        return cudaSuccess;
    if (!right_direction(c, kind))
        return cuda_keep(cudaErrorInvalidValue);
    cudaError_t error = fakegpu_enqueue(stream, do_copy, c, sizeof(*c));
    bool pageable = fakegpu_owner(c->to) == -2 || fakegpu_owner(c->from) == -2;
    return error == cudaSuccess && pageable ? cudaStreamSynchronize(stream) : error;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    cudaError_t error = fakegpu_enter(__func__);
    struct copy c = {.to = to, .from = from, .bytes = bytes};
    return error != cudaSuccess ? error : copy(&c, kind, stream);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    cudaError_t error = fakegpu_enter(__func__);
    struct copy c = {.to = to, .from = from, .bytes = bytes};
    if (error == cudaSuccess)
        error = copy(&c, kind, NULL);
    return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream) {
    cudaError_t error = fakegpu_enter(__func__);
    struct copy c = {.to = to, .from = from, .bytes = bytes};
    if (error != cudaSuccess)
        return error;
    if (fakegpu_owner(to) != to_device || fakegpu_owner(from) != from_device)
        return cuda_keep(cudaErrorInvalidValue);
    return copy(&c, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    cudaError_t error = fakegpu_enter(__func__);
    struct copy c = {.to = to, .bytes = bytes, .value = value};
    if (error != cudaSuccess)
        return error;
    if (bytes > 0 && (fakegpu_owner(to) < 0 || !whole(to, bytes)))
        return cuda_keep(cudaErrorInvalidValue);
    return fakegpu_enqueue(stream, do_set, &c, sizeof(c));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    cudaError_t error = cudaMemsetAsync(to, value, bytes, NULL);
    return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}
