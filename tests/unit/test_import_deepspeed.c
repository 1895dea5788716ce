// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"
#include "describe/recipe_config.h"
#include "describe/recipe_fields.h"
#include "describe/recipe_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config_reading.h"

// Text of a configuration, then field = value pairs it must give.
struct row {
    const char *text, *fields[8][2];
};

static const struct row rows[] = {
    {"{}", {{"strategy", "ddp"}, {"precision", "fp32"}}},
    {"{\"zero_optimization\": {\"stage\": 3}, \"bf16\": {\"enabled\": true}}",
     {{"strategy", "zero3"},
      {"precision", "bf16-mixed"},
      {"reduce_bucket_elements", "500000000"},
      {"prefetch_bucket_elements", "50000000"},
      {"pin_memory", "true"},
      {"clip", "1"},
      {"zero_init", "true"}}},
    // "auto" as Hugging Face fills it for hidden 4096.
    {"{\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": \"auto\", "
     "\"stage3_prefetch_bucket_size\": \"auto\", \"stage3_param_persistence_threshold\": \"auto\"},"
     "\"bf16\": {\"enabled\": \"auto\"}, \"train_batch_size\": \"auto\", "
     "\"train_micro_batch_size_per_gpu\": \"auto\", \"gradient_clipping\": \"auto\"}",
     {{"reduce_bucket_elements", "16777216"},
      {"prefetch_bucket_elements", "15099494"},
      {"persistence_elements", "40960"},
      {"precision", "bf16-mixed"},
      {"micro_batch", "1"}}},
    // Numbers and booleans as strings, floats for counts.
    {"{\"zero_optimization\": {\"stage\": \"2\", \"reduce_bucket_size\": 5e7, \"overlap_comm\": "
     "\"true\", \"contiguous_gradients\": \"False\"}, \"fp16\": {\"enabled\": \"true\"}, "
     "\"gradient_clipping\": \"0.5\", \"gradient_accumulation_steps\": \"4\"}",
     {{"strategy", "zero2"},
      {"reduce_bucket_elements", "50000000"},
      {"overlap_comm", "on"},
      {"contiguous_gradients", "false"},
      {"precision", "fp16-mixed"},
      {"clip", "0.5"},
      {"grad_accum", "4"}}},
    {"{\"zero_optimization\": true}", {{"strategy", "zero1"}}},
    {"{\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"nvme\"}}}",
     {{"strategy", "zero2"}, {"offload_optimizer", "cpu"}}},
    // What one stage refuses another takes.
    {"{\"gradient_predivide_factor\": 2, \"prescale_gradients\": true, \"zero_optimization\": "
     "{\"stage\": 1}}",
     {{"strategy", "zero1"}}},
    {"{\"gradient_predivide_factor\": 2, \"zero_optimization\": {\"stage\": 3, "
     "\"allgather_bucket_size\": 499999999, \"reduce_scatter\": false}, \"optimizer\": {\"type\": "
     "\"Muon\"}}",
     {{"strategy", "zero3"}, {"optimizer", "muon"}, {"reduce_scatter", "false"}}},
    {"{\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true}}",
     {{"offload_optimizer", "cpu"}}},
    {"{\"zero_optimization\": {\"stage\": 2, \"offload_param\": {\"device\": \"cpu\"}}}",
     {{"offload_param", "none"}}},
    {"{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"nvme\", "
     "\"buffer_count\": 6, \"buffer_size\": 2e8}, \"offload_optimizer\": {\"device\": \"nvme\", "
     "\"pipeline_read\": true, \"buffer_count\": 12}}, \"aio\": {\"block_size\": 524288}}",
     {{"offload_param", "nvme"},
      {"offload_optimizer", "nvme"},
      {"nvme_buffer_count_param", "6"},
      {"nvme_buffer_elements_param", "200000000"},
      {"nvme_buffer_count_optimizer", "12"},
      {"pipeline_read", "true"},
      {"aio_block_bytes", "524288"}}},
    {"{\"zero_optimization\": {\"stage\": 3, \"zero_hpz_partition_size\": 8, "
     "\"zero_quantized_weights\": true}}",
     {{"strategy", "zero++"},
      {"shard_group", "8"},
      {"hpz", "true"},
      {"quantized_weights", "true"},
      {"quantized_gradients", "false"}}},
    {"{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 4}}",
     {{"strategy", "mics"}, {"shard_group", "4"}}},
    {"{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": -1}}", {{"strategy", "zero3"}}},
    {"{\"bfloat16\": {\"enabled\": true}, \"communication_data_type\": \"fp32\", "
     "\"data_types\": {\"grad_accum_dtype\": \"fp32\"}, \"zero_optimization\": {\"stage\": 1}}",
     {{"precision", "bf16-mixed"}, {"reduce_dtype", "fp32"}, {"grad_accum_dtype", "fp32"}}},
    {"{\"torch_autocast\": {\"enabled\": true, \"dtype\": \"bfloat16\"}, \"zero_optimization\": "
     "{\"stage\": 3}}",
     {{"precision", "amp-bf16"}}},
    {"{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 2}",
     {{"global_batch", "64"}, {"micro_batch", "2"}, {"grad_accum", "0"}}},
    {"{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": \"auto\"}}}",
     {{"optimizer", "sgd"}}},
    {"{\"zero_optimization\": {\"stage\": 3, \"stage3_gather_fp16_weights_on_model_save\": true}}",
     {{"gather_16bit_on_save", "true"}}},
    {"{\"zero_optimization\": {\"stage\": 3, \"stage3_model_persistence_threshold\": "
     "9223372036854775807}}",
     {{"model_persistence_elements", "9223372036854775807"}}},
};

static void test_fields(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct reading x = read_text(rows[i].text, false);
        if (!x.ok)
            fail_msg("%s\n%s", rows[i].text, x.e.text);
        for (size_t k = 0; k < 8 && rows[i].fields[k][0]; k++) {
            const char *got = field(&x, rows[i].fields[k][0]);
            if (strcmp(got, rows[i].fields[k][1]) != 0)
                fail_msg("%s\n%s = %s, not %s", rows[i].text, rows[i].fields[k][0], got,
                         rows[i].fields[k][1]);
        }
        arena_destroy(x.a);
    }
}

// Each refusal with the words that name it.
static const char *const refusals[][2] = {
    {"{\"zero_optimization\": {\"stage\": 4}}",
     ":1 $.zero_optimization.stage: expected stage 0, 1, 2 or 3"},
    {"{\"zero_optimization\": {\n\"stage\": 3,\n\"stage3_prefetch_bucket_sise\": 1}}",
     ":3 $.zero_optimization.stage3_prefetch_bucket_sise: unknown key; did you mean "
     "'stage3_prefetch_bucket_size'? (DeepSpeed refuses it)"},
    {"{\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}",
     "bf16 and fp16 exclude each other"},
    {"{\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": \"5e7\"}}",
     "expected a whole number of at least 0"},
    {"{\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\", "
     "\"ratio\": 0.5}}}",
     "DeepSpeed refuses a ratio below stage 3"},
    {"{\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": -5}}",
     "expected a whole number of at least 0"},
    {"{\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 1.5}}",
     "expected a whole number of at least 0"},
    {"{\"zero_optimization\": {\"stage\": 3, \"reduce_scatter\": \"maybe\"}}",
     "expected true or false"},
    {"{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"gpu\"}}}",
     "unknown value 'gpu'"},
    {"{\"zero_optimization\": {\"stage\": 3, \"offload_param\": \"cpu\"}}", "expected an object"},
    {"{\"zero_optimization\": {\"legacy_stage1\": true}}", "no longer supports legacy_stage1"},
    {"{\"gradient_clipping\": \"much\"}", "expected a number of at least 0"},
    {"{\"train_batch_size\": 0}", "expected a whole number of at least 1"},
    {"{\"bf16\": {\"enabled\": 3}}", "expected true or false"},
    {"{\"fp16\": {\"enabled\": true, \"lossscale\": 1}}", "did you mean 'loss_scale'?"},
    {"{\"communication_data_type\": \"fp99\"}", "'fp99' is not a type"},
    {"{\"communication_data_type\": 16}", "expected a string"},
    {"{\"torch_autocast\": {\"enabled\": true, \"dtype\": \"int4ish\"}}",
     "expected bfloat16 or float16"},
    {"{\"optimizer\": {\"type\": 5}}", "expected an optimizer's name"},
    {"{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 2.5}}",
     "expected a whole number of at least 1"},
    {"{\"_shardplan\": {\"recipe.sek\": \"1\"}}",
     "no such recipe field; did you mean 'recipe.seq'"},
    {"{\"_shardplan\": {\"seq\": 1}}", "expected the field's value as a string"},
    {"{\"_shardplan\": []}", "expected an object of recipe fields"},
};

static void test_refusals(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct reading x = read_text(refusals[i][0], false);
        assert_false(x.ok);
        if (strstr(x.e.text, refusals[i][1]) == NULL || strstr(x.e.text, "ds_config_") == NULL)
            fail_msg("%s\nexpected '%s' in '%s'", refusals[i][0], refusals[i][1], x.e.text);
        arena_destroy(x.a);
    }
}

static void test_warnings(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum warning_kind kind;
        const char *words;
    } table[] = {
        {"{\"zero_optimization\": {\"stage\": 2, \"zenflow\": {\"topk_ratio\": 0.1}}}",
         WARNING_ASSUMED, "not modelled"},
        {"{\"gradient_predivide_factor\": 2, \"zero_optimization\": {\"stage\": 2}}",
         WARNING_REFUSED, "must be 1"},
        {"{\"prescale_gradients\": true, \"zero_optimization\": {\"stage\": 3}}", WARNING_REFUSED,
         "must be false"},
        {"{\"zero_optimization\": {\"stage\": 1, \"allgather_bucket_size\": 499999999}}",
         WARNING_REFUSED, "must be even"},
        {"{\"optimizer\": {\"type\": \"Muon\"}, \"zero_optimization\": {\"stage\": 3}}",
         WARNING_REFUSED, "Muon needs it false"},
        {"{\"optimizer\": {\"type\": \"OneBitAdam\"}, \"zero_optimization\": {\"stage\": 1}}",
         WARNING_REFUSED, "can't run with ZeRO"},
        {"{\"train_microbatch_size_per_gpu\": 2}", WARNING_UNKNOWN,
         "did you mean 'train_micro_batch_size_per_gpu'?"},
        {"{\"zero_optimization\": {\"stage\": 2, \"allgather_bucket_size\": 5e8}}", WARNING_INERT,
         "zero_optimization.allgather_bucket_size"},
        {"{\"aio\": {\"thread_count\": 1}}", WARNING_INERT, "intra_op_parallelism"},
        {"{\"zero_optimization\": {\"stage\": 2, \"offload_param\": {\"device\": \"cpu\"}}}",
         WARNING_INERT, "no effect below stage 3"},
        {"{\"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": {\"device\": \"nvme\"}}}",
         WARNING_INERT, "takes nvme for cpu"},
        {"{\"zero_optimization\": {\"stage\": 2, \"stage3_max_live_parameters\": 1e9}}",
         WARNING_INERT, "read by ZeRO stage 3 only"},
        {"{\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true}}", WARNING_DEPRECATED,
         "zero_optimization.offload_optimizer"},
        {"{\"bfloat16\": {\"enabled\": true}}", WARNING_DEPRECATED, "bf16"},
        {"{\"activation_checkpointing\": {\"partition_activations\": true}}", WARNING_INERT,
         "deepspeed.checkpointing"},
        {"{\"optimizer\": {\"type\": \"Lion\"}}", WARNING_ASSUMED, "counted as AdamW"},
        {"{\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\", "
         "\"super_offload\": true}}}",
         WARNING_INERT, "stage 3 only"},
        {"{\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": \"auto\"}}", WARNING_INERT,
         "drops it"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct reading x = read_text(table[i].text, false);
        if (!x.ok || !warned(&x, table[i].kind, table[i].words))
            fail_msg("%s: no warning with '%s' %s", table[i].text, table[i].words, x.e.text);
        arena_destroy(x.a);
    }
    struct reading clean = read_text("{\"zero_optimization\": {\"stage\": 3, \"overlap_comm\": "
                                     "true}, \"bf16\": {\"enabled\": true}}",
                                     false);
    assert_true(clean.ok);
    assert_int_equal(clean.warnings.count, 0);
    arena_destroy(clean.a);
}

static void test_lenient_reader_goes_on(void **state) {
    (void)state;
    struct reading x = read_text("{\"zero_optimization\": {\"stage\": 3, \"stage3_foo\": 1, "
                                 "\"reduce_bucket_size\": 5e7}}",
                                 true);
    assert_true(x.ok);
    assert_true(warned(&x, WARNING_REFUSED, "stage3_foo"));
    assert_string_equal(field(&x, "reduce_bucket_elements"), "50000000");
    arena_destroy(x.a);
}

static void test_origins_name_line_and_key(void **state) {
    (void)state;
    struct reading x = read_text("{\n\"zero_optimization\": {\n\"stage\": 3,\n"
                                 "\"reduce_bucket_size\": 5e7}}",
                                 false);
    bool found = false;
    for (size_t i = 0; i < x.origins.count; i++)
        if (strcmp(x.origins.items[i].path, "recipe.reduce_bucket_elements") == 0) {
            assert_string_equal(x.origins.items[i].value, "50000000");
            found = strstr(x.origins.items[i].source, ":4 zero_optimization.reduce_bucket_size") !=
                    NULL;
        }
    assert_true(found);
    arena_destroy(x.a);
}

static void test_options_override_the_file(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct err e = {0};
    char path[] = "/tmp/ds_config_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    fputs("{\"zero_optimization\": {\"stage\": 3}, \"gradient_clipping\": 0.5, "
          "\"train_micro_batch_size_per_gpu\": 2, \"bf16\": {\"enabled\": true}}",
          f);
    fclose(f);
    struct recipe_request q = {.config = path, .micro_batch = 4, .given = {.micro_batch = true}};
    const char *sets[] = {"recipe.prefetch_bucket_elements=1e7"};
    q.set = (struct opt_texts){sets, 1};
    struct recipe_list list;
    if (!recipe_request_expand(&q, &model, a, &list, &e))
        fail_msg("%s", e.text);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.items[0].strategy, STRATEGY_ZERO3);
    assert_int_equal(list.items[0].micro_batch, 4);
    assert_true(list.items[0].clip == 0.5);
    assert_int_equal(list.items[0].prefetch_bucket_elements, 10000000);
    bool noted = false;
    for (size_t i = 0; i < list.origins[0].count; i++)
        noted |= strstr(list.origins[0].items[i].source, "--micro-batch (overrides /tmp") != NULL;
    assert_true(noted);
    unlink(path);
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_lenient_reader_goes_on),
        cmocka_unit_test(test_origins_name_line_and_key),
        cmocka_unit_test(test_options_override_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
