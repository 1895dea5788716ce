// SPDX-License-Identifier: Apache-2.0
#include "describe/measure.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"
#include "base/units.h"

enum field_type { FIELD_TEXT, FIELD_U64, FIELD_BOOL, FIELD_DOUBLE };

// One table per object drives its reader, its writer and its list of known keys.
struct field {
    const char *key;
    enum field_type type;
    size_t offset;
    bool identity; // part of measure_key
};

#define RESULT(key, type, identity)                                                                \
    { #key, type, offsetof(struct measure_result, key), identity }
static const struct field result_fields[] = {
    RESULT(kind, FIELD_TEXT, true),
    RESULT(backend, FIELD_TEXT, true),
    RESULT(algorithm, FIELD_TEXT, true),
    RESULT(protocol, FIELD_TEXT, false),
    RESULT(scope, FIELD_TEXT, false),
    RESULT(nodes, FIELD_U64, true),
    RESULT(ranks, FIELD_U64, true),
    RESULT(group, FIELD_TEXT, true),
    RESULT(dtype, FIELD_TEXT, true),
    RESULT(in_place, FIELD_BOOL, true),
    RESULT(direction, FIELD_TEXT, true),
    RESULT(concurrent, FIELD_BOOL, true),
    RESULT(oversubscribed, FIELD_BOOL, false),
    RESULT(shared_gpu, FIELD_BOOL, false),
    RESULT(confident, FIELD_BOOL, false),
    RESULT(numa, FIELD_U64, true),
    RESULT(payload_bytes, FIELD_U64, true),
    RESULT(block_bytes, FIELD_U64, true),
    RESULT(queue_depth, FIELD_U64, true),
    RESULT(jobs, FIELD_U64, true),
    RESULT(threads, FIELD_U64, true),
    RESULT(m, FIELD_U64, true),
    RESULT(n, FIELD_U64, true),
    RESULT(k, FIELD_U64, true),
    RESULT(software, FIELD_TEXT, false),
    RESULT(note, FIELD_TEXT, false),
    RESULT(iterations, FIELD_U64, false),
    RESULT(median_s, FIELD_DOUBLE, false),
    RESULT(p05_s, FIELD_DOUBLE, false),
    RESULT(p95_s, FIELD_DOUBLE, false),
    RESULT(p99_s, FIELD_DOUBLE, false),
    RESULT(min_s, FIELD_DOUBLE, false),
    RESULT(max_s, FIELD_DOUBLE, false),
    RESULT(rank_skew_s, FIELD_DOUBLE, false),
    RESULT(algbw_bytes_per_s, FIELD_DOUBLE, false),
    RESULT(busbw_bytes_per_s, FIELD_DOUBLE, false),
    RESULT(settled_s, FIELD_DOUBLE, false),
    RESULT(ceiling_bytes_per_s, FIELD_DOUBLE, false),
    RESULT(flop_per_s, FIELD_DOUBLE, false),
    RESULT(cpu_s_per_io, FIELD_DOUBLE, false),
    RESULT(cpu_s, FIELD_DOUBLE, false),
    RESULT(sent_bytes, FIELD_DOUBLE, false),
    RESULT(wire_bytes, FIELD_DOUBLE, false),
    RESULT(errors, FIELD_U64, false),
};

#define HOST(key, type)                                                                            \
    { #key, type, offsetof(struct measure_host, key), false }
static const struct field host_fields[] = {
    HOST(name, FIELD_TEXT),        HOST(os, FIELD_TEXT),      HOST(kernel, FIELD_TEXT),
    HOST(cpu, FIELD_TEXT),         HOST(cpus, FIELD_U64),     HOST(numa_nodes, FIELD_U64),
    HOST(memory_bytes, FIELD_U64), HOST(gpu, FIELD_TEXT),     HOST(gpus, FIELD_U64),
    HOST(driver, FIELD_TEXT),      HOST(network, FIELD_TEXT), HOST(storage, FIELD_TEXT),
};

#define BUILD(key)                                                                                 \
    { #key, FIELD_TEXT, offsetof(struct measure_build, key), false }
static const struct field build_fields[] = {BUILD(type), BUILD(flags), BUILD(commit)};

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static const void *const_at(const void *object, const struct field *f) {
    return (const char *)object + f->offset;
}

static void *at(void *object, const struct field *f) {
    return (char *)object + f->offset;
}

static bool read_field(struct json_node o, const struct field *f, struct arena *a, void *object,
                       struct err *e) {
    const char *text = NULL;
    switch (f->type) {
    case FIELD_TEXT:
        if (!json_get_string(o, f->key, false, &text, e))
            return false;
        if (text != NULL)
            *(const char **)at(object, f) = arena_strdup(a, text);
        return true;
    case FIELD_U64:
        return json_get_u64(o, f->key, false, at(object, f), e);
    case FIELD_BOOL:
        return json_get_bool(o, f->key, false, at(object, f), e);
    default:
        return json_get_double(o, f->key, false, at(object, f), e);
    }
}

// `extra` names one key that the caller reads itself.
static bool read_fields(struct json_node o, const struct field *fields, size_t count,
                        const char *extra, struct arena *a, void *object, struct err *e) {
    const char *keys[COUNT(result_fields) + 1];
    for (size_t i = 0; i < count; i++)
        keys[i] = fields[i].key;
    keys[count] = extra;
    if (!json_is_object(o))
        return json_fail(o, e, "expected an object");
    if (!json_check_keys(o, keys, count + (extra != NULL), e))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!read_field(o, &fields[i], a, object, e))
            return false;
    return true;
}

static void write_fields(cJSON *o, const struct field *fields, size_t count, const void *object) {
    for (size_t i = 0; i < count; i++) {
        const struct field *f = &fields[i];
        const void *p = const_at(object, f);
        double value;
        switch (f->type) {
        case FIELD_TEXT:
            if (*(const char *const *)p != NULL)
                json_add_string(o, f->key, *(const char *const *)p);
            break;
        case FIELD_U64:
            if (*(const uint64_t *)p != 0 || strcmp(f->key, "errors") == 0)
                json_add_u64(o, f->key, *(const uint64_t *)p);
            break;
        case FIELD_BOOL:
            json_add_bool(o, f->key, *(const bool *)p);
            break;
        default:
            value = *(const double *)p;
            if (isfinite(value))
                json_add_double(o, f->key, value);
        }
    }
}

void measure_result_init(struct measure_result *r) {
    memset(r, 0, sizeof(*r));
    for (size_t i = 0; i < COUNT(result_fields); i++)
        if (result_fields[i].type == FIELD_DOUBLE)
            *(double *)at(r, &result_fields[i]) = NAN;
}

static bool read_samples(struct json_node o, struct arena *a, struct measure_result *r,
                         struct err *e) {
    struct json_node list;
    if (!json_find(o, "samples_s", &list) || json_is_null(list))
        return true;
    if (!json_is_array(list))
        return json_fail(list, e, "expected a list of seconds");
    size_t n = json_size(list);
    double *samples = arena_array(a, n, sizeof(*samples));
    for (size_t i = 0; i < n; i++) {
        if (!json_as_double(json_at(list, i), &samples[i], e))
            return false;
        if (!(samples[i] >= 0))
            return json_fail(json_at(list, i), e, "a duration cannot be negative");
    }
    r->samples_s = samples;
    r->samples = n;
    return true;
}

static bool read_result(struct json_node o, struct arena *a, struct measure_result *out,
                        struct err *e) {
    struct measure_result r;
    measure_result_init(&r);
    if (!read_fields(o, result_fields, COUNT(result_fields), "samples_s", a, &r, e) ||
        !read_samples(o, a, &r, e))
        return false;
    if (r.kind == NULL || r.backend == NULL)
        return json_fail(o, e, "a result needs \"kind\" and \"backend\"");
    if (isnan(r.median_s) && r.samples > 0)
        measure_summarise(&r, r.samples_s, r.samples, a);
    bool rate = r.algbw_bytes_per_s > 0 || r.busbw_bytes_per_s > 0; // some tools print no time
    if (isnan(r.median_s) && r.errors == 0 && !rate)
        return json_fail(o, e,
                         "a result needs \"median_s\", \"samples_s\" or \"algbw_bytes_per_s\"");
    if (r.median_s <= 0)
        return json_fail(o, e, "\"median_s\" must be above 0");
    *out = r;
    return true;
}

// The header object of either form; *results receives the list if it is there.
static bool read_header(struct json_node root, struct arena *a, struct measurement *out,
                        struct json_node *results, bool *has_results, struct err *e) {
    static const char *const keys[] = {"schema", "command", "host", "build", "results"};
    const char *schema = NULL;
    struct json_node part;
    if (!json_is_object(root))
        return json_fail(root, e, "expected an object of schema " MEASURE_SCHEMA);
    if (!json_get_string(root, "schema", true, &schema, e))
        return false;
    if (strcmp(schema, MEASURE_SCHEMA) != 0)
        return json_fail(root, e, "schema is \"%s\", expected \"" MEASURE_SCHEMA "\"", schema);
    if (!json_check_keys(root, keys, COUNT(keys), e))
        return false;
    const char *command = NULL;
    if (!json_get_string(root, "command", false, &command, e))
        return false;
    out->build.command = command ? arena_strdup(a, command) : NULL;
    if (json_find(root, "host", &part) && !json_is_null(part) &&
        !read_fields(part, host_fields, COUNT(host_fields), NULL, a, &out->host, e))
        return false;
    if (json_find(root, "build", &part) && !json_is_null(part) &&
        !read_fields(part, build_fields, COUNT(build_fields), NULL, a, &out->build, e))
        return false;
    *has_results = json_find(root, "results", results);
    if (*has_results && !json_is_array(*results))
        return json_fail(*results, e, "expected a list of results");
    return true;
}

static size_t count_lines(const char *text, size_t bytes) {
    size_t n = 1;
    for (size_t i = 0; i < bytes; i++)
        n += text[i] == '\n';
    return n;
}

static bool blank(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (strchr(" \t\r", text[i]) == NULL)
            return false;
    return true;
}

// Result lines after the header line. A last line without its newline is what a crash leaves.
static bool parse_lines(const char *text, size_t bytes, const char *name, struct arena *a,
                        struct measurement *m, struct err *e) {
    m->results = arena_array(a, count_lines(text, bytes), sizeof(*m->results));
    size_t line = 2;
    for (size_t start = 0; start < bytes; line++) {
        const char *end = memchr(text + start, '\n', bytes - start);
        size_t length = (end ? (size_t)(end - text) : bytes) - start;
        if (!blank(text + start, length)) {
            struct err local = {0};
            char place[512];
            snprintf(place, sizeof(place), "%s (line %zu)", name, line);
            struct json_doc *d = json_read_text(text + start, length, place, &local);
            bool ok = d != NULL && read_result(json_root(d), a, &m->results[m->count], &local);
            json_destroy(d);
            if (ok)
                m->count++;
            else if (end == NULL && d == NULL)
                m->torn = true;
            else
                return err_set(e, local.kind, "%s", local.text);
        }
        start += length + 1;
    }
    return true;
}

static bool parse_whole(struct json_node list, struct arena *a, struct measurement *m,
                        struct err *e) {
    size_t n = json_size(list);
    m->results = arena_array(a, n, sizeof(*m->results));
    for (size_t i = 0; i < n; i++)
        if (!read_result(json_at(list, i), a, &m->results[i], e))
            return false;
    m->count = n;
    return true;
}

bool measure_parse(const char *text, size_t bytes, const char *name, struct arena *a,
                   struct measurement *out, struct err *e) {
    struct measurement m = {0};
    struct json_node list;
    bool has_results = false;
    const char *end = memchr(text, '\n', bytes);
    size_t first = end ? (size_t)(end - text) : bytes;
    size_t start = 0;

    while (start < bytes && memchr(" \t\r\n", text[start], 4))
        start++;
    if (start < bytes && text[start] != '{' && text[start] != '[')
        return err_set(e, ERR_INPUT,
                       "%s: no measurement file; `shardplan catalog import %s -o FILE.jsonl` reads "
                       "other tools' logs",
                       name, name);
    // JSON lines if the first line alone is a document and more follows or it lists no results.
    struct err ignored = {0};
    struct json_doc *d = json_read_text(text, first, name, &ignored);
    bool lines = d != NULL;
    if (!lines)
        d = json_read_text(text, bytes, name, e);
    if (d == NULL || !read_header(json_root(d), a, &m, &list, &has_results, e))
        goto fail;
    if (has_results) {
        if (lines && end != NULL && !blank(end + 1, bytes - first - 1) &&
            strspn(end + 1, " \t\r\n") < bytes - first - 1) {
            json_fail(json_root(d), e, "text follows the document");
            goto fail;
        }
        if (!parse_whole(list, a, &m, e))
            goto fail;
    } else if (!lines) {
        json_fail(json_root(d), e, "\"results\" is missing");
        goto fail;
    } else if (end != NULL && !parse_lines(end + 1, bytes - first - 1, name, a, &m, e)) {
        goto fail;
    }
    json_destroy(d);
    *out = m;
    return true;
fail:
    json_destroy(d);
    return false;
}

bool measure_read(const char *path, struct arena *a, struct measurement *out, struct err *e) {
    bool ok = false;
    char *text = NULL;
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return err_set(e, ERR_INPUT, "%s: %s", path, strerror(errno));
    size_t size = 0, room = 1 << 16;
    text = malloc(room + 1);
    while (text != NULL) {
        size += fread(text + size, 1, room - size, f);
        if (size < room)
            break;
        room *= 2;
        char *bigger = room > UNITS_GIB ? NULL : realloc(text, room + 1);
        if (bigger == NULL)
            free(text);
        text = bigger;
    }
    if (text == NULL) {
        err_set(e, ERR_INPUT, "%s: larger than a measurement file may be", path);
    } else if (ferror(f)) {
        err_set(e, ERR_INPUT, "%s: %s", path, strerror(errno));
    } else {
        text[size] = '\0';
        ok = measure_parse(text, size, path, a, out, e);
    }
    free(text);
    fclose(f);
    return ok;
}

struct measure_result *measure_append(struct measurement *m, struct arena *a) {
    struct measure_result *more = arena_array(a, m->count + 1, sizeof *more);
    if (m->count)
        memcpy(more, m->results, m->count * sizeof *more);
    m->results = more;
    measure_result_init(&m->results[m->count]);
    return &m->results[m->count++];
}

void measure_summarise(struct measure_result *r, const double *samples_s, size_t n,
                       struct arena *a) {
    if (n == 0)
        return;
    double *sorted = malloc(n * sizeof(*sorted));
    if (sorted == NULL)
        abort();
    memcpy(sorted, samples_s, n * sizeof(*sorted));
    stats_sort(sorted, n);
    r->iterations = n;
    r->median_s = stats_quantile_sorted(sorted, n, 0.5);
    r->p05_s = stats_quantile_sorted(sorted, n, 0.05);
    r->p95_s = stats_quantile_sorted(sorted, n, 0.95);
    r->p99_s = stats_quantile_sorted(sorted, n, 0.99);
    r->min_s = sorted[0];
    r->max_s = sorted[n - 1];
    free(sorted);

    size_t kept = n < MEASURE_SAMPLES_MAX ? n : MEASURE_SAMPLES_MAX;
    double *copy = arena_array(a, kept, sizeof(*copy));
    for (size_t i = 0; i < kept; i++)
        copy[i] = samples_s[i * n / kept];
    r->samples_s = copy;
    r->samples = kept;
}

cJSON *measure_result_to_json(const struct measure_result *r) {
    cJSON *o = cJSON_CreateObject();
    write_fields(o, result_fields, COUNT(result_fields), r);
    cJSON *list = json_add_array(o, "samples_s");
    for (size_t i = 0; i < r->samples; i++) {
        char number[32];
        snprintf(number, sizeof(number), "%.6g", r->samples_s[i]);
        cJSON_AddItemToArray(list, cJSON_CreateRaw(number));
    }
    return o;
}

static cJSON *header_to_json(const struct measure_host *h, const struct measure_build *b) {
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", MEASURE_SCHEMA);
    if (b->command)
        json_add_string(root, "command", b->command);
    write_fields(json_add_object(root, "host"), host_fields, COUNT(host_fields), h);
    write_fields(json_add_object(root, "build"), build_fields, COUNT(build_fields), b);
    return root;
}

cJSON *measure_to_json(const struct measurement *m) {
    cJSON *root = header_to_json(&m->host, &m->build);
    cJSON *list = json_add_array(root, "results");
    for (size_t i = 0; i < m->count; i++)
        cJSON_AddItemToArray(list, measure_result_to_json(&m->results[i]));
    return root;
}

// One line of text from `o`, which is deleted.
static char *to_line(cJSON *o) {
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    if (text == NULL)
        abort();
    size_t n = strlen(text);
    char *line = realloc(text, n + 2);
    if (line == NULL)
        abort();
    memcpy(line + n, "\n", 2);
    return line;
}

char *measure_header_line(const struct measure_host *h, const struct measure_build *b) {
    return to_line(header_to_json(h, b));
}

char *measure_result_line(const struct measure_result *r) {
    return to_line(measure_result_to_json(r));
}

const char *measure_key(const struct measure_result *r, struct arena *a) {
    const char *key = "";
    for (size_t i = 0; i < COUNT(result_fields); i++) {
        const struct field *f = &result_fields[i];
        const void *p = const_at(r, f);
        if (!f->identity)
            continue;
        if (f->type == FIELD_TEXT && *(const char *const *)p != NULL)
            key = arena_printf(a, "%s|%s=%s", key, f->key, *(const char *const *)p);
        else if (f->type == FIELD_U64 && *(const uint64_t *)p != 0)
            key = arena_printf(a, "%s|%s=%llu", key, f->key,
                               (unsigned long long)*(const uint64_t *)p);
        else if (f->type == FIELD_BOOL && *(const bool *)p)
            key = arena_printf(a, "%s|%s", key, f->key);
    }
    return key;
}
