// SPDX-License-Identifier: Apache-2.0
// Bytes on one GPU, its host and NVMe: by class, by phase, in three readings. Pure functions.
#pragma once

#include "base/err.h"
#include "describe/cluster.h"
#include "describe/model.h"
#include "describe/recipe.h"

#include <stdbool.h>
#include <stdint.h>

enum memory_class { // GPU
    MEMORY_PARAMS,
    MEMORY_GRADS,
    MEMORY_OPTIMIZER,
    MEMORY_MASTER,
    MEMORY_GATHER,
    MEMORY_BUCKET,
    MEMORY_ACTIVATIONS,
    MEMORY_LOGITS,
    MEMORY_STEP_TRANSIENT,
    MEMORY_CLASS_COUNT
};
enum host_class { // one node
    HOST_PARAMS,
    HOST_GRADS,
    HOST_MASTER,
    HOST_OPTIMIZER,
    HOST_STAGING,
    HOST_SWAP_BUFFERS,
    HOST_ACTIVATIONS,
    HOST_PINNED_ROUNDING,
    HOST_LOAD,
    HOST_CLASS_COUNT
};
enum memory_phase {
    PHASE_LOAD,
    PHASE_INIT,
    PHASE_FORWARD,
    PHASE_LOSS,
    PHASE_BACKWARD,
    PHASE_STEP_FIRST,
    PHASE_STEP,
    PHASE_SAVE,
    PHASE_RESUME,
    PHASE_COUNT
};
enum fits_state { FITS_NO, FITS_TIGHT, FITS_YES, FITS_STATE_COUNT };

struct memory_phase_bytes {
    uint64_t classes_bytes[MEMORY_CLASS_COUNT]; // sums exactly to allocated_bytes
    uint64_t allocated_bytes;
    uint64_t host_classes_bytes[HOST_CLASS_COUNT]; // per node; sums exactly to host_bytes
    uint64_t host_bytes;
};

struct memory {
    uint64_t classes_bytes[MEMORY_CLASS_COUNT]; // each class's own maximum (DESIGN §5 "Classes")
    uint64_t steady_bytes;                      // between steps
    struct memory_phase_bytes phases[PHASE_COUNT];
    enum memory_phase peak_phase;
    uint64_t allocated_peak_bytes; // largest of forward, loss, backward, step_first, step
    uint64_t reserved_bytes, reserved_low_bytes, reserved_high_bytes;
    uint64_t context_bytes, nccl_bytes, framework_bytes, nvidia_smi_bytes;
    uint64_t capacity_bytes; // what torch sees - context - NCCL
    int64_t headroom_bytes;  // capacity - allocated peak
    uint64_t short_bytes;    // how much is missing, 0 when it fits
    enum fits_state fits_state;
    bool phase_fits[PHASE_COUNT];
    // Host, per node.
    uint64_t host_bytes, host_classes_bytes[HOST_CLASS_COUNT], pinned_bytes, pinned_rounding_bytes,
        host_capacity_bytes;
    bool host_fits, host_known;               // known: capacity known
    uint64_t nvme_bytes, nvme_capacity_bytes; // per node
    bool nvme_fits, nvme_known;
    // Activations of one layer, for explanations.
    uint64_t activation_layer_bytes, checkpoint_layer_bytes;
};

extern const char *const memory_class_names[MEMORY_CLASS_COUNT]; // "params", ...
extern const char *const host_class_names[HOST_CLASS_COUNT];
extern const char *const memory_phase_names[PHASE_COUNT];
extern const char *const fits_state_names[FITS_STATE_COUNT];

// One recipe (resolved) on one cluster. False on overflow only.
bool memory_estimate(const struct model *m, const struct cluster *c, const struct recipe *r,
                     struct memory *out, struct err *e);
// Fewest GPUs (same node shape) on which the recipe's states fit; 0 = never up to `limit`.
uint64_t memory_min_gpus(const struct model *m, const struct cluster *c, const struct recipe *r,
                         uint64_t limit);
