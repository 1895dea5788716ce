// SPDX-License-Identifier: Apache-2.0
// docs/formats.md lists every recipe field as the field table has it.
#include "describe/recipe_fields.h"

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

static void test_every_path_is_documented(void **state) {
    (void)state;
    char path[4096], line[1024];
    const char *root = getenv("SHARDPLAN_SOURCE_ROOT");
    assert_non_null(root);
    snprintf(path, sizeof path, "%s/docs/formats.md", root);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    static char text[1 << 20];
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    size_t documented = 0, missing = 0;
    for (const char *at = text; (at = strstr(at, "| `recipe.")) != NULL; at++)
        documented++;
    for (size_t i = 0; i < recipe_field_count; i++) {
        line_of(&recipe_fields[i], line, sizeof line);
        if (strstr(text, line) != NULL)
            continue;
        missing++;
        fputs(line, stdout); // the line to paste
    }
    assert_int_equal(missing, 0);
    assert_int_equal(documented, recipe_field_count);
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
        {"recipe.world", "1", "recipe.world is derived (data-parallel ranks); it can't be set"},
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
        cmocka_unit_test(test_every_field_reads_its_own_text),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
