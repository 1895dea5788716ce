// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"

#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void memory_is_zeroed_aligned_and_disjoint(void **state) {
    (void)state;
    struct arena *a = arena_create();
    unsigned char *before = NULL;
    for (size_t n = 0; n < 5000; n += 7) {
        unsigned char *p = arena_alloc(a, n);
        assert_int_equal((uintptr_t)p % alignof(max_align_t), 0);
        assert_true(p != before);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, n);
        before = p;
    }
    arena_destroy(a);
    arena_destroy(NULL);
}

static void reset_reuses_and_zeroes_again(void **state) {
    (void)state;
    struct arena *a = arena_create();
    const size_t large = 1 << 20;
    unsigned char *first = arena_alloc(a, 64);
    memset(first, 0xff, 64);
    memset(arena_alloc(a, large), 0xff, large);
    assert_true(arena_used_bytes(a) >= large + 64);
    arena_reset(a);
    assert_int_equal(arena_used_bytes(a), 0);
    unsigned char *again = arena_alloc(a, 64);
    assert_ptr_equal(again, first);
    assert_int_equal(again[63], 0);
    unsigned char *big = arena_alloc(a, large);
    assert_int_equal(big[large - 1], 0);
    arena_destroy(a);
}

static void text_is_copied(void **state) {
    (void)state;
    struct arena *a = arena_create();
    char word[] = "word";
    char *copy = arena_strdup(a, word);
    word[0] = 'x';
    assert_string_equal(copy, "word");
    assert_null(arena_strdup(a, NULL));
    assert_string_equal(arena_printf(a, "%s-%d", "n", 42), "n-42");
    int *numbers = arena_array(a, 10, sizeof *numbers);
    assert_int_equal(numbers[9], 0);
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_aligned_and_disjoint),
        cmocka_unit_test(reset_reuses_and_zeroes_again),
        cmocka_unit_test(text_is_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
