// SPDX-License-Identifier: Apache-2.0
#include "view.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

struct view view_root(const cJSON *root, struct arena *a) {
    return (struct view){.item = root, .path = "$", .arena = a};
}

static bool is_plain_key(const char *key) {
    if (!*key)
        return false;
    for (const char *c = key; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_' && *c != '-')
            return false;
    return true;
}

struct view view_member(struct view parent, const cJSON *child, size_t index) {
    struct view out = {.item = child, .arena = parent.arena};
    if (!child || !child->string)
        out.path = arena_printf(parent.arena, "%s[%zu]", parent.path, index);
    else if (is_plain_key(child->string))
        out.path = arena_printf(parent.arena, "%s.%s", parent.path, child->string);
    else
        out.path = arena_printf(parent.arena, "%s['%s']", parent.path, child->string);
    return out;
}

static const cJSON *find_part(const cJSON *item, const char *part, size_t length) {
    if (!cJSON_IsObject(item))
        return NULL;
    for (const cJSON *c = item->child; c; c = c->next)
        if (c->string && strlen(c->string) == length && memcmp(c->string, part, length) == 0)
            return c;
    return NULL;
}

static const cJSON *find_item(const cJSON *item, const char *dotted) {
    while (item && *dotted) {
        size_t length = strcspn(dotted, ".");
        item = find_part(item, dotted, length);
        dotted += length;
        if (*dotted == '.')
            dotted++;
    }
    return item;
}

struct view view_find(struct view v, const char *dotted) {
    struct view out = {.arena = v.arena};
    out.item = find_item(v.item, dotted);
    out.path = arena_printf(v.arena, "%s%s%s", v.path, *dotted ? "." : "", dotted);
    return out;
}

bool view_is_object(struct view v) {
    return cJSON_IsObject(v.item);
}

bool view_is_array(struct view v) {
    return cJSON_IsArray(v.item);
}

bool view_is_missing(struct view v) {
    return !v.item || cJSON_IsNull(v.item);
}

bool view_is_scalar(struct view v) {
    return v.item && !view_is_object(v) && !view_is_array(v);
}

const cJSON *view_first(struct view v) {
    return view_is_object(v) || view_is_array(v) ? v.item->child : NULL;
}

size_t view_count(struct view v) {
    size_t n = 0;
    for (const cJSON *c = view_first(v); c; c = c->next)
        n++;
    return n;
}

double view_item_number(const cJSON *object, const char *key) {
    const cJSON *c = find_item(object, key);
    return cJSON_IsNumber(c) && fabs(c->valuedouble) < VIEW_LARGEST ? c->valuedouble : NAN;
}

const char *view_item_string(const cJSON *object, const char *key) {
    const cJSON *c = find_item(object, key);
    return cJSON_IsString(c) ? c->valuestring : NULL;
}

double view_number(struct view v, const char *dotted) {
    return view_item_number(v.item, dotted);
}

const char *view_string(struct view v, const char *dotted) {
    return view_item_string(v.item, dotted);
}

int view_bool(struct view v, const char *dotted) {
    const cJSON *c = find_item(v.item, dotted);
    return cJSON_IsBool(c) ? cJSON_IsTrue(c) != 0 : -1;
}
