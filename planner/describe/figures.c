// SPDX-License-Identifier: Apache-2.0
#include "describe/figures.h"

#include <math.h>

void figures_clear(const struct figure_table *t, void *object) {
    for (size_t i = 0; i < t->count; i++)
        *(struct figure *)(void *)((char *)object + t->fields[i].offset) = figure_unknown();
}

bool figures_read_one(struct json_node o, const char *key, struct arena *a, struct figure *f,
                      struct err *e) {
    struct figure read = *f;
    struct json_node n;
    if (!json_get_figure(o, key, false, a, &read, e))
        return false;
    if (figure_is_known(read) && !(isfinite(read.value) && read.value > 0 && read.low >= 0) &&
        json_find(o, key, &n))
        return json_fail(n, e, "a known figure is above zero");
    *f = read;
    return true;
}

bool figures_read(const struct figure_table *t, struct json_node n, struct arena *a, void *object,
                  struct err *e) {
    for (size_t i = 0; i < t->count; i++) {
        struct figure *f = (struct figure *)(void *)((char *)object + t->fields[i].offset);
        if (!figures_read_one(n, t->fields[i].key, a, f, e))
            return false;
    }
    return true;
}

void figures_write(const struct figure_table *t, cJSON *o, const void *object) {
    for (size_t i = 0; i < t->count; i++)
        json_add_figure(
            o, t->fields[i].key,
            *(const struct figure *)(const void *)((const char *)object + t->fields[i].offset));
}

bool figures_read_text(struct json_node n, const char *key, struct arena *a, const char **out,
                       struct err *e) {
    const char *text = NULL;
    if (!json_get_string(n, key, false, &text, e))
        return false;
    if (text)
        *out = arena_strdup(a, text);
    return true;
}
