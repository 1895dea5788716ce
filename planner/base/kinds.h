// SPDX-License-Identifier: Apache-2.0
// The small closed vocabularies that every layer shares, with their names and sizes.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_FP32,
    DTYPE_TF32,
    DTYPE_BF16,
    DTYPE_FP16,
    DTYPE_FP8,
    DTYPE_INT8,
    DTYPE_INT4,
    DTYPE_COUNT
};

enum collective {
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_REDUCE_SCATTER,
    COLLECTIVE_ALL_REDUCE,
    COLLECTIVE_ALL_TO_ALL,
    COLLECTIVE_BROADCAST,
    COLLECTIVE_REDUCE,
    COLLECTIVE_SEND_RECV,
    COLLECTIVE_COUNT
};

// Where a transfer travels.
enum link {
    LINK_INTRA_NODE,
    LINK_INTER_NODE,
    LINK_PCIE,
    LINK_NVME,
    LINK_HOST_DRAM,
    LINK_HBM,
    LINK_COUNT
};

// How a figure is known. Order is trust: later in {SPEC, MEASURED, FITTED} overrides earlier.
enum provenance {
    PROVENANCE_ASSUMED,
    PROVENANCE_SPEC,
    PROVENANCE_MEASURED,
    PROVENANCE_FITTED,
    PROVENANCE_COUNT
};

enum device { DEVICE_GPU, DEVICE_CPU, DEVICE_NVME, DEVICE_COUNT };

// One number with its origin. value is NAN when unknown. low..high is the honest interval
// (equal to value where exact; at least 2x wide when assumed). source never NULL for a known value.
struct figure {
    double value, low, high;
    enum provenance provenance;
    const char *source;
};

const char *dtype_name(enum dtype t);           // "bf16"
uint64_t dtype_bits(enum dtype t);              // storage bits (tf32: 32)
double dtype_bytes(enum dtype t);               // storage bytes, 0.5 for int4
const char *collective_name(enum collective c); // "all_gather", as in the JSON contract
const char *link_name(enum link l);             // "intra_node", "inter_node", "pcie", ...
const char *provenance_name(enum provenance p); // "assumed", "spec", "measured", "fitted"
const char *device_name(enum device d);

// Index of `name` in a table of `count` names, compared without case; -1 if absent.
int kinds_find(const char *const *names, size_t count, const char *name);
bool dtype_find(const char *name, enum dtype *out); // accepts bfloat16, float32, half, ...
bool collective_find(const char *name, enum collective *out); // accepts all-gather, AllGather, ...

// Bytes a rank sends in a ring for a FULL (gathered) buffer of `payload_bytes` in a group of n:
// all_gather, reduce_scatter, all_to_all B(n-1)/n; all_reduce 2B(n-1)/n; broadcast, reduce,
// send_recv B (n > 1). docs/method.md §volume. n = 1 gives 0.
double collective_sent_bytes(enum collective c, double payload_bytes, uint64_t n);

// nccl-tests' busbw / algbw factor.
double collective_bus_factor(enum collective c, uint64_t n);

// Nearest name by edit distance for "did you mean", or NULL when nothing is near.
const char *kinds_nearest(const char *const *names, size_t count, const char *name);

struct figure figure_known(double value, enum provenance p,
                           const char *source); // low = high = value
struct figure figure_assumed(double value, double low, double high, const char *basis);
struct figure figure_unknown(void);
bool figure_is_known(struct figure f);
