// SPDX-License-Identifier: Apache-2.0
// The points of a sweep: ranges per knob, grouped into families that share everything a lower bound
// needs but the batch and recompute. Points are numbered; a number decodes to one recipe.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "describe/cluster.h"
#include "describe/model.h"
#include "describe/recipe.h"

#include <stddef.h>
#include <stdint.h>

#define SWEEP_VALUES_MAX 24

struct sweep_values {
    uint64_t items[SWEEP_VALUES_MAX];
    size_t count; // 0 = the default range
};

// Ranges. Enumerations are stored as their value. docs/formats.md §sweep lists the default space.
struct sweep_space {
    struct sweep_values nodes, shard_group, offload, precision; // a family each, per strategy
    struct sweep_values tp, cp, pp, ep;                         // and per split of the model
    struct sweep_values micro_batch, recompute, loss;
    struct sweep_values reduce_bucket, prefetch_bucket, max_live; // elements
};

// What is not swept.
struct sweep_basis {
    const struct model *model;
    const struct cluster *cluster;
    const struct recipe *recipes; // one per strategy, unresolved
    size_t recipe_count;
    uint64_t global_batch; // sequences per optimizer step, the same for every point
};

// Optimizer and parameter offload as one range: index into this table.
struct sweep_offload {
    enum offload optimizer, param;
    const char *name;
};
#define SWEEP_OFFLOADS 6
extern const struct sweep_offload sweep_offloads[SWEEP_OFFLOADS];

struct sweep_family {
    struct recipe
        recipe; // resolved pieces of the family; micro-batch and recompute at their first value
    uint64_t nodes, gpus, replicas;                  // replicas: data-parallel ranks
    uint64_t first_point;                            // number of its first point
    size_t reduce_count, prefetch_count, live_count; // inner ranges that matter for this strategy
    size_t precision_index;
    uint64_t sequences_per_gpu; // global batch / data-parallel ranks; 0 = does not divide
};

struct sweep_points {
    const struct sweep_space *space;
    struct sweep_family *families;
    size_t family_count;
    uint64_t point_count;
    int threads; // that tables over the space may use, >= 1
};

// Fill empty ranges with the defaults for this cluster; the recipe's own split of the model is its
// range.
void sweep_space_defaults(struct sweep_space *s, const struct cluster *c, const struct recipe *r);
// Enumerate the families that can run.
bool sweep_points_build(const struct sweep_space *s, const struct sweep_basis *b, struct arena *a,
                        struct sweep_points *out, struct err *e);
// The recipe of one point (not resolved); false where micro-batch does not divide the batch.
bool sweep_point_recipe(const struct sweep_points *p, uint64_t point, size_t *family,
                        struct recipe *out);

// Where a point stands in its family's ranges.
struct sweep_place {
    size_t micro, recompute, loss, reduce, prefetch, live;
};
size_t sweep_family_points(const struct sweep_space *s, const struct sweep_family *f);
size_t sweep_family_of(const struct sweep_points *p, uint64_t point);
struct sweep_place sweep_place_of(const struct sweep_space *s, const struct sweep_family *f,
                                  uint64_t index);
