// SPDX-License-Identifier: Apache-2.0
// Every field of a recipe by name: one table drives `--set recipe.NAME=VALUE`, the recipe object of
// results, comparison and the list in docs/formats.md.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "describe/recipe.h"

#include <stdbool.h>
#include <stddef.h>

enum recipe_field_type {
    FIELD_BOOL,   // true, false, on, off, 1, 0
    FIELD_COUNT,  // uint64_t: 5e8, 7B
    FIELD_BYTES,  // uint64_t: 25MiB
    FIELD_NUMBER, // double
    FIELD_TEXT,   // const char *; "none" clears
    FIELD_CHOICE, // enum, by name
    FIELD_DTYPE,  // enum dtype
};

struct recipe_field {
    const char *name; // as in struct recipe and in the JSON recipe object
    enum recipe_field_type type;
    size_t offset;
    const char *const *names; // FIELD_CHOICE
    size_t name_count;
    bool derived;        // recipe_resolve computes it: shown, not settable
    size_t given_offset; // bool to set with it; SIZE_MAX = none
    const char *help;
};

extern const struct recipe_field recipe_fields[];
extern const size_t recipe_field_count;

// NULL when unknown. Accepts "recipe.NAME" and "NAME".
const struct recipe_field *recipe_field_find(const char *path);
// Set one field from text; ERR_USAGE naming the field, the value and what was expected.
bool recipe_field_set(struct recipe *r, const char *path, const char *value, struct arena *a,
                      struct err *e);
// Value as text that recipe_field_set reads back; lives in the arena.
const char *recipe_field_text(const struct recipe *r, const struct recipe_field *f,
                              struct arena *a);
// Add all fields to a JSON object.
void recipe_fields_add_json(const struct recipe *r, cJSON *object);
// First field in which two recipes differ, or NULL. Derived fields are not compared.
const struct recipe_field *recipe_field_difference(const struct recipe *x, const struct recipe *y);
