// SPDX-License-Identifier: Apache-2.0
// Every transformer of the catalog is read and counted; the published counts are exact.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <string.h>

#include "describe/catalog.h"
#include "describe/model.h"

static const struct {
    const char *name;
    uint64_t parameters;
} published[] = {
    {"llama-2-7b", 6738415616},    {"llama-2-13b", 13015864320}, {"llama-2-70b", 68976648192},
    {"llama-3-8b", 8030261248},    {"llama-3-70b", 70553706496}, {"llama-3.1-405b", 405853388800},
    {"llama-3.2-1b", 1235814400},  {"llama-3.2-3b", 3212749824}, {"mistral-7b", 7241732096},
    {"mixtral-8x7b", 46702792704}, {"qwen2.5-0.5b", 494032768},  {"qwen2.5-7b", 7615616512},
    {"qwen2.5-72b", 72706203648},  {"gemma-7b", 8537680896},     {"gpt2", 124439808},
    {"gpt-neox-20b", 20554567680},
};

static void published_counts_are_exact(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        struct arena *a = arena_create();
        struct err e = {0};
        struct model m;
        if (!model_load(published[i].name, a, &m, &e))
            fail_msg("%s: %s", published[i].name, e.text);
        if (m.parameters != published[i].parameters)
            fail_msg("%s: %" PRIu64 ", published %" PRIu64, published[i].name, m.parameters,
                     published[i].parameters);
        arena_destroy(a);
    }
}

// At least 45, each with a public source; a stated count that differs fails in model_read.
static void every_model_is_counted(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct err e = {0};
    struct catalog_entry *entries;
    size_t count, bad = 0;
    if (!catalog_list(CATALOG_MODELS, a, &entries, &count, &e))
        fail_msg("%s", e.text);
    assert_true(count >= 45);
    for (size_t i = 0; i < count; i++) {
        struct model m;
        err_clear(&e);
        if (!model_read(entries[i].path, a, &m, &e)) {
            print_error("%s\n", e.text);
            bad++;
            continue;
        }
        assert_string_equal(m.name, entries[i].name);
        assert_true(m.source && strlen(m.source) > 10 && strcmp(m.source, entries[i].path) != 0);
        assert_true(m.active_parameters <= m.parameters && m.active_parameters > 0);
        assert_true(m.matmul_parameters > 0);
    }
    assert_int_equal(bad, 0);
    arena_destroy(a);
}

static void aliases_resolve_to_one_model(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct err e = {0};
    struct catalog_entry *entries;
    size_t count;
    assert_true(catalog_list(CATALOG_MODELS, a, &entries, &count, &e));
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < entries[i].alias_count; k++) {
            const char *path;
            if (!catalog_find(CATALOG_MODELS, entries[i].aliases[k], a, &path, &e))
                fail_msg("%s", e.text);
            if (strcmp(path, entries[i].path) != 0)
                fail_msg("alias \"%s\" of %s finds %s", entries[i].aliases[k], entries[i].name,
                         path);
        }
    const char *path;
    assert_false(catalog_find(CATALOG_MODELS, "lama-3-8b", a, &path, &e));
    assert_int_equal(e.kind, ERR_INPUT);
    assert_string_equal(e.text, "unknown model \"lama-3-8b\"; did you mean \"llama-3-8b\"?");
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_counts_are_exact),
        cmocka_unit_test(every_model_is_counted),
        cmocka_unit_test(aliases_resolve_to_one_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
