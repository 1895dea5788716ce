// SPDX-License-Identifier: Apache-2.0
// DeepSpeed ZeRO-3, MiCS and ZeRO++: gathers as the coordinator issues them, buckets of gradients;
// runtime/zero/partitioned_param_coordinator.py and stage3.py; docs/method.md §step-zero3.
#include "base/units.h"
#include "cost/volume.h"
#include "cost/zero3.h"
#include "plan/step_build.h"

#include <assert.h>
#include <math.h>

static const double module_hook_s = 20 * UNITS_MICRO; // Python per module and direction
// Two launches and a wait for the stream, per parameter whose secondary copy is made.
static const double save_secondary_s = 30 * UNITS_MICRO;
// Fetch and reduction events the host lets stand before it waits for the oldest.
enum { EVENTS_MAX = 2 };
// ZeRO++ quantisation: int8 weights and int4 gradients plus a scale per group.
static const double quantized_weight_bytes = 1 + 4.0 / 8192, quantized_gradient_bytes = 0.5;

struct event_queue {
    uint32_t tasks[EVENTS_MAX + 1];
    uint32_t count;
};

struct bucket_shape {
    double numel, scales; // scales: groups that share one, 0 = not quantised
    uint32_t count;
};

struct zero3_step {
    struct step_builder *b;
    const struct zero3_hook *hooks; // of one micro-step, in order
    uint32_t hook_count;
    // Of the micro-step being built.
    uint32_t *gather_task; // per gather: its all-gather, SIM_NONE once unpacked
    double *gather_bytes;
    uint32_t gather_count, gather_unpacked;
    struct event_queue fetched, reduced;
    enum step_stream gather_stream, reduce_stream;
    // Elements gathered per element of the base model: adapters, and each parameter's padding.
    double with_adapters, with_padding[2]; // forward, backward
    const struct model_unit *ordered;      // whose gradients `order` lists as backward makes them
    const struct tensor *order[VOLUME_UNIT_TENSORS_MAX];
    size_t order_count;
    double filled;               // elements in the gradient bucket
    struct bucket_shape *shapes; // with qgZ: what is in it, by shape
    uint32_t shape_count, shapes_max;
    // hpZ: elements without a secondary copy; elements, padded, and tensors of it for each.
    double unsaved, saved_per_element, saves_per_element;
    double live, released; // gathered elements held, and freed but not yet told the engine
    uint64_t micro;
};

// The host keeps at most EVENTS_MAX older events standing.
static void push_event(struct step_builder *b, struct event_queue *q, uint32_t task) {
    if (q->count > EVENTS_MAX) {
        sim_host_wait(b->sim, q->tasks[0]);
        for (uint32_t i = 1; i < q->count; i++)
            q->tasks[i - 1] = q->tasks[i];
        q->count--;
    }
    q->tasks[q->count++] = task;
}

static double parameter_bytes(const struct zero3_step *z) {
    return z->b->recipe->quantized_weights ? quantized_weight_bytes : z->b->sizes.gather;
}

static bool params_on_host(const struct recipe *r) {
    return r->offload_param != OFFLOAD_NONE;
}

double step_nvme_share(const struct step_builder *b) {
    double own = b->padding * b->elements / (double)b->shard,
           kept = (double)b->recipe->max_in_cpu_elements;
    return own > kept ? 1 - kept / own : 0;
}

static void fetch_shards(struct zero3_step *z, double own, uint32_t unit) {
    struct step_builder *b = z->b;
    const struct recipe *r = b->recipe;
    double bytes = own * b->sizes.param, swapped = step_nvme_share(b) * bytes;
    uint32_t dep = SIM_NONE;
    if (r->offload_param == OFFLOAD_NVME && swapped > 0)
        dep = step_swap(b, true, swapped, SIM_NONE, false);
    step_copy(b, &(struct step_copy){.op = OP_PARAM_H2D,
                                     .stream = z->gather_stream,
                                     .to_device = true,
                                     .host_blocking = true,
                                     .bytes = bytes,
                                     .unit = unit,
                                     .dep = dep});
}

// Pack own shards, then one coalesced all-gather. hpZ gathers over all ranks only in the first
// forward after a step, then from the secondary copy inside the group.
static void issue_gather(struct zero3_step *z, uint64_t elements, uint32_t unit, bool backward) {
    struct step_builder *b = z->b;
    const struct recipe *r = b->recipe;
    uint64_t size = b->shard;
    if (r->strategy == STRATEGY_ZEROPP && r->hpz && (backward || z->micro > 0))
        size = r->shard_group;
    double n = z->with_padding[backward] * (double)elements / (double)r->tp;
    double own = n / (double)size;
    if (params_on_host(r))
        fetch_shards(z, own, unit);
    step_kernel(b, OP_COPY_IN, z->gather_stream, unit, 2 * own * b->sizes.gather);
    struct step_collective c = {
        .op = OP_GATHER,
        .stream = STREAM_COLLECTIVE,
        .collective = r->all_reduce_for_fetch ? COLLECTIVE_ALL_REDUCE : COLLECTIVE_ALL_GATHER,
        .group = size == r->world ? GROUP_WORLD : GROUP_SHARD,
        .dtype = r->quantized_weights ? DTYPE_INT8 : step_dtype_of(b->sizes.gather),
        .size = size,
        .stride = r->tp,
        .payload_bytes = n * parameter_bytes(z),
        .unit = unit,
        .dep = b->last[z->gather_stream]};
    step_claim(b, z->with_adapters * (double)elements / (double)r->tp * b->sizes.gather);
    z->gather_task[z->gather_count] = step_collective(b, &c);
    z->gather_bytes[z->gather_count++] = n * b->sizes.gather;
}

// Wait for every gather up to `newest` and build the parameters out of their buffers.
static void unpack(struct zero3_step *z, int64_t newest, uint32_t unit) {
    struct step_builder *b = z->b;
    while ((int64_t)z->gather_unpacked <= newest && z->gather_unpacked < z->gather_count) {
        uint32_t i = z->gather_unpacked++;
        step_stream_wait(b, z->gather_stream, z->gather_task[i]);
        uint32_t id = step_kernel(b, OP_COPY_OUT, z->gather_stream, unit, 2 * z->gather_bytes[i]);
        push_event(b, &z->fetched, id);
    }
}

static void run_hooks(struct zero3_step *z, uint32_t first, uint32_t end) {
    struct step_builder *b = z->b;
    for (uint32_t i = first; i < end; i++) {
        const struct zero3_hook *h = &z->hooks[i];
        b->hook_s += module_hook_s;
        z->released += z->live + (double)(h->demand_elements + h->prefetch_elements) -
                       (double)h->live_elements;
        z->live = (double)h->live_elements;
        if (h->demand_elements > 0)
            issue_gather(z, h->demand_elements, h->unit, h->backward);
        unpack(z, h->newest_gather, h->unit);
        if (z->gather_stream != STREAM_COMPUTE)
            step_stream_wait(b, STREAM_COMPUTE, b->last[z->gather_stream]);
        if (h->prefetch_elements > 0)
            issue_gather(z, h->prefetch_elements, h->unit, h->backward);
    }
}

// ---- gradients ----------------------------------------------------------------------------------

// qgZ works tensor by tensor: 4-bit codes inside the node, then between nodes, each with its
// scales; what it can't take is scattered, also one by one (runtime/comm/coalesced_collectives.py,
// all_to_all_quant_reduce).
static uint32_t reduce_quantized(struct zero3_step *z, const struct step_collective *scatter) {
    struct step_builder *b = z->b;
    const uint64_t here = b->ranks_per_node, nodes = b->recipe->world / here;
    const double scale_bytes = 4;
    uint32_t dep = scatter->dep;
    for (uint32_t i = 0; i < z->shape_count; i++) {
        const struct bucket_shape *s = &z->shapes[i];
        struct step_collective c = *scatter;
        c.repeat = s->count;
        c.dep = dep;
        c.payload_bytes = s->numel * b->sizes.reduce;
        bool quantised = s->scales > 0;
        for (int half = 0; half < 2 && quantised; half++) {
            double share = half == 0 ? 1 : 1 / (double)here;
            c.collective = COLLECTIVE_ALL_TO_ALL;
            c.dtype = DTYPE_INT4;
            c.group = half == 0 ? GROUP_NODE : GROUP_REPLICA;
            c.size = half == 0 ? here : nodes;
            c.stride = half == 0 ? 1 : here;
            c.payload_bytes = share * s->numel * quantized_gradient_bytes;
            c.dep = step_collective(b, &c);
            c.dtype = DTYPE_FP32;
            c.payload_bytes = share * s->scales * scale_bytes;
            c.dep = step_collective(b, &c);
        }
        dep = quantised ? c.dep : step_collective(b, &c);
    }
    return dep;
}

static void add_shape(struct zero3_step *z, const struct tensor *t, double numel) {
    const struct recipe *r = z->b->recipe;
    double scales = volume_quantises(t, r->world) ? volume_quantised_groups(t, r->world) : 0;
    double each = (double)tensor_numel(t), ranks = (double)r->world;
    if (scales == 0) // scattered, so padded to the ranks
        numel *= r->lora_rank > 0 ? z->b->padding : ceil(each / ranks) * ranks / each;
    for (uint32_t i = 0; i < z->shape_count; i++)
        if (z->shapes[i].numel == numel && z->shapes[i].scales == scales) {
            z->shapes[i].count++;
            return;
        }
    assert(z->shape_count < z->shapes_max);
    z->shapes[z->shape_count++] = (struct bucket_shape){numel, scales, 1};
}

// Optimizer offload: the running sum goes to the host and comes back in every micro-step, and the
// fp32 gradient leaves at the boundary. docs/method.md §offload.
static void offload_gradients(struct zero3_step *z, uint32_t unit, uint32_t dep, bool boundary) {
    struct step_builder *b = z->b;
    double own = b->padding * z->filled / (double)b->shard;
    const double fp32_bytes = 4;
    struct step_copy c = {.op = z->micro > 0 ? OP_GRAD_H2D : OP_GRAD_D2H,
                          .stream = z->reduce_stream,
                          .to_device = z->micro > 0,
                          .bytes = own * b->sizes.grad,
                          .unit = unit,
                          .dep = dep};
    for (int i = 0; i < 2; i++) { // out then back in the first micro-step, else back then out
        c.dep = step_copy(b, &c);
        c.to_device = !c.to_device;
        c.op = c.to_device ? OP_GRAD_H2D : OP_GRAD_D2H;
    }
    c.op = OP_GRAD_D2H;
    c.to_device = false;
    c.bytes = own * fp32_bytes;
    if (boundary)
        c.dep = step_copy(b, &c);
    if (boundary && step_adam_in_backward(b->recipe))
        step_adam(b, own, c.dep, false);
}

static void flush(struct zero3_step *z, uint32_t unit, bool boundary) {
    struct step_builder *b = z->b;
    const struct recipe *r = b->recipe;
    if (z->filled <= 0)
        return;
    double bytes = z->filled * b->sizes.reduce, own = b->padding * z->filled / (double)b->shard;
    // A parameter larger than the bucket is scattered in any case.
    bool scatters = r->reduce_scatter || z->filled > (double)r->reduce_bucket_elements;
    struct step_collective c = {.op = OP_REDUCE,
                                .stream = STREAM_COLLECTIVE,
                                .collective =
                                    scatters ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_REDUCE,
                                .group = b->shard == r->world ? GROUP_WORLD : GROUP_SHARD,
                                .dtype = step_dtype_of(b->sizes.reduce),
                                .size = b->shard,
                                .stride = r->tp,
                                .payload_bytes = scatters ? b->padding * bytes : bytes,
                                .unit = unit};
    // Concatenate, then divide; qgZ divides, quantises and dequantises, which moves no more.
    c.dep = step_kernel(b, OP_GRAD_COPY, z->reduce_stream, unit, 4 * bytes);
    if (r->quantized_gradients && r->world > b->ranks_per_node)
        c.dep = reduce_quantized(z, &c);
    else
        c.dep = step_collective(b, &c);
    if (b->replicas > 1 && boundary) { // MiCS: shards across the replicas, once per step
        c.op = OP_REPLICA_REDUCE;
        c.stream = STREAM_REPLICA;
        c.collective = COLLECTIVE_ALL_REDUCE;
        c.group = GROUP_REPLICA;
        c.size = b->replicas;
        c.stride = b->shard * r->tp;
        c.payload_bytes = own * b->sizes.grad;
        c.dep = step_collective(b, &c);
    }
    step_stream_wait(b, z->reduce_stream, c.dep);
    uint32_t id = step_kernel(b, OP_GRAD_COPY, z->reduce_stream, unit, 2 * own * b->sizes.grad);
    if (r->offload_optimizer != OFFLOAD_NONE)
        offload_gradients(z, unit, id, boundary);
    push_event(b, &z->reduced, b->last[z->reduce_stream]);
    z->filled = 0;
    z->shape_count = 0;
}

static void fill(struct zero3_step *z, uint32_t unit, bool boundary) {
    struct step_builder *b = z->b;
    const struct step_unit_class *k = &b->classes[b->units[unit].class];
    if (k->trainable <= 0)
        return;
    if (z->reduce_stream != STREAM_COMPUTE)
        step_stream_wait(b, z->reduce_stream, b->last[STREAM_COMPUTE]);
    step_release(b, k->trainable * b->sizes.gather);
    step_kernel(b, OP_GRAD_COPY, z->reduce_stream, unit, 2 * k->trainable * b->sizes.reduce);
    double bucket = (double)b->recipe->reduce_bucket_elements, share = k->trainable / k->elements;
    bool quantized = b->recipe->quantized_gradients;
    if (z->ordered != k->unit)
        z->order_count = volume_backward_order(k->unit, z->order);
    z->ordered = k->unit;
    for (size_t i = 0; i < z->order_count; i++) {
        const struct tensor *t = z->order[i];
        double numel = (double)tensor_numel(t) / (double)b->recipe->tp * share;
        for (uint64_t copy = 0; copy < t->count; copy++) {
            if (z->filled + numel > bucket)
                flush(z, unit, boundary);
            z->filled += numel;
            if (quantized)
                add_shape(z, t, numel);
        }
    }
}

// ---- micro-steps --------------------------------------------------------------------------------

// hpZ: a parameter's first release after a step clears this rank's part of the secondary copy and
// fills it, and the host waits for that (runtime/zero/partition_parameters.py,
// _partition_param_sec), so from then on it no longer runs ahead. With parameters on the host the
// copy goes there.
static void save_secondary(struct zero3_step *z) {
    struct step_builder *b = z->b;
    const struct recipe *r = b->recipe;
    double fresh = fmin(z->released, z->unsaved);
    if (fresh <= 0)
        return;
    z->unsaved -= fresh;
    double own_bytes = fresh * z->saved_per_element / (double)r->shard_group * b->sizes.param;
    b->hook_s += fresh * z->saves_per_element * save_secondary_s;
    if (params_on_host(r)) {
        step_copy(b, &(struct step_copy){.op = OP_SECONDARY_D2H,
                                         .stream = STREAM_COMPUTE,
                                         .host_blocking = true,
                                         .bytes = own_bytes,
                                         .unit = STEP_NO_UNIT,
                                         .dep = SIM_NONE});
        return;
    }
    sim_host_wait(b->sim,
                  step_kernel(b, OP_SECONDARY, STREAM_COMPUTE, STEP_NO_UNIT, 3 * own_bytes));
}

// Elements freed since the last task leave with the next one.
static void release(struct zero3_step *z) {
    double elements = z->released * z->with_adapters / (double)z->b->recipe->tp;
    step_release(z->b, elements * z->b->sizes.gather);
    save_secondary(z);
    z->released = 0;
}

static uint32_t hooks_of(const struct zero3_step *z, uint32_t from, uint32_t unit, bool backward) {
    uint32_t i = from;
    while (i < z->hook_count && z->hooks[i].backward == backward &&
           (z->hooks[i].unit == unit || z->hooks[i].unit == UINT32_MAX))
        i++;
    return i;
}

static void micro_step(struct zero3_step *z, bool boundary) {
    struct step_builder *b = z->b;
    uint32_t hook = 0;
    z->gather_count = z->gather_unpacked = 0;
    z->fetched.count = 0;
    b->phase = STEP_FORWARD;
    if (z->gather_stream != STREAM_COMPUTE)
        step_stream_wait(b, z->gather_stream, b->last[STREAM_COMPUTE]);
    for (uint32_t i = 0; i < b->unit_count; i++) {
        uint32_t end = hooks_of(z, hook, i, false);
        run_hooks(z, hook, end);
        hook = end;
        release(z);
        step_compute(b, i, false);
    }
    while (hook < z->hook_count && !z->hooks[hook].backward) { // a tied head uses the table again
        run_hooks(z, hook, hook + 1);
        hook++;
    }
    b->phase = STEP_BACKWARD;
    // The root, and a tied head, whose hooks carry the embedding's unit.
    bool tied = b->model->tied_embeddings;
    while (hook < z->hook_count && b->unit_count > 1 &&
           (z->hooks[hook].unit == UINT32_MAX || (tied && z->hooks[hook].unit == 0))) {
        run_hooks(z, hook, hook + 1);
        hook++;
    }
    for (uint32_t i = b->unit_count; i-- > 0;) {
        uint32_t end = hooks_of(z, hook, i, true);
        run_hooks(z, hook, end);
        hook = end;
        release(z);
        step_claim(b, b->classes[b->units[i].class].trainable * b->sizes.gather);
        step_compute(b, i, true);
        fill(z, i, boundary);
    }
    z->released += z->live;
    z->live = 0;
    release(z);
    flush(z, 0, boundary);
    if (z->reduced.count > 0) // the epilogue synchronizes the reduction stream
        sim_host_wait(b->sim, z->reduced.tasks[z->reduced.count - 1]);
    step_stream_wait(b, STREAM_COMPUTE, b->last[z->reduce_stream]);
    z->reduced.count = 0;
}

static double over(double part, double of) {
    return of > 0 ? part / of : 0;
}

static void set_factors(struct zero3_step *z, const struct zero3_traffic *t) {
    struct step_builder *b = z->b;
    const struct recipe *r = b->recipe;
    struct zero3_adapters adapters = zero3_adapters(b->model, r, t);
    struct zero3_padding more = zero3_padding(t, b->shard);
    z->with_adapters = 1 + adapters.per_element;
    z->with_padding[0] = z->with_adapters + over(more.forward, (double)t->forward_elements);
    z->with_padding[1] = z->with_adapters + over(more.backward, (double)t->backward_elements);
    b->persistent = (double)t->persistent_elements + adapters.persistent_elements + more.persistent;
    if (r->quantized_gradients) {
        z->shapes_max = b->class_count * VOLUME_UNIT_TENSORS_MAX;
        z->shapes = arena_array_raw(b->arena, z->shapes_max + 1, sizeof *z->shapes);
    }
    if (r->strategy != STRATEGY_ZEROPP || !r->hpz)
        return;
    z->unsaved = (double)(b->model->parameters - t->persistent_elements);
    double all = r->lora_rank > 0 ? b->elements + b->trainable : b->padding * b->elements;
    z->saved_per_element = over(all - b->persistent, z->unsaved);
    z->saves_per_element =
        over(volume_parameter_count(b->model) - (double)t->persistent_parameters, z->unsaved);
}

bool step_build_zero3(struct step_builder *b, struct err *e) {
    const struct recipe *r = b->recipe;
    struct zero3_step z = {
        .b = b, .gather_stream = STREAM_COMPUTE, .reduce_stream = STREAM_COMPUTE};
    struct zero3_traffic fresh;
    const struct zero3_traffic *traffic = r->zero3;
    if (recipe_overlaps(r)) {
        z.gather_stream = STREAM_COPY;
        z.reduce_stream = STREAM_REDUCE;
    }
    if (traffic == NULL || traffic->hooks == NULL) {
        if (!zero3_record(b->model, r, b->arena, b->arena, &fresh, e))
            return false;
        traffic = &fresh;
    }
    z.hooks = traffic->hooks;
    z.hook_count = traffic->hook_count;
    set_factors(&z, traffic);
    z.gather_task = arena_array_raw(b->arena, traffic->calls + 1, sizeof *z.gather_task);
    z.gather_bytes = arena_array_raw(b->arena, traffic->calls + 1, sizeof *z.gather_bytes);
    for (z.micro = 0; z.micro < r->grad_accum; z.micro++) {
        micro_step(&z, z.micro + 1 == r->grad_accum);
        step_micro_done(b);
    }
    return true;
}
