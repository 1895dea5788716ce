// SPDX-License-Identifier: Apache-2.0
#include "bench/rehearse.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNT 5

static const uint32_t after_first[] = {0}, after_both[] = {1, 2};
static const char *const streams[] = {"compute", "copy"};
static const struct graph_task tasks[COUNT] = {
    {.id = 0, .kind = GRAPH_GEMM, .phase = "forward", .group = -1, .duration_s = 0.02},
    {.id = 1,
     .kind = GRAPH_ELEMENTWISE,
     .phase = "forward",
     .group = -1,
     .issue_s = 0.001,
     .duration_s = 0.03},
    {.id = 2,
     .kind = GRAPH_COPY,
     .stream = 1,
     .deps = after_first,
     .dep_count = 1,
     .phase = "forward",
     .direction = "d2h",
     .group = -1,
     .bytes = 1 << 20,
     .duration_s = 0.01},
    {.id = 3,
     .kind = GRAPH_ADAM,
     .stream = 1,
     .deps = after_both,
     .dep_count = 2,
     .phase = "step",
     .group = -1,
     .bytes = 1000,
     .host_blocking = true,
     .duration_s = 0.005},
    {.id = 4, .kind = GRAPH_HOST, .phase = "step", .group = -1, .duration_s = 0.001},
};
static const struct graph graph = {
    .ranks = 1, .streams = streams, .stream_count = 2, .tasks = tasks, .task_count = COUNT};

// 0-20 ms, 20-50 ms; the copy 20-30 ms beside it; Adam after both; then the host goes on.
static void predicts_by_hand(void **state) {
    static const double starts[COUNT] = {0, 0.02, 0.02, 0.05, 0.055};
    double start[COUNT], end[COUNT];
    (void)state;
    assert_true(fabs(rehearse_predict(&graph, start, end) - 0.056) < 1e-12);
    for (int i = 0; i < COUNT; i++)
        assert_true(fabs(start[i] - starts[i]) < 1e-12);
}

// The planner's own times, where the graph has them.
static void simulated_times_win(void **state) {
    struct graph_task timed[COUNT];
    struct graph g = graph;
    double start[COUNT], end[COUNT];
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        timed[i] = tasks[i];
        timed[i].start_s = 0.1 * i;
        timed[i].end_s = 0.1 * i + 0.25;
    }
    g.tasks = timed;
    g.step_s = 0.7;
    assert_true(rehearse_predict(&g, start, end) == 0.7);
    assert_true(start[3] == timed[3].start_s && end[3] == timed[3].end_s);
}

// Kernels at 0-20 and 20-50 ms; the copy at 20-30 and Adam at 50-55 ms.
static void exposed_is_what_no_kernel_covers(void **state) {
    double start[COUNT], end[COUNT];
    (void)state;
    rehearse_predict(&graph, start, end);
    assert_true(fabs(rehearse_exposed_s(&graph, 1, start, end) - 0.005) < 1e-12);
    start[2] = 0.045, end[2] = 0.055; // half of the copy behind the last kernel
    assert_true(fabs(rehearse_exposed_s(&graph, 1, start, end) - 0.010) < 1e-12);
    assert_true(fabs(rehearse_exposed_s(&graph, 0, start, end) - 0.051) < 1e-12); // all its tasks
}

static void keeps_the_order(void **state) {
    struct arena *a = arena_create();
    struct rehearse_setup s = {.graph = &graph, .folder = ".", .shrink = 0.5};
    struct err e = {0};
    double start[COUNT], end[COUNT], step_s;
    (void)state;
    assert_true(ranks_open(false, &s.ranks, &e));
    struct rehearsal *r = rehearse_create(&s, a, &e);
    assert_non_null(r);
    rehearse_prepare(r);
    for (int turn = 0; turn < 3; turn++) {
        assert_true(rehearse_step(r, start, end, &step_s, &e));
        for (int i = 0; i < COUNT; i++) {
            assert_true(end[i] >= start[i]);
            for (size_t d = 0; d < tasks[i].dep_count; d++)
                assert_true(start[i] >= end[tasks[i].deps[d]]);
        }
        assert_true(start[1] >= end[0]); // one stream, one after the other
        assert_true(start[4] >= end[3]); // the host waited
        assert_true(step_s >= end[4]);
        // Work on a core cannot be faster than it was calibrated; a crowded machine is slower.
        assert_true(end[0] - start[0] >= 0.5 * 0.02 * 0.8);
    }
    rehearse_destroy(r);
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest list[] = {
        cmocka_unit_test(predicts_by_hand),
        cmocka_unit_test(simulated_times_win),
        cmocka_unit_test(exposed_is_what_no_kernel_covers),
        cmocka_unit_test(keeps_the_order),
    };
    return cmocka_run_group_tests(list, NULL, NULL);
}
