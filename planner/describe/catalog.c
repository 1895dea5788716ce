// SPDX-License-Identifier: Apache-2.0
#include "describe/catalog.h"

#include "base/json.h"
#include "base/kinds.h"
#include "config.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const catalog_kind_names[] = {
    [CATALOG_MODELS] = "models",
    [CATALOG_GPUS] = "gpus",
    [CATALOG_CLUSTERS] = "clusters",
};
_Static_assert(sizeof catalog_kind_names / sizeof catalog_kind_names[0] == CATALOG_KIND_COUNT,
               "one name per kind");

static const char *const folders[CATALOG_KIND_COUNT] = {
    [CATALOG_MODELS] = "transformers",
    [CATALOG_GPUS] = "gpus",
    [CATALOG_CLUSTERS] = "clusters",
};

const char *catalog_dir(void) {
    const char *given = getenv("SHARDPLAN_CATALOG");
    if (given && *given)
        return given;
    return access(SHARDPLAN_SOURCE_CATALOG, R_OK) == 0 ? SHARDPLAN_SOURCE_CATALOG
                                                       : SHARDPLAN_INSTALLED_CATALOG;
}

char *catalog_normalise(const char *name, struct arena *a) {
    char *out = arena_strdup(a, name);
    size_t n = 0;
    for (const char *p = name; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (isalnum(c) || c == '.')
            out[n++] = (char)tolower(c);
        else if (n > 0 && out[n - 1] != '-')
            out[n++] = '-';
    }
    while (n > 0 && out[n - 1] == '-')
        n--;
    out[n] = '\0';
    return out;
}

static int json_file(const struct dirent *d) {
    size_t n = strlen(d->d_name);
    return d->d_name[0] != '.' && n > strlen(".json") &&
           !strcmp(d->d_name + n - strlen(".json"), ".json");
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct catalog_entry *)a)->name, ((const struct catalog_entry *)b)->name);
}

// Models keep the list under "_shardplan", so that the rest stays a Hugging Face config.
static bool read_aliases(struct catalog_entry *entry, struct arena *a, struct err *e) {
    struct json_doc *doc = json_read_file(entry->path, e);
    if (!doc)
        return false;
    bool ok = false;
    struct json_node node = json_root(doc), list;
    struct json_node own;
    if (json_find(node, "_shardplan", &own))
        node = own;
    if (json_find(node, "aliases", &list) && json_is_array(list)) {
        entry->aliases = arena_array(a, json_size(list), sizeof *entry->aliases);
        for (size_t i = 0; i < json_size(list); i++) {
            struct json_node item = json_at(list, i);
            if (!json_is_string(item)) {
                json_fail(item, e, "an alias is a string");
                goto fail;
            }
            entry->aliases[entry->alias_count++] = arena_strdup(a, item.item->valuestring);
        }
    }
    ok = true;
fail:
    json_destroy(doc);
    return ok;
}

// Names and paths, sorted by name; no file is opened.
static bool scan_folder(enum catalog_kind kind, struct arena *a, struct catalog_entry **entries,
                        size_t *count, struct err *e) {
    const char *dir = arena_printf(a, "%s/%s", catalog_dir(), folders[kind]);
    struct dirent **files;
    int n = scandir(dir, &files, json_file, NULL);
    if (n < 0)
        return err_set(e, ERR_RESOURCE, "%s: cannot read the catalog: %s", dir, strerror(errno));
    struct catalog_entry *list = arena_array(a, (size_t)n + 1, sizeof *list);
    for (int i = 0; i < n; i++) {
        size_t stem = strlen(files[i]->d_name) - strlen(".json");
        list[i].path = arena_printf(a, "%s/%s", dir, files[i]->d_name);
        list[i].name = arena_printf(a, "%.*s", (int)stem, files[i]->d_name);
        free(files[i]);
    }
    free(files);
    qsort(list, (size_t)n, sizeof *list, by_name);
    *entries = list;
    *count = (size_t)n;
    return true;
}

bool catalog_list(enum catalog_kind kind, struct arena *a, struct catalog_entry **entries,
                  size_t *count, struct err *e) {
    struct catalog_entry *list;
    size_t n;
    if (!scan_folder(kind, a, &list, &n, e))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!read_aliases(&list[i], a, e))
            return false;
    *entries = list;
    *count = n;
    return true;
}

static bool entry_matches(const struct catalog_entry *entry, const char *normal, struct arena *a) {
    if (!strcmp(catalog_normalise(entry->name, a), normal))
        return true;
    for (size_t i = 0; i < entry->alias_count; i++)
        if (!strcmp(catalog_normalise(entry->aliases[i], a), normal))
            return true;
    return false;
}

// Letters and digits alone, lower case.
static char *squash(const char *name, struct arena *a) {
    char *out = arena_strdup(a, name);
    size_t n = 0;
    for (const char *p = name; *p; p++)
        if (isalnum((unsigned char)*p))
            out[n++] = (char)tolower((unsigned char)*p);
    out[n] = '\0';
    return out;
}

#define COMPLETIONS_MAX 6

// "llama3" begins the names of several entries: those names, or NULL when fewer than two.
static const char *completions(const char *name, const struct catalog_entry *entries, size_t count,
                               struct arena *a) {
    const char *begin = squash(name, a), *text = "";
    size_t n = 0, length = strlen(begin);
    for (size_t i = 0; i < count && length > 0; i++) {
        if (strncmp(squash(entries[i].name, a), begin, length) != 0)
            continue;
        if (n < COMPLETIONS_MAX)
            text = arena_printf(a, "%s%s%s", text, n ? ", " : "", entries[i].name);
        n++;
    }
    if (n < 2)
        return NULL;
    return n > COMPLETIONS_MAX ? arena_printf(a, "%s and %zu more", text, n - COMPLETIONS_MAX)
                               : text;
}

static bool fail_unknown(enum catalog_kind kind, const char *name,
                         const struct catalog_entry *entries, size_t count, struct arena *a,
                         struct err *e) {
    size_t total = 0, n = 0;
    for (size_t i = 0; i < count; i++)
        total += 1 + entries[i].alias_count;
    const char **names = arena_array(a, total + 1, sizeof *names);
    for (size_t i = 0; i < count; i++) {
        names[n++] = entries[i].name;
        for (size_t k = 0; k < entries[i].alias_count; k++)
            names[n++] = entries[i].aliases[k];
    }
    const char *nearest = kinds_nearest(names, n, name);
    const char *several = completions(name, entries, count, a);
    const char *what = catalog_kind_names[kind];
    int singular = (int)strlen(what) - 1;
    if (several)
        return err_set(e, ERR_INPUT, "unknown %.*s \"%s\"; did you mean one of: %s?", singular,
                       what, name, several);
    if (nearest)
        return err_set(e, ERR_INPUT, "unknown %.*s \"%s\"; did you mean \"%s\"?", singular, what,
                       name, nearest);
    return err_set(e, ERR_INPUT, "unknown %.*s \"%s\"; `shardplan catalog list %s` names them all",
                   singular, what, name, what);
}

bool catalog_find(enum catalog_kind kind, const char *name, struct arena *a, const char **path,
                  struct err *e) {
    const char *normal = catalog_normalise(name, a);
    const char *direct = arena_printf(a, "%s/%s/%s.json", catalog_dir(), folders[kind], normal);
    if (*normal && access(direct, R_OK) == 0) {
        *path = direct;
        return true;
    }
    struct catalog_entry *entries;
    size_t count;
    if (!scan_folder(kind, a, &entries, &count, e))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!read_aliases(&entries[i], a, e))
            return false;
        if (entry_matches(&entries[i], normal, a)) {
            *path = entries[i].path;
            return true;
        }
    }
    return fail_unknown(kind, name, entries, count, a, e);
}
