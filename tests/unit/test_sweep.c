// SPDX-License-Identifier: Apache-2.0
// Pruning changes what is simulated, never what is found; threads change nothing at all.
#include "base/stats.h"
#include "describe/recipe.h"
#include "plan/sweep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SPACES 50

static uint64_t draw(uint64_t stream, uint64_t i, uint64_t below) {
    return stats_random_u64(20261130, stream, i) % below;
}

static void pick(struct sweep_values *v, const uint64_t *from, size_t count, uint64_t stream,
                 uint64_t i) {
    v->count = 0;
    for (size_t k = 0; k < count; k++)
        if (draw(stream, i * 16 + k, 2) == 0)
            v->items[v->count++] = from[k];
    if (v->count == 0)
        v->items[v->count++] = from[draw(stream + 1, i, count)];
}

struct fixture {
    struct arena *a;
    struct model m;
    struct cluster c;
    struct recipe recipes[STRATEGY_COUNT];
    struct sweep_request q;
};

// A small random space on one of two machines.
static void make_space(struct fixture *f, uint64_t i) {
    static const uint64_t micro[] = {1, 2, 4, 8},
                          modes[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE_OP, RECOMPUTE_FULL};
    static const uint64_t loss[] = {LOSS_TORCH, LOSS_CHUNKED}, offload[] = {0, 1, 2, 3};
    static const uint64_t bucket[] = {50000000, 500000000}, prefetch[] = {0, 50000000};
    static const uint64_t one_live[] = {1000000000}, nodes[] = {1, 2};
    static const enum strategy strategies[] = {STRATEGY_DDP,   STRATEGY_ZERO2, STRATEGY_ZERO3,
                                               STRATEGY_FSDP1, STRATEGY_FSDP2, STRATEGY_HSDP,
                                               STRATEGY_MICS};
    struct err e = {0};
    f->a = arena_create();
    assert_true(model_load(i % 2 ? "llama-3.2-1b" : "gpt2", f->a, &f->m, &e));
    assert_true(cluster_load(i % 3 ? "4xA100-40GB" : "8xV100-32GB", f->a, &f->c, &e));
    struct sweep_request *q = &f->q;
    *q = (struct sweep_request){.top = 1 + draw(1, i, 6),
                                .objective =
                                    (enum sweep_objective)draw(2, i, SWEEP_OBJECTIVE_COUNT)};
    pick(&q->space.micro_batch, micro, 4, 10, i);
    pick(&q->space.recompute, modes, 3, 20, i);
    pick(&q->space.loss, loss, 2, 30, i);
    pick(&q->space.offload, offload, 4, 40, i);
    pick(&q->space.reduce_bucket, bucket, 2, 50, i);
    pick(&q->space.prefetch_bucket, prefetch, 2, 60, i);
    pick(&q->space.max_live, one_live, 1, 70, i);
    pick(&q->space.nodes, nodes, 2, 80, i);
    size_t count = 1 + draw(3, i, 2);
    for (size_t k = 0; k < count; k++) {
        recipe_defaults(strategies[draw(4, i * 8 + k, 7)], &f->recipes[k]);
        f->recipes[k].precision = f->c.gpu.peak_flop_per_s[DTYPE_BF16].value > 0
                                      ? PRECISION_BF16_MIXED
                                      : PRECISION_FP16_MIXED;
        f->recipes[k].seq = 1024;
    }
    q->space.precision.items[0] = f->recipes[0].precision;
    q->space.precision.count = 1;
    q->basis = (struct sweep_basis){.model = &f->m,
                                    .cluster = &f->c,
                                    .recipes = f->recipes,
                                    .recipe_count = count,
                                    .global_batch = 64};
}

static void assert_same_list(const struct sweep_plan *x, size_t x_count, const struct sweep_plan *y,
                             size_t y_count) {
    assert_int_equal(x_count, y_count);
    for (size_t i = 0; i < x_count; i++) {
        assert_int_equal(x[i].point, y[i].point);
        assert_memory_equal(&x[i].plan.time.step_s, &y[i].plan.time.step_s, sizeof(double));
    }
}

static void assert_same_plans(const struct sweep_result *x, const struct sweep_result *y) {
    assert_same_list(x->plans, x->plan_count, y->plans, y->plan_count);
    assert_same_list(x->pareto, x->pareto_count, y->pareto, y->pareto_count);
}

static void pruned_equals_exhaustive(void **state) {
    (void)state;
    uint64_t simulated = 0, all = 0;
    for (uint64_t i = 0; i < SPACES; i++) {
        struct fixture f;
        struct sweep_result pruned, full, threaded;
        struct err e = {0};
        make_space(&f, i);
        f.q.threads = 1;
        f.q.pareto = i % 3 == 0;
        bool any = sweep_run(&f.q, f.a, &pruned, &e);
        if (any) {
            f.q.threads = 3;
            assert_true(sweep_run(&f.q, f.a, &threaded, &e));
            f.q.exhaustive = true;
            assert_true(sweep_run(&f.q, f.a, &full, &e));
            assert_same_plans(&pruned, &full);
            assert_same_plans(&pruned, &threaded);
            assert_int_equal(pruned.simulated, threaded.simulated);
            assert_int_equal(pruned.bounded, pruned.pruned + pruned.simulated);
            simulated += pruned.simulated;
            all += full.simulated;
        }
        arena_destroy(f.a);
    }
    assert_true(simulated < all); // pruning prunes
}

// A dense model over tensor, context and pipeline groups, a mixture over expert groups: the best
// plans are those of the exhaustive search, and splits are among the points.
static void splits_of_the_model_are_searched(void **state) {
    (void)state;
    static const enum strategy strategies[][2] = {{STRATEGY_ZERO1, STRATEGY_FSDP2},
                                                  {STRATEGY_ZERO2, STRATEGY_FSDP2}};
    static const char *const models[] = {"gpt2", "olmoe-1b-7b"};
    for (uint64_t i = 0; i < 2; i++) {
        struct fixture f;
        struct sweep_result pruned, full;
        struct err e = {0};
        make_space(&f, 2 * i + 2);
        assert_true(model_load(models[i], f.a, &f.m, &e));
        assert_true(cluster_load("8xH100-80GB", f.a, &f.c, &e));
        for (uint64_t k = 0; k < 2; k++) {
            recipe_defaults(strategies[i][k], &f.recipes[k]);
            f.recipes[k].seq = 1024;
        }
        f.q.basis.recipe_count = 2;
        f.q.space.precision.items[0] = PRECISION_BF16_MIXED;
        f.q.space.nodes.items[0] = f.q.space.nodes.count = 1;
        f.q.space.offload.items[0] = 0;
        f.q.space.offload.count = 1;
        const struct sweep_values by_three = {.items = {1, 2, 4}, .count = 3};
        const struct sweep_values by_two = {.items = {1, 2}, .count = 2};
        if (i == 0) {
            f.q.space.tp = by_three;
            f.q.space.cp = f.q.space.pp = by_two;
        } else {
            f.q.space.ep = by_three;
        }
        f.q.pareto = true;
        f.q.objective = SWEEP_TOKENS;
        f.q.top = 400;
        assert_true(sweep_run(&f.q, f.a, &pruned, &e));
        f.q.exhaustive = true;
        assert_true(sweep_run(&f.q, f.a, &full, &e));
        assert_same_plans(&pruned, &full);
        bool split_seen = false;
        for (size_t k = 0; k < full.plan_count; k++) {
            const struct recipe *r = &full.plans[k].plan.recipe;
            uint64_t all = r->tp * r->cp * r->pp;
            split_seen = split_seen || all * r->ep > 1;
            // Every point trains the same batch: replicas are what the split leaves of the GPUs.
            assert_int_equal(r->micro_batch * r->grad_accum * (8 / all), 64);
        }
        assert_true(split_seen);
        f.q.top = 2;
        f.q.exhaustive = f.q.pareto = false;
        assert_true(sweep_run(&f.q, f.a, &pruned, &e));
        assert_same_list(pruned.plans, pruned.plan_count, full.plans, 2);
        arena_destroy(f.a);
    }
}

// No member of the front is beaten in step, peak and GPUs by another, nor by the best plan.
static void front_is_not_dominated(void **state) {
    (void)state;
    struct fixture f;
    struct sweep_result r;
    struct err e = {0};
    make_space(&f, 2);
    recipe_defaults(STRATEGY_ZERO3, &f.recipes[0]);
    f.recipes[0].seq = 1024;
    f.recipes[0].precision = (enum precision)f.q.space.precision.items[0];
    f.q.basis.recipe_count = 1;
    f.q.pareto = true;
    assert_true(sweep_run(&f.q, f.a, &r, &e));
    assert_true(r.pareto_count > 0);
    for (size_t i = 0; i < r.pareto_count; i++)
        for (size_t k = 0; k < r.pareto_count; k++) {
            const struct sweep_plan *a = &r.pareto[i], *b = &r.pareto[k];
            bool beaten =
                b->plan.time.step_s <= a->plan.time.step_s && b->gpus <= a->gpus &&
                b->plan.memory.allocated_peak_bytes <= a->plan.memory.allocated_peak_bytes;
            assert_true(i == k || !beaten);
        }
    arena_destroy(f.a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pruned_equals_exhaustive),
        cmocka_unit_test(splits_of_the_model_are_searched),
        cmocka_unit_test(front_is_not_dominated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
