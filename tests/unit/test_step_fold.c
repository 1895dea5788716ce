// SPDX-License-Identifier: Apache-2.0
// Long accumulations are simulated folded; the whole step, built task by task, says the same.
#include "plan/step.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct arena *arena, *scratch;
    struct model model;
    struct cluster cluster;
};

static void open_fixture(struct fixture *f, const char *model, const char *cluster) {
    struct err e = {0};
    f->arena = arena_create();
    f->scratch = arena_create();
    if (!model_load(model, f->arena, &f->model, &e) ||
        !cluster_load(cluster, f->arena, &f->cluster, &e))
        fail_msg("%s", e.text);
}

static void close_fixture(struct fixture *f) {
    arena_destroy(f->arena);
    arena_destroy(f->scratch);
}

static struct step_time simulate(const struct fixture *f, const struct recipe *r, bool whole) {
    struct step_request q = {
        .model = &f->model, .cluster = &f->cluster, .recipe = r, .want_timeline = whole};
    struct step_timeline line;
    struct step_time t;
    struct err e = {0};
    if (!step_simulate(&q, f->scratch, &t, whole ? &line : NULL, &e))
        fail_msg("%s", e.text);
    return t;
}

static bool same(const char *what, const struct recipe *r, double folded, double whole,
                 double step_s) {
    if (fabs(folded - whole) <= 1e-9 * step_s)
        return true;
    print_message("%s opt %s param %s no_sync %d g %llu: %s %.9g folded, %.9g whole (%.2g)\n",
                  strategy_names[r->strategy], offload_names[r->offload_optimizer],
                  offload_names[r->offload_param], r->no_sync, (unsigned long long)r->grad_accum,
                  what, folded, whole, (folded - whole) / step_s);
    return false;
}

static bool same_step(const struct fixture *f, const struct recipe *r) {
    arena_reset(f->scratch);
    struct step_time a = simulate(f, r, false), b = simulate(f, r, true);
    bool ok = same("step", r, a.step_s, b.step_s, b.step_s);
    ok &= same("forward", r, a.forward_s, b.forward_s, b.step_s);
    ok &= same("backward", r, a.backward_s, b.backward_s, b.step_s);
    ok &= same("optimizer", r, a.optimizer_s, b.optimizer_s, b.step_s);
    ok &= same("compute", r, a.compute_s, b.compute_s, b.step_s);
    ok &= same("host", r, a.host_issue_s, b.host_issue_s, b.step_s);
    ok &= same("network", r, a.exposed_comm_s, b.exposed_comm_s, b.step_s);
    ok &= same("offload", r, a.exposed_offload_s, b.exposed_offload_s, b.step_s);
    ok &= same("low", r, a.step_low_s, b.step_low_s, b.step_s);
    ok &= same("high", r, a.step_high_s, b.step_high_s, b.step_s);
    ok &= same("bubble", r, a.bubble_s, b.bubble_s, b.step_s);
    ok &= same("waits", r, (double)a.wait_count, (double)b.wait_count, 0);
    for (size_t i = 0; i < a.wait_count && i < b.wait_count; i++)
        ok &= same(b.waits[i].on, r, a.waits[i].seconds, b.waits[i].seconds, b.step_s) &&
              same(b.waits[i].phase, r, a.waits[i].fraction, b.waits[i].fraction, 1);
    return ok;
}

enum { VARIANTS = 9 };

static void vary(struct recipe *r, int variant) {
    r->reshard_group = 4;
    r->seq = 512;
    r->micro_batch = 1;
    r->no_sync = variant == 1;
    if (variant >= 2 && variant <= 5)
        r->offload_optimizer = variant == 4 ? OFFLOAD_NVME : OFFLOAD_CPU;
    r->offload_param = variant == 3 ? OFFLOAD_CPU : OFFLOAD_NONE;
    r->super_offload = variant == 5;
    r->nvme_buffer_count_optimizer = 12;
    r->activation_offload = variant == 6;
    r->recompute = variant >= 6 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
    r->overlap_comm = variant == 7 ? OVERLAP_ON : r->overlap_comm;
    r->pp = variant == 8 ? 2 : 1;
}

static void a_folded_step_is_the_whole_step(void **state) {
    (void)state;
    static const char *const models[] = {"gpt2", "llama-3.2-1b"};
    int wrong = 0, ran = 0;
    for (size_t m = 0; m < 2; m++) {
        struct fixture f;
        open_fixture(&f, models[m], m ? "dgx-h100" : "8xrtx4090-pcie");
        for (int strategy = 0; strategy < STRATEGY_COUNT; strategy++)
            for (int variant = 0; variant < VARIANTS; variant++)
                for (uint64_t g = 2; g <= 40; g += g < 8 ? 1 : 32) {
                    struct recipe r;
                    struct err e = {0};
                    recipe_defaults((enum strategy)strategy, &r);
                    vary(&r, variant);
                    r.grad_accum = g;
                    if (!recipe_resolve(&r, &f.model, &f.cluster, &e))
                        break;
                    ran++;
                    wrong += !same_step(&f, &r);
                }
        close_fixture(&f);
    }
    print_message("%d steps\n", ran);
    assert_true(ran > 1000);
    assert_int_equal(wrong, 0);
}

static struct step_timeline line_of(struct fixture *f, struct recipe *r, uint64_t g) {
    recipe_defaults(STRATEGY_FSDP2, r);
    struct step_timeline line = {0};
    struct step_time t;
    struct err e = {0};
    r->grad_accum = g;
    struct step_request q = {
        .model = &f->model, .cluster = &f->cluster, .recipe = r, .want_timeline = true};
    if (!recipe_resolve(r, &f->model, &f->cluster, &e) ||
        !step_simulate(&q, f->scratch, &t, &line, &e))
        fail_msg("%s", e.text);
    return line;
}

// A hundred thousand micro-steps take no longer than three; streams are of all of them.
static void a_long_timeline_shows_three(void **state) {
    (void)state;
    struct fixture f;
    struct recipe r;
    open_fixture(&f, "gpt2", "dgx-h100");
    const struct step_timeline three = line_of(&f, &r, 3), many = line_of(&f, &r, 100000);
    const struct step_timeline whole = line_of(&f, &r, STEP_WHOLE_MICRO_STEPS);
    const struct step_timeline before = line_of(&f, &r, STEP_WHOLE_MICRO_STEPS - 1);
    assert_int_equal(whole.micro_steps, STEP_WHOLE_MICRO_STEPS);
    assert_int_equal(many.micro_steps, 3);
    assert_int_equal(many.task_count, three.task_count);
    for (size_t i = 0; i < many.stream_count; i++) {
        double one_s = whole.streams[i].busy_s - before.streams[i].busy_s;
        double wanted_s = whole.streams[i].busy_s + (100000 - STEP_WHOLE_MICRO_STEPS) * one_s;
        assert_true(fabs(many.streams[i].busy_s - wanted_s) <= 1e-6 * wanted_s);
    }
    // What holds every task of the step says how long it may be.
    struct graph g;
    struct err e = {0};
    r.grad_accum = STEP_WHOLE_MICRO_STEPS + 1;
    struct step_request q = {.model = &f.model, .cluster = &f.cluster, .recipe = &r};
    assert_false(step_graph(&q, f.scratch, &g, &e));
    assert_non_null(strstr(e.text, "at most 256 micro-steps, not 257"));
    close_fixture(&f);
}

// Two stages, four micro-steps: (4 + 1) / 4 of forward and backward, a fifth of them idle.
static void a_bubble_is_its_own_part_of_the_step(void **state) {
    (void)state;
    struct fixture f;
    struct recipe r;
    struct err e = {0};
    open_fixture(&f, "llama-2-7b", "dgx-h100");
    assert_true(cluster_resize(&f.cluster, 1, 2, &e)); // nobody to reduce gradients with
    recipe_defaults(STRATEGY_ZERO1, &r);
    r.pp = 2;
    r.grad_accum = 4;
    assert_true(recipe_resolve(&r, &f.model, &f.cluster, &e));
    struct step_time t = simulate(&f, &r, true);
    double parts = t.compute_s + t.exposed_comm_s + t.exposed_offload_s + t.host_issue_s;
    assert_true(same("bubble", &r, t.bubble_s, (t.forward_s + t.backward_s) / 5, t.step_s));
    assert_true(same("step", &r, parts + t.bubble_s, t.step_s, t.step_s));
    assert_true(same("phases", &r, t.forward_s + t.backward_s + t.optimizer_s, t.step_s, t.step_s));
    assert_int_equal(t.bound_by, BOUND_PIPELINE_BUBBLE);
    assert_string_equal(bound_names[t.bound_by], "pipeline_bubble");
    assert_true(t.step_low_s < t.step_s && t.step_s < t.step_high_s);
    r.grad_accum = 100; // a hundredth: no longer what bounds it
    t = simulate(&f, &r, true);
    assert_true(same("bubble", &r, t.bubble_s, (t.forward_s + t.backward_s) / 101, t.step_s));
    assert_int_not_equal(t.bound_by, BOUND_PIPELINE_BUBBLE);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folded_step_is_the_whole_step),
        cmocka_unit_test(a_long_timeline_shows_three),
        cmocka_unit_test(a_bubble_is_its_own_part_of_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
