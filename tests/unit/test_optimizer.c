// SPDX-License-Identifier: Apache-2.0
// States and Newton-Schulz work of the optimizers, tensor by tensor, against figures worked by
// hand.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cost/optimizer.h"
#include "cost/volume.h"
#include "plan/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Two blocks of one 4096 x 1024 matrix and a norm of 1024, and a table of 1000 x 1024.
static const struct tensor block[] = {
    {.name = "w", .module = "w", .role = TENSOR_LINEAR, .rows = 4096, .cols = 1024, .count = 1},
    {.name = "n", .module = "n", .role = TENSOR_NORM, .rows = 1024, .cols = 1, .count = 1}};
static const struct tensor table[] = {
    {.name = "e", .module = "e", .role = TENSOR_EMBEDDING, .rows = 1000, .cols = 1024, .count = 1}};
static const struct model_unit units[] = {
    {UNIT_EMBEDDING, "e", 1, false, table, 1, 1024000},
    {UNIT_BLOCK, "layers", 2, false, block, 2, 4194304 + 1024}};
static const struct model tiny = {
    .name = "tiny", .layers = 2, .units = units, .unit_count = 2, .parameters = 9414656};
static const double elements = 2 * (4194304.0 + 1024) + 1024000;

static struct recipe with(enum strategy s, enum optimizer o) {
    struct recipe r;
    recipe_defaults(s, &r);
    r.optimizer = o;
    r.state_dtype = DTYPE_FP32;
    r.world = r.shard_group = 8;
    r.replica_group = 1;
    return r;
}

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-12 * fabs(want)))
        fail_msg("%.15g instead of %.15g", got, want);
}

static void adam_and_sgd(void **state) {
    (void)state;
    struct recipe r = with(STRATEGY_DDP, OPTIMIZER_ADAMW);
    near(optimizer_state_bytes(&tiny, &r, 1), 8);
    r.optimizer = OPTIMIZER_SGD;
    assert_true(optimizer_state_bytes(&tiny, &r, 1) == 0);
}

// 2 B and two fp32 maxima per block of 256; the norm's 1024 elements stay two fp32 states.
static void eight_bits(void **state) {
    (void)state;
    struct recipe r = with(STRATEGY_DDP, OPTIMIZER_ADAMW8BIT);
    double bytes = 2 * (2 * (4194304.0 + 4 * 16384) + 8 * 1024) + 2 * (1024000.0 + 4 * 4000);
    near(optimizer_state_bytes(&tiny, &r, 1), bytes / elements);
    r = with(STRATEGY_ZERO2, OPTIMIZER_ADAMW8BIT); // one flat slice
    near(optimizer_state_bytes(&tiny, &r, 1), 2.03125);
}

// A row and a column each; the norm keeps its vector. FSDP2 keeps whole columns on every rank; flat
// slices have no rows.
static void adafactor(void **state) {
    (void)state;
    struct recipe r = with(STRATEGY_DDP, OPTIMIZER_ADAFACTOR);
    near(optimizer_state_bytes(&tiny, &r, 1),
         4 * (2 * (4096.0 + 1024 + 1024) + 1000 + 1024) / elements);
    r = with(STRATEGY_FSDP2, OPTIMIZER_ADAFACTOR);
    near(optimizer_state_bytes(&tiny, &r, 8),
         4 * (2 * (512.0 + 1024 + 128) + 125 + 1024) / (elements / 8));
    r = with(STRATEGY_ZERO3, OPTIMIZER_ADAFACTOR);
    near(optimizer_state_bytes(&tiny, &r, 8), 4);
}

static void muon_states(void **state) {
    (void)state;
    struct recipe r = with(STRATEGY_FSDP2, OPTIMIZER_MUON);
    near(optimizer_state_bytes(&tiny, &r, 8),
         (4 * 2 * 4194304.0 + 8 * (2 * 1024.0 + 1024000)) / elements);
    near(optimizer_muon_elements(&tiny, &r), 2 * 4194304.0);
}

// a = 1024, b = 4096: 2 (a a b + a a a + a b a) = 19.33e9 per iteration, five of them.
static void newton_schulz(void **state) {
    (void)state;
    near(optimizer_muon_flop(&block[0]), 96636764160.0);
    struct tensor turned = block[0];
    turned.rows = 1024;
    turned.cols = 4096;
    near(optimizer_muon_flop(&turned), 96636764160.0);
    struct recipe r = with(STRATEGY_FSDP2, OPTIMIZER_MUON);
    near(optimizer_muon_working_bytes(&tiny, &r), 2 * (2 * 4194304.0 + 2 * 1048576.0));
}

// ---- whole plans --------------------------------------------------------------------------------

struct fixture {
    struct arena *arena;
    struct model model;
    struct cluster cluster;
};

static double step_of(struct fixture *f, enum strategy s, enum optimizer o, struct volume *v) {
    struct recipe r;
    struct err e = {0};
    struct step_time t;
    recipe_defaults(s, &r);
    r.optimizer = o;
    assert_true(recipe_resolve(&r, &f->model, &f->cluster, &e));
    assert_true(volume_estimate(&f->model, &f->cluster, &r, v, &e));
    struct step_request q = {.model = &f->model, .cluster = &f->cluster, .recipe = &r};
    assert_true(step_simulate(&q, f->arena, &t, NULL, &e));
    return t.step_s;
}

static double gathered(const struct volume *v, const char *what) {
    for (size_t i = 0; i < v->transfer_count; i++)
        if (strcmp(v->transfers[i].what, what) == 0)
            return v->transfers[i].payload_bytes;
    return 0;
}

// FSDP gathers every matrix in 16 bits and each rank multiplies all; ZeRO-3 gathers fp32 momentum,
// multiplies its share and gathers 16-bit updates; ZeRO-2 needs neither; AdamW nothing at all.
static void muon_in_a_step(void **state) {
    (void)state;
    struct fixture f = {.arena = arena_create()};
    struct err e = {0};
    struct volume v;
    assert_true(model_load("llama-3.2-1b", f.arena, &f.model, &e));
    assert_true(cluster_load("dgx-h100", f.arena, &f.cluster, &e));
    struct recipe r = with(STRATEGY_FSDP2, OPTIMIZER_MUON);
    double matrices = optimizer_muon_elements(&f.model, &r);
    near(matrices, 16.0 * (2048.0 * 2048 * 2 + 2 * 512.0 * 2048 + 3 * 8192.0 * 2048));
    double fsdp_adam = step_of(&f, STRATEGY_FSDP2, OPTIMIZER_ADAMW, &v);
    assert_true(gathered(&v, "matrices for Muon") == 0);
    double fsdp = step_of(&f, STRATEGY_FSDP2, OPTIMIZER_MUON, &v);
    near(gathered(&v, "matrices for Muon"), 2 * matrices);
    assert_true(gathered(&v, "Muon's updates") == 0);
    double zero3_adam = step_of(&f, STRATEGY_ZERO3, OPTIMIZER_ADAMW, &v);
    double zero3 = step_of(&f, STRATEGY_ZERO3, OPTIMIZER_MUON, &v);
    near(gathered(&v, "matrices for Muon"), 4 * matrices);
    near(gathered(&v, "Muon's updates"), 2 * matrices);
    step_of(&f, STRATEGY_ZERO2, OPTIMIZER_MUON, &v);
    assert_true(gathered(&v, "matrices for Muon") == 0);
    // All products take at least their FLOPs at the bf16 peak.
    double flop = 0, peak = f.cluster.gpu.peak_flop_per_s[DTYPE_BF16].value;
    for (size_t i = 0; i < f.model.unit_count; i++)
        for (size_t k = 0; k < f.model.units[i].tensor_count; k++)
            if (optimizer_is_muon_matrix(&f.model.units[i], &f.model.units[i].tensors[k]))
                flop += optimizer_muon_flop(&f.model.units[i].tensors[k]) *
                        (double)f.model.units[i].repeat;
    assert_true(fsdp - fsdp_adam > flop / peak);
    assert_true(zero3 - zero3_adam > flop / peak / 8);
    assert_true(fsdp - fsdp_adam > 2 * (zero3 - zero3_adam) - 0.05);
    arena_destroy(f.arena);
}

static void muon_is_refused_with_a_reason(void **state) {
    (void)state;
    struct fixture f = {.arena = arena_create()};
    struct err e = {0};
    struct recipe r;
    assert_true(model_load("llama-3.2-1b", f.arena, &f.model, &e));
    assert_true(cluster_load("dgx-h100", f.arena, &f.cluster, &e));
    recipe_defaults(STRATEGY_FSDP1, &r);
    r.optimizer = OPTIMIZER_MUON;
    assert_false(recipe_resolve(&r, &f.model, &f.cluster, &e));
    assert_non_null(strstr(e.text, "flat slices"));
    err_clear(&e);
    recipe_defaults(STRATEGY_ZERO3, &r);
    r.optimizer = OPTIMIZER_MUON;
    r.offload_optimizer = OFFLOAD_CPU;
    assert_false(recipe_resolve(&r, &f.model, &f.cluster, &e));
    assert_non_null(strstr(e.text, "offload is not modelled"));
    arena_destroy(f.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adam_and_sgd),
        cmocka_unit_test(eight_bits),
        cmocka_unit_test(adafactor),
        cmocka_unit_test(muon_states),
        cmocka_unit_test(newton_schulz),
        cmocka_unit_test(muon_in_a_step),
        cmocka_unit_test(muon_is_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
