// SPDX-License-Identifier: Apache-2.0
// Where figures and settings come from: given, a default, derived, measured, assumed.
#pragma once

#include "page.h"

struct recipe_of {
    const char *title;         // of the plan
    const char *const *chosen; // settings that the command chose, up to a NULL; or NULL
};
// Every setting of a recipe, by where it comes from: `root` is the result, whose inputs[] name what
// was given and whose space{} names what was searched; neither need be there.
void origins_recipe(struct page *p, struct view recipe, struct view root,
                    const struct recipe_of *of);
// Assumed figures that matter, with the command that measures each.
void origins_assumed(struct page *p, struct view list);
void origins_inputs(struct page *p, struct view inputs);
