// SPDX-License-Identifier: Apache-2.0
#include "describe/warnings.h"

#include <string.h>

void warnings_add(struct warnings *w, struct arena *a, enum warning_kind kind, const char *path,
                  const char *text) {
    if (w == NULL)
        return;
    if (w->count == w->capacity) {
        size_t capacity = w->capacity ? 2 * w->capacity : 8;
        struct warning *items = arena_array(a, capacity, sizeof *items);
        if (w->count)
            memcpy(items, w->items, w->count * sizeof *items);
        w->items = items;
        w->capacity = capacity;
    }
    w->items[w->count++] = (struct warning){kind, arena_strdup(a, path), arena_strdup(a, text)};
}
