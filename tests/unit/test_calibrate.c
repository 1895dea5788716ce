// SPDX-License-Identifier: Apache-2.0
// Laws that made the measurements are found again, and only what was measured changes.
#include "base/stats.h"
#include "base/units.h"
#include "cost/compute.h"
#include "describe/gpu_kernels.h"
#include "judge/calibrate.h"
#include "judge/validate_map.h"
#include "plan/step.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct cluster load(const char *name, struct arena *a) {
    struct cluster c;
    struct err e = {0};
    assert_true(cluster_load(name, a, &c, &e));
    return c;
}

static struct measure_result result(const char *kind, const char *backend, double seconds) {
    struct measure_result r;
    measure_result_init(&r);
    r.kind = kind;
    r.backend = backend;
    r.median_s = seconds;
    r.iterations = 1;
    return r;
}

static struct calibration fit(const struct cluster *c, struct measure_result *r, size_t n,
                              struct arena *a) {
    const struct measurement m = {.results = r, .count = n};
    struct calibration out;
    struct err e = {0};
    if (!calibrate(c, &m, 1, a, &out, &e))
        fail_msg("%s", e.text);
    return out;
}

static void set(struct gpu *g, enum kernel_constant k, double value) {
    g->kernels[STACK_EAGER].constants[k] = figure_known(value, PROVENANCE_MEASURED, "truth");
}

static const uint64_t shapes[][3] = {
    {4096, 4096, 4096},  {8192, 8192, 8192},  {2048, 2048, 2048}, {4096, 12288, 4096},
    {8192, 4096, 11008}, {4096, 32000, 4096}, {1024, 1024, 1024}, {16384, 5120, 5120},
    {4096, 1024, 4096},  {2048, 8192, 512},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

static struct gpu slower_gpu(const struct gpu *g) {
    struct gpu truth = *g;
    set(&truth, KERNEL_GEMM_FRACTION, 0.9 * gpu_kernel(g, STACK_EAGER, KERNEL_GEMM_FRACTION).value);
    set(&truth, KERNEL_GEMM_HALF_TILES, 40);
    set(&truth, KERNEL_LAUNCH_S, 6e-6);
    return truth;
}

static void products_give_the_law(void **state) {
    struct arena *a = arena_create();
    struct cluster c = load("dgx-a100", a);
    struct gpu truth = slower_gpu(&c.gpu);
    struct measure_result r[SHAPES];
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        struct gemm_shape s = {shapes[i][0], shapes[i][1], shapes[i][2], 1, DTYPE_BF16};
        double noise = 1 + 0.005 * stats_random_normal(3, 0, i);
        r[i] = result("gemm", "gemm", compute_gemm_s(&truth, STACK_EAGER, &s) * noise);
        r[i].dtype = "bf16";
        r[i].m = s.m, r[i].n = s.n, r[i].k = s.k;
    }
    struct calibration f = fit(&c, r, SHAPES, a);
    assert_int_equal(f.gemm.points, SHAPES);
    assert_null(f.gemm.refused);
    assert_true(f.gemm.before > 0.08);
    assert_true(f.gemm.left_out < 0.02 && f.gemm.left_out < f.gemm.before);
    struct figure share = gpu_kernel(&f.cluster.gpu, STACK_EAGER, KERNEL_GEMM_FRACTION);
    double right = gpu_kernel(&truth, STACK_EAGER, KERNEL_GEMM_FRACTION).value;
    assert_int_equal(share.provenance, PROVENANCE_FITTED);
    assert_true(share.low <= right && right <= share.high && share.high / share.low < 1.1);
    struct gemm_shape unseen = {8192, 28672, 8192, 1, DTYPE_BF16};
    double wanted = compute_gemm_s(&truth, STACK_EAGER, &unseen);
    assert_true(fabs(compute_gemm_s(&f.cluster.gpu, STACK_EAGER, &unseen) / wanted - 1) < 0.02);
    arena_destroy(a);
}

// A host's products say nothing about a GPU.
static void products_of_the_host_change_nothing(void **state) {
    struct arena *a = arena_create();
    struct cluster c = load("dgx-a100", a);
    struct measure_result r[4];
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        r[i] = result("gemm", "host", 0.1);
        r[i].dtype = "fp32";
        r[i].m = r[i].n = r[i].k = 512 << i;
    }
    r[3] = result("nvme", "nvme", 0.1);
    r[3].direction = "read";
    r[3].algbw_bytes_per_s = 5e9;
    struct calibration f = fit(&c, r, 4, a);
    assert_int_equal(f.gemm.points, 0);
    assert_int_equal(f.rate_count, 1);
    assert_true(f.cluster.gpu.matmul_fraction[DTYPE_FP32].value ==
                    c.gpu.matmul_fraction[DTYPE_FP32].value ||
                !figure_is_known(c.gpu.matmul_fraction[DTYPE_FP32]));
    arena_destroy(a);
}

static void memory_kernels_give_rate_and_launch(void **state) {
    struct arena *a = arena_create();
    struct cluster c = load("dgx-h100", a);
    struct measure_result r[6];
    double rate = 2.5e12, launch_s = 5e-6;
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        double bytes = (double)((uint64_t)UNITS_MIB << (2 * i));
        r[i] = result("memory", "cuda", launch_s + bytes / rate);
        r[i].algorithm = "triad";
        r[i].algbw_bytes_per_s = bytes / r[i].median_s;
    }
    struct calibration f = fit(&c, r, 6, a);
    double share = gpu_kernel(&f.cluster.gpu, STACK_EAGER, KERNEL_HBM_FRACTION).value;
    assert_true(fabs(share * c.gpu.hbm_bytes_per_s.value / rate - 1) < 0.01);
    double launch = gpu_kernel(&f.cluster.gpu, STACK_EAGER, KERNEL_LAUNCH_S).value;
    assert_true(fabs(launch / launch_s - 1) < 0.05);
    // The host's own memory is another rule's.
    assert_true(f.cluster.host_dram_bytes_per_s.value == c.host_dram_bytes_per_s.value);
    arena_destroy(a);
}

static void adam_holds_for_its_software_only(void **state) {
    struct arena *a = arena_create();
    struct cluster c = load("dgx-a100", a);
    struct recipe own = {.adam_software = ADAM_OWN}, theirs = {.adam_software = ADAM_DEEPSPEED};
    struct measure_result r = result("adam", "adam", 2.0);
    (void)state;
    r.n = 1000000000;
    r.software = "shardbench";
    struct calibration f = fit(&c, &r, 1, a);
    assert_true(fabs(compute_cpu_adam_s(&f.cluster, &own, 1e9).value / 2.0 - 1) < 1e-9);
    assert_true(compute_cpu_adam_s(&f.cluster, &theirs, 1e9).value ==
                compute_cpu_adam_s(&c, &theirs, 1e9).value);
    r.software = "DeepSpeed 0.19.6";
    f = fit(&c, &r, 1, a);
    assert_true(fabs(compute_cpu_adam_s(&f.cluster, &theirs, 1e9).value / 2.0 - 1) < 1e-9);
    // A GPU's Adam is no host's.
    r.backend = "cuda";
    const struct measurement m = {.results = &r, .count = 1};
    struct err e = {0};
    assert_false(calibrate(&c, &m, 1, a, &f, &e));
    arena_destroy(a);
}

static void copies_at_once_give_the_switch(void **state) {
    struct arena *a = arena_create();
    struct cluster c = load("dgx-a100", a);
    struct measure_result r[5];
    (void)state;
    r[0] = result("copy", "cuda", 0.01);
    r[0].direction = "h2d";
    r[0].algbw_bytes_per_s = 25e9;
    for (size_t i = 1; i < 5; i++) {
        r[i] = r[0];
        r[i].concurrent = true;
        r[i].group = i % 2 ? "0" : "1";
        r[i].algbw_bytes_per_s = 12e9 + (double)i * 1e8;
    }
    struct calibration f = fit(&c, r, 5, a);
    assert_true(f.cluster.gpu.pcie_h2d_bytes_per_s.value == 25e9);
    double each = f.cluster.pcie_switch_bytes_per_s.value / (double)c.gpus_per_pcie_switch;
    assert_true(fabs(each / 12.1e9 - 1) < 1e-9); // the slowest
    arena_destroy(a);
}

// ---- training runs ------------------------------------------------------------------------------

#define RUNS 6
struct planned_run {
    int seq, micro_batch, gpus, layers;
};
static const struct planned_run planned[RUNS] = {{2048, 1, 8, 32},  {2048, 4, 8, 32},
                                                 {4096, 1, 8, 32},  {4096, 2, 8, 16},
                                                 {8192, 1, 16, 32}, {1024, 8, 8, 24}};

static void write_runs(const char *path, const char *gpu, const double *step_s) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < RUNS; i++)
        fprintf(f,
                "%s{\"id\": \"r%d\", \"tier\": \"core\", \"source\": \"ours\", \"model\": "
                "{\"name\": \"ours\", \"layers\": %d, \"hidden\": 4096, \"heads\": 32, "
                "\"kv_heads\": 32, \"ffn\": 11008, \"vocab\": 32000, \"gated_mlp\": true}, "
                "\"gpu\": \"%s\", \"gpus_total\": %d, \"gpus_per_node\": 8, \"framework\": "
                "\"torch FSDP\", \"strategy\": \"fsdp_full\", \"seq_len\": %d, "
                "\"micro_batch_per_gpu\": %d, \"grad_accum\": 1, \"param_dtype\": \"bf16\", "
                "\"reduce_dtype\": \"bf16\", \"optimizer\": \"adamw\", "
                "\"activation_checkpointing\": \"none\", \"attention\": \"flash\", \"measured\": "
                "{\"step_time_s\": %.9g}}",
                i ? ",\n" : "[", i, planned[i].layers, gpu, planned[i].gpus, planned[i].seq,
                planned[i].micro_batch, step_s[i]);
    fputs("]\n", f);
    assert_int_equal(fclose(f), 0);
}

static double simulated(const struct run_row *row, const struct gpu *g, struct arena *a,
                        struct step_time *t) {
    struct run_setup s;
    struct err e = {0};
    if (!validate_map_row(row, a, &s, &e))
        fail_msg("%s", e.text);
    s.cluster.gpu = *g;
    struct step_request q = {.model = &s.model, .cluster = &s.cluster, .recipe = &s.recipe};
    assert_true(step_simulate(&q, a, t, NULL, &e));
    return t->step_s;
}

static void runs_move_the_constants(void **state) {
    struct arena *a = arena_create();
    struct cluster c = load("dgx-h100", a);
    struct gpu truth = c.gpu;
    struct calibration out;
    struct run_row *rows;
    struct step_time before, after;
    double step_s[RUNS] = {1, 1, 1, 1, 1, 1};
    size_t n;
    struct err e = {0};
    char path[] = "/tmp/shardplan-runs-XXXXXX";
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    set(&truth, KERNEL_GEMM_FRACTION,
        0.85 * gpu_kernel(&c.gpu, STACK_EAGER, KERNEL_GEMM_FRACTION).value);
    write_runs(path, c.gpu.id, step_s);
    assert_true(validate_row_read(path, a, &rows, &n, &e));
    for (size_t i = 0; i < RUNS; i++)
        step_s[i] = simulated(&rows[i], &truth, a, &before);
    write_runs(path, c.gpu.id, step_s);
    assert_true(calibrate(&c, NULL, 0, a, &out, &e));
    if (!calibrate_runs(path, a, &out, &e))
        fail_msg("%s", e.text);
    assert_int_equal(out.runs.law.points, RUNS);
    assert_true(out.runs.law.before > 0.05);
    assert_null(out.runs.law.refused);
    assert_true(out.runs.law.left_out < 0.02);
    simulated(&rows[0], &c.gpu, a, &before);
    simulated(&rows[0], &out.cluster.gpu, a, &after);
    assert_true(fabs(after.step_s / step_s[0] - 1) < 0.02);
    assert_true((after.step_high_s - after.step_low_s) / after.step_s <
                0.9 * (before.step_high_s - before.step_low_s) / before.step_s);
    // Of another GPU: nothing to use.
    write_runs(path, "a100-sxm4-80gb", step_s);
    assert_false(calibrate_runs(path, a, &out, &e));
    assert_int_equal(e.kind, ERR_RESOURCE);
    unlink(path);
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_give_the_law),
        cmocka_unit_test(products_of_the_host_change_nothing),
        cmocka_unit_test(memory_kernels_give_rate_and_launch),
        cmocka_unit_test(adam_holds_for_its_software_only),
        cmocka_unit_test(copies_at_once_give_the_switch),
        cmocka_unit_test(runs_move_the_constants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
