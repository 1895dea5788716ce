// SPDX-License-Identifier: Apache-2.0
// Bandwidths at which a link stops mattering, inverted from the simulator, and what a GB/s or a GiB
// is worth; docs/method.md §break-even.
#pragma once

#include "plan/plan.h"

#include <stdbool.h>
#include <stddef.h>

enum break_even_link {
    BREAK_INTRA,
    BREAK_INTER,
    BREAK_PCIE,
    BREAK_NVME,
    BREAK_HOST_DRAM,
    BREAK_LINK_COUNT
};
extern const char *const break_even_link_names[BREAK_LINK_COUNT]; // "intra_node", ...

struct break_even {
    enum break_even_link link;
    const char *unit_of;        // "per GPU", "per node": whose bandwidth it is
    double current_bytes_per_s; // NAN where unknown
    double needed_bytes_per_s;  // smallest with step <= 1.05 x the floor; NAN with a reason
    double sold_bytes_per_s;    // rounded up to what is sold; NAN where nothing standard is
    double step_s, floor_step_s,
        compute_s;      // now; at infinite bandwidth of this link; compute alone
    const char *reason; // "not_used", "latency_bound", "already_enough" or NULL
};

// What is asked about. The plan must have been simulated.
struct break_even_subject {
    const struct model *model;
    const struct cluster *cluster;
    const struct plan *plan;
};

// One link of one plan.
bool break_even_find(const struct break_even_subject *s, enum break_even_link link, struct arena *a,
                     struct break_even *out, struct err *e);

// Change of the step per unit, by central differences of 1 % (rates) on the simulator; signed.
struct sensitivity {
    const char *path, *unit;   // "inter_node", "GB/s per GPU"
    double value;              // the figure now, in base units
    double step_s_per_unit;    // seconds per base unit
    double gain_of_10_percent; // share of the step saved by 10 % more
};
bool break_even_sensitivity(const struct break_even_subject *s, enum break_even_link link,
                            struct arena *a, struct sensitivity *out, struct err *e);

// Per-GPU (or per-node) bandwidth of a link as the simulator knows it.
double break_even_bandwidth(const struct cluster *c, enum break_even_link link);
// Step at a multiple of one link's bandwidth; INFINITY allowed.
bool break_even_step(const struct break_even_subject *s, enum break_even_link link, double multiple,
                     struct arena *a, double *step_s, struct err *e);
