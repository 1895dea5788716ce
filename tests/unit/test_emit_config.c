// SPDX-License-Identifier: Apache-2.0
// A recipe written as a framework's configuration and read back is the same recipe.
#include "base/stats.h"
#include "describe/recipe_fields.h"
#include "render/emit_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct model model = {
    .name = "m", .layers = 32, .hidden = 4096, .max_positions = 8192};

static struct cluster test_cluster(void) {
    struct cluster c = {.name = "test", .nodes = 2, .gpus_per_node = 8, .gpus = 16};
    c.gpu.name = "GPU";
    c.gpu.peak_flop_per_s[DTYPE_FP8] = figure_known(1, PROVENANCE_SPEC, "test");
    return c;
}

static bool read_back(enum config_kind kind, const char *text, struct arena *a, struct recipe *out,
                      struct err *e) {
    struct cluster c = test_cluster();
    struct config_text t = {"text", text, strlen(text)};
    struct config_context x = {.arena = a, .model = &model};
    return recipe_parse_config(kind, &t, &x, out, e) && recipe_resolve(out, &model, &c, e);
}

// Random value of a field, as text; NULL leaves the field alone.
static const char *random_value(const struct recipe_field *f, uint64_t seed, uint64_t i,
                                struct arena *a) {
    static const char *const counts[] = {"1", "2", "4", "8", "4096", "20000000", "700000000"};
    static const char *const numbers[] = {"0", "0.25", "0.5", "0.75", "1"};
    static const char *const types[] = {"fp32", "bf16", "fp16"};
    uint64_t draw = stats_random_u64(seed, 2, i);
    bool often = strcmp(f->name, "tp") && strcmp(f->name, "cp") && strcmp(f->name, "pp") &&
                 strcmp(f->name, "ep") && strcmp(f->name, "global_batch");
    if (!often || stats_random_uniform(seed, 1, i) < 0.7)
        return NULL;
    switch (f->type) {
    case FIELD_BOOL:
        return draw % 2 ? "true" : "false";
    case FIELD_COUNT:
    case FIELD_BYTES:
        return counts[draw % 7];
    case FIELD_NUMBER:
        return numbers[draw % 5];
    case FIELD_TEXT:
        return strcmp(f->name, "lora_targets") == 0 ? "q_proj,v_proj" : NULL;
    case FIELD_CHOICE:
        return arena_strdup(a, f->names[draw % f->name_count]);
    case FIELD_DTYPE:
        return types[draw % 3];
    }
    return NULL;
}

static bool random_recipe(uint64_t seed, enum strategy s, struct arena *a, struct recipe *out) {
    struct cluster c = test_cluster();
    struct err e = {0};
    recipe_defaults(s, out);
    out->reshard_group = s == STRATEGY_FSDP2_RESHARD ? 4 : 0;
    for (size_t i = 0; i < recipe_field_count; i++) {
        const struct recipe_field *f = &recipe_fields[i];
        const char *value = f->derived || f->offset == offsetof(struct recipe, strategy)
                                ? NULL
                                : random_value(f, seed, i, a);
        if (value != NULL)
            assert_true(recipe_field_set(out, f->name, value, a, &e));
    }
    return recipe_resolve(out, &model, &c, &e);
}

static const char *const suffixes[CONFIG_KIND_COUNT] = {[CONFIG_DEEPSPEED] = ".json",
                                                        [CONFIG_ACCELERATE] = ".yaml",
                                                        [CONFIG_FSDP2] = ".json",
                                                        [CONFIG_TORCHTITAN] = ".toml"};

static void write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

// python3's json and tomllib, and PyYAML, on every file of the folder, which goes.
static void parse_with_stock_parsers(const char *folder) {
    char command[1024];
    const char *root = getenv("SHARDPLAN_SOURCE_ROOT");
    assert_non_null(root);
    snprintf(command, sizeof command, "python3 '%s/tests/unit/parse_configs.py' %s", root, folder);
    int parsed = system(command);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(parsed, 0);
}

static void test_thousand_random_recipes(void **state) {
    (void)state;
    char folder[] = "/tmp/emit_random_XXXXXX", path[256];
    assert_non_null(mkdtemp(folder));
    struct cluster c = test_cluster();
    struct arena *a = arena_create();
    size_t done = 0, by_kind[CONFIG_KIND_COUNT] = {0}, by_strategy[STRATEGY_COUNT] = {0};
    for (uint64_t seed = 1; done < 1000; seed++) {
        assert_true(seed < 200000);
        enum strategy s = (enum strategy)(stats_random_u64(seed, 3, 0) % STRATEGY_COUNT);
        enum config_kind kind =
            (enum config_kind)(stats_random_u64(seed, 3, 1) % CONFIG_KIND_COUNT);
        struct recipe r, back;
        struct err e = {0};
        const char *text = NULL;
        arena_reset(a);
        if (!random_recipe(seed, s, a, &r))
            continue;
        struct emit_config q = {kind, &model, &c, &r, a};
        if (!emit_config_text(&q, &text, &e)) {
            if (strstr(e.text, "this format can't state") == NULL &&
                strstr(e.text, "accelerate refuses") == NULL)
                fail_msg("seed %llu: %s", (unsigned long long)seed, e.text);
            continue;
        }
        snprintf(path, sizeof path, "%s/%llu%s", folder, (unsigned long long)seed, suffixes[kind]);
        write_file(path, text);
        if (!read_back(kind, text, a, &back, &e))
            fail_msg("seed %llu: %s\n%s", (unsigned long long)seed, e.text, text);
        const struct recipe_field *f = recipe_field_difference(&r, &back);
        if (f != NULL)
            fail_msg("seed %llu: %s differs\n%s", (unsigned long long)seed, f->name, text);
        assert_int_equal(r.param_dtype, back.param_dtype);
        assert_int_equal(r.master_dtype, back.master_dtype);
        assert_int_equal(r.state_dtype, back.state_dtype);
        assert_int_equal(r.compute_dtype, back.compute_dtype);
        done++;
        by_kind[kind]++;
        by_strategy[s]++;
    }
    for (int k = 0; k < CONFIG_KIND_COUNT; k++)
        assert_true(by_kind[k] > 50);
    for (int s = 0; s < STRATEGY_COUNT; s++)
        assert_true(by_strategy[s] > 10);
    arena_destroy(a);
    parse_with_stock_parsers(folder);
}

static const struct {
    enum config_kind kind;
    enum strategy s;
    const char *set[8][2];
    const char *text[10];
} native_rows[] = {
    {CONFIG_DEEPSPEED,
     STRATEGY_ZERO3,
     {{"offload_optimizer", "nvme"},
      {"offload_param", "cpu"},
      {"pipeline_read", "true"},
      {"nvme_buffer_count_optimizer", "12"},
      {"reduce_bucket_elements", "50000000"},
      {"micro_batch", "2"},
      {"grad_accum", "4"}},
     {"\"stage\": 3", "\"pipeline_read\": true", "\"buffer_count\": 12",
      "\"reduce_bucket_size\": 50000000", "\"train_batch_size\": 128",
      "\"train_micro_batch_size_per_gpu\": 2", "\"gradient_accumulation_steps\": 4",
      "\"block_size\": 1048576"}},
    {CONFIG_DEEPSPEED,
     STRATEGY_ZEROPP,
     {{"quantized_gradients", "false"}},
     {"\"zero_hpz_partition_size\": 8", "\"zero_quantized_weights\": true",
      "\"zero_quantized_gradients\": false"}},
    {CONFIG_DEEPSPEED, STRATEGY_MICS, {{"shard_group", "4"}}, {"\"mics_shard_size\": 4"}},
    {CONFIG_ACCELERATE,
     STRATEGY_HSDP,
     {{"recompute", "full"}, {"wrap", "block"}},
     {"fsdp_version: 2", "fsdp_activation_checkpointing: true",
      "parallelism_config_dp_shard_size: 8", "TRANSFORMER_BASED_WRAP", "num_processes: 16"}},
    {CONFIG_ACCELERATE,
     STRATEGY_ZERO2,
     {{"offload_optimizer", "cpu"}, {"precision", "fp16-mixed"}},
     {"zero_stage: 2", "offload_optimizer_device: cpu", "mixed_precision: fp16"}},
    {CONFIG_TORCHTITAN,
     STRATEGY_HSDP,
     {{"seq", "2048"}, {"micro_batch", "2"}, {"compile", "true"}, {"recompute", "full"}},
     {"data_parallel_replicate_degree = 2", "data_parallel_shard_degree = 8", "seq_len = 2048",
      "local_batch_size = 2", "global_batch_size = 32", "mode = \"full\"", "enable = true",
      "mixed_precision_param = \"bfloat16\""}},
    {CONFIG_FSDP2,
     STRATEGY_FSDP2_RESHARD,
     {{"reshard_group", "4"}, {"offload_param", "cpu"}},
     {"\"reshard_after_forward\": 4", "\"param_dtype\": \"bfloat16\"",
      "\"reduce_dtype\": \"float32\"", "\"pin_memory\": true"}},
};

// What a format has a key for is written with that key, not left beside it.
static void test_native_keys_carry_the_recipe(void **state) {
    (void)state;
    struct cluster c = test_cluster();
    for (size_t i = 0; i < sizeof native_rows / sizeof native_rows[0]; i++) {
        struct arena *a = arena_create();
        struct err e = {0};
        struct recipe r;
        const char *text = NULL;
        recipe_defaults(native_rows[i].s, &r);
        for (size_t k = 0; k < 8 && native_rows[i].set[k][0]; k++)
            assert_true(
                recipe_field_set(&r, native_rows[i].set[k][0], native_rows[i].set[k][1], a, &e));
        assert_true(recipe_resolve(&r, &model, &c, &e));
        struct emit_config q = {native_rows[i].kind, &model, &c, &r, a};
        assert_true(emit_config_text(&q, &text, &e));
        for (size_t k = 0; k < 10 && native_rows[i].text[k]; k++)
            if (strstr(text, native_rows[i].text[k]) == NULL)
                fail_msg("no '%s' in\n%s", native_rows[i].text[k], text);
        const char *beside = strstr(text, "shardplan");
        for (size_t k = 0;
             k < 8 && beside && native_rows[i].kind != CONFIG_FSDP2 && native_rows[i].set[k][0];
             k++) {
            const char *found = strstr(beside, native_rows[i].set[k][0]);
            if (found && strchr("\".", found[-1]) &&
                strchr("\"=", found[strlen(native_rows[i].set[k][0])]))
                fail_msg("'%s' was left beside the format\n%s", native_rows[i].set[k][0], text);
        }
        arena_destroy(a);
    }
}

static void test_refuses_what_a_format_cannot_state(void **state) {
    (void)state;
    static const struct {
        enum config_kind kind;
        enum strategy s;
        const char *text;
    } rows[] = {
        {CONFIG_DEEPSPEED, STRATEGY_FSDP1,
         "emit deepspeed: this format can't state fsdp1; use emit accelerate"},
        {CONFIG_ACCELERATE, STRATEGY_ZEROPP,
         "emit accelerate: this format can't state zero++; use emit deepspeed"},
        {CONFIG_TORCHTITAN, STRATEGY_FSDP2_RESHARD,
         "emit torchtitan: this format can't state fsdp2-reshard; use emit fsdp2"},
        {CONFIG_FSDP2, STRATEGY_DDP,
         "emit fsdp2: this format can't state ddp; use emit accelerate"},
    };
    struct cluster c = test_cluster();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct recipe r = {.strategy = rows[i].s, .framework = recipe_framework(rows[i].s)};
        struct emit_config q = {rows[i].kind, &model, &c, &r, NULL};
        struct err e = {0};
        const char *text = NULL;
        assert_false(emit_config_text(&q, &text, &e));
        assert_string_equal(e.text, rows[i].text);
    }
}

static void write_sample(const char *folder, enum config_kind kind, enum strategy s) {
    struct cluster c = test_cluster();
    struct arena *a = arena_create();
    char path[256];
    struct recipe r;
    struct err e = {0};
    const char *text = NULL;
    for (uint64_t seed = 1; !random_recipe(seed, s, a, &r); seed++)
        continue;
    struct emit_config q = {kind, &model, &c, &r, a};
    if (emit_config_text(&q, &text, &e)) {
        snprintf(path, sizeof path, "%s/%s-%s%s", folder, config_kind_names[kind],
                 strategy_names[s], suffixes[kind]);
        write_file(path, text);
    }
    arena_destroy(a);
}

static void test_stock_parsers_read_it(void **state) {
    (void)state;
    char folder[] = "/tmp/emit_config_XXXXXX";
    assert_non_null(mkdtemp(folder));
    for (int k = 0; k < CONFIG_KIND_COUNT; k++)
        for (int s = 0; s < STRATEGY_COUNT; s++)
            write_sample(folder, (enum config_kind)k, (enum strategy)s);
    parse_with_stock_parsers(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thousand_random_recipes),
        cmocka_unit_test(test_native_keys_carry_the_recipe),
        cmocka_unit_test(test_refuses_what_a_format_cannot_state),
        cmocka_unit_test(test_stock_parsers_read_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
