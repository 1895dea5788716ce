// SPDX-License-Identifier: Apache-2.0
// docs/formats.md lists every recipe field as the field table has it.
#include "describe/cluster_fields.h"
#include "describe/recipe_fields.h"
#include "describe/recipe_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *kind(const struct recipe_field *f) {
    static const char *const names[] = {
        [FIELD_BOOL] = "true or false",     [FIELD_COUNT] = "count", [FIELD_BYTES] = "bytes",
        [FIELD_NUMBER] = "number",          [FIELD_TEXT] = "text",   [FIELD_CHOICE] = "",
        [FIELD_DTYPE] = "fp32, bf16, fp16",
    };
    return names[f->type];
}

static void line_of(const struct recipe_field *f, char *buf, size_t size) {
    size_t n = (size_t)snprintf(buf, size, "| `recipe.%s` | %s", f->name, kind(f));
    for (size_t i = 0; f->type == FIELD_CHOICE && i < f->name_count && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? ", " : "", f->names[i]);
    snprintf(buf + n, size - n, " | %s%s |\n", f->help, f->derived ? " (derived)" : "");
}

static const char *formats_text(void) {
    static char text[1 << 20];
    char path[4096];
    const char *root = getenv("SHARDPLAN_SOURCE_ROOT");
    assert_non_null(root);
    snprintf(path, sizeof path, "%s/docs/formats.md", root);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    return text;
}

static size_t occurrences(const char *text, const char *words) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
        n++;
    return n;
}

static void test_every_path_is_documented(void **state) {
    (void)state;
    char line[1024];
    const char *text = formats_text();
    size_t missing = 0;
    for (size_t i = 0; i < recipe_field_count; i++) {
        line_of(&recipe_fields[i], line, sizeof line);
        if (strstr(text, line) != NULL)
            continue;
        missing++;
        fputs(line, stdout); // the line to paste
    }
    for (size_t i = 0; i < cluster_field_count; i++) {
        const struct cluster_field *f = &cluster_fields[i];
        snprintf(line, sizeof line, "| `%s` | %s | %s |\n", f->path, f->value, f->help);
        if (strstr(text, line) != NULL)
            continue;
        missing++;
        fputs(line, stdout);
    }
    assert_int_equal(missing, 0);
    assert_int_equal(occurrences(text, "| `recipe."), recipe_field_count);
    assert_int_equal(occurrences(text, "\n| `cluster.") + occurrences(text, "\n| `gpu."),
                     cluster_field_count);
}

static void test_cluster_paths(void **state) {
    (void)state;
    struct arena *a = arena_create();
    struct cluster c;
    struct err e = {0};
    const char *sets[] = {"cluster.nic_bytes_per_s=400Gb/s", "gpu.hbm_fraction=0.8",
                          "cluster.host_memory_bytes=1TiB", "recipe.seq=128"};
    struct recipe_request q = {.set = {sets, 4}};
    if (!cluster_load("dgx-h100", a, &c, &e) || !recipe_apply_cluster(&q, &c, &e))
        fail_msg("%s", e.text);
    assert_true(c.nic_bytes_per_s.value == 50e9);
    assert_true(c.gpu.hbm_fraction.value == 0.8);
    assert_true(c.host_memory_bytes.value == 1099511627776.0);
    assert_string_equal(c.host_memory_bytes.source, "--set");
    assert_false(cluster_field_set(&c, "cluster.nic_byte_per_s", "1", &e));
    assert_string_equal(e.text, "--set cluster.nic_byte_per_s: no such figure; did you mean "
                                "'cluster.nic_bytes_per_s'?");
    err_clear(&e);
    assert_false(cluster_field_set(&c, "gpu.hbm_fraction", "0", &e));
    assert_string_equal(e.text, "--set gpu.hbm_fraction=0: must be above zero");
    err_clear(&e);
    assert_false(cluster_field_set(&c, "cluster.nic_bytes_per_s", "fast", &e));
    assert_non_null(strstr(e.text, "--set cluster.nic_bytes_per_s: "));
    arena_destroy(a);
}

static void test_every_field_reads_its_own_text(void **state) {
    (void)state;
    struct arena *a = arena_create();
    for (int s = 0; s < STRATEGY_COUNT; s++) {
        struct recipe x, y;
        struct err e = {0};
        recipe_defaults((enum strategy)s, &x);
        recipe_defaults(STRATEGY_DDP, &y);
        for (size_t i = 0; i < recipe_field_count; i++) {
            const struct recipe_field *f = &recipe_fields[i];
            if (!f->derived && !recipe_field_set(&y, f->name, recipe_field_text(&x, f, a), a, &e))
                fail_msg("%s: %s", f->name, e.text);
        }
        assert_null(recipe_field_difference(&x, &y));
        y.sub_group_elements++;
        assert_string_equal(recipe_field_difference(&x, &y)->name, "sub_group_elements");
    }
    arena_destroy(a);
}

static void test_refusals(void **state) {
    (void)state;
    static const char *const table[][3] = {
        {"recipe.sek", "1", "--set recipe.sek: no such recipe field; did you mean 'recipe.seq'?"},
        {"recipe.world", "1",
         "recipe.world is derived (data-parallel ranks, with the context ranks); it can't be set"},
        {"recipe.loss", "fuse", "recipe.loss: unknown value 'fuse'; did you mean 'fused'?"},
        {"pin_memory", "maybe", "recipe.pin_memory: 'maybe' is neither true nor false"},
        {"reduce_dtype", "fp99", "recipe.reduce_dtype: 'fp99' is not a type (fp32, bf16, fp16)"},
        {"seq", "-1", "recipe.seq: "},
        {"clip", "x", "recipe.clip: "},
        {"ddp_bucket_bytes", "25MiX", "recipe.ddp_bucket_bytes: "},
    };
    struct arena *a = arena_create();
    struct recipe r;
    recipe_defaults(STRATEGY_ZERO3, &r);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct err e = {0};
        assert_false(recipe_field_set(&r, table[i][0], table[i][1], a, &e));
        if (strncmp(e.text, table[i][2], strlen(table[i][2])) != 0)
            fail_msg("expected '%s', got '%s'", table[i][2], e.text);
    }
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_path_is_documented),
        cmocka_unit_test(test_cluster_paths),
        cmocka_unit_test(test_every_field_reads_its_own_text),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
