// SPDX-License-Identifier: Apache-2.0
// A break-even bandwidth, given to the cluster and simulated again, does what its definition says;
// a sensitivity is the slope that two such simulations show.
#include "base/units.h"
#include "judge/break_even.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct row {
    const char *model, *cluster;
    uint64_t nodes, micro_batch, grad_accum, seq;
    enum strategy strategy;
    enum recompute recompute;
    enum offload optimizer, param;
    enum break_even_link link;
};

#define ACROSS(m, c, n, s, mb)                                                                     \
    { m, c, n, mb, 1, 4096, s, RECOMPUTE_FULL, OFFLOAD_NONE, OFFLOAD_NONE, BREAK_INTER }
#define HOST(link, optimizer, param)                                                               \
    {                                                                                              \
        "llama-2-13b", "8xA100-80GB", 1, 1, 4, 4096, STRATEGY_ZERO3, RECOMPUTE_FULL, optimizer,    \
            param, link                                                                            \
    }

static const struct row rows[] = {
    ACROSS("llama-3-8b", "dgx-a100", 2, STRATEGY_FSDP2, 1),
    ACROSS("llama-3-8b", "dgx-a100", 4, STRATEGY_FSDP2, 2),
    ACROSS("llama-3-8b", "dgx-h100", 4, STRATEGY_FSDP2, 2),
    ACROSS("llama-2-7b", "dgx-a100", 2, STRATEGY_FSDP1, 1),
    ACROSS("llama-2-7b", "dgx-h100", 2, STRATEGY_ZERO2, 2),
    ACROSS("llama-2-7b", "dgx-a100", 4, STRATEGY_ZERO3, 4),
    ACROSS("llama-2-13b", "dgx-a100", 2, STRATEGY_ZERO3, 2),
    ACROSS("llama-2-7b", "dgx-a100", 2, STRATEGY_HSDP, 1),
    ACROSS("llama-2-70b", "dgx-h100", 8, STRATEGY_FSDP2, 1),
    {"llama-3-8b", "8xrtx4090-pcie", 1, 2, 1, 4096, STRATEGY_FSDP2, RECOMPUTE_FULL, OFFLOAD_NONE,
     OFFLOAD_NONE, BREAK_INTRA},
    {"llama-2-7b", "dgx-a100", 1, 1, 1, 2048, STRATEGY_FSDP2, RECOMPUTE_FULL, OFFLOAD_NONE,
     OFFLOAD_NONE, BREAK_INTRA},
    HOST(BREAK_PCIE, OFFLOAD_CPU, OFFLOAD_NONE),
    HOST(BREAK_PCIE, OFFLOAD_CPU, OFFLOAD_CPU),
    HOST(BREAK_HOST_DRAM, OFFLOAD_CPU, OFFLOAD_NONE),
    HOST(BREAK_HOST_DRAM, OFFLOAD_CPU, OFFLOAD_CPU),
    HOST(BREAK_NVME, OFFLOAD_NVME, OFFLOAD_NONE),
    HOST(BREAK_NVME, OFFLOAD_NVME, OFFLOAD_NVME),
};
#define ROWS (sizeof rows / sizeof rows[0])

struct fixture {
    struct arena *a;
    struct model m;
    struct cluster c;
    struct plan plan;
    struct break_even_subject subject;
};

static void start(struct fixture *f, const struct row *w) {
    struct err e = {0};
    struct recipe r;
    f->a = arena_create();
    assert_true(model_load(w->model, f->a, &f->m, &e));
    assert_true(cluster_load(w->cluster, f->a, &f->c, &e));
    if (w->nodes != f->c.nodes)
        assert_true(cluster_resize(&f->c, w->nodes, w->nodes * f->c.gpus_per_node, &e));
    // Drives and host that limit nothing by their size.
    f->c.host_memory_bytes = figure_known(4 * (double)UNITS_TIB, PROVENANCE_SPEC, "test");
    f->c.nvme_read_bytes_per_s = figure_known(25 * UNITS_GIGA, PROVENANCE_SPEC, "test");
    f->c.nvme_write_bytes_per_s = figure_known(12 * UNITS_GIGA, PROVENANCE_SPEC, "test");
    recipe_defaults(w->strategy, &r);
    r.micro_batch = w->micro_batch;
    r.grad_accum = w->grad_accum;
    r.seq = w->seq;
    r.recompute = w->recompute;
    r.offload_optimizer = w->optimizer;
    r.offload_param = w->param;
    if (w->strategy == STRATEGY_HSDP)
        r.shard_group = f->c.gpus_per_node;
    if (!plan_evaluate(&f->m, &f->c, &r, PLAN_TIME_ALWAYS, f->a, &f->plan, &e))
        fail_msg("%s", e.text);
    if (f->plan.reason)
        fail_msg("%s", f->plan.reason);
    f->subject = (struct break_even_subject){&f->m, &f->c, &f->plan};
}

static void multiply(struct figure *f, double by) {
    f->value *= by;
    f->low *= by;
    f->high *= by;
}

// The cluster as someone would describe it who has bought that bandwidth.
static struct cluster bought(const struct cluster *c, enum break_even_link link, double by) {
    struct cluster b = *c;
    switch (link) {
    case BREAK_INTRA:
        multiply(&b.gpu.nvlink_bytes_per_s, by);
        multiply(&b.gpu.nvlink_busbw_bytes_per_s, by);
        multiply(&b.gpu.nvls_busbw_bytes_per_s, by);
        if (c->intra_fabric != FABRIC_PCIE)
            break;
        multiply(&b.gpu.pcie_h2d_bytes_per_s, by);
        multiply(&b.gpu.pcie_d2h_bytes_per_s, by);
        break;
    case BREAK_INTER:
        multiply(&b.nic_bytes_per_s, by);
        break;
    case BREAK_PCIE:
        multiply(&b.gpu.pcie_h2d_bytes_per_s, by);
        multiply(&b.gpu.pcie_d2h_bytes_per_s, by);
        multiply(&b.gpu.pcie_h2d_both_bytes_per_s, by);
        multiply(&b.gpu.pcie_d2h_both_bytes_per_s, by);
        multiply(&b.pcie_switch_bytes_per_s, by);
        break;
    case BREAK_NVME:
        multiply(&b.nvme_read_bytes_per_s, by);
        multiply(&b.nvme_write_bytes_per_s, by);
        break;
    default:
        multiply(&b.host_dram_bytes_per_s, by);
    }
    return b;
}

static double step_on(struct fixture *f, const struct cluster *c) {
    struct err e = {0};
    struct step_time t;
    struct step_request q = {
        .model = &f->m, .cluster = c, .recipe = &f->plan.recipe, .quick = true};
    if (!step_simulate(&q, f->a, &t, NULL, &e))
        fail_msg("%s", e.text);
    return t.step_s;
}

static void report(const struct row *w, const char *what, double got, double wanted) {
    print_message("%s, %s, %s: %s %.6g, wanted %.6g\n", w->model, strategy_names[w->strategy],
                  break_even_link_names[w->link], what, got, wanted);
}

static void break_evens_meet_their_definition(void **state) {
    (void)state;
    size_t met = 0, bad = 0;
    for (size_t i = 0; i < ROWS; i++) {
        struct fixture f;
        struct err e = {0};
        struct break_even b;
        start(&f, &rows[i]);
        assert_true(break_even_find(&f.subject, rows[i].link, f.a, &b, &e));
        if (isfinite(b.needed_bytes_per_s)) {
            double by = b.needed_bytes_per_s / b.current_bytes_per_s;
            struct cluster enough = bought(&f.c, rows[i].link, by);
            struct cluster less = bought(&f.c, rows[i].link, by / 1.1);
            double step_s = step_on(&f, &enough), limit_s = 1.05 * b.floor_step_s;
            bool ok = fabs(step_s / limit_s - 1) < 0.02 && step_on(&f, &less) > step_s;
            if (!ok)
                report(&rows[i], "step", step_s, limit_s);
            met += ok;
            bad += !ok;
        } else {
            assert_non_null(b.reason);
        }
        arena_destroy(f.a);
    }
    assert_int_equal(bad, 0);
    assert_true(met >= 15);
}

static void sensitivities_are_slopes(void **state) {
    (void)state;
    const double h = 0.01, nothing = 1e-4; // of the step, per doubling
    size_t seen = 0, bad = 0;
    for (size_t i = 0; i < ROWS; i++) {
        struct fixture f;
        struct err e = {0};
        struct sensitivity s;
        start(&f, &rows[i]);
        assert_true(break_even_sensitivity(&f.subject, rows[i].link, f.a, &s, &e));
        struct cluster more = bought(&f.c, rows[i].link, 1 + h);
        struct cluster less = bought(&f.c, rows[i].link, 1 - h);
        struct cluster tenth = bought(&f.c, rows[i].link, 1.1);
        double slope = (step_on(&f, &more) - step_on(&f, &less)) / (2 * h * s.value);
        double gain = 1 - step_on(&f, &tenth) / f.plan.time.step_s;
        double unit = f.plan.time.step_s / s.value;
        bool ok = fabs(s.step_s_per_unit - slope) <= 0.02 * fabs(slope) + nothing * unit &&
                  fabs(s.gain_of_10_percent - gain) <= 0.02 * fabs(gain) + nothing;
        if (!ok)
            report(&rows[i], "slope", s.step_s_per_unit, slope);
        seen += fabs(slope) > nothing * unit;
        bad += !ok;
        arena_destroy(f.a);
    }
    assert_int_equal(bad, 0);
    assert_true(seen >= 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(break_evens_meet_their_definition),
        cmocka_unit_test(sensitivities_are_slopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
