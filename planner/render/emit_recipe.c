// SPDX-License-Identifier: Apache-2.0
#include "describe/recipe_fields.h"
#include "render/emit_plan.h"

void emit_recipe(cJSON *parent, const char *key, const struct recipe *r) {
    recipe_fields_add_json(r, json_add_object(parent, key));
}
