// SPDX-License-Identifier: Apache-2.0
// A place in a result file that may be absent: reading never fails, what is missing says so.
#pragma once

#include "base/arena.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#define VIEW_LARGEST 1e100 // no quantity of a run is larger; beyond it sums and axes overflow

// `item` NULL means absent. `path` is "$.plans[0].memory", owned by `arena`. Copy freely.
struct view {
    const cJSON *item;
    const char *path;
    struct arena *arena;
};

struct view view_root(const cJSON *root, struct arena *a);
struct view view_find(struct view v,
                      const char *dotted); // "memory.params_bytes"; absent if any part is
struct view view_member(struct view parent, const cJSON *child,
                        size_t index); // path by key or index
bool view_is_object(struct view v);
bool view_is_array(struct view v);
bool view_is_scalar(struct view v);  // number, string, true, false or null
bool view_is_missing(struct view v); // absent or null
size_t view_count(struct view v);    // elements or members; 0 when absent

double view_number(struct view v, const char *dotted); // NAN when absent, not a number or beyond
                                                       // VIEW_LARGEST
const char *view_string(struct view v, const char *dotted);         // NULL when absent or not text
int view_bool(struct view v, const char *dotted);                   // 1, 0, or -1 when absent
double view_item_number(const cJSON *object, const char *key);      // the same on a bare item
const char *view_item_string(const cJSON *object, const char *key); // without building a path

// Loop helper: for (const cJSON *c = view_first(v); c; c = c->next)
const cJSON *view_first(struct view v);
