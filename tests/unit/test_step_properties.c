// SPDX-License-Identifier: Apache-2.0
// What must hold for every recipe, with the real costs: bounds, sums, memory, bandwidth.
#include "plan/step_account.h"

#include "base/stats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define assert_near(got, wanted, tolerance) assert_true(fabs((got) - (wanted)) <= (tolerance))

enum { MODELS = 3, CLUSTERS = 3, RECIPES = 900 };

struct world {
    struct arena *arena, *scratch;
    struct model models[MODELS];
    struct cluster clusters[CLUSTERS];
};

static struct world w;

static int load(void **state) {
    (void)state;
    static const char *const models[MODELS] = {"gpt2", "llama-3.2-1b", "llama-2-7b"};
    static const char *const clusters[CLUSTERS] = {"dgx-a100", "dgx-h100", "8xrtx4090-pcie"};
    struct err e = {0};
    w.arena = arena_create();
    w.scratch = arena_create();
    for (int i = 0; i < MODELS; i++)
        if (!model_load(models[i], w.arena, &w.models[i], &e))
            fail_msg("%s", e.text);
    for (int i = 0; i < CLUSTERS; i++)
        if (!cluster_load(clusters[i], w.arena, &w.clusters[i], &e))
            fail_msg("%s", e.text);
    return 0;
}

static int unload(void **state) {
    (void)state;
    arena_destroy(w.arena);
    arena_destroy(w.scratch);
    return 0;
}

struct drawn {
    struct model *model;
    struct cluster cluster;
    struct recipe recipe;
};

static uint64_t roll(uint64_t seed, uint64_t *at, uint64_t sides) {
    return stats_random_u64(seed, 3, (*at)++) % sides;
}

// A random recipe; false when it is one that can't run.
static bool draw(uint64_t seed, struct drawn *d) {
    uint64_t at = 0;
    struct err e = {0};
    d->model = &w.models[roll(seed, &at, MODELS)];
    d->cluster = w.clusters[roll(seed, &at, CLUSTERS)];
    uint64_t nodes = 1 + roll(seed, &at, 4);
    assert_true(cluster_resize(&d->cluster, nodes, 0, &e));
    struct recipe *r = &d->recipe;
    recipe_defaults((enum strategy)roll(seed, &at, STRATEGY_COUNT), r);
    r->reshard_group = 4;
    r->micro_batch = 1 + roll(seed, &at, 3);
    r->grad_accum = 1 + roll(seed, &at, 3);
    r->seq = 256 << roll(seed, &at, 3);
    r->recompute = roll(seed, &at, 2) ? RECOMPUTE_FULL : RECOMPUTE_NONE;
    r->no_sync = roll(seed, &at, 2);
    r->clip = roll(seed, &at, 2) ? 1 : 0;
    r->forward_prefetch = roll(seed, &at, 2);
    r->backward_prefetch = (enum prefetch)roll(seed, &at, PREFETCH_COUNT);
    r->limit_all_gathers = roll(seed, &at, 2);
    r->overlap_comm = (enum overlap)roll(seed, &at, 3);
    static const enum offload kinds[] = {OFFLOAD_NONE, OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME};
    r->offload_optimizer = kinds[roll(seed, &at, 4)];
    r->pipeline_read = roll(seed, &at, 2);
    r->pipeline_write = roll(seed, &at, 2);
    r->nvme_buffer_count_optimizer = 12;
    r->sub_group_elements = 100000000 << roll(seed, &at, 4);
    r->offload_param = roll(seed, &at, 4) == 0 ? OFFLOAD_CPU : OFFLOAD_NONE;
    r->activation_offload = roll(seed, &at, 4) == 0;
    r->super_offload = roll(seed, &at, 3) == 0;
    return recipe_resolve(r, d->model, &d->cluster, &e);
}

static struct step_time simulate(const struct drawn *d, const struct step_scale *scale,
                                 struct step_timeline *timeline) {
    struct step_request q = {.model = d->model,
                             .cluster = &d->cluster,
                             .recipe = &d->recipe,
                             .scale = scale,
                             .want_timeline = timeline != NULL};
    struct step_time t;
    struct err e = {0};
    if (!step_simulate(&q, w.scratch, &t, timeline, &e))
        fail_msg("%s: %s", strategy_names[d->recipe.strategy], e.text);
    return t;
}

static void times_add_up_and_links_bound_what_is_exposed(void **state) {
    (void)state;
    int ran = 0;
    for (uint64_t seed = 0; seed < RECIPES; seed++) {
        struct drawn d;
        struct step_timeline line;
        if (!draw(seed, &d))
            continue;
        ran++;
        arena_reset(w.scratch);
        struct step_time t = simulate(&d, NULL, &line);
        double tiny = 1e-9 * t.step_s;
        assert_true(t.step_s > 0 && t.step_low_s <= t.step_s && t.step_s <= t.step_high_s);
        assert_near(t.forward_s + t.backward_s + t.optimizer_s, t.step_s, tiny);
        assert_near(t.compute_s + t.exposed_comm_s + t.exposed_offload_s + t.host_issue_s +
                        t.bubble_s,
                    t.step_s, tiny);
        for (size_t i = 0; i < line.stream_count; i++)
            assert_true(line.streams[i].exposed_s <= line.streams[i].busy_s + tiny);
        assert_true(t.mfu > 0 && t.mfu < 1 && t.hfu >= t.mfu);
    }
    assert_true(ran > RECIPES / 3);
}

static void no_step_beats_its_longest_path_or_its_busiest_resource(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < RECIPES / 2; seed++) {
        struct drawn d;
        struct step_builder b;
        struct sim_result r;
        struct err e = {0};
        if (!draw(seed, &d))
            continue;
        arena_reset(w.scratch);
        struct step_request q = {.model = d.model, .cluster = &d.cluster, .recipe = &d.recipe};
        assert_true(step_build(&q, w.scratch, &b, &e));
        assert_true(sim_run(b.sim, NULL, w.scratch, &r, &e));
        assert_true(r.end_s >= sim_lower_bound_s(b.sim, w.scratch) * (1 - 1e-12));
        assert_int_equal(r.memory_end_bytes, 0);
    }
}

static void all_memory_taken_is_given_back(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < RECIPES / 2; seed++) {
        struct drawn d;
        struct step_timeline line;
        if (!draw(seed, &d))
            continue;
        arena_reset(w.scratch);
        simulate(&d, NULL, &line);
        double first = line.memory[0].allocated_bytes;
        double last = line.memory[line.memory_count - 1].allocated_bytes;
        double rounding = 4096; // whole bytes at every claim and release
        if (fabs(first - last) > rounding)
            fail_msg("seed %llu %s: %.0f bytes stay", (unsigned long long)seed,
                     strategy_names[d.recipe.strategy], last - first);
    }
}

static void the_same_recipe_gives_the_same_bytes(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < RECIPES / 10; seed++) {
        struct drawn d;
        if (!draw(seed, &d))
            continue;
        arena_reset(w.scratch);
        struct step_time one = simulate(&d, NULL, NULL), two = simulate(&d, NULL, NULL);
        assert_true(one.step_s == two.step_s && one.step_high_s == two.step_high_s);
        assert_int_equal(one.wait_count, two.wait_count);
    }
}

// With shared links a faster one can reorder what meets on another; the loss stays within 1 %.
static void more_bandwidth_is_never_slower(void **state) {
    (void)state;
    static const char *const names[] = {
        "intra-node links", "network", "PCIe", "host memory", "cores", "drives", "GPU"};
    double worst = 0;
    for (uint64_t seed = 0; seed < RECIPES / 5; seed++) {
        struct drawn d;
        if (!draw(seed, &d))
            continue;
        for (int link = 0; link < 7; link++) {
            arena_reset(w.scratch);
            struct step_scale s = {1, 1, 1, 1, 1, 1, 1};
            double *const scales[] = {&s.intra, &s.inter, &s.pcie,   &s.host_dram,
                                      &s.cpu,   &s.nvme,  &s.compute};
            double before = simulate(&d, NULL, NULL).step_s;
            *scales[link] = 2;
            double after = simulate(&d, &s, NULL).step_s;
            *scales[link] = INFINITY;
            double at_infinity = simulate(&d, &s, NULL).step_s;
            double change = fmax(after, at_infinity) / before - 1;
            worst = fmax(worst, change);
            if (change > 0.01)
                fail_msg("seed %llu %s: faster %s make the step %.2f %% slower",
                         (unsigned long long)seed, strategy_names[d.recipe.strategy], names[link],
                         change * 100);
        }
    }
    print_message("largest loss from a faster link: %.3f %%\n", worst * 100);
}

// The curve follows GPU time, memory.h the order in which the host allocates, and it rounds what
// the allocator can't split; both must tell the same story.
static void the_memory_curve_peaks_where_the_estimate_does(void **state) {
    (void)state;
    const enum strategy which[] = {STRATEGY_DDP,   STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3,
                                   STRATEGY_FSDP1, STRATEGY_FSDP2, STRATEGY_HSDP};
    const size_t count = sizeof which / sizeof *which;
    struct model tied; // whose logits, of 256000 words, are the peak
    struct err e = {0};
    assert_true(model_load("gemma-2-2b", w.arena, &tied, &e));
    for (size_t i = 0; i < 2 * count; i++) {
        struct drawn d = {.model = i < count ? &w.models[2] : &tied, .cluster = w.clusters[0]};
        struct step_timeline line;
        struct memory m;
        recipe_defaults(which[i % count], &d.recipe);
        d.recipe.micro_batch = d.recipe.grad_accum = 1;
        d.recipe.seq = 2048;
        assert_true(recipe_resolve(&d.recipe, d.model, &d.cluster, &e));
        arena_reset(w.scratch);
        simulate(&d, NULL, &line);
        assert_true(memory_estimate(d.model, &d.cluster, &d.recipe, &m, &e));
        double peak = 0;
        for (size_t k = 0; k < line.memory_count; k++)
            peak = fmax(peak, line.memory[k].allocated_bytes);
        double ratio = peak / (double)m.allocated_peak_bytes;
        print_message("%-6s peak of the curve / estimate: %.3f\n", strategy_names[which[i % count]],
                      ratio);
        assert_true(ratio > 0.9 && ratio < 1.1);
    }
}

// Every other layer recomputed, and 16-bit copies of fp32 weights: a third less without either.
static void the_memory_curve_keeps_what_layers_keep(void **state) {
    (void)state;
    static const struct {
        enum strategy strategy;
        enum precision precision;
        enum recompute recompute;
    } kinds[] = {{STRATEGY_FSDP1, PRECISION_BF16_MIXED, RECOMPUTE_EVERY_N},
                 {STRATEGY_FSDP2, PRECISION_BF16_MIXED, RECOMPUTE_EVERY_N},
                 {STRATEGY_ZERO2, PRECISION_BF16_MIXED, RECOMPUTE_EVERY_N},
                 {STRATEGY_FSDP1, PRECISION_AMP_BF16, RECOMPUTE_NONE},
                 {STRATEGY_FSDP2, PRECISION_AMP_BF16, RECOMPUTE_NONE},
                 {STRATEGY_FSDP2, PRECISION_AMP_BF16, RECOMPUTE_FULL}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct drawn d = {.model = &w.models[2], .cluster = w.clusters[0]};
        struct step_timeline line;
        struct memory m;
        struct err e = {0};
        recipe_defaults(kinds[i].strategy, &d.recipe);
        d.recipe.precision = kinds[i].precision;
        d.recipe.recompute = kinds[i].recompute;
        d.recipe.recompute_every = 2;
        d.recipe.seq = 4096;
        assert_true(recipe_resolve(&d.recipe, d.model, &d.cluster, &e));
        arena_reset(w.scratch);
        simulate(&d, NULL, &line);
        assert_true(memory_estimate(d.model, &d.cluster, &d.recipe, &m, &e));
        double peak = 0;
        for (size_t k = 0; k < line.memory_count; k++)
            peak = fmax(peak, line.memory[k].allocated_bytes);
        double ratio = peak / (double)m.allocated_peak_bytes;
        print_message("%zu peak of the curve / estimate: %.3f\n", i, ratio);
        assert_true(ratio > 0.9 && ratio < 1.1);
    }
}

struct moved {
    double by_collective[COLLECTIVE_COUNT], h2d, d2h, nvme_read, nvme_write;
};

static void add_moved(struct moved *v, const struct step_meta *m) {
    if (step_ops[m->op].class == CLASS_COMM)
        v->by_collective[m->collective] += collective_sent_bytes(
            (enum collective)m->collective, m->bytes, m->group_size ? m->group_size : 1);
    else if (m->op == OP_NVME_READ)
        v->nvme_read += m->bytes;
    else if (m->op == OP_NVME_WRITE)
        v->nvme_write += m->bytes;
    else if (m->op == OP_PARAM_H2D || m->op == OP_GRAD_H2D || m->op == OP_UPDATED_H2D ||
             m->op == OP_ACTIVATION_H2D)
        v->h2d += m->bytes;
    else if (m->op == OP_GRAD_D2H || m->op == OP_SECONDARY_D2H || m->op == OP_ACTIVATION_D2H)
        v->d2h += m->bytes;
}

static bool agrees(const char *what, const struct drawn *d, double simulated, double volume) {
    double larger = fmax(simulated, volume), slack = 64; // scalars
    if (fabs(simulated - volume) <= 1e-9 * larger + slack)
        return true;
    print_message(
        "%s %s nodes %llu accum %llu opt %s param %s: %s %.8g simulated, %.8g planned (%.2g)\n",
        d->model->name, strategy_names[d->recipe.strategy], (unsigned long long)d->cluster.nodes,
        (unsigned long long)d->recipe.grad_accum, offload_names[d->recipe.offload_optimizer],
        offload_names[d->recipe.offload_param], what, simulated, volume, simulated / volume - 1);
    return false;
}

static bool same_bytes(const struct drawn *d) {
    struct step_builder b;
    struct step_request q = {.model = d->model, .cluster = &d->cluster, .recipe = &d->recipe};
    struct volume v;
    struct moved m = {0};
    struct err e = {0};
    if (!step_build(&q, w.scratch, &b, &e) ||
        !volume_estimate(d->model, &d->cluster, &d->recipe, &v, &e))
        fail_msg("%s", e.text);
    for (uint32_t i = 0; i < sim_task_count(b.sim); i++)
        add_moved(&m, &b.meta[i]);
    const double *c = m.by_collective;
    double other = c[COLLECTIVE_ALL_TO_ALL] + c[COLLECTIVE_BROADCAST] + c[COLLECTIVE_REDUCE];
    bool ok = agrees("all-gather", d, c[COLLECTIVE_ALL_GATHER], v.all_gather_bytes);
    ok &= agrees("reduce-scatter", d, c[COLLECTIVE_REDUCE_SCATTER], v.reduce_scatter_bytes);
    ok &= agrees("all-reduce", d, c[COLLECTIVE_ALL_REDUCE], v.all_reduce_bytes);
    ok &= agrees("other", d, other, v.other_bytes);
    ok &= agrees("H2D", d, m.h2d, v.h2d_bytes) && agrees("D2H", d, m.d2h, v.d2h_bytes);
    ok &= agrees("NVMe read", d, m.nvme_read, v.nvme_read_bytes);
    ok &= agrees("NVMe write", d, m.nvme_write, v.nvme_write_bytes);
    return ok;
}

// Two independent readings of the frameworks' code: the step's tasks and the volume's formulas.
static void bytes_moved_are_those_of_the_volume(void **state) {
    (void)state;
    int wrong = 0;
    for (int strategy = 0; strategy < STRATEGY_COUNT; strategy++)
        for (int variant = 0; variant < 48; variant++) {
            // GPT-2's table of 50257 rows, and five or seven nodes: what does not divide.
            static const uint64_t nodes[3][2] = {{1, 5}, {7, 3}, {1, 2}};
            struct drawn d = {.model = &w.models[variant / 16], .cluster = w.clusters[0]};
            struct err e = {0};
            assert_true(cluster_resize(&d.cluster, nodes[variant / 16][variant & 1], 0, &e));
            recipe_defaults((enum strategy)strategy, &d.recipe);
            d.recipe.reshard_group = 4;
            d.recipe.micro_batch = 1;
            d.recipe.grad_accum = variant & 2 ? 3 : 1;
            int kind = variant % 16 / 4;
            d.recipe.seq = 1024;
            if (kind == 3)
                d.recipe.stack = STACK_MEGATRON;
            else
                d.recipe.offload_optimizer = (enum offload)kind;
            d.recipe.offload_param = kind == 2 ? OFFLOAD_CPU : OFFLOAD_NONE;
            if (!recipe_resolve(&d.recipe, d.model, &d.cluster, &e))
                continue;
            arena_reset(w.scratch);
            wrong += !same_bytes(&d);
        }
    assert_int_equal(wrong, 0);
}

// What once told the two apart: FSDP2's padding on many ranks, adapters beside a 16- or 4-bit base,
// parameters stored in fp32, parameters on NVMe of which host memory keeps the first part.
static const struct {
    enum strategy strategy;
    uint64_t nodes, lora_rank, max_in_cpu;
    enum precision precision;
    enum offload optimizer, param;
    bool base_4bit, all_reduces; // all_reduces: some parameters are larger than a bucket, too
} odd_recipes[] = {
    {STRATEGY_FSDP2, 7, 0, 0, PRECISION_BF16_MIXED, OFFLOAD_NONE, OFFLOAD_NONE, false, false},
    {STRATEGY_FSDP2, 125, 0, 0, PRECISION_BF16_MIXED, OFFLOAD_NONE, OFFLOAD_NONE, false, false},
    {STRATEGY_FSDP2_NORESHARD, 125, 0, 0, PRECISION_BF16_MIXED, OFFLOAD_CPU, OFFLOAD_CPU, false,
     false},
    {STRATEGY_FSDP1, 1, 256, 0, PRECISION_BF16_MIXED, OFFLOAD_NONE, OFFLOAD_NONE, false, false},
    {STRATEGY_FSDP1, 2, 256, 0, PRECISION_BF16_MIXED, OFFLOAD_CPU, OFFLOAD_CPU, false, false},
    {STRATEGY_FSDP2, 1, 256, 0, PRECISION_BF16_MIXED, OFFLOAD_CPU, OFFLOAD_CPU, false, false},
    {STRATEGY_FSDP2, 1, 256, 0, PRECISION_BF16_MIXED, OFFLOAD_NONE, OFFLOAD_NONE, true, false},
    {STRATEGY_ZERO1, 1, 0, 0, PRECISION_AMP_BF16, OFFLOAD_CPU, OFFLOAD_NONE, false, false},
    {STRATEGY_ZERO2, 2, 0, 0, PRECISION_AMP_BF16, OFFLOAD_NONE, OFFLOAD_NONE, false, false},
    {STRATEGY_ZERO3, 1, 0, 1, PRECISION_BF16_MIXED, OFFLOAD_NVME, OFFLOAD_NVME, false, false},
    {STRATEGY_ZERO3, 1, 0, 400000000, PRECISION_BF16_MIXED, OFFLOAD_CPU, OFFLOAD_NVME, false,
     false},
    {STRATEGY_ZERO3, 1, 0, 400000000, PRECISION_BF16_PURE, OFFLOAD_NVME, OFFLOAD_CPU, false, false},
    {STRATEGY_ZEROPP, 2, 0, 0, PRECISION_BF16_MIXED, OFFLOAD_CPU, OFFLOAD_CPU, false, false},
    {STRATEGY_ZEROPP, 3, 0, 0, PRECISION_BF16_MIXED, OFFLOAD_NONE, OFFLOAD_NONE, false, false},
    {STRATEGY_ZERO3, 1, 16, 0, PRECISION_BF16_MIXED, OFFLOAD_NONE, OFFLOAD_NONE, false, false},
    {STRATEGY_ZERO3, 2, 256, 0, PRECISION_BF16_MIXED, OFFLOAD_CPU, OFFLOAD_CPU, false, false},
    {STRATEGY_MICS, 2, 256, 0, PRECISION_BF16_MIXED, OFFLOAD_NONE, OFFLOAD_NONE, false, false},
    {STRATEGY_ZERO3, 1, 0, 0, PRECISION_BF16_MIXED, OFFLOAD_NONE, OFFLOAD_NONE, false, true},
};

static void bytes_of_odd_recipes_are_those_of_the_volume(void **state) {
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof odd_recipes / sizeof odd_recipes[0]; i++) {
        struct drawn d = {.model = &w.models[2], .cluster = w.clusters[0]};
        struct err e = {0};
        assert_true(cluster_resize(&d.cluster, odd_recipes[i].nodes, 0, &e));
        recipe_defaults(odd_recipes[i].strategy, &d.recipe);
        d.recipe.seq = 2048;
        d.recipe.lora_rank = odd_recipes[i].lora_rank;
        d.recipe.base_4bit = odd_recipes[i].base_4bit;
        d.recipe.precision = odd_recipes[i].precision;
        d.recipe.offload_optimizer = odd_recipes[i].optimizer;
        d.recipe.offload_param = odd_recipes[i].param;
        if (odd_recipes[i].all_reduces) {
            d.recipe.reduce_scatter = false;
            d.recipe.reduce_bucket_elements = 100000000;
        }
        if (odd_recipes[i].max_in_cpu > 0)
            d.recipe.max_in_cpu_elements = odd_recipes[i].max_in_cpu;
        if (!recipe_resolve(&d.recipe, d.model, &d.cluster, &e))
            fail_msg("%zu: %s", i, e.text);
        arena_reset(w.scratch);
        wrong += !same_bytes(&d);
    }
    assert_int_equal(wrong, 0);
}

static void step_of_zero_plus_plus(struct step_builder *b, struct recipe *r, bool hpz, bool host) {
    struct err e = {0};
    static struct cluster two;
    two = w.clusters[0];
    assert_true(cluster_resize(&two, 2, 0, &e));
    recipe_defaults(STRATEGY_ZEROPP, r);
    r->hpz = hpz;
    r->grad_accum = 2;
    r->offload_param = r->offload_optimizer = host ? OFFLOAD_CPU : OFFLOAD_NONE;
    struct step_request q = {.model = &w.models[2], .cluster = &two, .recipe = r};
    if (!recipe_resolve(r, q.model, &two, &e) || !step_build(&q, w.scratch, b, &e))
        fail_msg("%s", e.text);
}

// Llama-2-7B has 226 matrices and 65 norms. qgZ sends each matrix by itself, twice, codes and
// scales: 4 * 226 calls a micro-step, each of which the host issues. hpZ copies every matrix once
// per step, after which the host waits; norms persist.
static void zero_plus_plus_goes_tensor_by_tensor(void **state) {
    (void)state;
    for (int host = 0; host < 2; host++) {
        struct step_builder b;
        struct recipe r;
        arena_reset(w.scratch);
        step_of_zero_plus_plus(&b, &r, true, host);
        double issued_s = 0, saved = 0;
        uint32_t waits = 0, copies = 0, hidden = 4096;
        for (uint32_t i = 0; i < sim_task_count(b.sim); i++) {
            uint32_t count;
            bool next = i > 0 && (b.meta[i - 1].op == OP_SECONDARY);
            if (b.meta[i].op == OP_REDUCE && b.meta[i].collective == COLLECTIVE_ALL_TO_ALL)
                issued_s += sim_task_issue_s(b.sim, i);
            if (b.meta[i].op == OP_SECONDARY || b.meta[i].op == OP_SECONDARY_D2H) {
                saved += b.meta[i].bytes;
                copies++;
                waits += sim_task_blocks_host(b.sim, i);
            }
            sim_task_host_waits(b.sim, i, &count);
            waits += next && count > 0;
        }
        double matrices = (double)w.models[2].parameters - 65.0 * hidden;
        assert_near(issued_s, 2 * 4 * 226 * 20e-6, 1e-9);
        // Cleared, then read and written: three times a part's 16-bit elements.
        assert_near(saved, (host ? 1 : 3) * 2 * matrices / 8, 1);
        assert_true(copies > 10 && waits == copies);
        step_of_zero_plus_plus(&b, &r, false, host);
        for (uint32_t i = 0; i < sim_task_count(b.sim); i++)
            assert_true(b.meta[i].op != OP_SECONDARY && b.meta[i].op != OP_SECONDARY_D2H);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_add_up_and_links_bound_what_is_exposed),
        cmocka_unit_test(no_step_beats_its_longest_path_or_its_busiest_resource),
        cmocka_unit_test(all_memory_taken_is_given_back),
        cmocka_unit_test(the_same_recipe_gives_the_same_bytes),
        cmocka_unit_test(bytes_moved_are_those_of_the_volume),
        cmocka_unit_test(bytes_of_odd_recipes_are_those_of_the_volume),
        cmocka_unit_test(zero_plus_plus_goes_tensor_by_tensor),
        cmocka_unit_test(more_bandwidth_is_never_slower),
        cmocka_unit_test(the_memory_curve_peaks_where_the_estimate_does),
        cmocka_unit_test(the_memory_curve_keeps_what_layers_keep),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
