// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct json_doc *parse(const char *text, struct err *e) {
    return json_read_text(text, strlen(text), "t.json", e);
}

static void refuse(const char *text, const char *expected) {
    struct err e = {0};
    struct json_doc *d = parse(text, &e);
    assert_null(d);
    assert_int_equal(e.kind, ERR_INPUT);
    if (!strstr(e.text, expected))
        fail_msg("'%s' lacks '%s'", e.text, expected);
}

static void bad_syntax_is_refused_with_its_line(void **state) {
    (void)state;
    refuse("", "t.json:1: a value is missing");
    refuse("{\n\"a\": 1,\n\"a\": 2\n}", "t.json:3: 'a' is given twice");
    refuse("{\"x\": [{\"b\":1},\n{\"c\":1,\n\"d\":2,\n\"c\":3}]}", "t.json:4: 'c' is given twice");
    refuse("{\"a\": 1}\n\n x", "t.json:3: text after the end");
    refuse("{\"a\": 01}", "starts with 0");
    refuse("[1, 2,]", "value is missing");
    refuse("[1.]", "digit is missing");
    refuse("[NaN]", "value is missing or unknown");
    refuse("{\"a\" 1}", "':' is missing");
    refuse("{a: 1}", "member name in quotes");
    refuse("[1 2]", "',' or ']'");
    refuse("\"abc", "no end");
    refuse("\"a\nb\"", "control character");
    refuse("\"\\u0000\"", "character 0");
    refuse("\"\\x\"", "unknown escape");
    refuse("\"\xff\"", "not UTF-8");
    refuse("\"\xed\xa0\x80\"", "not UTF-8");
}

static void depth_is_limited(void **state) {
    (void)state;
    char text[200];
    struct err e = {0};
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    text[128] = '\0';
    struct json_doc *d = parse(text, &e);
    assert_non_null(d);
    json_destroy(d);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    text[130] = '\0';
    refuse(text, "64 deep");
}

static void whole_numbers_stay_exact(void **state) {
    (void)state;
    struct err e = {0};
    struct json_doc *d =
        parse("{\"a\": 9007199254740993, \"b\": 18446744073709551615, \"c\": 1e3,\n"
              "\"d\": 18446744073709551616, \"e\": -1, \"f\": 1.5, \"g\": 1e999,"
              "\"h\": 0, \"i\": null}",
              &e);
    assert_non_null(d);
    struct json_node o = json_root(d);
    uint64_t v = 0;
    assert_true(json_get_u64(o, "a", true, &v, &e));
    assert_int_equal(v, 9007199254740993);
    assert_true(json_get_u64(o, "b", true, &v, &e));
    assert_int_equal(v, UINT64_MAX);
    assert_true(json_get_u64(o, "c", true, &v, &e));
    assert_int_equal(v, 1000);
    assert_true(json_get_u64(o, "h", true, &v, &e));
    assert_int_equal(v, 0);
    const char *bad[] = {"d", "e", "f", "g", "i", "missing"};
    v = 5;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err_clear(&e);
        assert_false(json_get_u64(o, bad[i], true, &v, &e));
        assert_int_equal(e.kind, ERR_INPUT);
        assert_int_equal(v, 5);
    }
    err_clear(&e);
    assert_true(json_get_u64(o, "i", false, &v, &e));
    assert_true(json_get_u64(o, "missing", false, &v, &e));
    assert_int_equal(v, 5);
    assert_false(json_get_u64(o, "e", true, &v, &e));
    assert_string_equal(e.text, "t.json:2 $.e: expected a whole number that is not negative, "
                                "got -1");
    json_destroy(d);
}

static void getters_name_what_they_wanted(void **state) {
    (void)state;
    struct err e = {0};
    struct json_doc *d = parse("{\"s\": \"x\",\n \"z\": {\"stage\": [1,\n true]}}", &e);
    struct json_node o = json_root(d), z, stage;
    const char *s = NULL;
    bool b = false;
    double x;
    assert_true(json_get_string(o, "s", true, &s, &e));
    assert_string_equal(s, "x");
    assert_false(json_find(o, "S", &z));
    assert_true(json_find(o, "z", &z));
    assert_true(json_find(z, "stage", &stage));
    assert_int_equal(json_size(stage), 2);
    assert_string_equal(json_at(stage, 1).path, "$.z.stage[1]");
    assert_int_equal(json_line(json_at(stage, 1)), 3);
    assert_int_equal(json_line(json_at(stage, 0)), 2);
    assert_string_equal(json_key(json_at(o, 1)), "z");
    assert_false(json_get_bool(o, "s", true, &b, &e));
    assert_string_equal(e.text, "t.json:1 $.s: expected true or false, got a string");
    err_clear(&e);
    assert_false(json_as_double(json_at(stage, 1), &x, &e));
    assert_string_equal(e.text, "t.json:3 $.z.stage[1]: expected a number, got true or false");
    const char *keys[] = {"s", "zz"};
    err_clear(&e);
    assert_false(json_check_keys(o, keys, 2, &e));
    assert_non_null(strstr(e.text, "unknown key 'z'; did you mean 'zz'?"));
    json_destroy(d);
    json_destroy(NULL);
}

static void figures_carry_their_origin(void **state) {
    (void)state;
    struct err e = {0};
    struct arena *a = arena_create();
    struct json_doc *d =
        parse("{\"k\": {\"value\": 3e11, \"provenance\": \"spec\", \"source\": \"sheet\"},"
              " \"n\": {\"value\": null, \"note\": \"not published\"},"
              " \"g\": {\"value\": 2, \"provenance\": \"assumed\", \"source\": \"guess\"},"
              " \"bad\": {\"value\": 2, \"provenance\": \"spec\", \"source\": \"x\", \"low\": 3},"
              " \"who\": {\"value\": 2, \"provenance\": \"rumour\", \"source\": \"x\"},"
              " \"bare\": {\"value\": 2, \"provenance\": \"spec\"}}",
              &e);
    struct json_node o = json_root(d);
    struct figure f;
    assert_true(json_get_figure(o, "k", true, a, &f, &e));
    assert_true(f.value == 3e11 && f.low == 3e11 && f.provenance == PROVENANCE_SPEC);
    assert_string_equal(f.source, "sheet");
    assert_true(json_get_figure(o, "n", true, a, &f, &e));
    assert_false(figure_is_known(f));
    assert_true(json_get_figure(o, "g", true, a, &f, &e));
    assert_true(f.high >= 2 * f.low);
    assert_false(json_get_figure(o, "bad", true, a, &f, NULL));
    assert_false(json_get_figure(o, "who", true, a, &f, NULL));
    assert_false(json_get_figure(o, "bare", true, a, &f, NULL));
    json_destroy(d);
    arena_destroy(a);
}

static void written_text_reads_back(void **state) {
    (void)state;
    cJSON *o = cJSON_CreateObject();
    json_add_u64(o, "big", 9007199254740993);
    json_add_u64(o, "max", UINT64_MAX);
    json_add_u64(o, "sixteen", 9007199254740991);
    json_add_double(o, "nan", NAN);
    json_add_double(o, "inf", INFINITY);
    json_add_double(o, "third", 1.0 / 3);
    json_add_double(o, "whole", 6738415616.0);
    json_add_string(o, "s", "a\"\\\n\x01");
    json_add_string(o, "none", NULL);
    cJSON *samples = json_add_array(o, "samples");
    cJSON_AddItemToArray(samples, cJSON_CreateNumber(0.5));
    cJSON_AddItemToArray(samples, cJSON_CreateNumber(-0.0));
    json_add_array(o, "empty");
    json_add_bool(json_append_object(json_add_array(o, "objects")), "yes", true);
    char *text = json_to_text(o);
    assert_string_equal(text, "{\n"
                              "  \"big\": 9007199254740993,\n"
                              "  \"max\": 18446744073709551615,\n"
                              "  \"sixteen\": 9007199254740991,\n"
                              "  \"nan\": null,\n"
                              "  \"inf\": null,\n"
                              "  \"third\": 0.333333333,\n"
                              "  \"whole\": 6738415616,\n"
                              "  \"s\": \"a\\\"\\\\\\n\\u0001\",\n"
                              "  \"none\": null,\n"
                              "  \"samples\": [0.5, 0],\n"
                              "  \"empty\": [],\n"
                              "  \"objects\": [\n"
                              "    {\n"
                              "      \"yes\": true\n"
                              "    }\n"
                              "  ]\n"
                              "}\n");
    struct err e = {0};
    struct json_doc *d = parse(text, &e);
    uint64_t v = 0;
    assert_true(json_get_u64(json_root(d), "max", true, &v, &e));
    assert_true(v == UINT64_MAX);
    json_destroy(d);
    free(text);
    cJSON_Delete(o);
}

static size_t count_files(const char *folder) {
    size_t n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void a_failed_write_leaves_the_old_file(void **state) {
    (void)state;
    char folder[] = "/tmp/test_json.XXXXXX", path[64], missing[80], text[4096];
    struct err e = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/r.json", folder);
    snprintf(missing, sizeof missing, "%s/no/r.json", folder);
    assert_true(json_write_text_file(path, "[1]\n", 4, &e));
    memset(text, ' ', sizeof text);
    struct rlimit old, small = {1024, 1024};
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    bool ok = json_write_text_file(path, text, sizeof text, &e);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_false(ok);
    assert_int_equal(e.kind, ERR_RESOURCE);
    struct json_doc *d = json_read_file(path, NULL);
    assert_non_null(d);
    assert_int_equal(json_size(json_root(d)), 1);
    json_destroy(d);
    assert_int_equal(count_files(folder), 1);
    assert_false(json_write_text_file(missing, "x", 1, NULL));
    assert_false(json_write_text_file(folder, "x", 1, NULL));
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

static void devices_are_written_not_replaced(void **state) {
    (void)state;
    struct err e = {0};
    struct stat st;
    assert_false(json_write_text_file("/dev/full", "x", 1, &e));
    assert_int_equal(e.kind, ERR_RESOURCE);
    assert_non_null(strstr(e.text, "/dev/full"));
    assert_true(json_write_text_file("/dev/null", "x", 1, NULL));
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
}

static void files_that_are_not_there_say_so(void **state) {
    (void)state;
    struct err e = {0};
    assert_null(json_read_file("/nonexistent/a.json", &e));
    assert_int_equal(e.kind, ERR_INPUT);
    assert_string_equal(e.text, "/nonexistent/a.json: No such file or directory");
    err_clear(&e);
    assert_null(json_read_file("/tmp", &e));
    assert_int_equal(e.kind, ERR_INPUT);
    err_clear(&e);
    assert_null(json_read_file("/dev/zero", &e));
    assert_non_null(strstr(e.text, "larger than 64 MiB"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_syntax_is_refused_with_its_line),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(whole_numbers_stay_exact),
        cmocka_unit_test(getters_name_what_they_wanted),
        cmocka_unit_test(figures_carry_their_origin),
        cmocka_unit_test(written_text_reads_back),
        cmocka_unit_test(a_failed_write_leaves_the_old_file),
        cmocka_unit_test(devices_are_written_not_replaced),
        cmocka_unit_test(files_that_are_not_there_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
