// SPDX-License-Identifier: Apache-2.0
#include "plan/sim.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define INITIAL_TASKS 512u
#define HOST (SIM_NONE - 1u) // "blocked on the host", beside task ids

enum task_flag { DETACHED = 1, HOST_BLOCKING = 2, ISSUE_OVERLAPS = 4 };

struct record { // 64 bytes: one cache line a task
    double duration_s, issue_s;
    int64_t alloc_bytes, free_bytes;
    uint32_t next, prev; // in its stream
    uint32_t first_dep, first_demand;
    uint16_t stream, dep_count;
    uint8_t demand_count, flags;
    uint16_t host_wait_count; // their ids stand before first_dep
};

struct sim {
    struct arena *arena;
    struct record *tasks;
    uint32_t *deps;
    struct sim_demand *demands;
    uint32_t task_count, task_capacity, dep_count, dep_capacity, demand_count, demand_capacity;
    uint32_t stream_count, resource_count;
    uint32_t *first, *last; // per stream
    double *capacity_per_s; // per resource
    uint32_t pending_host_waits;
};

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
    return s;
}

void sim_resource(struct sim *s, uint32_t resource, double capacity_per_s) {
    assert(resource < s->resource_count);
    s->capacity_per_s[resource] = capacity_per_s;
}

static void *grow(struct arena *a, const void *old, uint32_t count, uint32_t *capacity,
                  size_t element_bytes) {
    *capacity = *capacity ? *capacity * 2 : INITIAL_TASKS;
    void *bigger = arena_array(a, *capacity, element_bytes);
    if (count > 0)
        memcpy(bigger, old, count * element_bytes);
    return bigger;
}

static void push_dep(struct sim *s, uint32_t dep) {
    if (s->dep_count == s->dep_capacity)
        s->deps = grow(s->arena, s->deps, s->dep_count, &s->dep_capacity, sizeof *s->deps);
    s->deps[s->dep_count++] = dep;
}

static void add_demand(struct sim *s, struct record *r, struct sim_demand d) {
    assert(d.resource < s->resource_count && d.rate_per_s >= 0);
    if (d.rate_per_s == 0)
        return;
    for (uint32_t i = 0; i < r->demand_count; i++) {
        if (s->demands[r->first_demand + i].resource == d.resource) {
            s->demands[r->first_demand + i].rate_per_s += d.rate_per_s;
            return;
        }
    }
    if (s->demand_count == s->demand_capacity)
        s->demands =
            grow(s->arena, s->demands, s->demand_count, &s->demand_capacity, sizeof *s->demands);
    s->demands[s->demand_count++] = d;
    r->demand_count++;
}

uint32_t sim_add(struct sim *s, const struct sim_task *t) {
    assert(t->stream < s->stream_count && t->dep_count <= SIM_DEPS_MAX);
    assert(t->demand_count <= SIM_DEMANDS_MAX && t->duration_s >= 0 && t->issue_s >= 0);
    if (s->task_count == s->task_capacity)
        s->tasks = grow(s->arena, s->tasks, s->task_count, &s->task_capacity, sizeof *s->tasks);
    uint32_t id = s->task_count++;
    struct record *r = &s->tasks[id];
    *r = (struct record){
        .duration_s = t->duration_s,
        .issue_s = t->detached ? 0 : t->issue_s,
        .alloc_bytes = t->alloc_bytes_at_start,
        .free_bytes = t->free_bytes_at_end,
        .next = SIM_NONE,
        .prev = s->last[t->stream],
        .host_wait_count = (uint16_t)s->pending_host_waits,
        .first_dep = s->dep_count,
        .first_demand = s->demand_count,
        .stream = (uint16_t)t->stream,
        .dep_count = (uint16_t)t->dep_count,
        .flags = (uint8_t)((t->detached ? DETACHED : 0) | (t->host_blocking ? HOST_BLOCKING : 0) |
                           (t->issue_overlaps ? ISSUE_OVERLAPS : 0)),
    };
    s->pending_host_waits = 0;
    for (uint32_t i = 0; i < t->dep_count; i++) {
        assert(t->deps[i] < id);
        push_dep(s, t->deps[i]);
    }
    if (t->duration_s > 0)
        for (uint32_t i = 0; i < t->demand_count; i++)
            add_demand(s, r, t->demands[i]);
    if (s->last[t->stream] == SIM_NONE)
        s->first[t->stream] = id;
    else
        s->tasks[s->last[t->stream]].next = id;
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
    const struct record *t = &s->tasks[task];
    *count = t->host_wait_count;
    return s->deps + t->first_dep - t->host_wait_count;
}

void sim_task_memory(const struct sim *s, uint32_t task, int64_t *alloc_bytes,
                     int64_t *free_bytes) {
    *alloc_bytes = s->tasks[task].alloc_bytes;
    *free_bytes = s->tasks[task].free_bytes;
}

bool sim_task_blocks_host(const struct sim *s, uint32_t task) {
    return s->tasks[task].flags & HOST_BLOCKING;
}

// A running task with demands.
struct flow {
    uint32_t stream, task;
    double speed;        // 0..1 of full speed
    double remaining_s;  // at full speed, as of settled_at_s
    double settled_at_s; // when speed last changed
    double stretch;      // multiplier of its duration: rates shrink by it, work stays
    bool frozen;         // scratch of the fair-share fill
    double next_speed;   // scratch too
};

struct run {
    const struct sim *s;
    const double *multipliers;
    double now_s;
    double *start_s, *finish_s, *issued_s; // finish_s < 0: not finished
    uint32_t *host_block;
    // Streams.
    double *event_s;      // next event: end of the running head, or start of a head that waits
    uint32_t *head;       // for a not yet issued task; INFINITY when blocked
    uint32_t *blocked_on; // task id, HOST, or SIM_NONE
    bool *running;
    double *busy_s;
    // Host.
    uint32_t cursor; // next task to issue
    double host_s, host_busy_s;
    uint32_t host_blocked_on, host_last_block;
    // Sharing.
    struct flow *flows;
    uint32_t flow_count;
    bool rates_stale, throttled;
    double *load_per_s; // per resource, scratch
    double *rates;      // scratch of the fair-share fill
    double *used;
    // Memory.
    int64_t memory_bytes, memory_peak_bytes;
    uint32_t memory_peak_task;
};

static double duration(const struct run *r, uint32_t task) {
    double d = r->s->tasks[task].duration_s;
    return r->multipliers ? d * r->multipliers[task] : d;
}

static void host_resume(struct run *r, uint32_t task) {
    if (r->finish_s[task] <= r->host_s)
        return;
    r->host_s = r->finish_s[task];
    r->host_last_block = task;
}

// The host is never slowed by the device, only blocked: issue everything up to the next block.
static void host_advance(struct run *r) {
    const struct sim *s = r->s;
    r->host_blocked_on = SIM_NONE;
    while (r->cursor < s->task_count) {
        const struct record *t = &s->tasks[r->cursor];
        const uint32_t *waits = s->deps + t->first_dep - t->host_wait_count;
        for (uint32_t i = 0; i < t->host_wait_count; i++) {
            if (r->finish_s[waits[i]] < 0) {
                r->host_blocked_on = waits[i];
                return;
            }
            host_resume(r, waits[i]);
        }
        if (!(t->flags & DETACHED)) {
            r->issued_s[r->cursor] = r->host_s;
            r->host_block[r->cursor] = r->host_last_block;
            r->host_s += t->issue_s;
            r->host_busy_s += t->issue_s;
        }
        r->cursor++;
        if (t->flags & HOST_BLOCKING) {
            if (r->finish_s[r->cursor - 1] < 0) {
                r->host_blocked_on = r->cursor - 1;
                return;
            }
            host_resume(r, r->cursor - 1);
        }
    }
}

static void begin(struct run *r, uint32_t stream, uint32_t task, double at_s) {
    const struct record *t = &r->s->tasks[task];
    double length_s = duration(r, task);
    double end_s = at_s + length_s;
    if (t->flags & ISSUE_OVERLAPS)
        end_s = fmax(end_s, r->issued_s[task] + t->issue_s);
    r->start_s[task] = at_s;
    r->running[stream] = true;
    r->event_s[stream] = end_s;
    if (t->alloc_bytes != 0) {
        r->memory_bytes += t->alloc_bytes;
        if (r->memory_bytes > r->memory_peak_bytes) {
            r->memory_peak_bytes = r->memory_bytes;
            r->memory_peak_task = task;
        }
    }
    if (t->demand_count > 0 && length_s > 0) {
        r->flows[r->flow_count++] =
            (struct flow){.stream = stream,
                          .task = task,
                          .speed = 1,
                          .remaining_s = length_s,
                          .settled_at_s = at_s,
                          .stretch = r->multipliers ? r->multipliers[task] : 1};
        r->rates_stale = true;
    }
}

// Look at the head of a stream: start it, schedule its start, or note what blocks it.
static void consider(struct run *r, uint32_t stream) {
    uint32_t task = r->head[stream];
    r->event_s[stream] = INFINITY;
    r->blocked_on[stream] = SIM_NONE;
    if (task == SIM_NONE)
        return;
    const struct record *t = &r->s->tasks[task];
    const uint32_t *deps = r->s->deps + t->first_dep;
    for (uint32_t i = t->dep_count; i-- > 0;) {
        if (r->finish_s[deps[i]] < 0) {
            r->blocked_on[stream] = deps[i];
            return;
        }
    }
    if (task >= r->cursor && !(t->flags & DETACHED)) {
        r->blocked_on[stream] = HOST;
        return;
    }
    double gate_s = r->issued_s[task] + (t->flags & ISSUE_OVERLAPS ? 0 : t->issue_s);
    if (gate_s <= r->now_s)
        begin(r, stream, task, r->now_s);
    else if (t->demand_count == 0 && t->alloc_bytes == 0)
        begin(r, stream, task, gate_s);
    else
        r->event_s[stream] = gate_s;
}

static void drop_flow(struct run *r, uint32_t task) {
    const struct record *t = &r->s->tasks[task];
    for (uint32_t i = 0; i < t->demand_count; i++) {
        const struct sim_demand *d = &r->s->demands[t->first_demand + i];
        r->used[d->resource] += d->rate_per_s * t->duration_s;
    }
    uint32_t i = 0;
    while (i < r->flow_count && r->flows[i].task != task)
        i++;
    if (i == r->flow_count)
        return;
    r->flows[i] = r->flows[--r->flow_count];
    r->rates_stale = true;
}

static void wake(struct run *r, uint32_t ended) {
    uint32_t streams = r->s->stream_count;
    for (uint32_t i = 0; i < streams; i++)
        if (r->blocked_on[i] == ended)
            consider(r, i);
    if (r->host_blocked_on != ended)
        return;
    host_resume(r, ended);
    host_advance(r);
    for (uint32_t i = 0; i < streams; i++)
        if (r->blocked_on[i] == HOST)
            consider(r, i);
}

static void end(struct run *r, uint32_t stream) {
    uint32_t task = r->head[stream];
    const struct record *t = &r->s->tasks[task];
    r->finish_s[task] = r->now_s;
    r->busy_s[stream] += r->now_s - r->start_s[task];
    r->running[stream] = false;
    r->memory_bytes -= t->free_bytes;
    if (t->demand_count > 0)
        drop_flow(r, task);
    r->head[stream] = t->next;
    consider(r, stream);
    wake(r, task);
}

// Level up to which one resource can serve its unfrozen flows: each gets min(its demand, level).
// Returns the smallest speed this implies, 1 when nothing is held back.
static double fill_level(const struct run *r, uint32_t resource, double *level) {
    double left = r->s->capacity_per_s[resource], open_sum = 0, largest = 0;
    uint32_t open = 0;
    double *rates = r->rates;
    for (uint32_t i = 0; i < r->flow_count; i++) {
        const struct flow *f = &r->flows[i];
        const struct record *t = &r->s->tasks[f->task];
        for (uint32_t k = 0; k < t->demand_count; k++) {
            const struct sim_demand *d = &r->s->demands[t->first_demand + k];
            if (d->resource != resource)
                continue;
            double rate = d->rate_per_s / f->stretch;
            if (f->frozen)
                left -= rate * f->next_speed;
            else {
                rates[open++] = rate;
                open_sum += rate;
                largest = fmax(largest, rate);
            }
        }
    }
    if (open == 0 || open_sum <= left)
        return 1;
    left = fmax(left, 0);
    double share = left / open;
    for (bool changed = true; changed && open > 0;) { // flows below the share free up the rest
        changed = false;
        for (uint32_t i = 0; i < open; i++) {
            if (rates[i] <= share) {
                left -= rates[i];
                rates[i--] = rates[--open];
                changed = true;
            }
        }
        if (open > 0)
            share = left / open;
    }
    *level = share;
    return share / largest;
}

// Fix the flows that the resource holds below full speed; only its slowest unless `all`.
static void freeze(struct run *r, uint32_t resource, double level, double slowest, bool all) {
    for (uint32_t i = 0; i < r->flow_count; i++) {
        struct flow *f = &r->flows[i];
        const struct record *t = &r->s->tasks[f->task];
        for (uint32_t k = 0; k < t->demand_count && !f->frozen; k++) {
            const struct sim_demand *d = &r->s->demands[t->first_demand + k];
            double rate = d->rate_per_s / f->stretch;
            if (d->resource != resource || rate <= level)
                continue;
            if (all || level / rate <= slowest) {
                f->frozen = true;
                f->next_speed = level / rate;
            }
        }
    }
}

// Progressive filling: the flow that some resource slows most is fixed first, then the next, so
// that each flow ends with the speed of its own tightest resource.
static void share_out(struct run *r) {
    for (uint32_t i = 0; i < r->flow_count; i++) {
        r->flows[i].frozen = false;
        r->flows[i].next_speed = 1;
    }
    for (uint32_t round = 0; round < r->flow_count; round++) {
        double slowest = 1, level = 0;
        uint32_t tightest = SIM_NONE, tight_count = 0;
        for (uint32_t k = 0; k < r->s->resource_count; k++) {
            double l = 0;
            if (r->load_per_s[k] <= r->s->capacity_per_s[k])
                continue;
            double speed = fill_level(r, k, &l);
            tight_count += speed < 1;
            if (speed < slowest) {
                slowest = speed;
                tightest = k;
                level = l;
            }
        }
        if (tightest == SIM_NONE)
            return;
        freeze(r, tightest, level, slowest, tight_count == 1);
    }
}

static bool overloaded(struct run *r) {
    memset(r->load_per_s, 0, r->s->resource_count * sizeof *r->load_per_s);
    for (uint32_t i = 0; i < r->flow_count; i++) {
        const struct record *t = &r->s->tasks[r->flows[i].task];
        const struct sim_demand *d = r->s->demands + t->first_demand;
        for (uint32_t k = 0; k < t->demand_count; k++)
            r->load_per_s[d[k].resource] += d[k].rate_per_s / r->flows[i].stretch;
    }
    for (uint32_t k = 0; k < r->s->resource_count; k++)
        if (r->load_per_s[k] > r->s->capacity_per_s[k])
            return true;
    return false;
}

static void settle_rates(struct run *r) {
    r->rates_stale = false;
    bool full = !overloaded(r);
    if (full && !r->throttled)
        return;
    if (!full)
        share_out(r);
    r->throttled = !full;
    for (uint32_t i = 0; i < r->flow_count; i++) {
        struct flow *f = &r->flows[i];
        double speed = full ? 1 : f->next_speed;
        if (speed == f->speed)
            continue;
        f->remaining_s = fmax(f->remaining_s - (r->now_s - f->settled_at_s) * f->speed, 0);
        f->settled_at_s = r->now_s;
        f->speed = speed;
        double end_s = r->now_s + f->remaining_s / speed;
        const struct record *t = &r->s->tasks[f->task];
        if (t->flags & ISSUE_OVERLAPS)
            end_s = fmax(end_s, r->issued_s[f->task] + t->issue_s);
        r->event_s[f->stream] = end_s;
    }
}

static bool event_loop(struct run *r, struct err *e) {
    uint32_t streams = r->s->stream_count;
    for (uint32_t left = r->s->task_count; left > 0;) {
        if (r->rates_stale)
            settle_rates(r);
        uint32_t best = 0;
        double best_s = r->event_s[0];
        for (uint32_t i = 1; i < streams; i++) {
            double t = r->event_s[i];
            if (t < best_s || (t == best_s && r->head[i] < r->head[best])) {
                best = i;
                best_s = t;
            }
        }
        if (!(best_s < INFINITY))
            return err_set(e, ERR_INPUT, "a task needs a resource whose capacity is zero");
        r->now_s = best_s;
        if (r->running[best]) {
            end(r, best);
            left--;
        } else {
            begin(r, best, r->head[best], best_s);
        }
    }
    return true;
}

static void run_prepare(struct run *r, struct arena *a) {
    const struct sim *s = r->s;
    uint32_t n = s->task_count, streams = s->stream_count;
    r->start_s = arena_array(a, n + 1, sizeof *r->start_s);
    r->finish_s = arena_array(a, n + 1, sizeof *r->finish_s);
    r->issued_s = arena_array(a, n + 1, sizeof *r->issued_s);
    r->event_s = arena_array(a, streams + 1, sizeof *r->event_s);
    r->head = arena_array(a, streams + 1, sizeof *r->head);
    r->blocked_on = arena_array(a, streams + 1, sizeof *r->blocked_on);
    r->running = arena_array(a, streams + 1, sizeof *r->running);
    r->busy_s = arena_array(a, streams + 1, sizeof *r->busy_s);
    r->flows = arena_array(a, streams + 1, sizeof *r->flows);
    r->load_per_s = arena_array(a, s->resource_count + 1, sizeof *r->load_per_s);
    r->rates = arena_array(a, (size_t)(streams + 1) * SIM_DEMANDS_MAX, sizeof *r->rates);
    r->used = arena_array(a, s->resource_count + 1, sizeof *r->used);
    for (uint32_t i = 0; i < n; i++)
        r->finish_s[i] = -1;
    r->host_block = arena_array(a, n + 1, sizeof *r->host_block);
    r->memory_peak_task = r->host_last_block = SIM_NONE;
    host_advance(r);
    for (uint32_t i = 0; i < streams; i++) {
        r->head[i] = s->first[i];
        r->running[i] = false;
    }
    for (uint32_t i = 0; i < streams; i++)
        consider(r, i);
}

bool sim_run(const struct sim *s, const double *multipliers, struct arena *a,
             struct sim_result *out, struct err *e) {
    struct run r = {.s = s, .multipliers = multipliers};
    run_prepare(&r, a);
    if (!event_loop(&r, e))
        return false;
    double end_s = r.host_s;
    for (uint32_t i = 0; i < s->task_count; i++)
        end_s = fmax(end_s, r.finish_s[i]);
    *out = (struct sim_result){
        .end_s = end_s,
        .start_s = r.start_s,
        .finish_s = r.finish_s,
        .issued_s = r.issued_s,
        .host_block = r.host_block,
        .host_busy_s = r.host_busy_s,
        .host_end_s = r.host_s,
        .stream_busy_s = r.busy_s,
        .resource_used = r.used,
        .memory_peak_bytes = r.memory_peak_bytes,
        .memory_end_bytes = r.memory_bytes,
        .memory_peak_task = r.memory_peak_task,
    };
    return true;
}

struct sim_cause sim_task_cause(const struct sim *s, const struct sim_result *r, uint32_t task) {
    const struct record *t = &s->tasks[task];
    struct sim_cause cause = {.kind = SIM_CAUSE_NONE, .task = SIM_NONE};
    if (!(t->flags & DETACHED)) {
        cause.at_s = r->issued_s[task] + (t->flags & ISSUE_OVERLAPS ? 0 : t->issue_s);
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

double sim_lower_bound_s(const struct sim *s, struct arena *scratch) {
    double *path_s = arena_array(scratch, s->task_count + 1, sizeof *path_s);
    double *stream_s = arena_array(scratch, s->stream_count + 1, sizeof *stream_s);
    double *work = arena_array(scratch, s->resource_count + 1, sizeof *work);
    double bound_s = 0;
    for (uint32_t i = 0; i < s->task_count; i++) {
        const struct record *t = &s->tasks[i];
        double begin_s = stream_s[t->stream];
        for (uint32_t k = 0; k < t->dep_count; k++)
            begin_s = fmax(begin_s, path_s[s->deps[t->first_dep + k]]);
        path_s[i] = stream_s[t->stream] = begin_s + t->duration_s;
        bound_s = fmax(bound_s, path_s[i]);
        for (uint32_t k = 0; k < t->demand_count; k++)
            work[s->demands[t->first_demand + k].resource] +=
                s->demands[t->first_demand + k].rate_per_s * t->duration_s;
    }
    for (uint32_t k = 0; k < s->resource_count; k++)
        bound_s = fmax(bound_s, work[k] / s->capacity_per_s[k]);
    return bound_s;
}
