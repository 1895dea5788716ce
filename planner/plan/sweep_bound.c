// SPDX-License-Identifier: Apache-2.0
#include "plan/sweep_bound.h"

#include "base/units.h"
#include "cost/compute.h"
#include "cost/memory.h"
#include "plan/sweep_lines.h"
#include "plan/sweep_zero3.h"

#include <math.h>
#include <string.h>

// A bound stays under the simulated value although a long accumulation is extrapolated.
static const double margin = 0.999;
static const uint64_t many_micro_steps = 1000000; // more than any step has

struct work { // one micro-step of the units alone
    double forward_s, backward_s;
    double first_s;         // forward of what stands before the first block
    double head_backward_s; // backward of the last unit
    double issue_s;
};

struct family_bound {
    const struct work *work;   // [micro][recompute][loss]
    struct sweep_lines *lines; // [recompute][reduce]; below stage 3 all modes are alike
    double *peak_bytes;        // [micro][recompute][loss]; INFINITY: fits nowhere
    double capacity_bytes, once_s;
    struct cluster cluster;
};

struct sweep_bounds {
    const struct sweep_points *points;
    const struct sweep_basis *basis;
    const struct sweep_coordinators *coordinators;
    struct family_bound *families;
};

// ---- units --------------------------------------------------------------------------------------

struct work_key {
    enum precision precision;
    enum framework framework;
    enum kernel_stack stack;
    bool stage3;
    uint64_t tp, cp, pp, ep;
};

static bool splits_model(const struct recipe *r) {
    return r->tp * r->cp * r->pp * r->ep > 1;
}

static struct work work_of(const struct model *m, const struct cluster *c, const struct recipe *r) {
    struct work w = {0};
    bool before = true;
    for (size_t i = 0; i < m->unit_count; i++) {
        const struct model_unit *u = &m->units[i];
        struct unit_cost forward, backward;
        double n = (double)recipe_stage_units(r, m, u);
        compute_unit(&(struct compute_context){m, c, r}, u, &forward, &backward);
        before = before && u->kind != UNIT_BLOCK;
        w.forward_s += n * forward.duration_s;
        w.backward_s += n * backward.duration_s;
        w.issue_s += n * (forward.issue_s + backward.issue_s);
        w.first_s += before ? n * forward.duration_s : 0;
        w.head_backward_s = backward.duration_s;
    }
    return w;
}

static size_t cell_count(const struct sweep_space *s) {
    return s->micro_batch.count * s->recompute.count * s->loss.count;
}

static void set_cell(const struct sweep_space *s, size_t cell, struct recipe *r) {
    r->micro_batch = s->micro_batch.items[cell / s->loss.count / s->recompute.count];
    r->recompute = (enum recompute)s->recompute.items[cell / s->loss.count % s->recompute.count];
    r->recompute_every =
        r->recompute == RECOMPUTE_EVERY_N && !r->recompute_every ? 2 : r->recompute_every;
    r->loss = (enum loss_head)s->loss.items[cell % s->loss.count];
    r->grad_accum = 1;
    r->global_batch = 0;
}

static bool fill_work(const struct sweep_bounds *t, size_t family, struct work *table,
                      struct err *e) {
    const struct cluster *c = &t->families[family].cluster;
    for (size_t i = 0; i < cell_count(t->points->space); i++) {
        struct recipe r = t->points->families[family].recipe;
        set_cell(t->points->space, i, &r);
        r.grad_accum = many_micro_steps; // what is done once per step stays out of the bound
        if (!recipe_resolve(&r, t->basis->model, c, e))
            return false;
        table[i] = work_of(t->basis->model, c, &r);
    }
    return true;
}

static bool share_work(struct sweep_bounds *t, struct arena *a, struct err *e) {
    const struct sweep_points *p = t->points;
    size_t keys = 0;
    struct work_key *key = arena_array(a, p->family_count, sizeof *key);
    struct work **tables = arena_array(a, p->family_count, sizeof *tables);
    for (size_t i = 0; i < p->family_count; i++) {
        const struct recipe *r = &p->families[i].recipe;
        struct work_key *k = &key[keys];
        k->precision = r->precision;
        k->framework = r->framework;
        k->stack = r->stack;
        k->stage3 = recipe_is_stage3(r);
        k->tp = r->tp;
        k->cp = r->cp;
        k->pp = r->pp;
        k->ep = r->ep;
        size_t j = 0;
        while (j < keys && memcmp(&key[j], k, sizeof *k) != 0)
            j++;
        if (j == keys) {
            tables[keys++] = arena_array(a, cell_count(p->space), sizeof **tables);
            if (!fill_work(t, i, tables[j], e))
                return false;
        }
        t->families[i].work = tables[j];
    }
    return true;
}

// ---- families -----------------------------------------------------------------------------------

static bool holds(const struct memory *m) {
    return m->fits_state != FITS_NO && (m->host_fits || !m->host_known) &&
           (m->nvme_fits || !m->nvme_known);
}

static uint64_t least_of(const struct sweep_values *v) {
    uint64_t least = v->items[0];
    for (size_t i = 1; i < v->count; i++)
        least = v->items[i] < least ? v->items[i] : least;
    return least;
}

// Memory of each cell with the smallest buckets and the least that the coordinator ever holds.
static void fill_peaks(const struct sweep_bounds *t, size_t family, struct family_bound *out) {
    const struct sweep_space *s = t->points->space;
    const struct sweep_family *f = &t->points->families[family];
    for (size_t i = 0; i < cell_count(s); i++) {
        struct recipe r = f->recipe;
        struct memory m;
        struct err ignored = {0};
        out->peak_bytes[i] = INFINITY;
        set_cell(s, i, &r);
        if (f->sequences_per_gpu == 0 || f->sequences_per_gpu % r.micro_batch != 0)
            continue;
        r.grad_accum = f->sequences_per_gpu / r.micro_batch;
        if (recipe_is_deepspeed(&r))
            r.reduce_bucket_elements = least_of(&s->reduce_bucket);
        if (recipe_is_stage3(&r))
            r.zero3 = &sweep_coordinator_least(t->coordinators, family,
                                               i / s->loss.count % s->recompute.count)
                           ->traffic;
        if (!recipe_resolve(&r, t->basis->model, &out->cluster, &ignored) ||
            !memory_estimate(t->basis->model, &out->cluster, &r, &m, &ignored))
            continue;
        out->capacity_bytes = (double)m.capacity_bytes;
        if (holds(&m))
            out->peak_bytes[i] = (double)m.allocated_peak_bytes;
    }
}

static void fill_lines(const struct sweep_bounds *t, size_t family, struct recipe *r,
                       struct step_builder *b, struct family_bound *out) {
    const struct sweep_space *s = t->points->space;
    const struct sweep_coordinator *z = NULL;
    for (size_t k = 0; k < s->recompute.count; k++) {
        struct sweep_lines *mode = &out->lines[k * s->reduce_bucket.count];
        const struct sweep_coordinator *before = z;
        if (recipe_is_stage3(r))
            z = sweep_coordinator_least(t->coordinators, family, k);
        if (k > 0 && (!z || memcmp(z, before, sizeof *z) == 0)) {
            memcpy(mode, mode - s->reduce_bucket.count, s->reduce_bucket.count * sizeof *mode);
            continue;
        }
        for (size_t i = 0; i < t->points->families[family].reduce_count; i++) {
            if (recipe_is_deepspeed(r))
                r->reduce_bucket_elements = s->reduce_bucket.items[i];
            sweep_lines_fill(b, z, &mode[i]);
        }
    }
    out->once_s = sweep_lines_optimizer_s(b, z);
}

static void fill_family(const struct sweep_bounds *t, size_t family, struct family_bound *out) {
    const struct sweep_family *f = &t->points->families[family];
    struct recipe r = f->recipe;
    struct step_builder b;
    struct err ignored = {0};
    struct arena *scratch = arena_create();
    for (size_t i = 0; i < cell_count(t->points->space); i++)
        out->peak_bytes[i] = INFINITY;
    set_cell(t->points->space, 0, &r);
    struct step_request q = {
        .model = t->basis->model, .cluster = &out->cluster, .recipe = &r, .quick = true};
    if (recipe_resolve(&r, t->basis->model, &out->cluster, &ignored) &&
        step_builder_init(&b, &q, scratch, &ignored)) {
        fill_peaks(t, family, out);
        if (!splits_model(&r)) // lines add up what data parallelism alone sends
            fill_lines(t, family, &r, &b, out);
    }
    arena_destroy(scratch);
}

bool sweep_bounds_build(const struct sweep_points *p, const struct sweep_basis *b, struct arena *a,
                        const struct sweep_bounds **out, struct err *e) {
    const struct sweep_space *s = p->space;
    struct sweep_bounds *t = arena_alloc(a, sizeof *t);
    t->points = p;
    t->basis = b;
    t->families = arena_array(a, p->family_count, sizeof *t->families);
    for (size_t i = 0; i < p->family_count; i++) {
        struct family_bound *f = &t->families[i];
        f->lines = arena_array(a, s->recompute.count * s->reduce_bucket.count, sizeof *f->lines);
        f->peak_bytes = arena_array(a, cell_count(s), sizeof *f->peak_bytes);
        f->cluster = *b->cluster;
        if (p->families[i].nodes != f->cluster.nodes &&
            !cluster_resize(&f->cluster, p->families[i].nodes, p->families[i].gpus, e))
            return false;
    }
    if (!sweep_coordinators_build(p, b, a, &t->coordinators, e) || !share_work(t, a, e))
        return false;
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t i = 0; i < p->family_count; i++)
        fill_family(t, i, &t->families[i]);
    *out = t;
    return true;
}

// ---- points -------------------------------------------------------------------------------------

// Time in which no unit computes: what nothing before or behind it can hide.
static double idle_s(const struct work *w, const struct sweep_lines *l, double accum) {
    const struct sweep_micro *p = &l->plain, *b = &l->boundary;
    double ahead_s = accum * fmax(b->ahead_s - w->first_s, 0);
    return b->first_s + ahead_s + (accum - 1) * p->turn_s + b->last_s;
}

// The longest of several kinds of work of which no two parts can overlap; docs/method.md §sweep.
static double least_step_s(const struct work *w, const struct sweep_lines *l, double accum) {
    const struct sweep_micro *p = &l->plain, *b = &l->boundary;
    double more = accum - 1, units_s = accum * (w->forward_s + w->backward_s);
    double alone_s =
        idle_s(w, l, accum) + more * p->inline_s + b->inline_s + fmax(accum - 2, 0) * l->between_s;
    double before_s = accum * (w->forward_s + w->head_backward_s);
    double least_s = units_s + alone_s;
    least_s = fmax(least_s, units_s + more * p->sm_s + b->sm_s + l->idle_share * alone_s);
    least_s = fmax(least_s, before_s + more * p->reductions_s + b->reductions_s);
    least_s = fmax(least_s, more * p->link_s + b->link_s);
    least_s = fmax(least_s, more * p->gathers_s + b->gathers_s);
    return fmax(least_s, accum * w->issue_s);
}

static size_t cell_of(const struct sweep_space *s, const struct sweep_place *x) {
    return (x->micro * s->recompute.count + x->recompute) * s->loss.count + x->loss;
}

bool sweep_bound(const struct sweep_bounds *b, uint64_t point, struct sweep_bound *out) {
    const struct sweep_space *s = b->points->space;
    size_t i = sweep_family_of(b->points, point);
    const struct sweep_family *f = &b->points->families[i];
    const struct family_bound *t = &b->families[i];
    struct sweep_place x = sweep_place_of(s, f, point - f->first_point);
    uint64_t micro = s->micro_batch.items[x.micro];
    if (f->sequences_per_gpu == 0 || f->sequences_per_gpu % micro != 0)
        return false;
    double accum = (double)(f->sequences_per_gpu / micro);
    size_t cell = cell_of(s, &x);
    const struct sweep_lines *l = &t->lines[x.recompute * s->reduce_bucket.count + x.reduce];
    out->peak_bytes = t->peak_bytes[cell];
    out->capacity_bytes = t->capacity_bytes;
    out->fits = out->peak_bytes <= t->capacity_bytes;
    out->duplicate =
        recipe_is_stage3(&f->recipe) && sweep_coordinator_at(b->coordinators, i, &x)->duplicate;
    out->step_s = INFINITY;
    if (out->fits)
        out->step_s = margin * (least_step_s(&t->work[cell], l, accum) + t->once_s);
    return true;
}

const struct zero3_traffic *sweep_bound_traffic(const struct sweep_bounds *b, uint64_t point) {
    size_t i = sweep_family_of(b->points, point);
    const struct sweep_family *f = &b->points->families[i];
    struct sweep_place x = sweep_place_of(b->points->space, f, point - f->first_point);
    if (!recipe_is_stage3(&f->recipe))
        return NULL;
    return &sweep_coordinator_at(b->coordinators, i, &x)->traffic;
}

bool sweep_bound_close(const struct sweep_bounds *b, uint64_t point, struct arena *scratch,
                       struct sweep_bound *out) {
    struct recipe r;
    struct memory m;
    struct step_builder builder;
    struct err ignored = {0};
    size_t i;
    if (!sweep_bound(b, point, out) || !sweep_point_recipe(b->points, point, &i, &r))
        return false;
    const struct sweep_family *f = &b->points->families[i];
    const struct family_bound *t = &b->families[i];
    struct sweep_place x = sweep_place_of(b->points->space, f, point - f->first_point);
    r.zero3 = sweep_bound_traffic(b, point);
    if (!out->fits || !recipe_resolve(&r, b->basis->model, &t->cluster, &ignored) ||
        !memory_estimate(b->basis->model, &t->cluster, &r, &m, &ignored))
        return true;
    out->peak_bytes = (double)m.allocated_peak_bytes;
    out->fits = holds(&m);
    struct step_request q = {
        .model = b->basis->model, .cluster = &t->cluster, .recipe = &r, .quick = true};
    if (!out->fits || !r.zero3 || splits_model(&r) ||
        !step_builder_init(&builder, &q, scratch, &ignored))
        return true;
    struct sweep_lines l;
    sweep_lines_fill(&builder, sweep_coordinator_at(b->coordinators, i, &x), &l);
    const struct work *w = &t->work[cell_of(b->points->space, &x)];
    out->step_s =
        fmax(out->step_s, margin * (least_step_s(w, &l, (double)r.grad_accum) + t->once_s));
    return true;
}
