// SPDX-License-Identifier: Apache-2.0
#include "kernels/adam.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/stats.h"
#include "kernels/half.h"

#define N 4099 // odd: every variant has a tail

struct data {
    float p[N], m[N], v[N], g[N];
    uint16_t half[N], copy[N];
};

static void fill(struct data *d) {
    for (int i = 0; i < N; i++) {
        d->p[i] = (float)stats_random_normal(1, 0, (uint64_t)i);
        d->m[i] = 0.1f * (float)stats_random_normal(1, 1, (uint64_t)i);
        d->v[i] = (float)pow(stats_random_normal(1, 2, (uint64_t)i), 2);
        d->g[i] = (float)ldexp(stats_random_normal(1, 3, (uint64_t)i), -(i % 40));
        d->half[i] = half_to_bf16(d->g[i]);
        d->copy[i] = 0;
    }
    d->v[5] = 0; // zero moments and gradients divide by epsilon alone
    d->m[5] = d->g[5] = 0;
}

static struct adam_arrays arrays(struct data *d, bool bf16) {
    return (struct adam_arrays){.parameters = d->p,
                                .first = d->m,
                                .second = d->v,
                                .gradients = bf16 ? NULL : d->g,
                                .gradients_bf16 = bf16 ? d->half : NULL,
                                .copy_bf16 = bf16 ? d->copy : NULL};
}

static void variants_are_bit_equal(void **state) {
    struct data *want = malloc(sizeof(*want)), *got = malloc(sizeof(*got));
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (const struct adam_variant *v = adam_variants; v->name != NULL; v++) {
            if (!v->supported() || strcmp(v->name, "scalar") == 0)
                continue;
            fill(want);
            fill(got);
            struct adam_arrays a = arrays(want, bf16), b = arrays(got, bf16);
            for (uint64_t t = 1; t < 4; t++) {
                struct adam_hyper h =
                    adam_hyper_at((struct adam_settings){1e-3, 0.9, 0.999, 1e-8, 0.01}, t);
                adam_variants[0].step(&a, &h, 0, N);
                v->step(&b, &h, 0, 1001);
                v->step(&b, &h, 1001, N - 1001);
            }
            assert_memory_equal(want, got, sizeof(*want));
        }
    }
    free(want);
    free(got);
}

// The same step in double on the same float inputs: one ulp of the parameter plus 1e-6 of the
// update.
static void reference_is_close_to_double(void **state) {
    struct data *d = malloc(sizeof(*d)), *before = malloc(sizeof(*before));
    struct adam_hyper h = adam_hyper_at((struct adam_settings){1e-3, 0.9, 0.999, 1e-8, 0.01}, 7);
    (void)state;
    fill(d);
    fill(before);
    struct adam_arrays a = arrays(d, false);
    adam_variants[0].step(&a, &h, 0, N);
    for (int i = 0; i < N; i++) {
        double g = before->g[i];
        double old = (double)h.beta1 * before->m[i], new = (double)h.one_minus_beta1 *g;
        double v = (double)h.beta2 * before->v[i] + (double)h.one_minus_beta2 * g * g;
        double scale = (double)h.step / (sqrt(v) * (double)h.inverse_root + (double)h.epsilon);
        double p = (double)before->p[i] * (double)h.decay - scale * (old + new);
        double ulp = nextafterf(fabsf(d->p[i]), INFINITY) - fabsf(d->p[i]);
        // Where the two parts of m cancel, the size of the update is that of its parts.
        double update = scale * (fabs(old) + fabs(new));
        assert_true(fabs(p - d->p[i]) <= ulp + 1e-6 * update);
    }
    free(d);
    free(before);
}

// A first step with no decay moves every parameter by lr against its gradient's sign.
static void first_step_moves_by_lr(void **state) {
    float p = 1, m = 0, v = 0, g = 0.5f;
    struct adam_arrays a = {.parameters = &p, .first = &m, .second = &v, .gradients = &g};
    struct adam_hyper h = adam_hyper_at((struct adam_settings){0.1, 0.9, 0.999, 1e-8, 0}, 1);
    (void)state;
    adam_best()->step(&a, &h, 0, 1);
    assert_true(fabsf(p - 0.9f) < 1e-6f);
    assert_true(fabsf(m - 0.05f) < 1e-7f);
}

static void halves_round_to_nearest_even(void **state) {
    (void)state;
    assert_int_equal(half_to_bf16(1.0f), 0x3F80);
    assert_int_equal(half_to_bf16(1.00390625f), 0x3F80); // tie to even
    assert_int_equal(half_to_bf16(1.01171875f), 0x3F82);
    assert_true(isnan(half_from_bf16(half_to_bf16(NAN))));
    assert_int_equal(half_to_fp16(65504.0f), 0x7BFF);
    assert_int_equal(half_to_fp16(65520.0f), 0x7C00);
    assert_int_equal(half_to_fp16(5.9604645e-8f), 0x0001);
    for (uint32_t u = 0; u < 65536; u++) {
        float f = half_from_fp16((uint16_t)u);
        if (!isnan(f))
            assert_int_equal(half_to_fp16(f), u);
        f = half_from_bf16((uint16_t)u);
        if (!isnan(f))
            assert_int_equal(half_to_bf16(f), u);
    }
}

static void bytes_follow_the_arrays(void **state) {
    (void)state;
    assert_true(adam_bytes_per_parameter(false, false) == 28);
    assert_true(adam_bytes_per_parameter(true, false) == 26);
    assert_true(adam_bytes_per_parameter(true, true) == 30);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_are_bit_equal),  cmocka_unit_test(reference_is_close_to_double),
        cmocka_unit_test(first_step_moves_by_lr),  cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(bytes_follow_the_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
