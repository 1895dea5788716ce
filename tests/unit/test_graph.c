// SPDX-License-Identifier: Apache-2.0
#include "describe/graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char good[] =
    "{\"schema\":\"shardplan.graph/1\",\"ranks\":4,\"groups\":[{\"id\":0,\"kind\":\"world\","
    "\"size\":4}],\"buffers\":[{\"id\":0,\"name\":\"gather\",\"bytes\":64,\"device\":\"gpu\"}],"
    "\"streams\":[\"compute\",\"collective\"],\"tasks\":["
    "{\"id\":0,\"kind\":\"alloc\",\"stream\":0,\"deps\":[],\"phase\":\"forward\",\"buffer\":0,"
    "\"bytes\":64,\"host_blocking\":false,\"issue_s\":0,\"duration_s\":0},"
    "{\"id\":1,\"kind\":\"collective\",\"stream\":1,\"deps\":[0],\"phase\":\"forward\","
    "\"unit\":\"layers.0\",\"bytes\":64,\"dtype\":\"bf16\",\"group\":0,"
    "\"collective\":\"all_gather\",\"host_blocking\":false,\"issue_s\":0.00002,"
    "\"duration_s\":0.001},"
    "{\"id\":2,\"kind\":\"gemm\",\"stream\":0,\"deps\":[1],\"phase\":\"forward\","
    "\"unit\":\"layers.0\",\"m\":2,\"n\":3,\"k\":4,\"shapes\":[{\"m\":2,\"n\":3,\"k\":4,"
    "\"count\":5,\"dtype\":\"bf16\"}],\"flop\":240,\"bytes\":1,\"dtype\":\"bf16\","
    "\"host_blocking\":false,\"issue_s\":0,\"duration_s\":0.002},"
    "{\"id\":3,\"kind\":\"copy\",\"stream\":0,\"deps\":[2],\"phase\":\"backward\",\"bytes\":8,"
    "\"dtype\":\"fp32\",\"direction\":\"d2h\",\"host_blocking\":true,\"issue_s\":0,"
    "\"duration_s\":0.1}]}";

static bool read_text(const char *text, struct arena *a, struct graph *g, struct err *e) {
    struct json_doc *d = json_read_text(text, strlen(text), "graph.json", e);
    if (d == NULL)
        return false;
    bool ok = graph_read_node(json_root(d), a, g, e);
    json_destroy(d);
    return ok;
}

static void a_graph_reads(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct graph g;
    struct err e = {0};
    assert_true(read_text(good, a, &g, &e));
    assert_int_equal(g.ranks, 4);
    assert_int_equal(g.task_count, 4);
    assert_int_equal(g.tasks[1].kind, GRAPH_COLLECTIVE);
    assert_int_equal(g.tasks[1].deps[0], 0);
    assert_int_equal(g.tasks[2].shapes[0].count, 5);
    assert_string_equal(g.tasks[3].direction, "d2h");
    assert_true(g.tasks[3].host_blocking);
    assert_string_equal(g.streams[1], "collective");
    arena_destroy(a);
}

static void simulated_times_survive(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct graph g, again;
    struct err e = {0};
    assert_true(read_text(good, a, &g, &e));
    assert_true(g.step_s == 0);
    struct graph_task *tasks = (struct graph_task *)(uintptr_t)g.tasks;
    tasks[2].start_s = 0.5;
    tasks[2].end_s = 0.75;
    g.step_s = 1.25;
    cJSON *root = graph_to_json(&g);
    char *text = cJSON_PrintUnformatted(root);
    assert_true(read_text(text, a, &again, &e));
    assert_true(again.step_s == 1.25 && again.tasks[2].start_s == 0.5 &&
                again.tasks[2].end_s == 0.75);
    free(text);
    cJSON_Delete(root);
    arena_destroy(a);
}

static void writing_and_reading_gives_the_same(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct graph g, again;
    struct err e = {0};
    assert_true(read_text(good, a, &g, &e));
    cJSON *first = graph_to_json(&g);
    char *text = json_to_text(first);
    assert_true(read_text(text, a, &again, &e));
    cJSON *second = graph_to_json(&again);
    char *twice = json_to_text(second);
    assert_string_equal(text, twice);
    cJSON_Delete(first);
    cJSON_Delete(second);
    free(text);
    free(twice);
    arena_destroy(a);
}

// The good text with `from` replaced by `to` must fail and say `why`.
static void refused(const char *from, const char *to, const char *why) {
    struct arena *a = arena_create();
    struct graph g;
    struct err e = {0};
    const char *at = strstr(good, from);
    assert_non_null(at);
    char *text = arena_printf(a, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    assert_false(read_text(text, a, &g, &e));
    assert_int_equal(e.kind, ERR_INPUT);
    if (strstr(e.text, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", e.text, why);
    arena_destroy(a);
}

static void broken_graphs_are_refused(void **state) {
    (void)state;
    refused("graph/1", "graph/2", "shardplan.graph/1");
    refused("\"deps\":[1]", "\"deps\":[2]", "not before it");
    refused("\"stream\":1", "\"stream\":7", "out of range");
    refused("\"group\":0", "\"group\":3", "out of range");
    refused("\"kind\":\"gemm\"", "\"kind\":\"gem\"", "gemm");
    refused("\"id\":2", "\"id\":5", "position");
    refused("\"direction\":\"d2h\",", "", "direction");
    refused("\"duration_s\":0.002", "\"duration_s\":-1", "negative");
    refused("\"duration_s\":0.002", "\"duration\":1", "duration_s");
    refused("\"size\":4", "\"size\":9", "ranks");
    refused("\"buffer\":0", "\"buffer\":1", "out of range");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_reads),
        cmocka_unit_test(simulated_times_survive),
        cmocka_unit_test(writing_and_reading_gives_the_same),
        cmocka_unit_test(broken_graphs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
