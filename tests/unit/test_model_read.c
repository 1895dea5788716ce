// SPDX-License-Identifier: Apache-2.0
// config.json in every shape, what is refused and with which words, and the size shorthand.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/units.h"
#include "describe/model.h"

static char *write_temporary(const char *text, struct arena *a) {
    char name[] = "/tmp/shardplan-model-XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return arena_strdup(a, name);
}

static struct model read_text(const char *text, struct arena *a) {
    struct err e = {0};
    struct model m;
    char *path = write_temporary(text, a);
    if (!model_load(path, a, &m, &e))
        fail_msg("%s", e.text);
    unlink(path);
    return m;
}

#define LLAMA                                                                                      \
    "\"num_hidden_layers\": 2, \"hidden_size\": 64, \"intermediate_size\": 128,\n"                 \
    "\"num_attention_heads\": 4, \"vocab_size\": 1000"

static void nested_text_model(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct model m = read_text("{\"model_type\": \"llava\", \"tie_word_embeddings\": true,\n"
                               "\"text_config\": {\"model_type\": \"llama\", " LLAMA "}}",
                               a);
    assert_string_equal(m.architecture, "llama");
    assert_true(m.tied_embeddings);
    // 1000 x 64 + 2 x (4 x 64^2 + 3 x 64 x 128 + 2 x 64) + 64
    assert_int_equal(m.parameters, 64000 + 2 * (16384 + 24576 + 128) + 64);
    arena_destroy(a);
}

static void old_key_names(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct model m = read_text("{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 64,\n"
                               "\"n_head\": 4, \"n_inner\": null, \"vocab_size\": 1000,\n"
                               "\"n_positions\": 128, \"resid_pdrop\": 0.1}",
                               a);
    assert_int_equal(m.ffn, 256);
    assert_int_equal(m.max_positions, 128);
    assert_float_equal(m.dropout, 0.1, 1e-12);
    // 1000 x 64 + 128 x 64 + 2 x (12 x 64^2 + 13 x 64) + 2 x 64
    assert_int_equal(m.parameters, 64000 + 8192 + 2 * (49152 + 832) + 128);
    arena_destroy(a);
}

static void experts_under_three_names(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct model m = read_text("{\"model_type\": \"mixtral\", " LLAMA
                               ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2}",
                               a);
    assert_int_equal(m.moe_ffn, 128);
    m = read_text("{\"model_type\": \"qwen3_moe\", " LLAMA ", \"num_experts\": 4,\n"
                  "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "
                  "\"mlp_only_layers\": [0]}",
                  a);
    assert_int_equal(m.dense_layers, 1);
    assert_int_equal(m.unit_count, 5);
    assert_false(m.units[1].moe);
    assert_true(m.units[2].moe);
    m = read_text("{\"model_type\": \"deepseek_v2\", " LLAMA ", \"n_routed_experts\": 4,\n"
                  "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32,\n"
                  "\"n_shared_experts\": 2, \"first_k_dense_replace\": 1, \"q_lora_rank\": null,\n"
                  "\"kv_lora_rank\": 16, \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 4,\n"
                  "\"v_head_dim\": 8}",
                  a);
    assert_int_equal(m.shared_ffn, 64);
    assert_int_equal(m.experts, 4);
    arena_destroy(a);
}

static void windows(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct model m =
        read_text("{\"model_type\": \"mistral\", " LLAMA ", \"sliding_window\": 32}", a);
    assert_int_equal(m.sliding_window, 32);
    assert_int_equal(m.sliding_every, 0);
    m = read_text("{\"model_type\": \"qwen2\", " LLAMA
                  ", \"sliding_window\": 32, \"use_sliding_window\": false}",
                  a);
    assert_int_equal(m.sliding_window, 0);
    m = read_text("{\"model_type\": \"gemma3_text\", " LLAMA
                  ", \"head_dim\": 16, \"sliding_window\": 32, \"sliding_window_pattern\": 6}",
                  a);
    assert_int_equal(m.sliding_every, 6);
    assert_true(m.post_norms && m.qk_norm);
    arena_destroy(a);
}

static void unknown_types_are_said_to_be_assumed(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct model m = read_text("{\"model_type\": \"internlm9\", " LLAMA "}", a);
    assert_string_equal(m.architecture, "llama");
    assert_non_null(strstr(m.source, "assumed"));
    assert_non_null(strstr(m.source, "internlm9"));
    arena_destroy(a);
}

static void folder_and_shorthand(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct err e = {0};
    struct model m;
    char dir[] = "/tmp/shardplan-folder-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char *path = arena_printf(a, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"model_type\": \"llama\", " LLAMA "}", f);
    fclose(f);
    if (!model_load(dir, a, &m, &e))
        fail_msg("%s", e.text);
    assert_string_equal(m.name, strrchr(dir, '/') + 1);
    unlink(path);
    rmdir(dir);
    static const struct {
        const char *spec;
        double billions;
    } sizes[] = {{"7B", 7}, {"13b", 13}, {"70B", 70}, {"1.3B", 1.3}, {"350M", 0.35}, {"175B", 175}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (!model_load(sizes[i].spec, a, &m, &e))
            fail_msg("%s", e.text);
        assert_float_equal((double)m.parameters / (sizes[i].billions * UNITS_GIGA), 1.0, 0.06);
        assert_non_null(strstr(m.source, "assumed"));
    }
    arena_destroy(a);
}

static void refuse(const char *text, const char *words) {
    struct arena *a = arena_create();
    struct err e = {0};
    struct model m;
    char *path = write_temporary(text, a);
    assert_false(model_load(path, a, &m, &e));
    assert_int_equal(e.kind, ERR_INPUT);
    if (strncmp(e.text, path, strlen(path)) != 0 || strcmp(e.text + strlen(path), words) != 0)
        fail_msg("\"%s\" is not <path>%s", e.text, words);
    unlink(path);
    arena_destroy(a);
}

static void bad_configs_are_refused(void **state) {
    (void)state;
    refuse("[]", ":1 $: expected an object");
    refuse("{\"hidden_size\": 64}", ":1 $: 'model_type' is missing");
    refuse("{\"model_type\": \"t5\", \"is_encoder_decoder\": true}",
           ":1 $: t5 is an encoder-decoder; only decoders can be planned");
    refuse("{\n\"model_type\": \"bert\", " LLAMA "}",
           ":1 $: model_type \"bert\" is not one shardplan can count");
    refuse("{\"model_type\": \"llama\", " LLAMA ",\n\"n_layer\": 3}",
           ":3 $.n_layer: 3 contradicts \"num_hidden_layers\": 2");
    refuse("{\"model_type\": \"llama\",\n\"hidden_size\": -64}",
           ":2 $.hidden_size: expected a whole number that is not negative, got -64");
    refuse("{\"model_type\": \"llama\",\n\"hidden_size\": 1e30}",
           ":2 $.hidden_size: the number does not fit 64 bits");
    refuse("{\"model_type\": \"llama\",\n\"hidden_size\": 1099511627776}",
           ":2 $.hidden_size: 1099511627776 is more than any model has (limit 268435456)");
    refuse("{\"model_type\": \"llama\",\n\"hidden_size\": 64.5}",
           ":2 $.hidden_size: expected a whole number that is not negative, got 64.5");
    refuse("{\"model_type\": \"llama\", " LLAMA ",\n\"attention_dropout\": 1.5}",
           ":3 $.attention_dropout: a dropout probability is at least 0 and below 1");
    refuse("{\"model_type\": \"llama\", " LLAMA ",\n\"torch_dtype\": \"float17\"}",
           ":3 $.torch_dtype: expected a tensor type such as \"bfloat16\"");
    refuse("{\"model_type\": \"llama\", " LLAMA ",\n\"_shardplan\": {\"parameters\": 5}}",
           " $._shardplan.parameters: states 5 parameters, the shape has 210240; remove the key if "
           "the shape was changed");
    refuse("{\"model_type\": \"qwen3_moe\", " LLAMA ", \"num_experts\": 4,\n"
           "\"num_experts_per_tok\": 2, \"decoder_sparse_step\": 2}",
           ":3 $.decoder_sparse_step: experts in every 2th layer are not supported");
    refuse("{\"model_type\": \"llama\", \"vocab_size\": 1", ":1: a ',' or '}' is missing");
}

static void missing_fields_are_named(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct err e = {0};
    struct model m;
    char *path = write_temporary("{\"model_type\": \"llama\", \"num_hidden_layers\": 2,"
                                 "\"hidden_size\": 64}",
                                 a);
    assert_false(model_load(path, a, &m, &e));
    assert_non_null(strstr(e.text, "attention heads is missing or zero"));
    unlink(path);
    err_clear(&e);
    assert_false(model_load("./no-such-config.json", a, &m, &e));
    assert_string_equal(e.text, "./no-such-config.json: no such file");
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_text_model),
        cmocka_unit_test(old_key_names),
        cmocka_unit_test(experts_under_three_names),
        cmocka_unit_test(windows),
        cmocka_unit_test(unknown_types_are_said_to_be_assumed),
        cmocka_unit_test(folder_and_shorthand),
        cmocka_unit_test(bad_configs_are_refused),
        cmocka_unit_test(missing_fields_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
