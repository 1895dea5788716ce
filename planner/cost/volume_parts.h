// SPDX-License-Identifier: Apache-2.0
// What the per-strategy rules add to a volume; private to cost/.
#pragma once

#include "cost/memory_parts.h"
#include "cost/volume.h"

#include <stdbool.h>
#include <stdint.h>

struct volume_parts {
    struct memory_parts memory; // sizes, bytes per element, coordinator traffic
    double accumulate, syncs;   // micro-steps per step, and those that reduce
    double local_ranks;
    struct volume *out;
};

// One entry of the table in docs/method.md §volume.
struct volume_entry {
    const char *phase, *what;
    enum collective collective;
    enum dtype dtype;
    enum transfer_group group;
    double group_size, ranks_per_node; // of the group
    double count, payload_bytes;       // both over the whole optimizer step
};

void volume_add(struct volume_parts *v, const struct volume_entry *t);

struct volume_copy {
    const char *phase, *what;
    enum transfer_kind kind; // to or from the host, or NVMe
    double count, bytes;     // both over the whole optimizer step, by one GPU
};
void volume_copy(struct volume_parts *v, const struct volume_copy *copy); // none of 0 bytes
void volume_deepspeed(struct volume_parts *v); // stages 1, 2, 3, MiCS, ZeRO++
void volume_torch(struct volume_parts *v);     // DDP, FSDP1, FSDP2, Megatron's DDP
void volume_offload(struct volume_parts *v);
void volume_model_parallel(struct volume_parts *v);
void volume_muon(struct volume_parts *v); // gathers of whole matrices, none of other optimizers

// Buckets that gradients fill in backward order: a bucket closes before it would exceed
// `limit_elements` (DeepSpeed), or once it holds `limit_bytes` (DDP, first bucket apart).
uint64_t volume_bucket_count(const struct model *m, const struct recipe *r);
uint64_t volume_ddp_bucket_count(const struct model *m, const struct recipe *r,
                                 double element_bytes);
// Units that are gathered and reduced as one: wrapped blocks, and the root beside them.
double volume_units(const struct memory_parts *p);
// Share of the bytes of FSDP's parameters, padding included, that is not gathered again for
// backward, at so many bytes per trained and frozen element.
double volume_root_share(const struct memory_parts *p, double trained_bytes, double frozen_bytes);
