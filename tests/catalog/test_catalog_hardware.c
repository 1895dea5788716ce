// SPDX-License-Identifier: Apache-2.0
// Every GPU and cluster of the catalog loads; every figure names its source, assumptions are wide.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/units.h"
#include "describe/catalog.h"
#include "describe/cluster.h"
#include "describe/gpu_kernels.h"

// A figure in a file: value needs provenance and source; assumed needs low and high 2x apart.
static void check_figures(struct json_node n, const char *file) {
    struct json_node value;
    if (json_is_object(n) && json_find(n, "value", &value)) {
        const char *source = NULL, *provenance = NULL;
        double low = 0, high = 0;
        struct err e = {0};
        if (!json_get_string(n, "source", true, &source, &e) ||
            !json_get_string(n, "provenance", true, &provenance, &e) || strlen(source) < 8 ||
            strstr(source, "/work"))
            fail_msg("%s %s: no public source (%s)", file, n.path, e.text);
        if (!strcmp(provenance, "assumed")) {
            if (!json_get_double(n, "low", true, &low, &e) ||
                !json_get_double(n, "high", true, &high, &e))
                fail_msg("%s", e.text);
            if (high < 2 * low)
                fail_msg("%s %s: an assumed figure is at least 2x wide", file, n.path);
        }
        return;
    }
    if (json_is_object(n) || json_is_array(n))
        for (size_t i = 0; i < json_size(n); i++)
            check_figures(json_at(n, i), file);
}

static void check_file(const char *path) {
    struct err e = {0};
    struct json_doc *doc = json_read_file(path, &e);
    if (!doc)
        fail_msg("%s", e.text);
    check_figures(json_root(doc), path);
    json_destroy(doc);
}

static void every_gpu_loads(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct err e = {0};
    struct catalog_entry *entries;
    size_t count;
    assert_true(catalog_list(CATALOG_GPUS, a, &entries, &count, &e));
    assert_true(count >= 22);
    for (size_t i = 0; i < count; i++) {
        struct gpu g;
        if (!gpu_load(entries[i].name, a, &g, &e))
            fail_msg("%s", e.text);
        check_file(entries[i].path);
        assert_string_equal(g.id, entries[i].name);
        assert_true(figure_is_known(g.hbm_bytes_per_s));
        assert_true(figure_is_known(g.peak_flop_per_s[DTYPE_FP16]));
        double visible = gpu_visible_bytes(&g).value;
        assert_true(visible > 8.0 * (double)UNITS_GIB && visible < 300.0 * (double)UNITS_GIB);
        assert_true(figure_is_known(g.context_bytes) && figure_is_known(g.hbm_fraction));
        assert_true(g.pcie_generation == 0 || figure_is_known(g.pcie_h2d_bytes_per_s));
    }
    arena_destroy(a);
}

// No kernel sustains more than the whole of a peak.
static void fractions_stay_below_one(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct err e = {0};
    struct catalog_entry *entries;
    size_t count;
    assert_true(catalog_list(CATALOG_GPUS, a, &entries, &count, &e));
    for (size_t i = 0; i < count; i++) {
        struct gpu g;
        assert_true(gpu_load(entries[i].name, a, &g, &e));
        for (int stack = 0; stack < STACK_COUNT; stack++)
            for (int k = 0; k < KERNEL_CONSTANT_COUNT; k++)
                if (strstr(kernel_constant_names[k], "fraction") != NULL) {
                    struct figure f = gpu_kernel(&g, (enum kernel_stack)stack, k);
                    if (!(f.low > 0 && f.high <= 1))
                        fail_msg("%s %s: %g to %g", g.id, kernel_constant_names[k], f.low, f.high);
                }
    }
    arena_destroy(a);
}

static void every_cluster_loads(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct err e = {0};
    struct catalog_entry *entries;
    size_t count;
    assert_true(catalog_list(CATALOG_CLUSTERS, a, &entries, &count, &e));
    assert_true(count >= 19);
    for (size_t i = 0; i < count; i++) {
        struct cluster c;
        if (!cluster_load(entries[i].name, a, &c, &e))
            fail_msg("%s", e.text);
        check_file(entries[i].path);
        assert_string_equal(c.name, entries[i].name);
        assert_int_equal(c.gpus, c.gpus_per_node);
        assert_true(c.nics_per_node > 0 && figure_is_known(c.nic_bytes_per_s));
        assert_true(figure_is_known(c.host_memory_bytes) && figure_is_known(c.cpu_cores));
        assert_true(figure_is_known(c.inter_efficiency));
        assert_false(c.assumed_host);
        if (figure_is_known(c.usd_per_gpu_hour))
            assert_non_null(c.price_date);
    }
    arena_destroy(a);
}

static void defaults_are_wide(void **state) {
    (void)state;
    struct arena *a = arena_create();
    check_file(arena_printf(a, "%s/defaults.json", catalog_dir()));
    arena_destroy(a);
}

static const char *resolve(enum catalog_kind kind, const char *spec, struct arena *a) {
    struct err e = {0};
    const char *path;
    if (!catalog_find(kind, spec, a, &path, &e))
        fail_msg("%s", e.text);
    const char *file = strrchr(path, '/') + 1;
    return arena_printf(a, "%.*s", (int)(strlen(file) - strlen(".json")), file);
}

// What people wrote in runs, issues and tables, and what each means.
static void written_names_resolve(void **state) {
    (void)state;
    char line[512];
    size_t checked = 0;
    const char *root = getenv("SHARDPLAN_SOURCE_ROOT");
    assert_non_null(root);
    struct arena *a = arena_create();
    FILE *f = fopen(arena_printf(a, "%s/tests/catalog/names.tsv", root), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        char *save, *kind = strtok_r(line, "\t", &save), *spec = strtok_r(NULL, "\t", &save),
                    *name = strtok_r(NULL, "\t", &save);
        if (line[0] == '#')
            continue;
        enum catalog_kind k = !strcmp(kind, "gpu")       ? CATALOG_GPUS
                              : !strcmp(kind, "cluster") ? CATALOG_CLUSTERS
                                                         : CATALOG_MODELS;
        const char *found = resolve(k, spec, a);
        if (strcmp(found, name) != 0)
            fail_msg("%s \"%s\" finds %s, expected %s", kind, spec, found, name);
        checked++;
    }
    fclose(f);
    assert_true(checked > 100);
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gpu_loads),       cmocka_unit_test(fractions_stay_below_one),
        cmocka_unit_test(every_cluster_loads),   cmocka_unit_test(defaults_are_wide),
        cmocka_unit_test(written_names_resolve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
