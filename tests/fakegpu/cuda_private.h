// SPDX-License-Identifier: Apache-2.0
// Between the files of the CUDA runtime's double. One lock guards everything.
#pragma once

#include "fakegpu.h"

#include <pthread.h>

struct cuda_state {
    pthread_mutex_t lock;
    pthread_cond_t moved; // an item ended, an event was reached, the context broke
    size_t waiting;       // for `moved`
    int devices;          // -1: not read yet
    size_t memory_bytes, used_bytes[FAKEGPU_DEVICES_MAX];
    bool peers[FAKEGPU_DEVICES_MAX][FAKEGPU_DEVICES_MAX]; // access enabled by [from] to [to]
    bool may_peer, report;
    struct cuda_allocation *allocations;
    cudaStream_t defaults[FAKEGPU_DEVICES_MAX]; // the stream 0 of each device
    cudaStream_t alive;                         // every stream
    uint64_t works[FAKEGPU_DEVICES_MAX], copies[FAKEGPU_DEVICES_MAX];
    cudaError_t broken;
    size_t streams, events; // that live
};

extern struct cuda_state cuda_state;

void cuda_lock(void); // also reads the environment, once
void cuda_unlock(void);
cudaError_t cuda_keep(cudaError_t error); // as this thread's last error
void cuda_set_device(int device);
cudaError_t cuda_drain(int device); // waits for all its streams
cudaStream_t cuda_stream_of(cudaStream_t given);
size_t cuda_allocation_count(void);
