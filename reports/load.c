// SPDX-License-Identifier: Apache-2.0
#include "load.h"

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Schemas without their "shardplan." and version: every one is in its first.
static const struct known_schema {
    const char *name;
    enum result_kind kind;
    const char *title;
} known[] = {
    {"plan", RESULT_PLAN, "Plan"},
    {"simulate", RESULT_SIMULATE, "One step"},
    {"sweep", RESULT_SWEEP, "Sweep"},
    {"advise", RESULT_ADVISE, "Advice"},
    {"measurement", RESULT_MEASUREMENT, "Measurements"},
    {"fit", RESULT_FIT, "Fitted cluster"},
    {"cluster", RESULT_FIT, "Cluster file"},
    {"confirm", RESULT_CONFIRM, "Planned against measured"},
    {"rehearse", RESULT_REHEARSE, "Rehearsal"},
    {"accept", RESULT_ACCEPT, "Acceptance"},
    {"validate", RESULT_VALIDATE, "Validation"},
    {"check", RESULT_CHECK, "Configuration check"},
    {"explain", RESULT_EXPLAIN, "Explanation of a log"},
    {"emit", RESULT_PLAIN, "A framework's configuration"},
    {"catalog", RESULT_PLAIN, "Catalog"},
    {"topology", RESULT_PLAIN, "Topology"},
    {"profile", RESULT_PLAIN, "Profiler trace"},
    {"snapshot", RESULT_PLAIN, "Memory snapshot"},
};
#define KNOWN_COUNT (sizeof known / sizeof *known)
#define PREFIX "shardplan."
#define VERSION "/1"

static const char *known_list(struct arena *a) {
    const char *text = "";
    for (size_t i = 0; i < KNOWN_COUNT; i++)
        text = arena_printf(a, "%s%s%s", text, i ? ", " : "", known[i].name);
    return arena_printf(a,
                        "the report reads results of shardplan, schema shardplan.NAME/1 with "
                        "NAME one of %s",
                        text);
}

static const struct known_schema *known_find(const cJSON *root, const char *path, struct arena *a,
                                             struct err *e) {
    const char *schema = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "schema"));
    size_t prefix = strlen(PREFIX);
    const char *name = schema && strncmp(schema, PREFIX, prefix) == 0 ? schema + prefix : "";
    size_t length = strcspn(name, "/");
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        if (strlen(known[i].name) != length || strncmp(name, known[i].name, length) != 0)
            continue;
        if (strcmp(name + length, VERSION) == 0)
            return &known[i];
        err_set(e, ERR_INPUT, "%s: schema is \"%.60s\": this version reads " PREFIX "%s" VERSION,
                path, schema, known[i].name);
        return NULL;
    }
    if (!schema)
        err_set(e, ERR_INPUT, "%s: there is no \"schema\": %s", path, known_list(a));
    else
        err_set(e, ERR_INPUT, "%s: schema is \"%.60s\": %s%s", path, schema,
                strncmp(name, "graph/", 6) == 0
                    ? "a graph is for bench and rehearse; `simulate --json FILE` writes the step; "
                    : "",
                known_list(a));
    return NULL;
}

// A measurement as written line by line: a header object, then one object per result.
static bool is_lines(const char *path, const char *text) {
    const char *dot = strrchr(path, '.');
    if (dot && strcmp(dot, ".jsonl") == 0)
        return true;
    const char *end = strchr(text, '\n');
    if (!end || end == text || end[-1] != '}')
        return false;
    end += strspn(end, " \t\r\n");
    return *end == '{';
}

static cJSON *parse(const char *text, size_t bytes, const char *name, struct err *e) {
    struct json_doc *doc = json_read_text(text, bytes, name, e);
    cJSON *copy = doc ? cJSON_Duplicate(json_root(doc).item, true) : NULL;
    json_destroy(doc);
    return copy;
}

static bool is_measurement(const cJSON *root) {
    const char *schema = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "schema"));
    return schema && strncmp(schema, PREFIX "measurement/", strlen(PREFIX "measurement/")) == 0;
}

// The line at `text` added to *root, which the first one starts.
static bool take_line(const char *text, size_t length, const char *name, cJSON **root,
                      struct err *e) {
    cJSON *one = parse(text, length, name, e);
    if (!one)
        return false;
    if (!*root) {
        *root = one;
        return true;
    }
    cJSON *results = cJSON_GetObjectItemCaseSensitive(*root, "results");
    if (!results && is_measurement(*root))
        results = cJSON_AddArrayToObject(*root, "results");
    if (cJSON_IsArray(results) && is_measurement(*root)) {
        cJSON_AddItemToArray(results, one);
        return true;
    }
    cJSON_Delete(one);
    return err_set(e, ERR_INPUT,
                   "%s: JSON lines are for measurements, whose first line is the "
                   "header",
                   name);
}

// A last line without its newline is what a crash leaves: it may be cut off, and then is left out.
static cJSON *parse_lines(const char *text, const char *name, bool *cut, struct err *e) {
    cJSON *root = NULL;
    int line = 0;
    for (const char *c = text; *c;) {
        size_t length = strcspn(c, "\n");
        struct err own = {0};
        char place[512];
        snprintf(place, sizeof place, "%.480s (line %d)", name, ++line);
        if (strspn(c, " \t\r") < length && !take_line(c, length, place, &root, &own)) {
            *cut = root && line > 1 && c[length] == '\0' && is_measurement(root);
            if (!*cut) {
                err_set(e, own.kind, "%s", own.text);
                cJSON_Delete(root);
                return NULL;
            }
        }
        c += length + (c[length] == '\n');
    }
    return root;
}

static char *slurp(const char *path, size_t *bytes, struct err *e) {
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    size_t used = 0, size = 1 << 16;
    if (!f) {
        err_set(e, ERR_INPUT, "%s: cannot be opened", path);
        return NULL;
    }
    text = malloc(size);
    while (text) {
        used += fread(text + used, 1, size - used - 1, f);
        if (used + 1 < size)
            break;
        char *more = realloc(text, size *= 2);
        if (!more)
            free(text);
        text = more;
    }
    bool good = text && !ferror(f);
    fclose(f);
    if (!good) {
        free(text);
        err_set(e, ERR_INPUT, "%s: cannot be read", path);
        return NULL;
    }
    text[used] = '\0';
    *bytes = used;
    return text;
}

static bool read_one(const char *path, struct arena *a, struct result *out, struct err *e) {
    size_t bytes = 0;
    char *text = slurp(path, &bytes, e);
    if (!text)
        return false;
    if (text[strspn(text, " \t\r\n")] == '\0' && strlen(text) == bytes) {
        free(text);
        return err_set(e, ERR_INPUT, "%s: the file is empty: %s", path, known_list(a));
    }
    bool cut = false, lines = strlen(text) == bytes && is_lines(path, text);
    cJSON *root = lines ? parse_lines(text, path, &cut, e) : parse(text, bytes, path, e);
    free(text);
    if (!root)
        return false;
    if (!cJSON_IsObject(root))
        err_set(e, ERR_INPUT, "%s: not a JSON object: %s", path, known_list(a));
    const struct known_schema *schema = e->kind == ERR_NONE ? known_find(root, path, a, e) : NULL;
    if (!schema) {
        cJSON_Delete(root);
        return false;
    }
    const char *slash = strrchr(path, '/');
    *out = (struct result){.name = arena_strdup(a, slash ? slash + 1 : path),
                           .kind = schema->kind,
                           .title = schema->title,
                           .cut = cut,
                           .root = root};
    return true;
}

bool results_read(const char *const *paths, size_t count, struct arena *a, struct results *out,
                  struct err *e) {
    struct results r = {.items = arena_array(a, count ? count : 1, sizeof *r.items)};
    for (size_t i = 0; i < count; i++) {
        struct result one;
        if (!read_one(paths[i], a, &one, e))
            goto fail;
        size_t at = r.count++;
        for (; at > 0 && r.items[at - 1].kind > one.kind; at--)
            r.items[at] = r.items[at - 1];
        r.items[at] = one;
    }
    *out = r;
    return true;
fail:
    results_finish(&r);
    return false;
}

void results_finish(struct results *r) {
    for (size_t i = 0; i < r->count; i++)
        cJSON_Delete(r->items[i].root);
    r->count = 0;
}
