// SPDX-License-Identifier: Apache-2.0
// Reported user cases that check and explain answer, by id: tests/cases/check_cases.json.
#include "base/json.h"
#include "base/units.h"
#include "judge/explain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "check_reading.h"

#define SETS_MAX 4

static const char *text_of(struct json_node o, const char *key) {
    const char *s = NULL;
    struct err e = {0};
    if (!json_get_string(o, key, false, &s, &e))
        fail_msg("%s", e.text);
    return s;
}

static double number_of(struct json_node o, const char *key) {
    double v = NAN;
    struct err e = {0};
    if (!json_get_double(o, key, false, &v, &e))
        fail_msg("%s", e.text);
    return v;
}

static void load(struct json_node run, struct run *x) {
    struct err e = {0};
    double nodes = number_of(run, "nodes"), host = number_of(run, "host_gb");
    const char *cluster = text_of(run, "cluster");
    if (!model_load(text_of(run, "model"), x->a, &x->model, &e) ||
        (cluster && !cluster_load(cluster, x->a, &x->cluster, &e)) ||
        (cluster && nodes > 1 && !cluster_resize(&x->cluster, (uint64_t)nodes, 0, &e)))
        fail_msg("%s", e.text);
    if (host > 0)
        x->cluster.host_memory_bytes = figure_known(host * UNITS_GIGA, PROVENANCE_SPEC, "reported");
}

static const struct finding *match(const struct check_result *r, struct json_node run) {
    const char *id = text_of(run, "finding"), *says = text_of(run, "says");
    const char *severity = text_of(run, "severity"), *fix = text_of(run, "fix");
    double min = number_of(run, "min_gib"), max = number_of(run, "max_gib");
    for (size_t i = 0; i < r->count; i++) {
        const struct finding *f = &r->findings[i];
        double gib = f->cost_bytes / (double)UNITS_GIB;
        if (strcmp(f->id, id) == 0 && (says == NULL || strstr(f->text, says)) &&
            (severity == NULL || strcmp(severity, severity_names[f->severity]) == 0) &&
            (fix == NULL || (f->fix && strstr(f->fix, fix))) && !(gib < min) && !(gib > max) &&
            (isnan(min) || !isnan(gib)))
            return f;
    }
    return NULL;
}

static size_t run_check(struct json_node run, const char *id) {
    struct run x = {.a = arena_create()};
    struct json_node config, sets;
    struct err e = {0};
    load(run, &x);
    char *json = json_find(run, "config", &config) ? cJSON_Print(config.item) : NULL;
    write_temporary(x.config, sizeof x.config, json ? json : text_of(run, "yaml"));
    free(json);
    if (text_of(run, "environment"))
        write_temporary(x.environment, sizeof x.environment, text_of(run, "environment"));
    const char **items = arena_array(x.a, SETS_MAX, sizeof *items);
    if (json_find(run, "sets", &sets))
        for (size_t i = 0; i < json_size(sets) && i < SETS_MAX; i++)
            items[x.options.set.count++] = json_at(sets, i).item->valuestring;
    x.options.set.items = items;
    x.q = (struct check_request){x.config, x.environment[0] ? x.environment : NULL, &x.options,
                                 &x.model, &x.cluster};
    if (!check_config(&x.q, x.a, &x.r, &e))
        fail_msg("%s: %s", id, e.text);
    bool found = match(&x.r, run) != NULL;
    if (!found) {
        print_message("%s: no such %s\n", id, text_of(run, "finding"));
        print(&x.r);
    }
    finish(&x);
    return !found;
}

static bool resolve(struct json_node run, struct run *x, struct recipe *r) {
    struct err e = {0};
    enum strategy s;
    uint64_t k = 0;
    if (text_of(run, "strategy") == NULL)
        return false;
    if (!recipe_strategy_parse(text_of(run, "strategy"), &s, &k, &e))
        fail_msg("%s", e.text);
    recipe_defaults(s, r);
    if (!recipe_resolve(r, &x->model, &x->cluster, &e))
        fail_msg("%s", e.text);
    return true;
}

static size_t run_explain(struct json_node run, const char *id) {
    struct run x = {.a = arena_create()};
    struct recipe r;
    struct explain_result result;
    struct err e = {0};
    const char *says = text_of(run, "says"), *kind = text_of(run, "event");
    load(run, &x);
    write_temporary(x.config, sizeof x.config, text_of(run, "log"));
    struct explain_request q = {.path = x.config, .model = &x.model};
    if (resolve(run, &x, &r)) {
        q.recipe = &r;
        q.cluster = &x.cluster;
    }
    if (!explain_log(&q, x.a, &result, &e))
        fail_msg("%s: %s", id, e.text);
    bool found = false;
    for (size_t i = 0; i < result.count; i++) {
        const struct explain_event *ev = &result.events[i];
        bool same = strcmp(explain_kind_names[ev->kind], kind) == 0;
        found |= same && (says == NULL || strstr(ev->meaning, says));
        for (size_t k = 0; k < ev->cause_count; k++)
            found |= same && strstr(ev->causes[k].what, says) != NULL;
    }
    if (!found)
        print_message("%s: no event %s with '%s'\n", id, kind, says ? says : "");
    finish(&x);
    return !found;
}

static void test_cases(void **state) {
    (void)state;
    char path[4096];
    struct err e = {0};
    struct json_node cases, runs, log;
    size_t bad = 0;
    snprintf(path, sizeof path, "%s/tests/cases/check_cases.json", getenv("SHARDPLAN_SOURCE_ROOT"));
    struct json_doc *doc = json_read_file(path, &e);
    if (doc == NULL)
        fail_msg("%s", e.text);
    assert_true(json_find(json_root(doc), "cases", &cases));
    for (size_t i = 0; i < json_size(cases); i++) {
        struct json_node c = json_at(cases, i);
        const char *id = text_of(c, "id");
        assert_true(json_find(c, "runs", &runs) && json_size(runs) > 0);
        for (size_t k = 0; k < json_size(runs); k++) {
            struct json_node run = json_at(runs, k);
            bad += json_find(run, "log", &log) ? run_explain(run, id) : run_check(run, id);
        }
    }
    assert_true(json_size(cases) >= 28);
    json_destroy(doc);
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
