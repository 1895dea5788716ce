// SPDX-License-Identifier: Apache-2.0
#include "plan/step_timeline.h"

#include <stdlib.h>

const char *step_unit_name(const struct step_builder *b, uint32_t unit) {
    const struct step_unit *u = &b->units[unit];
    const struct model_unit *k = b->classes[u->class].unit;
    if (k->kind != UNIT_BLOCK)
        return k->name;
    return arena_printf(b->arena, "%s.%u", k->name, u->layer);
}

static const char *task_name(const struct step_builder *b, const struct step_meta *m) {
    const char *what = step_ops[m->op].name;
    if (step_ops[m->op].class == CLASS_COMM)
        what =
            arena_printf(b->arena, "%s %s", collective_name((enum collective)m->collective), what);
    if (m->unit == STEP_NO_UNIT)
        return what;
    return arena_printf(b->arena, "%s %s", what, step_unit_name(b, m->unit));
}

static void fill_tasks(struct step_builder *b, const struct sim_result *r,
                       const struct step_account *account, struct step_timeline *out) {
    out->task_count = sim_task_count(b->sim);
    out->tasks = arena_array(b->arena, out->task_count + 1, sizeof *out->tasks);
    for (uint32_t i = 0; i < out->task_count; i++) {
        const struct step_meta *m = &b->meta[i];
        out->tasks[i] = (struct step_timeline_task){
            .name = task_name(b, m),
            .stream = step_stream_names[sim_task_stream(b->sim, i)],
            .phase = step_phase_names[m->phase],
            .start_s = r->start_s[i],
            .end_s = r->finish_s[i],
            .exposed = account->exposed[i],
        };
    }
}

static void fill_streams(struct step_builder *b, const struct step_account *account,
                         struct step_timeline *out) {
    out->streams = arena_array(b->arena, STEP_STREAM_COUNT, sizeof *out->streams);
    for (uint32_t i = 0; i < STEP_STREAM_COUNT; i++)
        if (b->last[i] != SIM_NONE)
            out->streams[out->stream_count++] = (struct step_timeline_stream){
                step_stream_names[i], account->stream_busy_s[i], account->stream_exposed_s[i]};
}

struct change {
    double time_s, bytes;
    uint32_t order;
};

static int compare_changes(const void *x, const void *y) {
    const struct change *a = x, *b = y;
    if (a->time_s != b->time_s)
        return a->time_s < b->time_s ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

// Frees come before allocations of the same moment, as in the caching allocator's reuse.
static void fill_memory(struct step_builder *b, const struct sim_result *r,
                        struct step_timeline *out) {
    uint32_t count = sim_task_count(b->sim), n = 0;
    struct change *changes = arena_array(b->arena, 2 * (size_t)count + 1, sizeof *changes);
    for (uint32_t i = 0; i < count; i++) {
        int64_t alloc_bytes, free_bytes;
        sim_task_memory(b->sim, i, &alloc_bytes, &free_bytes);
        if (alloc_bytes != 0)
            changes[n++] = (struct change){r->start_s[i], (double)alloc_bytes, count + i};
        if (free_bytes != 0)
            changes[n++] = (struct change){r->finish_s[i], -(double)free_bytes, i};
    }
    qsort(changes, n, sizeof *changes, compare_changes);
    out->memory = arena_array(b->arena, (size_t)n + 2, sizeof *out->memory);
    double bytes = b->steady_bytes;
    out->memory[out->memory_count++] = (struct step_memory_point){0, bytes};
    for (uint32_t i = 0; i < n; i++) {
        bytes += changes[i].bytes;
        if (i + 1 < n && changes[i + 1].time_s == changes[i].time_s &&
            changes[i + 1].bytes * changes[i].bytes > 0)
            continue;
        out->memory[out->memory_count++] = (struct step_memory_point){changes[i].time_s, bytes};
    }
}

void step_timeline_fill(struct step_builder *b, const struct sim_result *r,
                        const struct step_account *account, struct step_timeline *out) {
    *out = (struct step_timeline){.micro_steps = b->recipe->grad_accum};
    fill_tasks(b, r, account, out);
    fill_streams(b, account, out);
    fill_memory(b, r, out);
}
