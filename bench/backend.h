// SPDX-License-Identifier: Apache-2.0
// What a backend of shardbench is: one constant table of functions over its own state. The harness
// warms up, repeats, verifies, summarises and writes; a backend only knows how to set a point up,
// run it and check it. A backend file never prints and never exits.
#pragma once

#include "base/err.h"
#include "base/kinds.h"
#include "describe/measure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct ranks;   // ranks.h: the processes of this run
struct signals; // signals.h: whether somebody wants it to end

// What `sample` stores for an iteration that this rank had no part in.
#define BENCH_IDLE_S (-1.0)

// One thing to measure. Zero and NULL mean "does not apply".
struct bench_point {
    const char *kind;           // as measure_result.kind
    enum collective collective; // when `kind` is a collective's name
    const char *algorithm;      // "library", "ring"; adam: "reference", "avx2", "avx512"
    const char *direction;      // "read", "write", "mixed", "h2d", "d2h", "d2d", "bidirectional"
    enum dtype dtype;
    bool in_place;
    bool concurrent;        // every device at once
    bool pipelined;         // swap pattern: read, compute and write overlap
    uint64_t payload_bytes; // total (gathered) array; nvme: bytes moved in one iteration
    uint64_t block_bytes, queue_depth, jobs, threads;
    uint64_t m, n, k;       // gemm: C[m,n] = A[m,k] B[k,n]
    uint64_t first, second; // devices or ranks of a pair, when `paired`
    bool paired;            // only ranks (or devices) `first` and `second` take part
    uint64_t group_size;    // ranks per group, all groups at once; 0 = one group of everybody
    uint64_t group_stride;  // distance between neighbours of a group; 0 = 1
    uint64_t timed;         // GPU + 1 that the result is about, named as its group; with
                            // `concurrent` the others work too. 0 = the slowest
    uint64_t numa;          // node + 1 of host buffers; 0 = the device's own
    uint64_t left_out;      // rank + 1 that stays out of the collective; 0 = everybody in
};

// How to reach the hardware; filled from the command line by main.
struct backend_config {
    const struct ranks *ranks; // never NULL
    const char *folder;        // nvme: where the test file goes
    uint64_t max_bytes;        // nvme: largest test file
    uint64_t devices;          // GPUs to use; 0 = all
    uint64_t threads;          // host threads; 0 = one per processor
    struct arena *arena;       // for text that results keep; lives as long as the run
    bool nap;                  // mpi: the ring sleeps while it waits
    double timeout_s;          // longest silence of one operation before it counts as hung
    struct signals *signals;   // waits for devices end soon after an interrupt; may be NULL
    const char *fault;         // test hook: "write-eio"; NULL in use
};

struct backend {
    const char *name;
    const char *summary; // one line for --help and the inventory
    double warmup_s;     // least time of untimed iterations; 0 = the harness's own

    // Finds the hardware and its libraries. ERR_RESOURCE, with what is missing, when it cannot run
    // here: the point list is then reported as waived.
    bool (*open)(const struct backend_config *c, void **state, struct err *e);
    void (*close)(void *state); // NULL is fine

    // Allocates and fills for `p`; the point outlives it. Undone by release. ERR_RESOURCE when the
    // point does not fit or is not supported.
    bool (*prepare)(void *state, const struct bench_point *p, struct err *e);
    void (*release)(void *state); // after prepare, also after a failed one

    // Runs `count` iterations back to back and stores each one's duration, as this rank saw it.
    bool (*sample)(void *state, size_t count, double *samples_s, struct err *e);

    // One untimed iteration on fresh, position-dependent contents made from `seed`, then counts the
    // elements that differ from what must have arrived. NULL: there is nothing to verify.
    bool (*verify)(void *state, uint64_t seed, uint64_t *wrong, struct err *e);

    // Adds what only the backend knows (software, protocol, scope, nodes, note, ceilings, bytes
    // counted on wires). Called on every rank, before the first iteration (r->iterations is 0) and
    // after the last. Text must live as long as the process. NULL: nothing to add.
    void (*describe)(void *state, struct measure_result *r);

    // How many take part in a collective of everybody. NULL: the ranks of this run, one each.
    uint64_t (*peers)(void *state);
};

// Every backend of this build, NULL-terminated; missing dependencies leave their backend out.
extern const struct backend *const backend_registry[];
const struct backend *backend_find(const char *name); // NULL when not built in
