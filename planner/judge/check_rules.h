// SPDX-License-Identifier: Apache-2.0
// What check's rule files share: the case at hand and how a finding is added.
#pragma once

#include "judge/check.h"

struct check {
    const struct check_request *q;
    struct arena *a;
    const struct model *m;
    const struct cluster *c;
    const struct recipe *r;      // resolved when out->resolved
    const struct memory *memory; // valid when out->resolved
    struct recipe_origins origins;
    struct warnings warnings;
    struct check_result *out;
};

typedef void check_rule(struct check *k);

// Copies `f`; a path of "recipe.NAME" becomes the line the value came from.
void check_add(struct check *k, struct finding f);
// Edit that sets a recipe field by the file's own key; EDIT_NONE where it has none.
struct edit check_set(const struct check *k, const char *field, const char *value);
// Seconds for one GPU to send this many bytes over its slowest link.
double check_seconds(const struct check *k, double sent_bytes);
double check_trainable(const struct check *k);
double check_frozen(const struct check *k);
uint64_t check_node_ranks(const struct check *k);
double check_largest_tensor(const struct check *k); // elements of one copy
const char *check_gib(const struct check *k, double bytes);

// NULL-terminated lists, one per file.
extern check_rule *const check_rules_deepspeed[];
extern check_rule *const check_rules_fsdp[];
extern check_rule *const check_rules_memory[];
extern check_rule *const check_rules_launch[];
