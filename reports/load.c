// SPDX-License-Identifier: Apache-2.0
#include "load.h"

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const result_titles[] = {
    [RESULT_ADVISE] = "Advice",
    [RESULT_PLAN] = "Plan",
    [RESULT_CONFIRM] = "Planned against measured",
    [RESULT_SIMULATE] = "One step",
    [RESULT_SWEEP] = "Sweep",
    [RESULT_ACCEPT] = "Acceptance",
    [RESULT_CHECK] = "Configuration check",
    [RESULT_EXPLAIN] = "Explanation of a log",
    [RESULT_MEASUREMENT] = "Measurements",
    [RESULT_FIT] = "Fitted cluster",
    [RESULT_REHEARSE] = "Rehearsal",
    [RESULT_VALIDATE] = "Validation",
    [RESULT_OTHER] = "Other file",
};
_Static_assert(sizeof result_titles / sizeof *result_titles == RESULT_KIND_COUNT, "one per kind");

static enum result_kind kind_of(const cJSON *root) {
    static const struct {
        const char *schema;
        enum result_kind kind;
    } known[] = {
        {"shardplan.advise/", RESULT_ADVISE},
        {"shardplan.plan/", RESULT_PLAN},
        {"shardplan.confirm/", RESULT_CONFIRM},
        {"shardplan.simulate/", RESULT_SIMULATE},
        {"shardplan.sweep/", RESULT_SWEEP},
        {"shardplan.accept/", RESULT_ACCEPT},
        {"shardplan.check/", RESULT_CHECK},
        {"shardplan.explain/", RESULT_EXPLAIN},
        {"shardplan.measurement/", RESULT_MEASUREMENT},
        {"shardplan.fit/", RESULT_FIT},
        {"shardplan.cluster/", RESULT_FIT},
        {"shardplan.rehearse/", RESULT_REHEARSE},
        {"shardplan.validate/", RESULT_VALIDATE},
    };
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(root, "schema");
    for (size_t i = 0; cJSON_IsString(schema) && i < sizeof known / sizeof *known; i++)
        if (strncmp(schema->valuestring, known[i].schema, strlen(known[i].schema)) == 0)
            return known[i].kind;
    return RESULT_OTHER;
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

static cJSON *parse_lines(const char *text, const char *name, struct err *e) {
    cJSON *root = NULL, *results = NULL;
    int line = 0;
    for (const char *c = text; *c;) {
        size_t length = strcspn(c, "\n");
        line++;
        if (strspn(c, " \t\r") < length) {
            cJSON *one = parse(c, length, name, e);
            if (!one) {
                err_note(e, "line %d", line);
                cJSON_Delete(root);
                return NULL;
            }
            if (!root) {
                root = one;
                results = cJSON_GetObjectItemCaseSensitive(root, "results");
                if (!cJSON_IsArray(results))
                    results = cJSON_AddArrayToObject(root, "results");
            } else {
                cJSON_AddItemToArray(results, one);
            }
        }
        c += length + (c[length] == '\n');
    }
    if (!root)
        err_set(e, ERR_INPUT, "%s: the file is empty", name);
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
    cJSON *root = is_lines(path, text) ? parse_lines(text, path, e) : parse(text, bytes, path, e);
    free(text);
    if (!root)
        return false;
    if (!cJSON_IsObject(root)) {
        cJSON_Delete(root);
        return err_set(e, ERR_INPUT, "%s: expected a JSON object, a result of shardplan", path);
    }
    const char *slash = strrchr(path, '/');
    *out = (struct result){
        .name = arena_strdup(a, slash ? slash + 1 : path), .kind = kind_of(root), .root = root};
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
