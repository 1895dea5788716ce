// SPDX-License-Identifier: Apache-2.0
// What trains: LoRA's targets and adapters, frozen weights.
#include "describe/recipe.h"

#include <string.h>

static bool is_linear(const struct tensor *x) {
    return x->role == TENSOR_LINEAR || x->role == TENSOR_EXPERT;
}

static const char *leaf_of(const char *module) {
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

// `target`, of n characters, is the module's whole name or its last part.
static bool target_is(const char *target, size_t n, const char *module) {
    const char *leaf = leaf_of(module);
    return (n == strlen(leaf) && strncmp(target, leaf, n) == 0) ||
           (n == strlen(module) && strncmp(target, module, n) == 0);
}

// Every name of --lora-targets stands for some linear layer: a typing error would train nothing.
bool recipe_check_targets(const struct recipe *r, const struct model *m, struct err *e) {
    const char *known = NULL;
    for (const char *at = r->lora_rank > 0 && r->lora_targets ? r->lora_targets : ""; *at;) {
        size_t n = strcspn(at, ",");
        bool found = false;
        for (size_t u = 0; u < m->unit_count; u++)
            for (size_t t = 0; t < m->units[u].tensor_count; t++) {
                const struct tensor *x = &m->units[u].tensors[t];
                if (m->units[u].kind != UNIT_BLOCK || !is_linear(x))
                    continue;
                found = found || target_is(at, n, x->module);
                known = known ? known : leaf_of(x->module);
            }
        if (!found)
            return err_set(e, ERR_USAGE,
                           "LoRA target '%.*s' names no linear layer of a block of %s (one is %s)",
                           (int)n, at, m->name ? m->name : "the model", known ? known : "none");
        at += n + (at[n] == ',');
    }
    return true;
}

static bool target_matches(const char *targets, const char *module) {
    for (const char *at = targets; *at;) {
        size_t n = strcspn(at, ",");
        if (target_is(at, n, module))
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

bool recipe_adapts(const struct recipe *r, const struct tensor *t) {
    return r->lora_rank > 0 && is_linear(t) &&
           (r->lora_targets == NULL || target_matches(r->lora_targets, t->module));
}

double recipe_trained_share(const struct recipe *r) {
    return r->lora_rank > 0 ? 0 : 1 - r->frozen_fraction;
}

struct recipe_adapters recipe_adapters(const struct recipe *r, const struct model *m,
                                       uint64_t numel) {
    struct recipe_adapters sum = {0};
    for (size_t u = 0; u < m->unit_count; u++) {
        const struct model_unit *unit = &m->units[u];
        if (unit->kind != UNIT_BLOCK)
            continue;
        for (size_t t = 0; t < unit->tensor_count; t++) {
            const struct tensor *x = &unit->tensors[t];
            if (!recipe_adapts(r, x))
                continue;
            uint64_t pairs = (x->count ? x->count : 1) * unit->repeat;
            const uint64_t sides[] = {x->rows, x->cols};
            for (int side = 0; side < 2; side++)
                if (r->lora_rank * sides[side] <= numel) {
                    sum.count += pairs;
                    sum.elements += pairs * r->lora_rank * sides[side];
                }
        }
    }
    return sum;
}

uint64_t recipe_frozen(const struct recipe *r, const struct model *m) {
    if (r->lora_rank > 0)
        return m->parameters;
    return (uint64_t)((double)m->parameters * r->frozen_fraction);
}

uint64_t recipe_trainable(const struct recipe *r, const struct model *m) {
    if (r->lora_rank > 0)
        return recipe_adapters(r, m, UINT64_MAX).elements;
    return m->parameters - recipe_frozen(r, m);
}
