// SPDX-License-Identifier: Apache-2.0
#include "base/stats.h"
#include "plan/sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define CLOSE 1e-9
#define assert_near(got, wanted, tolerance) assert_true(fabs((got) - (wanted)) <= (tolerance))

static uint32_t add(struct sim *s, uint32_t stream, double duration_s, uint32_t dep) {
    struct sim_task t = {.stream = stream, .duration_s = duration_s};
    if (dep != SIM_NONE)
        t.deps[t.dep_count++] = dep;
    return sim_add(s, &t);
}

static uint32_t add_flow(struct sim *s, uint32_t stream, double duration_s, uint32_t resource,
                         double rate_per_s) {
    struct sim_task t = {.stream = stream,
                         .duration_s = duration_s,
                         .demands = {{resource, rate_per_s}},
                         .demand_count = 1};
    return sim_add(s, &t);
}

static struct sim_result run(const struct sim *s, struct arena *a) {
    struct sim_result r;
    struct err e = {0};
    assert_true(sim_run(s, NULL, a, &r, &e));
    return r;
}

static void streams_are_fifo_and_dependencies_hold(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct sim *s = sim_create(a, 2, 0);
    uint32_t first = add(s, 0, 3, SIM_NONE);
    uint32_t second = add(s, 1, 2, first);
    uint32_t third = add(s, 0, 1, SIM_NONE);
    uint32_t fourth = add(s, 0, 1, second);
    struct sim_result r = run(s, a);
    assert_near(r.start_s[second], 3, 0);
    assert_near(r.start_s[third], 3, 0);
    assert_near(r.start_s[fourth], 5, 0);
    assert_near(r.end_s, 6, 0);
    assert_near(r.stream_busy_s[0], 5, 0);
    struct sim_cause c = sim_task_cause(s, &r, fourth);
    assert_int_equal(c.kind, SIM_CAUSE_TASK);
    assert_int_equal(c.task, second);
    assert_near(sim_lower_bound_s(s, a), 6, 0);
    arena_destroy(a);
}

static void the_host_issues_in_order_and_blocks(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct sim *s = sim_create(a, 3, 0);
    struct sim_task blocking = {.stream = 0, .duration_s = 4, .issue_s = 1, .host_blocking = true};
    struct sim_task issued = {.stream = 1, .duration_s = 1, .issue_s = 2};
    struct sim_task detached = {.stream = 2, .duration_s = 1, .detached = true};
    sim_add(s, &blocking);
    uint32_t after = sim_add(s, &issued);
    uint32_t free_one = sim_add(s, &detached);
    sim_host_wait(s, after);
    uint32_t waited = sim_add(s, &issued);
    struct sim_result r = run(s, a);
    assert_near(r.start_s[after], 7, 0); // blocked to 5, then 2 s of issue
    assert_near(r.start_s[free_one], 0, 0);
    assert_near(r.start_s[waited], 10, 0);
    assert_near(r.host_busy_s, 5, 0);
    struct sim_cause c = sim_task_cause(s, &r, waited);
    assert_int_equal(c.kind, SIM_CAUSE_HOST);
    assert_int_equal(c.task, after);
    arena_destroy(a);
}

static void a_task_of_many_kernels_overlaps_its_issue(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct sim *s = sim_create(a, 1, 0);
    struct sim_task slow_host = {
        .stream = 0, .duration_s = 1, .issue_s = 3, .issue_overlaps = true};
    struct sim_task slow_device = {
        .stream = 0, .duration_s = 9, .issue_s = 3, .issue_overlaps = true};
    sim_add(s, &slow_host);
    sim_add(s, &slow_device);
    struct sim_result r = run(s, a);
    assert_near(r.finish_s[0], 3, 0);
    assert_near(r.start_s[1], 3, 0);
    assert_near(r.end_s, 12, 0);
    arena_destroy(a);
}

static void a_shared_resource_is_max_min_fair(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct sim *s = sim_create(a, 3, 1);
    sim_resource(s, 0, 10);
    uint32_t small = add_flow(s, 0, 10, 0, 2); // below the fair share: never slowed
    uint32_t mid = add_flow(s, 1, 4, 0, 8);    // 32 units
    uint32_t large = add_flow(s, 2, 4, 0, 16); // 64 units
    struct sim_result r = run(s, a);
    // 4 units/s each to mid and large until mid ends at 8; large has 32 left at 8 units/s until 10,
    // then 16 left at its own 10 (the resource's) units/s.
    assert_near(r.finish_s[small], 10, CLOSE);
    assert_near(r.finish_s[mid], 8, CLOSE);
    assert_near(r.finish_s[large], 11.6, CLOSE);
    assert_near(sim_resource_work(s, 0), 116, CLOSE);
    assert_near(sim_lower_bound_s(s, a), 11.6, CLOSE);
    arena_destroy(a);
}

static void the_tightest_resource_frees_the_others(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct sim *s = sim_create(a, 2, 2);
    sim_resource(s, 0, 1);
    sim_resource(s, 1, 10);
    struct sim_task both = {
        .stream = 0, .duration_s = 1, .demands = {{0, 4}, {1, 8}}, .demand_count = 2};
    sim_add(s, &both);                        // at a quarter speed by resource 0: uses 2 of 1
    uint32_t other = add_flow(s, 1, 1, 1, 8); // so 8 of 10 remain: full speed
    struct sim_result r = run(s, a);
    assert_near(r.finish_s[0], 4, CLOSE);
    assert_near(r.finish_s[other], 1, CLOSE);
    arena_destroy(a);
}

static void memory_has_a_peak(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct sim *s = sim_create(a, 2, 0);
    struct sim_task t = {.stream = 0, .duration_s = 2, .alloc_bytes_at_start = 100};
    t.free_bytes_at_end = 40;
    sim_add(s, &t);
    t.alloc_bytes_at_start = 50;
    t.free_bytes_at_end = 110;
    sim_add(s, &t);
    struct sim_result r = run(s, a);
    assert_int_equal(r.memory_peak_bytes, 110);
    assert_int_equal(r.memory_peak_task, 1);
    assert_int_equal(r.memory_end_bytes, 0);
    arena_destroy(a);
}

static void no_capacity_is_an_error(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct sim *s = sim_create(a, 1, 1);
    sim_resource(s, 0, 0);
    add_flow(s, 0, 1, 0, 1);
    struct sim_result r = {.end_s = -1};
    struct err e = {0};
    assert_false(sim_run(s, NULL, a, &r, &e));
    assert_int_equal(e.kind, ERR_INPUT);
    assert_near(r.end_s, -1, 0); // untouched
    arena_destroy(a);
}

static void an_empty_graph_ends_at_zero(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct sim *s = sim_create(a, 1, 0);
    assert_near(run(s, a).end_s, 0, 0);
    arena_destroy(a);
}

// Random graphs.
struct dice {
    uint64_t seed, counter;
};

static uint64_t roll(struct dice *d, uint64_t sides) {
    return stats_random_u64(d->seed, 4, d->counter++) % sides;
}

static void random_task(struct dice *d, uint32_t id, bool sharing, struct sim_task *t) {
    *t = (struct sim_task){.stream = (uint32_t)roll(d, 5), .duration_s = (double)roll(d, 8)};
    t->issue_s = roll(d, 3) ? 0 : (double)roll(d, 3) / 4;
    t->detached = roll(d, 8) == 0;
    t->host_blocking = roll(d, 10) == 0;
    t->issue_overlaps = roll(d, 3) == 0;
    t->dep_count = id > 0 ? (uint32_t)roll(d, 3) : 0;
    for (uint32_t i = 0; i < t->dep_count; i++)
        t->deps[i] = id - 1 - (uint32_t)roll(d, id < 12 ? id : 12);
    t->demand_count = sharing ? (uint32_t)roll(d, 3) : 0;
    for (uint32_t i = 0; i < t->demand_count; i++)
        t->demands[i] = (struct sim_demand){i + (uint32_t)roll(d, 2), (double)roll(d, 10)};
    t->alloc_bytes_at_start = (int64_t)roll(d, 1000);
    t->free_bytes_at_end = t->alloc_bytes_at_start;
}

static struct sim *random_graph(struct arena *a, uint64_t seed, bool sharing) {
    struct dice d = {.seed = seed};
    struct sim *s = sim_create(a, 5, 3);
    for (uint32_t i = 0; i < 3; i++)
        sim_resource(s, i, 1 + (double)roll(&d, 12));
    uint32_t count = 1 + (uint32_t)roll(&d, 60);
    for (uint32_t i = 0; i < count; i++) {
        struct sim_task t;
        random_task(&d, i, sharing, &t);
        if (i > 0 && roll(&d, 12) == 0)
            sim_host_wait(s, (uint32_t)roll(&d, i));
        sim_add(s, &t);
    }
    return s;
}

enum { GRAPHS = 4000 };

static void no_run_beats_the_bounds_and_all_memory_returns(void **state) {
    (void)state;
    struct arena *a = arena_create();
    int tight = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        arena_reset(a);
        struct sim *s = random_graph(a, seed, true);
        struct sim_result r = run(s, a);
        double bound_s = sim_lower_bound_s(s, a);
        assert_true(r.end_s >= bound_s * (1 - 1e-12));
        assert_int_equal(r.memory_end_bytes, 0);
        tight += r.end_s <= bound_s * 1.05;
    }
    assert_true(tight > GRAPHS / 50); // the bound is one that runs do reach
    arena_destroy(a);
}

static void the_same_graph_gives_the_same_bytes(void **state) {
    (void)state;
    struct arena *a = arena_create();
    for (uint64_t seed = 0; seed < GRAPHS / 4; seed++) {
        arena_reset(a);
        struct sim *s = random_graph(a, seed, true), *twin = random_graph(a, seed, true);
        struct sim_result one = run(s, a), two = run(twin, a), again = run(s, a);
        size_t bytes = sim_task_count(s) * sizeof(double);
        assert_memory_equal(one.finish_s, two.finish_s, bytes);
        assert_memory_equal(one.start_s, two.start_s, bytes);
        assert_memory_equal(one.finish_s, again.finish_s, bytes);
        assert_int_equal(one.memory_peak_bytes, two.memory_peak_bytes);
    }
    arena_destroy(a);
}

static void without_sharing_faster_tasks_never_end_later(void **state) {
    (void)state;
    struct arena *a = arena_create();
    int faster = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        arena_reset(a);
        struct sim *s = random_graph(a, seed, false);
        uint32_t count = sim_task_count(s);
        double *multipliers = arena_array(a, count, sizeof *multipliers);
        for (uint32_t i = 0; i < count; i++)
            multipliers[i] = stats_random_uniform(seed, 5, i);
        struct sim_result slow = run(s, a), fast;
        assert_true(sim_run(s, multipliers, a, &fast, NULL));
        for (uint32_t i = 0; i < count; i++)
            assert_true(fast.finish_s[i] <= slow.finish_s[i] + CLOSE);
        faster += fast.end_s < slow.end_s;
    }
    assert_true(faster > GRAPHS / 2);
    arena_destroy(a);
}

static void causes_explain_every_start(void **state) {
    (void)state;
    struct arena *a = arena_create();
    for (uint64_t seed = 0; seed < GRAPHS / 4; seed++) {
        arena_reset(a);
        struct sim *s = random_graph(a, seed, true);
        struct sim_result r = run(s, a);
        for (uint32_t i = 0; i < sim_task_count(s); i++) {
            struct sim_cause c = sim_task_cause(s, &r, i);
            assert_near(c.at_s, r.start_s[i], CLOSE);
        }
    }
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_fifo_and_dependencies_hold),
        cmocka_unit_test(the_host_issues_in_order_and_blocks),
        cmocka_unit_test(a_task_of_many_kernels_overlaps_its_issue),
        cmocka_unit_test(a_shared_resource_is_max_min_fair),
        cmocka_unit_test(the_tightest_resource_frees_the_others),
        cmocka_unit_test(memory_has_a_peak),
        cmocka_unit_test(no_capacity_is_an_error),
        cmocka_unit_test(an_empty_graph_ends_at_zero),
        cmocka_unit_test(no_run_beats_the_bounds_and_all_memory_returns),
        cmocka_unit_test(the_same_graph_gives_the_same_bytes),
        cmocka_unit_test(without_sharing_faster_tasks_never_end_later),
        cmocka_unit_test(causes_explain_every_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
