// SPDX-License-Identifier: Apache-2.0
// Saved tensors against Megatron's published formulas and counted layers; docs/method.md
// §activations.
#include "base/json.h"
#include "cost/activation.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double gib = 1024.0 * 1024 * 1024;

static struct model megatron_gpt(uint64_t layers, uint64_t hidden, uint64_t heads) {
    return (struct model){.name = "gpt",
                          .architecture = "gpt2",
                          .layers = layers,
                          .hidden = hidden,
                          .ffn = 4 * hidden,
                          .heads = heads,
                          .kv_heads = heads,
                          .head_dim = hidden / heads,
                          .vocab = 51200,
                          .block_norms = 2,
                          .norm = NORM_LAYER,
                          .dropout = 0.1};
}

static struct recipe megatron_recipe(uint64_t seq, uint64_t micro_batch, uint64_t tp) {
    return (struct recipe){.stack = STACK_MEGATRON,
                           .seq = seq,
                           .micro_batch = micro_batch,
                           .tp = tp,
                           .cp = 1,
                           .pp = 1,
                           .attention = ATTENTION_MATH,
                           .compute_dtype = DTYPE_BF16};
}

static void near(double value, double expected, double tolerance, const char *what) {
    if (fabs(value - expected) > tolerance * fabs(expected))
        fail_msg("%s: %.8g, expected %.8g", what, value, expected);
}

// arXiv 2205.05198: s b h (34 + 5 a s / h), and its tensor- and sequence-parallel forms.
static void megatron_formula(void **state) {
    (void)state;
    struct model m = megatron_gpt(48, 6144, 64);
    double s = 2048, b = 4, h = 6144, a = 64, t = 8, sbh = s * b * h;
    struct recipe r = megatron_recipe(2048, 4, 1);
    near((double)activation_layer_kept_bytes(&m, &r, false), sbh * (34 + 5 * a * s / h), 1e-9,
         "no TP");
    r.recompute = RECOMPUTE_SELECTIVE_ATTENTION;
    near((double)activation_layer_kept_bytes(&m, &r, false), sbh * 34, 1e-9, "selective");
    r.recompute = RECOMPUTE_FULL;
    near((double)activation_layer_kept_bytes(&m, &r, false), sbh * 2, 1e-9, "full");
    r = megatron_recipe(2048, 4, 8);
    near((double)activation_layer_kept_bytes(&m, &r, false), sbh / t * (34 + 5 * a * s / h), 1e-9,
         "TP+SP");
    r.tp_without_sequence_parallel = true;
    near((double)activation_layer_kept_bytes(&m, &r, false),
         sbh * (10 + 24 / t + 5 * a * s / (h * t)), 1e-9, "TP");
    r.recompute = RECOMPUTE_FULL;
    near((double)activation_layer_kept_bytes(&m, &r, false), 2 * sbh, 1e-9, "TP full");
}

// Figures 1 and 7: activations of the first pipeline stage for the paper's four models.
static void megatron_figures(void **state) {
    (void)state;
    static const struct {
        uint64_t layers, hidden, heads, micro_batch, pipeline, interleave;
        double none_gib, selective_sp_gib, sp, selective, both, full;
    } rows[] = {{48, 6144, 64, 4, 1, 1, 59.25, 9.5625, 66.77, 49.37, 16.14, 7.59},
                {96, 12288, 96, 1, 8, 3, 66.84, 12.35, 61.96, 56.52, 18.48, 8.70},
                {105, 20480, 128, 1, 35, 3, 114.02, 23.08, 58.33, 61.90, 20.24, 9.52},
                {128, 25600, 160, 1, 64, 1, 131.25, 26.56, 58.33, 61.90, 20.24, 9.52}};
    for (size_t i = 0; i < 4; i++) {
        struct model m = megatron_gpt(rows[i].layers, rows[i].hidden, rows[i].heads);
        struct recipe tp = megatron_recipe(2048, rows[i].micro_batch, 8), sp = tp;
        tp.tp_without_sequence_parallel = true;
        double p = (double)rows[i].pipeline, chunks = (double)rows[i].interleave;
        double bubble = chunks > 1 ? 1 + (p - 1) / (p * chunks) : 1;
        double layers = (double)rows[i].layers * bubble;
        double base = (double)activation_layer_kept_bytes(&m, &tp, false);
        near(base * layers / gib, rows[i].none_gib, 2e-3, "figure 1 none");
        double percent_sp = 100 * (double)activation_layer_kept_bytes(&m, &sp, false) / base;
        tp.recompute = sp.recompute = RECOMPUTE_SELECTIVE_ATTENTION;
        double percent_selective = 100 * (double)activation_layer_kept_bytes(&m, &tp, false) / base;
        double both = (double)activation_layer_kept_bytes(&m, &sp, false);
        near(both * layers / gib, rows[i].selective_sp_gib, 2e-3, "figure 1 SP selective");
        tp.recompute = RECOMPUTE_FULL;
        double percent_full = 100 * (double)activation_layer_kept_bytes(&m, &tp, false) / base;
        near(percent_sp, rows[i].sp, 1e-3, "figure 7 SP");
        near(percent_selective, rows[i].selective, 1e-3, "figure 7 selective");
        near(100 * both / base, rows[i].both, 1e-3, "figure 7 both");
        near(percent_full, rows[i].full, 1e-3, "figure 7 full");
    }
}

static struct model llama_8b(void) {
    return (struct model){.name = "llama",
                          .architecture = "llama",
                          .layers = 32,
                          .hidden = 4096,
                          .ffn = 14336,
                          .heads = 32,
                          .kv_heads = 8,
                          .head_dim = 128,
                          .vocab = 128256,
                          .block_norms = 2,
                          .gated_mlp = true,
                          .norm = NORM_RMS};
}

static struct recipe one_token(void) {
    return (struct recipe){
        .seq = 1, .micro_batch = 1, .tp = 1, .cp = 1, .pp = 1, .compute_dtype = DTYPE_BF16};
}

// Transformer Engine's linear layers keep 8-bit inputs: two norms' outputs, down's input, and one
// more of the attention output, which flash attention keeps in 16.
static void transformer_engine_fp8(void **state) {
    (void)state;
    struct model m = llama_8b();
    struct recipe r = one_token();
    r.stack = STACK_MEGATRON;
    const double h = 4096, f = 14336, kv = 1024, lse = 4 * 32;
    double norms = 2 * 2 * h, qkv = 2 * (h + 2 * kv), gates = 2 * 2 * f, output = 2 * h;
    near((double)activation_layer_kept_bytes(&m, &r, false),
         norms + 2 * 2 * h + qkv + lse + output + gates + 2 * f, 1e-9, "bf16");
    r.precision = PRECISION_FP8;
    near((double)activation_layer_kept_bytes(&m, &r, false),
         norms + 2 * h + qkv + lse + output + h + gates + f, 1e-9, "fp8");
}

// Counted by hand for one token of Llama-3-8B, bytes.
static void llama_layer_by_hand(void **state) {
    (void)state;
    struct model m = llama_8b();
    struct recipe r = one_token();
    const double h = 4096, f = 14336, kv = 1024, lse = 4 * 32;
    double norms = 2 * (4 * h + 2 * h + 2 * h + 4);
    near((double)activation_layer_kept_bytes(&m, &r, false), norms + 4 * 2 * h + lse + 4 * 2 * f,
         1e-9, "eager");
    r.stack = STACK_COMPILED; // fused by hand: the activated gate is not kept
    near((double)activation_layer_kept_bytes(&m, &r, false), norms + 4 * 2 * h + lse + 3 * 2 * f,
         1e-9, "fused by hand");
    r.compile = true;
    double compiled = 2 * 2 * h + 2 * (2 * h + 2 * kv) + lse + 2 * 2 * f;
    near((double)activation_layer_kept_bytes(&m, &r, false), compiled, 1e-9, "compiled");
    r.recompute = RECOMPUTE_SELECTIVE_OP;
    near((double)activation_layer_kept_bytes(&m, &r, false), 3 * 2 * h + 2 * kv + lse + 2 * f, 1e-9,
         "compiled selective-op");
    near((double)activation_layer_full_bytes(&m, &r, false), compiled, 1e-9, "all of it");
    r.compile = false;
    near((double)activation_layer_kept_bytes(&m, &r, false), 4 * 2 * h + 2 * kv + lse + 2 * f, 1e-9,
         "eager selective-op");
    r.recompute = RECOMPUTE_FULL;
    near((double)activation_layer_kept_bytes(&m, &r, false), 2 * h, 1e-9, "full");
}

static void every_n_counts_layers(void **state) {
    (void)state;
    struct model m = llama_8b();
    struct model_unit blocks[] = {{.kind = UNIT_BLOCK, .repeat = 5},
                                  {.kind = UNIT_BLOCK, .repeat = 27}};
    m.units = blocks;
    m.unit_count = 2;
    struct recipe r = one_token();
    double stored = (double)activation_layer_kept_bytes(&m, &r, false), input = 2 * 4096;
    near((double)activation_blocks_bytes(&m, &r), 32 * stored, 1e-9, "none");
    r.recompute = RECOMPUTE_EVERY_N;
    r.recompute_every = 3; // layers 0, 3, ... 30: eleven of them
    near((double)activation_blocks_bytes(&m, &r), 11 * input + 21 * stored, 1e-9, "every third");
    r.recompute_every = 1;
    near((double)activation_blocks_bytes(&m, &r), 32 * input, 1e-9, "every one");
}

static void logits_by_loss(void **state) {
    (void)state;
    struct model m = llama_8b();
    struct recipe r = one_token();
    r.seq = 8192;
    double n = 8192.0 * 128256;
    uint64_t held, peak;
    activation_logits(&m, &r, &held, &peak);
    near((double)peak, 12 * n, 1e-9, "torch");
    near(4 * n / gib, 3.914, 1e-3, "one fp32 copy");
    r.loss = LOSS_FUSED;
    activation_logits(&m, &r, &held, &peak);
    near((double)peak, 4 * n, 1e-9, "fused");
    r.loss = LOSS_CHUNKED;
    activation_logits(&m, &r, &held, &peak);
    double gradients = 2.0 * 8192 * 4096 + 2.0 * 128256 * 4096;
    near((double)held, gradients, 1e-9, "chunked held");
    near((double)peak, gradients + 6 * n / 32 + 6.0 * 128256 * 4096, 1e-9, "chunked peak");
    r.loss = LOSS_TORCH;
    r.compile = true;
    activation_logits(&m, &r, &held, &peak);
    near((double)peak, 4 * n, 1e-9, "compiled");
    r.loss_eager = true;
    activation_logits(&m, &r, &held, &peak);
    near((double)peak, 12 * n, 1e-9, "compiled model, eager loss");
}

static void context_parallel_splits_tokens(void **state) {
    (void)state;
    struct model m = llama_8b();
    struct recipe r = one_token();
    r.seq = 65536;
    double whole = (double)activation_layer_kept_bytes(&m, &r, false);
    r.cp = 8;
    near((double)activation_layer_kept_bytes(&m, &r, false), whole / 8, 1e-9, "cp");
}

static uint64_t field(struct json_node o, const char *key) {
    uint64_t v = 0;
    assert_true(json_get_u64(o, key, true, &v, NULL));
    return v;
}

static const char *word(struct json_node o, const char *key) {
    const char *v = NULL;
    assert_true(json_get_string(o, key, true, &v, NULL));
    return v;
}

static double from_golden(struct json_node o) {
    double dropout = 0;
    assert_true(json_get_double(o, "dropout", true, &dropout, NULL));
    bool llama = strcmp(word(o, "arch"), "llama") == 0;
    struct model m = {.architecture = word(o, "arch"),
                      .layers = 1,
                      .hidden = field(o, "hidden"),
                      .ffn = field(o, "ffn"),
                      .heads = field(o, "heads"),
                      .kv_heads = field(o, "kv_heads"),
                      .block_norms = 2,
                      .gated_mlp = llama,
                      .norm = llama ? NORM_RMS : NORM_LAYER,
                      .dropout = dropout};
    m.head_dim = m.hidden / m.heads;
    struct recipe r = one_token();
    r.seq = field(o, "seq");
    r.attention = strcmp(word(o, "attention"), "math") == 0 ? ATTENTION_MATH : ATTENTION_FLASH;
    assert_true(dtype_find(word(o, "dtype"), &r.compute_dtype));
    return (double)activation_layer_kept_bytes(&m, &r, false) / (double)r.seq;
}

// What torch's saved-tensor hooks count in a block: tests/oracle/saved_tensors.py.
static void torch_saves_as_much(void **state) {
    (void)state;
    char path[4096];
    struct err e = {0};
    struct json_node cases;
    snprintf(path, sizeof path, "%s/tests/oracle/golden/saved_tensors.json",
             getenv("SHARDPLAN_SOURCE_ROOT"));
    struct json_doc *doc = json_read_file(path, &e);
    if (!doc)
        fail_msg("%s", e.text);
    assert_true(json_find(json_root(doc), "cases", &cases) && json_size(cases) >= 5);
    for (size_t i = 0; i < json_size(cases); i++) {
        double counted = 0;
        assert_true(json_get_double(json_at(cases, i), "bytes_per_token", true, &counted, NULL));
        near(from_golden(json_at(cases, i)), counted, 1e-9, "bytes per token");
    }
    json_destroy(doc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(megatron_formula),
        cmocka_unit_test(megatron_figures),
        cmocka_unit_test(llama_layer_by_hand),
        cmocka_unit_test(transformer_engine_fp8),
        cmocka_unit_test(every_n_counts_layers),
        cmocka_unit_test(logits_by_loss),
        cmocka_unit_test(context_parallel_splits_tokens),
        cmocka_unit_test(torch_saves_as_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
