// SPDX-License-Identifier: Apache-2.0
#include "judge/validate.h"

#include "base/stats.h"
#include "base/units.h"
#include "judge/validate_map.h"
#include "judge/validate_stats.h"
#include "plan/plan.h"

#include <math.h>
#include <string.h>

const char *const validate_metric_names[METRIC_COUNT] = {
    [METRIC_STEP_TIME] = "step_time", [METRIC_MEMORY] = "memory", [METRIC_BUSBW] = "busbw"};

struct prediction {
    bool time, memory;
    struct step_time step;
    struct memory bytes;
    const char *time_reason, *memory_reason;
    struct measured_key run;
};

static void predict(const struct run_row *row, struct arena *a, struct prediction *p) {
    struct run_setup s;
    struct err e = {0};
    *p = (struct prediction){0};
    if (!validate_map_row(row, a, &s, &e)) {
        p->time_reason = p->memory_reason = arena_printf(a, "not predicted: %s", e.text);
        return;
    }
    p->run = plan_measured_key(&s.model, &s.cluster, &s.recipe);
    p->memory = memory_estimate(&s.model, &s.cluster, &s.recipe, &p->bytes, &e);
    if (!p->memory) {
        p->memory_reason = arena_printf(a, "not predicted: %s", e.text);
    }
    struct err te = {0};
    const struct step_request q = {.model = &s.model, .cluster = &s.cluster, .recipe = &s.recipe};
    p->time = step_simulate(&q, a, &p->step, NULL, &te) && isfinite(p->step.step_s);
    if (!p->time) {
        p->time_reason =
            arena_printf(a, "not predicted: %s", te.text[0] != '\0' ? te.text : p->step.reason);
    }
}

static double predicted_memory(const struct memory *m, enum memory_reading r, double *low,
                               double *high) {
    *low = *high = NAN;
    switch (r) {
    case READING_ALLOCATED:
        return (double)m->allocated_peak_bytes;
    case READING_RESERVED:
        *low = (double)m->reserved_low_bytes;
        *high = (double)m->reserved_high_bytes;
        return (double)m->reserved_bytes;
    case READING_NVIDIA_SMI:
        *low = (double)(m->reserved_low_bytes + m->framework_bytes);
        *high = (double)(m->reserved_high_bytes + m->framework_bytes);
        return (double)m->nvidia_smi_bytes;
    default:
        return NAN;
    }
}

static struct validate_point point_of(const struct run_row *row, enum validate_metric metric,
                                      struct arena *a) {
    return (struct validate_point){
        .id = row->id,
        .source = row->source != NULL ? row->source : "not stated",
        .group = score_group_names[row->score.group],
        .part =
            arena_printf(a, "%s/%s", row->score.stack, row->strategy != NULL ? row->strategy : "?"),
        .metric = metric,
        .measured = NAN,
        .predicted = NAN,
        .low = NAN,
        .high = NAN,
        .ape = NAN,
        .exposed_fraction = NAN,
    };
}

static void settle(struct validate_point *v, bool eligible, const char *reason,
                   const char *failure) {
    v->ape = fabs(v->predicted - v->measured) / v->measured;
    v->scored = eligible && isfinite(v->ape);
    if (failure == NULL)
        failure = "no such kind of reading is predicted";
    if (!eligible && reason == NULL)
        reason = "left out by the file's own score block";
    v->reason = eligible ? (v->scored ? NULL : failure) : reason;
}

static void add_row(const struct run_row *row, struct validate_result *out, struct arena *a) {
    struct prediction p;
    const bool wanted = row->score.time_scored || row->score.memory_scored;
    if (wanted) {
        predict(row, a, &p);
    } else {
        p = (struct prediction){0};
    }
    struct validate_point t = point_of(row, METRIC_STEP_TIME, a);
    t.run = p.run;
    t.measured = row->score.step_s;
    if (p.time) {
        t.predicted = p.step.step_s;
        t.low = p.step.step_low_s;
        t.high = p.step.step_high_s;
        t.exposed_fraction =
            (p.step.exposed_comm_s + p.step.exposed_offload_s + p.step.bubble_s) / p.step.step_s;
    }
    settle(&t, row->score.time_scored, row->score.time_reason, p.time_reason);
    out->points[out->point_count++] = t;
    struct validate_point m = point_of(row, METRIC_MEMORY, a);
    m.run = p.run;
    m.measured = row->score.memory_gib * (double)UNITS_GIB;
    if (p.memory) {
        m.predicted = predicted_memory(&p.bytes, row->score.memory_reading, &m.low, &m.high);
    }
    settle(&m, row->score.memory_scored, row->score.memory_reason, p.memory_reason);
    out->points[out->point_count++] = m;
    if (row->score.time_scored && p.memory) { // it ran
        out->fits_n++;
        out->false_oom += p.bytes.fits_state == FITS_NO;
    }
}

// A run that its source saw run out of memory must not be called a fit.
static void add_oom(const struct run_row *row, struct validate_result *out, struct arena *a) {
    struct run_setup s;
    struct memory m;
    struct err e = {0};
    if (!row->measured.out_of_memory || !validate_map_row(row, a, &s, &e) ||
        !memory_estimate(&s.model, &s.cluster, &s.recipe, &m, &e)) {
        return;
    }
    out->fits_n++;
    out->false_fit += m.fits_state == FITS_YES;
}

bool validate_runs(const char *path, struct arena *a, struct validate_result *out, struct err *e) {
    struct run_row *rows = NULL;
    size_t count = 0;
    if (!validate_row_read(path, a, &rows, &count, e)) {
        return false;
    }
    struct validate_result r = {0};
    r.points = arena_array(a, 2 * count + 1, sizeof *r.points);
    for (size_t i = 0; i < count; i++) {
        add_row(&rows[i], &r, a);
        add_oom(&rows[i], &r, a);
    }
    validate_stats_runs(&r, a);
    *out = r;
    return true;
}
