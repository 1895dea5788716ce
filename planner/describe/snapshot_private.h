// SPDX-License-Identifier: Apache-2.0
// Private to describe/snapshot*: what reading keeps, and what is made of it.
#pragma once

#include "describe/snapshot.h"

enum { SNAPSHOT_DEVICES_MAX = 64, SNAPSHOT_ITEMS_MAX = 4 << 20 };

enum snapshot_action {
    ACTION_ALLOC,
    ACTION_FREE,    // free_requested; free_completed where nothing says the former
    ACTION_RESERVE, // segment_alloc, segment_map
    ACTION_RELEASE, // segment_free, segment_unmap
    ACTION_OOM,
    ACTION_COMPLETED, // free_completed
    ACTION_OTHER      // snapshot, ...
};

struct snapshot_event { // of the history, or a live block at its end (ACTION_ALLOC)
    uint64_t address, bytes;
    float time_s; // after the first event
    uint8_t action, class, device;
    bool default_stream;
};

struct snapshot_items { // malloc'd
    struct snapshot_event *items;
    size_t count, capacity;
};

struct snapshot_log {
    struct snapshot_items history, blocks;
    uint64_t reserved_bytes[SNAPSHOT_DEVICES_MAX];
    double origin_us;
    bool has_origin, has_segments, has_traces, has_requests;
};

bool snapshot_sum(const struct snapshot_log *log, const char *name, struct arena *a,
                  struct warnings *w, struct snapshot *out, struct err *e);
