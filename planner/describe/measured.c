// SPDX-License-Identifier: Apache-2.0
#include "describe/measured.h"

#include "base/json_stream.h"
#include "describe/catalog.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

// A run's fields. The file is read token by token: a plan asks for one run of it.
enum field_type { FIELD_TEXT, FIELD_NUMBER, FIELD_WHOLE, FIELD_SWITCH };
#define AT(type, name, member)                                                                     \
    { name, type, offsetof(struct measured_run, member) }
static const struct field {
    const char *name;
    enum field_type type;
    size_t offset;
} fields[] = {
    AT(FIELD_TEXT, "id", id),
    AT(FIELD_TEXT, "source", source),
    AT(FIELD_TEXT, "gpu", key.gpu),
    AT(FIELD_TEXT, "sm", key.sm),
    AT(FIELD_TEXT, "framework", key.framework),
    AT(FIELD_TEXT, "strategy", key.strategy),
    AT(FIELD_NUMBER, "parameters", key.parameters),
    AT(FIELD_WHOLE, "gpus", key.gpus),
    AT(FIELD_NUMBER, "tokens_per_gpu", key.tokens_per_gpu),
    AT(FIELD_SWITCH, "offload", key.offload),
    AT(FIELD_SWITCH, "fp8", key.fp8),
    AT(FIELD_NUMBER, "measured_s", measured_s),
    AT(FIELD_NUMBER, "predicted_s", predicted_s),
};
#define FIELDS (sizeof fields / sizeof *fields)

struct reader {
    struct json_stream *s;
    struct arena *a;
    const struct measured_run *before; // whose texts are taken where they are the same, or NULL
};

// Runs of one table follow one another, so most texts are the last run's.
static const char *keep(struct reader *r, const char *text, size_t offset) {
    const char *last = r->before ? *(const char *const *)((const char *)r->before + offset) : NULL;
    return last && strcmp(last, text) == 0 ? last : arena_strdup(r->a, text);
}

static bool read_field(struct reader *r, const struct field *f, struct measured_run *run,
                       struct err *e) {
    static const char *const wanted[] = {"a string", "a number above 0", "a whole number above 0",
                                         "true or false"};
    void *at = (char *)run + f->offset;
    enum json_token t;
    bool ok = false;
    if (!json_stream_next(r->s, &t, e))
        return false;
    switch (f->type) {
    case FIELD_TEXT:
        ok = t == JSON_TOKEN_STRING;
        if (ok)
            *(const char **)at = keep(r, json_stream_text(r->s), f->offset);
        break;
    case FIELD_NUMBER:
        ok = t == JSON_TOKEN_NUMBER && json_stream_number(r->s) > 0;
        if (ok)
            *(double *)at = json_stream_number(r->s);
        break;
    case FIELD_WHOLE:
        ok = t == JSON_TOKEN_NUMBER && json_stream_u64(r->s, at) && *(uint64_t *)at > 0;
        break;
    case FIELD_SWITCH:
        ok = t == JSON_TOKEN_TRUE || t == JSON_TOKEN_FALSE;
        *(bool *)at = t == JSON_TOKEN_TRUE;
        break;
    }
    return ok || json_stream_fail(r->s, e, "%s: expected %s", f->name, wanted[f->type]);
}

// After its opening brace.
static bool read_run(struct reader *r, struct measured_run *run, struct err *e) {
    unsigned seen = 0;
    size_t next = 0; // files have the fields in this order
    enum json_token t;
    for (;;) {
        if (!json_stream_next(r->s, &t, e))
            return false;
        if (t == JSON_TOKEN_OBJECT_END)
            break;
        const char *name = json_stream_text(r->s);
        size_t i = next;
        for (size_t k = 0; k < FIELDS && strcmp(fields[i % FIELDS].name, name) != 0; k++)
            i++;
        i %= FIELDS;
        if (strcmp(fields[i].name, name) != 0)
            return json_stream_fail(r->s, e, "'%s' is no field of a run", name);
        if (seen & 1U << i)
            return json_stream_fail(r->s, e, "'%s' is given twice", name);
        if (!read_field(r, &fields[i], run, e))
            return false;
        seen |= 1U << i;
        next = i + 1;
    }
    for (size_t i = 0; i < FIELDS; i++)
        if (!(seen & 1U << i))
            return json_stream_fail(r->s, e, "'%s' is missing", fields[i].name);
    return true;
}

static bool read_runs(struct reader *r, struct measured_table *out, struct err *e) {
    size_t capacity = 0;
    enum json_token t;
    for (;;) {
        if (!json_stream_next(r->s, &t, e))
            return false;
        if (t == JSON_TOKEN_ARRAY_END)
            return true;
        if (t != JSON_TOKEN_OBJECT)
            return json_stream_fail(r->s, e, "expected a run");
        if (out->count == capacity) {
            capacity = capacity ? 2 * capacity : 128;
            struct measured_run *more = arena_array(r->a, capacity, sizeof *more);
            if (out->count)
                memcpy(more, out->runs, out->count * sizeof *more);
            out->runs = more;
        }
        r->before = out->count ? &out->runs[out->count - 1] : NULL;
        if (!read_run(r, &out->runs[out->count], e))
            return false;
        out->count++;
    }
}

static bool read_table(struct reader *r, struct measured_table *out, struct err *e) {
    bool found = false;
    enum json_token t;
    if (!json_stream_next(r->s, &t, e))
        return false;
    bool object = t == JSON_TOKEN_OBJECT;
    while (object) {
        if (!json_stream_next(r->s, &t, e))
            return false;
        if (t == JSON_TOKEN_OBJECT_END)
            break;
        bool runs = strcmp(json_stream_text(r->s), "runs") == 0 && !found;
        if (!json_stream_next(r->s, &t, e))
            return false;
        found = found || (runs && t == JSON_TOKEN_ARRAY);
        if (runs && t == JSON_TOKEN_ARRAY ? !read_runs(r, out, e) : !json_stream_skip(r->s, t, e))
            return false;
    }
    if (!found)
        return json_stream_fail(r->s, e, "expected an object with runs[]");
    return json_stream_next(r->s, &t, e); // nothing after it
}

const char *measured_runs_path(struct arena *a) {
    return arena_printf(a, "%s/measured/runs.json", catalog_dir());
}

bool measured_load(struct arena *a, struct measured_table *out, struct err *e) {
    const char *path = arena_printf(a, "%s/measured/table.json", catalog_dir());
    struct measured_table t = {0};
    *out = t;
    if (access(path, R_OK) != 0)
        return true;
    struct reader r = {.s = json_stream_open(path, e), .a = a};
    bool ok = r.s != NULL && read_table(&r, &t, e);
    if (ok)
        *out = t;
    json_stream_close(r.s);
    return ok;
}

// A factor of `unit` apart counts as 1.
static double apart(double x, double y, double unit) {
    return fabs(log(x / y)) / log(unit);
}

static const double other_gpu = 1, other_generation = 3, other_strategy = 0.5, other_framework = 2,
                    other_offload = 1, other_type = 1;

static double distance(const struct measured_key *x, const struct measured_key *y) {
    double d = apart(x->parameters, y->parameters, 4) + apart((double)x->gpus, (double)y->gpus, 8) +
               apart(x->tokens_per_gpu, y->tokens_per_gpu, 4);
    if (strcmp(x->sm, y->sm) != 0)
        d += other_generation;
    else if (strcmp(x->gpu, y->gpu) != 0)
        d += other_gpu;
    if (strcmp(x->framework, y->framework) != 0)
        d += other_framework;
    else if (strcmp(x->strategy, y->strategy) != 0)
        d += other_strategy;
    return d + (x->offload != y->offload ? other_offload : 0) + (x->fp8 != y->fp8 ? other_type : 0);
}

static const char *join(struct arena *a, const char *list, const char *more) {
    return list ? arena_printf(a, "%s; %s", list, more) : more;
}

// In the words of the nearest run: "it has ...".
static const char *differences(const struct measured_key *asked, const struct measured_key *run,
                               struct arena *a) {
    static const double alike = 1.05;
    const char *list = NULL;
    const struct {
        const char *what;
        double ratio;
    } sizes[] = {{"parameters", run->parameters / asked->parameters},
                 {"GPUs", (double)run->gpus / (double)asked->gpus},
                 {"tokens per GPU", run->tokens_per_gpu / asked->tokens_per_gpu}};
    if (strcmp(asked->gpu, run->gpu) != 0)
        list = join(a, list, arena_printf(a, "another GPU (%s)", run->gpu));
    if (strcmp(asked->framework, run->framework) != 0 ||
        strcmp(asked->strategy, run->strategy) != 0)
        list = join(a, list, arena_printf(a, "another strategy (%s)", run->strategy));
    if (asked->offload != run->offload)
        list = join(a, list, run->offload ? "with offload" : "without offload");
    if (asked->fp8 != run->fp8)
        list = join(a, list, run->fp8 ? "in fp8" : "not in fp8");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].ratio > alike || sizes[i].ratio < 1 / alike)
            list = join(a, list, arena_printf(a, "%.2g x the %s", sizes[i].ratio, sizes[i].what));
    return list;
}

void measured_find(const struct measured_table *t, const struct measured_key *k, struct arena *a,
                   struct measured_nearest *out) {
    struct measured_nearest n = {.distance = INFINITY, .error = NAN, .group_error = NAN};
    for (size_t i = 0; i < t->count; i++) {
        double d = distance(k, &t->runs[i].key);
        if (d < n.distance) {
            n.distance = d;
            n.run = &t->runs[i];
        }
    }
    double sum = 0;
    for (size_t i = 0; n.run && i < t->count; i++) {
        const struct measured_run *r = &t->runs[i];
        if (strcmp(r->key.gpu, n.run->key.gpu) != 0 ||
            strcmp(r->key.strategy, n.run->key.strategy) != 0 ||
            strcmp(r->key.framework, n.run->key.framework) != 0)
            continue;
        n.group_n++;
        sum += fabs(r->predicted_s / r->measured_s - 1);
    }
    if (n.run) {
        n.error = n.run->predicted_s / n.run->measured_s - 1;
        n.group_error = sum / (double)n.group_n;
        n.differs = differences(k, &n.run->key, a);
    }
    *out = n;
}
