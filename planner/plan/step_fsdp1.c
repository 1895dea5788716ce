// SPDX-License-Identifier: Apache-2.0
// FSDP1 (FullyShardedDataParallel): limiter, prefetch modes and waits as in torch/distributed/fsdp
// (_runtime_utils.py, _limiter_utils.py); docs/method.md §step-fsdp1.
#include "base/units.h"
#include "plan/step_build.h"

// Host time of a unit's hooks; docs/method.md §step.
static const double hook_forward_s = 80 * UNITS_MICRO, hook_backward_s = 100 * UNITS_MICRO;
// torch/distributed/fsdp/_limiter_utils.py: all-gathers allowed in flight.
enum { INFLIGHT_MAX = 2 };

struct fsdp1 {
    struct step_builder *b;
    bool *unsharded;                  // per group
    bool *issued;                     // all-gather on its way
    uint32_t frees[INFLIGHT_MAX + 1]; // compute tasks after which a unit was freed, oldest first
    uint32_t free_count;
    uint32_t last_gather, final;
    bool sync, unsharded_sum; // unsharded_sum: gradients of earlier micro-steps wait
};

static bool gathers(const struct fsdp1 *f) {
    return f->b->recipe->strategy != STRATEGY_FSDP1_NOSHARD;
}

static bool frees_after_forward(const struct fsdp1 *f, uint32_t group) {
    const struct recipe *r = f->b->recipe;
    bool grad_op =
        r->strategy == STRATEGY_FSDP1_GRAD_OP || r->strategy == STRATEGY_FSDP1_HYBRID_ZERO2;
    return gathers(f) && !grad_op && (!f->b->groups[group].root || r->reshard_root);
}

// The host waits for the oldest free before it may issue a third gather.
static void limit(struct fsdp1 *f) {
    if (!f->b->recipe->limit_all_gathers || f->free_count < INFLIGHT_MAX)
        return;
    sim_host_wait(f->b->sim, f->frees[0]);
    for (uint32_t i = 1; i < f->free_count; i++)
        f->frees[i - 1] = f->frees[i];
    f->free_count--;
}

static void record_free(struct fsdp1 *f, uint32_t compute) {
    if (f->free_count <= INFLIGHT_MAX)
        f->frees[f->free_count++] = compute;
}

static void unshard(struct fsdp1 *f, uint32_t group) {
    struct step_builder *b = f->b;
    const struct step_group *g = &b->groups[group];
    if (f->unsharded[group] || f->issued[group] || !gathers(f))
        return;
    double stored_bytes = g->stored_bytes / (double)b->shard;
    if (b->recipe->offload_param == OFFLOAD_CPU)
        step_copy(b, &(struct step_copy){.op = OP_PARAM_H2D,
                                         .stream = STREAM_COPY,
                                         .to_device = true,
                                         .bytes = stored_bytes,
                                         .unit = g->first,
                                         .dep = SIM_NONE});
    if (b->sizes.param != b->sizes.gather)
        step_kernel(b, OP_COPY_IN, STREAM_COPY, g->first,
                    stored_bytes + g->gather_bytes / (double)b->shard);
    limit(f);
    struct step_collective c = {.op = OP_GATHER,
                                .stream = STREAM_COLLECTIVE,
                                .collective = COLLECTIVE_ALL_GATHER,
                                .group = GROUP_SHARD,
                                .dtype = step_dtype_of(b->sizes.gather),
                                .size = b->shard,
                                .stride = b->recipe->tp,
                                .payload_bytes = g->gather_bytes,
                                .unit = g->first,
                                .dep = b->last[STREAM_COPY]};
    step_claim(b, g->gather_bytes);
    f->last_gather = step_collective(b, &c);
    f->issued[group] = true;
}

// Compute waits for the whole unshard stream, that is for every gather issued so far.
static void use(struct fsdp1 *f, uint32_t group, double hook_s) {
    f->b->hook_s += hook_s;
    unshard(f, group);
    if (f->issued[group])
        step_stream_wait(f->b, STREAM_COMPUTE, f->last_gather);
    f->issued[group] = false;
    f->unsharded[group] = true;
}

static void forward(struct fsdp1 *f) {
    struct step_builder *b = f->b;
    b->phase = STEP_FORWARD;
    step_stream_wait(b, STREAM_COPY, b->last[STREAM_COMPUTE]);
    step_stream_wait(b, STREAM_COLLECTIVE, b->last[STREAM_COMPUTE]);
    use(f, 0, hook_forward_s);
    for (uint32_t i = 0; i < b->unit_count; i++) {
        uint32_t group = b->units[i].group;
        if (i == b->groups[group].first && group != 0)
            use(f, group, hook_forward_s);
        if (b->recipe->forward_prefetch && group != 0 && group + 1 < b->group_count)
            unshard(f, group + 1);
        bool frees = i == b->groups[group].last && frees_after_forward(f, group);
        if (frees)
            step_release(b, b->groups[group].gather_bytes);
        uint32_t id = step_compute(b, i, false);
        if (frees) {
            f->unsharded[group] = false;
            record_free(f, id);
        }
    }
}

static void prefetch(struct fsdp1 *f, uint32_t group, enum prefetch when) {
    uint32_t before = group == 0 ? f->b->group_count - 1 : group - 1;
    if (f->b->recipe->backward_prefetch == when && before != 0 && before != group)
        unshard(f, before);
}

static void reduce(struct fsdp1 *f, const struct step_group *g) {
    struct step_builder *b = f->b;
    const struct recipe *r = b->recipe;
    bool sharded = gathers(f);
    step_stream_wait(b, STREAM_REDUCE, b->last[STREAM_COMPUTE]);
    bool casts = b->sizes.gather != b->sizes.reduce;
    if (casts) {
        step_claim(b, g->trainable * b->sizes.reduce);
        step_release(b, g->trainable * b->sizes.gather);
    }
    if (f->unsharded_sum)
        step_release(b, g->trainable * b->sizes.gather);
    // A cast where the types differ, then the pre-division in place: two kernels.
    double passes = (casts ? b->sizes.gather + b->sizes.reduce : 0) + 2 * b->sizes.reduce;
    uint32_t cast = step_kernel(b, OP_GRAD_COPY, STREAM_REDUCE, g->first, g->trainable * passes);
    struct step_collective c = {.op = OP_REDUCE,
                                .stream = STREAM_COLLECTIVE,
                                .collective =
                                    sharded ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_REDUCE,
                                .group = sharded ? GROUP_SHARD : GROUP_WORLD,
                                .dtype = step_dtype_of(b->sizes.reduce),
                                .size = sharded ? b->shard : b->replicas,
                                .stride = r->tp,
                                .payload_bytes = g->trainable * b->sizes.reduce,
                                .unit = g->first,
                                .dep = cast};
    step_release(b, g->trainable * b->sizes.reduce);
    step_keep_gradients(b, g->trainable / (double)b->shard * b->sizes.param,
                        b->trainable / (double)b->shard * b->sizes.param);
    c.dep = step_collective(b, &c);
    if (sharded && b->replicas > 1) {
        c.op = OP_REPLICA_REDUCE;
        c.stream = STREAM_REPLICA;
        c.collective = COLLECTIVE_ALL_REDUCE;
        c.group = GROUP_REPLICA;
        c.size = b->replicas;
        c.stride = b->shard * r->tp;
        c.payload_bytes /= (double)b->shard;
        c.dep = step_collective(b, &c);
    }
    // Post-divide, cast to the stored type, accumulate.
    double own = g->trainable / (double)b->shard;
    step_stream_wait(b, STREAM_REDUCE, c.dep);
    f->final = step_kernel(b, OP_GRAD_COPY, STREAM_REDUCE, g->first,
                           own * (b->sizes.reduce + b->sizes.param));
    if (r->offload_param == OFFLOAD_CPU)
        f->final = step_copy(b, &(struct step_copy){.op = OP_GRAD_D2H,
                                                    .stream = STREAM_REDUCE,
                                                    .bytes = own * b->sizes.param,
                                                    .unit = g->first,
                                                    .dep = f->final});
}

static void backward(struct fsdp1 *f) {
    struct step_builder *b = f->b;
    b->phase = STEP_BACKWARD;
    use(f, 0, hook_backward_s); // the root's hook sits on the model's output
    prefetch(f, 0, PREFETCH_BACKWARD_PRE);
    for (uint32_t i = b->unit_count; i-- > 0;) {
        uint32_t group = b->units[i].group;
        const struct step_group *g = &b->groups[group];
        if (i == g->last && group != 0) {
            use(f, group, hook_backward_s);
            prefetch(f, group, PREFETCH_BACKWARD_PRE);
        }
        bool frees =
            i == g->first && gathers(f) && (f->sync || frees_after_forward(f, group) || g->root);
        step_claim(b, b->classes[b->units[i].class].trainable * b->sizes.gather);
        if (frees)
            step_release(b, g->gather_bytes);
        uint32_t id = step_compute(b, i, true);
        if (i != g->first)
            continue;
        if (frees) {
            f->unsharded[group] = false;
            record_free(f, id);
        }
        if (group != 0) // nothing follows the root
            prefetch(f, group, PREFETCH_BACKWARD_POST);
        if (g->trainable > 0 && f->sync)
            reduce(f, g);
        else if (g->trainable > 0) { // unsharded gradients add up in the compute type
            step_release(b, f->unsharded_sum ? g->trainable * b->sizes.gather : 0);
            step_kernel(b, OP_ACCUMULATE, STREAM_COMPUTE, g->first,
                        3 * g->trainable * b->sizes.gather);
        }
    }
    step_stream_wait(b, STREAM_COMPUTE, f->final);
    if (b->recipe->offload_param == OFFLOAD_CPU && f->final != SIM_NONE)
        sim_host_wait(b->sim, f->final);
}

void step_build_fsdp1(struct step_builder *b) {
    struct fsdp1 f = {.b = b, .final = SIM_NONE};
    f.unsharded = arena_array(b->arena, b->group_count, sizeof *f.unsharded);
    f.issued = arena_array(b->arena, b->group_count, sizeof *f.issued);
    const struct recipe *r = b->recipe;
    for (uint64_t micro = 0; micro < r->grad_accum; micro++) {
        f.sync = !r->no_sync || micro + 1 == r->grad_accum;
        forward(&f);
        backward(&f);
        f.unsharded_sum = !f.sync;
        step_micro_done(b);
    }
}
