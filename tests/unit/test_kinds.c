// SPDX-License-Identifier: Apache-2.0
#include "base/kinds.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void dtypes_have_names_and_sizes(void **state) {
    (void)state;
    const struct {
        const char *text;
        enum dtype type;
        double bytes;
    } known[] = {
        {"fp32", DTYPE_FP32, 4}, {"torch.bfloat16", DTYPE_BF16, 2}, {"BF16", DTYPE_BF16, 2},
        {"half", DTYPE_FP16, 2}, {"float8_e4m3fn", DTYPE_FP8, 1},   {"F8_E4M3", DTYPE_FP8, 1},
        {"int8", DTYPE_INT8, 1}, {"int4", DTYPE_INT4, 0.5},         {"tf32", DTYPE_TF32, 4},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        enum dtype t;
        assert_true(dtype_find(known[i].text, &t));
        assert_int_equal(t, known[i].type);
        assert_true(dtype_bytes(t) == known[i].bytes);
    }
    for (int i = 0; i < DTYPE_COUNT; i++) {
        enum dtype t;
        assert_true(dtype_find(dtype_name((enum dtype)i), &t));
        assert_int_equal(t, i);
    }
    enum dtype untouched = DTYPE_INT4;
    assert_false(dtype_find("fp64", &untouched));
    assert_false(dtype_find("", &untouched));
    assert_false(dtype_find(NULL, &untouched));
    assert_false(dtype_find("a name much longer than any type has ever had", &untouched));
    assert_int_equal(untouched, DTYPE_INT4);
}

static void collectives_are_found_in_any_spelling(void **state) {
    (void)state;
    const char *spellings[] = {"all_gather", "AllGather", "all-gather", "ALLGATHER"};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        enum collective c = COLLECTIVE_REDUCE;
        assert_true(collective_find(spellings[i], &c));
        assert_int_equal(c, COLLECTIVE_ALL_GATHER);
    }
    enum collective c;
    assert_true(collective_find("alltoall", &c));
    assert_int_equal(c, COLLECTIVE_ALL_TO_ALL);
    assert_false(collective_find("gather", &c));
}

static void ring_volumes_match_nccl_tests(void **state) {
    (void)state;
    assert_true(collective_sent_bytes(COLLECTIVE_ALL_GATHER, 800, 8) == 700);
    assert_true(collective_sent_bytes(COLLECTIVE_REDUCE_SCATTER, 800, 8) == 700);
    assert_true(collective_sent_bytes(COLLECTIVE_ALL_REDUCE, 800, 8) == 1400);
    assert_true(collective_sent_bytes(COLLECTIVE_BROADCAST, 800, 8) == 800);
    for (int i = 0; i < COLLECTIVE_COUNT; i++)
        assert_true(collective_sent_bytes((enum collective)i, 800, 1) == 0);
    assert_true(collective_bus_factor(COLLECTIVE_ALL_REDUCE, 16) == 1.875);
    assert_true(collective_bus_factor(COLLECTIVE_ALL_TO_ALL, 4) == 0.75);
    assert_true(collective_bus_factor(COLLECTIVE_REDUCE, 4) == 1);
}

static void nearest_name_is_offered_only_when_near(void **state) {
    (void)state;
    const char *const names[] = {"llama-2-7b", "llama-3-70b", "zero1", "zero2", "fsdp2", "tp"};
    const size_t n = sizeof names / sizeof *names;
    assert_string_equal(kinds_nearest(names, n, "lama-2-7b"), "llama-2-7b");
    assert_string_equal(kinds_nearest(names, n, "LLAMA-3-70"), "llama-3-70b");
    assert_string_equal(kinds_nearest(names, n, "zreo2"), "zero2");
    assert_string_equal(kinds_nearest(names, n, "fsdp"), "fsdp2");
    assert_null(kinds_nearest(names, n, "gemm"));
    assert_null(kinds_nearest(names, n, "x"));
    assert_null(kinds_nearest(names, n, ""));
    assert_int_equal(kinds_find(names, n, "ZERO2"), 3);
    assert_int_equal(kinds_find(names, n, "zero9"), -1);
    assert_int_equal(kinds_find(names, n, NULL), -1);
}

static void figures_know_whether_they_are_known(void **state) {
    (void)state;
    assert_false(figure_is_known(figure_unknown()));
    struct figure f = figure_known(3, PROVENANCE_SPEC, "data sheet");
    assert_true(figure_is_known(f));
    assert_true(f.low == 3 && f.high == 3);
    f = figure_assumed(3, 2, 5, "guess");
    assert_string_equal(provenance_name(f.provenance), "assumed");
    assert_true(f.low == 2 && f.high == 5);
    assert_string_equal(link_name(LINK_HOST_DRAM), "host_dram");
    assert_string_equal(device_name(DEVICE_NVME), "nvme");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_names_and_sizes),
        cmocka_unit_test(collectives_are_found_in_any_spelling),
        cmocka_unit_test(ring_volumes_match_nccl_tests),
        cmocka_unit_test(nearest_name_is_offered_only_when_near),
        cmocka_unit_test(figures_know_whether_they_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
