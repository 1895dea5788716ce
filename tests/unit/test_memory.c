// SPDX-License-Identifier: Apache-2.0
// Buffers, phases, host and NVMe, readings and fits; docs/method.md §memory and §overheads.
#include "memory_case.h"

#include "base/json.h"
#include "cost/activation.h"

#include <stdlib.h>

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

static double backward_bucket(const struct recipe *given) {
    struct model m = bulk_model(1.8e9, arena);
    struct cluster c = plain_cluster(8, 8, 80 * GIB, 0);
    struct recipe r = *given;
    // One more buffer flattens the bucket's slices; the table's settings share it.
    double flat = 2 * fmin((double)r.reduce_bucket_elements, 1.8e9);
    return (double)estimate(&m, &c, &r).phases[PHASE_BACKWARD].classes_bytes[MEMORY_BUCKET] - flat;
}

// A measured table of ZeRO-2 (DeepSpeed issue, 1.8 B parameters): MiB of bucket per setting.
static void bucket_table(void **state) {
    (void)state;
    static const struct {
        double bucket;
        bool overlap, contiguous;
        double mib, tolerance;
    } rows[] = {{5e8, true, true, 1907, 5}, {5e8, false, true, 954, 5}, {1e8, true, true, 381, 5},
                {1e7, true, true, 38, 2},   {5e8, true, false, 0, 0},   {1e7, false, true, 19, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct recipe r = short_recipe(STRATEGY_ZERO2, PRECISION_FP16_MIXED);
        r.reduce_bucket_elements = (uint64_t)rows[i].bucket;
        r.overlap_comm = rows[i].overlap ? OVERLAP_ON : OVERLAP_OFF;
        r.contiguous_gradients = rows[i].contiguous;
        within(backward_bucket(&r) / (1024 * 1024), rows[i].mib, rows[i].tolerance + 0.01,
               "bucket");
    }
    struct recipe old = short_recipe(STRATEGY_ZERO2, PRECISION_FP16_MIXED);
    old.overlap_comm = OVERLAP_ON;
    within(backward_bucket(&old) / GIB, 1.86, 0.02, "current");
    old.framework_version = "deepspeed-0.3.16";
    within(backward_bucket(&old) / GIB, 8.38, 0.1, "before 0.4");
}

static void phases_sum_exactly(void **state) {
    (void)state;
    struct model m = catalog("llama-2-7b");
    struct cluster c = plain_cluster(16, 8, 80 * GIB, 1000 * GB);
    for (int s = 0; s < STRATEGY_COUNT; s++)
        for (int offload = 0; offload < 2; offload++) {
            struct recipe r = short_recipe((enum strategy)s, PRECISION_BF16_MIXED);
            struct err e = {0};
            struct memory out;
            r.seq = 2048;
            r.reshard_group = 8;
            r.offload_optimizer = offload ? OFFLOAD_CPU : OFFLOAD_NONE;
            if (!recipe_resolve(&r, &m, &c, &e))
                continue;
            assert_true(memory_estimate(&m, &c, &r, &out, &e));
            uint64_t most = 0;
            for (int i = 0; i < PHASE_COUNT; i++) {
                uint64_t sum = 0, host = 0;
                for (int k = 0; k < MEMORY_CLASS_COUNT; k++)
                    sum += out.phases[i].classes_bytes[k];
                for (int k = 0; k < HOST_CLASS_COUNT; k++)
                    host += out.phases[i].host_classes_bytes[k];
                assert_true(sum == out.phases[i].allocated_bytes);
                assert_true(host == out.phases[i].host_bytes);
                if (i >= PHASE_FORWARD && i <= PHASE_STEP && sum > most)
                    most = sum;
            }
            assert_true(most == out.allocated_peak_bytes);
            assert_true(out.reserved_bytes >= out.allocated_peak_bytes);
            assert_true(out.reserved_bytes >= out.reserved_low_bytes);
            assert_true(out.reserved_high_bytes >= out.reserved_bytes);
        }
}

static void step_transients(void **state) {
    (void)state;
    struct model m = bulk_model(8e7, arena);
    struct model_unit u = m.units[0];
    u.repeat = m.layers = 100; // tensors far smaller than a rank's slice
    m.units = &u;
    m.parameters = 8000000000;
    struct cluster c = plain_cluster(8, 8, 80 * GIB, 0);
    struct recipe r = short_recipe(STRATEGY_ZERO2, PRECISION_BF16_MIXED);
    near((double)estimate(&m, &c, &r).classes_bytes[MEMORY_STEP_TRANSIENT], 6e9, 1e-6,
         "flattened in 16 and 32 bits");
    struct model one = bulk_model(8e9, arena);
    near((double)estimate(&one, &c, &r).classes_bytes[MEMORY_STEP_TRANSIENT], 11e9, 1e-6,
         "overflow check of one large tensor");
    r = short_recipe(STRATEGY_FSDP2, PRECISION_BF16_MIXED);
    near((double)estimate(&m, &c, &r).classes_bytes[MEMORY_STEP_TRANSIENT], 4e9, 1e-6, "foreach");
    r.framework_version = "torch-2.0";
    near((double)estimate(&m, &c, &r).classes_bytes[MEMORY_STEP_TRANSIENT], 8e9, 1e-6,
         "before 2.1");
    r.optimizer_fused = true;
    assert_int_equal(estimate(&m, &c, &r).classes_bytes[MEMORY_STEP_TRANSIENT], 0);
    r = short_recipe(STRATEGY_ZERO3, PRECISION_BF16_MIXED);
    r.sub_group_elements = 100000000;
    near((double)estimate(&m, &c, &r).classes_bytes[MEMORY_STEP_TRANSIENT], 0.6e9, 1e-6,
         "sub-group");
}

// FSDP accumulation without communication keeps whole gradients on every GPU.
static void no_sync_costs_whole_gradients(void **state) {
    (void)state;
    struct model m = catalog("llama-2-7b");
    struct cluster c = plain_cluster(8, 8, 80 * GIB, 0);
    static const enum strategy both[2] = {STRATEGY_FSDP1, STRATEGY_FSDP2};
    for (int i = 0; i < 2; i++) {
        struct recipe r = short_recipe(both[i], PRECISION_BF16_MIXED);
        r.grad_accum = 4;
        double before = (double)estimate(&m, &c, &r).classes_bytes[MEMORY_GRADS];
        r.no_sync = true;
        double after = (double)estimate(&m, &c, &r).classes_bytes[MEMORY_GRADS];
        within((after - before) / GIB, i ? 25.1 : 12.6, 0.1, "unsharded gradients");
    }
}

static void host_of_optimizer_offload(void **state) {
    (void)state;
    struct model m = bulk_model(8e9, arena);
    struct cluster c = plain_cluster(16, 8, 80 * GIB, 2000 * GB);
    static const struct {
        enum strategy strategy;
        enum offload param;
        uint64_t accumulate;
        bool fp32_accumulation;
        double bytes; // per parameter
    } rows[] = {
        {STRATEGY_ZERO2, OFFLOAD_NONE, 1, false, 18}, {STRATEGY_ZERO2, OFFLOAD_NONE, 4, false, 20},
        {STRATEGY_ZERO1, OFFLOAD_NONE, 4, false, 18}, {STRATEGY_ZERO3, OFFLOAD_NONE, 1, false, 18},
        {STRATEGY_ZERO3, OFFLOAD_NONE, 1, true, 20},  {STRATEGY_ZERO3, OFFLOAD_CPU, 1, false, 20},
        {STRATEGY_ZERO3, OFFLOAD_CPU, 1, true, 22}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct recipe r = short_recipe(rows[i].strategy, PRECISION_BF16_MIXED);
        r.offload_optimizer = OFFLOAD_CPU;
        r.offload_param = rows[i].param;
        r.grad_accum = rows[i].accumulate;
        if (rows[i].fp32_accumulation) {
            r.grad_accum_dtype = DTYPE_FP32;
            r.grad_accum_dtype_given = true;
        }
        struct memory out = estimate(&m, &c, &r);
        double staging = (double)out.host_classes_bytes[HOST_STAGING];
        double largest =
            staging > 0 ? staging - 2 * 8e9 / 2 : 0; // and the largest parameter's buffer
        double got = (double)out.host_bytes - (double)out.host_classes_bytes[HOST_PINNED_ROUNDING];
        near((got - largest) / (8e9 / 2), rows[i].bytes, 1e-6, "bytes per parameter of the node");
        assert_int_equal(out.classes_bytes[MEMORY_MASTER] + out.classes_bytes[MEMORY_OPTIMIZER], 0);
    }
    struct recipe r = short_recipe(STRATEGY_FSDP2, PRECISION_BF16_MIXED);
    r.offload_param = OFFLOAD_CPU;
    struct memory out = estimate(&m, &c, &r);
    near((double)(out.host_bytes - out.host_classes_bytes[HOST_PINNED_ROUNDING]), 16.0 * 8e9 / 2,
         1e-4, "FSDP2");
    assert_int_equal(out.steady_bytes, 0);
}

// An 8.098 GiB pinned block takes 16 GiB of host memory.
static void pinned_rounding(void **state) {
    (void)state;
    double elements = floor(8.098 * GIB / 4 / 1000) * 1000;
    struct model m = bulk_model(elements, arena);
    struct cluster c = plain_cluster(1, 1, 80 * GIB, 0);
    struct recipe r = short_recipe(STRATEGY_FSDP2, PRECISION_BF16_MIXED);
    r.offload_param = OFFLOAD_CPU;
    struct memory out = estimate(&m, &c, &r); // the parameter and its gradient
    within((double)out.pinned_bytes / 2 / GIB, 16.0, 0.05, "pinned");
    near((double)out.pinned_rounding_bytes / 2 / GIB, 16 - 8.098, 1e-3, "rounding");
    r.pin_memory = false;
    assert_int_equal(estimate(&m, &c, &r).host_classes_bytes[HOST_PINNED_ROUNDING], 0);
}

static void twin_flow_moves_whole_sub_groups(void **state) {
    (void)state;
    struct model m = bulk_model(80e9, arena);
    struct cluster c = plain_cluster(8, 8, 80 * GIB, 0);
    struct recipe r = short_recipe(STRATEGY_ZERO3, PRECISION_BF16_MIXED);
    r.offload_optimizer = OFFLOAD_CPU;
    r.offload_ratio = 0.9; // ten sub-groups; the product truncates to none
    assert_int_equal(estimate(&m, &c, &r).classes_bytes[MEMORY_OPTIMIZER], 0);
    r.offload_ratio = 0.3;
    near((double)estimate(&m, &c, &r).classes_bytes[MEMORY_OPTIMIZER], 8 * 7e9, 1e-6,
         "seven of ten");
    r.sub_group_elements = 20000000000;
    assert_int_equal(estimate(&m, &c, &r).classes_bytes[MEMORY_OPTIMIZER], 0); // one sub-group
}

static void nvme_bytes(void **state) {
    (void)state;
    struct model m = bulk_model(80e9, arena);
    struct cluster c = plain_cluster(8, 8, 80 * GIB, 2000 * GB);
    struct recipe r = short_recipe(STRATEGY_ZERO3, PRECISION_BF16_MIXED);
    r.offload_optimizer = OFFLOAD_NVME;
    struct memory out = estimate(&m, &c, &r);
    near((double)out.nvme_bytes, 16 * 80e9, 1e-6, "master, m, v, gradient");
    near((double)out.host_classes_bytes[HOST_SWAP_BUFFERS], 8 * 4 * 4e9, 1e-4, "four swap buffers");
    r.offload_param = OFFLOAD_NVME;
    out = estimate(&m, &c, &r);
    near((double)out.nvme_bytes, 16 * 80e9 + 2 * (80e9 - 8e9), 1e-6, "all but max_in_cpu");
    near((double)out.host_classes_bytes[HOST_PARAMS], 2 * 8e9, 1e-6, "max_in_cpu of each rank");
    near((double)out.host_classes_bytes[HOST_SWAP_BUFFERS], 8 * (4 * 4e9 + 5 * 2e8), 1e-4,
         "parameter buffers");
}

// Host need of 70B with everything offloaded: one p4de node no, a 2 TB host yes.
static void seventy_billion_needs_over_a_terabyte(void **state) {
    (void)state;
    struct model m = catalog("llama-3-70b");
    struct cluster c = plain_cluster(8, 8, 79 * GIB, 1152 * GIB);
    struct recipe r = short_recipe(STRATEGY_ZERO3, PRECISION_BF16_MIXED);
    r.seq = 4096;
    r.recompute = RECOMPUTE_FULL;
    r.offload_optimizer = OFFLOAD_CPU;
    struct memory out = estimate(&m, &c, &r);
    double base = (double)(out.host_bytes - out.pinned_rounding_bytes);
    within(base / 1e12, 1.27, 0.01, "optimizer offload");
    assert_false(out.host_fits);
    r.offload_param = OFFLOAD_CPU;
    out = estimate(&m, &c, &r);
    within((double)(out.host_bytes - out.pinned_rounding_bytes) / 1e12, 1.41, 0.01, "both");
    c.host_memory_bytes = figure_known(2e12, PROVENANCE_SPEC, "test");
    assert_true(estimate(&m, &c, &r).host_fits);
}

static void load_and_checkpoint(void **state) {
    (void)state;
    struct model m = catalog("falcon-40b");
    struct cluster c = plain_cluster(8, 8, 80 * GIB, 1000 * GB);
    struct recipe r = short_recipe(STRATEGY_FSDP1, PRECISION_BF16_MIXED);
    struct memory out = estimate(&m, &c, &r);
    near((double)out.phases[PHASE_LOAD].host_bytes, 8 * 4.0 * (double)m.parameters, 1e-6,
         "eight copies");
    assert_false(out.phase_fits[PHASE_LOAD]);
    r.cpu_ram_efficient_loading = true;
    out = estimate(&m, &c, &r);
    near((double)out.phases[PHASE_LOAD].host_bytes, 4.0 * (double)m.parameters, 1e-6, "one copy");
    r = short_recipe(STRATEGY_ZERO2, PRECISION_BF16_MIXED);
    out = estimate(&m, &c, &r);
    near((double)out.phases[PHASE_INIT].allocated_bytes, 4.0 * (double)m.parameters, 1e-6,
         "flat group beside the parameters");
    r = short_recipe(STRATEGY_ZERO3, PRECISION_BF16_MIXED);
    r.zero_init = false;
    near((double)estimate(&m, &c, &r).phases[PHASE_LOAD].allocated_bytes,
         2.0 * (double)m.parameters, 1e-6, "whole model without zero.Init");
    r.gather_16bit_on_save = true;
    near((double)estimate(&m, &c, &r).phases[PHASE_SAVE].host_classes_bytes[HOST_LOAD],
         2.0 * (double)m.parameters, 1e-6, "rank 0 collects 16-bit weights");
}

static void fits_has_three_answers(void **state) {
    (void)state;
    struct model m = catalog("llama-3-8b");
    struct recipe r = short_recipe(STRATEGY_ZERO3, PRECISION_BF16_MIXED);
    r.seq = 4096;
    struct cluster c = plain_cluster(8, 8, 79 * GIB, 0);
    struct memory out = estimate(&m, &c, &r);
    assert_int_equal(out.fits_state, FITS_YES);
    assert_int_equal(out.short_bytes, 0);
    assert_true(out.headroom_bytes ==
                (int64_t)out.capacity_bytes - (int64_t)out.allocated_peak_bytes);
    double edge = (double)out.allocated_peak_bytes + (double)out.framework_bytes;
    c.gpu.memory_torch_bytes = figure_known(edge + 1e6, PROVENANCE_SPEC, "test");
    assert_int_equal(estimate(&m, &c, &r).fits_state, FITS_TIGHT);
    c.gpu.memory_torch_bytes = figure_known(edge - 1e9, PROVENANCE_SPEC, "test");
    out = estimate(&m, &c, &r);
    assert_int_equal(out.fits_state, FITS_NO);
    within((double)out.short_bytes, 1e9, 2, "short by");
    assert_true(out.nvidia_smi_bytes == out.reserved_bytes + out.context_bytes + out.nccl_bytes);
}

static void fewest_gpus(void **state) {
    (void)state;
    struct model m = catalog("llama-3-70b");
    struct cluster c = plain_cluster(8, 8, 79 * GIB, 0);
    struct recipe r = short_recipe(STRATEGY_ZERO3, PRECISION_BF16_MIXED);
    r.seq = 2048;
    r.recompute = RECOMPUTE_FULL;
    uint64_t n = memory_min_gpus(&m, &c, &r, 4096);
    assert_int_equal(n % 8, 0);
    struct cluster at = plain_cluster(n, 8, 79 * GIB, 0),
                   below = plain_cluster(n - 8, 8, 79 * GIB, 0);
    assert_int_not_equal(estimate(&m, &at, &r).fits_state, FITS_NO);
    assert_int_equal(estimate(&m, &below, &r).fits_state, FITS_NO);
    r = short_recipe(STRATEGY_DDP, PRECISION_BF16_MIXED);
    assert_int_equal(memory_min_gpus(&m, &c, &r, 4096), 0); // more replicas never help
}

// Every rank's activations are its own: more GPUs change states, never activations.
static void activations_do_not_shard(void **state) {
    (void)state;
    struct model m = catalog("llama-2-7b");
    struct recipe r = short_recipe(STRATEGY_FSDP2, PRECISION_BF16_MIXED);
    r.seq = 8192;
    struct cluster one = plain_cluster(1, 8, 79 * GIB, 0), eight = plain_cluster(8, 8, 79 * GIB, 0);
    double a = (double)estimate(&m, &one, &r).classes_bytes[MEMORY_ACTIVATIONS];
    near((double)estimate(&m, &eight, &r).classes_bytes[MEMORY_ACTIVATIONS], a, 1e-9,
         "activations");
}

static void hpz_keeps_a_second_shard(void **state) {
    (void)state;
    struct model m = catalog("qwen1.5-72b");
    struct cluster c = plain_cluster(64, 8, 79 * GIB, 0);
    struct recipe r = short_recipe(STRATEGY_ZEROPP, PRECISION_BF16_MIXED);
    r.seq = 2048;
    double with = (double)estimate(&m, &c, &r).classes_bytes[MEMORY_GATHER];
    r.hpz = false;
    double without = (double)estimate(&m, &c, &r).classes_bytes[MEMORY_GATHER];
    within((with - without) / GIB, 16.9, 0.3, "secondary shard");
}

static double tracked_case(const char *variant, uint64_t seq) {
    bool tied = strcmp(variant, "tied") == 0;
    struct model m = {.name = "decoder"};
    struct err e = {0};
    assert_true(model_architecture(&m, "llama", &e));
    m.layers = 8;
    m.hidden = 1024;
    m.ffn = 2816;
    m.heads = m.kv_heads = 16;
    m.vocab = 16384;
    m.max_positions = 8192;
    m.tied_embeddings = tied;
    if (!model_finish(&m, arena, &e))
        fail_msg("%s", e.text);
    enum strategy s = STRATEGY_FSDP2;
    if (strcmp(variant, "noreshard") == 0)
        s = STRATEGY_FSDP2_NORESHARD;
    else if (strcmp(variant, "hsdp") == 0)
        s = STRATEGY_HSDP;
    struct recipe r = short_recipe(s, PRECISION_BF16_MIXED);
    r.seq = seq;
    r.shard_group = s == STRATEGY_HSDP ? 4 : 0;
    r.recompute = strcmp(variant, "recompute") == 0 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
    struct cluster c = plain_cluster(8, 8, 80 * GIB, 0);
    return (double)estimate(&m, &c, &r).allocated_peak_bytes / (1024 * 1024);
}

// torch's own tracker of FSDP2's memory: tests/oracle/fsdp2_memory.py.
static void fsdp2_peaks_as_tracked(void **state) {
    (void)state;
    char path[4096];
    struct err e = {0};
    struct json_node cases;
    snprintf(path, sizeof path, "%s/tests/oracle/golden/fsdp2_memory.json",
             getenv("SHARDPLAN_SOURCE_ROOT"));
    struct json_doc *doc = json_read_file(path, &e);
    if (!doc)
        fail_msg("%s", e.text);
    assert_true(json_find(json_root(doc), "cases", &cases) && json_size(cases) >= 11);
    for (size_t i = 0; i < json_size(cases); i++) {
        struct json_node one = json_at(cases, i);
        const char *variant = NULL;
        uint64_t seq = 0;
        double mib = 0;
        assert_true(json_get_string(one, "variant", true, &variant, &e) &&
                    json_get_u64(one, "seq", true, &seq, &e) &&
                    json_get_double(one, "peak_mib", true, &mib, &e));
        near(tracked_case(variant, seq), mib, 0.03, variant);
    }
    json_destroy(doc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bucket_table),
        cmocka_unit_test(phases_sum_exactly),
        cmocka_unit_test(step_transients),
        cmocka_unit_test(no_sync_costs_whole_gradients),
        cmocka_unit_test(host_of_optimizer_offload),
        cmocka_unit_test(pinned_rounding),
        cmocka_unit_test(twin_flow_moves_whole_sub_groups),
        cmocka_unit_test(nvme_bytes),
        cmocka_unit_test(seventy_billion_needs_over_a_terabyte),
        cmocka_unit_test(load_and_checkpoint),
        cmocka_unit_test(fits_has_three_answers),
        cmocka_unit_test(fewest_gpus),
        cmocka_unit_test(activations_do_not_shard),
        cmocka_unit_test(hpz_keeps_a_second_shard),
        cmocka_unit_test(fsdp2_peaks_as_tracked),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
