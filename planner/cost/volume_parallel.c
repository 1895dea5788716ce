// SPDX-License-Identifier: Apache-2.0
// Exchanges of tensor, context, pipeline and expert parallelism: docs/method.md §model-parallel.
#include "base/units.h"
#include "cost/volume_parts.h"

#include <math.h>

double volume_unit_experts(const struct model_unit *u) {
    double sum = 0;
    for (size_t i = 0; i < u->tensor_count; i++)
        if (u->tensors[i].role == TENSOR_EXPERT)
            sum += (double)tensor_numel(&u->tensors[i]) * (double)u->tensors[i].count;
    return sum;
}

static double blocks_of(const struct volume_parts *v, bool mixtures) {
    const struct model *m = v->memory.model;
    uint64_t sum = 0;
    for (size_t i = 0; i < m->unit_count; i++)
        if (m->units[i].kind == UNIT_BLOCK && (!mixtures || m->units[i].moe))
            sum += recipe_stage_units(v->memory.recipe, m, &m->units[i]);
    return v->accumulate * (double)sum;
}

static double hidden_bytes(const struct volume_parts *v) {
    const struct recipe *r = v->memory.recipe;
    return (double)(r->micro_batch * r->seq * v->memory.model->hidden) / (double)r->cp *
           dtype_bytes(recipe_activation_dtype(r));
}

// `each` bytes, `calls` times per block of one direction.
static void add(struct volume_parts *v, struct volume_entry t, const char *phase, double calls,
                double each) {
    t.phase = phase;
    t.count *= calls;
    t.payload_bytes = t.count * each;
    volume_add(v, &t);
}

static double backward_times(const struct recipe *r) {
    return r->recompute == RECOMPUTE_FULL ? 2 : 1; // recomputation repeats forward's
}

static void tensor(struct volume_parts *v) {
    const struct recipe *r = v->memory.recipe;
    struct volume_entry t = {.what = "activations",
                             .collective = COLLECTIVE_ALL_REDUCE,
                             .dtype = recipe_activation_dtype(r),
                             .group = GROUP_TENSOR,
                             .group_size = (double)r->tp,
                             .ranks_per_node = (double)r->tp,
                             .count = blocks_of(v, false)};
    add(v, t, "forward", 2, hidden_bytes(v));
    add(v, t, "backward", 2 * backward_times(r), hidden_bytes(v));
}

static void context(struct volume_parts *v) {
    const struct recipe *r = v->memory.recipe;
    const struct model *m = v->memory.model;
    struct volume_entry t = {.what = "keys and values",
                             .collective = COLLECTIVE_ALL_GATHER,
                             .dtype = recipe_activation_dtype(r),
                             .group = GROUP_CONTEXT,
                             .group_size = (double)r->cp,
                             .ranks_per_node = (double)r->cp,
                             .count = blocks_of(v, false)};
    double each = 2.0 * (double)(r->micro_batch * r->seq * m->kv_heads) * (double)m->head_dim /
                  (double)r->tp * dtype_bytes(t.dtype);
    add(v, t, "forward", 1, each);
    add(v, t, "backward", 1, each);
    t.collective = COLLECTIVE_REDUCE_SCATTER;
    t.what = "gradients of keys and values";
    add(v, t, "backward", 1, each);
}

// A stage in the middle passes on what it made and its gradient; each rank of a tensor group sends
// its piece. Stages are the outermost groups.
static void pipeline(struct volume_parts *v) {
    const struct recipe *r = v->memory.recipe;
    bool one_node = v->memory.cluster->nodes <= 1;
    struct volume_entry t = {.what = "activations to the next stage",
                             .collective = COLLECTIVE_SEND_RECV,
                             .dtype = recipe_activation_dtype(r),
                             .group = GROUP_PIPELINE,
                             .group_size = 2,
                             .ranks_per_node = one_node ? 2 : 1,
                             .count = v->accumulate * (double)r->virtual_stages};
    double each = hidden_bytes(v) / (double)r->tp;
    add(v, t, "forward", 1, each);
    t.what = "gradients to the stage before";
    add(v, t, "backward", 1, each);
}

// Dispatch and combine: every token's copies to the ranks of its experts, and back.
static void experts(struct volume_parts *v) {
    const struct recipe *r = v->memory.recipe;
    struct volume_entry t = {.what = "tokens to experts and back",
                             .collective = COLLECTIVE_ALL_TO_ALL,
                             .dtype = recipe_activation_dtype(r),
                             .group = GROUP_EXPERT,
                             .group_size = (double)r->ep,
                             .ranks_per_node = fmin((double)r->ep, v->local_ranks),
                             .count = blocks_of(v, true)};
    double each = hidden_bytes(v) * (double)v->memory.model->experts_per_token;
    add(v, t, "forward", 2, each);
    add(v, t, "backward", 2 * backward_times(r), each);
}

void volume_model_parallel(struct volume_parts *v) {
    const struct recipe *r = v->memory.recipe;
    if (r->tp > 1)
        tensor(v);
    if (r->cp > 1)
        context(v);
    if (r->pp > 1)
        pipeline(v);
    if (r->ep > 1)
        experts(v);
}
