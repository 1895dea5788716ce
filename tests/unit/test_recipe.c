// SPDX-License-Identifier: Apache-2.0
#include "describe/recipe.h"
#include "describe/version.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static const struct tensor block_tensors[] = {
    {.module = "attn.q_proj", .role = TENSOR_LINEAR, .rows = 64, .cols = 64, .count = 1},
    {.module = "attn.v_proj", .role = TENSOR_LINEAR, .rows = 32, .cols = 64, .count = 1},
    {.module = "mlp.up_proj", .role = TENSOR_LINEAR, .rows = 128, .cols = 64, .count = 1},
    {.module = "norm", .role = TENSOR_NORM, .rows = 64, .cols = 1, .count = 1},
};
static const struct model_unit units[] = {
    {UNIT_BLOCK, "layers", 4, false, block_tensors, 4, 64 * 64 + 32 * 64 + 128 * 64 + 64},
};
static const struct model model = {.name = "tiny",
                                   .layers = 4,
                                   .hidden = 64,
                                   .max_positions = 2048,
                                   .units = units,
                                   .unit_count = 1,
                                   .parameters = 57600};

static struct cluster cluster_of(uint64_t nodes, uint64_t per_node) {
    struct cluster c = {.name = "test", .nodes = nodes, .gpus_per_node = per_node};
    c.gpus = nodes * per_node;
    c.gpu.name = "Test GPU";
    for (int t = 0; t < DTYPE_COUNT; t++)
        c.gpu.peak_flop_per_s[t] = figure_unknown();
    return c;
}

static struct recipe resolved(enum strategy s, enum precision p) {
    struct recipe r;
    struct err e = {0};
    struct cluster c = cluster_of(2, 8);
    recipe_defaults(s, &r);
    r.precision = p;
    if (!recipe_resolve(&r, &model, &c, &e))
        fail_msg("%s: %s", strategy_names[s], e.text);
    return r;
}

static void refused(struct recipe r, struct cluster c, const char *text) {
    struct err e = {0};
    struct recipe before = r;
    assert_false(recipe_resolve(&r, &model, &c, &e));
    if (strstr(e.text, text) == NULL)
        fail_msg("expected '%s' in '%s'", text, e.text);
    assert_int_equal(e.kind, ERR_USAGE);
    assert_memory_equal(&r, &before, sizeof r); // outputs only on success
}

static void test_every_default_resolves(void **state) {
    (void)state;
    struct cluster c = cluster_of(2, 8);
    for (int s = 0; s < STRATEGY_COUNT; s++) {
        struct recipe r;
        struct err e = {0};
        recipe_defaults((enum strategy)s, &r);
        r.reshard_group = 4;
        if (!recipe_resolve(&r, &model, &c, &e))
            fail_msg("%s: %s", strategy_names[s], e.text);
        assert_int_equal(r.world, 16);
        assert_int_equal(r.shard_group * r.replica_group, 16);
        assert_int_equal(r.global_batch, 16);
        assert_int_equal(r.seq, 2048);
    }
}

// Bytes per parameter element of states: params + grads + master + Adam (docs/method.md §defaults).
static double state_bytes(const struct recipe *r) {
    return dtype_bytes(r->param_dtype) + dtype_bytes(r->grad_dtype) +
           (r->has_master ? dtype_bytes(r->master_dtype) : 0) + 2 * dtype_bytes(r->state_dtype);
}

static void test_types(void **state) {
    (void)state;
    const struct {
        enum strategy s;
        enum precision p;
        double bytes;
        enum dtype gather, reduce;
    } rows[] = {
        {STRATEGY_DDP, PRECISION_FP32, 16, DTYPE_FP32, DTYPE_FP32},
        {STRATEGY_DDP, PRECISION_BF16_MIXED, 16, DTYPE_BF16, DTYPE_BF16},
        {STRATEGY_DDP, PRECISION_BF16_PURE, 8, DTYPE_BF16, DTYPE_BF16},
        {STRATEGY_ZERO1, PRECISION_BF16_MIXED, 16, DTYPE_BF16, DTYPE_BF16},
        {STRATEGY_ZERO3, PRECISION_FP16_MIXED, 16, DTYPE_FP16, DTYPE_FP16},
        {STRATEGY_ZERO3, PRECISION_BF16_PURE, 10, DTYPE_BF16, DTYPE_BF16},
        {STRATEGY_ZERO3, PRECISION_AMP_BF16, 16, DTYPE_BF16, DTYPE_BF16},
        {STRATEGY_FSDP1, PRECISION_BF16_MIXED, 16, DTYPE_BF16, DTYPE_FP32},
        {STRATEGY_FSDP2, PRECISION_BF16_PURE, 8, DTYPE_BF16, DTYPE_FP32},
        {STRATEGY_FSDP2, PRECISION_AMP_BF16, 16, DTYPE_FP32, DTYPE_FP32},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct recipe r = resolved(rows[i].s, rows[i].p);
        assert_true(state_bytes(&r) == rows[i].bytes);
        assert_int_equal(recipe_gather_dtype(&r), rows[i].gather);
        assert_int_equal(r.reduce_dtype, rows[i].reduce);
    }
}

static void test_groups(void **state) {
    (void)state;
    struct recipe r = resolved(STRATEGY_HSDP, PRECISION_BF16_MIXED);
    assert_int_equal(r.shard_group, 8);
    assert_int_equal(r.replica_group, 2);
    r = resolved(STRATEGY_ZERO3, PRECISION_BF16_MIXED);
    assert_int_equal(r.shard_group, 16);
    r = resolved(STRATEGY_DDP, PRECISION_BF16_MIXED);
    assert_int_equal(r.replica_group, 16);
    assert_true(recipe_overlaps(
        &(struct recipe){.strategy = STRATEGY_ZERO3, .framework = FRAMEWORK_DEEPSPEED}));
    assert_false(recipe_overlaps(
        &(struct recipe){.strategy = STRATEGY_ZERO2, .framework = FRAMEWORK_DEEPSPEED}));
}

static void test_refusals(void **state) {
    (void)state;
    struct cluster c = cluster_of(2, 8);
    struct recipe r;
#define REFUSED(strategy, text, ...)                                                               \
    recipe_defaults(strategy, &r);                                                                 \
    __VA_ARGS__;                                                                                   \
    refused(r, c, text)
    REFUSED(STRATEGY_HSDP, "hsdp: shard group 5 does not divide 16 GPUs", r.shard_group = 5);
    REFUSED(STRATEGY_ZERO2, "zero2: parameter offload needs ZeRO stage 3",
            r.offload_param = OFFLOAD_CPU);
    REFUSED(STRATEGY_ZERO1, "zero1: NVMe optimizer offload needs ZeRO stage 3",
            r.offload_optimizer = OFFLOAD_NVME);
    REFUSED(STRATEGY_ZEROPP, "zero++: hpZ makes its secondary copy on the device of offload_param",
            r.offload_optimizer = r.offload_param = OFFLOAD_NVME);
    REFUSED(STRATEGY_FSDP2, "fsdp2: FSDP can't offload to NVMe",
            r.offload_optimizer = OFFLOAD_NVME);
    REFUSED(STRATEGY_DDP, "ddp: offload is not offered", r.offload_optimizer = OFFLOAD_CPU);
    REFUSED(STRATEGY_ZERO3, "precision fp8: Test GPU has no fp8", r.precision = PRECISION_FP8);
    REFUSED(STRATEGY_ZERO3, "pipeline engine takes ZeRO stage 1", r.pp = 2);
    REFUSED(STRATEGY_ZERO3, "--ep 2: the model has no experts", r.ep = 2);
    REFUSED(STRATEGY_ZERO3, "= 32 sequences, but the global batch is 64", r.micro_batch = 2,
            r.global_batch = 64);
    REFUSED(STRATEGY_ZERO3, "global batch 40 is not a multiple of micro batch x GPUs = 16",
            r.grad_accum = 0, r.global_batch = 40);
    REFUSED(STRATEGY_FSDP2_RESHARD, "fsdp2-reshard=3: K must divide", r.reshard_group = 3);
}

static void test_batch_is_derived(void **state) {
    (void)state;
    struct cluster c = cluster_of(2, 8);
    struct err e = {0};
    struct recipe r;
    recipe_defaults(STRATEGY_ZERO3, &r);
    r.global_batch = 128;
    r.grad_accum = 0;
    r.micro_batch = 2;
    assert_true(recipe_resolve(&r, &model, &c, &e));
    assert_int_equal(r.grad_accum, 4);
    r.micro_batch = 0;
    assert_true(recipe_resolve(&r, &model, &c, &e));
    assert_int_equal(r.micro_batch, 2);
}

static void test_strategy_names(void **state) {
    (void)state;
    enum strategy s = STRATEGY_COUNT;
    uint64_t k = 0;
    struct err e = {0};
    assert_true(recipe_strategy_parse("ZERO++", &s, &k, &e) && s == STRATEGY_ZEROPP);
    assert_true(recipe_strategy_parse("zeropp", &s, &k, &e) && s == STRATEGY_ZEROPP);
    assert_true(recipe_strategy_parse("fsdp2-reshard=8", &s, &k, &e) && k == 8);
    assert_false(recipe_strategy_parse("zero4", &s, &k, &e));
    assert_non_null(strstr(e.text, "unknown strategy 'zero4'; did you mean 'zero"));
    err_clear(&e);
    assert_false(recipe_strategy_parse("fsdp2-reshard", &s, &k, &e));
    assert_string_equal(e.text, "strategy fsdp2-reshard needs its group: fsdp2-reshard=K");
}

static void test_lora_counts(void **state) {
    (void)state;
    struct recipe r = {.lora_rank = 8};
    assert_int_equal(recipe_trainable(&r, &model), 4 * 8 * (128 + 96 + 192));
    assert_int_equal(recipe_frozen(&r, &model), model.parameters);
    r.lora_targets = "q_proj,attn.v_proj";
    assert_int_equal(recipe_trainable(&r, &model), 4 * 8 * (128 + 96));
    r.lora_rank = 0;
    r.frozen_fraction = 0.25;
    assert_int_equal(recipe_trainable(&r, &model), model.parameters * 3 / 4);
}

static void test_origins_say_what_was_overridden(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct recipe_origins o = {0};
    recipe_note(&o, a, "recipe.seq", "4096", "ds.json:3");
    recipe_note(&o, a, "recipe.seq", "8192", "--seq");
    assert_int_equal(o.count, 1);
    assert_string_equal(o.items[0].value, "8192");
    assert_string_equal(o.items[0].source, "--seq (overrides ds.json:3)");
    arena_destroy(a);
}

static void test_versions(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct warnings w = {0};
    struct err e = {0};
    assert_true(version_warn("deepspeed-0.19.6", a, &w, &e));
    assert_true(version_warn("torch-2.9.1+cu130", a, &w, &e));
    assert_int_equal(w.count, 0);
    assert_true(version_warn("deepspeed-0.3.16", a, &w, &e));
    assert_int_equal(w.count, 3);
    assert_non_null(strstr(w.items[1].text, "4.5 x reduce_bucket_size"));
    assert_false(version_warn("megatron-1", a, &w, &e));
    assert_non_null(strstr(e.text, "expected deepspeed-X.Y.Z or torch-X.Y"));
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_default_resolves),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_batch_is_derived),
        cmocka_unit_test(test_strategy_names),
        cmocka_unit_test(test_lora_counts),
        cmocka_unit_test(test_origins_say_what_was_overridden),
        cmocka_unit_test(test_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
