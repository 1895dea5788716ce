// SPDX-License-Identifier: Apache-2.0
#include "plan/sim_graph.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define INITIAL_TASKS 16384u
#define INITIAL_SETS 64u

struct sim *sim_create(struct arena *a, uint32_t streams, uint32_t resources) {
    struct sim *s = arena_alloc(a, sizeof *s);
    s->arena = a;
    s->stream_count = streams;
    s->resource_count = resources;
    s->first = arena_array(a, streams, sizeof *s->first);
    s->last = arena_array(a, streams, sizeof *s->last);
    for (uint32_t i = 0; i < streams; i++)
        s->first[i] = s->last[i] = SIM_NONE;
    s->capacity_per_s = arena_array(a, resources + 1, sizeof *s->capacity_per_s);
    for (uint32_t i = 0; i < resources; i++)
        s->capacity_per_s[i] = INFINITY;
    s->set_capacity = INITIAL_SETS;
    s->set_count = 1;
    s->sets = arena_array(a, s->set_capacity, sizeof *s->sets);
    return s;
}

void sim_resource(struct sim *s, uint32_t resource, double capacity_per_s) {
    assert(resource < s->resource_count);
    s->capacity_per_s[resource] = capacity_per_s;
}

static void *grow(struct arena *a, const void *old, uint32_t count, uint32_t *capacity,
                  size_t element_bytes) {
    *capacity = *capacity ? *capacity * 2 : INITIAL_TASKS;
    void *bigger = arena_array_raw(a, *capacity, element_bytes);
    if (count > 0)
        memcpy(bigger, old, count * element_bytes);
    return bigger;
}

static void push_dep(struct sim *s, uint32_t dep) {
    if (s->dep_count == s->dep_capacity)
        s->deps = grow(s->arena, s->deps, s->dep_count, &s->dep_capacity, sizeof *s->deps);
    s->deps[s->dep_count++] = dep;
}

static void demand_add(struct sim_demand_set *set, struct sim_demand d) {
    if (d.rate_per_s == 0)
        return;
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->demands[i].resource == d.resource) {
            set->demands[i].rate_per_s += d.rate_per_s;
            return;
        }
    }
    set->demands[set->count++] = d;
}

static bool set_equals(const struct sim_demand_set *x, const struct sim_demand_set *y) {
    if (x->count != y->count)
        return false;
    for (uint32_t i = 0; i < x->count; i++)
        if (x->demands[i].resource != y->demands[i].resource ||
            x->demands[i].rate_per_s != y->demands[i].rate_per_s)
            return false;
    return true;
}

static uint32_t hash_of(const struct sim_demand_set *set) {
    uint64_t h = 0, bits;
    for (uint32_t i = 0; i < set->count; i++) {
        memcpy(&bits, &set->demands[i].rate_per_s, sizeof bits);
        h = (h ^ bits ^ set->demands[i].resource) * UINT64_C(0x9E3779B97F4A7C15);
    }
    return (uint32_t)(h >> 32) % SIM_RECENT_SETS;
}

uint32_t sim_demands(struct sim *s, const struct sim_demand *demands, uint32_t count) {
    struct sim_demand_set set;
    set.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        assert(demands[i].resource < s->resource_count && demands[i].rate_per_s >= 0);
        demand_add(&set, demands[i]);
    }
    if (set.count == 0)
        return 0;
    uint32_t *recent = &s->recent[hash_of(&set)];
    if (*recent != 0 && set_equals(&s->sets[*recent], &set))
        return *recent;
    if (s->set_count == s->set_capacity)
        s->sets = grow(s->arena, s->sets, s->set_count, &s->set_capacity, sizeof *s->sets);
    s->sets[s->set_count] = set;
    return *recent = s->set_count++;
}

static uint32_t set_of(struct sim *s, const struct sim_task *t) {
    if (t->duration_s <= 0)
        return 0;
    return t->demand_set != 0 ? t->demand_set : sim_demands(s, t->demands, t->demand_count);
}

uint32_t sim_add(struct sim *s, const struct sim_task *t) {
    assert(t->stream < s->stream_count && t->dep_count <= SIM_DEPS_MAX);
    assert(t->demand_count <= SIM_DEMANDS_MAX && t->duration_s >= 0 && t->issue_s >= 0);
    assert(t->demand_set < s->set_count);
    if (s->task_count == s->task_capacity)
        s->tasks = grow(s->arena, s->tasks, s->task_count, &s->task_capacity, sizeof *s->tasks);
    uint32_t id = s->task_count++, prev = s->last[t->stream];
    s->tasks[id] = (struct sim_record){
        .duration_s = t->duration_s,
        .issue_s = t->detached ? 0 : t->issue_s,
        .alloc_bytes = t->alloc_bytes_at_start,
        .free_bytes = t->free_bytes_at_end,
        .next = SIM_NONE,
        .prev = prev,
        .host_wait_count = (uint16_t)s->pending_host_waits,
        .first_dep = s->dep_count,
        .demand_set = set_of(s, t),
        .stream = (uint16_t)t->stream,
        .dep_count = (uint16_t)t->dep_count,
        .flags = (uint8_t)(t->detached * SIM_DETACHED | t->host_blocking * SIM_HOST_BLOCKING |
                           t->issue_overlaps * SIM_ISSUE_OVERLAPS),
    };
    s->pending_host_waits = 0;
    for (uint32_t i = 0; i < t->dep_count; i++) {
        assert(t->deps[i] < id);
        push_dep(s, t->deps[i]);
    }
    *(prev == SIM_NONE ? &s->first[t->stream] : &s->tasks[prev].next) = id;
    s->last[t->stream] = id;
    return id;
}

void sim_add_dep(struct sim *s, uint32_t dep) {
    assert(s->task_count > 0 && dep < s->task_count - 1 && s->pending_host_waits == 0);
    push_dep(s, dep);
    s->tasks[s->task_count - 1].dep_count++;
}

void sim_host_wait(struct sim *s, uint32_t task) {
    assert(task < s->task_count);
    push_dep(s, task);
    s->pending_host_waits++;
}

uint32_t sim_task_count(const struct sim *s) {
    return s->task_count;
}

uint32_t sim_task_stream(const struct sim *s, uint32_t task) {
    return s->tasks[task].stream;
}

double sim_task_issue_s(const struct sim *s, uint32_t task) {
    return s->tasks[task].issue_s;
}

const uint32_t *sim_task_deps(const struct sim *s, uint32_t task, uint32_t *count) {
    *count = s->tasks[task].dep_count;
    return s->deps + s->tasks[task].first_dep;
}

const uint32_t *sim_task_host_waits(const struct sim *s, uint32_t task, uint32_t *count) {
    const struct sim_record *t = &s->tasks[task];
    *count = t->host_wait_count;
    return s->deps + t->first_dep - t->host_wait_count;
}

void sim_task_memory(const struct sim *s, uint32_t task, int64_t *alloc_bytes,
                     int64_t *free_bytes) {
    *alloc_bytes = s->tasks[task].alloc_bytes;
    *free_bytes = s->tasks[task].free_bytes;
}

bool sim_task_blocks_host(const struct sim *s, uint32_t task) {
    return s->tasks[task].flags & SIM_HOST_BLOCKING;
}

struct sim_cause sim_task_cause(const struct sim *s, const struct sim_result *r, uint32_t task) {
    const struct sim_record *t = &s->tasks[task];
    struct sim_cause cause = {.kind = SIM_CAUSE_NONE, .task = SIM_NONE};
    if (!(t->flags & SIM_DETACHED)) {
        cause.at_s = r->issued_s[task] + (t->flags & SIM_ISSUE_OVERLAPS ? 0 : t->issue_s);
        cause.task = r->host_block[task];
        if (cause.at_s > 0)
            cause.kind = SIM_CAUSE_HOST;
    }
    uint32_t before = t->prev;
    for (uint32_t i = 0; i <= t->dep_count; i++) {
        if (before != SIM_NONE && r->finish_s[before] >= cause.at_s && r->finish_s[before] > 0)
            cause = (struct sim_cause){SIM_CAUSE_TASK, before, r->finish_s[before]};
        if (i < t->dep_count)
            before = s->deps[t->first_dep + i];
    }
    return cause;
}

double sim_resource_work(const struct sim *s, uint32_t resource) {
    double work = 0;
    for (uint32_t i = 0; i < s->task_count; i++) {
        const struct sim_demand_set *set = &s->sets[s->tasks[i].demand_set];
        for (uint32_t k = 0; k < set->count; k++)
            if (set->demands[k].resource == resource)
                work += set->demands[k].rate_per_s * s->tasks[i].duration_s;
    }
    return work;
}

double sim_lower_bound_s(const struct sim *s, struct arena *scratch) {
    double *path_s = arena_array(scratch, s->task_count + 1, sizeof *path_s);
    double *stream_s = arena_array(scratch, s->stream_count + 1, sizeof *stream_s);
    double *work = arena_array(scratch, s->resource_count + 1, sizeof *work);
    double bound_s = 0;
    for (uint32_t i = 0; i < s->task_count; i++) {
        const struct sim_record *t = &s->tasks[i];
        double begin_s = stream_s[t->stream];
        for (uint32_t k = 0; k < t->dep_count; k++)
            begin_s = fmax(begin_s, path_s[s->deps[t->first_dep + k]]);
        path_s[i] = stream_s[t->stream] = begin_s + t->duration_s;
        bound_s = fmax(bound_s, path_s[i]);
        const struct sim_demand_set *set = &s->sets[t->demand_set];
        for (uint32_t k = 0; k < set->count; k++)
            work[set->demands[k].resource] += set->demands[k].rate_per_s * t->duration_s;
    }
    for (uint32_t k = 0; k < s->resource_count; k++)
        bound_s = fmax(bound_s, work[k] / s->capacity_per_s[k]);
    return bound_s;
}
