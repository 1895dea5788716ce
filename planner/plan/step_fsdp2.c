// SPDX-License-Identifier: Apache-2.0
// FSDP2 (fully_shard): order of issue and waits as in torch/distributed/fsdp/_fully_shard
// (_fsdp_param_group.py, _fsdp_collectives.py); docs/method.md §step-fsdp2.
#include "base/units.h"
#include "plan/step_build.h"

// Host time of a group's pre- and post-hooks; docs/method.md §step.
static const double hook_forward_s = 60 * UNITS_MICRO, hook_backward_s = 80 * UNITS_MICRO;

struct fsdp2_group {
    uint32_t gather; // its all-gather in flight, or SIM_NONE
    bool unsharded;
    uint32_t forward_left, backward_left; // units still to run in this pass
};

struct fsdp2 {
    struct step_builder *b;
    struct fsdp2_group *groups;
    uint32_t held; // copy-out whose all-gather output is still held (forward)
    double held_bytes;
    uint32_t last_reduce; // reduce-scatter whose input is still held
    uint32_t final;       // last post-reduce task
    bool sync;            // this micro-step reduces
    bool unsharded_sum;   // gradients of earlier micro-steps wait unsharded
};

static double gathered_bytes(const struct fsdp2 *f, uint32_t group) {
    return f->b->groups[group].gather_bytes;
}

// The collective of a group's dense parameters, then that of its experts, which expert parallelism
// leaves to fewer ranks: ep consecutive ones hold all of them (torchtitan's mesh "efsdp").
static uint32_t both_collectives(struct fsdp2 *f, struct step_collective c, double expert_bytes) {
    struct step_builder *b = f->b;
    c.payload_bytes -= expert_bytes;
    c.dep = step_collective(b, &c);
    uint64_t ranks = c.size / b->recipe->ep;
    if (expert_bytes <= 0 || ranks <= 1)
        return c.dep;
    c.group = GROUP_REPLICA;
    c.size = ranks;
    c.stride = b->recipe->ep;
    c.payload_bytes = expert_bytes;
    return step_collective(b, &c);
}

static double group_hooks(const struct fsdp2 *f, uint32_t group) {
    return f->b->groups[group].experts > 0 ? 2 : 1; // experts are a module of their own
}

static bool offloads(const struct fsdp2 *f) {
    return f->b->recipe->offload_param == OFFLOAD_CPU;
}

static bool reshards(const struct fsdp2 *f, uint32_t group) {
    const struct recipe *r = f->b->recipe;
    if (r->strategy == STRATEGY_FSDP2_NORESHARD)
        return false;
    return !f->b->groups[group].root || r->reshard_root;
}

// Copy-in of the shard, then the all-gather. `backward` gathers of a partly resharded group stay
// within reshard_group ranks.
static void issue_gather(struct fsdp2 *f, uint32_t group, bool backward) {
    struct step_builder *b = f->b;
    const struct recipe *r = b->recipe;
    const struct step_group *g = &b->groups[group];
    uint64_t size = b->shard;
    double own_bytes = step_share(b, g->gather_bytes, g->experts * b->sizes.gather);
    double stored_bytes = step_share(b, g->stored_bytes, g->experts * b->sizes.param);
    bool clone = backward && r->strategy == STRATEGY_FSDP2_RESHARD && !g->root;
    if (clone) { // of the gathered parameters, kept on the GPU since forward
        size = r->reshard_group;
        own_bytes = stored_bytes = g->gather_bytes / (double)size;
    }
    if (offloads(f) && !clone)
        step_copy(b, &(struct step_copy){.op = OP_PARAM_H2D,
                                         .stream = STREAM_COPY,
                                         .to_device = true,
                                         .bytes = stored_bytes,
                                         .unit = g->first,
                                         .dep = SIM_NONE});
    step_kernel(b, OP_COPY_IN, STREAM_COPY, g->first, stored_bytes + own_bytes);
    struct step_collective c = {.op = OP_GATHER,
                                .stream = STREAM_COLLECTIVE,
                                .collective = COLLECTIVE_ALL_GATHER,
                                .group = GROUP_SHARD,
                                .dtype = step_dtype_of(b->sizes.gather),
                                .size = size,
                                .stride = r->tp,
                                .payload_bytes = gathered_bytes(f, group),
                                .unit = g->first,
                                .dep = b->last[STREAM_COPY]};
    step_claim(b, gathered_bytes(f, group));
    if (!backward) {
        step_release(b, f->held_bytes);
        f->held_bytes = gathered_bytes(f, group);
    }
    f->groups[group].gather = both_collectives(f, c, g->experts * b->sizes.gather);
}

static uint32_t copy_out(struct fsdp2 *f, uint32_t group, bool backward) {
    struct step_builder *b = f->b;
    step_stream_wait(b, STREAM_COMPUTE, f->groups[group].gather);
    f->groups[group].gather = SIM_NONE;
    f->groups[group].unsharded = true;
    step_claim(b, gathered_bytes(f, group));
    if (backward)
        step_release(b, gathered_bytes(f, group));
    return step_kernel(b, OP_COPY_OUT, STREAM_COMPUTE, b->groups[group].first,
                       2 * gathered_bytes(f, group));
}

static void unshard_forward(struct fsdp2 *f, uint32_t group) {
    struct step_builder *b = f->b;
    if (f->groups[group].unsharded)
        return;
    b->hook_s += hook_forward_s * group_hooks(f, group);
    if (f->groups[group].gather == SIM_NONE)
        issue_gather(f, group, false);
    step_stream_wait(b, STREAM_COPY, f->held);
    f->held = copy_out(f, group, false);
    bool ahead = b->recipe->forward_prefetch || b->recipe->ep > 1; // torchtitan asks for it then
    if (ahead && group + 1 < b->group_count && !b->groups[group].root)
        issue_gather(f, group + 1, false);
}

static void forward(struct fsdp2 *f) {
    struct step_builder *b = f->b;
    b->phase = STEP_FORWARD;
    f->held = SIM_NONE;
    step_stream_wait(b, STREAM_COPY, b->last[STREAM_COMPUTE]);
    unshard_forward(f, 0);
    for (uint32_t i = 0; i < b->unit_count; i++) {
        uint32_t group = b->units[i].group;
        unshard_forward(f, group);
        bool frees = i == b->groups[group].last && reshards(f, group);
        if (frees) {
            step_release(b, gathered_bytes(f, group));
            f->groups[group].unsharded = false;
        }
        step_compute(b, i, false);
    }
    step_release(b, f->held_bytes);
    f->held_bytes = 0;
}

static void unshard_backward(struct fsdp2 *f, uint32_t group) {
    struct step_builder *b = f->b;
    b->hook_s += hook_backward_s * group_hooks(f, group);
    if (f->groups[group].unsharded)
        return;
    if (f->groups[group].gather == SIM_NONE)
        issue_gather(f, group, true);
    uint32_t out = copy_out(f, group, true);
    step_stream_wait(b, STREAM_COPY, out);
}

// The default prefetch: the group before this one in forward order.
static void prefetch_backward(struct fsdp2 *f, uint32_t group) {
    uint32_t before = group == 0 ? f->b->group_count - 1 : group - 1;
    if (before == 0 || before == group)
        return;
    if (!f->groups[before].unsharded && f->groups[before].gather == SIM_NONE)
        issue_gather(f, before, true);
}

static double keeps_bytes(const struct fsdp2 *f, const struct step_group *g) {
    const struct step_sizes *s = &f->b->sizes;
    return g->trainable * (s->reduce != s->gather ? s->reduce : s->gather);
}

static void keep_unsharded_gradients(struct fsdp2 *f, const struct step_group *g) {
    struct step_builder *b = f->b;
    step_kernel(b, OP_ACCUMULATE, STREAM_COMPUTE, g->first,
                g->trainable * b->sizes.gather + 2 * keeps_bytes(f, g));
}

static void gradients_to_host(struct fsdp2 *f, const struct step_group *g, bool first_micro) {
    struct step_builder *b = f->b;
    double bytes = g->trainable / (double)b->shard * b->sizes.param;
    f->final = step_copy(b, &(struct step_copy){.op = OP_GRAD_D2H,
                                                .stream = STREAM_REDUCE,
                                                .host_blocking = !first_micro,
                                                .bytes = bytes,
                                                .unit = g->first,
                                                .dep = f->final});
}

static void post_backward(struct fsdp2 *f, uint32_t group, bool first_micro) {
    struct step_builder *b = f->b;
    const struct step_group *g = &b->groups[group];
    f->groups[group].unsharded = false;
    if (g->trainable == 0)
        return;
    if (!f->sync) {
        // The sum stays unsharded; a further micro-step's own gradients are freed once added.
        double kept = keeps_bytes(f, g), own = g->trainable * b->sizes.gather;
        step_release(b, f->unsharded_sum ? own : 0);
        step_claim(b, f->unsharded_sum ? 0 : kept - own);
        keep_unsharded_gradients(f, g);
        return;
    }
    step_stream_wait(b, STREAM_COMPUTE, f->last_reduce);
    step_claim(b, g->trainable * b->sizes.reduce);
    step_release(b, g->trainable * b->sizes.gather);
    if (f->unsharded_sum)
        step_release(b, keeps_bytes(f, g));
    uint32_t copied = step_kernel(b, OP_GRAD_COPY, STREAM_COMPUTE, g->first,
                                  g->trainable * (b->sizes.gather + b->sizes.reduce));
    struct step_collective c = {.op = OP_REDUCE,
                                .stream = STREAM_COLLECTIVE,
                                .collective = COLLECTIVE_REDUCE_SCATTER,
                                .group = GROUP_SHARD,
                                .dtype = step_dtype_of(b->sizes.reduce),
                                .size = b->shard,
                                .stride = b->recipe->tp,
                                .payload_bytes = g->trainable * b->sizes.reduce,
                                .unit = g->first,
                                .dep = copied};
    step_release(b, g->trainable * b->sizes.reduce);
    step_keep_gradients(b, step_share(b, g->trainable, g->experts) * b->sizes.param,
                        step_share(b, b->trainable, b->experts) * b->sizes.param);
    c.dep = f->final = f->last_reduce = both_collectives(f, c, g->experts * b->sizes.reduce);
    if (b->replicas > 1) {
        c.op = OP_REPLICA_REDUCE;
        c.stream = STREAM_REPLICA;
        c.collective = COLLECTIVE_ALL_REDUCE;
        c.group = GROUP_REPLICA;
        c.size = b->replicas;
        c.stride = b->shard * b->recipe->tp;
        c.payload_bytes = step_share(b, g->trainable - g->experts, 0) * b->sizes.reduce;
        c.dep = f->final = step_collective(b, &c);
        c.payload_bytes = step_share(b, g->experts, g->experts) * b->sizes.reduce;
        if (g->experts > 0)
            f->final = step_collective(b, &c);
    }
    if (offloads(f))
        gradients_to_host(f, g, first_micro);
}

static void backward(struct fsdp2 *f, bool first_micro) {
    struct step_builder *b = f->b;
    b->phase = STEP_BACKWARD;
    f->last_reduce = SIM_NONE;
    unshard_backward(f, 0); // the root's hook sits on the model's output
    prefetch_backward(f, 0);
    for (uint32_t i = b->unit_count; i-- > 0;) {
        uint32_t group = b->units[i].group;
        if (i == b->groups[group].last && group != 0) {
            unshard_backward(f, group);
            prefetch_backward(f, group);
        }
        step_claim(b, b->classes[b->units[i].class].trainable * b->sizes.gather);
        if (i == b->groups[group].first)
            step_release(b, gathered_bytes(f, group));
        step_compute(b, i, true);
        if (i == b->groups[group].first)
            post_backward(f, group, first_micro);
    }
    step_stream_wait(b, STREAM_COMPUTE, f->final);
}

void step_build_fsdp2(struct step_builder *b) {
    struct fsdp2 f = {.b = b, .final = SIM_NONE};
    f.groups = arena_array(b->arena, b->group_count, sizeof *f.groups);
    for (uint32_t i = 0; i < b->group_count; i++)
        f.groups[i].gather = SIM_NONE;
    const struct recipe *r = b->recipe;
    for (uint64_t micro = 0; micro < r->grad_accum; micro++) {
        f.sync = !r->no_sync || micro + 1 == r->grad_accum;
        forward(&f);
        backward(&f, micro == 0);
        f.unsharded_sum = !f.sync;
        step_micro_done(b);
    }
}
