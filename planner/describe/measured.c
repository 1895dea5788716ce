// SPDX-License-Identifier: Apache-2.0
#include "describe/measured.h"

#include "base/json.h"
#include "describe/catalog.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static bool read_text(struct json_node o, const char *key, struct arena *a, const char **out,
                      struct err *e) {
    const char *text = NULL;
    if (!json_get_string(o, key, true, &text, e))
        return false;
    *out = arena_strdup(a, text);
    return true;
}

static bool read_run(struct json_node o, struct arena *a, struct measured_run *r, struct err *e) {
    static const char *const keys[] = {
        "id",   "source",         "gpu",     "sm",  "framework",  "strategy",   "parameters",
        "gpus", "tokens_per_gpu", "offload", "fp8", "measured_s", "predicted_s"};
    struct measured_key *k = &r->key;
    if (!json_check_keys(o, keys, sizeof keys / sizeof *keys, e) ||
        !read_text(o, "id", a, &r->id, e) || !read_text(o, "source", a, &r->source, e) ||
        !read_text(o, "gpu", a, &k->gpu, e) || !read_text(o, "sm", a, &k->sm, e) ||
        !read_text(o, "framework", a, &k->framework, e) ||
        !read_text(o, "strategy", a, &k->strategy, e) ||
        !json_get_double(o, "parameters", true, &k->parameters, e) ||
        !json_get_u64(o, "gpus", true, &k->gpus, e) ||
        !json_get_double(o, "tokens_per_gpu", true, &k->tokens_per_gpu, e) ||
        !json_get_bool(o, "offload", true, &k->offload, e) ||
        !json_get_bool(o, "fp8", true, &k->fp8, e) ||
        !json_get_double(o, "measured_s", true, &r->measured_s, e) ||
        !json_get_double(o, "predicted_s", true, &r->predicted_s, e))
        return false;
    if (!(k->parameters > 0) || !(k->tokens_per_gpu > 0) || k->gpus == 0 || !(r->measured_s > 0) ||
        !(r->predicted_s > 0))
        return json_fail(o, e, "figures of a run must be above 0");
    return true;
}

bool measured_load(struct arena *a, struct measured_table *out, struct err *e) {
    const char *path = arena_printf(a, "%s/measured/table.json", catalog_dir());
    struct json_node runs;
    struct measured_table t = {0};
    *out = t;
    if (access(path, R_OK) != 0)
        return true;
    struct json_doc *doc = json_read_file(path, e);
    if (doc == NULL)
        return false;
    bool ok = json_is_object(json_root(doc)) && json_find(json_root(doc), "runs", &runs) &&
              json_is_array(runs);
    if (!ok) {
        json_fail(json_root(doc), e, "expected an object with runs[]");
        goto fail;
    }
    t.count = json_size(runs);
    t.runs = arena_array(a, t.count + 1, sizeof *t.runs);
    size_t i = 0;
    for (const cJSON *c = runs.item->child; ok && c; c = c->next, i++)
        ok = read_run((struct json_node){doc, c, arena_printf(a, "$.runs[%zu]", i)}, a, &t.runs[i],
                      e);
    if (ok)
        *out = t;
fail:
    json_destroy(doc);
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
