// SPDX-License-Identifier: Apache-2.0
// Where figures and settings come from: given, a default, derived, measured, assumed.
#pragma once

#include "page.h"

// Every setting of a recipe, by where it comes from: `root` is the result, whose inputs[] name what
// was given and whose space{} names what was searched; neither need be there.
void origins_recipe(struct page *p, struct view recipe, struct view root, const char *title);
// Assumed figures that matter, with the command that measures each.
void origins_assumed(struct page *p, struct view list);
void origins_inputs(struct page *p, struct view inputs);
