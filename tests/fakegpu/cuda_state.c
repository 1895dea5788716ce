// SPDX-License-Identifier: Apache-2.0
// Environment, faults, errors and devices.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda_private.h"

#define CALL_NAMES 64

struct cuda_state cuda_state = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER, .devices = -1};

static _Thread_local int current_device;
static _Thread_local cudaError_t last_error;

static struct {
    char name[64];
    uint64_t count;
} calls[CALL_NAMES];

static void report(void) {
    fprintf(stderr, "fakegpu: %zu allocations, %zu streams, %zu events left\n",
            cuda_allocation_count(), cuda_state.streams, cuda_state.events);
}

static void read_environment(void) {
    const char *devices = getenv("FAKEGPU_DEVICES"), *memory = getenv("FAKEGPU_MEMORY");
    const char *peers = getenv("FAKEGPU_PEERS");
    cuda_state.devices = devices ? atoi(devices) : 1;
    if (cuda_state.devices > FAKEGPU_DEVICES_MAX)
        cuda_state.devices = FAKEGPU_DEVICES_MAX;
    cuda_state.memory_bytes = memory ? strtoull(memory, NULL, 10) : (size_t)4 << 30;
    cuda_state.may_peer = peers == NULL || strcmp(peers, "0") != 0;
    cuda_state.report = getenv("FAKEGPU_REPORT") != NULL;
    if (cuda_state.report)
        atexit(report);
}

void cuda_lock(void) {
    pthread_mutex_lock(&cuda_state.lock);
    if (cuda_state.devices < 0)
        read_environment();
}

void cuda_unlock(void) {
    pthread_mutex_unlock(&cuda_state.lock);
}

double fakegpu_now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void fakegpu_sleep(double s) {
    struct timespec t = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - floor(s)) * 1e9)};
    nanosleep(&t, NULL);
}

void fakegpu_hang(void) {
    for (;;)
        pause();
}

int fakegpu_device(void) {
    return current_device;
}

void cuda_set_device(int device) {
    current_device = device;
}

cudaError_t cuda_keep(cudaError_t error) {
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

// Calls `found` for the fields of every fault called `name`; stops when it returns true.
static bool each_fault(const char *name, bool (*found)(const char *first, double second, void *to),
                       void *to) {
    const char *list = getenv("FAKEGPU_FAULTS");
    char text[512], *save = NULL;
    if (list == NULL)
        return false;
    snprintf(text, sizeof(text), "%s", list);
    for (char *one = strtok_r(text, ",", &save); one; one = strtok_r(NULL, ",", &save)) {
        char *first = strchr(one, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        if (second == NULL)
            continue;
        *first++ = *second++ = '\0';
        if (strcmp(one, name) == 0 && found(first, atof(second), to))
            return true;
    }
    return false;
}

struct numbers {
    long first;
    double second;
};

static bool same_number(const char *first, double second, void *to) {
    struct numbers *n = to;
    if (n->first >= 0 && atol(first) != n->first)
        return false;
    n->second = second;
    return true;
}

bool fakegpu_fault(const char *name, long first, double *second) {
    struct numbers n = {.first = first};
    if (!each_fault(name, same_number, &n))
        return false;
    *second = n.second;
    return true;
}

struct call {
    const char *name;
    uint64_t count;
};

static bool same_call(const char *first, double second, void *to) {
    const struct call *c = to;
    return strcmp(first, c->name) == 0 && (uint64_t)second == c->count;
}

static uint64_t count_call(const char *name) {
    for (size_t i = 0; i < CALL_NAMES; i++) {
        if (calls[i].name[0] == '\0')
            snprintf(calls[i].name, sizeof(calls[i].name), "%s", name);
        if (strcmp(calls[i].name, name) == 0)
            return ++calls[i].count;
    }
    return 0;
}

cudaError_t fakegpu_enter(const char *name) {
    cudaError_t error = cudaSuccess;
    cuda_lock();
    if (cuda_state.devices == 0)
        error = cudaErrorInsufficientDriver;
    else if (cuda_state.broken != cudaSuccess)
        error = cuda_state.broken;
    struct call c = {.name = name, .count = count_call(name)};
    cuda_unlock();
    if (error == cudaSuccess && each_fault("error", same_call, &c))
        error = cudaErrorLaunchFailure;
    if (each_fault("stuck", same_call, &c))
        fakegpu_hang();
    return cuda_keep(error);
}

void fakegpu_break(cudaError_t error) {
    cuda_lock();
    if (cuda_state.broken == cudaSuccess)
        cuda_state.broken = error;
    pthread_cond_broadcast(&cuda_state.moved);
    cuda_unlock();
}

cudaError_t fakegpu_broken(void) {
    cuda_lock();
    cudaError_t error = cuda_state.broken;
    cuda_unlock();
    return error;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    return last_error;
}

static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported",
     "peer access is not supported between these two devices"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
};

const char *cudaGetErrorName(cudaError_t error) {
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (errors[i].code == error)
            return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (errors[i].code == error)
            return errors[i].text;
    return "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int *count) {
    cudaError_t error = fakegpu_enter(__func__);
    if (error == cudaSuccess)
        *count = cuda_state.devices;
    return error;
}

static cudaError_t check_device(const char *call, int device) {
    cudaError_t error = fakegpu_enter(call);
    if (error == cudaSuccess && (device < 0 || device >= cuda_state.devices))
        error = cudaErrorInvalidDevice;
    return cuda_keep(error);
}

cudaError_t cudaSetDevice(int device) {
    cudaError_t error = check_device(__func__, device);
    if (error == cudaSuccess)
        current_device = device;
    return error;
}

cudaError_t cudaGetDevice(int *device) {
    cudaError_t error = fakegpu_enter(__func__);
    if (error == cudaSuccess)
        *device = current_device;
    return error;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    cudaError_t error = check_device(__func__, device);
    if (error != cudaSuccess)
        return error;
    memset(p, 0, sizeof(*p));
    snprintf(p->name, sizeof(p->name), "Virtual GPU");
    p->totalGlobalMem = cuda_state.memory_bytes;
    p->major = 9;
    p->multiProcessorCount = 2;
    p->maxThreadsPerBlock = 1024;
    p->warpSize = 32;
    p->asyncEngineCount = 2;
    p->unifiedAddressing = 1;
    p->pciBusID = device + 1;
    p->canMapHostMemory = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    cudaError_t error = check_device(__func__, device);
    if (error != cudaSuccess)
        return error;
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = 2;
        break;
    default:
        *value = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device) {
    cudaError_t error = check_device(__func__, device);
    if (error == cudaSuccess)
        snprintf(text, (size_t)bytes, "00fa:%02x:00.0", device + 1);
    return error;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = cuda_state.devices == 0 ? 0 : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    cudaError_t error = check_device(__func__, device);
    if (error == cudaSuccess)
        *can = device != peer && cuda_state.may_peer;
    return error;
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int from,
                                      int to) {
    cudaError_t error = check_device(__func__, from);
    (void)attribute;
    if (error == cudaSuccess)
        *value = from != to && cuda_state.may_peer;
    return error;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
    cudaError_t error = check_device(__func__, peer);
    (void)flags;
    if (error != cudaSuccess)
        return error;
    if (peer == current_device || !cuda_state.may_peer)
        return cuda_keep(cudaErrorPeerAccessUnsupported);
    cuda_lock();
    bool *enabled = &cuda_state.peers[current_device][peer], before = *enabled;
    *enabled = true;
    cuda_unlock();
    return cuda_keep(before ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    cudaError_t error = check_device(__func__, peer);
    if (error != cudaSuccess)
        return error;
    cuda_lock();
    cuda_state.peers[current_device][peer] = false;
    cuda_unlock();
    return cudaSuccess;
}
