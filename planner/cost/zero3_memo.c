// SPDX-License-Identifier: Apache-2.0
#include "cost/zero3_memo.h"

// Beyond this many, replays are made afresh: a search over limits does not grow without end.
enum { REMEMBERED_MAX = 256 };

struct limits {
    const struct model *model;
    enum recompute recompute;
    bool sequential;
    uint64_t every, prefetch, live, reuse, persistence, model_persistence;
};

struct entry {
    struct entry *next;
    struct limits limits;
    struct zero3_traffic traffic;
};

struct zero3_memo {
    struct arena *arena;
    struct entry *first; // last used first
    int count;
};

struct zero3_memo *zero3_memo_create(struct arena *a) {
    struct zero3_memo *m = arena_alloc(a, sizeof *m);
    m->arena = a;
    return m;
}

static struct limits limits_of(const struct model *m, const struct recipe *r) {
    // Only whether a block is recomputed whole changes the order of hooks.
    bool whole = r->recompute == RECOMPUTE_FULL || r->recompute == RECOMPUTE_EVERY_N;
    return (struct limits){.model = m,
                           .recompute = whole ? r->recompute : RECOMPUTE_NONE,
                           .sequential = r->allgather_sequential,
                           .every = r->recompute_every,
                           .prefetch = r->prefetch_bucket_elements,
                           .live = r->max_live_elements,
                           .reuse = r->max_reuse_elements,
                           .persistence = r->persistence_elements,
                           .model_persistence = r->model_persistence_elements};
}

static bool same(const struct limits *x, const struct limits *y) {
    return x->model == y->model && x->recompute == y->recompute && x->sequential == y->sequential &&
           x->every == y->every && x->prefetch == y->prefetch && x->live == y->live &&
           x->reuse == y->reuse && x->persistence == y->persistence &&
           x->model_persistence == y->model_persistence;
}

const struct zero3_traffic *zero3_memo_find(struct zero3_memo *memo, const struct model *m,
                                            const struct recipe *r, struct arena *scratch,
                                            struct err *e) {
    struct limits wanted = limits_of(m, r);
    for (struct entry **at = &memo->first; *at; at = &(*at)->next) {
        struct entry *found = *at;
        if (!same(&found->limits, &wanted))
            continue;
        *at = found->next;
        found->next = memo->first;
        memo->first = found;
        return &found->traffic;
    }
    bool keep = memo->count < REMEMBERED_MAX;
    struct arena *a = keep ? memo->arena : scratch;
    struct entry *fresh = arena_alloc(a, sizeof *fresh);
    fresh->limits = wanted;
    if (!zero3_record(m, r, a, scratch, &fresh->traffic, e))
        return NULL;
    if (keep) {
        fresh->next = memo->first;
        memo->first = fresh;
        memo->count++;
    }
    return &fresh->traffic;
}
