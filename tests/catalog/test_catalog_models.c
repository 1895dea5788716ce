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

// The count and sequence columns of llm-foundry's scripts/train/benchmarking/README.md.
static const struct {
    const char *name;
    uint64_t seq, parameters;
} benchmarked[] = {
    {"mpt-bench-125m", 512, 124131840},    {"mpt-bench-125m", 1024, 124525056},
    {"mpt-bench-125m", 2048, 125311488},   {"mpt-bench-125m", 4096, 126884352},
    {"mpt-bench-125m", 16384, 136321536},  {"mpt-bench-125m", 32768, 148904448},
    {"mpt-bench-125m", 65536, 174070272},  {"mpt-bench-350m", 1024, 354936832},
    {"mpt-bench-350m", 2048, 355985408},   {"mpt-bench-350m", 16384, 370665472},
    {"mpt-bench-350m", 65536, 420997120},  {"mpt-bench-760m", 512, 758111232},
    {"mpt-bench-760m", 1024, 758897664},   {"mpt-bench-760m", 2048, 760470528},
    {"mpt-bench-760m", 4096, 763616256},   {"mpt-bench-760m", 8192, 769907712},
    {"mpt-bench-760m", 16384, 782490624},  {"mpt-bench-760m", 32768, 807656448},
    {"mpt-bench-760m", 65536, 857988096},  {"mpt-bench-1b", 512, 1312804864},
    {"mpt-bench-1b", 1024, 1313853440},    {"mpt-bench-1b", 2048, 1315950592},
    {"mpt-bench-1b", 4096, 1320144896},    {"mpt-bench-1b", 8192, 1328533504},
    {"mpt-bench-1b", 16384, 1345310720},   {"mpt-bench-1b", 32768, 1378865152},
    {"mpt-bench-1b", 65536, 1445974016},   {"mpt-bench-3b", 512, 2647905280},
    {"mpt-bench-3b", 1024, 2649216000},    {"mpt-bench-3b", 2048, 2651837440},
    {"mpt-bench-3b", 4096, 2657080320},    {"mpt-bench-3b", 8192, 2667566080},
    {"mpt-bench-3b", 32768, 2730480640},   {"mpt-bench-3b", 65536, 2814366720},
    {"mpt-bench-7b", 512, 6652567552},     {"mpt-bench-7b", 1024, 6654664704},
    {"mpt-bench-7b", 2048, 6658859008},    {"mpt-bench-7b", 4096, 6667247616},
    {"mpt-bench-7b", 8192, 6684024832},    {"mpt-bench-7b", 16384, 6717579264},
    {"mpt-bench-7b", 32768, 6784688128},   {"mpt-bench-13b", 512, 12846090240},
    {"mpt-bench-13b", 1024, 12848711680},  {"mpt-bench-13b", 2048, 12853954560},
    {"mpt-bench-13b", 4096, 12864440320},  {"mpt-bench-13b", 8192, 12885411840},
    {"mpt-bench-13b", 16384, 12927354880}, {"mpt-bench-13b", 32768, 13011240960},
    {"mpt-bench-30b", 512, 29964204032},   {"mpt-bench-30b", 1024, 29967874048},
    {"mpt-bench-30b", 4096, 29989894144},  {"mpt-bench-30b", 8192, 30019254272},
    {"mpt-bench-70b", 2048, 64862437376},
};

static void benchmark_counts_follow_the_sequence(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof benchmarked / sizeof benchmarked[0]; i++) {
        struct arena *a = arena_create();
        struct err e = {0};
        struct model m;
        assert_true(model_load(benchmarked[i].name, a, &m, &e));
        assert_true(m.positions_follow_seq);
        assert_true(model_set_positions(&m, benchmarked[i].seq, a, &e));
        assert_int_equal(m.parameters, benchmarked[i].parameters);
        arena_destroy(a);
    }
}

// The one OPT whose table is narrower than its blocks and whose norms stand after each part: 50272
// x 512 + 2050 x 1024 + two projections of 512 x 1024 + 24 blocks of 12596224, and no final norm.
static void opt_with_projections_and_without_a_final_norm(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct err e = {0};
    struct model m;
    if (!model_load("opt-350m", a, &m, &e))
        fail_msg("%s", e.text);
    assert_int_equal(m.parameters, 25739264 + 2099200 + 2 * 524288 + 24 * 12596224);
    assert_int_equal(m.parameters, 331196416);
    const struct model_unit *u = &m.units[0];
    assert_string_equal(u->tensors[2].name, "project_out.weight");
    assert_int_equal(u->tensors[2].rows, 512);
    assert_int_equal(u->tensors[2].cols, 1024);
    assert_string_equal(u->tensors[3].name, "project_in.weight");
    assert_int_equal(u->tensors[3].rows, 1024);
    for (size_t i = 0; i < m.unit_count; i++)
        if (m.units[i].kind == UNIT_FINAL_NORM)
            assert_int_equal(m.units[i].tensor_count, 0);
    // Every weight that a token is multiplied with: projections, blocks' matrices, the tied head.
    assert_int_equal(m.matmul_parameters,
                     2 * 524288 + 24 * (4 * 1024 * 1024 + 2 * 1024 * 4096) + 50272 * 512);
    arena_destroy(a);
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
    err_clear(&e);
    assert_false(catalog_find(CATALOG_MODELS, "mixtral8x", a, &path, &e));
    assert_string_equal(
        e.text, "unknown model \"mixtral8x\"; did you mean one of: mixtral-8x22b, mixtral-8x7b?");
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_counts_are_exact),
        cmocka_unit_test(benchmark_counts_follow_the_sequence),
        cmocka_unit_test(opt_with_projections_and_without_a_final_norm),
        cmocka_unit_test(every_model_is_counted),
        cmocka_unit_test(aliases_resolve_to_one_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
