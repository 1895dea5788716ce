// SPDX-License-Identifier: Apache-2.0
#include "judge/compare.h"

#include "cost/compute.h"
#include "cost/volume.h"

#include <math.h>
#include <string.h>

enum { ROWS_MAX = 64 };

static void add(struct comparison *c, const char *name, const char *unit, double predicted,
                double measured) {
    struct compare_row *r = &c->rows[c->count++];
    *r = (struct compare_row){name, unit, predicted, measured, NAN};
    if (predicted > 0 && measured > 0)
        r->ratio = measured / predicted;
}

static void start(struct comparison *c, struct arena *a) {
    c->rows = arena_array(a, ROWS_MAX, sizeof *c->rows);
    c->count = 0;
}

// ---- trace --------------------------------------------------------------------------------------

struct kernels {
    double gemm_s, attention_s, memory_s;
};

// All units of all micro-steps of this rank's pipeline stage.
static struct kernels predicted_kernels(const struct step_request *q) {
    const struct compute_context x = {q->model, q->cluster, q->recipe};
    struct kernels k = {0};
    double times = (double)q->recipe->grad_accum / (double)q->recipe->pp;
    for (size_t i = 0; i < q->model->unit_count; i++) {
        const struct model_unit *u = &q->model->units[i];
        struct unit_cost forward, backward;
        compute_unit(&x, u, &forward, &backward);
        double n = times * (double)u->repeat;
        k.gemm_s += n * (forward.gemm_s + backward.gemm_s);
        k.attention_s += n * (forward.attention_s + backward.attention_s);
        k.memory_s += n * (forward.duration_s + backward.duration_s - forward.gemm_s -
                           backward.gemm_s - forward.attention_s - backward.attention_s);
    }
    return k;
}

static double optimizer_s(const struct step_timeline *t) {
    double sum = 0;
    for (size_t i = 0; i < t->task_count; i++)
        if (strcmp(t->tasks[i].stream, "compute") == 0 &&
            strcmp(t->tasks[i].phase, "optimizer") == 0)
            sum += t->tasks[i].end_s - t->tasks[i].start_s;
    return sum;
}

// The name of a communication task begins with its collective.
static double collective_s(const struct step_timeline *t, enum collective c) {
    const char *name = collective_name(c);
    size_t n = strlen(name);
    double sum = 0;
    for (size_t i = 0; i < t->task_count; i++)
        if (strncmp(t->tasks[i].name, name, n) == 0 && t->tasks[i].name[n] == ' ')
            sum += t->tasks[i].end_s - t->tasks[i].start_s;
    return sum;
}

static void add_collectives(const struct volume *v, const struct step_timeline *t,
                            const struct profile *p, struct arena *a, struct comparison *out) {
    static const enum profile_class classes[COLLECTIVE_COUNT] = {
        [COLLECTIVE_ALL_GATHER] = PROFILE_ALL_GATHER,
        [COLLECTIVE_REDUCE_SCATTER] = PROFILE_REDUCE_SCATTER,
        [COLLECTIVE_ALL_REDUCE] = PROFILE_ALL_REDUCE,
        [COLLECTIVE_ALL_TO_ALL] = PROFILE_ALL_TO_ALL,
        [COLLECTIVE_BROADCAST] = PROFILE_BROADCAST,
        [COLLECTIVE_REDUCE] = PROFILE_REDUCE,
        [COLLECTIVE_SEND_RECV] = PROFILE_SEND_RECV};
    for (int c = 0; c < COLLECTIVE_COUNT; c++) {
        const struct profile_class_total *m = &p->classes[classes[c]];
        double calls = 0, bytes = 0;
        for (size_t i = 0; i < v->transfer_count; i++)
            if (v->transfers[i].kind == TRANSFER_COLLECTIVE &&
                (int)v->transfers[i].collective == c) {
                calls += (double)v->transfers[i].count;
                bytes += v->transfers[i].payload_bytes;
            }
        if (calls == 0 && m->count == 0)
            continue;
        const char *name = collective_name((enum collective)c);
        add(out, name, "s", collective_s(t, (enum collective)c), m->busy_s);
        add(out, arena_printf(a, "%s calls", name), "calls", calls, m->count);
        add(out, arena_printf(a, "%s payload", name), "bytes", bytes, m->payload_bytes);
    }
}

bool compare_profile(const struct step_request *q, const struct step_time *time,
                     const struct step_timeline *timeline, const struct profile *p, struct arena *a,
                     struct comparison *out, struct err *e) {
    const struct profile_class_total *c = p->classes;
    struct volume v;
    if (timeline->micro_steps < q->recipe->grad_accum)
        return err_set(e, ERR_USAGE,
                       "a trace is compared task by task, so with at most %d micro-steps, not %llu",
                       STEP_WHOLE_MICRO_STEPS, (unsigned long long)q->recipe->grad_accum);
    if (!volume_estimate(q->model, q->cluster, q->recipe, &v, e))
        return false;
    struct kernels k = predicted_kernels(q);
    start(out, a);
    add(out, "step", "s", time->step_s, p->step_s);
    add(out, "GPU kernels", "s", time->compute_s, p->compute_s);
    add(out, "exposed network", "s", time->exposed_comm_s, p->exposed_comm_s);
    add(out, "exposed copies", "s", time->exposed_offload_s, p->exposed_copy_s);
    add(out, "GPU idle", "s", time->host_issue_s, p->idle_s);
    add(out, "matmuls", "s", k.gemm_s, c[PROFILE_GEMM].busy_s);
    add(out, "attention", "s", k.attention_s, c[PROFILE_ATTENTION].busy_s);
    add(out, "norms, loss, elementwise", "s", k.memory_s,
        c[PROFILE_NORM].busy_s + c[PROFILE_LOSS].busy_s + c[PROFILE_ELEMENTWISE].busy_s +
            c[PROFILE_OTHER].busy_s + c[PROFILE_COPY_D2D].busy_s);
    add(out, "optimizer kernels", "s", optimizer_s(timeline), c[PROFILE_OPTIMIZER].busy_s);
    add_collectives(&v, timeline, p, a, out);
    return true;
}

// ---- snapshot -----------------------------------------------------------------------------------

void compare_snapshot(const struct memory *m, const struct snapshot *s, struct arena *a,
                      struct comparison *out) {
    const uint64_t *p = m->phases[m->peak_phase].classes_bytes, *b = s->peak_bytes;
    start(out, a);
    add(out, "allocated peak", "bytes", (double)m->allocated_peak_bytes,
        (double)s->allocated_peak_bytes);
    add(out, "reserved peak", "bytes", (double)m->reserved_bytes, (double)s->reserved_peak_bytes);
    add(out, "params", "bytes", (double)p[MEMORY_PARAMS], (double)b[SNAPSHOT_PARAMS]);
    add(out, "grads, autograd's memory", "bytes", (double)p[MEMORY_GRADS],
        (double)(b[SNAPSHOT_GRADS] + b[SNAPSHOT_BACKWARD]));
    add(out, "optimizer, master", "bytes", (double)(p[MEMORY_OPTIMIZER] + p[MEMORY_MASTER]),
        (double)b[SNAPSHOT_OPTIMIZER]);
    add(out, "gather", "bytes", (double)p[MEMORY_GATHER], (double)b[SNAPSHOT_GATHER]);
    add(out, "bucket", "bytes", (double)p[MEMORY_BUCKET], (double)b[SNAPSHOT_BUCKET]);
    add(out, "activations", "bytes", (double)p[MEMORY_ACTIVATIONS],
        (double)b[SNAPSHOT_ACTIVATIONS]);
    add(out, "logits", "bytes", (double)p[MEMORY_LOGITS], (double)b[SNAPSHOT_LOGITS]);
    add(out, "step transient", "bytes", (double)p[MEMORY_STEP_TRANSIENT],
        (double)b[SNAPSHOT_STEP_TRANSIENT]);
    add(out, "no stack: kept throughout", "bytes", NAN, (double)b[SNAPSHOT_KEPT]);
    add(out, "no stack: side streams", "bytes", NAN, (double)b[SNAPSHOT_SIDE_STREAM]);
    add(out, "not attributed", "bytes", NAN, (double)b[SNAPSHOT_UNKNOWN]);
}
