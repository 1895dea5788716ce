// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include "base/json_scan.h"
#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct json_doc {
    char *text;
    cJSON *root;
    struct arena *arena; // paths
    const char *name;
    // The last element handed out, so that walking an array by index is linear.
    const cJSON *last_parent, *last_item;
    size_t last_index;
};

static const size_t file_max_bytes = 64 * UNITS_MIB;
static const size_t large_max_bytes = UNITS_GIB;

static int compare_keys(const void *a, const void *b) {
    const cJSON *x = *(const cJSON *const *)a, *y = *(const cJSON *const *)b;
    int order = strcmp(x->string, y->string);
    return order ? order : (x > y) - (x < y);
}

static bool refuse_duplicates_in(const struct json_doc *d, const cJSON *object, struct err *e) {
    size_t count = (size_t)cJSON_GetArraySize(object), i = 0;
    const cJSON **members = malloc((count + 1) * sizeof *members);
    if (!members)
        return err_set(e, ERR_RESOURCE, "%s: out of memory", d->name);
    for (const cJSON *m = object->child; m; m = m->next)
        members[i++] = m;
    qsort(members, count, sizeof *members, compare_keys);
    bool ok = true;
    for (i = 1; ok && i < count; i++) {
        if (strcmp(members[i - 1]->string, members[i]->string) != 0)
            continue;
        const cJSON *first = members[i - 1], *again = first->next;
        while (again && again != members[i])
            again = again->next;
        size_t at = 0;
        json_scan_find(d->text, d->root, again ? members[i] : first, &at);
        ok = err_set(e, ERR_INPUT, "%s:%d: '%.100s' is given twice", d->name,
                     json_scan_line(d->text, at), first->string);
    }
    free(members);
    return ok;
}

static bool refuse_duplicates(const struct json_doc *d, const cJSON *item, struct err *e) {
    if (cJSON_IsObject(item) && item->child && !refuse_duplicates_in(d, item, e))
        return false;
    for (const cJSON *c = item->child; c; c = c->next)
        if (c->child && !refuse_duplicates(d, c, e))
            return false;
    return true;
}

// Takes ownership of `text`, malloc'd with a NUL after `bytes`.
static struct json_doc *adopt(char *text, size_t bytes, const char *name, struct err *e) {
    struct json_doc *d = calloc(1, sizeof *d);
    size_t at = 0;
    if (!d) {
        free(text);
        err_set(e, ERR_RESOURCE, "%s: out of memory", name);
        return NULL;
    }
    d->text = text;
    d->arena = arena_create();
    d->name = arena_strdup(d->arena, name);
    const char *fault = json_scan_check(text, bytes, &at);
    if (fault) {
        err_set(e, ERR_INPUT, "%s:%d: %s", name, json_scan_line(text, at), fault);
        goto fail;
    }
    d->root = cJSON_ParseWithOpts(text, NULL, 1);
    if (!d->root) {
        err_set(e, ERR_INPUT, "%s: not readable as JSON", name);
        goto fail;
    }
    if (!refuse_duplicates(d, d->root, e))
        goto fail;
    return d;
fail:
    json_destroy(d);
    return NULL;
}

struct json_doc *json_read_text(const char *text, size_t bytes, const char *name, struct err *e) {
    char *copy = malloc(bytes + 1);
    if (!copy) {
        err_set(e, ERR_RESOURCE, "%s: out of memory", name);
        return NULL;
    }
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    return adopt(copy, bytes, name, e);
}

// Reads to the end rather than trusting a size: pipes and /proc have none.
static char *read_stream(FILE *f, size_t limit, const char *path, size_t *bytes, struct err *e) {
    size_t capacity = 1 << 16, used = 0;
    char *text = malloc(capacity + 1);
    while (text) {
        used += fread(text + used, 1, capacity - used, f);
        if (used < capacity || used > limit)
            break;
        capacity *= 2;
        char *larger = realloc(text, capacity + 1);
        if (!larger)
            free(text);
        text = larger;
    }
    if (!text) {
        err_set(e, ERR_RESOURCE, "%s: out of memory", path);
    } else if (ferror(f) || used > limit) {
        if (ferror(f))
            err_set(e, ERR_INPUT, "%s: %s", path, strerror(errno));
        else
            err_set(e, ERR_INPUT, "%s: larger than %zu MiB", path, limit / (size_t)UNITS_MIB);
        free(text);
        text = NULL;
    } else {
        text[used] = '\0';
        *bytes = used;
    }
    return text;
}

static struct json_doc *read_limited(const char *path, size_t limit, struct err *e) {
    FILE *f = fopen(path, "rbe");
    struct stat st;
    if (!f) {
        err_set(e, ERR_INPUT, "%s: %s", path, strerror(errno));
        return NULL;
    }
    size_t bytes = 0;
    char *text = NULL;
    if (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size > limit)
        err_set(e, ERR_INPUT, "%s: larger than %zu MiB", path, limit / (size_t)UNITS_MIB);
    else
        text = read_stream(f, limit, path, &bytes, e);
    fclose(f);
    return text ? adopt(text, bytes, path, e) : NULL;
}

struct json_doc *json_read_file(const char *path, struct err *e) {
    return read_limited(path, file_max_bytes, e);
}

struct json_doc *json_read_large(const char *path, struct err *e) {
    return read_limited(path, large_max_bytes, e);
}

void json_destroy(struct json_doc *d) {
    if (!d)
        return;
    cJSON_Delete(d->root);
    arena_destroy(d->arena);
    free(d->text);
    free(d);
}

struct json_node json_root(const struct json_doc *d) {
    return (struct json_node){d, d->root, "$"};
}

bool json_is_object(struct json_node n) {
    return cJSON_IsObject(n.item);
}

bool json_is_array(struct json_node n) {
    return cJSON_IsArray(n.item);
}

bool json_is_string(struct json_node n) {
    return cJSON_IsString(n.item);
}

bool json_is_number(struct json_node n) {
    return cJSON_IsNumber(n.item);
}

bool json_is_null(struct json_node n) {
    return cJSON_IsNull(n.item);
}

size_t json_size(struct json_node n) {
    size_t count = 0;
    if (json_is_object(n) || json_is_array(n))
        for (const cJSON *c = n.item->child; c; c = c->next)
            count++;
    return count;
}

const char *json_key(struct json_node n) {
    return n.item->string;
}

// By hand: every key that is read comes by here, and a formatted print costs ten times as much.
static struct json_node member(struct json_node object, const cJSON *item) {
    size_t above = strlen(object.path), own = strlen(item->string);
    char *path = arena_array_raw(object.doc->arena, above + own + 2, 1);
    memcpy(path, object.path, above);
    path[above] = '.';
    memcpy(path + above + 1, item->string, own + 1);
    return (struct json_node){object.doc, item, path};
}

struct json_node json_at(struct json_node n, size_t index) {
    // The cache is the document's own business: callers hold it const.
    struct json_doc *d = (struct json_doc *)(uintptr_t)n.doc;
    const cJSON *item = n.item->child;
    size_t i = 0;
    if (d->last_parent == n.item && d->last_index <= index) {
        item = d->last_item;
        i = d->last_index;
    }
    for (; item && i < index; i++)
        item = item->next;
    if (!item)
        return (struct json_node){n.doc, NULL, n.path};
    d->last_parent = n.item;
    d->last_item = item;
    d->last_index = index;
    if (json_is_object(n))
        return member(n, item);
    // Long arrays of samples go without an index in the path: it would outweigh the numbers.
    const size_t indexed_max = 1000;
    if (index >= indexed_max && cJSON_IsNumber(item))
        return (struct json_node){n.doc, item, n.path};
    return (struct json_node){n.doc, item, arena_printf(d->arena, "%s[%zu]", n.path, index)};
}

bool json_find(struct json_node object, const char *key, struct json_node *out) {
    if (!json_is_object(object))
        return false;
    for (const cJSON *c = object.item->child; c; c = c->next) {
        if (strcmp(c->string, key) != 0)
            continue;
        *out = member(object, c);
        return true;
    }
    return false;
}

int json_line(struct json_node n) {
    size_t at = 0;
    json_scan_find(n.doc->text, n.doc->root, n.item, &at);
    return json_scan_line(n.doc->text, at);
}

bool json_fail(struct json_node n, struct err *e, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return err_set(e, ERR_INPUT, "%s:%d %s: %s", n.doc->name, json_line(n), n.path, text);
}

static const char *type_name(const cJSON *item) {
    return cJSON_IsObject(item)   ? "an object"
           : cJSON_IsArray(item)  ? "an array"
           : cJSON_IsString(item) ? "a string"
           : cJSON_IsNumber(item) ? "a number"
           : cJSON_IsBool(item)   ? "true or false"
                                  : "null";
}

enum presence { ABSENT, PRESENT, BAD };

static enum presence look_up(struct json_node o, const char *key, bool required,
                             struct json_node *out, struct err *e) {
    if (!json_is_object(o)) {
        json_fail(o, e, "expected an object, got %s", type_name(o.item));
        return BAD;
    }
    if (json_find(o, key, out) && !json_is_null(*out))
        return PRESENT;
    if (!required)
        return ABSENT;
    json_fail(o, e, "'%s' is missing", key);
    return BAD;
}

bool json_as_double(struct json_node n, double *out, struct err *e) {
    if (!json_is_number(n))
        return json_fail(n, e, "expected a number, got %s", type_name(n.item));
    if (!isfinite(n.item->valuedouble))
        return json_fail(n, e, "the number is too large");
    *out = n.item->valuedouble;
    return true;
}

// From 2^53 on a double no longer tells whole numbers apart: the digits in the text do.
static bool exact_u64(struct json_node n, uint64_t *out) {
    size_t at = 0;
    if (!json_scan_find(n.doc->text, n.doc->root, n.item, &at))
        return false;
    const char *digits = n.doc->text + at;
    size_t length = strspn(digits, "0123456789");
    if (!strchr(".eE", digits[length]) || digits[length] == '\0') {
        errno = 0;
        unsigned long long v = strtoull(digits, NULL, 10);
        if (errno == 0)
            *out = v;
        return errno == 0;
    }
    if (n.item->valuedouble >= 0x1p64)
        return false;
    *out = (uint64_t)n.item->valuedouble;
    return true;
}

bool json_as_u64(struct json_node n, uint64_t *out, struct err *e) {
    double v;
    if (!json_as_double(n, &v, e))
        return false;
    if (v < 0 || v != floor(v))
        return json_fail(n, e, "expected a whole number that is not negative, got %.9g", v);
    if (v < 0x1p53)
        *out = (uint64_t)v;
    else if (!exact_u64(n, out))
        return json_fail(n, e, "the number does not fit 64 bits");
    return true;
}

bool json_get_string(struct json_node o, const char *key, bool required, const char **out,
                     struct err *e) {
    struct json_node n;
    enum presence found = look_up(o, key, required, &n, e);
    if (found != PRESENT)
        return found == ABSENT;
    if (!json_is_string(n))
        return json_fail(n, e, "expected a string, got %s", type_name(n.item));
    *out = n.item->valuestring;
    return true;
}

bool json_get_u64(struct json_node o, const char *key, bool required, uint64_t *out,
                  struct err *e) {
    struct json_node n;
    enum presence found = look_up(o, key, required, &n, e);
    return found == PRESENT ? json_as_u64(n, out, e) : found == ABSENT;
}

bool json_get_double(struct json_node o, const char *key, bool required, double *out,
                     struct err *e) {
    struct json_node n;
    enum presence found = look_up(o, key, required, &n, e);
    return found == PRESENT ? json_as_double(n, out, e) : found == ABSENT;
}

bool json_get_bool(struct json_node o, const char *key, bool required, bool *out, struct err *e) {
    struct json_node n;
    enum presence found = look_up(o, key, required, &n, e);
    if (found != PRESENT)
        return found == ABSENT;
    if (!cJSON_IsBool(n.item))
        return json_fail(n, e, "expected true or false, got %s", type_name(n.item));
    *out = cJSON_IsTrue(n.item);
    return true;
}

static const char *const figure_keys[] = {"value", "provenance", "source", "low", "high", "note"};
static const double assumed_spread = 1.5; // either way, where the file gives no interval

static bool read_provenance(struct json_node n, enum provenance *out, struct err *e) {
    const char *name = NULL;
    if (!json_get_string(n, "provenance", true, &name, e))
        return false;
    for (int p = 0; p < PROVENANCE_COUNT; p++) {
        if (strcmp(provenance_name((enum provenance)p), name) != 0)
            continue;
        *out = (enum provenance)p;
        return true;
    }
    return json_fail(n, e, "provenance '%.40s' is none of assumed, spec, measured, fitted", name);
}

bool json_get_figure(struct json_node o, const char *key, bool required, struct arena *a,
                     struct figure *out, struct err *e) {
    struct json_node n;
    enum presence found = look_up(o, key, required, &n, e);
    if (found != PRESENT)
        return found == ABSENT;
    struct figure f = figure_unknown();
    const char *source = NULL;
    if (!json_is_object(n))
        return json_fail(n, e, "expected {value, provenance, source}, got %s", type_name(n.item));
    if (!json_check_keys(n, figure_keys, sizeof figure_keys / sizeof *figure_keys, e) ||
        !json_get_double(n, "value", false, &f.value, e))
        return false;
    if (!figure_is_known(f)) {
        *out = f;
        return true;
    }
    if (!read_provenance(n, &f.provenance, e) || !json_get_string(n, "source", true, &source, e))
        return false;
    bool assumed = f.provenance == PROVENANCE_ASSUMED;
    f.low = assumed ? f.value / assumed_spread : f.value;
    f.high = assumed ? f.value * assumed_spread : f.value;
    f.source = arena_strdup(a, source);
    if (!json_get_double(n, "low", false, &f.low, e) ||
        !json_get_double(n, "high", false, &f.high, e))
        return false;
    if (!(f.low <= f.value && f.value <= f.high))
        return json_fail(n, e, "low <= value <= high does not hold");
    *out = f;
    return true;
}

bool json_check_keys(struct json_node object, const char *const *keys, size_t count,
                     struct err *e) {
    if (!json_is_object(object))
        return json_fail(object, e, "expected an object, got %s", type_name(object.item));
    for (const cJSON *c = object.item->child; c; c = c->next) {
        bool known = c->string[0] == '_';
        for (size_t i = 0; !known && i < count; i++)
            known = strcmp(keys[i], c->string) == 0;
        if (known)
            continue;
        const char *near = kinds_nearest(keys, count, c->string);
        struct json_node n = member(object, c);
        return near ? json_fail(n, e, "unknown key '%.80s'; did you mean '%s'?", c->string, near)
                    : json_fail(n, e, "unknown key '%.80s'", c->string);
    }
    return true;
}
