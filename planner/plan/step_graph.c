// SPDX-License-Identifier: Apache-2.0
// A built step as shardplan.graph/1.
#include "plan/step_timeline.h"

#include <string.h>

#define GROUPS_MAX 16
enum { BUFFER_GATHER, BUFFER_REDUCE, BUFFER_HOST, BUFFER_COUNT };

struct export {
    struct step_builder *b;
    const struct sim_result *run;
    struct graph *out;
    struct graph_group *groups;
    uint8_t group_kinds[GROUPS_MAX];
    struct graph_buffer *buffers;
    struct graph_task *tasks;
    uint32_t offset; // alloc tasks in front
};

static const char *const group_names[TRANSFER_GROUP_COUNT] = {
    "world", "shard", "replica", "node", "host", "tensor", "context", "expert", "pipeline"};

static enum graph_kind kind_of(enum step_op op) {
    switch (op) {
    case OP_FORWARD:
    case OP_BACKWARD:
        return GRAPH_GEMM;
    case OP_CPU_ADAM:
        return GRAPH_ADAM;
    case OP_CPU_PASS:
    case OP_STEP_HOST:
        return GRAPH_HOST;
    case OP_NVME_READ:
        return GRAPH_NVME_READ;
    case OP_NVME_WRITE:
        return GRAPH_NVME_WRITE;
    default:
        break;
    }
    if (step_ops[op].class == CLASS_COMM)
        return GRAPH_COLLECTIVE;
    return step_ops[op].class == CLASS_OFFLOAD ? GRAPH_COPY : GRAPH_ELEMENTWISE;
}

static bool to_device(enum step_op op) {
    return op == OP_PARAM_H2D || op == OP_GRAD_H2D || op == OP_ACTIVATION_H2D ||
           op == OP_UPDATED_H2D;
}

static int64_t group_index(struct export *x, const struct step_meta *m) {
    for (size_t i = 0; i < x->out->group_count; i++)
        if (x->group_kinds[i] == m->group && x->groups[i].size == m->group_size)
            return (int64_t)i;
    if (x->out->group_count == GROUPS_MAX)
        return 0;
    size_t i = x->out->group_count++;
    x->group_kinds[i] = m->group;
    x->groups[i] = (struct graph_group){group_names[m->group], m->group_size ? m->group_size : 1};
    return (int64_t)i;
}

static void need(struct export *x, int buffer, double bytes) {
    if (bytes > (double)x->buffers[buffer].bytes)
        x->buffers[buffer].bytes = (uint64_t)bytes;
}

static void fill_compute(const struct step_builder *b, const struct step_meta *m,
                         struct graph_task *t) {
    const struct step_unit_class *k = &b->classes[b->units[m->unit].class];
    const struct unit_cost *c = m->op == OP_BACKWARD ? &k->backward : &k->forward;
    struct graph_shape *shapes = arena_array(b->arena, c->shape_count + 1, sizeof *shapes);
    for (size_t i = 0; i < c->shape_count; i++)
        shapes[i] = (struct graph_shape){c->shapes[i].m, c->shapes[i].n, c->shapes[i].k,
                                         c->shapes[i].count, c->shapes[i].dtype};
    t->shapes = shapes;
    t->shape_count = c->shape_count;
    t->flop = c->flop;
    t->dtype = recipe_activation_dtype(b->recipe);
}

static void fill_deps(struct export *x, uint32_t id, struct graph_task *t) {
    uint32_t dep_count, wait_count;
    const uint32_t *deps = sim_task_deps(x->b->sim, id, &dep_count);
    const uint32_t *waits = sim_task_host_waits(x->b->sim, id, &wait_count);
    uint32_t *all = arena_array(x->b->arena, (size_t)dep_count + wait_count + 1, sizeof *all);
    for (uint32_t i = 0; i < dep_count; i++)
        all[t->dep_count++] = deps[i] + x->offset;
    for (uint32_t i = 0; i < wait_count; i++) // issued after the host saw it end
        all[t->dep_count++] = waits[i] + x->offset;
    t->deps = all;
}

static void fill_task(struct export *x, uint32_t id) {
    const struct step_builder *b = x->b;
    const struct step_meta *m = &b->meta[id];
    enum step_op op = (enum step_op)m->op;
    struct graph_task *t = &x->tasks[id + x->offset];
    *t = (struct graph_task){.id = id + x->offset,
                             .kind = kind_of(op),
                             .stream = sim_task_stream(b->sim, id),
                             .phase = step_phase_names[m->phase],
                             .unit = m->unit < b->unit_count ? step_unit_name(b, m->unit) : NULL,
                             .bytes = m->bytes,
                             .dtype = (enum dtype)m->dtype,
                             .group = -1,
                             .buffer = GRAPH_NO_BUFFER,
                             .host_blocking = sim_task_blocks_host(b->sim, id),
                             .issue_s = sim_task_issue_s(b->sim, id),
                             .duration_s = m->exact_s,
                             .start_s = x->run->start_s[id],
                             .end_s = x->run->finish_s[id]};
    fill_deps(x, id, t);
    if (t->kind == GRAPH_GEMM)
        fill_compute(b, m, t);
    if (t->kind == GRAPH_COLLECTIVE) {
        t->collective = (enum collective)m->collective;
        t->group = group_index(x, m);
        need(x, m->op == OP_REDUCE || m->op == OP_REPLICA_REDUCE ? BUFFER_REDUCE : BUFFER_GATHER,
             m->bytes);
    }
    if (t->kind == GRAPH_ADAM)
        t->bytes = m->bytes / 28; // elements; docs/method.md §offload
    if (t->kind == GRAPH_COPY) {
        t->direction = to_device(op) ? "h2d" : "d2h";
        need(x, BUFFER_HOST, m->bytes);
    }
}

// One working buffer per role, allocated before the step and freed after it.
static void fill_buffers(struct export *x, uint32_t count) {
    struct graph *out = x->out;
    for (uint32_t i = 0; i < BUFFER_COUNT; i++) {
        struct graph_task t = {.phase = "forward",
                               .stream = STREAM_COMPUTE,
                               .kind = GRAPH_ALLOC,
                               .group = -1,
                               .buffer = i,
                               .bytes = (double)x->buffers[i].bytes};
        t.id = i;
        x->tasks[i] = t;
        t.id = x->offset + count + i;
        t.start_s = t.end_s = x->run->end_s;
        t.kind = GRAPH_FREE;
        t.phase = step_phase_names[STEP_OPTIMIZER];
        x->tasks[t.id] = t;
    }
    out->buffers = x->buffers;
    out->buffer_count = BUFFER_COUNT;
}

void step_graph_fill(struct step_builder *b, const struct sim_result *run, struct graph *out) {
    uint32_t count = sim_task_count(b->sim);
    struct export x = {.b = b, .run = run, .out = out, .offset = BUFFER_COUNT};
    *out = (struct graph){.ranks = b->recipe->world * b->recipe->tp * b->recipe->pp};
    x.groups = arena_array(b->arena, GROUPS_MAX, sizeof *x.groups);
    x.buffers = arena_array(b->arena, BUFFER_COUNT, sizeof *x.buffers);
    x.buffers[BUFFER_GATHER] = (struct graph_buffer){"gather", 0, DEVICE_GPU};
    x.buffers[BUFFER_REDUCE] = (struct graph_buffer){"reduce", 0, DEVICE_GPU};
    x.buffers[BUFFER_HOST] = (struct graph_buffer){"host staging", 0, DEVICE_CPU};
    x.tasks = arena_array(b->arena, (size_t)count + 2 * BUFFER_COUNT, sizeof *x.tasks);
    for (uint32_t i = 0; i < count; i++)
        fill_task(&x, i);
    fill_buffers(&x, count);
    out->groups = x.groups;
    out->streams = step_stream_names;
    out->stream_count = STEP_STREAM_COUNT;
    out->tasks = x.tasks;
    out->task_count = (size_t)count + 2 * BUFFER_COUNT;
    out->step_s = run->end_s;
}
