// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/half.h"

#define ALL 65536

typedef void sum_fn(uint16_t *restrict to, const uint16_t *restrict from, size_t count);

static bool is_nan(uint16_t bits, bool fp16) {
    return (bits & 0x7FFF) > (fp16 ? 0x7C00 : 0x7F80);
}

// The reference: one element by the conversions alone.
static uint16_t sum_one(uint16_t a, uint16_t b, bool fp16) {
    return fp16 ? half_to_fp16(half_from_fp16(a) + half_from_fp16(b))
                : half_to_bf16(half_from_bf16(a) + half_from_bf16(b));
}

// Every value plus `addend`. Which of two NaNs decides the sign is the compiler's choice.
static void compare_all(sum_fn *sum, bool fp16, uint16_t addend) {
    uint16_t *to = malloc(ALL * sizeof(*to)), *from = malloc(ALL * sizeof(*from));
    for (size_t i = 0; i < ALL; i++) {
        to[i] = (uint16_t)i;
        from[i] = addend;
    }
    sum(to, from, ALL);
    for (size_t i = 0; i < ALL; i++) {
        uint16_t want = sum_one((uint16_t)i, addend, fp16);
        if (is_nan((uint16_t)i, fp16) && is_nan(addend, fp16))
            assert_true(is_nan(to[i], fp16));
        else if (to[i] != want)
            fail_msg("%s %04zx + %04x: %04x, wanted %04x", fp16 ? "fp16" : "bf16", i, addend, to[i],
                     want);
    }
    free(to);
    free(from);
}

static void every_value_rounds_alike(void **state) {
    // Zeros, ones, subnormals, halves of a last place, the largest, infinities and NaNs.
    static const uint16_t addends[] = {0x0000, 0x8000, 0x3C00, 0xBC00, 0x0001, 0x8001, 0x03FF,
                                       0x0400, 0x1000, 0x1001, 0x3555, 0x7BFF, 0xFBFF, 0x7C00,
                                       0xFC00, 0x7E00, 0xFD01, 0x3F80, 0x7F7F, 0xFF7F, 0x7F80,
                                       0xFF80, 0x7FC0, 0xFF81, 0x5A5A, 0x2E66};
    (void)state;
    for (const struct reduce_variant *v = reduce_variants; v->name != NULL; v++) {
        if (!v->supported()) {
            print_message("%s: not on this processor\n", v->name);
            continue;
        }
        for (size_t k = 0; k < sizeof(addends) / sizeof(*addends); k++) {
            compare_all(v->sum_bf16, false, addends[k]);
            compare_all(v->sum_fp16, true, addends[k]);
        }
    }
}

// 65504 + 16 is half way to what would be 2^16: to even is infinity; below it, it stays.
static void known_sums(void **state) {
    struct {
        uint16_t a, b, sum;
    } known[] = {{0x7BFF, 0x4C00, 0x7C00}, {0x7BFF, 0x4BFF, 0x7BFF}, {0x3C00, 0x1000, 0x3C00},
                 {0x3C01, 0x1000, 0x3C02}, {0x0001, 0x0001, 0x0002}, {0x03FF, 0x0001, 0x0400},
                 {0x7C00, 0xFC00, 0xFE00}, {0x8000, 0x8000, 0x8000}, {0x3C00, 0xBC00, 0x0000}};
    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        uint16_t to[11], from[11];
        for (size_t k = 0; k < 11; k++) {
            to[k] = known[i].a;
            from[k] = known[i].b;
        }
        reduce_sum(PATTERN_FP16, to, from, 11);
        for (size_t k = 0; k < 11; k++)
            assert_int_equal(to[k], known[i].sum);
    }
}

static void nothing_beyond_the_end(void **state) {
    (void)state;
    for (const struct reduce_variant *v = reduce_variants; v->name != NULL; v++) {
        for (size_t n = 0; v->supported() && n < 40; n++) {
            uint16_t to[41], from[41];
            for (size_t i = 0; i < 41; i++)
                to[i] = from[i] = 0x3C00;
            v->sum_fp16(to, from, n);
            for (size_t i = 0; i < 41; i++)
                assert_int_equal(to[i], i < n ? 0x4000 : 0x3C00);
            v->sum_bf16(from, to, n);
            for (size_t i = n; i < 41; i++)
                assert_int_equal(from[i], 0x3C00);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_rounds_alike),
        cmocka_unit_test(known_sums),
        cmocka_unit_test(nothing_beyond_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
