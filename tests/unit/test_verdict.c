// SPDX-License-Identifier: Apache-2.0
// Healthy clusters pass, also a thousand times over; whoever is slow is named, and nobody else.
#include "base/stats.h"
#include "base/units.h"
#include "judge/verdict.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct cluster load(const char *name, struct arena *a) {
    struct cluster c;
    struct err e = {0};
    assert_true(cluster_load(name, a, &c, &e));
    return c;
}

static struct measure_result collective(enum collective k, uint64_t payload, double busbw) {
    struct measure_result r;
    measure_result_init(&r);
    r.kind = collective_name(k);
    r.backend = "mpi";
    r.nodes = 1;
    r.ranks = 8;
    r.payload_bytes = payload;
    r.busbw_bytes_per_s = busbw;
    r.algbw_bytes_per_s = busbw / collective_bus_factor(k, 8);
    r.median_s = (double)payload / r.algbw_bytes_per_s;
    r.iterations = 1;
    return r;
}

static struct measure_result pair(uint64_t x, uint64_t y, double rate, struct arena *a) {
    struct measure_result r;
    measure_result_init(&r);
    r.kind = "send_recv";
    r.backend = "mpi";
    r.ranks = r.nodes = 2;
    r.payload_bytes = 4 * UNITS_MIB;
    r.group = arena_printf(a, "%d,%d", (int)x, (int)y);
    r.algbw_bytes_per_s = r.busbw_bytes_per_s = rate;
    r.median_s = (double)r.payload_bytes / rate;
    r.iterations = 1;
    return r;
}

static struct verdict judge(const struct verdict_request *q, struct arena *a) {
    struct verdict v;
    struct err e = {0};
    assert_true(verdict_judge(q, a, &v, &e));
    return v;
}

static const struct verdict_check *only_failure(const struct verdict *v) {
    const struct verdict_check *failed = NULL;
    for (size_t i = 0; i < v->count; i++)
        if (v->checks[i].status == VERDICT_FAIL) {
            if (failed)
                fail_msg("%s and %s fail", failed->name, v->checks[i].name);
            failed = &v->checks[i];
        }
    assert_non_null(failed);
    return failed;
}

// ---- bootstrapped healthy runs ------------------------------------------------------------------

#define POINTS 20
#define POOL 60
#define BASELINES 5
#define RUNS 1000

// What one sound fabric gave in POOL runs: 3 % of scatter, and in 3 % of the runs somebody else's
// traffic took a sixth.
static void fill_pool(double pool[POINTS][POOL]) {
    for (uint64_t i = 0; i < POINTS; i++)
        for (uint64_t k = 0; k < POOL; k++) {
            double slow = stats_random_uniform(11, i, k) < 0.03 ? 0.84 : 1;
            pool[i][k] = 3.6e11 * slow * (1 + 0.03 * stats_random_normal(12, i, k));
        }
}

static struct measurement draw(double pool[POINTS][POOL], uint64_t seed, uint64_t turn,
                               struct arena *a) {
    struct measure_result *r = arena_array(a, POINTS, sizeof *r);
    for (uint64_t i = 0; i < POINTS; i++) {
        size_t k = (size_t)(POOL * stats_random_uniform(seed, turn, i));
        r[i] = collective(i % 2 ? COLLECTIVE_ALL_GATHER : COLLECTIVE_REDUCE_SCATTER,
                          (uint64_t)(16 * UNITS_MIB) << (i / 2), pool[i][k]);
    }
    return (struct measurement){.results = r, .count = POINTS};
}

static bool passes(double pool[POINTS][POOL], uint64_t seed, const struct cluster *c,
                   const struct measurement *baselines, double rate) {
    struct arena *a = arena_create();
    struct measurement m[1 + VERDICT_RETRIES];
    struct verdict_request q = {
        .cluster = c, .measurements = m, .baselines = baselines, .baseline_count = BASELINES};
    struct verdict v = {0};
    for (bool again = true; again && q.measurement_count <= VERDICT_RETRIES;) {
        m[q.measurement_count] = draw(pool, seed, 1 + q.measurement_count, a);
        for (size_t i = 0; i < POINTS; i++)
            m[q.measurement_count].results[i].busbw_bytes_per_s *= rate;
        q.measurement_count++;
        v = judge(&q, a);
        again = verdict_wants_retry(&v);
    }
    bool pass = v.overall == VERDICT_PASS;
    arena_destroy(a);
    return pass;
}

static void a_thousand_healthy_runs(void **state) {
    static double pool[POINTS][POOL];
    struct arena *a = arena_create();
    struct cluster c = load("dgx-h100", a);
    struct measurement baselines[BASELINES];
    size_t alarms = 0, caught = 0;
    (void)state;
    fill_pool(pool);
    for (uint64_t seed = 0; seed < RUNS; seed++) {
        if (seed % 20 == 0) // fifty baselines of five runs
            for (uint64_t k = 0; k < BASELINES; k++)
                baselines[k] = draw(pool, 7000 + seed, k, a);
        alarms += !passes(pool, seed, &c, baselines, 1);
        if (seed % 20 == 0)
            caught += !passes(pool, seed, &c, baselines, 0.75);
    }
    print_message("%zu of %d healthy runs alarm; %zu of %d at three quarters of the rate do\n",
                  alarms, RUNS, caught, RUNS / 20);
    assert_true(alarms <= 1);
    assert_int_equal(caught, RUNS / 20);
    arena_destroy(a);
}

// ---- who is slow --------------------------------------------------------------------------------

#define RANKS 5
static size_t all_pairs(struct measure_result *r, uint64_t slow_rank, uint64_t x, uint64_t y,
                        struct arena *a) {
    size_t n = 0;
    for (uint64_t i = 0; i < RANKS; i++)
        for (uint64_t k = i + 1; k < RANKS; k++) {
            bool slow = i == slow_rank || k == slow_rank || (i == x && k == y);
            double noise = 1 + 0.03 * stats_random_normal(5, i, k);
            r[n++] = pair(i, k, (slow ? 1.1e10 : 2.4e10) * noise, a);
        }
    return n;
}

static void slow_links_and_ends_are_told_apart(void **state) {
    struct arena *a = arena_create();
    struct cluster c = load("dgx-h100", a);
    struct measure_result r[RANKS * RANKS];
    struct measurement m = {.results = r};
    struct verdict_request q = {.cluster = &c, .measurements = &m, .measurement_count = 1};
    struct verdict v;
    (void)state;
    m.count = all_pairs(r, RANKS, RANKS, RANKS, a);
    v = judge(&q, a);
    assert_int_equal(v.overall, VERDICT_PASS);
    m.count = all_pairs(r, RANKS, 1, 3, a);
    v = judge(&q, a);
    assert_string_equal(only_failure(&v)->culprit, "pair 1,3");
    m.count = all_pairs(r, 2, RANKS, RANKS, a); // its links are not to blame
    v = judge(&q, a);
    assert_string_equal(only_failure(&v)->culprit, "rank 2");
    assert_non_null(strstr(v.reason, "rank 2"));
    arena_destroy(a);
}

static void the_one_without_whom_others_are_fast(void **state) {
    struct arena *a = arena_create();
    struct cluster c = load("dgx-h100", a);
    struct measure_result r[4];
    const struct measurement m = {.results = r, .count = 4};
    struct verdict_request q = {.cluster = &c, .measurements = &m, .measurement_count = 1};
    (void)state;
    for (int i = 0; i < 4; i++) {
        r[i] = collective(COLLECTIVE_ALL_GATHER, 4 * UNITS_MIB, i == 2 ? 2e10 : 1e10);
        r[i].group = arena_printf(a, "all but %d", i);
    }
    struct verdict v = judge(&q, a);
    assert_string_equal(only_failure(&v)->culprit, "rank 2");
    // Two stand out when the link between them is slow: no end is to blame.
    r[0].busbw_bytes_per_s = 2e10;
    v = judge(&q, a);
    assert_int_equal(v.by_status[VERDICT_FAIL], 0);
    arena_destroy(a);
}

static void one_way_slower_than_the_other(void **state) {
    struct arena *a = arena_create();
    struct cluster c = load("dgx-h100", a);
    struct measure_result r[2];
    const struct measurement m = {.results = r, .count = 2};
    struct verdict_request q = {.cluster = &c, .measurements = &m, .measurement_count = 1};
    (void)state;
    for (int i = 0; i < 2; i++) {
        r[i] = pair(0, 1, 5.2e10, a);
        r[i].kind = "copy";
        r[i].group = "3";
        r[i].direction = i ? "d2h" : "h2d";
    }
    struct verdict v = judge(&q, a);
    assert_int_equal(v.by_status[VERDICT_FAIL], 0);
    r[1].algbw_bytes_per_s = 2.0e10;
    c.gpu.pcie_d2h_bytes_per_s = figure_assumed(5e10, 2e10, 6e10, "test"); // judges no rate itself
    v = judge(&q, a);
    assert_string_equal(only_failure(&v)->culprit, "device 3");
    assert_non_null(strstr(only_failure(&v)->reason, "to the host"));
    arena_destroy(a);
}

// ---- topology -----------------------------------------------------------------------------------

#define GPUS 2
static struct topology healthy(struct topology_device *d, struct topology_cell *cells,
                               const char **p2p) {
    for (int i = 0; i < GPUS + 1; i++)
        d[i] = (struct topology_device){.name = i == GPUS ? "NIC0"
                                                : i       ? "GPU1"
                                                          : "GPU0",
                                        .nic = i == GPUS,
                                        .numa = 0,
                                        .pcie_generation = 5,
                                        .pcie_lanes = 16,
                                        .nic_bytes_per_s = NAN};
    for (int i = 0; i < (GPUS + 1) * (GPUS + 1); i++)
        cells[i] = (struct topology_cell){.path = PATH_PIX};
    cells[1] = cells[3] = (struct topology_cell){.path = PATH_NVLINK, .links = 18};
    if (p2p)
        for (int i = 0; i < GPUS * GPUS; i++)
            p2p[i] = "OK";
    return (struct topology){
        .devices = d, .count = GPUS + 1, .gpus = GPUS, .cells = cells, .p2p = p2p};
}

static struct verdict of_topology(const struct topology *t, struct arena *a) {
    static struct cluster c;
    c = load("dgx-h100", a);
    struct verdict_request q = {.cluster = &c, .topologies = t, .topology_count = 1};
    return judge(&q, a);
}

static void tools_findings(void **state) {
    struct topology_device d[GPUS + 1];
    struct topology_cell cells[(GPUS + 1) * (GPUS + 1)];
    const char *p2p[GPUS * GPUS];
    struct arena *a = arena_create();
    struct verdict v;
    (void)state;
    struct topology t = healthy(d, cells, NULL);
    v = of_topology(&t, a);
    assert_int_equal(v.overall, VERDICT_PASS);
    d[1].pcie_lanes = 8;
    v = of_topology(&t, a);
    assert_string_equal(only_failure(&v)->culprit, "GPU1");
    assert_non_null(strstr(only_failure(&v)->reason, "x8"));
    t = healthy(d, cells, NULL);
    d[0].pcie_generation = 3;
    v = of_topology(&t, a);
    assert_string_equal(only_failure(&v)->culprit, "GPU0");
    t = healthy(d, cells, NULL);
    cells[1].links = cells[3].links = 17;
    v = of_topology(&t, a);
    assert_string_equal(only_failure(&v)->culprit, "GPU0,GPU1");
    t = healthy(d, cells, NULL);
    cells[5] = cells[7] = (struct topology_cell){.path = PATH_SYS}; // GPU1 to the card
    v = of_topology(&t, a);
    assert_string_equal(only_failure(&v)->culprit, "GPU1");
    t = healthy(d, cells, p2p);
    p2p[1] = p2p[2] = "GNS";
    v = of_topology(&t, a);
    assert_string_equal(only_failure(&v)->culprit, "GPU0,GPU1");
    t = healthy(d, cells, NULL);
    t.complete = true; // two of eight GPUs, and the tool saw everything
    v = of_topology(&t, a);
    assert_string_equal(only_failure(&v)->culprit, "node");
    arena_destroy(a);
}

static void nothing_never_passes(void **state) {
    struct arena *a = arena_create();
    struct cluster c = load("dgx-h100", a);
    const struct measurement none = {0};
    struct verdict_request q = {.cluster = &c, .measurements = &none, .measurement_count = 1};
    (void)state;
    struct verdict v = judge(&q, a);
    assert_int_equal(v.overall, VERDICT_NODATA);
    assert_false(verdict_wants_retry(&v));
    q.needs_nvme = q.needs_collectives = true;
    v = judge(&q, a);
    assert_true(v.overall == VERDICT_NODATA && v.by_status[VERDICT_NODATA] >= 2);
    const struct topology empty = {.complete = false};
    q = (struct verdict_request){.cluster = &c, .topologies = &empty, .topology_count = 1};
    v = judge(&q, a);
    assert_int_equal(v.overall, VERDICT_NODATA);
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_healthy_runs),
        cmocka_unit_test(slow_links_and_ends_are_told_apart),
        cmocka_unit_test(the_one_without_whom_others_are_fast),
        cmocka_unit_test(one_way_slower_than_the_other),
        cmocka_unit_test(tools_findings),
        cmocka_unit_test(nothing_never_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
