// SPDX-License-Identifier: Apache-2.0
// The nearest measured run: distances worked by hand, and the table that ships.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "describe/measured.h"

#include <math.h>
#include <string.h>

static const struct measured_key base = {.gpu = "h100-sxm5-80gb",
                                         .sm = "sm_90",
                                         .framework = "fsdp2",
                                         .strategy = "fsdp2",
                                         .parameters = 8e9,
                                         .tokens_per_gpu = 8192,
                                         .gpus = 8};

static struct measured_run run_of(const char *id, struct measured_key k, double predicted_s) {
    return (struct measured_run){k, id, "a source", 10, predicted_s};
}

// Four times the parameters is 1 away, another GPU of the generation 1, eight times the GPUs 1,
// another framework 2, another generation 3.
static void distances(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct measured_key k = base;
    struct measured_run runs[4];
    k.parameters = 32e9;
    k.gpus = 64;
    runs[0] = run_of("larger", k, 11); // 2
    k = base;
    k.gpu = "h200-sxm5-141gb";
    k.strategy = "hsdp";
    runs[1] = run_of("other part", k, 9.5); // 1.5
    k = base;
    k.framework = "deepspeed";
    k.strategy = "zero3";
    runs[2] = run_of("other framework", k, 10); // 2
    k = base;
    k.gpu = "a100-sxm4-80gb";
    k.sm = "sm_80";
    runs[3] = run_of("other generation", k, 10); // 3
    struct measured_table t = {runs, 4};
    struct measured_nearest n;
    measured_find(&t, &base, a, &n);
    assert_string_equal(n.run->id, "other part");
    assert_true(fabs(n.distance - 1.5) < 1e-12);
    assert_true(fabs(n.error + 0.05) < 1e-12);
    assert_int_equal(n.group_n, 1);
    assert_non_null(strstr(n.differs, "another GPU (h200-sxm5-141gb)"));
    assert_non_null(strstr(n.differs, "another strategy (hsdp)"));
    t.count = 1;
    measured_find(&t, &base, a, &n);
    assert_true(fabs(n.distance - 2) < 1e-12);
    assert_non_null(strstr(n.differs, "4 x the parameters"));
    assert_non_null(strstr(n.differs, "8 x the GPUs"));
    t.count = 0;
    measured_find(&t, &base, a, &n);
    assert_null(n.run);
    arena_destroy(a);
}

static void the_same_run_differs_by_nothing(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct measured_run runs[] = {run_of("twin", base, 11), run_of("sister", base, 8)};
    runs[1].key.tokens_per_gpu *= 2;
    struct measured_table t = {runs, 2};
    struct measured_nearest n;
    measured_find(&t, &base, a, &n);
    assert_string_equal(n.run->id, "twin");
    assert_true(n.distance == 0);
    assert_null(n.differs);
    assert_int_equal(n.group_n, 2);
    assert_true(fabs(n.group_error - 0.15) < 1e-12);
    arena_destroy(a);
}

// Every run of the table is the nearest to itself.
static void the_table_that_ships(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct measured_table t;
    struct err e = {0};
    assert_true(measured_load(a, &t, &e));
    assert_true(t.count > 100);
    for (size_t i = 0; i < t.count; i++) {
        struct measured_nearest n;
        measured_find(&t, &t.runs[i].key, a, &n);
        assert_true(n.distance == 0);
        assert_true(fabs(n.error) < 0.5);
    }
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances),
        cmocka_unit_test(the_same_run_differs_by_nothing),
        cmocka_unit_test(the_table_that_ships),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
