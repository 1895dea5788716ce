// SPDX-License-Identifier: Apache-2.0
#include "plan/sweep_zero3.h"

#include <string.h>

// Recipes with the same thresholds share a table [recompute][prefetch][live].
struct table {
    struct recipe recipe;
    struct sweep_coordinator *cells, *least; // least: [recompute]
};

struct sweep_coordinators {
    const struct sweep_space *space;
    struct table *tables;
    size_t *table_of; // per family
};

static void observe(void *context, const struct zero3_hook *h) {
    struct sweep_coordinator *c = context;
    const uint64_t prime = 1099511628211u; // FNV-1a over 64-bit words
    const uint64_t words[] = {h->unit,
                              h->backward,
                              h->demand_elements,
                              h->prefetch_elements,
                              (uint64_t)h->newest_gather,
                              h->live_elements};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        c->trace = (c->trace ^ words[i]) * prime;
    if (!c->gathered && (h->unit == 0 || h->unit == UINT32_MAX))
        c->first_elements = h->demand_elements;
    c->gathered = c->gathered || h->demand_elements > 0 || h->prefetch_elements > 0;
}

static bool same_thresholds(const struct recipe *a, const struct recipe *b) {
    return a->max_reuse_elements == b->max_reuse_elements &&
           a->persistence_elements == b->persistence_elements &&
           a->model_persistence_elements == b->model_persistence_elements &&
           a->allgather_sequential == b->allgather_sequential &&
           a->recompute_every == b->recompute_every;
}

static uint64_t least_of(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static void lower(struct sweep_coordinator *least, const struct sweep_coordinator *c) {
    struct zero3_traffic *l = &least->traffic;
    const struct zero3_traffic *t = &c->traffic;
    l->forward_elements = least_of(l->forward_elements, t->forward_elements);
    l->backward_elements = least_of(l->backward_elements, t->backward_elements);
    l->calls = least_of(l->calls, t->calls);
    l->forward_calls = least_of(l->forward_calls, t->forward_calls);
    l->peak_live_elements = least_of(l->peak_live_elements, t->peak_live_elements);
    l->forward_peak_elements = least_of(l->forward_peak_elements, t->forward_peak_elements);
    l->largest_handle_elements = least_of(l->largest_handle_elements, t->largest_handle_elements);
    least->first_elements = least_of(least->first_elements, c->first_elements);
    if (least->largest_elements < c->largest_elements)
        least->largest_elements = c->largest_elements;
}

// One recompute mode: [prefetch][live]. `cells` points at its first.
static void finish_mode(struct sweep_coordinator *cells, size_t count,
                        struct sweep_coordinator *least) {
    *least = cells[0];
    for (size_t i = 0; i < count; i++) {
        lower(least, &cells[i]);
        for (size_t k = 0; k < i && !cells[i].duplicate; k++)
            cells[i].duplicate =
                cells[i].trace == cells[k].trace &&
                memcmp(&cells[i].traffic, &cells[k].traffic, sizeof cells[i].traffic) == 0;
    }
}

// Only whether a block is recomputed whole changes the order of hooks.
static bool same_order(enum recompute a, enum recompute b) {
    bool partial_a = a != RECOMPUTE_FULL && a != RECOMPUTE_EVERY_N;
    bool partial_b = b != RECOMPUTE_FULL && b != RECOMPUTE_EVERY_N;
    return a == b || (partial_a && partial_b);
}

static const size_t none = SIZE_MAX;

static size_t mode_before(const struct sweep_space *s, size_t mode) {
    for (size_t k = 0; k < mode; k++)
        if (same_order((enum recompute)s->recompute.items[k],
                       (enum recompute)s->recompute.items[mode]))
            return k;
    return none;
}

static bool replay(const struct sweep_space *s, const struct model *m, const struct table *t,
                   size_t cell, struct err *e) {
    size_t limits = s->prefetch_bucket.count * s->max_live.count;
    struct sweep_coordinator *c = &t->cells[cell];
    struct zero3_watch watch = {.hook = observe, .context = c};
    struct recipe r = t->recipe;
    r.recompute = (enum recompute)s->recompute.items[cell / limits];
    r.recompute_every =
        r.recompute == RECOMPUTE_EVERY_N && !r.recompute_every ? 2 : r.recompute_every;
    r.prefetch_bucket_elements = s->prefetch_bucket.items[cell % limits / s->max_live.count];
    r.max_live_elements = s->max_live.items[cell % s->max_live.count];
    struct arena *scratch = arena_create();
    bool ok = zero3_observe(m, &r, scratch, &watch, &c->traffic, e);
    c->largest_elements = c->traffic.largest_handle_elements;
    arena_destroy(scratch);
    return ok;
}

static bool fill_table(const struct sweep_points *p, const struct model *m, struct table *t,
                       struct arena *a, struct err *e) {
    const struct sweep_space *s = p->space;
    size_t limits = s->prefetch_bucket.count * s->max_live.count;
    size_t cells = s->recompute.count * limits;
    bool ok = true;
    t->cells = arena_array(a, cells, sizeof *t->cells);
    t->least = arena_array(a, s->recompute.count, sizeof *t->least);
#pragma omp parallel for schedule(dynamic, 1) reduction(&& : ok) num_threads(p->threads)
    for (size_t i = 0; i < cells; i++) {
        struct err why = {0};
        if (mode_before(s, i / limits) == none)
            ok = replay(s, m, t, i, &why) && ok;
    }
    if (!ok) // again, alone, for its message
        return replay(s, m, t, 0, e) && err_set(e, ERR_INPUT, "the coordinator of ZeRO-3 failed");
    for (size_t k = 0; k < s->recompute.count; k++) {
        size_t before = mode_before(s, k);
        struct sweep_coordinator *mode = &t->cells[k * limits];
        if (before != none)
            memcpy(mode, &t->cells[before * limits], limits * sizeof *mode);
        else
            finish_mode(mode, limits, &t->least[k]);
        if (before != none)
            t->least[k] = t->least[before];
    }
    return true;
}

bool sweep_coordinators_build(const struct sweep_points *p, const struct sweep_basis *b,
                              struct arena *a, const struct sweep_coordinators **out,
                              struct err *e) {
    struct sweep_coordinators *c = arena_alloc(a, sizeof *c);
    size_t count = 0;
    c->space = p->space;
    c->tables = arena_array(a, p->family_count, sizeof *c->tables);
    c->table_of = arena_array(a, p->family_count, sizeof *c->table_of);
    for (size_t i = 0; i < p->family_count; i++) {
        const struct recipe *r = &p->families[i].recipe;
        size_t k = 0;
        if (!recipe_is_stage3(r))
            continue;
        while (k < count && !same_thresholds(&c->tables[k].recipe, r))
            k++;
        if (k == count) {
            c->tables[count++].recipe = *r;
            if (!fill_table(p, b->model, &c->tables[k], a, e))
                return false;
        }
        c->table_of[i] = k;
    }
    *out = c;
    return true;
}

const struct sweep_coordinator *sweep_coordinator_at(const struct sweep_coordinators *c,
                                                     size_t family, const struct sweep_place *x) {
    const struct sweep_space *s = c->space;
    size_t mode = x->recompute * s->prefetch_bucket.count;
    return &c->tables[c->table_of[family]]
                .cells[(mode + x->prefetch) * s->max_live.count + x->live];
}

const struct sweep_coordinator *sweep_coordinator_least(const struct sweep_coordinators *c,
                                                        size_t family, size_t recompute) {
    return &c->tables[c->table_of[family]].least[recompute];
}
