// SPDX-License-Identifier: Apache-2.0
// NCCL communicators of this process's GPUs, made and used without blocking: whatever NCCL does is
// polled, an error on any GPU or a silence beyond the time limit ends in an abort with NCCL's own
// text, never in a hang.
#pragma once

#include "bench/backend.h"
#include "bench/patience.h"
#include "bench/ranks.h"

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nccl_member {
    int device;
    uint64_t number; // among all GPUs of the run
    ncclComm_t comm; // NULL: stays out
    int rank, size;  // within comm
};

struct nccl_comms {
    const struct ranks *ranks;
    struct nccl_member *members; // of this process
    size_t count;                // of them, the same in every process
    uint64_t all;                // GPUs of the run
    struct patience patience;
    bool made;
    struct bench_point made_for; // whose groups the communicators have
};

// Collective over the processes. Keeps what is there when the groups are the same. ERR_RESOURCE
// when NCCL refuses or stays silent; everything is then aborted.
bool nccl_comms_make(struct nccl_comms *c, const struct bench_point *p, struct err *e);

// Waits until every member's last call is accepted; fails on an asynchronous error.
bool nccl_comms_settle(struct nccl_comms *c, const char *what, struct err *e);

// Fails, with NCCL's text, unless every communicator is well or busy.
bool nccl_comms_healthy(const struct nccl_comms *c, const char *what, struct err *e);

// Fails unless r is success or in progress.
bool nccl_comms_ok(const struct nccl_comms *c, ncclResult_t r, const char *what, struct err *e);

void nccl_comms_abort(struct nccl_comms *c);
void nccl_comms_destroy(struct nccl_comms *c); // finalises first; aborts what does not end in time
