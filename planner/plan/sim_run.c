// SPDX-License-Identifier: Apache-2.0
// The event loop of the engine and its fair shares.
#include "plan/sim_graph.h"

#include <math.h>
#include <string.h>

#define HOST (SIM_NONE - 1u) // "blocked on the host", beside task ids

// A running task with demands.
struct flow {
    uint32_t stream, task, set;
    double speed;        // 0..1 of full speed
    double remaining_s;  // at full speed, as of settled_at_s
    double settled_at_s; // when speed last changed
    double stretch;      // multiplier of its duration: rates shrink by it, work stays
    bool frozen;         // scratch of the fair-share fill
    double next_speed;   // scratch too
};

// Speeds of flows that ran together before: layers are alike, so the same few come again and again.
#define SHARED_FLOWS 6
#define SHARES_LOG2 11
#define SHARES (1u << SHARES_LOG2)
struct share {
    bool full; // nothing is held back
    uint32_t sets[SHARED_FLOWS];
    double stretch[SHARED_FLOWS], speed[SHARED_FLOWS];
};

struct run {
    const struct sim *s;
    const double *multipliers;
    double now_s;
    double *start_s, *finish_s, *issued_s; // finish_s < 0: not finished
    uint32_t *host_block;
    // Streams that have tasks, ascending; their place in this list stands for them below.
    uint32_t stream_count;
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
    struct share *shares;
    uint8_t *share_count; // flows of each; 0 = empty
    double *load_per_s;   // per resource, scratch
    double *rates;        // scratch of the fair-share fill
    // Memory.
    int64_t memory_bytes, memory_peak_bytes;
    uint32_t memory_peak_task;
};

static double larger(double x, double y) { // neither is NAN
    return x > y ? x : y;
}

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
        const struct sim_record *t = &s->tasks[r->cursor];
        const uint32_t *waits = s->deps + t->first_dep - t->host_wait_count;
        for (uint32_t i = 0; i < t->host_wait_count; i++) {
            if (r->finish_s[waits[i]] < 0) {
                r->host_blocked_on = waits[i];
                return;
            }
            host_resume(r, waits[i]);
        }
        if (!(t->flags & SIM_DETACHED)) {
            r->issued_s[r->cursor] = r->host_s;
            r->host_block[r->cursor] = r->host_last_block;
            r->host_s += t->issue_s;
            r->host_busy_s += t->issue_s;
        }
        r->cursor++;
        if (t->flags & SIM_HOST_BLOCKING) {
            if (r->finish_s[r->cursor - 1] < 0) {
                r->host_blocked_on = r->cursor - 1;
                return;
            }
            host_resume(r, r->cursor - 1);
        }
    }
}

static void begin(struct run *r, uint32_t stream, uint32_t task, double at_s) {
    const struct sim_record *t = &r->s->tasks[task];
    double length_s = duration(r, task);
    double end_s = at_s + length_s;
    if (t->flags & SIM_ISSUE_OVERLAPS)
        end_s = larger(end_s, r->issued_s[task] + t->issue_s);
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
    if (t->demand_set != 0 && length_s > 0) {
        r->flows[r->flow_count++] =
            (struct flow){.stream = stream,
                          .task = task,
                          .set = t->demand_set,
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
    const struct sim_record *t = &r->s->tasks[task];
    const uint32_t *deps = r->s->deps + t->first_dep;
    for (uint32_t i = t->dep_count; i-- > 0;) {
        if (r->finish_s[deps[i]] < 0) {
            r->blocked_on[stream] = deps[i];
            return;
        }
    }
    if (task >= r->cursor && !(t->flags & SIM_DETACHED)) {
        r->blocked_on[stream] = HOST;
        return;
    }
    double gate_s = r->issued_s[task] + (t->flags & SIM_ISSUE_OVERLAPS ? 0 : t->issue_s);
    if (gate_s <= r->now_s)
        begin(r, stream, task, r->now_s);
    else if (t->demand_set == 0 && t->alloc_bytes == 0)
        begin(r, stream, task, gate_s);
    else
        r->event_s[stream] = gate_s;
}

static void drop_flow(struct run *r, uint32_t task) {
    uint32_t i = 0;
    while (i < r->flow_count && r->flows[i].task != task)
        i++;
    if (i == r->flow_count)
        return;
    r->flows[i] = r->flows[--r->flow_count];
    r->rates_stale = true;
}

static void wake(struct run *r, uint32_t ended) {
    for (uint32_t i = 0; i < r->stream_count; i++)
        if (r->blocked_on[i] == ended)
            consider(r, i);
    if (r->host_blocked_on != ended)
        return;
    host_resume(r, ended);
    host_advance(r);
    for (uint32_t i = 0; i < r->stream_count; i++)
        if (r->blocked_on[i] == HOST)
            consider(r, i);
}

static void end(struct run *r, uint32_t stream) {
    uint32_t task = r->head[stream];
    const struct sim_record *t = &r->s->tasks[task];
    r->finish_s[task] = r->now_s;
    r->busy_s[stream] += r->now_s - r->start_s[task];
    r->running[stream] = false;
    r->memory_bytes -= t->free_bytes;
    if (t->demand_set != 0)
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
        const struct sim_demand_set *set = &r->s->sets[f->set];
        for (uint32_t k = 0; k < set->count; k++) {
            const struct sim_demand *d = &set->demands[k];
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
        const struct sim_demand_set *set = &r->s->sets[f->set];
        for (uint32_t k = 0; k < set->count && !f->frozen; k++) {
            const struct sim_demand *d = &set->demands[k];
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
        const struct sim_demand_set *set = &r->s->sets[r->flows[i].set];
        for (uint32_t k = 0; k < set->count; k++)
            r->load_per_s[set->demands[k].resource] +=
                set->demands[k].rate_per_s / r->flows[i].stretch;
    }
    for (uint32_t k = 0; k < r->s->resource_count; k++)
        if (r->load_per_s[k] > r->s->capacity_per_s[k])
            return true;
    return false;
}

static uint32_t share_slot(const struct run *r) {
    uint32_t h = r->flow_count;
    for (uint32_t i = 0; i < r->flow_count; i++)
        h = (h ^ r->flows[i].set) * UINT32_C(0x9E3779B1);
    return h >> (32 - SHARES_LOG2);
}

static bool share_matches(const struct run *r, uint32_t slot) {
    const struct share *at = &r->shares[slot];
    if (r->share_count[slot] != r->flow_count)
        return false;
    for (uint32_t i = 0; i < r->flow_count; i++)
        if (at->sets[i] != r->flows[i].set || at->stretch[i] != r->flows[i].stretch)
            return false;
    return true;
}

static void share_keep(const struct run *r, uint32_t slot, bool full) {
    struct share *at = &r->shares[slot];
    r->share_count[slot] = (uint8_t)r->flow_count;
    at->full = full;
    for (uint32_t i = 0; i < r->flow_count; i++) {
        at->sets[i] = r->flows[i].set;
        at->stretch[i] = r->flows[i].stretch;
        at->speed[i] = full ? 1 : r->flows[i].next_speed;
    }
}

// Sets next_speed of every flow; returns whether all run at full speed.
static bool shares_of(struct run *r) {
    if (r->flow_count == 0)
        return true;
    bool small = r->flow_count <= SHARED_FLOWS;
    uint32_t slot = small ? share_slot(r) : 0;
    if (small && share_matches(r, slot)) {
        const struct share *at = &r->shares[slot];
        for (uint32_t i = 0; i < r->flow_count; i++)
            r->flows[i].next_speed = at->speed[i];
        return at->full;
    }
    bool full = !overloaded(r);
    if (!full)
        share_out(r);
    if (small)
        share_keep(r, slot, full);
    return full;
}

static void settle_rates(struct run *r) {
    r->rates_stale = false;
    bool full = shares_of(r);
    if (full && !r->throttled)
        return;
    r->throttled = !full;
    for (uint32_t i = 0; i < r->flow_count; i++) {
        struct flow *f = &r->flows[i];
        double speed = full ? 1 : f->next_speed;
        if (speed == f->speed)
            continue;
        f->remaining_s = larger(f->remaining_s - (r->now_s - f->settled_at_s) * f->speed, 0);
        f->settled_at_s = r->now_s;
        f->speed = speed;
        double end_s = r->now_s + f->remaining_s / speed;
        const struct sim_record *t = &r->s->tasks[f->task];
        if (t->flags & SIM_ISSUE_OVERLAPS)
            end_s = larger(end_s, r->issued_s[f->task] + t->issue_s);
        r->event_s[f->stream] = end_s;
    }
}

static bool event_loop(struct run *r, struct err *e) {
    for (uint32_t left = r->s->task_count; left > 0;) {
        if (r->rates_stale)
            settle_rates(r);
        uint32_t best = 0;
        double best_s = r->event_s[0];
        for (uint32_t i = 1; i < r->stream_count; i++) {
            double t = r->event_s[i];
            if (t > best_s || (t == best_s && r->head[i] >= r->head[best]))
                continue;
            best = i;
            best_s = t;
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
    r->start_s = arena_array_raw(a, n + 1, sizeof *r->start_s);
    r->finish_s = arena_array_raw(a, n + 1, sizeof *r->finish_s);
    r->issued_s = arena_array(a, n + 1, sizeof *r->issued_s);
    r->shares = arena_array_raw(a, SHARES, sizeof *r->shares);
    r->share_count = arena_array(a, SHARES, sizeof *r->share_count);
    r->event_s = arena_array(a, streams + 1, sizeof *r->event_s);
    r->head = arena_array(a, streams + 1, sizeof *r->head);
    r->blocked_on = arena_array(a, streams + 1, sizeof *r->blocked_on);
    r->running = arena_array(a, streams + 1, sizeof *r->running);
    r->busy_s = arena_array(a, streams + 1, sizeof *r->busy_s);
    r->flows = arena_array(a, streams + 1, sizeof *r->flows);
    r->load_per_s = arena_array(a, s->resource_count + 1, sizeof *r->load_per_s);
    r->rates = arena_array(a, (size_t)(streams + 1) * SIM_DEMANDS_MAX, sizeof *r->rates);
    for (uint32_t i = 0; i < n; i++)
        r->finish_s[i] = -1;
    r->host_block = arena_array(a, n + 1, sizeof *r->host_block);
    r->memory_peak_task = r->host_last_block = SIM_NONE;
    host_advance(r);
    for (uint32_t i = 0; i < streams; i++)
        if (s->first[i] != SIM_NONE)
            r->head[r->stream_count++] = s->first[i];
    for (uint32_t i = 0; i < r->stream_count; i++)
        consider(r, i);
}

static const double *busy_of(const struct run *r, struct arena *a) {
    double *busy_s = arena_array(a, r->s->stream_count + 1, sizeof *busy_s);
    for (uint32_t i = 0, k = 0; i < r->s->stream_count; i++)
        if (r->s->first[i] != SIM_NONE)
            busy_s[i] = r->busy_s[k++];
    return busy_s;
}

bool sim_run(const struct sim *s, const double *multipliers, struct arena *a,
             struct sim_result *out, struct err *e) {
    struct run r = {.s = s, .multipliers = multipliers};
    run_prepare(&r, a);
    if (!event_loop(&r, e))
        return false;
    double end_s = r.host_s;
    for (uint32_t i = 0; i < s->task_count; i++)
        end_s = larger(end_s, r.finish_s[i]);
    *out = (struct sim_result){
        .end_s = end_s,
        .start_s = r.start_s,
        .finish_s = r.finish_s,
        .issued_s = r.issued_s,
        .host_block = r.host_block,
        .host_busy_s = r.host_busy_s,
        .host_end_s = r.host_s,
        .stream_busy_s = busy_of(&r, a),
        .memory_peak_bytes = r.memory_peak_bytes,
        .memory_end_bytes = r.memory_bytes,
        .memory_peak_task = r.memory_peak_task,
    };
    return true;
}
