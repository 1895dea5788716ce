// SPDX-License-Identifier: Apache-2.0
#include "render/emit_validate.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

#define PERCENT 100.0
#define CLAIM_MIN 5 // no accuracy claim below so many points

static void add_score(cJSON *parent, const char *key, const struct validate_score *s) {
    cJSON *o = json_add_object(parent, key);
    json_add_u64(o, "n", s->n);
    json_add_double(o, "mape", s->mape);
    json_add_double(o, "macro_mape", s->macro_mape);
    json_add_double(o, "median_ape", s->median_ape);
    json_add_double(o, "p90_ape", s->p90_ape);
    json_add_double(o, "max_ape", s->max_ape);
    json_add_double(o, "bias", s->bias);
}

static void add_groups(cJSON *root, const struct validate_result *r) {
    cJSON *list = json_add_array(root, "by_group");
    for (size_t i = 0; i < r->group_count; i++) {
        const struct validate_group *g = &r->groups[i];
        cJSON *o = json_append_object(list);
        json_add_string(o, "name", g->name);
        json_add_string(o, "by", g->by);
        json_add_string(o, "metric", validate_metric_names[g->metric]);
        json_add_bool(o, "claim", g->score.n >= CLAIM_MIN);
        add_score(o, "score", &g->score);
    }
}

static void add_run(cJSON *row, const struct measured_key *k) {
    if (k->gpu == NULL) {
        json_add_null(row, "run");
        return;
    }
    cJSON *o = json_add_object(row, "run");
    json_add_string(o, "gpu", k->gpu);
    json_add_string(o, "sm", k->sm);
    json_add_string(o, "framework", k->framework);
    json_add_string(o, "strategy", k->strategy);
    json_add_double(o, "parameters", k->parameters);
    json_add_u64(o, "gpus", k->gpus);
    json_add_double(o, "tokens_per_gpu", k->tokens_per_gpu);
    json_add_bool(o, "offload", k->offload);
    json_add_bool(o, "fp8", k->fp8);
}

static void add_rows(cJSON *root, const struct validate_result *r) {
    cJSON *list = json_add_array(root, "rows");
    for (size_t i = 0; i < r->point_count; i++) {
        const struct validate_point *p = &r->points[i];
        cJSON *o = json_append_object(list);
        json_add_string(o, "id", p->id);
        json_add_string(o, "metric", validate_metric_names[p->metric]);
        json_add_string(o, "source", p->source);
        json_add_string(o, "group", p->group);
        json_add_double(o, "measured", p->measured);
        json_add_double(o, "predicted", p->predicted);
        json_add_double(o, "low", p->low);
        json_add_double(o, "high", p->high);
        json_add_double(o, "ape", p->ape);
        json_add_bool(o, "scored", p->scored);
        json_add_string(o, "reason", p->reason);
        add_run(o, &p->run);
    }
}

cJSON *emit_validate_json(const struct validate_result *r, const char *command, const char *input) {
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", "shardplan.validate/1");
    json_add_string(root, "command", command);
    json_add_string(root, "input", input);
    add_score(root, "step_time", &r->step_time);
    add_score(root, "memory", &r->memory);
    cJSON *fits = json_add_object(root, "fits");
    json_add_u64(fits, "n", r->fits_n);
    json_add_u64(fits, "false_fit", r->false_fit);
    json_add_u64(fits, "false_oom", r->false_oom);
    add_score(root, "collectives", &r->collectives);
    json_add_u64(cJSON_GetObjectItemCaseSensitive(root, "collectives"), "unscored",
                 r->unscored_collectives);
    cJSON *coverage = json_add_object(root, "coverage");
    json_add_double(coverage, "step_time", r->coverage_step_time);
    json_add_double(coverage, "memory", r->coverage_memory);
    json_add_double(coverage, "median_half_width", r->median_half_width);
    add_groups(root, r);
    add_rows(root, r);
    return root;
}

static void print_score(const char *name, const char *metric, const struct validate_score *s,
                        FILE *out) {
    fprintf(out, "%-52.52s %-9s %4zu", name, metric, s->n);
    const double values[] = {s->mape,    s->macro_mape, s->median_ape,
                             s->p90_ape, s->max_ape,    s->bias};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (s->n >= CLAIM_MIN) {
            fprintf(out, " %6.1f", PERCENT * values[i]);
        } else {
            fprintf(out, " %6s", i == 0 || i == 4 ? "few" : "-");
        }
    }
    fputc('\n', out);
}

static void print_rows(const struct validate_result *r, FILE *out) {
    fprintf(out, "\n%-56s %-9s %11s %11s %7s\n", "row", "metric", "measured", "predicted",
            "error %");
    for (size_t i = 0; i < r->point_count; i++) {
        const struct validate_point *p = &r->points[i];
        if (p->scored) {
            fprintf(out, "%-56.56s %-9s %11.5g %11.5g %+7.1f\n", p->id,
                    validate_metric_names[p->metric], p->measured, p->predicted,
                    PERCENT * (p->predicted / p->measured - 1.0));
        } else if (isfinite(p->measured)) {
            fprintf(out, "%-56.56s %-9s %11.5g %11s %7s  %s\n", p->id,
                    validate_metric_names[p->metric], p->measured, "-", "-",
                    p->reason != NULL ? p->reason : "");
        }
    }
}

void emit_validate_table(const struct validate_result *r, bool rows, FILE *out) {
    fprintf(out, "%-52s %-9s %4s %6s %6s %6s %6s %6s %6s\n", "percent", "metric", "n", "mape",
            "macro", "median", "p90", "max", "bias");
    for (size_t i = 0; i < r->group_count; i++) {
        const struct validate_group *g = &r->groups[i];
        print_score(g->name, validate_metric_names[g->metric], &g->score, out);
    }
    if (r->fits_n > 0) {
        fprintf(out, "fits: %zu judged, %zu false out-of-memory, %zu false fit\n", r->fits_n,
                r->false_oom, r->false_fit);
        fprintf(out,
                "interval: holds %.0f %% of step times (median half-width %.1f %%), %.0f %% of "
                "memory readings\n",
                PERCENT * r->coverage_step_time, PERCENT * r->median_half_width,
                PERCENT * r->coverage_memory);
    }
    if (r->collectives.n > 0) {
        print_score("all points", validate_metric_names[METRIC_BUSBW], &r->collectives, out);
        fprintf(out, "%zu points not scored\n", r->unscored_collectives);
    }
    if (rows) {
        print_rows(r, out);
    }
}
