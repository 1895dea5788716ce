// SPDX-License-Identifier: Apache-2.0
#include "render/emit_check.h"

#include "base/units.h"
#include "describe/recipe_fields.h"

#include <math.h>

static const char *const edit_names[] = {
    [EDIT_NONE] = "none", [EDIT_SET] = "set", [EDIT_REMOVE] = "remove", [EDIT_RENAME] = "rename"};

static size_t count_of(const struct check_result *r, enum severity s) {
    size_t n = 0;
    for (size_t i = 0; i < r->count; i++)
        n += r->findings[i].severity == s;
    return n;
}

static void add_finding(cJSON *array, const struct finding *f) {
    cJSON *o = json_append_object(array);
    json_add_string(o, "id", f->id);
    json_add_string(o, "severity", severity_names[f->severity]);
    json_add_string(o, "path", f->path);
    json_add_string(o, "text", f->text);
    json_add_double(o, "cost_bytes", f->cost_bytes);
    json_add_double(o, "cost_s", f->cost_s);
    json_add_string(o, "fix", f->fix);
    cJSON *edits = json_add_array(o, "edits");
    for (size_t i = 0; i < FINDING_EDITS_MAX; i++) {
        if (f->edits[i].kind == EDIT_NONE)
            continue;
        cJSON *x = json_append_object(edits);
        json_add_string(x, "kind", edit_names[f->edits[i].kind]);
        json_add_string(x, "path", f->edits[i].path);
        json_add_string(x, "value", f->edits[i].value);
    }
}

cJSON *emit_check_json(const struct check_request *q, const struct check_result *r,
                       const char *command) {
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", "shardplan.check/1");
    json_add_string(root, "command", command);
    cJSON *config = json_add_object(root, "config");
    json_add_string(config, "path", q->path);
    json_add_string(config, "kind", config_kind_names[r->facts.kind]);
    json_add_string(root, "model", q->model->name);
    json_add_string(root, "cluster", q->cluster->name);
    if (r->resolved)
        recipe_fields_add_json(&r->recipe, json_add_object(root, "recipe"));
    else
        json_add_null(root, "recipe");
    json_add_u64(root, "errors", count_of(r, SEVERITY_ERROR));
    json_add_u64(root, "warnings", count_of(r, SEVERITY_WARNING));
    cJSON *findings = json_add_array(root, "findings");
    for (size_t i = 0; i < r->count; i++)
        add_finding(findings, &r->findings[i]);
    return root;
}

void emit_check_table(const struct check_result *r, FILE *out) {
    char buf[32];
    for (size_t i = 0; i < r->count; i++) {
        const struct finding *f = &r->findings[i];
        fprintf(out, "%-7s  %s\n         %s\n         %s\n", severity_names[f->severity], f->id,
                f->path, f->text);
        if (!isnan(f->cost_bytes))
            fprintf(out, "         costs %s\n", units_format_gib(buf, sizeof buf, f->cost_bytes));
        if (!isnan(f->cost_s))
            fprintf(out, "         costs up to %s per step\n",
                    units_format_seconds(buf, sizeof buf, f->cost_s));
        if (f->fix)
            fprintf(out, "         fix: %s\n", f->fix);
    }
    static const char *const words[] = {"error", "warning", "note"};
    static const enum severity severities[] = {SEVERITY_ERROR, SEVERITY_WARNING, SEVERITY_INFO};
    for (size_t i = 0; i < 3; i++) {
        size_t n = count_of(r, severities[i]);
        fprintf(out, "%s%zu %s%s", i ? ", " : "", n, words[i], n == 1 ? "" : "s");
    }
    fputc('\n', out);
}

static void add_event(cJSON *array, const struct explain_event *ev) {
    cJSON *o = json_append_object(array);
    json_add_string(o, "kind", explain_kind_names[ev->kind]);
    json_add_u64(o, "line", ev->line);
    json_add_u64(o, "count", ev->count);
    json_add_string(o, "text", ev->text);
    json_add_string(o, "phase", ev->phase);
    json_add_double(o, "asked_bytes", ev->asked_bytes);
    json_add_double(o, "total_bytes", ev->total_bytes);
    json_add_double(o, "free_bytes", ev->free_bytes);
    json_add_double(o, "allocated_bytes", ev->allocated_bytes);
    json_add_double(o, "reserved_bytes", ev->reserved_bytes);
    cJSON *causes = json_add_array(o, "causes");
    for (size_t i = 0; i < ev->cause_count; i++) {
        cJSON *c = json_append_object(causes);
        json_add_string(c, "what", ev->causes[i].what);
        json_add_double(c, "bytes", ev->causes[i].bytes);
        json_add_string(c, "phase", ev->causes[i].phase);
        json_add_string(c, "advice", ev->causes[i].advice);
    }
    json_add_string(o, "meaning", ev->meaning);
    json_add_string(o, "advice", ev->advice);
}

cJSON *emit_explain_json(const struct explain_request *q, const struct explain_result *r,
                         const char *command) {
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", "shardplan.explain/1");
    json_add_string(root, "command", command);
    json_add_string(root, "model", q->model->name);
    json_add_string(root, "log", q->path);
    if (r->first)
        json_add_u64(root, "first", (uint64_t)(r->first - r->events));
    else
        json_add_null(root, "first");
    cJSON *events = json_add_array(root, "events");
    for (size_t i = 0; i < r->count; i++)
        add_event(events, &r->events[i]);
    return root;
}

void emit_explain_table(const struct explain_result *r, FILE *out) {
    for (size_t i = 0; i < r->count; i++) {
        const struct explain_event *ev = &r->events[i];
        fprintf(out, "line %zu%s  %s", ev->line, &r->events[i] == r->first ? " *" : "",
                explain_kind_names[ev->kind]);
        if (ev->count > 1)
            fprintf(out, " (%zu times)", ev->count);
        fprintf(out, "\n    %s\n", ev->meaning);
        for (size_t k = 1; k < ev->cause_count; k++)
            fprintf(out, "    or: %s\n", ev->causes[k].what);
        if (ev->advice)
            fprintf(out, "    change: %s\n", ev->advice);
    }
    if (r->count == 0)
        fputs("No line of this log is one that explain knows.\n", out);
    else if (r->first)
        fputs("* stopped the run\n", out);
}
