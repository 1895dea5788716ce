// SPDX-License-Identifier: Apache-2.0
// A checkpoint's tensors against the inventory, one by one.
#include "describe/model_family.h"
#include "describe/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct compare {
    const struct safetensors *s;
    const struct model *m;
    const struct family *family;
    const char *prefix;
    struct arena *a;
    struct safetensors_check *out;
};

static int by_name(const void *key, const void *tensor) {
    return strcmp(key, ((const struct safetensors_tensor *)tensor)->name);
}

static const struct safetensors_tensor *find(const struct safetensors *s, const char *name) {
    return s->count ? bsearch(name, s->tensors, s->count, sizeof *s->tensors, by_name) : NULL;
}

// Files carry "model.", nothing, or another tower's prefix: what stands before the token table's
// name.
static bool find_prefix(struct compare *c) {
    const char *wanted = arena_printf(c->a, "%s.weight", c->family->embed);
    size_t n = strlen(wanted), best = SIZE_MAX;
    for (size_t i = 0; i < c->s->count; i++) {
        const char *name = c->s->tensors[i].name;
        size_t length = strlen(name);
        bool ends = length >= n && !strcmp(name + length - n, wanted) &&
                    (length == n || name[length - n - 1] == '.');
        if (!ends || length >= best)
            continue;
        best = length;
        c->prefix = arena_printf(c->a, "%.*s", (int)(length - n), name);
    }
    return best != SIZE_MAX;
}

static bool same_shape(const struct safetensors_tensor *t, const struct tensor *want) {
    uint64_t rest = 1;
    if (t->rank == 0)
        return false;
    for (uint32_t i = 1; i < t->rank; i++)
        rest *= t->shape[i];
    return t->shape[0] == want->rows && rest == want->cols;
}

static const char *shape_text(const struct safetensors_tensor *t, struct arena *a) {
    const char *text = "[";
    for (uint32_t i = 0; i < t->rank; i++)
        text = arena_printf(a, "%s%s%" PRIu64, text, i ? ", " : "", t->shape[i]);
    return arena_printf(a, "%s]", text);
}

static bool same_type(const char *dtype, enum dtype want) {
    return (want == DTYPE_FP32 && !strcmp(dtype, "F32")) ||
           (want == DTYPE_BF16 && !strcmp(dtype, "BF16")) ||
           (want == DTYPE_FP16 && !strcmp(dtype, "F16")) ||
           (want == DTYPE_FP8 && !strncmp(dtype, "F8", strlen("F8")));
}

static void compare_one(struct compare *c, const char *name, const struct tensor *want) {
    struct safetensors_check *out = c->out;
    const struct safetensors_tensor *t = find(c->s, name);
    if (!t) {
        if (!out->first)
            out->first = arena_printf(c->a, "\"%s\" is missing", name);
        out->missing++;
        return;
    }
    if (!same_shape(t, want)) {
        if (!out->first)
            out->first =
                arena_printf(c->a, "\"%s\" is %s, the config gives [%" PRIu64 ", %" PRIu64 "]",
                             name, shape_text(t, c->a), want->rows, want->cols);
        out->shaped++;
        return;
    }
    if (!same_type(t->dtype, c->m->stored_dtype))
        out->typed++;
    out->matched++;
}

// "experts.*.w1" stands for one tensor per expert.
static void compare_copies(struct compare *c, const char *base, const struct tensor *want) {
    const char *star = strchr(want->name, '*');
    for (uint64_t k = 0; k < want->count; k++) {
        const char *name = star ? arena_printf(c->a, "%s%.*s%" PRIu64 "%s", base,
                                               (int)(star - want->name), want->name, k, star + 1)
                                : arena_printf(c->a, "%s%s", base, want->name);
        compare_one(c, name, want);
    }
}

static const char *head_base(const struct compare *c, const struct tensor *want) {
    return find(c->s, want->name) ? "" : c->prefix;
}

static void compare_unit(struct compare *c, const struct model_unit *u, uint64_t first) {
    for (uint64_t i = 0; i < u->repeat; i++) {
        const char *base =
            u->kind == UNIT_BLOCK
                ? arena_printf(c->a, "%s%s.%" PRIu64 ".", c->prefix, c->family->layers, first + i)
                : c->prefix;
        for (size_t k = 0; k < u->tensor_count; k++)
            compare_copies(c, u->kind == UNIT_HEAD ? head_base(c, &u->tensors[k]) : base,
                           &u->tensors[k]);
    }
}

void safetensors_compare(const struct safetensors *s, const struct model *m, struct arena *a,
                         struct safetensors_check *out) {
    struct compare c = {s, m, model_family(m->architecture), "", a, out};
    *out = (struct safetensors_check){0};
    if (!c.family || !find_prefix(&c))
        return;
    out->comparable = true;
    uint64_t block = 0;
    for (size_t i = 0; i < m->unit_count; i++) {
        compare_unit(&c, &m->units[i], block);
        if (m->units[i].kind == UNIT_BLOCK)
            block += m->units[i].repeat;
    }
    out->extra = s->count - out->matched - out->shaped;
}
