// SPDX-License-Identifier: Apache-2.0
// Inventories built by hand, without files: counts from the published configurations.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "describe/model.h"

static struct model build(const char *type, struct model fields, struct arena *a) {
    struct err e = {0};
    struct model m = {0};
    if (!model_architecture(&m, type, &e))
        fail_msg("%s", e.text);
    m.layers = fields.layers;
    m.hidden = fields.hidden;
    m.ffn = fields.ffn;
    m.heads = fields.heads;
    m.kv_heads = fields.kv_heads;
    m.vocab = fields.vocab;
    m.max_positions = fields.max_positions;
    m.experts = fields.experts;
    m.experts_per_token = fields.experts_per_token;
    if (!model_finish(&m, a, &e))
        fail_msg("%s", e.text);
    return m;
}

static void counts_llama(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct model m = build("llama",
                           (struct model){.layers = 32,
                                          .hidden = 4096,
                                          .ffn = 11008,
                                          .heads = 32,
                                          .vocab = 32000,
                                          .max_positions = 4096},
                           a);
    assert_int_equal(m.parameters, 6738415616);
    assert_int_equal(m.active_parameters, 6738415616);
    // 32 x (4 x 4096^2 + 3 x 4096 x 11008) + 32000 x 4096
    assert_int_equal(m.matmul_parameters, 6607077376);
    assert_int_equal(m.unit_count, 4);
    assert_int_equal(model_instances(&m), 35);
    assert_int_equal(model_unit_at(&m, 0)->kind, UNIT_EMBEDDING);
    assert_int_equal(model_unit_at(&m, 1)->kind, UNIT_BLOCK);
    assert_int_equal(model_unit_at(&m, 32)->kind, UNIT_BLOCK);
    assert_int_equal(model_unit_at(&m, 34)->kind, UNIT_HEAD);
    assert_null(model_unit_at(&m, 35));
    const struct model_unit *block = model_unit_at(&m, 1);
    assert_int_equal(block->parameters, 202383360);
    assert_string_equal(block->tensors[0].name, "self_attn.q_proj.weight");
    assert_string_equal(block->tensors[4].module, "mlp.gate_proj");
    assert_string_equal(block->tensors[8].name, "post_attention_layernorm.weight");
    arena_destroy(a);
}

static void counts_gpt2(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct model m = build("gpt2",
                           (struct model){.layers = 12,
                                          .hidden = 768,
                                          .ffn = 3072,
                                          .heads = 12,
                                          .vocab = 50257,
                                          .max_positions = 1024},
                           a);
    assert_int_equal(m.parameters, 124439808);
    // The head is tied: its matmul still runs.
    assert_int_equal(m.matmul_parameters, 12 * 12 * 768 * 768 + 50257 * 768);
    const struct tensor *c_attn = &model_unit_at(&m, 1)->tensors[2];
    assert_string_equal(c_attn->name, "attn.c_attn.weight");
    assert_true(c_attn->transposed);
    assert_int_equal(c_attn->rows, 768);
    assert_int_equal(c_attn->cols, 2304);
    struct err e = {0};
    assert_true(model_set_positions(&m, 2048, a, &e));
    assert_int_equal(m.parameters, 124439808 + 1024 * 768);
    arena_destroy(a);
}

static void counts_mixture(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct model m = build("mixtral",
                           (struct model){.layers = 32,
                                          .hidden = 4096,
                                          .ffn = 14336,
                                          .heads = 32,
                                          .kv_heads = 8,
                                          .vocab = 32000,
                                          .max_positions = 32768,
                                          .experts = 8,
                                          .experts_per_token = 2},
                           a);
    assert_int_equal(m.parameters, 46702792704);
    assert_int_equal(m.active_parameters, 46702792704 - 32ULL * 6 * 3 * 4096 * 14336);
    assert_true(model_unit_at(&m, 1)->moe);
    arena_destroy(a);
}

// What llm-foundry's benchmark tables print for MPT-125m at sequence lengths 2048 and 65536.
static void counts_mpt_with_positions(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct err e = {0};
    struct model m = {0};
    assert_true(model_architecture(&m, "mpt", &e));
    m.layers = 12, m.hidden = 768, m.ffn = 3072, m.heads = 12, m.vocab = 50368;
    m.max_positions = 2048;
    m.learned_positions = m.qkv_bias = m.out_bias = m.mlp_bias = m.norm_bias = true;
    assert_true(model_finish(&m, a, &e));
    assert_int_equal(m.parameters, 125311488);
    assert_true(model_set_positions(&m, 65536, a, &e));
    assert_int_equal(m.parameters, 174070272);
    arena_destroy(a);
}

static void refuse(struct model m, const char *words) {
    struct arena *a = arena_create();
    struct err e = {0};
    struct model before = m;
    assert_false(model_finish(&m, a, &e));
    assert_int_equal(e.kind, ERR_INPUT);
    if (!strstr(e.text, words))
        fail_msg("\"%s\" does not mention \"%s\"", e.text, words);
    assert_memory_equal(&m, &before, sizeof m);
    arena_destroy(a);
}

static void impossible_shapes_are_refused(void **state) {
    (void)state;
    struct model good = {.architecture = "llama",
                         .layers = 2,
                         .hidden = 64,
                         .ffn = 128,
                         .heads = 4,
                         .vocab = 1000,
                         .gated_mlp = true};
    struct model m = good;
    m.hidden = 66;
    refuse(m, "not a multiple");
    m = good, m.kv_heads = 3;
    refuse(m, "do not divide");
    m = good, m.layers = 0;
    refuse(m, "layers");
    m = good, m.vocab = UINT64_MAX;
    refuse(m, "vocabulary");
    m = good, m.experts = 4, m.experts_per_token = 5;
    refuse(m, "experts per token");
    m = good, m.architecture = "transformer-xl";
    refuse(m, "transformer-xl");
    m = good, m.learned_positions = true;
    refuse(m, "positions");
    m = good, m.architecture = "deepseek_v3";
    refuse(m, "kv_lora_rank");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_llama),
        cmocka_unit_test(counts_gpt2),
        cmocka_unit_test(counts_mixture),
        cmocka_unit_test(counts_mpt_with_positions),
        cmocka_unit_test(impossible_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
