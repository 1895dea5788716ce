// SPDX-License-Identifier: Apache-2.0
#include "kernels/adam.h"

#include <math.h>
#include <string.h>

#include "kernels/adam_arith.h"
#include "kernels/adam_private.h"

struct adam_hyper adam_hyper_at(struct adam_settings s, uint64_t t) {
    return (struct adam_hyper){
        .beta1 = (float)s.beta1,
        .beta2 = (float)s.beta2,
        .one_minus_beta1 = (float)(1 - s.beta1),
        .one_minus_beta2 = (float)(1 - s.beta2),
        .epsilon = (float)s.epsilon,
        .step = (float)(s.lr / (1 - pow(s.beta1, (double)t))),
        .inverse_root = (float)(1 / sqrt(1 - pow(s.beta2, (double)t))),
        .decay = (float)(1 - s.lr * s.weight_decay),
    };
}

void adam_reference(const struct adam_arrays *a, const struct adam_hyper *h, size_t first,
                    size_t count) {
    for (size_t i = first; i < first + count; i++)
        adam_element(a, h, i);
}

static bool always(void) {
    return true;
}

#if defined(__x86_64__)
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
}
#endif

const struct adam_variant adam_variants[] = {
    {"reference", always, adam_reference, adam_rmw_scalar, adam_triad_scalar},
    {"scalar", always, adam_step_scalar, adam_rmw_scalar, adam_triad_scalar},
#if defined(__x86_64__)
    {"avx2", has_avx2, adam_step_avx2, adam_rmw_avx2, adam_triad_avx2},
    {"avx512", has_avx512, adam_step_avx512, adam_rmw_avx512, adam_triad_avx512},
#endif
    {.name = NULL},
};

const struct adam_variant *adam_find(const char *name) {
    for (const struct adam_variant *v = adam_variants; v->name != NULL; v++)
        if (strcmp(v->name, name) == 0 && v->supported())
            return v;
    return NULL;
}

const struct adam_variant *adam_best(void) {
    const struct adam_variant *best = &adam_variants[0];
    for (const struct adam_variant *v = adam_variants; v->name != NULL; v++)
        if (v->supported())
            best = v;
    return best;
}

double adam_bytes_per_parameter(bool gradients_bf16, bool copy_bf16) {
    const double states = 3 * 4 * 2;             // p, m, v read and written
    const double copied = copy_bf16 ? 2 * 2 : 0; // written, after its line was read
    return states + (gradients_bf16 ? 2 : 4) + copied;
}
