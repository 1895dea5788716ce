// SPDX-License-Identifier: Apache-2.0
// The nearest measured run: distances worked by hand, and the table that ships.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "describe/measured.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct measured_key base = {.gpu = "h100-sxm5-80gb",
                                         .sm = "sm_90",
                                         .framework = "fsdp2",
                                         .strategy = "fsdp2",
                                         .parameters = 8e9,
                                         .tokens_per_gpu = 8192,
                                         .gpus = 8};

static struct measured_run run_of(const char *id, struct measured_key k, double predicted_s) {
    return (struct measured_run){k, id, "a source", 10, predicted_s};
}

// Four times the parameters is 1 away, another GPU of the generation 1, eight times the GPUs 1,
// another framework 2, another generation 3.
static void distances(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct measured_key k = base;
    struct measured_run runs[4];
    k.parameters = 32e9;
    k.gpus = 64;
    runs[0] = run_of("larger", k, 11); // 2
    k = base;
    k.gpu = "h200-sxm5-141gb";
    k.strategy = "hsdp";
    runs[1] = run_of("other part", k, 9.5); // 1.5
    k = base;
    k.framework = "deepspeed";
    k.strategy = "zero3";
    runs[2] = run_of("other framework", k, 10); // 2
    k = base;
    k.gpu = "a100-sxm4-80gb";
    k.sm = "sm_80";
    runs[3] = run_of("other generation", k, 10); // 3
    struct measured_table t = {runs, 4};
    struct measured_nearest n;
    measured_find(&t, &base, a, &n);
    assert_string_equal(n.run->id, "other part");
    assert_true(fabs(n.distance - 1.5) < 1e-12);
    assert_true(fabs(n.error + 0.05) < 1e-12);
    assert_int_equal(n.group_n, 1);
    assert_non_null(strstr(n.differs, "another GPU (h200-sxm5-141gb)"));
    assert_non_null(strstr(n.differs, "another strategy (hsdp)"));
    t.count = 1;
    measured_find(&t, &base, a, &n);
    assert_true(fabs(n.distance - 2) < 1e-12);
    assert_non_null(strstr(n.differs, "4 x the parameters"));
    assert_non_null(strstr(n.differs, "8 x the GPUs"));
    t.count = 0;
    measured_find(&t, &base, a, &n);
    assert_null(n.run);
    arena_destroy(a);
}

static void the_same_run_differs_by_nothing(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct measured_run runs[] = {run_of("twin", base, 11), run_of("sister", base, 8)};
    runs[1].key.tokens_per_gpu *= 2;
    struct measured_table t = {runs, 2};
    struct measured_nearest n;
    measured_find(&t, &base, a, &n);
    assert_string_equal(n.run->id, "twin");
    assert_true(n.distance == 0);
    assert_null(n.differs);
    assert_int_equal(n.group_n, 2);
    assert_true(fabs(n.group_error - 0.15) < 1e-12);
    arena_destroy(a);
}

// Every run of the table is the nearest to itself.
static void the_table_that_ships(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct measured_table t;
    struct err e = {0};
    assert_true(measured_load(a, &t, &e));
    assert_true(t.count > 100);
    for (size_t i = 0; i < t.count; i++) {
        struct measured_nearest n;
        measured_find(&t, &t.runs[i].key, a, &n);
        assert_true(n.distance == 0);
        assert_true(fabs(n.error) < 0.5);
    }
    arena_destroy(a);
}

// A catalog whose table holds this text.
static bool load(const char *text, struct arena *a, struct measured_table *t, struct err *e) {
    char folder[] = "/tmp/measured-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *inner = arena_printf(a, "%s/measured", folder), *path;
    path = arena_printf(a, "%s/table.json", inner);
    assert_int_equal(mkdir(inner, 0700), 0);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    const char *before = getenv("SHARDPLAN_CATALOG");
    char *saved = before ? arena_strdup(a, before) : NULL;
    setenv("SHARDPLAN_CATALOG", folder, 1);
    bool ok = measured_load(a, t, e);
    if (saved)
        setenv("SHARDPLAN_CATALOG", saved, 1);
    else
        unsetenv("SHARDPLAN_CATALOG");
    unlink(path);
    rmdir(inner);
    rmdir(folder);
    return ok;
}

#define RUN(more)                                                                                  \
    "{\"id\": \"x\", \"source\": \"s\", \"gpu\": \"g\", \"sm\": \"sm_90\", \"framework\": "        \
    "\"fsdp2\", "                                                                                  \
    "\"strategy\": \"fsdp2\", \"parameters\": 1e9, \"gpus\": 8, \"tokens_per_gpu\": 4096, "        \
    "\"offload\": false, \"fp8\": true, \"measured_s\": 1.5, \"predicted_s\": 1.25" more "}"
#define TABLE(runs) "{\"schema\": \"shardplan.measured/1\", \"runs\": [" runs "]}"

static void a_table_is_read_strictly(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {TABLE(RUN(", \"colour\": 1")), "'colour' is no field of a run"},
        {TABLE(RUN(", \"gpus\": 8")), "'gpus' is given twice"},
        {TABLE("{\"id\": \"x\"}"), "'source' is missing"},
        {TABLE("{\"id\": 1}"), "id: expected a string"},
        {TABLE("{\"gpus\": 1.5}"), "gpus: expected a whole number above 0"},
        {TABLE("{\"measured_s\": 0}"), "measured_s: expected a number above 0"},
        {TABLE("{\"fp8\": null}"), "fp8: expected true or false"},
        {TABLE("3"), "expected a run"},
        {"{\"runs\": {}}", "expected an object with runs[]"},
        {"[]", "expected an object with runs[]"},
        {TABLE(RUN("")) "x", "table.json:1: "},
        {"{\"runs\": [", "table.json:1: "},
    };
    struct arena *a = arena_create();
    struct measured_table t;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        if (load(rows[i].text, a, &t, &e))
            fail_msg("%s is read", rows[i].text);
        if (!strstr(e.text, rows[i].says))
            fail_msg("%s: %s", rows[i].text, e.text);
        assert_int_equal(t.count, 0);
    }
    struct err e = {0};
    assert_true(load(TABLE(RUN("") ", " RUN("")), a, &t, &e));
    assert_int_equal(t.count, 2);
    assert_string_equal(t.runs[1].source, "s");
    assert_true(t.runs[1].key.fp8 && !t.runs[1].key.offload && t.runs[1].key.gpus == 8);
    assert_true(t.runs[1].measured_s == 1.5 && t.runs[1].predicted_s == 1.25);
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances),
        cmocka_unit_test(a_table_is_read_strictly),
        cmocka_unit_test(the_same_run_differs_by_nothing),
        cmocka_unit_test(the_table_that_ships),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
