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

// "section: {}" has to become "section:" before lines can stand under it; other inline values
// can't be edited line by line.
static bool open_section(struct lines *l, const char *section) {
    if (*section == '\0' || l->toml)
        return true;
    for (const char *at = l->text; *at; at += line_length(at)) {
        if (!opens_section(l, at, section))
            continue;
        const char *value = at + strlen(section) + 1, *next = at + line_length(at);
        size_t skip = strspn(value, " \t"), n = strcspn(value + skip, " \t\r\n");
        bool empty = n == 0 || value[skip] == '#';
        bool nothing = strncmp(value + skip, "{}", n) == 0 ||
                       strncmp(value + skip, "null", n) == 0 || strncmp(value + skip, "~", n) == 0;
        if (!empty && nothing)
            splice(l, at, next, arena_printf(l->a, "%s:\n", section));
        return empty || nothing;
    }
    return true;
}

static bool insert_line(struct lines *l, const char *section, const char *line) {
    if (!open_section(l, section))
        return false;
    const char *body = section_body(l, section), *end = l->text + strlen(l->text);
    if (body == NULL)
        splice(l, end, end, arena_printf(l->a, l->toml ? "[%s]\n%s" : "%s:\n%s", section, line));
    else if (*section)
        splice(l, body, body, line);
    else
        splice(l, end, end, line);
    return true;
}

static bool edit_lines(struct lines *l, const struct edit *x) {
    const char *dot = strchr(x->path, '.'), *name = dot ? dot + 1 : x->path;
    const char *section = dot ? arena_printf(l->a, "%.*s", (int)(dot - x->path), x->path) : "";
    const char *at = find_line(l, section, name), *mark = l->toml ? " =" : ":";
    if (at == NULL) {
        const char *indent = *section && !l->toml ? "  " : "";
        return x->kind == EDIT_SET && insert_line(l, section,
                                                  arena_printf(l->a, "%s%s%s %s\n", indent, name,
                                                               mark, quoted(l, x->value)));
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

struct fix {
    const struct check_request *q;
    enum config_kind kind;
    struct arena *a;
    cJSON *root;        // JSON kinds
    struct lines lines; // the others
};

static const char *fix_text(const struct fix *x) {
    if (x->root == NULL)
        return x->lines.text;
    char *json = json_to_text(x->root);
    const char *text = arena_strdup(x->a, json);
    free(json);
    return text;
}

static bool readable(const struct fix *x, const char *text) {
    struct config_text t = {x->q->path, text, strlen(text)};
    struct config_context context = {.arena = x->a, .model = x->q->model, .lenient = true};
    struct recipe r;
    struct err ignored = {0};
    return recipe_parse_config(x->kind, &t, &context, &r, &ignored);
}

// An edit that would leave a file nobody can read is taken back: YAML has more forms than lines.
static bool apply_edit(struct fix *x, const struct edit *edit) {
    cJSON *before = x->root ? cJSON_Duplicate(x->root, true) : NULL;
    const char *text = x->lines.text;
    bool done = x->root ? edit_json(x->root, edit) : edit_lines(&x->lines, edit);
    if (done && !readable(x, fix_text(x))) {
        cJSON_Delete(x->root);
        x->root = before;
        x->lines.text = text;
        return false;
    }
    cJSON_Delete(before);
    return done;
}

static size_t apply(struct fix *x, const struct check_result *r) {
    size_t applied = 0;
    for (size_t i = 0; i < r->count; i++) {
        bool any = false;
        for (size_t k = 0; k < FINDING_EDITS_MAX; k++)
            if (r->findings[i].edits[k].kind != EDIT_NONE)
                any |= apply_edit(x, &r->findings[i].edits[k]);
        applied += any;
    }
    return applied;
}

bool check_fix(const struct check_request *q, const struct check_result *r, struct arena *a,
               const char **text, size_t *applied, struct err *e) {
    struct fix x = {.q = q, .kind = r->facts.kind, .a = a};
    size_t bytes = 0;
    const char *before = import_text_read(q->path, a, &bytes, e);
    if (before == NULL)
        return false;
    bool json = x.kind == CONFIG_DEEPSPEED || x.kind == CONFIG_FSDP2;
    x.lines = (struct lines){a, before, x.kind == CONFIG_TORCHTITAN};
    if (json) {
        x.root = cJSON_Parse(before);
        if (x.root == NULL)
            return err_set(e, ERR_INPUT, "%s: not JSON", q->path);
    } else if (bytes > 0 && before[bytes - 1] != '\n') {
        x.lines.text = arena_printf(a, "%s\n", before);
    }
    *applied = apply(&x, r);
    *text = fix_text(&x);
    cJSON_Delete(x.root);
    return true;
}
