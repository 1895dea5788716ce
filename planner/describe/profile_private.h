// SPDX-License-Identifier: Apache-2.0
// Private to describe/profile*: what reading a trace keeps, and what is made of it.
#pragma once

#include "describe/profile.h"

enum { PROFILE_STREAMS_MAX = 64, PROFILE_STEPS_MAX = 4096, PROFILE_DEVICES_MAX = 16 };

// A kernel starts (delta 1) or ends (-1).
struct profile_edge {
    double at_us;
    float payload_bytes; // of a collective, at its start; NAN = not said
    uint16_t stream;
    uint8_t class;
    int8_t delta;
};

struct profile_window {
    uint64_t number;
    double start_us, end_us;
};

struct profile_log {
    struct profile_edge *edges; // malloc'd
    size_t edge_count, edge_capacity;
    double origin_us; // times are kept from here on
    bool has_origin;
    struct profile_window gpu[PROFILE_STEPS_MAX], cpu[PROFILE_STEPS_MAX];
    size_t gpu_count, cpu_count;
    uint64_t streams[PROFILE_STREAMS_MAX];
    size_t stream_count;
    uint64_t device; // of the first kernel; others are left out
    bool has_device;
    uint64_t other_devices, events;
    char gpu_name[128];
    int64_t rank;
    uint64_t world;
};

// Sorts the edges, lays the steps over them and fills everything but names.
bool profile_sum(struct profile_log *log, const char *name, struct arena *a, struct warnings *w,
                 struct profile *out, struct err *e);
