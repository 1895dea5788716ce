// SPDX-License-Identifier: Apache-2.0
// Every tensor of every block against what transformers registers (inventories.tsv, made by
// tests/oracle/inventory.py): names, shapes, order, total.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "describe/catalog.h"
#include "describe/model.h"

// One model's lines are consumed in order against the cursor of their unit.
struct cursor {
    struct model m;
    char name[64];
    size_t dense, moe, others, mismatches;
    struct arena *a;
};

static const struct model_unit *block_of(const struct model *m, bool moe) {
    for (size_t i = 0; i < m->unit_count; i++)
        if (m->units[i].kind == UNIT_BLOCK && m->units[i].moe == moe)
            return &m->units[i];
    return NULL;
}

static const char *shape_of(const struct tensor *t, struct arena *a) {
    bool vector = t->cols == 1 && (t->role == TENSOR_BIAS || t->role == TENSOR_NORM);
    return vector ? arena_printf(a, "%" PRIu64, t->rows)
                  : arena_printf(a, "%" PRIu64 "x%" PRIu64, t->rows, t->cols);
}

static void check_block(struct cursor *c, bool moe, const char *name, const char *shape) {
    const struct model_unit *u = block_of(&c->m, moe);
    size_t *at = moe ? &c->moe : &c->dense;
    if (!u || *at >= u->tensor_count)
        fail_msg("%s: transformers has %s beyond our block", c->name, name);
    const struct tensor *t = &u->tensors[(*at)++];
    if (strcmp(t->name, name) != 0 || strcmp(shape_of(t, c->a), shape) != 0)
        fail_msg("%s: %s [%s], transformers registers %s [%s] there", c->name, t->name,
                 shape_of(t, c->a), name, shape);
}

// Tables, final norm and head: by the end of the name, in any order.
static void check_other(struct cursor *c, const char *name, const char *shape) {
    size_t n = strlen(name);
    for (size_t i = 0; i < c->m.unit_count; i++) {
        const struct model_unit *u = &c->m.units[i];
        for (size_t k = 0; u->kind != UNIT_BLOCK && k < u->tensor_count; k++) {
            size_t w = strlen(u->tensors[k].name);
            if (n < w || strcmp(name + n - w, u->tensors[k].name) != 0)
                continue;
            if (strcmp(shape_of(&u->tensors[k], c->a), shape) != 0)
                fail_msg("%s: %s is [%s], transformers has [%s]", c->name, name,
                         shape_of(&u->tensors[k], c->a), shape);
            c->others++;
            return;
        }
    }
    fail_msg("%s: transformers has %s, the inventory has not", c->name, name);
}

static void finish_model(const struct cursor *c) {
    size_t others = 0;
    for (size_t i = 0; i < c->m.unit_count; i++)
        if (c->m.units[i].kind != UNIT_BLOCK)
            others += c->m.units[i].tensor_count;
    const struct model_unit *dense = block_of(&c->m, false), *moe = block_of(&c->m, true);
    if (c->dense != (dense ? dense->tensor_count : 0) || c->moe != (moe ? moe->tensor_count : 0) ||
        c->others != others)
        fail_msg("%s: the inventory has tensors that transformers has not", c->name);
}

static void start_model(struct cursor *c, const char *name, const char *total) {
    struct err e = {0};
    arena_reset(c->a);
    if (!model_load(name, c->a, &c->m, &e))
        fail_msg("%s", e.text);
    if (c->m.parameters != strtoull(total, NULL, 10))
        fail_msg("%s: %" PRIu64 " parameters, transformers has %s", name, c->m.parameters, total);
    snprintf(c->name, sizeof c->name, "%s", name);
    c->dense = c->moe = c->others = 0;
}

static void inventories_are_those_of_transformers(void **state) {
    (void)state;
    char line[512];
    size_t models = 0;
    const char *root = getenv("SHARDPLAN_SOURCE_ROOT");
    assert_non_null(root);
    struct cursor c = {.a = arena_create()};
    snprintf(line, sizeof line, "%s/tests/catalog/inventories.tsv", root);
    FILE *f = fopen(line, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#')
            continue;
        line[strcspn(line, "\n")] = '\0';
        char *save, *name = strtok_r(line, "\t", &save), *unit = strtok_r(NULL, "\t", &save),
                    *tensor = strtok_r(NULL, "\t", &save), *shape = strtok_r(NULL, "\t", &save);
        if (!strcmp(unit, "total")) {
            if (models++ > 0)
                finish_model(&c);
            start_model(&c, name, tensor);
        } else if (!strcmp(unit, "other")) {
            check_other(&c, tensor, shape);
        } else {
            check_block(&c, !strcmp(unit, "moe"), tensor, shape);
        }
    }
    fclose(f);
    finish_model(&c);
    assert_true(models >= 60);
    arena_destroy(c.a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inventories_are_those_of_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
