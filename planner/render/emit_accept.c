// SPDX-License-Identifier: Apache-2.0
#include "render/emit_accept.h"

#include "base/units.h"

#include <math.h>
#include <stdlib.h>

cJSON *emit_accept_json(const struct verdict *v, const char *command, const struct cluster *c) {
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", "shardplan.accept/1");
    json_add_string(root, "command", command);
    json_add_string(root, "cluster", c->name);
    json_add_string(root, "verdict", verdict_status_names[v->overall]);
    json_add_string(root, "reason", v->reason);
    cJSON *counts = json_add_object(root, "counts");
    for (size_t i = 0; i < VERDICT_STATUS_COUNT; i++)
        json_add_u64(counts, verdict_status_names[i], v->by_status[i]);
    cJSON *list = json_add_array(root, "checks");
    for (size_t i = 0; i < v->count; i++) {
        const struct verdict_check *k = &v->checks[i];
        cJSON *o = json_append_object(list);
        json_add_string(o, "name", k->name);
        json_add_string(o, "status", verdict_status_names[k->status]);
        json_add_bool(o, "required", k->required);
        json_add_double(o, "measured_bytes_per_s", k->measured_bytes_per_s);
        json_add_double(o, "limit_bytes_per_s", k->limit_bytes_per_s);
        json_add_double(o, "baseline_bytes_per_s", k->baseline_bytes_per_s);
        json_add_double(o, "model_bytes_per_s", k->model_bytes_per_s);
        json_add_string(o, "culprit", k->culprit);
        json_add_string(o, "reason", k->reason);
        json_add_string(o, "next_step", k->next_step);
    }
    return root;
}

static const char *rate(char *buf, size_t size, double v) {
    return isfinite(v) ? units_format_rate(buf, size, v) : "-";
}

void emit_accept_table(const struct verdict *v, const struct cluster *c, FILE *out) {
    fprintf(out, "%s: %s: %s\n\n%-8s %-44s %12s %12s  %s\n", c->name,
            verdict_status_names[v->overall], v->reason, "status", "check", "measured", "limit",
            "reason, next step");
    for (size_t i = 0; i < v->count; i++) {
        const struct verdict_check *k = &v->checks[i];
        char measured[32], limit[32];
        fprintf(out, "%-8s %-44s %12s %12s  %s%s%s%s%s\n", verdict_status_names[k->status], k->name,
                rate(measured, sizeof measured, k->measured_bytes_per_s),
                rate(limit, sizeof limit, k->limit_bytes_per_s), k->culprit ? k->culprit : "",
                k->culprit ? ": " : "", k->reason ? k->reason : "", k->next_step ? "; " : "",
                k->next_step ? k->next_step : "");
    }
    fputs("\nEvery size is judged on its own: a mean over sizes hides the large ones behind "
          "latency. A two-node\n"
          "all-reduce halves the bytes on the wire and never counts as a network's bandwidth.\n",
          out);
}

static void put_escaped(FILE *f, const char *text) {
    for (const char *p = text ? text : ""; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '&')
            fputs("&amp;", f);
        else if (c == '<')
            fputs("&lt;", f);
        else if (c == '>')
            fputs("&gt;", f);
        else if (c == '"')
            fputs("&quot;", f);
        else if (c >= ' ' || c == '\t' || c == '\n')
            fputc(c, f);
    }
}

static void put_case(FILE *f, const struct verdict_check *k) {
    fputs("  <testcase classname=\"shardplan.accept\" name=\"", f);
    put_escaped(f, k->name);
    fputs("\">", f);
    if (k->status != VERDICT_PASS) {
        fprintf(f, "<%s message=\"", k->status == VERDICT_FAIL ? "failure" : "skipped");
        put_escaped(f, verdict_status_names[k->status]);
        fputs(": ", f);
        put_escaped(f, k->culprit);
        fputs(k->culprit ? ": " : "", f);
        put_escaped(f, k->reason);
        fputs("\"/>", f);
    }
    fputs("</testcase>\n", f);
}

char *emit_accept_junit(const struct verdict *v) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fprintf(f,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"shardplan accept\" "
            "tests=\"%zu\" "
            "failures=\"%zu\" skipped=\"%zu\">\n",
            v->count, v->by_status[VERDICT_FAIL],
            v->by_status[VERDICT_WAIVED] + v->by_status[VERDICT_NODATA]);
    for (size_t i = 0; i < v->count; i++)
        put_case(f, &v->checks[i]);
    fputs("</testsuite>\n", f);
    fclose(f);
    return text;
}
