// SPDX-License-Identifier: Apache-2.0
// Measured results: schema shardplan.measurement/1, as one JSON document or as JSON lines (a header
// line, then one line per result as it finishes). docs/formats.md §measurement.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The machine that measured. Text is NULL and numbers are 0 when unknown.
struct measure_host {
    const char *name;   // host name
    const char *os;     // "Debian GNU/Linux 12"
    const char *kernel; // uname release
    const char *cpu;    // CPU model name
    uint64_t cpus;      // logical CPUs online
    uint64_t numa_nodes;
    uint64_t memory_bytes;
    const char *gpu; // GPU model name
    uint64_t gpus;
    const char *driver;  // GPU driver version
    const char *network; // interfaces: "eth0 10 Gb/s, mlx5_0 400 Gb/s"
    const char *storage; // file system and device of the tested folder
};

// The program that measured.
struct measure_build {
    const char *type;    // Meson build type; "release", "debugoptimized", ...
    const char *flags;   // compiler and flags
    const char *commit;  // source revision
    const char *command; // what was typed; stands beside "build", NULL where it is not stated
};

// One result. Times in seconds of ONE iteration (the slowest rank's). Doubles are NAN, integers 0
// and text NULL when they do not apply.
struct measure_result {
    const char *kind;      // a collective's name ("all_gather", ...), or "copy", "nvme", "adam",
                           // "gemm", "memory", "cast", "quantize", "dequantize", "fill",
                           // "verify", "task"; required
    const char *backend;   // "mpi", "nccl", "cuda", "host", "io_uring", "adam", ...; required
    const char *algorithm; // "library", "ring"; adam: "avx2"; nvme: "swap_pipelined"
    const char *protocol;  // NCCL protocol, "pread", ...
    const char *scope;     // "intra_node" or "inter_node"
    const char *group;     // ranks that took part, "0,1" for a pair, "gpu 3"; NULL = all
    const char *dtype;
    const char *direction; // "read", "write", "mixed", "h2d", "d2h", "d2d", "p2p", "bidirectional"
    const char *software;  // library and version
    const char *note;      // anything a reader must know about this number
    uint64_t nodes, ranks;
    bool in_place;
    bool concurrent;        // every device or pair at once
    bool oversubscribed;    // more ranks than processors: not a fair number
    bool shared_gpu;        // several ranks on one GPU: bytes and correctness only
    bool confident;         // reached its confidence target within its time budget
    uint64_t numa;          // NUMA node + 1; 0 = not bound
    uint64_t payload_bytes; // the total (gathered) array, as in nccl-tests
    uint64_t block_bytes;
    uint64_t queue_depth, jobs, threads;
    uint64_t m, n, k;
    uint64_t iterations;
    const double *samples_s; // one per iteration, at most MEASURE_SAMPLES_MAX kept
    size_t samples;
    double median_s, p05_s, p95_s, p99_s, min_s, max_s;
    double rank_skew_s; // slowest minus fastest rank, median over iterations
    double algbw_bytes_per_s, busbw_bytes_per_s;
    double settled_s; // nvme: ran this long before what counts; algbw is then the mean of the rest
    double ceiling_bytes_per_s; // what the same machine reaches in a bare loop of the same traffic
    double flop_per_s;
    double cpu_s_per_io;
    double cpu_s;      // CPU time of one rank in one iteration, where waiting costs none
    double sent_bytes; // one rank handed to the transport in one iteration, as counted; the most
    double wire_bytes; // bytes counted by interfaces over all iterations
    uint64_t errors;   // wrong elements found by verification
};

struct measurement {
    struct measure_host host;
    struct measure_build build;
    struct measure_result *results;
    size_t count;
    bool torn; // the last line was cut off by a crash and left out
};

#define MEASURE_SCHEMA "shardplan.measurement/1"
#define MEASURE_SAMPLES_MAX 1000

// Everything unknown, so that writers only fill what they know.
void measure_result_init(struct measure_result *r);

// Both forms. Strings and results live in `a`. ERR_INPUT names file, line and path.
bool measure_read(const char *path, struct arena *a, struct measurement *out, struct err *e);
bool measure_parse(const char *text, size_t bytes, const char *name, struct arena *a,
                   struct measurement *out, struct err *e);

// One more result, initialised; valid until the next call.
struct measure_result *measure_append(struct measurement *m, struct arena *a);

// Samples into iterations, quantiles, min and max. Copies at most MEASURE_SAMPLES_MAX of them,
// evenly spaced, into `a`.
void measure_summarise(struct measure_result *r, const double *samples_s, size_t n,
                       struct arena *a);

// Writing. Caller frees with cJSON_Delete; lines with free(). A line ends in a newline.
cJSON *measure_result_to_json(const struct measure_result *r);
cJSON *measure_to_json(const struct measurement *m);
char *measure_header_line(const struct measure_host *h, const struct measure_build *b);
char *measure_result_line(const struct measure_result *r);

// Identity of a result: two results with equal keys measure the same point (for --resume and
// baselines). In `a`.
const char *measure_key(const struct measure_result *r, struct arena *a);
