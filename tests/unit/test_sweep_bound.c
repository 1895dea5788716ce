// SPDX-License-Identifier: Apache-2.0
// A bound is no more than what the simulation of its point says, whatever the knobs; a duplicate
// differs from an earlier point in nothing that counts.
#include "base/stats.h"
#include "describe/recipe.h"
#include "plan/plan.h"
#include "plan/sweep_bound.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SPACES 160
#define POINTS_PER_SPACE 24

struct fixture {
    struct arena *a;
    struct model m;
    struct cluster c;
    struct recipe recipe;
    struct sweep_space space;
    struct sweep_basis basis;
    struct sweep_points points;
    const struct sweep_bounds *bounds;
};

static uint64_t draw(uint64_t stream, uint64_t i, uint64_t below) {
    return stats_random_u64(20261201, stream, i) % below;
}

static void pick(struct sweep_values *v, const uint64_t *from, size_t count, uint64_t stream,
                 uint64_t i) {
    v->items[v->count++] = from[draw(stream, i, count)];
}

// A value and its neighbour.
static void pick_two(struct sweep_values *v, const uint64_t *from, size_t count, uint64_t stream,
                     uint64_t i) {
    pick(v, from, count, stream, i);
    v->items[v->count++] = from[(draw(stream, i, count) + 1) % count];
}

// Switches that a configuration file may set and that the bound has to follow.
static void turn_knobs(struct recipe *r, uint64_t i) {
    static const enum overlap overlaps[] = {OVERLAP_DEFAULT, OVERLAP_ON, OVERLAP_OFF};
    r->clip = (double)draw(101, i, 2);
    r->no_sync = draw(102, i, 3) == 0 ? !r->no_sync : r->no_sync;
    r->overlap_comm = overlaps[draw(103, i, 3)];
    r->gradient_as_bucket_view = draw(104, i, 2);
    r->limit_all_gathers = draw(105, i, 4) != 0;
    r->forward_prefetch = draw(106, i, 3) == 0;
    r->reshard_root = draw(107, i, 4) == 0;
    r->reduce_scatter = draw(108, i, 4) != 0;
    r->multi_rank_bucket = draw(109, i, 4) != 0;
    r->pipeline_read = draw(110, i, 2);
    r->pipeline_write = draw(111, i, 2);
    r->super_offload = draw(112, i, 5) == 0;
    r->offload_ratio = draw(113, i, 4) == 0 ? 0.5 : 1;
    r->sub_group_elements = draw(114, i, 3) == 0 ? 20000000 : r->sub_group_elements;
    r->persistence_elements = draw(115, i, 4) == 0 ? 0 : r->persistence_elements;
    r->all_reduce_for_fetch = draw(116, i, 8) == 0;
    r->allgather_sequential = draw(117, i, 8) == 0;
    r->lora_rank = draw(118, i, 8) == 0 ? 16 : 0;
    r->activation_offload = draw(119, i, 8) == 0;
    r->backward_prefetch = (enum prefetch)draw(120, i, PREFETCH_COUNT);
    r->wrap = draw(121, i, 8) == 0 ? WRAP_MODEL : WRAP_BLOCK;
    r->frozen_fraction = draw(122, i, 10) == 0 && r->lora_rank == 0 ? 0.5 : 0;
}

static bool make_space(struct fixture *f, uint64_t i) {
    static const char *const models[] = {"llama-3.2-1b", "gpt2", "gpt2-medium", "gemma-3-1b"};
    static const char *const clusters[] = {"dgx-h100",    "4xA100-40GB",    "dgx-a100",
                                           "8xV100-32GB", "8xrtx4090-pcie", "p4d.24xlarge"};
    static const uint64_t micro[] = {1, 2, 4, 8, 16},
                          loss[] = {LOSS_TORCH, LOSS_FUSED, LOSS_CHUNKED};
    static const uint64_t modes[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE_ATTENTION,
                                     RECOMPUTE_SELECTIVE_OP, RECOMPUTE_FULL, RECOMPUTE_EVERY_N};
    static const uint64_t offload[] = {0, 1, 2, 3, 4, 5}, nodes[] = {1, 2, 4};
    static const uint64_t bucket[] = {2000000, 50000000, 500000000}, group[] = {2, 4, 8};
    static const uint64_t prefetch[] = {0, 50000000, 500000000}, live[] = {100000000, 3000000000};
    static const uint64_t batches[] = {64, 128, 512};
    struct err e = {0};
    f->a = arena_create();
    f->space = (struct sweep_space){0};
    assert_true(model_load(models[draw(1, i, 4)], f->a, &f->m, &e));
    assert_true(cluster_load(clusters[draw(2, i, 6)], f->a, &f->c, &e));
    recipe_defaults((enum strategy)(i % STRATEGY_COUNT), &f->recipe);
    f->recipe.reshard_group = i % STRATEGY_COUNT == STRATEGY_FSDP2_RESHARD ? 2 : 0;
    f->recipe.seq = 512u << draw(3, i, 3);
    turn_knobs(&f->recipe, i);
    uint64_t precision =
        f->c.gpu.peak_flop_per_s[DTYPE_BF16].value > 0 ? PRECISION_BF16_PURE : PRECISION_FP16_MIXED;
    pick(&f->space.precision, &precision, 1, 10, i);
    pick_two(&f->space.micro_batch, micro, 5, 11, i);
    pick_two(&f->space.recompute, modes, 5, 12, i);
    pick(&f->space.loss, loss, 3, 13, i);
    memcpy(f->space.offload.items, offload, sizeof offload);
    f->space.offload.count = sizeof offload / sizeof *offload;
    pick_two(&f->space.nodes, nodes, 3, 14, i);
    pick_two(&f->space.reduce_bucket, bucket, 3, 15, i);
    pick_two(&f->space.prefetch_bucket, prefetch, 3, 16, i);
    pick_two(&f->space.max_live, live, 2, 17, i);
    pick_two(&f->space.shard_group, group, 3, 18, i);
    f->basis = (struct sweep_basis){.model = &f->m,
                                    .cluster = &f->c,
                                    .recipes = &f->recipe,
                                    .recipe_count = 1,
                                    .global_batch = batches[draw(4, i, 3)]};
    if (draw(130, i, 6) == 0) // a few split the model too
        f->space.tp = f->space.pp = (struct sweep_values){.items = {1, 2}, .count = 2};
    sweep_space_defaults(&f->space, &f->c, &f->recipe);
    if (!sweep_points_build(&f->space, &f->basis, f->a, &f->points, &e))
        return false; // nothing of it can run
    bool ok = sweep_bounds_build(&f->points, &f->basis, f->a, &f->bounds, &e);
    if (!ok)
        fail_msg("%s", e.text);
    return true;
}

// The plan of a point as a search without any bound would make it.
static bool evaluate(struct fixture *f, uint64_t point, struct arena *a, struct plan *out) {
    struct recipe r;
    struct cluster c = f->c;
    struct err e = {0};
    size_t k;
    if (!sweep_point_recipe(&f->points, point, &k, &r))
        return false;
    const struct sweep_family *family = &f->points.families[k];
    if (family->nodes != c.nodes)
        assert_true(cluster_resize(&c, family->nodes, family->gpus, &e));
    return plan_evaluate(&f->m, &c, &r, PLAN_TIME_IF_FITS, a, out, &e) && !out->reason;
}

static void explain(const struct plan *p, const struct sweep_bound *b) {
    const struct recipe *r = &p->recipe;
    print_message("%s offload %d/%d micro %d accum %d recompute %d nodes*gpus %d: bound %.6g s, "
                  "simulated %.6g s; %.6g of %.6g bytes\n",
                  strategy_names[r->strategy], (int)r->offload_optimizer, (int)r->offload_param,
                  (int)r->micro_batch, (int)r->grad_accum, (int)r->recompute, (int)r->world,
                  b->step_s, p->time.step_s, b->peak_bytes, (double)p->memory.allocated_peak_bytes);
}

struct counts {
    uint64_t timed, failures;
    double ratio_sum;
};

static void compare(const struct plan *p, const struct sweep_bound *b, struct counts *n) {
    double peak_bytes = (double)p->memory.allocated_peak_bytes;
    bool wrong = (p->fits && !b->fits) || (b->fits && b->peak_bytes > peak_bytes);
    if (p->fits && isfinite(p->time.step_s)) {
        wrong = wrong || b->step_s > p->time.step_s;
        n->timed++;
        n->ratio_sum += b->step_s / p->time.step_s;
    }
    n->failures += wrong;
    if (wrong)
        explain(p, b);
}

static void bounds_are_admissible(void **state) {
    (void)state;
    struct counts far = {0}, close = {0};
    struct arena *a = arena_create();
    for (uint64_t i = 0; i < SPACES; i++) {
        struct fixture f;
        bool any = make_space(&f, i);
        for (uint64_t k = 0; any && k < POINTS_PER_SPACE; k++) {
            uint64_t point = draw(1000 + i, k, f.points.point_count);
            struct sweep_bound b, c;
            struct plan p;
            if (!sweep_bound(f.bounds, point, &b))
                continue;
            arena_reset(a);
            assert_true(sweep_bound_close(f.bounds, point, a, &c));
            arena_reset(a);
            if (!evaluate(&f, point, a, &p))
                continue;
            compare(&p, &b, &far);
            compare(&p, &c, &close);
            if (b.fits) // the closer look is exact
                assert_true(c.peak_bytes == (double)p.memory.allocated_peak_bytes);
            assert_int_equal(c.fits, p.fits);
        }
        arena_destroy(f.a);
    }
    arena_destroy(a);
    print_message("%d points simulated, bounds on average %.3f and %.3f of it\n", (int)far.timed,
                  far.ratio_sum / (double)far.timed, close.ratio_sum / (double)close.timed);
    assert_int_equal(far.failures, 0);
    assert_int_equal(close.failures, 0);
    assert_true(far.timed >= 2000);
    assert_true(close.ratio_sum / (double)close.timed > 0.8); // and worth having
}

// An earlier limit of the same micro-batch, recompute, loss and bucket that does the same.
static bool has_original(struct fixture *f, uint64_t point, const struct plan *p, struct arena *a) {
    const struct sweep_family *family = &f->points.families[sweep_family_of(&f->points, point)];
    uint64_t limits = family->prefetch_count * family->live_count;
    uint64_t first = family->first_point + (point - family->first_point) / limits * limits;
    for (uint64_t i = first; i < point; i++) {
        struct sweep_bound b;
        struct plan q;
        if (!sweep_bound(f->bounds, i, &b) || b.duplicate || !evaluate(f, i, a, &q))
            continue;
        if (q.fits == p->fits && q.memory.allocated_peak_bytes == p->memory.allocated_peak_bytes &&
            (!p->fits || memcmp(&q.time.step_s, &p->time.step_s, sizeof(double)) == 0))
            return true;
    }
    return false;
}

static void duplicates_change_nothing(void **state) {
    (void)state;
    static const enum strategy strategies[] = {STRATEGY_ZERO3, STRATEGY_MICS, STRATEGY_ZEROPP};
    uint64_t duplicates = 0;
    struct arena *a = arena_create();
    for (uint64_t i = 0; i < 3; i++) {
        struct fixture f;
        struct err e = {0};
        make_space(&f, i);
        recipe_defaults(strategies[i], &f.recipe);
        f.recipe.seq = 1024;
        f.space.prefetch_bucket.count = f.space.max_live.count = 0;
        sweep_space_defaults(&f.space, &f.c, &f.recipe);
        assert_true(sweep_points_build(&f.space, &f.basis, f.a, &f.points, &e));
        assert_true(sweep_bounds_build(&f.points, &f.basis, f.a, &f.bounds, &e));
        for (uint64_t k = 0; k < 60; k++) {
            uint64_t point = draw(2000 + i, k, f.points.point_count);
            struct sweep_bound b;
            struct plan p;
            arena_reset(a);
            if (!sweep_bound(f.bounds, point, &b) || !b.duplicate || !evaluate(&f, point, a, &p))
                continue;
            duplicates++;
            assert_true(has_original(&f, point, &p, a));
        }
        arena_destroy(f.a);
    }
    arena_destroy(a);
    assert_true(duplicates >= 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(duplicates_change_nothing),
        cmocka_unit_test(bounds_are_admissible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
