// SPDX-License-Identifier: Apache-2.0
// Tensor, context, pipeline and expert parallelism: bytes worked by hand, the step's tasks against
// the planned transfers, and refusals that say why.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/units.h"
#include "cost/memory.h"
#include "cost/volume.h"
#include "plan/step.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct fixture {
    struct arena *arena;
    struct model dense, mixture;
    struct cluster cluster; // two DGX H100
};

static struct fixture open_fixture(void) {
    struct fixture f = {.arena = arena_create()};
    struct err e = {0};
    assert_true(model_load("llama-3.1-70b", f.arena, &f.dense, &e));
    assert_true(model_load("mixtral-8x7b", f.arena, &f.mixture, &e));
    assert_true(cluster_load("dgx-h100", f.arena, &f.cluster, &e));
    assert_true(cluster_resize(&f.cluster, 2, 16, &e));
    return f;
}

static void near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("%.15g instead of %.15g", got, want);
}

static struct recipe recipe_of(enum strategy s, uint64_t tp, uint64_t cp, uint64_t pp,
                               uint64_t ep) {
    struct recipe r;
    recipe_defaults(s, &r);
    r.tp = tp;
    r.cp = cp;
    r.pp = pp;
    r.ep = ep;
    r.seq = 4096;
    return r;
}

static const struct transfer *find(const struct volume *v, const char *phase, const char *what) {
    for (size_t i = 0; i < v->transfer_count; i++)
        if (strcmp(v->transfers[i].phase, phase) == 0 && strcmp(v->transfers[i].what, what) == 0)
            return &v->transfers[i];
    fail_msg("no transfer of %s in %s", what, phase);
    return NULL;
}

// Payload of every collective of the graph by kind, beside the planned one.
static void same_bytes_in_the_step(const struct fixture *f, const struct model *m,
                                   const struct recipe *r, const struct volume *v) {
    double planned[COLLECTIVE_COUNT] = {0}, simulated[COLLECTIVE_COUNT] = {0};
    struct graph g;
    struct err e = {0};
    struct step_request q = {.model = m, .cluster = &f->cluster, .recipe = r};
    assert_true(step_graph(&q, f->arena, &g, &e));
    for (size_t i = 0; i < v->transfer_count; i++)
        if (v->transfers[i].kind == TRANSFER_COLLECTIVE)
            planned[v->transfers[i].collective] += v->transfers[i].payload_bytes;
    for (size_t i = 0; i < g.task_count; i++)
        if (g.tasks[i].kind == GRAPH_COLLECTIVE && g.groups[g.tasks[i].group].size > 1)
            simulated[g.tasks[i].collective] += (double)g.tasks[i].bytes;
    for (int c = 0; c < COLLECTIVE_COUNT; c++)
        if (planned[c] > 0)
            near(simulated[c], planned[c], 2e-3);
}

// Two all-reduces of 4096 x 8192 in bf16 per block and direction, 80 blocks; weights an eighth.
static void tensor(void **state) {
    (void)state;
    struct fixture f = open_fixture();
    struct recipe r = recipe_of(STRATEGY_ZERO1, 8, 1, 1, 1);
    struct err e = {0};
    struct volume v;
    struct memory m;
    assert_true(recipe_resolve(&r, &f.dense, &f.cluster, &e));
    assert_int_equal(r.world, 2);
    assert_int_equal(r.global_batch, 2);
    assert_true(volume_estimate(&f.dense, &f.cluster, &r, &v, &e));
    assert_true(memory_estimate(&f.dense, &f.cluster, &r, &m, &e));
    double each = 4096.0 * 8192 * 2;
    near(find(&v, "forward", "activations")->payload_bytes, 80 * 2 * each, 1e-12);
    near(find(&v, "backward", "activations")->payload_bytes, 80 * 2 * each, 1e-12);
    assert_int_equal(find(&v, "forward", "activations")->group_size, 8);
    assert_true(find(&v, "forward", "activations")->inter_node_bytes == 0);
    near((double)m.classes_bytes[MEMORY_PARAMS], 2.0 * (double)f.dense.parameters / 8, 1e-6);
    near((double)m.classes_bytes[MEMORY_OPTIMIZER], 8.0 * (double)f.dense.parameters / 16, 1e-6);
    same_bytes_in_the_step(&f, &f.dense, &r, &v);
    r = recipe_of(STRATEGY_ZERO1, 8, 1, 1, 1);
    r.recompute = RECOMPUTE_FULL;
    assert_true(recipe_resolve(&r, &f.dense, &f.cluster, &e));
    assert_true(volume_estimate(&f.dense, &f.cluster, &r, &v, &e));
    near(find(&v, "backward", "activations")->payload_bytes, 80 * 4 * each, 1e-12);
    same_bytes_in_the_step(&f, &f.dense, &r, &v);
    arena_destroy(f.arena);
}

// Keys and values of 8 heads of 128 over 4096 tokens: 16 MiB per block, gathered twice and reduced.
static void context(void **state) {
    (void)state;
    struct fixture f = open_fixture();
    struct recipe r = recipe_of(STRATEGY_FSDP2, 1, 4, 1, 1);
    struct err e = {0};
    struct volume v;
    struct memory m;
    assert_true(recipe_resolve(&r, &f.dense, &f.cluster, &e));
    // Context ranks hold the same weights: sixteen shards, four sequences.
    assert_int_equal(r.world, 16);
    assert_int_equal(r.shard_group, 16);
    assert_int_equal(r.global_batch, 4);
    assert_true(volume_estimate(&f.dense, &f.cluster, &r, &v, &e));
    assert_true(memory_estimate(&f.dense, &f.cluster, &r, &m, &e));
    near((double)m.classes_bytes[MEMORY_PARAMS], 4.0 * (double)f.dense.parameters / 16, 1e-3);
    assert_int_equal(find(&v, "backward", "gradients")->group_size, 16);
    double each = 2.0 * 4096 * 8 * 128 * 2;
    near(find(&v, "forward", "keys and values")->payload_bytes, 80 * each, 1e-12);
    near(find(&v, "backward", "keys and values")->payload_bytes, 80 * each, 1e-12);
    near(find(&v, "backward", "gradients of keys and values")->payload_bytes, 80 * each, 1e-12);
    arena_destroy(f.arena);
}

// Four stages of 20 blocks; with eight micro-steps the bubble makes forward and backward (8+3)/8.
static void pipeline(void **state) {
    (void)state;
    struct fixture f = open_fixture();
    struct recipe r = recipe_of(STRATEGY_ZERO1, 4, 1, 4, 1), one = r;
    struct err e = {0};
    struct volume v;
    struct step_time t;
    r.grad_accum = 8;
    assert_true(recipe_resolve(&r, &f.dense, &f.cluster, &e));
    assert_int_equal(r.world, 1);
    assert_true(volume_estimate(&f.dense, &f.cluster, &r, &v, &e));
    near(find(&v, "forward", "activations to the next stage")->payload_bytes,
         8 * 4096.0 * 8192 * 2 / 4, 1e-12);
    near(find(&v, "forward", "activations")->payload_bytes, 8 * 20 * 2 * 4096.0 * 8192 * 2, 1e-12);
    struct step_request q = {.model = &f.dense, .cluster = &f.cluster, .recipe = &r};
    assert_true(step_simulate(&q, f.arena, &t, NULL, &e));
    bool bubble = false;
    for (size_t i = 0; i < t.wait_count; i++)
        if (strstr(t.waits[i].on, "estimate")) {
            bubble = true;
            near(t.waits[i].fraction, 3.0 / 11, 1e-9);
        }
    assert_true(bubble);
    same_bytes_in_the_step(&f, &f.dense, &r, &v);
    // The last stage: 20 blocks of 855 M, norm and head of 128256 x 8192, over tp = 4.
    struct memory held;
    double block = ((double)f.dense.parameters - 2 * 128256.0 * 8192 - 8192) / 80;
    assert_true(memory_estimate(&f.dense, &f.cluster, &r, &held, &e));
    near((double)held.classes_bytes[MEMORY_PARAMS], 2 * (20 * block + 8192 + 128256.0 * 8192) / 4,
         1e-6);
    // Eight hops each way of a quarter of 64 MiB per 400 Gb/s card, in line.
    double hop = 4096.0 * 8192 * 2 / 4 / f.cluster.nic_bytes_per_s.value;
    double sends = 0;
    for (size_t i = 0; i < t.wait_count; i++)
        if (strstr(t.waits[i].on, "stage"))
            sends += t.waits[i].seconds;
    assert_true(sends > 16 * hop && sends < 16 * hop * 2.5); // small messages run slower
    // 1F1B keeps four micro-batches of 20 blocks under way: as many activations as one of 80.
    struct memory staged, whole;
    assert_true(memory_estimate(&f.dense, &f.cluster, &r, &staged, &e));
    one.pp = 1;
    assert_true(recipe_resolve(&one, &f.dense, &f.cluster, &e));
    assert_true(memory_estimate(&f.dense, &f.cluster, &one, &whole, &e));
    near((double)staged.phases[PHASE_FORWARD].classes_bytes[MEMORY_ACTIVATIONS],
         (double)whole.phases[PHASE_FORWARD].classes_bytes[MEMORY_ACTIVATIONS], 0.03);
    arena_destroy(f.arena);
}

// The bubble of four stages is three micro-steps, whatever the reduction after the last one takes.
static void bubble_is_of_micro_steps(void **state) {
    (void)state;
    static const enum strategy which[] = {STRATEGY_ZERO1, STRATEGY_FSDP2};
    struct fixture f = open_fixture();
    struct err e = {0};
    assert_true(cluster_resize(&f.cluster, 8, 64, &e));
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        struct step_time t[2];
        for (uint64_t more = 0; more < 2; more++) {
            struct recipe r = recipe_of(which[i], 4, 1, 4, 1);
            r.grad_accum = 8 + more;
            r.no_sync = which[i] == STRATEGY_FSDP2;
            assert_true(recipe_resolve(&r, &f.dense, &f.cluster, &e));
            struct step_request q = {.model = &f.dense, .cluster = &f.cluster, .recipe = &r};
            assert_true(step_simulate(&q, f.arena, &t[more], NULL, &e));
        }
        double one = t[1].step_s - t[1].bubble_s - (t[0].step_s - t[0].bubble_s), waits = 0;
        near(t[0].bubble_s, 3 * one, 0.02);
        for (size_t k = 0; k < t[0].wait_count; k++)
            if (strcmp(t[0].waits[k].phase, "backward") == 0)
                waits += t[0].waits[k].fraction;
        assert_true(waits < 1);
    }
    arena_destroy(f.arena);
}

// Stages in two pieces: half the bubble, 3/16; the first keeps 1 + 3/8 as much (arXiv 2205.05198).
static void interleaved(void **state) {
    (void)state;
    struct fixture f = open_fixture();
    struct recipe r = recipe_of(STRATEGY_ZERO1, 4, 1, 4, 1), plain = r;
    struct err e = {0};
    struct step_time t;
    struct memory pieces, whole;
    r.grad_accum = plain.grad_accum = 8;
    r.virtual_stages = 2;
    assert_true(recipe_resolve(&r, &f.dense, &f.cluster, &e));
    assert_true(recipe_resolve(&plain, &f.dense, &f.cluster, &e));
    struct step_request q = {.model = &f.dense, .cluster = &f.cluster, .recipe = &r};
    assert_true(step_simulate(&q, f.arena, &t, NULL, &e));
    bool bubble = false;
    for (size_t i = 0; i < t.wait_count; i++) {
        assert_null(strstr(t.waits[i].on, "stage")); // sent behind the next piece's work
        if (strstr(t.waits[i].on, "estimate")) {
            bubble = true;
            near(t.waits[i].fraction, 3.0 / 19, 1e-9);
        }
    }
    assert_true(bubble);
    assert_true(memory_estimate(&f.dense, &f.cluster, &r, &pieces, &e));
    assert_true(memory_estimate(&f.dense, &f.cluster, &plain, &whole, &e));
    near((double)pieces.phases[PHASE_FORWARD].classes_bytes[MEMORY_ACTIVATIONS],
         1.375 * (double)whole.phases[PHASE_FORWARD].classes_bytes[MEMORY_ACTIVATIONS], 0.02);
    struct recipe few = r, few_plain = plain; // one micro-batch can't be under way twice
    few.grad_accum = few_plain.grad_accum = 1;
    few.global_batch = few_plain.global_batch = 0;
    assert_true(recipe_resolve(&few, &f.dense, &f.cluster, &e));
    assert_true(recipe_resolve(&few_plain, &f.dense, &f.cluster, &e));
    assert_true(memory_estimate(&f.dense, &f.cluster, &few, &pieces, &e));
    assert_true(memory_estimate(&f.dense, &f.cluster, &few_plain, &whole, &e));
    assert_int_equal(pieces.phases[PHASE_FORWARD].classes_bytes[MEMORY_ACTIVATIONS],
                     whole.phases[PHASE_FORWARD].classes_bytes[MEMORY_ACTIVATIONS]);
    r = recipe_of(STRATEGY_ZERO1, 4, 1, 1, 1);
    r.virtual_stages = 2;
    assert_false(recipe_resolve(&r, &f.dense, &f.cluster, &e));
    assert_non_null(strstr(e.text, "virtual_stages 2"));
    arena_destroy(f.arena);
}

// The shard group is the GPUs of a node that hold the same weights, whatever lies beside them: a
// stage of two spans one of two nodes, of four half of one, of three a third of both.
static void shards_beside_stages(void **state) {
    (void)state;
    static const uint64_t right[][3] = {{1, 1, 8}, {2, 1, 4}, {8, 1, 1}, {1, 2, 8},
                                        {1, 4, 4}, {2, 4, 2}, {8, 2, 1}, {4, 4, 1}};
    struct fixture f = open_fixture();
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        struct recipe r = recipe_of(STRATEGY_HSDP, right[i][0], 1, right[i][1], 1);
        struct err e = {0};
        if (!recipe_resolve(&r, &f.dense, &f.cluster, &e))
            fail_msg("%zu: %s", i, e.text);
        assert_int_equal(r.shard_group, right[i][2]);
    }
    struct recipe r = recipe_of(STRATEGY_HSDP, 1, 1, 2, 1); // twelve GPUs of one and a half nodes
    struct err e = {0};
    assert_true(cluster_resize(&f.cluster, 3, 24, &e));
    assert_true(recipe_resolve(&r, &f.dense, &f.cluster, &e));
    assert_int_equal(r.shard_group, 4);
    arena_destroy(f.arena);
}

// A step's memory over time holds what the plan holds of activations: once a tensor rank's share.
static void memory_over_time(void **state) {
    (void)state;
    static const uint64_t ways[][2] = {{1, 1}, {4, 1}, {1, 4}, {2, 2}};
    struct fixture f = open_fixture();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct recipe r = recipe_of(STRATEGY_FSDP2, ways[i][0], ways[i][1], 1, 1);
        struct err e = {0};
        struct memory m;
        struct step_time t;
        struct step_timeline line;
        assert_true(recipe_resolve(&r, &f.dense, &f.cluster, &e));
        assert_true(memory_estimate(&f.dense, &f.cluster, &r, &m, &e));
        struct step_request q = {
            .model = &f.dense, .cluster = &f.cluster, .recipe = &r, .want_timeline = true};
        assert_true(step_simulate(&q, f.arena, &t, &line, &e));
        double most = 0;
        for (size_t k = 0; k < line.memory_count; k++)
            most = fmax(most, line.memory[k].allocated_bytes);
        near(most, (double)m.allocated_peak_bytes, 0.05);
    }
    arena_destroy(f.arena);
}

// Mixtral: 32 blocks of 8 experts of 3 x 4096 x 14336. With ep = 8 a rank holds one expert of each
// and all that is dense; 16 ranks make 2 that share an expert.
static void experts(void **state) {
    (void)state;
    struct fixture f = open_fixture();
    const double all = 32.0 * 8 * 3 * 4096 * 14336, dense = (double)f.mixture.parameters - all;
    const double local = all / 8, each = 4096.0 * 4096 * 2 * 2; // two experts per token, bf16
    static const enum strategy strategies[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2};
    for (size_t i = 0; i < 3; i++) {
        struct recipe r = recipe_of(strategies[i], 1, 1, 1, 8);
        struct err e = {0};
        struct volume v;
        struct memory m;
        assert_true(recipe_resolve(&r, &f.mixture, &f.cluster, &e));
        assert_int_equal(r.world, 16);
        assert_true(volume_estimate(&f.mixture, &f.cluster, &r, &v, &e));
        assert_true(memory_estimate(&f.mixture, &f.cluster, &r, &m, &e));
        near(find(&v, "forward", "tokens to experts and back")->payload_bytes, 32 * 2 * each,
             1e-12);
        near(find(&v, "backward", "tokens to experts and back")->payload_bytes, 32 * 2 * each,
             1e-12);
        near(find(&v, "backward", "gradients")->payload_bytes, 2 * dense, 1e-6);
        near(find(&v, "backward", "gradients of experts")->payload_bytes, 2 * local, 1e-6);
        assert_int_equal(find(&v, "backward", "gradients of experts")->group_size, 2);
        // Rings of two nodes leave the node with all they send.
        near(find(&v, "backward", "gradients of experts")->inter_node_bytes, 2 * local, 1e-6);
        near((double)m.classes_bytes[MEMORY_PARAMS], 2 * (dense + local), 1e-6);
        double owned = strategies[i] == STRATEGY_DDP ? dense + local : (dense + all) / 16;
        near((double)m.classes_bytes[MEMORY_OPTIMIZER], 8 * owned, 1e-6);
        same_bytes_in_the_step(&f, &f.mixture, &r, &v);
    }
    arena_destroy(f.arena);
}

// torchtitan: dense parameters over 16 GPUs, a rank's one expert in each of 32 blocks over the two
// GPUs that hold the same; the router's 8 rows stand padded to 16. 2 GPUs x 8 experts = 16 ranks
// are more than the experts, so an expert's rows are cut.
static void experts_in_fsdp2(void **state) {
    (void)state;
    struct fixture f = open_fixture();
    const double all = 32.0 * 8 * 3 * 4096 * 14336, dense = (double)f.mixture.parameters - all;
    const double padding = 32.0 * 8 * 4096, local = all / 8;
    static const enum strategy strategies[] = {STRATEGY_FSDP2, STRATEGY_FSDP2_NORESHARD};
    for (size_t i = 0; i < 2; i++) {
        struct recipe r = recipe_of(strategies[i], 1, 1, 1, 8);
        struct err e = {0};
        struct volume v;
        struct memory m;
        assert_true(recipe_resolve(&r, &f.mixture, &f.cluster, &e));
        assert_true(volume_estimate(&f.mixture, &f.cluster, &r, &v, &e));
        assert_true(memory_estimate(&f.mixture, &f.cluster, &r, &m, &e));
        const struct transfer *gathered = find(&v, "forward", "parameters of experts");
        near(gathered->payload_bytes, 2 * local, 1e-12);
        assert_int_equal(gathered->group_size, 2);
        assert_int_equal(gathered->count, 32);
        near(gathered->inter_node_bytes, 2 * local / 2, 1e-12);
        near(find(&v, "forward", "parameters")->payload_bytes, 2 * (dense + padding), 1e-9);
        near(find(&v, "backward", "gradients")->payload_bytes, 4 * (dense + padding), 1e-9);
        near(find(&v, "backward", "gradients of experts")->payload_bytes, 4 * local, 1e-12);
        near(find(&v, "forward", "tokens to experts and back")->payload_bytes,
             32 * 2 * 4096.0 * 4096 * 2 * 2, 1e-12);
        near((double)m.classes_bytes[MEMORY_PARAMS], 4 * (dense + padding + all) / 16, 1e-9);
        near((double)m.classes_bytes[MEMORY_OPTIMIZER], 8 * (dense + padding + all) / 16, 1e-9);
        same_bytes_in_the_step(&f, &f.mixture, &r, &v);
    }
    arena_destroy(f.arena);
}

// Two replicas of 8: a rank's expert is whole, so nothing but its gradient's all-reduce remains.
static void experts_in_hsdp(void **state) {
    (void)state;
    struct fixture f = open_fixture();
    const double all = 32.0 * 8 * 3 * 4096 * 14336, dense = (double)f.mixture.parameters - all;
    struct recipe r = recipe_of(STRATEGY_HSDP, 1, 1, 1, 8);
    struct err e = {0};
    struct volume v;
    struct memory m, without;
    assert_true(recipe_resolve(&r, &f.mixture, &f.cluster, &e));
    assert_true(volume_estimate(&f.mixture, &f.cluster, &r, &v, &e));
    assert_true(memory_estimate(&f.mixture, &f.cluster, &r, &m, &e));
    for (size_t i = 0; i < v.transfer_count; i++)
        assert_true(strcmp(v.transfers[i].what, "parameters of experts") != 0);
    near(find(&v, "forward", "parameters")->payload_bytes, 2 * dense, 1e-9);
    near(find(&v, "backward", "gradient shards")->payload_bytes, 4 * (dense + all) / 8, 1e-9);
    assert_int_equal(find(&v, "backward", "gradient shards")->count, 33 + 32);
    same_bytes_in_the_step(&f, &f.mixture, &r, &v);
    // What is gathered at once falls by seven of a block's eight experts, in two blocks.
    r.ep = 1;
    assert_true(recipe_resolve(&r, &f.mixture, &f.cluster, &e));
    assert_true(memory_estimate(&f.mixture, &f.cluster, &r, &without, &e));
    double fell = (double)(without.phases[PHASE_FORWARD].classes_bytes[MEMORY_GATHER] -
                           m.phases[PHASE_FORWARD].classes_bytes[MEMORY_GATHER]);
    near(fell, 2 * 2 * 7 * 3 * 4096.0 * 14336, 1e-9);
    assert_int_equal(m.classes_bytes[MEMORY_PARAMS], without.classes_bytes[MEMORY_PARAMS]);
    arena_destroy(f.arena);
}

// The same work in the step, whether the experts are here or with the peers; only exchanges differ.
static void experts_in_time(void **state) {
    (void)state;
    struct fixture f = open_fixture();
    struct recipe r = recipe_of(STRATEGY_ZERO1, 1, 1, 1, 8);
    struct err e = {0};
    struct step_time t;
    assert_true(recipe_resolve(&r, &f.mixture, &f.cluster, &e));
    struct step_request q = {.model = &f.mixture, .cluster = &f.cluster, .recipe = &r};
    assert_true(step_simulate(&q, f.arena, &t, NULL, &e));
    double sent = 4 * 32 * 4096.0 * 4096 * 2 * 2 * 7 / 8;
    double rate = f.cluster.gpu.nvlink_bytes_per_s.value;
    assert_true(t.exposed_comm_s > sent / rate);
    assert_true(t.mfu > 0 && t.mfu < 1);
    arena_destroy(f.arena);
}

// A token takes the same FLOPs however they are spread over GPUs.
static void model_flop_per_token_is_that_of_the_model(void **state) {
    (void)state;
    struct fixture f = open_fixture();
    static const uint64_t dims[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 2}};
    double expected = 0;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        struct recipe r = recipe_of(STRATEGY_ZERO1, dims[i][0], dims[i][1], dims[i][2], 1);
        struct err e = {0};
        struct step_time t;
        if (!recipe_resolve(&r, &f.dense, &f.cluster, &e))
            fail_msg("%zu: %s", i, e.text);
        struct step_request q = {.model = &f.dense, .cluster = &f.cluster, .recipe = &r};
        assert_true(step_simulate(&q, f.arena, &t, NULL, &e));
        double per_token = t.mfu * t.peak_flop_per_s / t.tokens_per_s_per_gpu;
        expected = i == 0 ? per_token : expected;
        near(per_token, expected, 1e-9);
    }
    arena_destroy(f.arena);
}

static void refusals(void **state) {
    (void)state;
    struct fixture f = open_fixture();
    struct recipe r;
    struct err e = {0};
#define REFUSED(model, make, words, change)                                                        \
    r = make;                                                                                      \
    change;                                                                                        \
    err_clear(&e);                                                                                 \
    assert_false(recipe_resolve(&r, model, &f.cluster, &e));                                       \
    if (strstr(e.text, words) == NULL)                                                             \
    fail_msg("'%s' lacks '%s'", e.text, words)
    REFUSED(&f.dense, recipe_of(STRATEGY_ZERO1, 3, 1, 1, 1), "do not divide", (void)0);
    REFUSED(&f.dense, recipe_of(STRATEGY_ZERO1, 16, 1, 1, 1), "inside a node", (void)0);
    REFUSED(&f.dense, recipe_of(STRATEGY_ZERO3, 1, 1, 2, 1), "stage 1 at most", (void)0);
    REFUSED(&f.dense, recipe_of(STRATEGY_ZEROPP, 2, 1, 1, 1), "whole nodes", (void)0);
    REFUSED(&f.dense, recipe_of(STRATEGY_ZERO1, 2, 1, 1, 1), "LoRA", r.lora_rank = 8);
    REFUSED(&f.dense, recipe_of(STRATEGY_ZERO1, 2, 1, 1, 1), "offload",
            r.offload_optimizer = OFFLOAD_CPU);
    REFUSED(&f.dense, recipe_of(STRATEGY_FSDP2, 1, 8, 1, 1), "sequence", r.seq = 4100);
    REFUSED(&f.dense, recipe_of(STRATEGY_ZERO1, 1, 1, 1, 2), "no experts", (void)0);
    REFUSED(&f.mixture, recipe_of(STRATEGY_ZERO3, 1, 1, 1, 8), "ZeRO stage 3", (void)0);
    REFUSED(&f.mixture, recipe_of(STRATEGY_FSDP1, 1, 1, 1, 8), "FSDP1 has no mesh", (void)0);
    REFUSED(&f.mixture, recipe_of(STRATEGY_FSDP2_RESHARD, 1, 1, 1, 8), "fully or not at all",
            r.reshard_group = 4);
    REFUSED(&f.mixture, recipe_of(STRATEGY_FSDP2, 1, 1, 1, 8), "--wrap block", r.wrap = WRAP_MODEL);
    REFUSED(&f.mixture, recipe_of(STRATEGY_HSDP, 1, 1, 1, 8), "must divide the shard group",
            r.shard_group = 4);
    REFUSED(&f.mixture, recipe_of(STRATEGY_ZERO1, 1, 1, 1, 3), "must divide the 8 experts",
            (void)0);
#undef REFUSED
    arena_destroy(f.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor),
        cmocka_unit_test(context),
        cmocka_unit_test(pipeline),
        cmocka_unit_test(bubble_is_of_micro_steps),
        cmocka_unit_test(interleaved),
        cmocka_unit_test(shards_beside_stages),
        cmocka_unit_test(memory_over_time),
        cmocka_unit_test(experts),
        cmocka_unit_test(experts_in_fsdp2),
        cmocka_unit_test(experts_in_hsdp),
        cmocka_unit_test(refusals),
        cmocka_unit_test(experts_in_time),
        cmocka_unit_test(model_flop_per_token_is_that_of_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
