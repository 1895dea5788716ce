// SPDX-License-Identifier: Apache-2.0
// Bytes per step: the textbook multiples and what the frameworks send; docs/method.md §volume.
#include "cost/volume.h"
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

static struct volume volume_of(const struct model *m, uint64_t gpus, struct recipe *r) {
    struct cluster c = plain_cluster(gpus, 8, 80 * GIB, 0);
    struct volume out = {0};
    struct err e = {0};
    c.nics_per_node = 8;
    r->global_batch = 0;
    if (!recipe_resolve(r, m, &c, &e) || !volume_estimate(m, &c, r, &out, &e))
        fail_msg("%s", e.text);
    return out;
}

static struct volume plain_volume(const struct model *m, uint64_t gpus, enum strategy s,
                                  uint64_t accumulate) {
    struct recipe r = short_recipe(s, PRECISION_BF16_MIXED);
    r.grad_accum = accumulate;
    return volume_of(m, gpus, &r);
}

static void textbook_multiples(void **state) {
    (void)state;
    static const struct {
        enum strategy strategy;
        double multiple;
    } rows[] = {{STRATEGY_DDP, 2},
                {STRATEGY_ZERO1, 2},
                {STRATEGY_ZERO2, 2},
                {STRATEGY_ZERO3, 3},
                {STRATEGY_FSDP1, 3},
                {STRATEGY_FSDP2, 3},
                {STRATEGY_FSDP1_GRAD_OP, 2},
                {STRATEGY_FSDP2_NORESHARD, 2},
                {STRATEGY_FSDP1_NOSHARD, 2},
                {STRATEGY_HSDP, 3 + 2.0 / 8},
                {STRATEGY_MICS, 3 + 2.0 / 8},
                {STRATEGY_FSDP1_HYBRID_ZERO2, 2 + 2.0 / 8}};
    struct model m = bulk_model(8e9, arena);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct volume v = plain_volume(&m, 64, rows[i].strategy, 1);
        const char *name = strategy_names[rows[i].strategy];
        near(v.textbook_multiple, rows[i].multiple, 1e-12, name);
        near(v.textbook_bytes, rows[i].multiple * 2 * 8e9, 1e-12, name);
    }
}

// Sent per rank and step for 8.03 B parameters on 8 ranks, GB.
static void sent_8b(void **state) {
    (void)state;
    struct model m = bulk_model(8.03e9, arena);
    struct recipe r = short_recipe(STRATEGY_DDP, PRECISION_FP32);
    within(volume_of(&m, 8, &r).sent_bytes_per_gpu / GB, 56.2, 0.06, "DDP fp32");
    within(plain_volume(&m, 8, STRATEGY_DDP, 1).sent_bytes_per_gpu / GB, 28.1, 0.06, "DDP bf16");
    within(plain_volume(&m, 8, STRATEGY_ZERO2, 1).sent_bytes_per_gpu / GB, 42.2, 0.06, "ZeRO-2");
    within(plain_volume(&m, 8, STRATEGY_ZERO2, 4).sent_bytes_per_gpu / GB, 126.5, 0.06,
           "ZeRO-2, g 4");
    r = short_recipe(STRATEGY_ZERO2, PRECISION_BF16_MIXED);
    r.multi_rank_bucket = false;
    near(volume_of(&m, 8, &r).sent_bytes_per_gpu / GB, 28.1, 0.06, "ZeRO-2, reduce to owners");
    within(plain_volume(&m, 8, STRATEGY_FSDP2, 1).sent_bytes_per_gpu / GB, 56.2, 0.06,
           "fp32 reduce");
    r = short_recipe(STRATEGY_FSDP2, PRECISION_BF16_MIXED);
    r.reduce_dtype = DTYPE_BF16;
    r.reduce_dtype_given = true;
    within(volume_of(&m, 8, &r).sent_bytes_per_gpu / GB, 42.2, 0.06, "FSDP, bf16 reduce");
    struct model llama = catalog("llama-3-8b");
    double sent = plain_volume(&llama, 8, STRATEGY_ZERO3, 1).sent_bytes_per_gpu / GB;
    near(sent, 42.2 - 1.8, 0.02, "ZeRO-3 keeps a tail of 1e9 elements");
}

// Sentences that are often told wrong, in units of the 16-bit model.
static void what_the_code_sends(void **state) {
    (void)state;
    struct model m = bulk_model(8e9, arena);
    double unit = 2 * 8e9 * 7 / 8;
    near(plain_volume(&m, 8, STRATEGY_ZERO2, 1).sent_bytes_per_gpu / unit, 3, 1e-6, "ZeRO-2 is 3");
    near(plain_volume(&m, 8, STRATEGY_ZERO2, 4).sent_bytes_per_gpu / unit, 9, 1e-6, "(2 g + 1)");
    near(plain_volume(&m, 8, STRATEGY_ZERO1, 4).sent_bytes_per_gpu / unit, 3, 1e-6, "ZeRO-1 once");
    near(plain_volume(&m, 8, STRATEGY_DDP, 4).sent_bytes_per_gpu / unit, 2, 1e-6, "no_sync");
    struct volume z2 = plain_volume(&m, 8, STRATEGY_ZERO2, 1);
    assert_true(z2.reduce_scatter_bytes == 0 && z2.all_reduce_bytes > 0);
    struct volume f = plain_volume(&m, 8, STRATEGY_FSDP1_GRAD_OP, 1);
    near(f.all_gather_bytes / unit, 1, 1e-6, "SHARD_GRAD_OP gathers in forward");
    near(f.reduce_scatter_bytes / unit, 2, 1e-6, "fp32 reduce doubles the reduce-scatter");
}

static void zero3_over_ddp(void **state) {
    (void)state;
    struct model m = catalog("llama-2-7b");
    double ddp = plain_volume(&m, 8, STRATEGY_DDP, 1).sent_bytes_per_gpu;
    near(plain_volume(&m, 8, STRATEGY_ZERO3, 1).sent_bytes_per_gpu / ddp, 1.43, 0.01, "7B");
    double accumulated = plain_volume(&m, 8, STRATEGY_ZERO3, 8).sent_bytes_per_gpu;
    near(accumulated / plain_volume(&m, 8, STRATEGY_DDP, 8).sent_bytes_per_gpu, 1.43 * 8, 0.01,
         "against no_sync it grows with accumulation");
    struct model small = catalog("qwen2.5-0.5b");
    ddp = plain_volume(&small, 8, STRATEGY_DDP, 1).sent_bytes_per_gpu;
    double ratio = plain_volume(&small, 8, STRATEGY_ZERO3, 1).sent_bytes_per_gpu / ddp;
    assert_true(ratio > 0.98 && ratio < 1.3); // gathered once; the tied table twice
    near(plain_volume(&m, 8, STRATEGY_ZERO3, 1).textbook_multiple, 3, 1e-12, "textbook stays 3");
}

static void fsdp_keeps_its_root(void **state) {
    (void)state;
    struct model m = catalog("llama-3-8b");
    double root = 2 * 128256.0 * 4096 + 4096, all = (double)m.parameters, q = 7.0 / 8;
    struct volume v = plain_volume(&m, 8, STRATEGY_FSDP2, 1);
    near(v.all_gather_bytes, 2 * (2 * all - root) * q, 1e-6, "backward does not gather the root");
    near(v.reduce_scatter_bytes, 4 * all * q, 1e-6, "fp32 gradients");
    assert_int_equal(v.transfers[0].count, 33);
    assert_int_equal(v.transfers[1].count, 32);
    struct recipe r = short_recipe(STRATEGY_FSDP2, PRECISION_BF16_MIXED);
    r.reshard_root = true;
    near(volume_of(&m, 8, &r).all_gather_bytes, 4 * all * q, 1e-6, "unless it is resharded");
    static const enum strategy both[] = {STRATEGY_FSDP1, STRATEGY_FSDP2};
    for (size_t i = 0; i < 2; i++) { // no wrap policy: all of it is the root
        r = short_recipe(both[i], PRECISION_BF16_MIXED);
        r.wrap = WRAP_MODEL;
        near(volume_of(&m, 8, &r).all_gather_bytes, 2 * all * q, 1e-6, "one unit stays gathered");
        assert_int_equal(volume_of(&m, 8, &r).transfers[0].count, 1);
        r.reshard_root = true;
        near(volume_of(&m, 8, &r).all_gather_bytes, 4 * all * q, 1e-6, "unless resharded");
    }
}

static void hybrid_sharding(void **state) {
    (void)state;
    struct model m = bulk_model(11e9, arena);
    struct recipe r = short_recipe(STRATEGY_HSDP, PRECISION_BF16_MIXED);
    r.reduce_dtype = DTYPE_BF16;
    r.reduce_dtype_given = true;
    struct volume v = volume_of(&m, 64, &r);
    near(v.all_reduce_bytes, 2 * 2 * 11e9 / 8 * 7 / 8, 1e-6, "a shard over 8 replicas");
    near(v.inter_node_bytes_per_gpu, v.all_reduce_bytes, 1e-6, "only that crosses nodes");
    near(v.intra_node_bytes_per_gpu, 6 * 11e9 * 7 / 8, 1e-6, "the rest stays inside");
    near(v.inter_node_bytes_per_nic, v.inter_node_bytes_per_gpu, 1e-9, "eight NICs for eight GPUs");
    r.grad_accum = 4;
    near(volume_of(&m, 64, &r).all_reduce_bytes, 4 * v.all_reduce_bytes, 1e-6, "every micro-step");
    r = short_recipe(STRATEGY_FSDP2_RESHARD, PRECISION_BF16_MIXED);
    r.reshard_group = 8;
    v = volume_of(&m, 64, &r);
    near(v.all_gather_bytes, 2 * 11e9 * (63.0 / 64 + 7.0 / 8), 1e-6, "backward inside the group");
}

// ZeRO++ table: 3 M crosses nodes under ZeRO-3, 0.75 M with the three switches.
static void zero_plus_plus(void **state) {
    (void)state;
    struct model m = bulk_model(8.192e9, arena);
    struct recipe r = short_recipe(STRATEGY_ZEROPP, PRECISION_BF16_MIXED);
    struct volume v = volume_of(&m, 64, &r);
    near(v.textbook_inter_node_multiple, 0.75, 1e-12, "0.5 + 0 + 0.25");
    r.quantized_gradients = false;
    near(volume_of(&m, 64, &r).textbook_inter_node_multiple, 1.5, 1e-12, "gradients in 16 bit");
    r.quantized_weights = false;
    near(volume_of(&m, 64, &r).textbook_inter_node_multiple, 2, 1e-12, "hpZ alone");
    r.hpz = false;
    near(volume_of(&m, 64, &r).textbook_inter_node_multiple, 3, 1e-12, "ZeRO-3");
    // hpZ leaves one global gather per step, whatever the accumulation.
    r.hpz = true;
    r.max_live_elements = r.max_reuse_elements = 0;
    r.grad_accum = 4;
    v = volume_of(&m, 64, &r);
    double global = 0, inside = 0;
    for (size_t i = 0; i < v.transfer_count; i++)
        if (v.transfers[i].collective == COLLECTIVE_ALL_GATHER)
            *(v.transfers[i].group == GROUP_WORLD ? &global : &inside) +=
                v.transfers[i].payload_bytes;
    near(global, 2 * 8.192e9, 0.02, "one global gather");
    near(inside, 7 * 2 * 8.192e9, 0.02, "the others inside the node");
    // Four-bit gradients: inside the node, then an eighth between nodes.
    r = short_recipe(STRATEGY_ZEROPP, PRECISION_BF16_MIXED);
    v = volume_of(&m, 64, &r);
    const double codes = 0.5 * 8.192e9, scales = 4 * 8.192e6; // 8.192e6 rows, a scale each
    near(v.other_bytes, (codes + scales) * (1 + 1.0 / 8) * 7 / 8, 1e-6, "all-to-alls");
    assert_true(v.reduce_scatter_bytes == 0);
    near(volume_of(&m, 8, &r).reduce_scatter_bytes, 2 * 8.192e9 * 7 / 8, 1e-6, "one node: none");
}

static void mics_reduces_shards(void **state) {
    (void)state;
    struct model m = bulk_model(8e9, arena);
    struct volume v = plain_volume(&m, 64, STRATEGY_MICS, 4);
    near(v.all_reduce_bytes, 2 * 2 * 8e9 / 8 * 7 / 8, 0.01, "once per step, in the replica group");
    near(v.inter_node_bytes_per_gpu, 2 * 2 * 8e9 / 8 * 7 / 8, 0.01, "shard groups stay inside");
}

static void rings_cross_once_per_node(void **state) {
    (void)state;
    assert_true(volume_inter_fraction(8, 8) == 0);
    near(volume_inter_fraction(64, 8), 1.0 / 8, 1e-12, "one hop in eight");
    near(volume_inter_fraction(8, 1), 1, 1e-12, "one rank per node");
    // Two nodes of one GPU: half of each gather of a 14B model is remote, forward and backward.
    struct model m = bulk_model(14e9, arena);
    struct cluster c = plain_cluster(2, 1, 24 * GIB, 0);
    struct recipe r = short_recipe(STRATEGY_ZERO3, PRECISION_BF16_MIXED);
    struct volume v;
    struct err e = {0};
    r.max_live_elements = r.max_reuse_elements = 0;
    r.frozen_fraction = 0.999;
    assert_true(recipe_resolve(&r, &m, &c, &e) && volume_estimate(&m, &c, &r, &v, &e));
    near(v.inter_node_bytes_per_gpu / GB, 28, 0.01, "frozen weights are gathered twice");
}

// Minimum of the ZeRO-Offload paper: 2 M down and 2 M up. DeepSpeed sends gradients down in fp32.
static void zero_offload_traffic(void **state) {
    (void)state;
    struct model m = bulk_model(8e9, arena);
    struct recipe r = short_recipe(STRATEGY_ZERO2, PRECISION_BF16_MIXED);
    r.offload_optimizer = OFFLOAD_CPU;
    double n = 8e9 / 8;
    struct volume v = volume_of(&m, 8, &r);
    near(v.h2d_bytes, 2 * n, 1e-6, "parameters up");
    near(v.d2h_bytes, 4 * n, 1e-6, "fp32 gradients down");
    near(8 * (v.h2d_bytes + v.d2h_bytes / 2), 4 * 8e9, 1e-6, "4 M in 16 bit over all ranks");
    r.grad_accum = 4;
    v = volume_of(&m, 8, &r); // one tensor: it straddles every partition and is accumulated whole
    near(v.d2h_bytes, 4 * 2 * 8e9 + 4 * n, 1e-6, "accumulation buffers too");
    near(v.h2d_bytes, 3 * 2 * 8e9 + 2 * n, 1e-6, "and read back");
    r = short_recipe(STRATEGY_ZERO3, PRECISION_BF16_MIXED);
    r.offload_optimizer = OFFLOAD_CPU;
    v = volume_of(&m, 8, &r);
    near(v.d2h_bytes, (2 + 4) * n, 1e-6, "stage 3 down");
    near(v.h2d_bytes, (2 + 2) * n, 1e-6, "stage 3 up: read back, then parameters");
    r.offload_optimizer = OFFLOAD_NVME;
    v = volume_of(&m, 8, &r);
    near(v.nvme_read_bytes, 16 * n, 1e-6, "NVMe read");
    near(v.nvme_write_bytes, 16 * n, 1e-6, "NVMe write");
    r = short_recipe(STRATEGY_FSDP2, PRECISION_BF16_MIXED);
    r.offload_param = OFFLOAD_CPU;
    v = volume_of(&m, 8, &r);
    near(v.h2d_bytes, 2 * 4 * n, 1e-6, "fp32 shards for every gather");
    near(v.d2h_bytes, 4 * n, 1e-6, "fp32 gradients");
}

// Tensors in backward order: DeepSpeed closes a bucket before it overflows, DDP once it is full.
static void bucket_counts(void **state) {
    (void)state;
    struct model m = bulk_model(1e9, arena);
    struct model_unit u = m.units[0];
    u.repeat = 10; // ten tensors of 1e9 elements
    m.units = &u;
    m.parameters = 10000000000;
    struct recipe r = short_recipe(STRATEGY_ZERO2, PRECISION_BF16_MIXED);
    // Each is larger than a bucket. Where a partition (1.25e9) ends inside the fourth and the
    // ninth, the slice before it fills a call of its own.
    assert_int_equal(volume_of(&m, 8, &r).transfers[0].count, 12);
    r.reduce_bucket_elements = 2500000000;
    assert_int_equal(volume_of(&m, 8, &r).transfers[0].count, 5);
    r.grad_accum = 3;
    assert_int_equal(volume_of(&m, 8, &r).transfers[0].count, 15);
    r = short_recipe(STRATEGY_DDP, PRECISION_BF16_MIXED);
    r.ddp_bucket_bytes = 5000000000; // first tensor alone, then three of 2 GB reach it
    assert_int_equal(volume_of(&m, 8, &r).transfers[0].count, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(textbook_multiples),
        cmocka_unit_test(sent_8b),
        cmocka_unit_test(what_the_code_sends),
        cmocka_unit_test(zero3_over_ddp),
        cmocka_unit_test(fsdp_keeps_its_root),
        cmocka_unit_test(hybrid_sharding),
        cmocka_unit_test(zero_plus_plus),
        cmocka_unit_test(mics_reduces_shards),
        cmocka_unit_test(rings_cross_once_per_node),
        cmocka_unit_test(zero_offload_traffic),
        cmocka_unit_test(bucket_counts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
