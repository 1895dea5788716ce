// SPDX-License-Identifier: Apache-2.0
#include "plan/step_account.h"

#include <math.h>
#include <string.h>

struct accounting {
    struct step_builder *b;
    const struct sim_result *r;
    struct step_account *out;
    enum step_phase phase; // of the compute task that waits
};

static enum step_cost_kind kind_of(const struct step_builder *b, const struct step_meta *m) {
    switch (m->op) {
    case OP_CPU_ADAM:
        // At the memory floor the cores wait for DRAM.
        return m->bytes / b->rates.dram_bytes_per_s > 0.9 * m->exact_s ? COST_DRAM : COST_CPU;
    case OP_CPU_PASS:
        return COST_DRAM;
    case OP_NVME_READ:
    case OP_NVME_WRITE:
        return COST_NVME;
    case OP_STEP_HOST:
        return COST_HOST;
    default:
        break;
    }
    if (step_ops[m->op].class == CLASS_OFFLOAD)
        return b->rates.h2d_bytes_per_s < b->rates.dram_bytes_per_s ? COST_PCIE : COST_DRAM;
    if (step_ops[m->op].class == CLASS_COMPUTE)
        return COST_INTRA; // a copy on a side stream, on the way of a collective
    if (m->spans_nodes)
        return m->latency_bound ? COST_LATENCY : COST_INTER;
    return COST_INTRA;
}

static struct step_bucket *find_bucket(struct step_account *x, const struct step_bucket *like) {
    for (uint32_t i = 0; i < x->bucket_count; i++) {
        struct step_bucket *at = &x->buckets[i];
        if (at->phase == like->phase && at->kind == like->kind && at->op == like->op &&
            at->collective == like->collective && at->spans_nodes == like->spans_nodes)
            return at;
    }
    return NULL;
}

// `task` is what was waited for; SIM_NONE: the host.
static void charge(struct accounting *a, enum step_cost_kind kind, uint32_t task, double seconds) {
    if (!(seconds > 0))
        return;
    enum step_phase phase = a->phase;
    if (task != SIM_NONE && a->b->meta[task].phase != phase)
        phase = (enum step_phase)a->b->meta[task].phase; // backward's last reductions are its own
    a->out->sums.by_kind[kind] += seconds;
    a->out->sums.by_phase[phase] += seconds;
    const struct step_meta issue = {.op = OP_FORWARD};
    const struct step_meta *m = task == SIM_NONE ? &issue : &a->b->meta[task];
    if (task != SIM_NONE && kind != COST_HOST) {
        a->out->exposed[task] = true;
        a->out->stream_exposed_s[sim_task_stream(a->b->sim, task)] += seconds;
    }
    struct step_bucket at = {phase, kind, (enum step_op)m->op, m->collective, m->spans_nodes, 0};
    struct step_bucket *found = find_bucket(a->out, &at);
    if (found == NULL && a->out->bucket_count < STEP_BUCKETS_MAX) {
        found = &a->out->buckets[a->out->bucket_count++];
        *found = at;
    }
    if (found != NULL)
        found->seconds += seconds;
}

// Explain (from, to], the time before `task` could start, walking back over what held it.
static void explain(struct accounting *a, uint32_t task, double from_s, double to_s) {
    const struct sim_result *r = a->r;
    while (to_s > from_s) {
        struct sim_cause c = sim_task_cause(a->b->sim, r, task);
        if (c.kind == SIM_CAUSE_NONE || c.kind == SIM_CAUSE_HOST) {
            double since_s = c.task == SIM_NONE ? 0 : r->finish_s[c.task];
            charge(a, COST_HOST, SIM_NONE, to_s - fmax(since_s, from_s));
            if (c.task == SIM_NONE)
                return;
            to_s = fmin(to_s, since_s);
            if (to_s <= from_s)
                return;
        }
        double begin_s = fmax(r->start_s[c.task], from_s);
        charge(a, kind_of(a->b, &a->b->meta[c.task]), c.task, to_s - begin_s);
        to_s = fmin(to_s, r->start_s[c.task]);
        task = c.task;
    }
}

// A compute task's own time: its kernels, the host that launched them late, and contention.
static void account_task(struct accounting *a, uint32_t task) {
    const struct step_meta *m = &a->b->meta[task];
    double took_s = a->r->finish_s[task] - a->r->start_s[task];
    double late_s = took_s - m->exact_s;
    if (step_ops[m->op].class != CLASS_COMPUTE) { // a copy the framework runs in line
        charge(a, kind_of(a->b, m), task, took_s);
        return;
    }
    double own_s = fmin(took_s, m->exact_s);
    a->out->sums.by_kind[COST_COMPUTE] += own_s;
    a->out->sums.by_phase[a->phase] += own_s;
    if (late_s <= 0)
        return;
    double host_s = a->r->issued_s[task] + sim_task_issue_s(a->b->sim, task) -
                    (a->r->start_s[task] + m->exact_s);
    if (m->op == OP_FORWARD || m->op == OP_BACKWARD) {
        host_s = fmin(fmax(host_s, 0), late_s);
        charge(a, COST_HOST, SIM_NONE, host_s);
        late_s -= host_s;
    }
    a->out->sums.by_kind[COST_COMPUTE] += late_s;
    a->out->sums.by_phase[a->phase] += late_s;
    a->out->contention_s += late_s;
}

static void subtract(struct step_sums *from, const struct step_sums *s) {
    for (int i = 0; i < STEP_PHASE_COUNT; i++)
        from->by_phase[i] -= s->by_phase[i];
    for (int i = 0; i < STEP_COST_COUNT; i++)
        from->by_kind[i] -= s->by_kind[i];
}

static void account_compute(struct accounting *a) {
    struct step_builder *b = a->b;
    double at_s = 0;
    struct step_sums before[STEP_MICRO_MARKS]; // each mark's sums
    uint32_t marks = 0;
    uint32_t count = sim_task_count(b->sim), final = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (a->r->finish_s[i] >= a->r->finish_s[final])
            final = i;
        if (sim_task_stream(b->sim, i) != STREAM_COMPUTE)
            continue;
        for (; marks < b->micro_count && i >= b->micro_end[marks]; marks++)
            before[marks] = a->out->sums;
        a->phase = b->meta[i].phase;
        explain(a, i, at_s, a->r->start_s[i]);
        account_task(a, i);
        at_s = a->r->finish_s[i];
    }
    if (marks == STEP_MICRO_MARKS) {
        subtract(&before[1], &before[0]);
        a->out->second = before[1];
    }
    if (count == 0 || a->r->end_s <= at_s)
        return;
    a->phase = b->meta[final].phase;
    double begin_s = fmax(a->r->start_s[final], at_s);
    charge(a, kind_of(b, &b->meta[final]), final, a->r->finish_s[final] - begin_s);
    explain(a, final, at_s, begin_s);
    charge(a, COST_HOST, SIM_NONE, a->r->end_s - fmax(a->r->finish_s[final], at_s));
}

// Follow the longest chain back from the end and sum what its links are made of.
static void follow_critical(struct accounting *a) {
    const struct sim_result *r = a->r;
    uint32_t count = sim_task_count(a->b->sim), at = SIM_NONE;
    for (uint32_t i = 0; i < count; i++)
        if (at == SIM_NONE || r->finish_s[i] >= r->finish_s[at])
            at = i;
    while (at != SIM_NONE) {
        const struct step_meta *m = &a->b->meta[at];
        double took_s = r->finish_s[at] - r->start_s[at];
        enum step_class class = step_ops[m->op].class;
        a->out->critical_low_s[class] += took_s * (1 - m->low);
        if (class == CLASS_COMPUTE)
            a->out->critical_high_s += took_s * (m->high - 1);
        at = sim_task_cause(a->b->sim, r, at).task;
    }
}

void step_account(struct step_builder *b, const struct sim_result *r, struct step_account *out) {
    struct accounting a = {.b = b, .r = r, .out = out};
    *out = (struct step_account){0};
    out->exposed = arena_array(b->arena, sim_task_count(b->sim) + 1, sizeof *out->exposed);
    for (int i = 0; i < STEP_STREAM_COUNT; i++)
        out->stream_busy_s[i] = r->stream_busy_s[i];
    account_compute(&a);
    if (!b->quick)
        follow_critical(&a);
}

// ---- long accumulations -------------------------------------------------------------------------

static void lengthen(double *x, const double *shorter, size_t count, double more) {
    for (size_t i = 0; i < count; i++)
        x[i] += more * (x[i] - shorter[i]);
}

static void add_sums(struct step_sums *to, const struct step_sums *one, double more) {
    for (int i = 0; i < STEP_PHASE_COUNT; i++)
        to->by_phase[i] += more * one->by_phase[i];
    for (int i = 0; i < STEP_COST_COUNT; i++)
        to->by_kind[i] += more * one->by_kind[i];
}

void step_account_lengthen(struct step_account *x, const struct step_account *shorter,
                           double more) {
    struct step_sums one = x->second;
    if (shorter != NULL) {
        one = x->sums;
        subtract(&one, &shorter->sums);
    }
    add_sums(&x->sums, &one, more);
    if (shorter == NULL)
        return;
    struct step_account s = *shorter;
    for (uint32_t i = 0; i < x->bucket_count; i++) {
        const struct step_bucket *at = find_bucket(&s, &x->buckets[i]);
        double before_s = at ? at->seconds : 0;
        lengthen(&x->buckets[i].seconds, &before_s, 1, more);
    }
    lengthen(&x->contention_s, &s.contention_s, 1, more);
    lengthen(x->stream_busy_s, s.stream_busy_s, STEP_STREAM_COUNT, more);
    lengthen(x->stream_exposed_s, s.stream_exposed_s, STEP_STREAM_COUNT, more);
    lengthen(x->critical_low_s, s.critical_low_s, CLASS_COUNT, more);
    lengthen(&x->critical_high_s, &s.critical_high_s, 1, more);
    lengthen(&x->slow_links_s, &s.slow_links_s, 1, more);
}

// ---- waits --------------------------------------------------------------------------------------

static const char *wait_text(const struct step_bucket *w, struct arena *a) {
    if (w->kind == COST_HOST)
        return w->op == OP_STEP_HOST ? "the host between steps: data, loss read-back, zero_grad"
                                     : "the host issuing kernels";
    if (step_ops[w->op].class == CLASS_COMM)
        return arena_printf(a, "%s %s of %s", w->spans_nodes ? "inter-node" : "intra-node",
                            collective_name((enum collective)w->collective), step_ops[w->op].name);
    return step_ops[w->op].name;
}

// The longer; of two that differ by rounding alone the one of the earlier phase.
static bool comes_before(const struct step_bucket *a, const struct step_bucket *b) {
    const double alike = 1 + 1e-9;
    if (a->seconds > alike * b->seconds || b->seconds > alike * a->seconds)
        return a->seconds > b->seconds;
    return a->phase != b->phase ? a->phase < b->phase : a->op < b->op;
}

size_t step_account_waits(const struct step_account *x, struct arena *a, struct step_wait *out,
                          size_t room) {
    struct step_bucket sorted[STEP_BUCKETS_MAX];
    size_t n = 0;
    memcpy(sorted, x->buckets, x->bucket_count * sizeof *sorted);
    for (uint32_t i = 0; i < x->bucket_count; i++) // insertion sort, largest first
        for (uint32_t k = i; k > 0 && comes_before(&sorted[k], &sorted[k - 1]); k--) {
            struct step_bucket t = sorted[k];
            sorted[k] = sorted[k - 1];
            sorted[k - 1] = t;
        }
    const double least = 1e-3; // of its phase: below this a wait is not worth a line
    for (uint32_t i = 0; i < x->bucket_count && n < room; i++) {
        const struct step_bucket *w = &sorted[i];
        double phase_s = x->sums.by_phase[w->phase];
        if (phase_s > 0 && w->seconds >= least * phase_s)
            out[n++] = (struct step_wait){step_phase_names[w->phase], wait_text(w, a), w->seconds,
                                          w->seconds / phase_s};
    }
    return n;
}
