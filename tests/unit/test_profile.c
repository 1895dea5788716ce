// SPDX-License-Identifier: Apache-2.0
// Profiler traces and memory snapshots: totals worked by hand on fixtures of the public formats,
// every cut of them refused with a line.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json_stream.h"
#include "describe/profile.h"
#include "describe/snapshot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The starts of the fixture's three ProfilerSteps.
static const double step_2_us = 5194651407397.12, step_3_us = 5194651599361.57,
                    step_4_us = 5194651684102.591;

static char *load(const char *name, size_t *bytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/fixtures/import/%s", getenv("SHARDPLAN_SOURCE_ROOT"),
             name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = malloc(1 << 20);
    assert_non_null(text);
    *bytes = fread(text, 1, 1 << 20, f);
    fclose(f);
    return text;
}

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("%.12g instead of %.12g", got, want);
}

// One step lasts 1 ms: gemm 0-400, flash 400-500, all-gather 100-300 (hidden), reduce-scatter
// 450-650 (50 us of it hidden), norm 700-750, copy 740-800 (10 us hidden), Adam 800-900.
static void trace_by_hand(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct warnings w = {0};
    struct profile p;
    struct err e = {0};
    size_t n;
    char *text = load("kineto_2steps.json", &n);
    assert_true(profile_parse(text, n, "t.json", a, &w, &p, &e));
    assert_int_equal(p.from, PROFILE_STEPS_GPU);
    assert_int_equal(p.step_count, 2);
    assert_int_equal(p.steps[0].number, 10);
    assert_int_equal(p.rank, 3);
    assert_int_equal(p.world, 8);
    assert_string_equal(p.gpu, "NVIDIA H100 80GB HBM3");
    assert_int_equal(p.kernels, 16);
    assert_int_equal(p.outside, 2);
    near(p.step_s, 1000e-6);
    near(p.compute_s, 650e-6);
    near(p.comm_s, 400e-6);
    near(p.exposed_comm_s, 150e-6);
    near(p.exposed_copy_s, 50e-6);
    near(p.idle_s, 150e-6);
    near(p.classes[PROFILE_GEMM].busy_s, 400e-6);
    near(p.classes[PROFILE_OPTIMIZER].busy_s, 100e-6);
    near(p.classes[PROFILE_ALL_GATHER].payload_bytes, 2048);
    near(p.classes[PROFILE_REDUCE_SCATTER].payload_bytes, 8192);
    near(p.classes[PROFILE_COPY_H2D].busy_s, 60e-6);
    assert_int_equal(p.stream_count, 4);
    near(p.streams[0].busy_s, 650e-6);
    assert_int_equal(p.streams[2].largest, PROFILE_REDUCE_SCATTER);
    assert_int_equal(w.count, 1);
    free(text);
    arena_destroy(a);
}

// 16 MiB of parameters and 2 MiB without a stack are kept; 5 MiB from before are freed in between;
// 8 activations, 6 gathered and 12 of the loss meet at 49 MiB.
static void snapshot_by_hand(void **state) {
    (void)state;
    const uint64_t mib = 1 << 20;
    struct arena *a = arena_create();
    struct warnings w = {0};
    struct snapshot s;
    struct err e = {0};
    size_t n;
    char *text = load("memory_snapshot.json", &n);
    assert_true(snapshot_parse(text, n, "s.json", a, &w, &s, &e));
    assert_true(s.has_history);
    assert_int_equal(s.allocated_start_bytes, 23 * mib);
    assert_int_equal(s.allocated_peak_bytes, 49 * mib);
    assert_int_equal(s.allocated_end_bytes, 34 * mib);
    assert_int_equal(s.reserved_peak_bytes, 192 * mib);
    assert_int_equal(s.peak_framed_bytes, 42 * mib);
    assert_int_equal(s.peak_bytes[SNAPSHOT_PARAMS], 16 * mib);
    assert_int_equal(s.peak_bytes[SNAPSHOT_KEPT], 2 * mib);
    assert_int_equal(s.peak_bytes[SNAPSHOT_UNKNOWN], 5 * mib);
    assert_int_equal(s.peak_bytes[SNAPSHOT_ACTIVATIONS], 8 * mib);
    assert_int_equal(s.peak_bytes[SNAPSHOT_GATHER], 6 * mib);
    assert_int_equal(s.peak_bytes[SNAPSHOT_LOGITS], 12 * mib);
    assert_int_equal(s.own_peak_bytes[SNAPSHOT_OPTIMIZER], 16 * mib);
    assert_int_equal(s.own_peak_bytes[SNAPSHOT_STEP_TRANSIENT], 3 * mib);
    assert_int_equal(s.own_peak_bytes[SNAPSHOT_UNKNOWN], 9 * mib);
    free(text);
    arena_destroy(a);
}

static struct snapshot snapshot_of(const char *text, struct arena *a) {
    struct snapshot s;
    struct err e = {0};
    if (!snapshot_parse(text, strlen(text), "s", a, NULL, &s, &e))
        fail_msg("%s", e.text);
    return s;
}

#define EVENT(action, address, size)                                                               \
    "{\"action\":\"" action "\",\"addr\":" address ",\"size\":" size ",\"stream\":7}"

// What a side stream still uses is no longer allocated; a file of completions alone is read by
// them, and one left over from before the history says nothing.
static void a_free_counts_from_its_request(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct snapshot s = snapshot_of(
        "{\"segments\":[{\"device\":0,\"address\":1,\"total_size\":100,\"blocks\":[{\"address\":1,"
        "\"size\":30,\"state\":\"active_pending_free\"},{\"address\":31,\"size\":20,\"state\":"
        "\"active_allocated\"}]}],\"device_traces\":[[" EVENT(
            "free_completed", "90",
            "9") "," EVENT("alloc", "1", "30") "," EVENT("free_requested", "1",
                                                         "30") "," EVENT("alloc", "31", "20") "]]}",
        a);
    assert_int_equal(s.allocated_start_bytes, 0);
    assert_int_equal(s.allocated_peak_bytes, 30);
    assert_int_equal(s.allocated_end_bytes, 20);
    s = snapshot_of("{\"segments\":[],\"device_traces\":[[" EVENT("alloc", "1", "30") "," EVENT(
                        "free_completed", "1", "30") "," EVENT("alloc", "31", "20") "]]}",
                    a);
    assert_int_equal(s.allocated_peak_bytes, 30);
    assert_int_equal(s.allocated_end_bytes, 20);
    arena_destroy(a);
}

// A file of torch 2.9 (tests/oracle/kineto_trace.py): stacks, shapes, memory events, flows, three
// steps. It ran on a CPU, which is what it is refused for; with a kernel of half a millisecond in
// each step its steps are the CPU's annotations, from one's start to the next.
static void a_real_trace(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct profile p;
    struct warnings w = {0};
    struct err e = {0};
    size_t n, at;
    char *text = load("kineto_torch_cpu.json", &n);
    text[n] = 0;
    assert_true(profile_sniff(text));
    assert_false(profile_parse(text, n, "t.json", a, &w, &p, &e));
    assert_non_null(strstr(e.text, "no GPU kernel among 65 events; profile with activities="));
    const double starts_us[] = {step_2_us, step_3_us, step_4_us};
    const char *events = strstr(text, "\"traceEvents\": [");
    assert_non_null(events);
    at = (size_t)(events - text) + strlen("\"traceEvents\": [");
    char *longer = malloc(n + 4096);
    assert_non_null(longer);
    memcpy(longer, text, at);
    size_t end = at;
    for (int i = 0; i < 3; i++)
        end += (size_t)sprintf(
            longer + end,
            "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"pid\":0,\"tid\":7,"
            "\"ts\":%.3f,\"dur\":500,\"args\":{\"device\":0,\"stream\":7}},",
            starts_us[i] + 1000);
    memcpy(longer + end, text + at, n - at);
    err_clear(&e);
    if (!profile_parse(longer, end + n - at, "t.json", a, &w, &p, &e))
        fail_msg("%s", e.text);
    assert_int_equal(p.from, PROFILE_STEPS_CPU);
    assert_int_equal(p.events, 68);
    assert_int_equal(p.kernels, 3);
    assert_int_equal(p.outside, 0);
    assert_int_equal(p.step_count, 3);
    assert_int_equal(p.steps[0].number, 2);
    assert_int_equal(p.rank, 0);
    assert_int_equal(p.world, 2);
    assert_null(p.gpu);
    near(p.compute_s, 500e-6);
    assert_true(fabs(p.steps[0].step_s - (step_3_us - step_2_us) * 1e-6) < 1e-9);
    assert_true(fabs(p.steps[1].step_s - (step_4_us - step_3_us) * 1e-6) < 1e-9);
    for (size_t i = 0; i + 2 < n; i += 13) {
        err_clear(&e);
        assert_false(profile_parse(text, i, "t.json", a, NULL, &p, &e));
        assert_non_null(strstr(e.text, "cut off"));
    }
    free(longer);
    free(text);
    arena_destroy(a);
}

static void every_cut_is_refused(void **state) {
    (void)state;
    size_t n;
    char *trace = load("kineto_2steps.json", &n);
    for (size_t i = 0; i + 3 < n; i += 11) { // the last bytes are white space
        struct arena *a = arena_create();
        struct profile p;
        struct err e = {0};
        assert_false(profile_parse(trace, i, "t.json", a, NULL, &p, &e));
        assert_int_equal(e.kind, ERR_INPUT);
        assert_true(strncmp(e.text, "t.json:", 7) == 0);
        assert_non_null(strstr(e.text, "cut off"));
        arena_destroy(a);
    }
    free(trace);
    char *memory = load("memory_snapshot.json", &n);
    for (size_t i = 0; i + 3 < n; i += 7) {
        struct arena *a = arena_create();
        struct snapshot s;
        struct err e = {0};
        assert_false(snapshot_parse(memory, i, "s.json", a, NULL, &s, &e));
        assert_non_null(strstr(e.text, "cut off"));
        arena_destroy(a);
    }
    free(memory);
}

struct refusal {
    const char *text, *words;
};

static void wrong_files_have_a_line_and_a_reason(void **state) {
    (void)state;
    static const struct refusal traces[] = {
        {"{\n\"a\": 1\n}", "t:3: no traceEvents"},
        {"{\"traceEvents\": 3}", "t:1: traceEvents is no array"},
        {"{\"traceEvents\": [\n4]}", "t:2: traceEvents[0] is no object"},
        {"{\"traceEvents\": []}", "no GPU kernel among 0 events"},
        {"{\"traceEvents\": [{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\"}]}", "has no time"},
        {"{\"traceEvents\": [}", "t:1: expected a value, found '}'"},
        {"[\n\n{\"ph\" \"X\"}]", "t:3: expected ':', found '\"'"},
        {"[1e]", "expected a digit"},
        {"[\"\x01\"]", "control character 0x01"},
        {"tru", "cut off"},
        {"{\"traceEvents\": []} {}", "expected the end"},
    };
    static const struct refusal snapshots[] = {
        {"{\"device_traces\": []}", "no segments"},
        {"{\"segments\": []}", "nothing was allocated"},
        {"{\"segments\": [{\"total_size\": -1}]}", "total_size"},
        {"{\"segments\": [],\n\"device_traces\": [[{\"action\":\"alloc\",\"addr\":1}]]}",
         "t:2: the size"},
        {"{\"segments\": [{\"device\": 99, \"total_size\": 1}]}", "device 99"},
        {"3", "expected an object"},
    };
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++) {
        struct arena *a = arena_create();
        struct profile p;
        struct err e = {0};
        assert_false(profile_parse(traces[i].text, strlen(traces[i].text), "t", a, NULL, &p, &e));
        if (strstr(e.text, traces[i].words) == NULL)
            fail_msg("'%s' lacks '%s'", e.text, traces[i].words);
        arena_destroy(a);
    }
    for (size_t i = 0; i < sizeof snapshots / sizeof *snapshots; i++) {
        struct arena *a = arena_create();
        struct snapshot s;
        struct err e = {0};
        assert_false(
            snapshot_parse(snapshots[i].text, strlen(snapshots[i].text), "t", a, NULL, &s, &e));
        if (strstr(e.text, snapshots[i].words) == NULL)
            fail_msg("'%s' lacks '%s'", e.text, snapshots[i].words);
        arena_destroy(a);
    }
}

static void kernels_by_name(void **state) {
    (void)state;
    static const struct {
        const char *kernel, *collective;
        enum profile_class class;
    } rows[] = {
        {"nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT", NULL, PROFILE_GEMM},
        {"ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", NULL, PROFILE_GEMM},
        {"void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm>", NULL, PROFILE_GEMM},
        {"void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<...cutlass...>", NULL,
         PROFILE_ATTENTION},
        {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", NULL, PROFILE_ATTENTION},
        {"fmha_cutlassB_bf16_aligned_64x64_k64_sm80", NULL, PROFILE_ATTENTION},
        {"triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_3", NULL, PROFILE_NORM},
        {"triton_poi_fused_mul_silu_7", NULL, PROFILE_ELEMENTWISE},
        {"triton_tem_fused_mm_2", NULL, PROFILE_GEMM},
        {"void (anonymous namespace)::cunn_SoftMaxForward<4, float>", NULL, PROFILE_LOSS},
        {"void multi_tensor_apply_kernel<AdamFunctorMaster>", NULL, PROFILE_OPTIMIZER},
        {"ncclDevKernel_AllReduce_Sum_bf16_TREE_LL(ncclDevKernelArgsStorage<4096ul>)", NULL,
         PROFILE_ALL_REDUCE},
        {"ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclDevComm*)", NULL, PROFILE_REDUCE_SCATTER},
        {"ncclDevKernel_Reduce_Sum_bf16_RING_LL", NULL, PROFILE_REDUCE},
        {"ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", NULL, PROFILE_SEND_RECV},
        {"ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "all_to_allv",
         PROFILE_ALL_TO_ALL},
        {"ncclSymkDevKernel_AllGather_LL", "all_gather_into_tensor_coalesced", PROFILE_ALL_GATHER},
        {"my_kernel", NULL, PROFILE_OTHER},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (profile_kernel_class(rows[i].kernel, rows[i].collective) != rows[i].class)
            fail_msg("%s is %s", rows[i].kernel,
                     profile_class_names[profile_kernel_class(rows[i].kernel, rows[i].collective)]);
}

static void frames_by_name(void **state) {
    (void)state;
    assert_int_equal(snapshot_frame_class("/x/torch/optim/adam.py", "_init_group"),
                     SNAPSHOT_OPTIMIZER);
    assert_int_equal(snapshot_frame_class("/x/torch/optim/adam.py", "_foreach_sqrt"),
                     SNAPSHOT_STEP_TRANSIENT);
    assert_int_equal(
        snapshot_frame_class("/x/deepspeed/runtime/zero/stage3.py", "_create_fp32_partitions"),
        SNAPSHOT_OPTIMIZER);
    assert_int_equal(
        snapshot_frame_class("/x/deepspeed/runtime/zero/partition_parameters.py", "_all_gather"),
        SNAPSHOT_GATHER);
    assert_int_equal(snapshot_frame_class("??", "c10d::Reducer::initialize_buckets()"),
                     SNAPSHOT_BUCKET);
    assert_int_equal(snapshot_frame_class("train.py", "<module>"), SNAPSHOT_UNKNOWN);
}

// A step is what one annotation starts to the next; the CPU's stand in where the GPU has none.
static void steps_without_annotations(void **state) {
    (void)state;
    static const char text[] =
        "[{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"ts\":10,\"dur\":5,\"args\":{}},"
        "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"ts\":20,\"dur\":5,\"args\":{}}]";
    struct arena *a = arena_create();
    struct warnings w = {0};
    struct profile p;
    struct err e = {0};
    assert_true(profile_parse(text, sizeof text - 1, "t", a, &w, &p, &e));
    assert_int_equal(p.from, PROFILE_STEPS_NONE);
    near(p.step_s, 15e-6);
    near(p.compute_s, 10e-6);
    near(p.idle_s, 5e-6);
    assert_int_equal(p.outside, 0);
    assert_int_equal(w.count, 1);
    arena_destroy(a);
}

static void tokens(void **state) {
    (void)state;
    static const char text[] =
        " {\"a\\u00e9\\n\":[1.5e2,-0,NaN,null,true],\"b\":18446744073709551615}";
    static const enum json_token want[] = {
        JSON_TOKEN_OBJECT,    JSON_TOKEN_KEY,    JSON_TOKEN_ARRAY,  JSON_TOKEN_NUMBER,
        JSON_TOKEN_NUMBER,    JSON_TOKEN_NUMBER, JSON_TOKEN_NULL,   JSON_TOKEN_TRUE,
        JSON_TOKEN_ARRAY_END, JSON_TOKEN_KEY,    JSON_TOKEN_NUMBER, JSON_TOKEN_OBJECT_END,
        JSON_TOKEN_END};
    struct json_stream *s = json_stream_of_text(text, sizeof text - 1, "t");
    struct err e = {0};
    enum json_token t;
    uint64_t v = 0;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_true(json_stream_next(s, &t, &e));
        assert_int_equal(t, want[i]);
        if (i == 1)
            assert_string_equal(json_stream_text(s), "a\xc3\xa9\n");
        if (i == 3)
            near(json_stream_number(s), 150);
        if (i == 10)
            assert_true(json_stream_u64(s, &v));
    }
    assert_true(v == UINT64_MAX);
    json_stream_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens),
        cmocka_unit_test(trace_by_hand),
        cmocka_unit_test(a_real_trace),
        cmocka_unit_test(snapshot_by_hand),
        cmocka_unit_test(a_free_counts_from_its_request),
        cmocka_unit_test(steps_without_annotations),
        cmocka_unit_test(kernels_by_name),
        cmocka_unit_test(frames_by_name),
        cmocka_unit_test(wrong_files_have_a_line_and_a_reason),
        cmocka_unit_test(every_cut_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
