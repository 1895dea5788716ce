// SPDX-License-Identifier: Apache-2.0
// Applies the edits of findings to the text of a configuration.
#include "base/json.h"
#include "describe/import_text.h"
#include "judge/check.h"

#include <stdlib.h>
#include <string.h>

// ---- JSON ---------------------------------------------------------------------------------------

// Object that holds the last name of a dotted path, made on the way when `make`; NULL otherwise.
static cJSON *parent_of(cJSON *root, const char *path, bool make, const char **name) {
    cJSON *at = root;
    char part[128];
    for (const char *dot; (dot = strchr(path, '.')) != NULL; path = dot + 1) {
        size_t n = (size_t)(dot - path);
        if (n >= sizeof part)
            return NULL;
        memcpy(part, path, n);
        part[n] = '\0';
        cJSON *next = cJSON_GetObjectItemCaseSensitive(at, part);
        if (next == NULL && make)
            next = json_add_object(at, part);
        if (!cJSON_IsObject(next))
            return NULL;
        at = next;
    }
    *name = path;
    return at;
}

static bool edit_json(cJSON *root, const struct edit *x) {
    const char *name = NULL;
    cJSON *parent = parent_of(root, x->path, x->kind == EDIT_SET, &name);
    cJSON *item = parent ? cJSON_GetObjectItemCaseSensitive(parent, name) : NULL;
    if (parent == NULL || (item == NULL && x->kind != EDIT_SET))
        return false;
    if (x->kind == EDIT_REMOVE) {
        cJSON_Delete(cJSON_DetachItemViaPointer(parent, item));
        return true;
    }
    if (x->kind == EDIT_RENAME) {
        if (cJSON_GetObjectItemCaseSensitive(parent, x->value) != NULL)
            return false;
        item = cJSON_DetachItemViaPointer(parent, item);
        return cJSON_AddItemToObject(parent, x->value, item);
    }
    cJSON *value = cJSON_Parse(x->value);
    if (value == NULL)
        value = cJSON_CreateString(x->value);
    if (item != NULL)
        return cJSON_ReplaceItemInObjectCaseSensitive(parent, name, value);
    return cJSON_AddItemToObject(parent, name, value);
}

// ---- lines of YAML and TOML ---------------------------------------------------------------------

struct lines {
    struct arena *a;
    const char *text;
    bool toml;
};

static size_t line_length(const char *at) {
    size_t n = strcspn(at, "\n");
    return n + (at[n] == '\n');
}

static bool opens_section(const struct lines *l, const char *at, const char *name) {
    size_t n = strlen(name);
    if (l->toml)
        return *at == '[' && strncmp(at + 1, name, n) == 0 && at[n + 1] == ']';
    return strncmp(at, name, n) == 0 && at[n] == ':';
}

static bool ends_section(const struct lines *l, const char *at) {
    return l->toml ? *at == '[' : *at != '\0' && strchr(" \t\r\n#-", *at) == NULL;
}

static bool holds_key(const struct lines *l, const char *at, const char *name) {
    size_t n = strlen(name);
    at += strspn(at, " \t");
    if (strncmp(at, name, n) != 0)
        return false;
    at += n + strspn(at + n, " \t");
    return *at == (l->toml ? '=' : ':');
}

// First line of a section's body, or NULL. No section: the whole text.
static const char *section_body(const struct lines *l, const char *section) {
    if (*section == '\0')
        return l->text;
    for (const char *at = l->text; *at; at += line_length(at))
        if (opens_section(l, at, section))
            return at + line_length(at);
    return NULL;
}

static const char *find_line(const struct lines *l, const char *section, const char *name) {
    const char *at = section_body(l, section);
    for (; at != NULL && *at; at += line_length(at)) {
        if (*section && ends_section(l, at))
            return NULL;
        if (holds_key(l, at, name) && (*section || l->toml || strchr(" \t", *at) == NULL))
            return at;
    }
    return NULL;
}

static const char *quoted(const struct lines *l, const char *value) {
    char *end = NULL;
    (void)strtod(value, &end);
    bool bare = *end == '\0' || strcmp(value, "true") == 0 || strcmp(value, "false") == 0;
    return l->toml && !bare ? arena_printf(l->a, "\"%s\"", value) : value;
}

static void splice(struct lines *l, const char *from, const char *to, const char *with) {
    l->text = arena_printf(l->a, "%.*s%s%s", (int)(from - l->text), l->text, with, to);
}

static bool edit_lines(struct lines *l, const struct edit *x) {
    const char *dot = strchr(x->path, '.'), *name = dot ? dot + 1 : x->path;
    const char *section = dot ? arena_printf(l->a, "%.*s", (int)(dot - x->path), x->path) : "";
    const char *at = find_line(l, section, name), *mark = l->toml ? " =" : ":";
    if (at == NULL) {
        const char *body = section_body(l, section), *indent = *section && !l->toml ? "  " : "";
        if (x->kind != EDIT_SET)
            return false;
        const char *line =
            arena_printf(l->a, "%s%s%s %s\n", indent, name, mark, quoted(l, x->value));
        const char *end = l->text + strlen(l->text);
        if (body != NULL)
            splice(l, *section ? body : end, *section ? body : end, line);
        else
            splice(l, end, end,
                   arena_printf(l->a, l->toml ? "[%s]\n%s" : "%s:\n%s", section, line));
        return true;
    }
    int indent = (int)strspn(at, " \t");
    const char *next = at + line_length(at);
    if (x->kind == EDIT_REMOVE) {
        splice(l, at, next, "");
    } else if (x->kind == EDIT_RENAME) {
        const char *rest = at + indent + strlen(name);
        splice(l, at + indent, rest, x->value);
    } else {
        splice(l, at, next,
               arena_printf(l->a, "%.*s%s%s %s\n", indent, at, name, mark, quoted(l, x->value)));
    }
    return true;
}

// ---- both ---------------------------------------------------------------------------------------

static size_t apply(const struct check_result *r, cJSON *root, struct lines *l) {
    size_t applied = 0;
    for (size_t i = 0; i < r->count; i++) {
        bool any = false;
        for (size_t k = 0; k < FINDING_EDITS_MAX; k++) {
            const struct edit *x = &r->findings[i].edits[k];
            if (x->kind != EDIT_NONE)
                any |= root ? edit_json(root, x) : edit_lines(l, x);
        }
        applied += any;
    }
    return applied;
}

bool check_fix(const struct check_request *q, const struct check_result *r, struct arena *a,
               const char **text, size_t *applied, struct err *e) {
    size_t bytes = 0;
    const char *before = import_text_read(q->path, a, &bytes, e);
    if (before == NULL)
        return false;
    if (r->facts.kind == CONFIG_DEEPSPEED || r->facts.kind == CONFIG_FSDP2) {
        cJSON *root = cJSON_Parse(before);
        if (root == NULL)
            return err_set(e, ERR_INPUT, "%s: not JSON", q->path);
        *applied = apply(r, root, NULL);
        char *json = json_to_text(root);
        *text = arena_strdup(a, json);
        free(json);
        cJSON_Delete(root);
        return true;
    }
    struct lines l = {a, before, r->facts.kind == CONFIG_TORCHTITAN};
    if (bytes > 0 && before[bytes - 1] != '\n')
        l.text = arena_printf(a, "%s\n", before);
    *applied = apply(r, NULL, &l);
    *text = l.text;
    return true;
}
