// SPDX-License-Identifier: Apache-2.0
// Reads a configuration given as text; for the tests of its readers. Include after cmocka.h.
#pragma once

#include "describe/recipe_config.h"
#include "describe/recipe_fields.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct model model = {
    .name = "m", .layers = 32, .hidden = 4096, .max_positions = 8192};

struct reading {
    struct arena *a;
    struct recipe r;
    struct recipe_origins origins;
    struct warnings warnings;
    struct err e;
    bool ok;
};

static inline struct reading read_text(const char *text, bool lenient) {
    struct reading x = {.a = arena_create()};
    char path[] = "/tmp/ds_config_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    struct config_context c = {.arena = x.a,
                               .model = &model,
                               .origins = &x.origins,
                               .warnings = &x.warnings,
                               .lenient = lenient};
    x.ok = recipe_read_config(path, &c, &x.r, &x.e);
    unlink(path);
    return x;
}

static inline const char *field(struct reading *x, const char *name) {
    const struct recipe_field *f = recipe_field_find(name);
    assert_non_null(f);
    return recipe_field_text(&x->r, f, x->a);
}

static inline bool warned(const struct reading *x, enum warning_kind kind, const char *text) {
    for (size_t i = 0; i < x->warnings.count; i++)
        if (x->warnings.items[i].kind == kind &&
            (strstr(x->warnings.items[i].text, text) || strstr(x->warnings.items[i].path, text)))
            return true;
    return false;
}
