// SPDX-License-Identifier: Apache-2.0
#include "judge/jitter.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define assert_near(got, wanted, tolerance) assert_true(fabs((got) - (wanted)) <= (tolerance))

struct fixture {
    struct model model;
    struct cluster cluster;
    struct recipe recipe;
    struct jitter_request q;
};

static void set_up(struct fixture *f, struct arena *a) {
    struct err e = {0};
    if (!model_load("llama-3.2-1b", a, &f->model, &e) ||
        !cluster_load("dgx-a100", a, &f->cluster, &e))
        fail_msg("%s", e.text);
    recipe_defaults(STRATEGY_FSDP2, &f->recipe);
    f->recipe.micro_batch = f->recipe.grad_accum = 1;
    f->recipe.seq = 2048;
    assert_true(recipe_resolve(&f->recipe, &f->model, &f->cluster, &e));
    f->q = (struct jitter_request){
        .step = {.model = &f->model, .cluster = &f->cluster, .recipe = &f->recipe},
        .draws = 40,
        .seed = 7,
        .relative_sd = 0.03,
        .straggler_slowdown = 1};
}

static struct jitter_result estimate(const struct jitter_request *q, struct arena *a) {
    struct jitter_result r;
    struct err e = {0};
    if (!jitter_estimate(q, a, &r, &e))
        fail_msg("%s", e.text);
    return r;
}

static void the_normal_quantile_matches_tables(void **state) {
    (void)state;
    assert_near(jitter_normal_quantile(0.5), 0, 1e-9);
    assert_near(jitter_normal_quantile(0.025), 1.959963985, 1e-8);
    assert_near(jitter_normal_quantile(0.975), -1.959963985, 1e-8);
    assert_near(jitter_normal_quantile(1e-3), 3.090232306, 1e-8);
    assert_near(jitter_normal_quantile(1e-6), 4.753424309, 1e-7);
}

static void no_jitter_is_the_step_itself(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct fixture f;
    set_up(&f, a);
    f.q.relative_sd = 0;
    struct jitter_result r = estimate(&f.q, a);
    assert_near(r.mean_s, r.base_s, 1e-12);
    assert_near(r.p99_s, r.base_s, 1e-12);
    arena_destroy(a);
}

static void more_ranks_wait_longer_and_seeds_repeat(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct fixture f;
    set_up(&f, a);
    f.q.ranks = 8;
    struct jitter_result few = estimate(&f.q, a), again = estimate(&f.q, a);
    assert_true(few.mean_s == again.mean_s && few.p99_s == again.p99_s);
    f.q.ranks = 16384;
    struct jitter_result many = estimate(&f.q, a);
    assert_true(many.mean_s > few.mean_s && few.mean_s > few.base_s);
    // The expected maximum of 8 normals is 1.42 sd, of 16384 about 4.0 sd.
    assert_true(many.mean_s < few.base_s * (1 + 5 * f.q.relative_sd));
    f.q.seed = 8;
    assert_true(estimate(&f.q, a).mean_s != many.mean_s);
    arena_destroy(a);
}

static void stragglers_slow_the_steps_they_hit(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct fixture f;
    set_up(&f, a);
    f.q.relative_sd = 0;
    f.q.ranks = 1000;
    f.q.straggler_rate = 1e-3; // 63 % of the steps have one among 1000 ranks
    f.q.straggler_slowdown = 1.5;
    f.q.draws = 400;
    struct jitter_result r = estimate(&f.q, a);
    assert_near(r.straggler_share, 1 - pow(1 - 1e-3, 1000), 0.08);
    assert_true(r.p99_s > 1.3 * r.base_s);
    f.q.straggler_slowdown = 0.5;
    struct err e = {0};
    assert_false(jitter_estimate(&f.q, a, &r, &e));
    assert_int_equal(e.kind, ERR_USAGE);
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_normal_quantile_matches_tables),
        cmocka_unit_test(no_jitter_is_the_step_itself),
        cmocka_unit_test(more_ranks_wait_longer_and_seeds_repeat),
        cmocka_unit_test(stragglers_slow_the_steps_they_hit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
