// SPDX-License-Identifier: Apache-2.0
// accelerate YAML and torchtitan TOML.
#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "config_reading.h"

struct row {
    const char *text, *fields[10][2];
};

static const struct row rows[] = {
    {"compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n"
     "  zero_stage: 3\n  offload_optimizer_device: cpu\n  offload_param_device: cpu\n"
     "  zero3_init_flag: false\n  zero3_save_16bit_model: true\n"
     "  gradient_accumulation_steps: 4\n  gradient_clipping: 0.5\nmixed_precision: bf16\n"
     "num_processes: 8\n",
     {{"strategy", "zero3"},
      {"offload_optimizer", "cpu"},
      {"offload_param", "cpu"},
      {"zero_init", "false"},
      {"gather_16bit_on_save", "true"},
      {"grad_accum", "4"},
      {"clip", "0.5"},
      {"precision", "bf16-mixed"}}},
    // Parameter offload below stage 3 is dropped.
    {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n"
     "  offload_optimizer_device: cpu\n  offload_param_device: cpu\nmixed_precision: 'no'\n",
     {{"strategy", "zero2"},
      {"offload_optimizer", "cpu"},
      {"offload_param", "none"},
      {"precision", "fp32"}}},
    {"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
     "  fsdp_reshard_after_forward: true\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
     "  fsdp_cpu_ram_efficient_loading: true\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
     "  fsdp_offload_params: false\n  fsdp_activation_checkpointing: true\n"
     "mixed_precision: bf16\n",
     {{"strategy", "fsdp2"},
      {"wrap", "block"},
      {"cpu_ram_efficient_loading", "true"},
      {"recompute", "full"},
      {"reduce_dtype", "bf16"},
      {"no_sync", "true"},
      {"full_state_dict", "false"},
      {"precision", "bf16-mixed"}}},
    {"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
     "  fsdp_reshard_after_forward: false\n",
     {{"strategy", "fsdp2-noreshard"}, {"wrap", "model"}, {"precision", "fp32"}}},
    // Old files give the strategy as a digit; accelerate prefetches nothing by default.
    {"distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: 1\n"
     "  fsdp_offload_params: true\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"
     "  fsdp_min_num_params: 20000000\n  fsdp_use_orig_params: true\n",
     {{"strategy", "fsdp1"},
      {"offload_param", "cpu"},
      {"offload_optimizer", "cpu"},
      {"wrap", "size"},
      {"wrap_parameters", "20000000"},
      {"use_orig_params", "true"},
      {"backward_prefetch", "none"},
      {"full_state_dict", "true"}}},
    {"distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n"
     "  fsdp_backward_prefetch: BACKWARD_PRE\n",
     {{"strategy", "fsdp1-hybrid"}, {"backward_prefetch", "backward-pre"}}},
    {"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nparallelism_config:\n"
     "  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 4\n",
     {{"strategy", "hsdp"}, {"shard_group", "4"}}},
    {"distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 4\n",
     {{"strategy", "ddp"}, {"precision", "amp-bf16"}}},
    {"distributed_type: 'NO'\n", {{"strategy", "ddp"}, {"precision", "fp32"}}},
    {"# shardplan: recipe.seq=1024\n# shardplan: attention=math\ndistributed_type: MULTI_GPU\n",
     {{"seq", "1024"}, {"attention", "math"}}},
    // torchtitan
    {"[model]\nname = \"llama3\"\n\n[training]\nlocal_batch_size = 2\nseq_len = 8192  # tokens\n"
     "max_norm = 1.0\nmixed_precision_param = \"bfloat16\"\nmixed_precision_reduce = \"float32\"\n"
     "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 8\n"
     "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"2\"\n"
     "[compile]\nenable = true\n",
     {{"strategy", "hsdp"},
      {"shard_group", "8"},
      {"micro_batch", "2"},
      {"seq", "8192"},
      {"precision", "bf16-mixed"},
      {"reduce_dtype", "fp32"},
      {"recompute", "every-N"},
      {"recompute_every", "2"},
      {"compile", "true"},
      {"optimizer_fused", "true"}}},
    {"[parallelism]\nfsdp_reshard_after_forward = \"never\"\n[training]\nenable_cpu_offload = "
     "true\n",
     {{"strategy", "fsdp2-noreshard"}, {"offload_param", "cpu"}}},
    {"{\"fully_shard\": {\"reshard_after_forward\": 4, \"mp_policy\": {\"param_dtype\": "
     "\"bfloat16\", \"reduce_dtype\": \"float32\"}, \"offload_policy\": {\"pin_memory\": false}}}",
     {{"strategy", "fsdp2-reshard"},
      {"reshard_group", "4"},
      {"precision", "bf16-mixed"},
      {"reduce_dtype", "fp32"},
      {"offload_param", "cpu"},
      {"pin_memory", "false"}}},
    {"{\"fully_shard\": {}, \"mesh\": {\"replicate\": 2, \"shard\": 8}}",
     {{"strategy", "hsdp"}, {"shard_group", "8"}, {"precision", "fp32"}}},
};

static void test_fields(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct reading x = read_text(rows[i].text, false);
        if (!x.ok)
            fail_msg("%s\n%s", rows[i].text, x.e.text);
        for (size_t k = 0; k < 10 && rows[i].fields[k][0]; k++) {
            const char *got = field(&x, rows[i].fields[k][0]);
            if (strcmp(got, rows[i].fields[k][1]) != 0)
                fail_msg("%s\n%s = %s, not %s", rows[i].text, rows[i].fields[k][0], got,
                         rows[i].fields[k][1]);
        }
        arena_destroy(x.a);
    }
}

static const char *const refusals[][2] = {
    {"", "empty"},
    {"- a\n- b\n", "expected a map of accelerate settings"},
    {"a: [1\n", "did not find expected"},
    {"distributed_type: TPU\n", ":1 distributed_type: 'TPU' is not covered"},
    {"distributed_type: FSDP\nmixed_precison: bf16\n",
     ":2 mixed_precison: unknown key; did you mean 'mixed_precision'? (accelerate refuses it)"},
    {"distributed_type: FSDP\nmixed_precision: bf17\n", "expected no, fp16, bf16 or fp8"},
    {"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 3\n", "fsdp_version: expected 1 or 2"},
    {"distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HALF_SHARD\n",
     "expected FULL_SHARD"},
    {"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n  fsdp_sync_module_states: false\n",
     ":4 fsdp_config.fsdp_sync_module_states: accelerate refuses efficient loading"},
    {"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
     "  fsdp_reshard_after_forward: FULL_SHARD\n",
     "expected true or false with FSDP2"},
    {"distributed_type: FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: ALL\n",
     "expected TRANSFORMER_BASED_WRAP"},
    {"distributed_type: FSDP\nfsdp_config:\n  fsdp_state_dict_type: HALF\n",
     "expected FULL_STATE_DICT"},
    {"distributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: maybe\n",
     "expected true or false"},
    {"distributed_type: FSDP\nfsdp_config:\n  fsdp_backward_prefetch: SOON\n",
     "expected BACKWARD_PRE"},
    {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 5\n", "expected stage 0, 1"},
    {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
     "  offload_param_device: gpu\n",
     "unknown value 'gpu'"},
    {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: none_such.json\n",
     "none_such.json"},
    {"# shardplan: recipe.sek=1\ndistributed_type: FSDP\n", "did you mean 'recipe.seq'"},
    {"[training\nx = 1\n", ":1: not a TOML section"},
    {"[training]\nseq_len\n", ":2: expected key = value"},
    {"[training]\nmixed_precision_param = \"int9\"\n", "'int9' is not a type"},
    {"[activation_checkpoint]\nmode = \"half\"\n", "expected none, selective or full"},
    {"{\"fully_shard\": {\"reshard\": true}}", "reshard_after_forward"},
    {"{\"fully_shard\": {\"reshard_after_forward\": \"yes\"}}", "expected true, false or a whole"},
    {"{\"fully_shard\": []}", "expected an object of fully_shard's arguments"},
};

static void test_refusals(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct reading x = read_text(refusals[i][0], false);
        if (x.ok || strstr(x.e.text, refusals[i][1]) == NULL)
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
        {"distributed_type: FSDP\nfsdp_config:\n  fsdp_ofload_params: true\n", WARNING_UNKNOWN,
         "did you mean 'fsdp_offload_params'?"},
        {"distributed_type: FSDP\nfsdp_config: {}\n", WARNING_ASSUMED, "one unit"},
        {"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
         "  fsdp_backward_prefetch: BACKWARD_PRE\n",
         WARNING_INERT, "fsdp_backward_prefetch"},
        {"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_use_orig_params: true\n",
         WARNING_INERT, "fsdp_use_orig_params"},
        {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n"
         "  offload_param_device: cpu\n",
         WARNING_INERT, "no effect below stage 3"},
        {"[training]\nlocal_batch_sise = 2\n", WARNING_UNKNOWN, "training.local_batch_size"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct reading x = read_text(table[i].text, false);
        if (!x.ok || !warned(&x, table[i].kind, table[i].words))
            fail_msg("%s: no warning with '%s' %s", table[i].text, table[i].words, x.e.text);
        arena_destroy(x.a);
    }
}

static void test_points_to_a_deepspeed_file(void **state) {
    (void)state;
    char path[] = "/tmp/ds_inner_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    fputs("{\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 3e7}, \"bf16\": "
          "{\"enabled\": true}}",
          f);
    fclose(f);
    char text[256];
    snprintf(text, sizeof text,
             "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: %s\n"
             "  zero3_init_flag: false\n",
             path);
    struct reading x = read_text(text, false);
    if (!x.ok)
        fail_msg("%s", x.e.text);
    assert_string_equal(field(&x, "strategy"), "zero3");
    assert_string_equal(field(&x, "reduce_bucket_elements"), "30000000");
    assert_string_equal(field(&x, "precision"), "bf16-mixed");
    assert_string_equal(field(&x, "zero_init"), "false");
    arena_destroy(x.a);
    strcat(text, "mixed_precision: bf16\n");
    x = read_text(text, false);
    assert_false(x.ok);
    assert_non_null(strstr(x.e.text, "mixed_precision: accelerate refuses this key beside"));
    arena_destroy(x.a);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_points_to_a_deepspeed_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
