// SPDX-License-Identifier: Apache-2.0
// Clean configurations stay silent; costs with a known right answer.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "check_reading.h"

static const struct row clean[] = {
    {.model = M8, .cluster = H100, .text = DS3(""), .sets = {RECOMPUTE}},
    {.model = M8, .cluster = "2xdgx-h100", .text = DS3(""), .sets = {RECOMPUTE}},
    {.model = M8,
     .cluster = "2xdgx-h100",
     .text = "{\"bf16\": {\"enabled\": true}, \"optimizer\": {\"type\": \"Muon\"}, "
             "\"zero_optimization\": {\"stage\": 3, \"overlap_comm\": true, "
             "\"reduce_scatter\": false}}",
     .sets = {RECOMPUTE}},
    {.model = M8, .cluster = H100, .text = DS2(""), .sets = {RECOMPUTE}},
    {.model = M8, .cluster = H100, .text = DS1(""), .sets = {RECOMPUTE}},
    {.model = M8, .cluster = H100, .text = FSDP2("")},
    {.model = M8, .cluster = H100, .text = FSDP2("num_machines: 1\nnum_processes: 8\n")},
    {.model = M8, .cluster = "2xdgx-h100", .text = FSDP2("num_machines: 2\nnum_processes: 16\n")},
    {.model = M8, .cluster = H100, .text = FSDP1("")},
    {.model = "llama-2-7b", .cluster = "dgx-a100", .text = DS3(""), .sets = {RECOMPUTE}},
    {.model = "llama-2-7b", .cluster = "dgx-a100", .text = FSDP2("")},
    {.model = "qwen2.5-7b", .cluster = H100, .text = DS2(""), .sets = {RECOMPUTE}},
    {.model = "llama-3-70b", .cluster = "8xdgx-h100", .text = FSDP2("")},
    {.model = "llama-3-70b", .cluster = "8xdgx-h100", .text = DS3(""), .sets = {RECOMPUTE}},
    {.model = "llama-3.2-1b", .cluster = H100, .text = DS1(""), .sets = {RECOMPUTE}},
    {.model = "llama-3.2-1b",
     .cluster = H100,
     .text = "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 8\n",
     .sets = {RECOMPUTE}},
    {.model = M8,
     .cluster = H100,
     .text = "{\"bf16\": {\"enabled\": \"auto\"}, \"train_micro_batch_size_per_gpu\": \"auto\", "
             "\"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\", "
             "\"zero_optimization\": {\"stage\": 3, \"overlap_comm\": true, "
             "\"contiguous_gradients\": true, \"sub_group_size\": 1e9, \"reduce_bucket_size\": "
             "\"auto\", \"stage3_prefetch_bucket_size\": \"auto\", "
             "\"stage3_param_persistence_threshold\": \"auto\", \"stage3_max_live_parameters\": "
             "1e9, \"stage3_max_reuse_distance\": 1e9, "
             "\"stage3_gather_16bit_weights_on_model_save\": true}, \"steps_per_print\": 2000, "
             "\"wall_clock_breakdown\": false}",
     .sets = {RECOMPUTE}},
    {.model = M8,
     .cluster = H100,
     .text = "{\"fully_shard\": {\"reshard_after_forward\": true, \"mp_policy\": {\"param_dtype\": "
             "\"bfloat16\", \"reduce_dtype\": \"float32\"}, \"offload_policy\": null}}",
     .sets = {RECOMPUTE}},
    {.model = M8,
     .cluster = "2xdgx-h100",
     .text = "[training]\nlocal_batch_size = 1\nseq_len = 4096\n"
             "mixed_precision_param = \"bfloat16\"\nmixed_precision_reduce = \"float32\"\n"
             "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 8\n"
             "[activation_checkpoint]\nmode = \"full\"\n"},
    {.model = M8,
     .cluster = "2xdgx-h100",
     .text = DS3(", \"zero_hpz_partition_size\": 8, \"zero_quantized_weights\": true, "
                 "\"zero_quantized_gradients\": true"),
     .sets = {RECOMPUTE}},
    {.model = M8, .cluster = H100, .text = FSDP2(""), .sets = {"recipe.lora_rank=16"}},
    {.model = "mixtral-8x7b",
     .cluster = "4xdgx-h100",
     .text = DS3(", \"leaf_module\": {\"classes\": [\"MixtralSparseMoeBlock\"]}"),
     .sets = {RECOMPUTE}},
    {.model = M8,
     .cluster = H100,
     .text = FSDP2(""),
     .environment = "export OMP_NUM_THREADS=8\n"
                    "export NCCL_P2P_DISABLE=0\nexport NCCL_IB_DISABLE=0\n"},
};

static void test_clean_is_silent(void **state) {
    (void)state;
    size_t bad = 0;
    const size_t n = sizeof clean / sizeof clean[0];
    for (size_t i = 0; i < n; i++) {
        struct run x;
        start(&x, &clean[i]);
        if (x.r.count > 0) {
            print_message("%s on %s\n%s\n", clean[i].model, clean[i].cluster, clean[i].text);
            print(&x.r);
            bad++;
        }
        finish(&x);
    }
    assert_int_equal(bad, 0);
    assert_true(n >= 20);
}

// Costs with a known right answer.
static void test_costs(void **state) {
    (void)state;
    struct run x;
    struct row row = {.model = M8,
                      .cluster = H100,
                      .sets = {RECOMPUTE},
                      .text = DS1(", \"data_types\": {\"grad_accum_dtype\": \"fp32\"}")};
    start(&x, &row); // 4 bytes per parameter, not sharded
    assert_true(find(&x.r, "accumulation-type")->cost_bytes == 4.0 * 8030261248.0);
    finish(&x);
    row.text = ACC_DS3("  zero3_init_flag: false\n"); // one 16-bit copy
    start(&x, &row);
    assert_true(find(&x.r, "load-replica")->cost_bytes == 2.0 * 8030261248.0);
    finish(&x);
    // Old releases: 4.5 x 5e8 elements x 2 B x 2 buckets = 8.38 GiB; today 1.86 GiB.
    row.text = "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 2, "
               "\"overlap_comm\": true, \"reduce_bucket_size\": 5e8}}";
    row.sets[1] = "recipe.framework_version=deepspeed-0.3.16";
    start(&x, &row);
    assert_true(find(&x.r, "bucket-size")->cost_bytes == 9e9);
    finish(&x);
    row.sets[1] = NULL;
    start(&x, &row);
    assert_null(find(&x.r, "bucket-size")); // 2e9 of 80 GB
    finish(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean_is_silent),
        cmocka_unit_test(test_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
