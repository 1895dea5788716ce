// SPDX-License-Identifier: Apache-2.0
// A PyTorch profiler trace (Kineto's Chrome JSON, one rank) as totals per optimizer step. Read
// token by token: memory is 32 bytes per GPU kernel, whatever the size of the file.
// docs/formats.md §profile.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "describe/warnings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum profile_class {
    PROFILE_GEMM,
    PROFILE_ATTENTION,
    PROFILE_NORM,
    PROFILE_LOSS, // softmax and cross-entropy
    PROFILE_OPTIMIZER,
    PROFILE_ELEMENTWISE,
    PROFILE_OTHER,
    PROFILE_COPY_D2D,
    PROFILE_COPY_H2D, // from here on not compute
    PROFILE_COPY_D2H,
    PROFILE_ALL_GATHER,
    PROFILE_REDUCE_SCATTER,
    PROFILE_ALL_REDUCE,
    PROFILE_ALL_TO_ALL,
    PROFILE_BROADCAST,
    PROFILE_REDUCE,
    PROFILE_SEND_RECV,
    PROFILE_OTHER_COMM,
    PROFILE_CLASS_COUNT
};
extern const char *const profile_class_names[PROFILE_CLASS_COUNT]; // "gemm", "copy_h2d", ...
bool profile_is_compute(enum profile_class c);
bool profile_is_comm(enum profile_class c);
// By the kernel's name and, for a collective, the "Collective name" NCCL's process group recorded
// (NULL: none).
enum profile_class profile_kernel_class(const char *kernel, const char *collective);

struct profile_class_total { // mean over the steps
    double count, busy_s;    // busy: sum of durations
    double payload_bytes;    // collectives: the full buffer, where the trace says; else NAN
};
struct profile_stream {
    uint64_t number;
    double busy_s;              // mean over the steps; time with a kernel running
    enum profile_class largest; // class with most time on it
};
struct profile_step {
    uint64_t number;
    double start_s, step_s;
};
enum profile_steps_from { PROFILE_STEPS_GPU, PROFILE_STEPS_CPU, PROFILE_STEPS_NONE };

struct profile {
    const char *name, *gpu; // file; GPU model or NULL
    int64_t rank;           // -1 unknown
    uint64_t world;         // 0 unknown
    uint64_t events, kernels;
    uint64_t outside; // kernels before the first or after the last step
    enum profile_steps_from from;
    struct profile_step *steps;
    size_t step_count;
    double step_s; // median
    struct profile_class_total classes[PROFILE_CLASS_COUNT];
    struct profile_stream *streams;
    size_t stream_count;
    // Means over the steps of unions of intervals: time with at least one such kernel running, and
    // with none of the classes before it.
    double compute_s, comm_s, copy_s, exposed_comm_s, exposed_copy_s, idle_s;
};
extern const char *const profile_steps_names[]; // "gpu_user_annotation", ...

// True when the head of a file looks like a trace (or a snapshot): cheap, for catalog import.
bool profile_sniff(const char *head);
// ERR_INPUT "file:line: reason" for what is no trace, is cut off or holds no GPU kernel.
bool profile_read(const char *path, struct arena *a, struct warnings *w, struct profile *out,
                  struct err *e);
bool profile_parse(const char *text, size_t bytes, const char *name, struct arena *a,
                   struct warnings *w, struct profile *out, struct err *e);
