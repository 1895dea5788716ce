// SPDX-License-Identifier: Apache-2.0
// Properties of memory and volume over random recipes, and that every documented knob does
// something.
#include "cost/volume.h"
#include "describe/recipe_fields.h"
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

static struct model catalog(const char *name) {
    struct model m;
    struct err e = {0};
    if (!model_load(name, arena, &m, &e))
        fail_msg("%s", e.text);
    return m;
}

// A small generator of its own: the test's draws must not depend on the planner's.
static uint64_t next(uint64_t *s) {
    *s = *s * 6364136223846793005ULL + 1442695040888963407ULL;
    return *s >> 33;
}

static struct recipe random_recipe(uint64_t *s) {
    struct recipe r = short_recipe((enum strategy)(next(s) % STRATEGY_COUNT),
                                   (enum precision)(next(s) % PRECISION_COUNT));
    r.reshard_group = 2 + next(s) % 6;
    r.seq = 1ULL << (next(s) % 16);
    r.micro_batch = 1 + next(s) % 4;
    r.grad_accum = 1 + next(s) % 4;
    r.no_sync = next(s) % 2;
    r.recompute = (enum recompute)(next(s) % RECOMPUTE_COUNT);
    r.recompute_every = 1 + next(s) % 4;
    r.attention = (enum attention)(next(s) % ATTENTION_COUNT);
    r.loss = (enum loss_head)(next(s) % LOSS_COUNT);
    r.compile = next(s) % 2;
    r.optimizer = (enum optimizer)(next(s) % OPTIMIZER_COUNT);
    r.offload_optimizer = (enum offload)(next(s) % OFFLOAD_COUNT);
    r.offload_param = (enum offload)(next(s) % OFFLOAD_COUNT);
    r.lora_rank = next(s) % 3 ? 0 : 16;
    r.base_4bit = r.lora_rank && next(s) % 2;
    r.wrap = (enum wrap)(next(s) % WRAP_COUNT);
    r.wrap_parameters = 1ULL << (20 + next(s) % 12);
    r.max_live_elements = 1ULL << (next(s) % 34);
    r.max_reuse_elements = 1ULL << (next(s) % 34);
    r.prefetch_bucket_elements = next(s) % 3 ? 1ULL << (next(s) % 28) : 0;
    r.reduce_bucket_elements = 1 + (1ULL << (next(s) % 30));
    r.activation_offload = next(s) % 4 == 0;
    return r;
}

static void check_volume(const struct volume *v) {
    double sent = 0, inter = 0;
    for (size_t i = 0; i < v->transfer_count; i++) {
        const struct transfer *t = &v->transfers[i];
        assert_true(isfinite(t->sent_bytes) && t->sent_bytes >= 0 && t->count > 0);
        assert_true(t->inter_node_bytes <= t->sent_bytes * (1 + 1e-12));
        if (t->kind == TRANSFER_COLLECTIVE) {
            sent += t->sent_bytes;
            inter += t->inter_node_bytes;
        }
    }
    assert_true(fabs(sent - v->sent_bytes_per_gpu) <= 1e-9 * sent);
    assert_true(fabs(inter - v->inter_node_bytes_per_gpu) <= 1e-9 * sent);
    double kinds =
        v->all_gather_bytes + v->reduce_scatter_bytes + v->all_reduce_bytes + v->other_bytes;
    assert_true(fabs(kinds - sent) <= 1e-9 * sent);
    assert_true(v->textbook_multiple >= 2 && v->textbook_multiple <= 4);
}

static void check_memory(const struct memory *m) {
    uint64_t states = 0;
    for (int k = 0; k <= MEMORY_MASTER; k++)
        states += m->classes_bytes[k];
    assert_true(m->steady_bytes >= states);
    for (int i = PHASE_FORWARD; i <= PHASE_STEP; i++)
        assert_true(m->phases[i].allocated_bytes <= m->allocated_peak_bytes);
    assert_true(m->reserved_bytes >= m->allocated_peak_bytes);
    assert_true(m->reserved_high_bytes >= m->reserved_bytes);
    assert_true((m->short_bytes > 0) == (m->fits_state == FITS_NO));
    assert_true(m->pinned_rounding_bytes <= m->pinned_bytes);
}

static void random_recipes(void **state) {
    (void)state;
    static const char *const names[] = {"llama-2-7b", "gpt2", "mixtral-8x7b", "deepseek-v2-lite",
                                        "gemma-2-2b"};
    struct model models[5];
    uint64_t s = 1;
    size_t evaluated = 0;
    for (size_t i = 0; i < 5; i++)
        models[i] = catalog(names[i]);
    for (int i = 0; i < 1500; i++) {
        const struct model *m = &models[next(&s) % 5];
        struct recipe r = random_recipe(&s);
        struct cluster c = plain_cluster(1ULL << (next(&s) % 9), 8, 80 * GIB, 1000 * GB);
        struct memory memory;
        struct volume volume;
        struct err e = {0};
        if (!recipe_resolve(&r, m, &c, &e))
            continue;
        evaluated++;
        assert_true(memory_estimate(m, &c, &r, &memory, &e));
        assert_true(volume_estimate(m, &c, &r, &volume, &e));
        check_memory(&memory);
        check_volume(&volume);
    }
    assert_true(evaluated > 300);
}

// States never grow with the number of GPUs; activations and logits never shrink with the batch.
static void monotone(void **state) {
    (void)state;
    struct model m = catalog("llama-2-7b");
    for (int k = 0; k < STRATEGY_COUNT; k++) {
        uint64_t before = UINT64_MAX, kept = 0;
        for (uint64_t gpus = 8; gpus <= 512; gpus *= 2) {
            struct recipe r = short_recipe((enum strategy)k, PRECISION_BF16_MIXED);
            struct cluster c = plain_cluster(gpus, 8, 80 * GIB, 0);
            r.reshard_group = 4;
            uint64_t steady = estimate(&m, &c, &r).steady_bytes;
            assert_true(steady <= before);
            before = steady;
        }
        for (uint64_t micro = 1; micro <= 16; micro *= 2) {
            struct recipe r = short_recipe((enum strategy)k, PRECISION_BF16_MIXED);
            struct cluster c = plain_cluster(64, 8, 80 * GIB, 0);
            r.reshard_group = 4;
            r.seq = 512;
            r.micro_batch = micro;
            struct memory out = estimate(&m, &c, &r);
            uint64_t now = out.classes_bytes[MEMORY_ACTIVATIONS] + out.classes_bytes[MEMORY_LOGITS];
            assert_true(now > kept);
            kept = now;
        }
    }
}

struct knob {
    enum strategy strategy;
    const char *field, *value, *with; // `with`: "field=value,..." set on both sides, or NULL
};

static const struct knob knobs[] = {
    {STRATEGY_DDP, "gradient_as_bucket_view", "true", NULL},
    {STRATEGY_DDP, "ddp_bucket_bytes", "100MiB", NULL},
    {STRATEGY_DDP, "no_sync", "false", "grad_accum=4"},
    {STRATEGY_ZERO2, "reduce_bucket_elements", "1e8", NULL},
    {STRATEGY_ZERO2, "overlap_comm", "on", NULL},
    {STRATEGY_ZERO2, "contiguous_gradients", "false", NULL},
    {STRATEGY_ZERO2, "multi_rank_bucket", "false", NULL},
    {STRATEGY_ZERO1, "grad_accum_dtype", "fp32", NULL},
    {STRATEGY_ZERO3, "grad_accum_dtype", "fp32", NULL},
    {STRATEGY_ZERO3, "prefetch_bucket_elements", "0", NULL},
    {STRATEGY_ZERO3, "max_live_elements", "1e8", NULL},
    {STRATEGY_ZERO3, "max_reuse_elements", "1e10", NULL},
    {STRATEGY_ZERO3, "persistence_elements", "0", NULL},
    {STRATEGY_ZERO3, "model_persistence_elements", "1000", NULL},
    {STRATEGY_ZERO3, "sub_group_elements", "1e7", NULL},
    {STRATEGY_ZERO3, "reduce_scatter", "false", NULL},
    {STRATEGY_ZERO3, "allgather_sequential", "true", NULL},
    {STRATEGY_ZERO3, "all_reduce_for_fetch", "true", NULL},
    {STRATEGY_ZERO3, "gather_16bit_on_save", "true", NULL},
    {STRATEGY_ZERO3, "zero_init", "false", NULL},
    {STRATEGY_ZERO3, "clip", "0", NULL},
    {STRATEGY_ZERO3, "pin_memory", "false", "offload_optimizer=cpu"},
    {STRATEGY_ZERO3, "super_offload", "true", "offload_optimizer=cpu"},
    {STRATEGY_ZERO3, "offload_ratio", "0.3", "offload_optimizer=cpu,sub_group_elements=1e7"},
    {STRATEGY_ZERO3, "nvme_buffer_count_optimizer", "8", "offload_optimizer=nvme"},
    {STRATEGY_ZERO3, "nvme_buffer_count_param", "9", "offload_param=nvme"},
    {STRATEGY_ZERO3, "nvme_buffer_elements_param", "2e8", "offload_param=nvme"},
    {STRATEGY_ZERO3, "max_in_cpu_elements", "0", "offload_param=nvme"},
    {STRATEGY_ZEROPP, "hpz", "false", NULL},
    {STRATEGY_ZEROPP, "quantized_weights", "false", NULL},
    {STRATEGY_ZEROPP, "quantized_gradients", "false", NULL},
    {STRATEGY_FSDP1, "forward_prefetch", "true", NULL},
    {STRATEGY_FSDP1, "backward_prefetch", "none", NULL},
    {STRATEGY_FSDP1, "limit_all_gathers", "false", NULL},
    {STRATEGY_FSDP1, "cpu_ram_efficient_loading", "true", NULL},
    {STRATEGY_FSDP1, "full_state_dict", "false", NULL},
    {STRATEGY_FSDP1, "no_sync", "true", "grad_accum=4"},
    {STRATEGY_FSDP2, "optimizer_fused", "true", NULL},
    {STRATEGY_FSDP2, "reshard_root", "true", NULL},
    {STRATEGY_FSDP2, "meta_init", "false", NULL},
    {STRATEGY_FSDP2, "embedding_group", "true", NULL},
    {STRATEGY_FSDP2, "expandable_segments", "true", NULL},
    {STRATEGY_FSDP2, "loss_eager", "true", "compile=true"},
    {STRATEGY_FSDP2, "compile", "true", NULL},
    {STRATEGY_FSDP2, "activation_offload", "true", NULL},
    {STRATEGY_FSDP2, "reduce_dtype", "bf16", NULL},
    {STRATEGY_FSDP2, "wrap", "model", NULL},
};

static void set(struct recipe *r, const char *field, const char *value) {
    struct err e = {0};
    if (!recipe_field_set(r, field, value, arena, &e))
        fail_msg("%s", e.text);
}

static void set_pairs(struct recipe *r, const char *pairs) {
    char text[128];
    snprintf(text, sizeof text, "%s", pairs ? pairs : "");
    for (char *save = NULL, *pair = strtok_r(text, ",", &save); pair;
         pair = strtok_r(NULL, ",", &save)) {
        char *eq = strchr(pair, '=');
        assert_non_null(eq);
        *eq = '\0';
        set(r, pair, eq + 1);
    }
}

static void every_knob_changes_something(void **state) {
    (void)state;
    struct model m = catalog("llama-2-7b");
    struct cluster c = plain_cluster(16, 8, 80 * GIB, 2000 * GB);
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++) {
        struct recipe x = short_recipe(knobs[i].strategy, PRECISION_BF16_MIXED);
        struct memory before, after;
        struct volume sent_before, sent_after;
        struct err e = {0};
        x.seq = 2048;
        set_pairs(&x, knobs[i].with);
        struct recipe y = x;
        set(&y, knobs[i].field, knobs[i].value);
        assert_true(recipe_resolve(&x, &m, &c, &e) && recipe_resolve(&y, &m, &c, &e));
        memset(&before, 0, sizeof before);
        memset(&after, 0, sizeof after);
        assert_true(memory_estimate(&m, &c, &x, &before, &e));
        assert_true(memory_estimate(&m, &c, &y, &after, &e));
        assert_true(volume_estimate(&m, &c, &x, &sent_before, &e));
        assert_true(volume_estimate(&m, &c, &y, &sent_after, &e));
        bool same =
            before.reserved_high_bytes == after.reserved_high_bytes &&
            before.allocated_peak_bytes == after.allocated_peak_bytes &&
            before.host_bytes == after.host_bytes && before.nvme_bytes == after.nvme_bytes &&
            memcmp(before.phases, after.phases, sizeof before.phases) == 0 &&
            memcmp(sent_before.transfers, sent_after.transfers, sizeof sent_before.transfers) == 0;
        if (same)
            fail_msg("%s: %s=%s changes nothing", strategy_names[knobs[i].strategy], knobs[i].field,
                     knobs[i].value);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_recipes),
        cmocka_unit_test(monotone),
        cmocka_unit_test(every_knob_changes_something),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
