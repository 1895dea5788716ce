// SPDX-License-Identifier: Apache-2.0
// The builders against closed forms, with costs that this file states: the functions of cost/ that
// a step calls are replaced here by constants.
#include "plan/step_account.h"

#include "base/stats.h"
#include "base/units.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define CLOSE 1e-9
#define assert_near(got, wanted, tolerance) assert_true(fabs((got) - (wanted)) <= (tolerance))

static struct {
    double forward_s, backward_s, gather_s, reduce_s, all_reduce_s, kernel_s, optimizer_s;
} cost;

void compute_unit(const struct compute_context *x, const struct model_unit *u,
                  struct unit_cost *forward, struct unit_cost *backward) {
    (void)x;
    double share = u->kind == UNIT_BLOCK ? 1 : 0;
    *forward = (struct unit_cost){.duration_s = share * cost.forward_s};
    *backward = (struct unit_cost){.duration_s = share * cost.backward_s};
    forward->low_s = forward->high_s = forward->duration_s;
    backward->low_s = backward->high_s = backward->duration_s;
}
double compute_memory_bound_s(const struct gpu *g, enum kernel_stack s, double bytes) {
    (void)g, (void)s, (void)bytes;
    return cost.kernel_s;
}
double compute_gemm_s(const struct gpu *g, enum kernel_stack s, const struct gemm_shape *shape) {
    (void)g, (void)s, (void)shape;
    return cost.kernel_s;
}
double compute_optimizer_s(const struct cluster *c, const struct recipe *r, double elements) {
    (void)c, (void)r, (void)elements;
    return cost.optimizer_s;
}
double compute_step_host_s(const struct cluster *c, const struct recipe *r) {
    (void)c, (void)r;
    return 500 * UNITS_MICRO;
}
double compute_overlap_loss(const struct gpu *g, enum kernel_stack s) {
    (void)g, (void)s;
    return 0.1;
}
struct figure compute_cpu_adam_s(const struct cluster *c, const struct recipe *r, double elements) {
    (void)c, (void)r;
    return figure_known(elements, PROVENANCE_MEASURED, "test");
}
double compute_model_flop(const struct model *m, const struct recipe *r, bool with_recompute) {
    (void)m, (void)r, (void)with_recompute;
    return 1;
}
double compute_peak_flop_per_s(const struct gpu *g, const struct recipe *r) {
    (void)g, (void)r;
    return 1;
}
void collective_estimate(const struct cluster *c, enum collective k, const struct group_layout *g,
                         double payload_bytes, struct collective_time *out) {
    (void)c;
    double seconds = k == COLLECTIVE_ALL_GATHER       ? cost.gather_s
                     : k == COLLECTIVE_REDUCE_SCATTER ? cost.reduce_s
                                                      : cost.all_reduce_s;
    bool root = payload_bytes < 100; // the root of the test's model is tiny
    seconds = root || g->size <= 1 ? 0 : seconds;
    *out = (struct collective_time){
        .seconds = seconds, .low_s = seconds, .high_s = seconds, .transfer_s = seconds};
}

enum { LAYERS = 10 };

struct fixture {
    struct arena *arena;
    struct model model;
    struct cluster cluster;
    struct recipe recipe;
    struct step_builder b;
    struct sim_result run;
};

static void set_up(struct fixture *f, enum strategy strategy) {
    static const struct tensor small[] = {{"weight", "embed", TENSOR_EMBEDDING, 4, 1, false, 1}};
    static const struct tensor large[] = {
        {"weight", "linear", TENSOR_LINEAR, 1000, 1000, false, 1}};
    static const struct model_unit units[] = {{.kind = UNIT_EMBEDDING,
                                               .name = "embed",
                                               .repeat = 1,
                                               .tensors = small,
                                               .tensor_count = 1,
                                               .parameters = 4},
                                              {.kind = UNIT_BLOCK,
                                               .name = "layers",
                                               .repeat = LAYERS,
                                               .tensors = large,
                                               .tensor_count = 1,
                                               .parameters = 1000000}};
    *f = (struct fixture){.arena = arena_create()};
    f->model = (struct model){.name = "uniform", .units = units, .unit_count = 2, .layers = LAYERS};
    f->model.parameters = 4 + LAYERS * 1000000;
    f->cluster = (struct cluster){.nodes = 1, .gpus_per_node = 8, .gpus = 8};
    f->cluster.gpu.pcie_h2d_bytes_per_s = figure_known(UNITS_TERA, PROVENANCE_SPEC, "test");
    f->cluster.gpu.hbm_bytes_per_s = figure_known(UNITS_TERA, PROVENANCE_SPEC, "test");
    recipe_defaults(strategy, &f->recipe);
    f->recipe.clip = 0;
    f->recipe.micro_batch = f->recipe.grad_accum = 1;
    f->recipe.seq = 16;
    struct err e = {0};
    assert_true(recipe_resolve(&f->recipe, &f->model, &f->cluster, &e));
    cost = (__typeof__(cost)){0};
}

static void start(struct fixture *f) {
    struct step_request q = {.model = &f->model, .cluster = &f->cluster, .recipe = &f->recipe};
    struct err e = {0};
    assert_true(step_builder_init(&f->b, &q, f->arena, &e));
}

// No capacities are set, so nothing is shared; issue times are a few microseconds.
static void finish(struct fixture *f) {
    assert_true(sim_run(f->b.sim, NULL, f->arena, &f->run, NULL));
}

// Time the compute stream stood still before the unit's task of that kind.
static double gap_before(const struct fixture *f, enum step_op op, uint32_t unit) {
    double at_s = 0;
    for (uint32_t i = 0; i < sim_task_count(f->b.sim); i++) {
        if (sim_task_stream(f->b.sim, i) != STREAM_COMPUTE)
            continue;
        if (f->b.meta[i].op == OP_COPY_OUT || f->b.meta[i].op == OP_GRAD_COPY) {
            if (f->run.finish_s[i] > f->run.start_s[i])
                at_s = f->run.finish_s[i];
            continue;
        }
        if (f->b.meta[i].op == op && f->b.meta[i].unit == unit)
            return f->run.start_s[i] - at_s;
        at_s = f->run.finish_s[i];
    }
    fail();
    return NAN;
}

static void fsdp2_inner_units_expose_exactly_the_closed_form(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct fixture f;
        set_up(&f, STRATEGY_FSDP2);
        cost.forward_s = 1 + 9 * stats_random_uniform(seed, 1, 0);
        cost.backward_s = 1 + 19 * stats_random_uniform(seed, 1, 1);
        cost.gather_s = 0.1 + 15 * stats_random_uniform(seed, 1, 2);
        cost.reduce_s = 0.1 + 15 * stats_random_uniform(seed, 1, 3);
        start(&f);
        step_build_fsdp2(&f.b);
        finish(&f);
        double forward = fmax(0, cost.gather_s - cost.forward_s);
        double backward = fmax(0, cost.gather_s + cost.reduce_s - cost.backward_s);
        const double issue_s = 1e-2; // host issue of a few calls at the stream's start
        for (uint32_t unit = 4; unit < LAYERS; unit++)
            assert_near(gap_before(&f, OP_FORWARD, unit), forward, issue_s);
        for (uint32_t unit = LAYERS - 4; unit > 3; unit--)
            assert_near(gap_before(&f, OP_BACKWARD, unit), backward, issue_s);
        arena_destroy(f.arena);
    }
}

// A machine that rehearses on its cores: with one core to a rank everything takes its turn, with
// enough of them nothing changes.
static void rehearsals_share_the_cores(void **state) {
    static const double cores[] = {8, 32};
    double end_s[2], work_s = 0;
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        set_up(&f, STRATEGY_FSDP2);
        cost.forward_s = 1;
        cost.backward_s = 2;
        cost.gather_s = 0.75;
        cost.reduce_s = 0.5;
        f.cluster.gpu.vendor = "host";
        f.cluster.cpu_cores = figure_known(cores[i], PROVENANCE_SPEC, "test");
        start(&f);
        step_build_fsdp2(&f.b);
        sim_resource(f.b.sim, RESOURCE_CORES, 1);
        finish(&f);
        end_s[i] = f.run.end_s;
        work_s = 0;
        for (uint32_t k = 0; k < sim_task_count(f.b.sim); k++)
            work_s += f.b.meta[k].exact_s;
        arena_destroy(f.arena);
    }
    assert_near(end_s[0], work_s, 0.01);
    assert_near(end_s[1], LAYERS * 3.0 + 0.75 + 0.5, 1.6); // only the ends show
}

static void strategies_meet_their_first_order_forms(void **state) {
    (void)state;
    const enum strategy which[] = {STRATEGY_FSDP2, STRATEGY_FSDP1};
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        set_up(&f, which[i]);
        cost.forward_s = 2;
        cost.backward_s = 4;
        cost.gather_s = 3;
        cost.reduce_s = 5;
        start(&f);
        which[i] == STRATEGY_FSDP2 ? step_build_fsdp2(&f.b) : step_build_fsdp1(&f.b);
        finish(&f);
        // a_1 + sum max(f, a) and sum max(b, a + r) + r_1, the ends of the pipeline apart.
        double forward = 3 + (LAYERS - 1) * 3.0 + 2, backward = LAYERS * 8.0;
        assert_near(f.run.end_s, forward + backward, 3 + 5 + 4 + 0.1);
        arena_destroy(f.arena);
    }
}

static void ddp_exposes_the_tail_of_its_reductions(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, STRATEGY_DDP);
    cost.forward_s = 1;
    cost.backward_s = 2;
    cost.all_reduce_s = 1.5;
    f.recipe.ddp_bucket_bytes = f.recipe.ddp_first_bucket_bytes = 4000000; // one block a bucket
    start(&f);
    step_build_ddp(&f.b);
    finish(&f);
    assert_near(f.run.end_s, 10 * 1 + 10 * 2 + 1.5, 0.01);
    arena_destroy(f.arena);
}

static void zero2_without_overlap_reduces_in_line(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, STRATEGY_ZERO2);
    cost.forward_s = 1;
    cost.backward_s = 2;
    cost.all_reduce_s = 1.5;
    f.recipe.reduce_bucket_elements = 2000000; // two blocks a bucket
    start(&f);
    step_build_zero12(&f.b);
    finish(&f);
    assert_near(f.run.end_s, 10 + 20 + 5 * 1.5, 0.01);
    arena_destroy(f.arena);
    // With overlap only the last bucket shows: the others hide under 4 s of backward each.
    set_up(&f, STRATEGY_ZERO2);
    cost.forward_s = 1;
    cost.backward_s = 2;
    cost.all_reduce_s = 1.5;
    f.recipe.reduce_bucket_elements = 2000000;
    f.recipe.overlap_comm = OVERLAP_ON;
    start(&f);
    step_build_zero12(&f.b);
    finish(&f);
    assert_near(f.run.end_s, 10 + 20 + 1.5, 0.01);
    arena_destroy(f.arena);
}

static uint32_t count_of(const struct fixture *f, enum step_op op) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < sim_task_count(f->b.sim); i++)
        n += f->b.meta[i].op == op;
    return n;
}

static void accumulation_and_no_sync_count_their_collectives(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, STRATEGY_FSDP2);
    f.recipe.grad_accum = 3;
    start(&f);
    step_build_fsdp2(&f.b);
    // Root and ten blocks gathered in forward, the blocks again in backward.
    assert_int_equal(count_of(&f, OP_GATHER), 3 * (11 + 10));
    assert_int_equal(count_of(&f, OP_REDUCE), 3 * 11);
    arena_destroy(f.arena);
    set_up(&f, STRATEGY_FSDP2);
    f.recipe.grad_accum = 3;
    f.recipe.no_sync = true;
    start(&f);
    step_build_fsdp2(&f.b);
    assert_int_equal(count_of(&f, OP_REDUCE), 11);
    arena_destroy(f.arena);
    set_up(&f, STRATEGY_FSDP2_NORESHARD);
    start(&f);
    step_build_fsdp2(&f.b);
    assert_int_equal(count_of(&f, OP_GATHER), 11);
    arena_destroy(f.arena);
}

static void the_graph_does_not_grow_with_the_ranks(void **state) {
    (void)state;
    uint32_t tasks[2];
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        set_up(&f, STRATEGY_FSDP2);
        f.cluster.gpus = i == 0 ? 4 : 16384;
        f.cluster.nodes = i == 0 ? 1 : 2048;
        f.recipe.global_batch = 0;
        struct err e = {0};
        assert_true(recipe_resolve(&f.recipe, &f.model, &f.cluster, &e));
        start(&f);
        step_build_fsdp2(&f.b);
        step_build_optimizer(&f.b);
        tasks[i] = sim_task_count(f.b.sim);
        arena_destroy(f.arena);
    }
    assert_int_equal(tasks[0], tasks[1]);
}

static void waits_name_what_held_the_step(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, STRATEGY_FSDP2);
    cost.forward_s = 1;
    cost.backward_s = 1;
    cost.gather_s = 2;
    cost.reduce_s = 6;
    struct step_request q = {.model = &f.model, .cluster = &f.cluster, .recipe = &f.recipe};
    struct step_time t;
    struct err e = {0};
    assert_true(step_simulate(&q, f.arena, &t, NULL, &e));
    assert_true(t.wait_count >= 2);
    assert_string_equal(t.waits[0].phase, "backward");
    assert_string_equal(t.waits[0].on, "intra-node reduce_scatter of gradients");
    assert_int_equal(t.bound_by, BOUND_INTRA_NODE);
    double parts =
        t.compute_s + t.exposed_comm_s + t.exposed_offload_s + t.host_issue_s + t.bubble_s;
    assert_near(parts, t.step_s, CLOSE);
    assert_near(t.forward_s + t.backward_s + t.optimizer_s, t.step_s, CLOSE);
    // All links take 2 x 10 + 2 x 10 + 6 x 10 seconds, of which no more can be exposed.
    assert_true(t.exposed_comm_s <= 20 + 20 + 60 + 0.1);
    arena_destroy(f.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fsdp2_inner_units_expose_exactly_the_closed_form),
        cmocka_unit_test(rehearsals_share_the_cores),
        cmocka_unit_test(strategies_meet_their_first_order_forms),
        cmocka_unit_test(ddp_exposes_the_tail_of_its_reductions),
        cmocka_unit_test(zero2_without_overlap_reduces_in_line),
        cmocka_unit_test(accumulation_and_no_sync_count_their_collectives),
        cmocka_unit_test(the_graph_does_not_grow_with_the_ranks),
        cmocka_unit_test(waits_name_what_held_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
