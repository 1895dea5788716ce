// SPDX-License-Identifier: Apache-2.0
// Between the files that rehearse on GPUs.
#pragma once

#include "bench/nccl_comms.h"
#include "bench/rehearse_gpu.h"
#include "bench/rehearse_private.h"
#include "bench/rehearse_products.h"
#include "bench/team.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

// One stream of the graph on one GPU.
struct gpu_stream {
    cudaStream_t stream;
    char *from, *to;                // in the GPU
    char *host;                     // pinned, of streams that copy
    struct products *products;      // of streams that multiply
    struct rehearse_lane host_lane; // of streams with host work
};

// One stream of the graph.
struct gpu_track {
    size_t bytes; // of from and to
    struct gpu_stream *gpus;
    struct nccl_comms *comms; // one per group of the graph; made for those that it uses
    struct team *team;        // host work of every GPU at once
    uint32_t last;            // task before, + 1
};

struct gpu_rehearsal {
    struct rehearse_setup setup;
    struct rehearse_work work;
    struct arena *arena;
    size_t gpus; // of this process
    struct gpu_track *tracks;
    cudaEvent_t *begin, *end; // [task * gpus + gpu]
    cudaEvent_t *zero;        // per GPU
    void **buffers;           // [buffer * gpus + gpu]
    double copy_bytes_per_s;  // of gpu_copy, read and written
    bool stands_in;           // memory traffic for some matrix products
    struct rehearse_sent *sent;
    size_t sent_count, sent_room;
    // of the step that runs
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool *queued, *done; // done: of host tasks
    double *host_start_s, *host_end_s;
    uint32_t issued;
    bool failed, lost;
    struct err error;
    double zero_s;
};

bool rehearse_gpu_is_host(const struct graph *g, const struct graph_task *t);
uint64_t rehearse_gpu_chunk(const struct gpu_rehearsal *r, const struct graph_task *t);

// Puts the task's work on its stream of one GPU; collectives on all of them at once.
bool rehearse_gpu_queue(struct gpu_rehearsal *r, const struct graph_task *t, size_t gpu,
                        struct err *e);
bool rehearse_gpu_collective(struct gpu_rehearsal *r, const struct graph_task *t, struct err *e);
void rehearse_gpu_count_sent(struct gpu_rehearsal *r, const struct graph_task *t);
