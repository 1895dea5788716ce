// SPDX-License-Identifier: Apache-2.0
#include "render/sweep_ranges.h"

#include "base/json.h"
#include "base/units.h"

#include <stddef.h>
#include <string.h>

struct range {
    const char *name, *key; // on the command line, in JSON
    size_t offset;
    const char *const *names; // enumerations; NULL = counts
    size_t name_count;
};

static const char *const offload_range_names[SWEEP_OFFLOADS] = {"none", "cpu",      "cpu+cpu",
                                                                "nvme", "nvme+cpu", "nvme+nvme"};

#define COUNTS(name, key, field)                                                                   \
    { name, key, offsetof(struct sweep_space, field), NULL, 0 }
#define NAMES(name, field, table, n)                                                               \
    { name, name, offsetof(struct sweep_space, field), table, n }
static const struct range ranges[] = {
    COUNTS("nodes", "nodes", nodes),
    COUNTS("shard-group", "shard_group", shard_group),
    COUNTS("tp", "tp", tp),
    COUNTS("cp", "cp", cp),
    COUNTS("pp", "pp", pp),
    COUNTS("ep", "ep", ep),
    COUNTS("micro-batch", "micro_batch", micro_batch),
    COUNTS("reduce-bucket", "reduce_bucket_elements", reduce_bucket),
    COUNTS("prefetch-bucket", "prefetch_bucket_elements", prefetch_bucket),
    COUNTS("max-live", "max_live_elements", max_live),
    NAMES("offload", offload, offload_range_names, SWEEP_OFFLOADS),
    NAMES("precision", precision, precision_names, PRECISION_COUNT),
    NAMES("recompute", recompute, recompute_names, RECOMPUTE_COUNT),
    NAMES("loss", loss, loss_names, LOSS_COUNT),
};
#define RANGES (sizeof ranges / sizeof ranges[0])

static const struct range *find(const char *name, size_t length) {
    for (size_t i = 0; i < RANGES; i++)
        if ((strlen(ranges[i].name) == length && strncmp(ranges[i].name, name, length) == 0) ||
            (strlen(ranges[i].key) == length && strncmp(ranges[i].key, name, length) == 0))
            return &ranges[i];
    return NULL;
}

static bool add(const struct range *r, const char *text, struct sweep_space *s, struct err *e) {
    struct sweep_values *v = (struct sweep_values *)((char *)s + r->offset);
    uint64_t value;
    if (v->count == SWEEP_VALUES_MAX)
        return err_set(e, ERR_USAGE, "range %s: at most %d values", r->name, SWEEP_VALUES_MAX);
    if (r->names) {
        int i = kinds_find(r->names, r->name_count, text);
        if (i < 0) {
            const char *near = kinds_nearest(r->names, r->name_count, text);
            return err_set(e, ERR_USAGE, "range %s: '%s' is not one of its values%s%s", r->name,
                           text, near ? "; nearest: " : "", near ? near : "");
        }
        value = (uint64_t)i;
    } else if (!units_parse_count(text, &value, e)) {
        err_note(e, "range %s", r->name);
        return false;
    } else if (value == 0 && r->offset != offsetof(struct sweep_space, prefetch_bucket)) {
        return err_set(e, ERR_USAGE, "range %s: values must be 1 or more", r->name);
    }
    for (size_t i = 0; i < v->count; i++)
        if (v->items[i] == value)
            return true;
    v->items[v->count++] = value;
    return true;
}

static bool unknown(const char *name, struct err *e) {
    const char *names[RANGES];
    for (size_t i = 0; i < RANGES; i++)
        names[i] = ranges[i].name;
    const char *near = kinds_nearest(names, RANGES, name);
    return err_set(e, ERR_USAGE, "range '%s' is unknown%s%s", name, near ? "; nearest: " : "",
                   near ? near : "");
}

bool sweep_ranges_parse(const struct opt_texts *texts, struct sweep_space *s, struct err *e) {
    const struct range *current = NULL;
    for (size_t i = 0; i < texts->count; i++) {
        const char *text = texts->items[i], *equals = strchr(text, '=');
        if (equals) {
            current = find(text, (size_t)(equals - text));
            if (!current)
                return unknown(text, e);
            text = equals + 1;
        }
        if (!current)
            return err_set(e, ERR_USAGE, "--range takes NAME=V,V,...; '%s' has no NAME", text);
        if (!add(current, text, s, e))
            return false;
    }
    return true;
}

static bool read_values(struct json_node list, const struct range *r, struct sweep_space *s,
                        struct err *e) {
    struct sweep_values *v = (struct sweep_values *)((char *)s + r->offset);
    if (!json_is_array(list))
        return json_fail(list, e, "expected an array of values");
    v->count = 0;
    for (size_t i = 0; i < json_size(list); i++) {
        struct json_node x = json_at(list, i);
        uint64_t n;
        char text[32];
        if (json_is_string(x)) {
            if (!add(r, x.item->valuestring, s, e))
                return false;
            continue;
        }
        if (!json_as_u64(x, &n, e))
            return false;
        snprintf(text, sizeof text, "%llu", (unsigned long long)n);
        if (!add(r, text, s, e))
            return false;
    }
    return true;
}

bool sweep_ranges_read(const char *path, struct sweep_space *s, struct err *e) {
    struct json_doc *d = json_read_file(path, e);
    bool ok = d != NULL;
    if (!ok)
        return false;
    struct json_node root = json_root(d), space;
    if (json_find(root, "space", &space))
        root = space;
    for (size_t i = 0; ok && i < json_size(root); i++) {
        struct json_node x = json_at(root, i);
        const char *key = json_key(x);
        const struct range *r = key ? find(key, strlen(key)) : NULL;
        if (r)
            ok = read_values(x, r, s, e);
        else if (!key || (strcmp(key, "strategy") && strcmp(key, "global_batch") &&
                          strcmp(key, "objective")))
            ok = json_fail(x, e, "'%s' is no range of a sweep", key ? key : "?");
    }
    json_destroy(d);
    return ok;
}
