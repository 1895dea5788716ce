// SPDX-License-Identifier: Apache-2.0
#include "describe/measure.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEADER                                                                                     \
    "{\"schema\":\"shardplan.measurement/1\",\"host\":{\"name\":\"a\",\"cpus\":2},"                \
    "\"build\":{\"type\":\"release\"}"
#define LINE                                                                                       \
    "{\"kind\":\"all_gather\",\"backend\":\"mpi\",\"payload_bytes\":9007199254740993,"             \
    "\"median_s\":0.5,\"samples_s\":[0.5,0.25,0.75]}"

static bool parse(const char *text, struct arena *a, struct measurement *m, struct err *e) {
    memset(e, 0, sizeof(*e));
    return measure_parse(text, strlen(text), "t.json", a, m, e);
}

static void reads_both_forms(void **state) {
    struct arena *a = arena_create();
    struct measurement m;
    struct err e;
    (void)state;
    assert_true(parse(HEADER "}\n" LINE "\n" LINE "\n", a, &m, &e));
    assert_int_equal(m.count, 2);
    assert_string_equal(m.host.name, "a");
    assert_string_equal(m.build.type, "release");
    assert_true(m.results[1].payload_bytes == 9007199254740993u);
    assert_int_equal(m.results[1].samples, 3);
    assert_true(isnan(m.results[1].busbw_bytes_per_s));
    assert_true(parse(HEADER ",\n\"results\":[" LINE "]}", a, &m, &e));
    assert_int_equal(m.count, 1);
    assert_true(parse(HEADER ",\"results\":[" LINE "]}\n", a, &m, &e));
    assert_int_equal(m.count, 1);
    arena_destroy(a);
}

static void drops_only_a_torn_last_line(void **state) {
    struct arena *a = arena_create();
    struct measurement m;
    struct err e;
    (void)state;
    assert_true(parse(HEADER "}\n" LINE "\n{\"kind\":\"all_ga", a, &m, &e));
    assert_int_equal(m.count, 1);
    assert_true(m.torn);
    assert_false(parse(HEADER "}\n{\"kind\":\"all_ga\n" LINE "\n", a, &m, &e));
    assert_int_equal(e.kind, ERR_INPUT);
    assert_non_null(strstr(e.text, "line 2"));
    arena_destroy(a);
}

static void refuses_what_it_does_not_know(void **state) {
    struct arena *a = arena_create();
    struct measurement m;
    struct err e;
    (void)state;
    assert_false(
        parse(HEADER "}\n{\"kind\":\"copy\",\"backend\":\"host\",\"medain_s\":1}\n", a, &m, &e));
    assert_non_null(strstr(e.text, "median_s"));
    assert_false(parse(HEADER "}\n{\"kind\":\"copy\",\"backend\":\"host\"}\n", a, &m, &e));
    assert_false(
        parse(HEADER "}\n{\"kind\":\"copy\",\"backend\":\"host\",\"median_s\":0}\n", a, &m, &e));
    assert_false(parse("{\"schema\":\"shardplan.measurement/2\",\"results\":[]}", a, &m, &e));
    assert_false(parse("{\n\"schema\":\"shardplan.measurement/1\"\n}", a, &m, &e));
    arena_destroy(a);
}

static void round_trips(void **state) {
    struct arena *a = arena_create();
    struct measurement m, back;
    struct err e;
    (void)state;
    assert_true(parse(HEADER "}\n" LINE "\n", a, &m, &e));
    double samples[2500];
    for (int i = 0; i < 2500; i++)
        samples[i] = 1e-6 * (i + 1);
    measure_summarise(&m.results[0], samples, 2500, a);
    assert_int_equal(m.results[0].iterations, 2500);
    assert_int_equal(m.results[0].samples, MEASURE_SAMPLES_MAX);
    assert_true(fabs(m.results[0].median_s - 1250.5e-6) < 1e-12);
    assert_true(fabs(m.results[0].p95_s - 2375.05e-6) < 1e-12);
    m.results[0].in_place = true;
    cJSON *json = measure_to_json(&m);
    char *text = json_to_text(json);
    assert_true(parse(text, a, &back, &e));
    assert_string_equal(measure_key(&m.results[0], a), measure_key(&back.results[0], a));
    assert_true(back.results[0].in_place);
    assert_true(fabs(back.results[0].max_s - 2.5e-3) < 1e-12);
    free(text);
    cJSON_Delete(json);
    char *line = measure_result_line(&m.results[0]);
    assert_true(strchr(line, '\n') == line + strlen(line) - 1);
    free(line);
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_both_forms),
        cmocka_unit_test(drops_only_a_torn_last_line),
        cmocka_unit_test(refuses_what_it_does_not_know),
        cmocka_unit_test(round_trips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
