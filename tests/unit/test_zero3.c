// SPDX-License-Identifier: Apache-2.0
// Golden vectors of the ZeRO-3 coordinator's rules; docs/method.md §zero3.
#include "cost/zero3.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

struct decoder {
    uint64_t layers, hidden, ffn, vocab;
    bool tied;
};

static struct tensor tensor(const char *module, enum tensor_role role, uint64_t rows,
                            uint64_t cols) {
    return (struct tensor){
        .name = "weight", .module = module, .role = role, .rows = rows, .cols = cols, .count = 1};
}

// A Llama-shaped decoder with full-width keys and values, registered as Hugging Face does.
static struct model decoder_model(const struct decoder *d, struct arena *a) {
    uint64_t h = d->hidden, f = d->ffn, v = d->vocab;
    struct tensor block[] = {
        tensor("self_attn.q_proj", TENSOR_LINEAR, h, h),
        tensor("self_attn.k_proj", TENSOR_LINEAR, h, h),
        tensor("self_attn.v_proj", TENSOR_LINEAR, h, h),
        tensor("self_attn.o_proj", TENSOR_LINEAR, h, h),
        tensor("mlp.gate_proj", TENSOR_LINEAR, f, h),
        tensor("mlp.up_proj", TENSOR_LINEAR, f, h),
        tensor("mlp.down_proj", TENSOR_LINEAR, h, f),
        tensor("input_layernorm", TENSOR_NORM, h, 1),
        tensor("post_attention_layernorm", TENSOR_NORM, h, 1),
    };
    struct tensor outer[] = {tensor("embed_tokens", TENSOR_EMBEDDING, v, h),
                             tensor("norm", TENSOR_NORM, h, 1),
                             tensor("lm_head", TENSOR_HEAD, v, h)};
    struct tensor *tensors = arena_array(a, 12, sizeof *tensors);
    for (size_t i = 0; i < 9; i++)
        tensors[i] = block[i];
    for (size_t i = 0; i < 3; i++)
        tensors[9 + i] = outer[i];
    struct model_unit *units = arena_array(a, 4, sizeof *units);
    units[0] = (struct model_unit){.kind = UNIT_EMBEDDING, .repeat = 1, .tensors = &tensors[9]};
    units[1] = (struct model_unit){.kind = UNIT_BLOCK, .repeat = d->layers, .tensors = &tensors[0]};
    units[2] = (struct model_unit){.kind = UNIT_FINAL_NORM, .repeat = 1, .tensors = &tensors[10]};
    units[3] = (struct model_unit){.kind = UNIT_HEAD, .repeat = 1, .tensors = &tensors[11]};
    for (size_t i = 0; i < 4; i++)
        units[i].tensor_count = i == 1 ? 9 : 1;
    return (struct model){.name = "decoder",
                          .layers = d->layers,
                          .hidden = h,
                          .tied_embeddings = d->tied,
                          .units = units,
                          .unit_count = d->tied ? 3 : 4,
                          .parameters = d->layers * (4 * h * h + 3 * h * f + 2 * h) +
                                        (d->tied ? 1 : 2) * v * h + h};
}

static struct recipe recipe_of(double live, double reuse, double bucket, double persistence,
                               bool recompute) {
    return (struct recipe){.max_live_elements = (uint64_t)live,
                           .max_reuse_elements = (uint64_t)reuse,
                           .prefetch_bucket_elements = (uint64_t)bucket,
                           .persistence_elements = (uint64_t)persistence,
                           .model_persistence_elements = UINT64_MAX / 2,
                           .recompute = recompute ? RECOMPUTE_FULL : RECOMPUTE_NONE};
}

static struct zero3_traffic run(const struct decoder *d, const struct recipe *r) {
    struct arena *a = arena_create();
    struct model m = decoder_model(d, a);
    struct zero3_traffic out;
    struct err e = {0};
    assert_true(zero3_simulate(&m, r, a, &out, &e));
    arena_destroy(a);
    return out;
}

static void near_fraction(double value, double expected, double tolerance, const char *what) {
    if (fabs(value - expected) > tolerance * expected)
        fail_msg("%s: %.6g, expected %.6g", what, value, expected);
}

static const struct decoder seven = {32, 4096, 11008, 32000, false};

static void golden_7b(void **state) {
    (void)state;
    static const struct {
        bool recompute;
        double live, reuse, bucket, persistence, peak, forward, backward, calls;
    } rows[] = {
        {0, 1e9, 1e9, 5e7, 1e5, 1.126e9, 6.783e9, 5.707e9, 394},
        {0, 1e9, 0, 5e7, 1e5, 1.126e9, 6.783e9, 5.707e9, 394},
        {0, 1e9, 1e9, .9 * 4096 * 4096, 40960, 1.126e9, 6.783e9, 5.707e9, 422},
        {0, 5e8, 1e9, 5e7, 1e5, 0.626e9, 6.738e9, 6.236e9, 306},
        {0, 3e9, 1e9, 5e7, 1e5, 3.122e9, 6.783e9, 3.729e9, 212},
        {0, 1e8, 0, 5e7, 1e5, 0.221e9, 6.738e9, 6.738e9, 322},
        {0, 1e9, 1e9, 0, 1e5, 0.502e9, 6.738e9, 6.236e9, 439},
        {0, 1e9, 0, 0, 1e5, 0.131e9, 6.738e9, 6.738e9, 452},
        {0, 1e9, 1e10, 5e7, 1e5, 5.033e9, 6.738e9, 1.705e9, 257},
        {1, 1e9, 1e9, 5e7, 1e5, 1.126e9, 6.805e9, 5.730e9, 314},
        {1, 1e9, 0, 0, 1e5, 0.131e9, 6.738e9, 13.214e9, 676},
        {1, 1e8, 0, 5e7, 1e5, 0.221e9, 6.738e9, 10.328e9, 449},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct recipe r = recipe_of(rows[i].live, rows[i].reuse, rows[i].bucket,
                                    rows[i].persistence, rows[i].recompute);
        struct zero3_traffic t = run(&seven, &r);
        char what[32];
        snprintf(what, sizeof what, "row %zu", i);
        near_fraction((double)t.peak_live_elements, rows[i].peak, 0.01, what);
        near_fraction((double)t.forward_elements, rows[i].forward, 0.01, what);
        near_fraction((double)t.backward_elements, rows[i].backward, 0.01, what);
        near_fraction((double)t.calls, rows[i].calls, 0.01, what);
    }
}

static void golden_other_sizes(void **state) {
    (void)state;
    struct recipe r = recipe_of(1e9, 1e9, 5e7, 1e5, true);
    struct decoder seventy = {80, 8192, 28672, 32000, false};
    struct zero3_traffic t = run(&seventy, &r);
    double psi = 80 * (4 * 8192.0 * 8192 + 3 * 8192.0 * 28672) + 2 * 32000.0 * 8192;
    near_fraction((double)t.peak_live_elements, 1.235e9, 0.01, "70B peak");
    near_fraction((double)(t.forward_elements + t.backward_elements) / psi, 1.997, 0.01, "70B sum");
    near_fraction((double)t.calls, 1123, 0.01, "70B calls");
    r.recompute = RECOMPUTE_NONE;
    struct decoder small = {24, 2048, 5632, 32000, false};
    t = run(&small, &r);
    psi = 24 * (4 * 2048.0 * 2048 + 3 * 2048.0 * 5632) + 2 * 32000.0 * 2048;
    near_fraction((double)t.forward_elements / psi, 1.008, 0.01, "1.36B forward");
    near_fraction((double)t.backward_elements / psi, 0.266, 0.01, "1.36B backward");
    struct decoder tiny = {24, 1024, 2816, 32000, false};
    t = run(&tiny, &r);
    psi = 24 * (4 * 1024.0 * 1024 + 3 * 1024.0 * 2816) + 2 * 32000.0 * 1024;
    near_fraction((double)t.forward_elements / psi, 1.0, 0.01, "0.37B forward");
    assert_int_equal(t.backward_elements, 0);
}

// A tied table is fetched for the look-up, for the head and for the look-up's backward.
static void tied_table_is_fetched_three_times(void **state) {
    (void)state;
    struct decoder d = seven;
    d.tied = true;
    struct recipe r = recipe_of(1e9, 0, 0, 1e5, false);
    struct zero3_traffic t = run(&d, &r);
    double blocks = 32 * (4 * 4096.0 * 4096 + 3 * 4096.0 * 11008), table = 32000 * 4096.0;
    assert_true(fabs((double)t.forward_elements - (blocks + 2 * table)) < 1);
    assert_true(fabs((double)t.backward_elements - (blocks + 2 * table)) < 1);
    r.max_reuse_elements = 1000 * 1000; // head forward and backward follow each other
    t = run(&d, &r);
    assert_true(fabs((double)t.backward_elements - (blocks + table)) < 1);
}

// Gathers of one steady micro-step counted in DeepSpeed 0.19.6 with two CPU ranks (transformers'
// Llama; tests/oracle/deepspeed_calls.py): calls, elements, and persistent parameters.
static void as_deepspeed_runs(void **state) {
    (void)state;
    static const struct {
        bool tied;
        double live, reuse, bucket;
        uint64_t calls, elements, persistent;
    } rows[] = {
        {false, 6e4, 0, 8000, 14, 222432, 7}, {false, 6e4, 5e4, 8000, 14, 222432, 7},
        {false, 6e4, 0, 0, 46, 281316, 7},    {false, 1e9, 0, 8000, 9, 184716, 7},
        {true, 6e4, 0, 8000, 36, 606208, 9},  {true, 6e4, 5e4, 8000, 35, 540672, 9},
        {true, 6e4, 0, 0, 60, 606208, 9},     {true, 1e9, 0, 8000, 23, 346112, 9},
    };
    struct arena *a = arena_create();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model m = {.name = "llama"};
        struct err e = {0};
        struct zero3_traffic t;
        assert_true(model_architecture(&m, "llama", &e));
        m.layers = rows[i].tied ? 4 : 3;
        m.hidden = rows[i].tied ? 64 : 42;
        m.ffn = rows[i].tied ? 160 : 107;
        m.heads = rows[i].tied ? 8 : 6;
        m.kv_heads = rows[i].tied ? 4 : 2;
        m.head_dim = 8;
        m.vocab = rows[i].tied ? 1024 : 1001;
        m.max_positions = 64;
        m.tied_embeddings = rows[i].tied;
        if (!model_finish(&m, a, &e))
            fail_msg("%s", e.text);
        struct recipe r = recipe_of(rows[i].live, rows[i].reuse, rows[i].bucket, 100, false);
        assert_true(zero3_simulate(&m, &r, a, &t, &e));
        assert_int_equal(t.calls, rows[i].calls);
        assert_int_equal(t.forward_elements + t.backward_elements, rows[i].elements);
        assert_int_equal(t.persistent_parameters, rows[i].persistent);
    }
    arena_destroy(a);
}

static void persistence_is_capped(void **state) {
    (void)state;
    struct recipe r = recipe_of(1e9, 1e9, 5e7, 1e5, false);
    assert_int_equal(run(&seven, &r).persistent_elements, 65 * 4096);
    r.model_persistence_elements = 10 * 4096;
    assert_int_equal(run(&seven, &r).persistent_elements, 10 * 4096);
    r.persistence_elements = 0;
    assert_int_equal(run(&seven, &r).persistent_elements, 0);
}

// Rank 16 on every linear layer of 7B: 39 976 960 parameters. A matrix of 16 x 4096 persists, one
// of 16 x 11008 is above the threshold of 1e5 and is gathered with the base.
static void small_adapters_persist(void **state) {
    (void)state;
    struct recipe r = recipe_of(1e9, 1e9, 5e7, 1e5, false);
    struct arena *a = arena_create();
    struct model m = decoder_model(&seven, a);
    struct zero3_traffic t = run(&seven, &r);
    assert_true(zero3_adapters(&m, &r, &t).per_element == 0.0);
    r.lora_rank = 16;
    struct zero3_adapters x = zero3_adapters(&m, &r, &t);
    assert_true(x.persistent_parameters == 32 * 11);
    assert_true(x.persistent_elements == 32 * 11 * 16 * 4096);
    near_fraction(x.per_element * (double)(m.parameters - t.persistent_elements),
                  32 * 3 * 16 * 11008, 1e-9, "gathered adapters");
    r.persistence_elements = 0;
    assert_true(zero3_adapters(&m, &r, &t).persistent_parameters == 0.0);
    r.persistence_elements = 100000;
    r.model_persistence_elements = t.persistent_elements; // already full
    assert_true(zero3_adapters(&m, &r, &t).persistent_elements == 0.0);
    arena_destroy(a);
}

// Sweeps call it for every point that the plan's memo misses.
static void eighty_layers_take_a_millisecond(void **state) {
    (void)state;
    struct decoder seventy = {80, 8192, 28672, 32000, false};
    struct recipe r = recipe_of(1e9, 1e9, 5e7, 1e5, true);
    double best_s = INFINITY;
    for (int i = 0; i < 5; i++) {
        struct timespec a, b;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
        run(&seventy, &r);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
        double s = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
        best_s = fmin(best_s, s);
    }
    assert_true(best_s < 10e-3); // 1 ms in a release build; sanitizers cost about 5x
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_7b),
        cmocka_unit_test(golden_other_sizes),
        cmocka_unit_test(tied_table_is_fetched_three_times),
        cmocka_unit_test(as_deepspeed_runs),
        cmocka_unit_test(persistence_is_capped),
        cmocka_unit_test(small_adapters_persist),
        cmocka_unit_test(eighty_layers_take_a_millisecond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
