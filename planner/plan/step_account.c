// SPDX-License-Identifier: Apache-2.0
#include "plan/step_account.h"

#include <math.h>
#include <string.h>

#define BUCKETS_MAX 64

struct bucket {
    enum step_phase phase;
    enum step_cost_kind kind;
    enum step_op op;
    uint8_t collective;
    bool spans_nodes;
    double seconds;
};

struct accounting {
    struct step_builder *b;
    const struct sim_result *r;
    struct step_account *out;
    struct bucket buckets[BUCKETS_MAX];
    uint32_t bucket_count;
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

// `task` is what was waited for; SIM_NONE: the host.
static void charge(struct accounting *a, enum step_cost_kind kind, uint32_t task, double seconds) {
    if (!(seconds > 0))
        return;
    enum step_phase phase = a->phase;
    if (task != SIM_NONE && a->b->meta[task].phase != phase)
        phase = (enum step_phase)a->b->meta[task].phase; // backward's last reductions are its own
    a->out->by_kind[kind] += seconds;
    a->out->by_phase[phase] += seconds;
    const struct step_meta issue = {.op = OP_FORWARD};
    const struct step_meta *m = task == SIM_NONE ? &issue : &a->b->meta[task];
    if (task != SIM_NONE && kind != COST_HOST) {
        a->out->exposed[task] = true;
        a->out->stream_exposed_s[sim_task_stream(a->b->sim, task)] += seconds;
    }
    for (uint32_t i = 0; i < a->bucket_count; i++) {
        struct bucket *at = &a->buckets[i];
        if (at->phase == phase && at->kind == kind && at->op == m->op &&
            at->collective == m->collective && at->spans_nodes == m->spans_nodes) {
            at->seconds += seconds;
            return;
        }
    }
    if (a->bucket_count < BUCKETS_MAX)
        a->buckets[a->bucket_count++] = (struct bucket){
            phase, kind, (enum step_op)m->op, m->collective, m->spans_nodes, seconds};
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
    a->out->by_kind[COST_COMPUTE] += own_s;
    a->out->by_phase[a->phase] += own_s;
    if (late_s <= 0)
        return;
    double host_s = a->r->issued_s[task] + sim_task_issue_s(a->b->sim, task) -
                    (a->r->start_s[task] + m->exact_s);
    if (m->op == OP_FORWARD || m->op == OP_BACKWARD) {
        host_s = fmin(fmax(host_s, 0), late_s);
        charge(a, COST_HOST, SIM_NONE, host_s);
        late_s -= host_s;
    }
    a->out->by_kind[COST_COMPUTE] += late_s;
    a->out->by_phase[a->phase] += late_s;
    a->out->contention_s += late_s;
}

static struct step_sums sums_of(const struct step_account *a) {
    struct step_sums s;
    memcpy(s.by_phase, a->by_phase, sizeof s.by_phase);
    memcpy(s.by_kind, a->by_kind, sizeof s.by_kind);
    return s;
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
            before[marks] = sums_of(a->out);
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

static const char *wait_text(const struct accounting *a, const struct bucket *w) {
    if (w->kind == COST_HOST)
        return w->op == OP_STEP_HOST ? "the host between steps: data, loss read-back, zero_grad"
                                     : "the host issuing kernels";
    if (step_ops[w->op].class == CLASS_COMM)
        return arena_printf(a->b->arena, "%s %s of %s",
                            w->spans_nodes ? "inter-node" : "intra-node",
                            collective_name((enum collective)w->collective), step_ops[w->op].name);
    return step_ops[w->op].name;
}

static void list_waits(struct accounting *a) {
    struct step_account *out = a->out;
    for (uint32_t i = 0; i < a->bucket_count; i++) // insertion sort, largest first, stable
        for (uint32_t k = i; k > 0 && a->buckets[k].seconds > a->buckets[k - 1].seconds; k--) {
            struct bucket t = a->buckets[k];
            a->buckets[k] = a->buckets[k - 1];
            a->buckets[k - 1] = t;
        }
    out->waits = arena_array(a->b->arena, a->bucket_count + 1, sizeof *out->waits);
    const double least = 1e-3; // of its phase: below this a wait is not worth a line
    for (uint32_t i = 0; i < a->bucket_count; i++) {
        const struct bucket *w = &a->buckets[i];
        double phase_s = out->by_phase[w->phase];
        if (!(phase_s > 0) || w->seconds < least * phase_s)
            continue;
        out->waits[out->wait_count++] = (struct step_wait){
            step_phase_names[w->phase], wait_text(a, w), w->seconds, w->seconds / phase_s};
    }
}

// Follow the longest chain back from the end and sum what its links are made of.
static void follow_critical(struct accounting *a) {
    const struct sim_result *r = a->r;
    uint32_t count = sim_task_count(a->b->sim), at = SIM_NONE;
    for (uint32_t i = 0; i < count; i++)
        if (at == SIM_NONE || r->finish_s[i] >= r->finish_s[at])
            at = i;
    double low_s[CLASS_COUNT] = {0}, sum = 0;
    while (at != SIM_NONE) {
        const struct step_meta *m = &a->b->meta[at];
        double took_s = r->finish_s[at] - r->start_s[at];
        enum step_class class = step_ops[m->op].class;
        low_s[class] += took_s * (1 - m->low);
        if (class == CLASS_COMPUTE)
            a->out->critical_high_s += took_s * (m->high - 1);
        at = sim_task_cause(a->b->sim, r, at).task;
    }
    for (int i = 0; i < CLASS_COUNT; i++) // the classes' constants are independent
        sum += low_s[i] * low_s[i];
    a->out->critical_low_s = sqrt(sum);
}

void step_account(struct step_builder *b, const struct sim_result *r, struct step_account *out) {
    struct accounting a = {.b = b, .r = r, .out = out};
    *out = (struct step_account){0};
    out->exposed = arena_array(b->arena, sim_task_count(b->sim) + 1, sizeof *out->exposed);
    out->stream_exposed_s = arena_array(b->arena, STEP_STREAM_COUNT, sizeof(double));
    account_compute(&a);
    if (b->quick) // neither waits nor an interval
        return;
    list_waits(&a);
    follow_critical(&a);
}
