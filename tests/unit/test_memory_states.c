// SPDX-License-Identifier: Apache-2.0
// Model states and padding against the papers' tables; docs/method.md §memory.
#include "memory_case.h"

static struct arena *arena;

static int set_up(void **state) {
    (void)state;
    arena = arena_create();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    arena_destroy(arena);
    return 0;
}

static double states(double parameters, enum strategy s, enum precision p, uint64_t gpus) {
    struct model m = bulk_model(parameters, arena);
    struct cluster c = plain_cluster(gpus, 8, 80 * GIB, 0);
    struct recipe r = short_recipe(s, p);
    return (double)estimate(&m, &c, &r).steady_bytes;
}

// ZeRO, arXiv 1910.02054, Table 1. The paper truncates: one unit of the last printed digit.
static void zero_table_1(void **state) {
    (void)state;
    static const enum strategy stage[3] = {STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3};
    static const double sizes[3] = {7.5e9, 128e9, 1e12};
    static const struct {
        uint64_t gpus;
        double gb[9], unit[9];
    } rows[] = {
        {1, {120, 120, 120, 2048, 2048, 2048, 16000, 16000, 16000}, {1, 1, 1, 1, 1, 1, 1, 1, 1}},
        {4, {52.5, 41.3, 30, 896, 704, 512, 7000, 5500, 4000}, {.1, .1, 1, 1, 1, 1, 1, 1, 1}},
        {16, {35.6, 21.6, 7.5, 608, 368, 128, 4750, 2875, 1000}, {.1, .1, .1, 1, 1, 1, 1, 1, 1}},
        {64, {31.4, 16.6, 1.88, 536, 284, 32, 4187, 2218, 250}, {.1, .1, .01, 1, 1, 1, 1, 1, 1}},
        {256, {30.4, 15.4, .47, 518, 263, 8, 4046, 2054, 62.5}, {.1, .1, .01, 1, 1, 1, 1, 1, .1}},
        {1024, {30.1, 15.1, .12, 513, 257, 2, 4011, 2013, 15.6}, {.1, .1, .01, 1, 1, 1, 1, 1, .1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < 9; k++) {
            double got = states(sizes[k / 3], stage[k % 3], PRECISION_BF16_MIXED, rows[i].gpus);
            char what[48];
            snprintf(what, sizeof what, "N=%d column %zu", (int)rows[i].gpus, k);
            within(got / GB, rows[i].gb[k], rows[i].unit[k] * 1.0001, what);
        }
}

// Table 2, theory: the model that fills 32 GB of states on 64 ranks, times the MP degree.
static void zero_table_2(void **state) {
    (void)state;
    static const struct {
        enum strategy strategy;
        double billions[5], unit[5];
    } columns[] = {
        {STRATEGY_DDP, {2, 4, 8, 16, 32}, {1, 1, 1, 1, 1}},
        {STRATEGY_ZERO1, {7.6, 15.2, 30.4, 60.8, 121.6}, {.1, .2, .4, .8, 1.6}},
        {STRATEGY_ZERO2, {14.4, 28.8, 57.6, 115.2, 230.4}, {.1, .2, .4, .8, 1.6}},
        {STRATEGY_ZERO3, {128, 256, 500, 1000, 2000}, {1, 2, 100, 100, 100}},
    };
    for (size_t k = 0; k < 4; k++) {
        struct model m = bulk_model(1e9, arena);
        struct cluster c = plain_cluster(64, 8, 32 * GB, 0);
        struct recipe r = short_recipe(columns[k].strategy, PRECISION_BF16_MIXED);
        r.gradient_as_bucket_view = true;
        double per_parameter = (double)estimate(&m, &c, &r).steady_bytes / 1e9;
        for (size_t i = 0; i < 5; i++)
            within(32 / per_parameter * (double)(1 << i), columns[k].billions[i],
                   columns[k].unit[i], strategy_names[columns[k].strategy]);
    }
}

// Resident bytes per rank of Llama-3-8B on 8 ranks.
static void resident_8b(void **state) {
    (void)state;
    struct model m;
    struct err e = {0};
    if (!model_load("llama-3-8b", arena, &m, &e))
        fail_msg("%s", e.text);
    struct cluster c = plain_cluster(8, 8, 80 * GIB, 0);
    static const struct {
        const char *what;
        enum strategy strategy;
        enum precision precision;
        bool views, fp32_accumulation;
        double gb;
    } rows[] = {
        {"DDP fp32", STRATEGY_DDP, PRECISION_FP32, false, false, 160.6},
        {"DDP fp32, bucket views", STRATEGY_DDP, PRECISION_FP32, true, false, 128.5},
        {"16-bit copy and fp32 master", STRATEGY_DDP, PRECISION_BF16_MIXED, true, false, 128.5},
        {"stage 1", STRATEGY_ZERO1, PRECISION_BF16_MIXED, false, false, 44.2},
        {"stage 1, BF16_Optimizer", STRATEGY_ZERO1, PRECISION_BF16_MIXED, false, true, 76.3},
        {"stage 2", STRATEGY_ZERO2, PRECISION_BF16_MIXED, false, false, 30.1},
        {"stage 2 ignores fp32", STRATEGY_ZERO2, PRECISION_BF16_MIXED, false, true, 30.1},
        {"stage 3", STRATEGY_ZERO3, PRECISION_BF16_MIXED, false, false, 16.1},
        {"stage 3, fp32 accumulation", STRATEGY_ZERO3, PRECISION_BF16_MIXED, false, true, 18.1},
        {"FSDP2 fp32 shards", STRATEGY_FSDP2, PRECISION_BF16_MIXED, false, false, 16.1},
        {"FSDP1 fp32 shards", STRATEGY_FSDP1, PRECISION_BF16_MIXED, false, false, 16.1},
        {"FSDP2 pure bf16", STRATEGY_FSDP2, PRECISION_BF16_PURE, false, false, 8.03},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct recipe r = short_recipe(rows[i].strategy, rows[i].precision);
        r.gradient_as_bucket_view = rows[i].views;
        if (rows[i].fp32_accumulation) {
            r.grad_accum_dtype = DTYPE_FP32;
            r.grad_accum_dtype_given = true;
        }
        within((double)estimate(&m, &c, &r).steady_bytes / GB, rows[i].gb, 0.06, rows[i].what);
    }
    struct recipe r = short_recipe(STRATEGY_ZERO3, PRECISION_BF16_MIXED);
    struct memory z3 = estimate(&m, &c, &r);
    near((double)z3.phases[PHASE_STEP].classes_bytes[MEMORY_BUCKET], 1.0e9, 1e-9,
         "standing bucket");
}

static double shard_bytes(enum strategy s, uint64_t rows, uint64_t cols, uint64_t gpus) {
    struct model m = bulk_model(1000, arena);
    struct tensor t = {.name = "w", .module = "m", .rows = rows, .cols = cols, .count = 1};
    struct model_unit u = m.units[0];
    u.tensors = &t;
    u.parameters = rows * cols;
    m.units = &u;
    m.parameters = rows * cols;
    struct cluster c = plain_cluster(gpus, 8, 80 * GIB, 0);
    struct recipe r = short_recipe(s, PRECISION_FP32);
    return (double)estimate(&m, &c, &r).classes_bytes[MEMORY_PARAMS];
}

static void padding_is_exact(void **state) {
    (void)state;
    // FSDP2 pads dim 0: a [3, h] parameter on 8 ranks stores one row on each.
    assert_true(shard_bytes(STRATEGY_FSDP2, 3, 4096, 8) == 4096 * 4);
    assert_true(shard_bytes(STRATEGY_FSDP2, 17, 10, 8) == 3 * 10 * 4);
    // ZeRO-3 pads every parameter's numel; FSDP1 the flat unit.
    assert_true(shard_bytes(STRATEGY_ZERO3, 3, 11, 8) == 5 * 4);
    assert_true(shard_bytes(STRATEGY_FSDP1, 3, 11, 8) == 5 * 4);
    // ZeRO-1/2 pads the flat group to 2N; params stay whole.
    assert_true(shard_bytes(STRATEGY_ZERO1, 3, 11, 8) == 48 * 4);
    assert_true(shard_bytes(STRATEGY_DDP, 3, 11, 8) == 33 * 4);
}

// arXiv 2205.05198 Figure 1: parameters and optimizer, 18 B per parameter over TP x PP.
static void megatron_states(void **state) {
    (void)state;
    static const struct {
        double layers, hidden;
        uint64_t tp, pp;
        double gib;
    } rows[] = {{48, 6144, 8, 1, 45.5625},
                {96, 12288, 8, 8, 45.5625},
                {105, 20480, 8, 35, 31.64},
                {128, 25600, 8, 64, 32.96}};
    for (size_t i = 0; i < 4; i++) {
        struct model m = bulk_model(12 * rows[i].hidden * rows[i].hidden / 1000 * 1000, arena);
        struct model_unit block = m.units[0];
        block.repeat = m.layers = (uint64_t)rows[i].layers;
        m.units = &block;
        m.parameters *= block.repeat;
        struct cluster c = plain_cluster(rows[i].tp * rows[i].pp, 8, 80 * GIB, 0);
        struct recipe r = short_recipe(STRATEGY_DDP, PRECISION_BF16_MIXED);
        r.stack = STACK_MEGATRON;
        struct err e = {0};
        struct memory out;
        assert_true(recipe_resolve(&r, &m, &c, &e));
        r.tp = rows[i].tp;
        r.pp = rows[i].pp;
        assert_true(memory_estimate(&m, &c, &r, &out, &e));
        near((double)out.steady_bytes / GIB, rows[i].gib, 1e-3, "figure 1");
    }
    // The distributed optimizer: 6 + 12 / d bytes per parameter.
    struct model m = bulk_model(8e9, arena);
    struct cluster c = plain_cluster(8, 8, 80 * GIB, 0);
    struct recipe r = short_recipe(STRATEGY_ZERO1, PRECISION_BF16_MIXED);
    r.stack = STACK_MEGATRON;
    near((double)estimate(&m, &c, &r).steady_bytes, 8e9 * (6 + 12.0 / 8), 1e-6,
         "distributed optimizer");
}

static void optimizers(void **state) {
    (void)state;
    struct model m = bulk_model(1e9, arena);
    struct cluster c = plain_cluster(1, 8, 80 * GIB, 0);
    struct recipe r = short_recipe(STRATEGY_ZERO2, PRECISION_BF16_MIXED);
    r.optimizer = OPTIMIZER_ADAMW8BIT;
    near((double)estimate(&m, &c, &r).classes_bytes[MEMORY_OPTIMIZER], 2.03125e9, 1e-6, "8-bit");
    r = short_recipe(STRATEGY_ZERO2, PRECISION_BF16_MIXED);
    r.optimizer = OPTIMIZER_ADAMW_BF16;
    near((double)estimate(&m, &c, &r).classes_bytes[MEMORY_OPTIMIZER], 4e9, 1e-6, "bf16 states");
    r = short_recipe(STRATEGY_ZERO2, PRECISION_BF16_MIXED);
    r.optimizer = OPTIMIZER_SGD;
    assert_int_equal(estimate(&m, &c, &r).classes_bytes[MEMORY_OPTIMIZER], 0);
}

// Frozen weights: whole on every rank under ZeRO-2, sharded under ZeRO-3 and FSDP.
static void frozen_parameters(void **state) {
    (void)state;
    struct model m = bulk_model(8e9, arena);
    struct cluster c = plain_cluster(8, 8, 80 * GIB, 0);
    struct recipe r = short_recipe(STRATEGY_ZERO2, PRECISION_BF16_MIXED);
    r.frozen_fraction = 0.9;
    near((double)estimate(&m, &c, &r).classes_bytes[MEMORY_PARAMS], 16e9, 1e-6, "replicated");
    near((double)estimate(&m, &c, &r).classes_bytes[MEMORY_MASTER], 0.1e9 * 4, 1e-6, "master");
    r = short_recipe(STRATEGY_ZERO3, PRECISION_BF16_MIXED);
    r.frozen_fraction = 0.9;
    near((double)estimate(&m, &c, &r).classes_bytes[MEMORY_PARAMS], 2e9, 1e-6, "sharded");
    near((double)estimate(&m, &c, &r).classes_bytes[MEMORY_OPTIMIZER], 0.1e9 * 8, 1e-6, "states");
    r = short_recipe(STRATEGY_FSDP2, PRECISION_BF16_MIXED);
    r.lora_rank = 16;
    r.base_4bit = true;
    double adapters = 16 * (8e6 + 1000);
    near((double)estimate(&m, &c, &r).classes_bytes[MEMORY_PARAMS],
         8e9 * 0.5158691 / 8 + adapters * 4 / 8, 1e-5, "QLoRA shards");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_table_1),      cmocka_unit_test(zero_table_2),
        cmocka_unit_test(resident_8b),       cmocka_unit_test(padding_is_exact),
        cmocka_unit_test(megatron_states),   cmocka_unit_test(optimizers),
        cmocka_unit_test(frozen_parameters),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
