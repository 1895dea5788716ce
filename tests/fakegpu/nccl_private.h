// SPDX-License-Identifier: Apache-2.0
// Between the files of NCCL's double.
//
// Faults, in FAKEGPU_FAULTS beside those of fakegpu.h; RANK is a communicator's, N counts from 1:
//   nccl_error:RANK:N      RANK's Nth operation fails after its first piece; others: remote error
//   nccl_hang:RANK:N       RANK never does its part of its Nth operation
//   nccl_slow:RANK:FACTOR  RANK's links are FACTOR times slower
//   nccl_link:A:B          the link between ranks A and B is eight times slower
//   nccl_wrong:RANK:N      RANK's Nth operation leaves one wrong bit
//   nccl_init:RANK:CODE    RANK's communicator fails with that ncclResult_t
//   nccl_init_hang:RANK:1  RANK never joins
// FAKENCCL_RATE=BYTES_PER_S is what a link carries; unset: as fast as memory.
#pragma once

#include "nccl_room.h"

#include <nccl.h>
#include <pthread.h>

enum nccl_kind { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, BROADCAST, REDUCE, SEND, RECEIVE };

struct ncclComm {
    struct room *room;
    int rank, size, device;
    bool blocking, joined;
    _Atomic bool aborted;
    _Atomic int error;   // ncclResult_t of this rank's own failure
    _Atomic int pending; // queued works
    int busy_looks;      // how often it still says "in progress"
    uint64_t barriers, operations;
    char text[ROOM_TEXT];
};

struct nccl_call {
    enum nccl_kind kind;
    const char *name;
    const void *send;
    void *receive;
    size_t count; // as in NCCL's call
    ncclDataType_t type;
    ncclRedOp_t operation;
    int root; // or the peer
    ncclComm_t comm;
    cudaStream_t stream;
};

// NCCL's header declares these two without a prototype.
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

// Records the communicator's own failure and tells the room.
void nccl_fail(ncclComm_t comm, ncclResult_t r, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Of all communicators of a GPU of this process, since it started.
uint64_t fakenccl_sent_bytes(int device);

size_t nccl_type_bytes(ncclDataType_t type); // 0: unknown

// On the stream's thread: the whole operation, or the sends and receives of one group.
void nccl_run_collective(const struct nccl_call *c);
void nccl_run_exchange(const struct nccl_call *calls, size_t count);

// In the manner of NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=TUNING.
void nccl_debug_choice(const struct nccl_call *c);
