// SPDX-License-Identifier: Apache-2.0
// Scores of a committed sample of public runs and bandwidths, the statistics by hand, and the
// rules. A whole file is judged too when SHARDPLAN_RUNS (and SHARDPLAN_COLLECTIVES) name one.
#include "base/units.h"
#include "judge/validate.h"
#include "judge/validate_stats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *fixture(struct arena *a, const char *name) {
    return arena_printf(a, "%s/tests/fixtures/validation/%s", getenv("SHARDPLAN_SOURCE_ROOT"),
                        name);
}

static void near(double a, double b, double relative) {
    if (!(fabs(a - b) <= relative * fabs(b))) {
        fail_msg("%g is not within %g of %g", a, relative, b);
    }
}

static const struct validate_point *point(const struct validate_result *r, const char *id,
                                          enum validate_metric metric) {
    for (size_t i = 0; i < r->point_count; i++) {
        if (strcmp(r->points[i].id, id) == 0 && r->points[i].metric == metric) {
            return &r->points[i];
        }
    }
    fail_msg("no row %s", id);
    return NULL;
}

static void statistics_by_hand(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct validate_point p[5] = {0};
    const double predicted[] = {1.1, 0.8, 1.0, 1.3, 9.0};
    const char *sources[] = {"one", "one", "two", "two", "two"};
    for (int i = 0; i < 5; i++) {
        p[i] = (struct validate_point){.id = "x",
                                       .source = sources[i],
                                       .group = "data_parallel",
                                       .part = "y",
                                       .measured = 1.0,
                                       .predicted = predicted[i],
                                       .low = 0.85,
                                       .high = 1.15,
                                       .ape = fabs(predicted[i] - 1.0),
                                       .scored = i < 4};
    }
    const struct validate_score s = validate_score_of(p, 5, METRIC_STEP_TIME, "data_parallel", a);
    assert_int_equal(s.n, 4); // the fifth is not scored
    near(s.mape, 0.15, 1e-9);
    near(s.macro_mape, 0.15, 1e-9);
    near(s.bias, 0.05, 1e-9);
    near(s.median_ape, 0.15, 1e-9);
    near(s.max_ape, 0.3, 1e-9);
    assert_int_equal(validate_score_of(p, 5, METRIC_MEMORY, NULL, a).n, 0);
    struct validate_result r = {.points = p, .point_count = 5};
    validate_stats_runs(&r, a);
    near(r.coverage_step_time, 1.0, 1e-9); // 1.0 lies in every interval
    arena_destroy(a);
}

static void sample_of_runs(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct validate_result r;
    struct err e = {0};
    if (!validate_runs(fixture(a, "runs.json"), a, &r, &e)) {
        fail_msg("%s", e.text);
    }
    assert_int_equal(r.step_time.n, 14);
    if (!(r.step_time.mape < 0.06) || !(fabs(r.step_time.bias) < 0.03) ||
        !(r.step_time.max_ape < 0.16)) {
        fail_msg("mape %.3f bias %.3f max %.3f", r.step_time.mape, r.step_time.bias,
                 r.step_time.max_ape);
    }
    assert_int_equal(r.false_oom, 0);
    assert_true(r.coverage_step_time > 0.6);
    for (size_t i = 0; i < r.point_count; i++) {
        const struct validate_point *p = &r.points[i];
        assert_true(p->scored == (p->reason == NULL));
        if (p->scored && p->metric == METRIC_STEP_TIME) {
            assert_true(p->low <= p->predicted && p->predicted <= p->high);
        }
    }
    arena_destroy(a);
}

// Rows that come without a score block are scored by the same rules.
static void rules_of_scoring(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct validate_result r;
    struct err e = {0};
    assert_true(validate_runs(fixture(a, "runs.json"), a, &r, &e));
    near(point(&r, "foundry-a100-80-13b-s8192-n8-mb5x3", METRIC_STEP_TIME)->measured, 68.4473,
         1e-4);
    near(point(&r, "mleng-b200-8b-z3off-s65536", METRIC_STEP_TIME)->measured, 8.802021, 1e-4);
    near(point(&r, "vuis-R5-n4-gbs60", METRIC_STEP_TIME)->measured, 0.421, 1e-9);
    assert_string_equal(point(&r, "titan-table1-8b-n8-compile-fp8", METRIC_STEP_TIME)->group,
                        "float8");
    assert_string_equal(point(&r, "titan-asynctp-70b-n256-bf16-vanilla", METRIC_STEP_TIME)->group,
                        "mixed");
    const struct validate_point *p = point(&r, "foundry-h100-1b-s4096-n8-mb7x4", METRIC_STEP_TIME);
    assert_false(p->scored);
    assert_string_equal(p->reason, "tier supplement");
    p = point(&r, "azure-175b-s512-n256-mb32", METRIC_STEP_TIME);
    assert_non_null(strstr(p->reason, "activation offload"));
    p = point(&r, "mingpt-xl-v100x4-ac-mb16", METRIC_MEMORY);
    assert_non_null(strstr(p->reason, "kind of memory figure not stated"));
    arena_destroy(a);
}

static void sample_of_collectives(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct validate_result r;
    struct err e = {0};
    if (!validate_collectives(fixture(a, "collectives.json"), a, &r, &e)) {
        fail_msg("%s", e.text);
    }
    assert_true(r.collectives.n >= 25);
    if (!(r.collectives.median_ape < 0.12) || !(r.collectives.p90_ape < 0.30)) {
        fail_msg("median %.3f p90 %.3f", r.collectives.median_ape, r.collectives.p90_ape);
    }
    bool slow = false;
    for (size_t i = 0; i < r.point_count; i++) {
        slow = slow || (r.points[i].reason != NULL && strstr(r.points[i].reason, "slow") != NULL);
    }
    assert_true(slow);
    arena_destroy(a);
}

static void bad_files_are_refused(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct validate_result r;
    struct err e = {0};
    assert_false(validate_runs("/no/such/file.json", a, &r, &e));
    e = (struct err){0};
    assert_false(validate_runs(fixture(a, "collectives.json"), a, &r, &e));
    assert_int_equal(e.kind, ERR_INPUT);
    e = (struct err){0};
    assert_false(validate_collectives(fixture(a, "../../../models/defaults.json"), a, &r, &e));
    assert_int_equal(e.kind, ERR_INPUT);
    arena_destroy(a);
}

static const struct validate_score *group(const struct validate_result *r, const char *name) {
    for (size_t i = 0; i < r->group_count; i++) {
        if (strcmp(r->groups[i].name, name) == 0) {
            return &r->groups[i].score;
        }
    }
    fail_msg("no group %s", name);
    return NULL;
}

static void whole_file_of_runs(void **state) {
    (void)state;
    const char *path = getenv("SHARDPLAN_RUNS");
    if (path == NULL) {
        skip();
    }
    struct arena *a = arena_create();
    struct validate_result r;
    struct err e = {0};
    assert_true(validate_runs(path, a, &r, &e));
    const struct validate_score *s = &r.step_time;
    assert_true(s->mape <= 0.05 && s->macro_mape <= 0.08 && s->p90_ape <= 0.12 &&
                fabs(s->bias) <= 0.02);
    assert_true(r.coverage_step_time >= 0.70 && r.coverage_step_time <= 0.90 &&
                r.median_half_width <= 0.12);
    arena_destroy(a);
}

static void whole_file_of_collectives(void **state) {
    (void)state;
    const char *path = getenv("SHARDPLAN_COLLECTIVES");
    if (path == NULL) {
        skip();
    }
    struct arena *a = arena_create();
    struct validate_result r;
    struct err e = {0};
    assert_true(validate_collectives(path, a, &r, &e));
    const char *large[] = {"all_reduce 16MiB+", "all_gather+reduce_scatter 16MiB+"};
    for (int i = 0; i < 2; i++) {
        const struct validate_score *s = group(&r, large[i]);
        assert_true(s->median_ape <= 0.12 && s->p90_ape <= 0.30);
    }
    assert_true(group(&r, "all_reduce 1-16MiB")->median_ape <= 0.25);
    assert_true(group(&r, "all_gather+reduce_scatter 1-16MiB")->median_ape <= 0.25);
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_by_hand),        cmocka_unit_test(sample_of_runs),
        cmocka_unit_test(rules_of_scoring),          cmocka_unit_test(sample_of_collectives),
        cmocka_unit_test(bad_files_are_refused),     cmocka_unit_test(whole_file_of_runs),
        cmocka_unit_test(whole_file_of_collectives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
