// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void first_error_wins(void **state) {
    (void)state;
    struct err e = {0};
    assert_false(err_set(&e, ERR_INPUT, "line %d", 7));
    err_set(&e, ERR_USAGE, "later");
    assert_int_equal(e.kind, ERR_INPUT);
    assert_string_equal(e.text, "line 7");
    assert_false(err_set(NULL, ERR_INPUT, "nobody listens"));
}

static void note_prepends_context(void **state) {
    (void)state;
    struct err e = {0};
    err_note(&e, "nothing yet");
    assert_string_equal(e.text, "");
    err_set(&e, ERR_INPUT, "bad value");
    err_note(&e, "%s:%d", "a.json", 3);
    assert_string_equal(e.text, "a.json:3: bad value");
    err_clear(&e);
    assert_int_equal(e.kind, ERR_NONE);
    assert_string_equal(e.text, "");
}

static void long_text_is_cut_not_overrun(void **state) {
    (void)state;
    struct err e = {0};
    char big[4096];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    err_set(&e, ERR_INPUT, "%s", big);
    err_note(&e, "%s", big);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
}

static void statuses_are_the_contract(void **state) {
    (void)state;
    const int expected[ERR_KIND_COUNT] = {0, 2, 3, 4, 130};
    for (int k = 0; k < ERR_KIND_COUNT; k++) {
        struct err e = {.kind = (enum err_kind)k};
        assert_int_equal(err_exit_status(&e), expected[k]);
    }
    assert_int_equal(err_exit_status(NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_error_wins),
        cmocka_unit_test(note_prepends_context),
        cmocka_unit_test(long_text_is_cut_not_overrun),
        cmocka_unit_test(statuses_are_the_contract),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
