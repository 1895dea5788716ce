// SPDX-License-Identifier: Apache-2.0
// PyTorch's allocator history (torch.cuda.memory._snapshot() written as JSON) as the peak it saw,
// by what the bytes were for. Read token by token: 32 bytes are kept per event. docs/formats.md
// §snapshot.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "describe/warnings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// By the stack that allocated; without one, by stream and lifetime.
enum snapshot_class {
    SNAPSHOT_PARAMS,
    SNAPSHOT_GRADS,
    SNAPSHOT_OPTIMIZER, // moments and master copies
    SNAPSHOT_GATHER,
    SNAPSHOT_BUCKET,
    SNAPSHOT_ACTIVATIONS,
    SNAPSHOT_LOGITS, // loss
    SNAPSHOT_STEP_TRANSIENT,
    SNAPSHOT_BACKWARD,    // autograd engine: gradients and temporaries
    SNAPSHOT_KEPT,        // no stack; alive before the history and at its end
    SNAPSHOT_SIDE_STREAM, // no stack; not on the default stream
    SNAPSHOT_UNKNOWN,
    SNAPSHOT_CLASS_COUNT
};
extern const char *const snapshot_class_names[SNAPSHOT_CLASS_COUNT];

struct snapshot {
    const char *name;
    uint64_t device, devices; // the one reported (most reserved), and how many hold memory
    uint64_t events, allocations, ooms;
    // Requested bytes; a history that began late knows only the peak since then.
    uint64_t allocated_peak_bytes, allocated_end_bytes, allocated_start_bytes;
    uint64_t reserved_peak_bytes, reserved_end_bytes;
    double peak_at_s;                              // after the first event; NAN without history
    uint64_t peak_bytes[SNAPSHOT_CLASS_COUNT];     // sums to allocated_peak_bytes
    uint64_t peak_framed_bytes;                    // of them, told by their stack
    uint64_t own_peak_bytes[SNAPSHOT_CLASS_COUNT]; // each class's own maximum
    bool has_history;
};

// Class that one stack frame tells, SNAPSHOT_UNKNOWN if none. Frames are asked from the innermost
// outwards; the first that tells decides.
enum snapshot_class snapshot_frame_class(const char *filename, const char *function);

bool snapshot_sniff(const char *head);
// ERR_INPUT with line and reason for what is no snapshot, is cut off, or is pickled (with the
// command that writes JSON).
bool snapshot_read(const char *path, struct arena *a, struct warnings *w, struct snapshot *out,
                   struct err *e);
bool snapshot_parse(const char *text, size_t bytes, const char *name, struct arena *a,
                    struct warnings *w, struct snapshot *out, struct err *e);
