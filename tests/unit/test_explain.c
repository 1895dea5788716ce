// SPDX-License-Identifier: Apache-2.0
// Sizes name their cause; lines of public logs are read in both generations of their format.
#include "judge/explain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct run {
    struct arena *a;
    struct model model;
    struct cluster cluster;
    struct recipe recipe;
    struct explain_request q;
    struct explain_result r;
};

static void load(struct run *x, const char *model, const char *cluster) {
    struct err e = {0};
    memset(x, 0, sizeof *x);
    x->a = arena_create();
    if (!model_load(model, x->a, &x->model, &e))
        fail_msg("%s", e.text);
    x->q.model = &x->model;
    if (cluster == NULL)
        return;
    if (!cluster_load(cluster, x->a, &x->cluster, &e))
        fail_msg("%s", e.text);
    x->q.cluster = &x->cluster;
}

static void use(struct run *x, enum strategy s, uint64_t seq) {
    struct err e = {0};
    recipe_defaults(s, &x->recipe);
    x->recipe.seq = seq;
    if (!recipe_resolve(&x->recipe, &x->model, &x->cluster, &e))
        fail_msg("%s", e.text);
    x->q.recipe = &x->recipe;
}

static void read_text(struct run *x, const char *text) {
    char path[] = "/tmp/explain_XXXXXX";
    struct err e = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    x->q.path = path;
    if (!explain_log(&x->q, x->a, &x->r, &e))
        fail_msg("%s", e.text);
    unlink(path);
}

static const struct explain_event *kind(const struct run *x, enum explain_kind k) {
    for (size_t i = 0; i < x->r.count; i++)
        if (x->r.events[i].kind == k)
            return &x->r.events[i];
    fail_msg("no %s event", explain_kind_names[k]);
    return NULL;
}

// A size as PyTorch prints it, and the words its first cause must have.
static void test_sizes_name_their_cause(void **state) {
    (void)state;
    static const struct {
        const char *model, *cluster, *size;
        enum strategy s;
        uint64_t seq;
        const char *cause;
    } rows[] = {
        {"llama-3-70b", "dgx-h100", "3.73 GiB", STRATEGY_ZERO3, 4096, "one fp32 sub-group"},
        {"llama-2-7b", "dgx-h100", "3.14 GiB", STRATEGY_ZERO3, 4096,
         "parameters x 4 B / 8 GPUs: the fp32 partition"},
        {"llama-3-8b", "dgx-h100", "3.91 GiB", STRATEGY_FSDP2, 8192, "logits in fp32"},
        {"llama-3-8b", "dgx-h100", "1.96 GiB", STRATEGY_FSDP2, 8192, "logits in 16 bit"},
        {"llama-3-8b", "2xA100-40GB", "14.96 GiB", STRATEGY_ZERO2, 4096,
         "parameters x 4 B / 2 GPUs"},
        {"llama-3-8b", "dgx-h100", "14.96 GiB", STRATEGY_ZERO2, 4096,
         "the whole model in 16 bit: a full copy"},
        {"llama-2-7b", "dgx-h100", "954.00 MiB", STRATEGY_ZERO2, 4096,
         "a gradient bucket (reduce_bucket_size 5e+08"},
        {"llama-3-70b", "dgx-h100", "1.59 GiB", STRATEGY_FSDP2, 4096, "the gathered unit layers"},
        {"llama-2-7b", "dgx-h100", "1.00 GiB", STRATEGY_FSDP2, 4096, "attention scores, 2 B"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct run x;
        char line[256];
        load(&x, rows[i].model, rows[i].cluster);
        use(&x, rows[i].s, rows[i].seq);
        snprintf(line, sizeof line,
                 "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %s. GPU 0 has a "
                 "total capacity of 79.15 GiB of which 1.33 GiB is free.\n",
                 rows[i].size);
        read_text(&x, line);
        const struct explain_event *ev = kind(&x, EXPLAIN_OOM);
        bool found = false;
        for (size_t k = 0; k < ev->cause_count; k++)
            found |= strstr(ev->causes[k].what, rows[i].cause) != NULL;
        if (!found)
            fail_msg("%s %s: no '%s'; %s", rows[i].model, rows[i].size, rows[i].cause, ev->meaning);
        arena_destroy(x.a);
    }
}

static void test_other_sizes_have_no_cause(void **state) {
    (void)state;
    struct run x;
    load(&x, "llama-2-7b", "dgx-h100");
    use(&x, STRATEGY_ZERO3, 4096);
    read_text(&x, "CUDA out of memory. Tried to allocate 3.33 GiB. GPU 0 has a total capacity of "
                  "79.15 GiB of which 1.33 GiB is free.\n");
    assert_int_equal(kind(&x, EXPLAIN_OOM)->cause_count, 0);
    arena_destroy(x.a);
}

static void near(double got, double want) {
    if (!(fabs(got - want) < 1))
        fail_msg("%.0f, not %.0f", got, want);
}

static void test_both_generations_of_the_message(void **state) {
    (void)state;
    const double gib = 1024.0 * 1024 * 1024;
    struct run x;
    load(&x, "llama-2-7b", NULL);
    read_text(&x, "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB "
                  "(GPU 2; 79.17 GiB total capacity; 76.68 GiB already allocated; 381.31 MiB free; "
                  "77.24 GiB reserved in total by PyTorch)\n");
    const struct explain_event *ev = kind(&x, EXPLAIN_OOM);
    near(ev->asked_bytes, 896 * gib / 1024);
    near(ev->total_bytes, 79.17 * gib);
    near(ev->allocated_bytes, 76.68 * gib);
    near(ev->free_bytes, 381.31 * gib / 1024);
    near(ev->reserved_bytes, 77.24 * gib);
    arena_destroy(x.a);
    load(&x, "llama-2-7b", NULL);
    read_text(&x,
              "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.74 GiB. GPU "
              "0 has a total capacty of 79.15 GiB of which 1.33 GiB is free. Process 55179 has "
              "77.81 GiB memory in use. Of the allocated memory 57.88 GiB is allocated by "
              "PyTorch, and 17.62 GiB is reserved by PyTorch but unallocated.\n");
    ev = kind(&x, EXPLAIN_OOM);
    near(ev->asked_bytes, 3.74 * gib);
    near(ev->total_bytes, 79.15 * gib);
    near(ev->free_bytes, 1.33 * gib);
    near(ev->allocated_bytes, 57.88 * gib);
    near(ev->reserved_bytes, (57.88 + 17.62) * gib);
    assert_non_null(strstr(ev->meaning, "fragmentation"));
    assert_non_null(strstr(ev->advice, "expandable_segments"));
    arena_destroy(x.a);
}

static void test_phase_comes_from_the_trace(void **state) {
    (void)state;
    struct run x;
    load(&x, "llama-2-7b", NULL);
    read_text(&x,
              "Traceback (most recent call last):\n  File \"train.py\", line 90, in <module>\n"
              "    optimizer.step()\n  File \"torch/optim/adamw.py\", line 599, in "
              "_multi_tensor_adamw\n    exp_avg_sq_sqrt = torch._foreach_sqrt(x)\n"
              "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 66.00 MiB. GPU 0 has "
              "a total capacity of 79.15 GiB of which 1.33 MiB is free.\n");
    assert_string_equal(kind(&x, EXPLAIN_OOM)->phase, "step");
    const struct explain_event *ev = kind(&x, EXPLAIN_OOM);
    assert_non_null(strstr(ev->cause_count ? ev->meaning : ev->advice, "full already"));
    arena_destroy(x.a);
}

static void test_public_log_lines(void **state) {
    (void)state;
    struct run x;
    struct err e = {0};
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/fixtures/deepspeed_log_lines.txt",
             getenv("SHARDPLAN_SOURCE_ROOT"));
    load(&x, "llama-2-7b", NULL);
    x.q.path = path;
    if (!explain_log(&x.q, x.a, &x.r, &e))
        fail_msg("%s", e.text);
    assert_non_null(strstr(kind(&x, EXPLAIN_MEMORY_USAGE)->meaning, "After creating fp32"));
    assert_int_equal(kind(&x, EXPLAIN_HOST_KILLED)->line, 19);
    assert_non_null(kind(&x, EXPLAIN_CACHE_FLUSH)->advice);
    assert_non_null(strstr(kind(&x, EXPLAIN_SETTING)->meaning, "483840 elements"));
    assert_non_null(strstr(kind(&x, EXPLAIN_ESTIMATE)->meaning, "states only"));
    size_t ooms = 0, automatic = 0, full = 0;
    for (size_t i = 0; i < x.r.count; i++) {
        ooms += x.r.events[i].kind == EXPLAIN_OOM;
        automatic += x.r.events[i].kind == EXPLAIN_SETTING &&
                     strstr(x.r.events[i].meaning, "\"auto\"") != NULL;
        full += strstr(x.r.events[i].meaning, "host memory is 95.3 % full") != NULL;
    }
    assert_int_equal(ooms, 3);      // two of CUDA, one of HIP
    assert_int_equal(automatic, 2); // hidden 4096
    assert_int_equal(full, 1);
    assert_int_equal(x.r.first->kind, EXPLAIN_OOM);
    arena_destroy(x.a);
}

// Reserved memory that does not fall with the number of GPUs is a whole copy.
static void test_replica_in_memory_usage(void **state) {
    (void)state;
    struct run x;
    load(&x, "galactica-30b", NULL);
    read_text(&x, "[2023-02-25 10:00:00,000] [INFO] [utils.py:803:see_memory_usage] MA 0.58 GB"
                  "         Max_MA 55.80 GB         CA 55.83 GB         Max_CA 56 GB \n");
    const struct explain_event *ev = kind(&x, EXPLAIN_MEMORY_USAGE);
    assert_true(ev->cause_count > 0);
    assert_non_null(strstr(ev->meaning, "the whole model in 16 bit: a full copy"));
    arena_destroy(x.a);
}

static void test_other_lines(void **state) {
    (void)state;
    struct run x;
    load(&x, "llama-3-70b", "dgx-a100");
    use(&x, STRATEGY_ZERO3, 4096);
    x.recipe.pipeline_read = true;
    x.recipe.offload_optimizer = OFFLOAD_CPU;
    read_text(
        &x,
        "nodeA:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n"
        "nodeA:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
        "nodeA:1:1 [1] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
        "AssertionError: ran out of swap buffers\n"
        "[E ProcessGroupNCCL.cpp:474] [Rank 1] Watchdog caught collective operation timeout\n"
        "slurmstepd: error: Detected 1 oom-kill event(s). oom-kill:constraint=CONSTRAINT_MEMCG\n"
        "[ERROR] [launch.py:325:sigkill_handler] python exits with return code = -9\n");
    assert_non_null(strstr(kind(&x, EXPLAIN_SWAP_BUFFERS)->advice, "buffer_count 8"));
    assert_int_equal(kind(&x, EXPLAIN_HOST_KILLED)->count, 2);
    assert_non_null(strstr(kind(&x, EXPLAIN_HOST_KILLED)->meaning, "per node; the node has"));
    assert_non_null(kind(&x, EXPLAIN_TIMEOUT));
    size_t nccl = 0;
    for (size_t i = 0; i < x.r.count; i++)
        nccl += x.r.events[i].kind == EXPLAIN_NCCL;
    assert_int_equal(nccl, 2);
    arena_destroy(x.a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_name_their_cause),
        cmocka_unit_test(test_other_sizes_have_no_cause),
        cmocka_unit_test(test_both_generations_of_the_message),
        cmocka_unit_test(test_phase_comes_from_the_trace),
        cmocka_unit_test(test_public_log_lines),
        cmocka_unit_test(test_replica_in_memory_usage),
        cmocka_unit_test(test_other_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
