// SPDX-License-Identifier: Apache-2.0
// What the command line of shardbench can say. One table per group of options.
#pragma once

#include "base/opt.h"

#include <stdbool.h>
#include <stdint.h>

struct options {
    // every command
    const char *out, *json, *report, *fault;
    bool resume, force, quiet, no_verify;
    double budget_s, target, timeout_s, within_s;
    uint64_t seed, min_iterations, max_iterations;
    // collectives, graph, confirm
    const char *backend;
    struct opt_texts operations, dtypes;
    int algorithm, place, wait;
    uint64_t begin_bytes, end_bytes, step_bytes, ranks, devices;
    double factor;
    bool pairs, leave_one_out, begin_given, end_given;
    // copy, adam, gemm
    struct opt_texts directions, shapes, variants;
    uint64_t bytes, threads, parameters;
    bool all_devices;
    // nvme
    const char *folder;
    struct opt_texts blocks, depths, jobs, patterns;
    uint64_t max_bytes;
    double settle_s;
    bool no_uring, settle_given;
    // confirm
    uint64_t plan_index, scale_bytes;
    bool plan_given, scale_given;
    // rehearse
    const char *trace;
    double shrink;
    bool from_graph; // set by main for the command `graph`
};

enum algorithm { ALGORITHM_BOTH, ALGORITHM_LIBRARY, ALGORITHM_RING };
enum wait { WAIT_POLL, WAIT_NAP };
enum place { PLACE_OUT, PLACE_IN, PLACE_BOTH };

extern const struct opt options_common[];
extern const struct opt options_collectives[];
extern const struct opt options_copy[];
extern const struct opt options_cuda[];
extern const struct opt options_adam[];
extern const struct opt options_gemm[];
extern const struct opt options_nvme[];
extern const struct opt options_all[];
extern const struct opt options_confirm[];
extern const struct opt options_graph[];
extern const struct opt options_rehearse[];
