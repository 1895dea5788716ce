// SPDX-License-Identifier: Apache-2.0
// The messages of a task graph: equal tasks become one message with a count.
#include <math.h>
#include <string.h>

#include "bench/messages.h"
#include "bench/messages_private.h"
#include "describe/graph.h"
#include "kernels/adam.h"

struct builder {
    const struct graph *graph;
    struct arena *arena;
    struct messages *out;
    size_t room;
};

static bool same_message(const struct message *a, const struct message *b) {
    const struct bench_point *p = &a->point, *q = &b->point;
    return strcmp(a->kind, b->kind) == 0 && strcmp(a->dtype, b->dtype) == 0 &&
           a->group_size == b->group_size && a->call_bytes == b->call_bytes && p->m == q->m &&
           p->n == q->n && p->k == q->k && p->dtype == q->dtype &&
           (a->group == b->group || (a->group && b->group && strcmp(a->group, b->group) == 0));
}

static void add(struct builder *b, const struct message *m) {
    struct messages *out = b->out;
    for (size_t i = 0; i < out->count; i++) {
        struct message *old = &out->items[i];
        if (!same_message(old, m))
            continue;
        old->count += m->count;
        old->payload_bytes += m->payload_bytes;
        old->sent_bytes += m->sent_bytes;
        old->planned_s += m->planned_s;
        return;
    }
    if (out->count == b->room) {
        size_t room = b->room ? 2 * b->room : 64;
        struct message *items = arena_array(b->arena, room, sizeof(*items));
        if (out->count > 0)
            memcpy(items, out->items, out->count * sizeof(*items));
        out->items = items;
        b->room = room;
    }
    out->items[out->count++] = *m;
}

// The share of the task's time that a shape takes, by its work.
static void add_shapes(struct builder *b, const struct graph_task *t) {
    double all = 0;
    for (size_t i = 0; i < t->shape_count; i++)
        all += (double)t->shapes[i].m * (double)t->shapes[i].n * (double)t->shapes[i].k *
               (double)t->shapes[i].count;
    for (size_t i = 0; i < t->shape_count; i++) {
        const struct graph_shape *s = &t->shapes[i];
        double work = (double)s->m * (double)s->n * (double)s->k * (double)s->count;
        struct message m = {.phase = t->phase,
                            .kind = "gemm",
                            .dtype = dtype_name(s->dtype),
                            .count = s->count,
                            .planned_s = t->duration_s * work / all};
        m.what = arena_printf(b->arena, "%llux%llux%llu", (unsigned long long)s->m,
                              (unsigned long long)s->n, (unsigned long long)s->k);
        m.point = (struct bench_point){
            .kind = "gemm", .m = s->m, .n = s->n, .k = s->k, .dtype = s->dtype};
        add(b, &m);
    }
}

static void add_task(struct builder *b, const struct graph_task *t) {
    struct message m = {.phase = t->phase,
                        .dtype = dtype_name(t->dtype),
                        .count = 1,
                        .payload_bytes = t->bytes,
                        .call_bytes = t->bytes,
                        .planned_s = t->duration_s};
    switch (t->kind) {
    case GRAPH_COLLECTIVE:
        m.kind = collective_name(t->collective);
        m.group = t->group >= 0 ? b->graph->groups[t->group].kind : "world";
        m.group_size = t->group >= 0 ? b->graph->groups[t->group].size : b->graph->ranks;
        m.sent_bytes = collective_sent_bytes(t->collective, t->bytes, m.group_size);
        break;
    case GRAPH_COPY:
        m.kind = t->direction;
        break;
    case GRAPH_NVME_READ:
        m.kind = "nvme_read";
        break;
    case GRAPH_NVME_WRITE:
        m.kind = "nvme_write";
        break;
    case GRAPH_ADAM:
        m.kind = "adam"; // its bytes are elements
        m.payload_bytes = m.call_bytes = t->bytes * adam_bytes_per_parameter(false, false);
        m.point = (struct bench_point){
            .kind = "adam", .algorithm = adam_best()->name, .dtype = DTYPE_FP32};
        break;
    default:
        return;
    }
    if (m.kind != NULL && t->bytes > 0)
        add(b, &m);
}

bool messages_read_graph(const struct messages_request *q, struct arena *a, struct messages *out,
                         struct err *e) {
    struct graph g;
    struct messages m = {.parameters = NAN, .strategy = "graph", .model = q->path};
    struct builder b = {.graph = &g, .arena = a, .out = &m};
    if (!graph_read(q->path, a, &g, e))
        return false;
    if (g.ranks != q->ranks)
        return err_set(e, ERR_RESOURCE,
                       "%s is a graph of %llu ranks and here are %llu; make one that fits: "
                       "shardplan simulate MODEL CLUSTER --gpus %llu --graph FILE",
                       q->path, (unsigned long long)g.ranks, (unsigned long long)q->ranks,
                       (unsigned long long)q->ranks);
    for (size_t i = 0; i < g.task_count; i++) {
        if (g.tasks[i].shape_count > 0)
            add_shapes(&b, &g.tasks[i]);
        else
            add_task(&b, &g.tasks[i]);
    }
    messages_place(&m, q);
    *out = m;
    return true;
}
