// SPDX-License-Identifier: Apache-2.0
#include "describe/import_text.h"

#include "base/units.h"
#include "describe/recipe_fields.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

// Grows by doubling, so that a small file costs a small arena.
static char *read_all(FILE *f, struct arena *a, size_t *bytes) {
    size_t capacity = 4 * UNITS_KIB, n = 0;
    char *text = arena_alloc(a, capacity + 1);
    for (;;) {
        n += fread(text + n, 1, capacity - n, f);
        if (n < capacity || n > UNITS_MIB)
            break;
        char *larger = arena_alloc(a, 2 * capacity + 1);
        memcpy(larger, text, n);
        text = larger;
        capacity *= 2;
    }
    text[n] = '\0';
    *bytes = n;
    return text;
}

char *import_text_read(const char *path, struct arena *a, size_t *bytes, struct err *e) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        err_set(e, ERR_INPUT, "%s: %s", path, strerror(errno));
        return NULL;
    }
    size_t n = 0;
    char *text = read_all(f, a, &n), *out = NULL;
    if (ferror(f))
        err_set(e, ERR_INPUT, "%s: %s", path, strerror(errno));
    else if (n > UNITS_MIB)
        err_set(e, ERR_INPUT, "%s: larger than 1 MiB; not a configuration file", path);
    else if (memchr(text, '\0', n) != NULL)
        err_set(e, ERR_INPUT, "%s: not a text file", path);
    else
        out = text;
    fclose(f);
    if (out != NULL)
        *bytes = n;
    return out;
}

bool import_text_fields(const struct config_text *t, const struct config_context *x,
                        struct recipe *r, struct err *e) {
    const char *mark = "# shardplan: ";
    unsigned line = 1;
    for (const char *at = t->text; *at; line++) {
        size_t n = strcspn(at, "\r\n");
        const char *eq = memchr(at, '=', n);
        if (strncmp(at, mark, strlen(mark)) == 0 && eq != NULL) {
            const char *name = at + strlen(mark);
            const char *key = arena_printf(x->arena, "%.*s", (int)(eq - name), name);
            const char *value =
                arena_printf(x->arena, "%.*s", (int)(n - (size_t)(eq + 1 - at)), eq + 1);
            if (!recipe_field_set(r, key, value, x->arena, e)) {
                err_note(e, "%s:%u", t->name, line);
                return false;
            }
        }
        at += n + (at[n] != '\0');
    }
    return true;
}
