// SPDX-License-Identifier: Apache-2.0
#include "render/emit_fit.h"

#include "base/units.h"
#include "cost/collective.h"

#include <inttypes.h>
#include <math.h>

static const char *title_of(const struct calibrated_series *s, struct arena *a) {
    return arena_printf(a, "%s, %" PRIu64 " ranks on %" PRIu64 " node%s%s%s",
                        collective_name(s->collective), s->ranks, s->nodes,
                        s->nodes == 1 ? "" : "s", s->algorithm ? ", " : "",
                        s->algorithm ? s->algorithm : "");
}

// The bus bandwidth no large message can pass: one GPU's NVLink within a node; between nodes that
// are used whole, the node's network. NAN where neither is known.
static double line_rate(const struct cluster *c, const struct calibrated_series *s) {
    if (s->nodes == 1)
        return c->gpu.nvlink_bytes_per_s.value;
    if (s->ranks != s->nodes * c->gpus_per_node)
        return NAN;
    return c->nic_bytes_per_s.value * (double)c->nics_per_node;
}

static void emit_law(cJSON *list, const char *title, const struct calibrated_series *s,
                     const struct series_law *l, double line) {
    cJSON *o = json_append_object(list);
    json_add_string(o, "law", title);
    json_add_string(o, "collective", collective_name(s->collective));
    json_add_u64(o, "nodes", s->nodes);
    json_add_u64(o, "ranks", s->ranks);
    json_add_double(o, "line_rate_bytes_per_s", line > 0 ? line : NAN);
    json_add_double(o, "latency_s", l->latency_s);
    json_add_double(o, "latency_stderr_s", l->latency_s * l->latency_error);
    json_add_double(o, "bandwidth_bytes_per_s", l->bytes_per_s);
    json_add_double(o, "bandwidth_stderr_bytes_per_s", l->bytes_per_s * l->bandwidth_error);
    json_add_double(o, "half_bytes", l->half_bytes);
    json_add_double(o, "min_payload_bytes", l->min_payload_bytes);
    json_add_double(o, "max_payload_bytes", l->max_payload_bytes);
    json_add_double(o, "scatter", l->scatter);
    json_add_u64(o, "points", l->points);
    json_add_double(o, "left_out", s->fit.cross_validation);
}

// What the model says of the cluster without any fit.
static double model_s(const struct cluster *c, const struct calibrated_series *s,
                      double payload_bytes) {
    struct cluster bare = *c;
    struct group_layout g = {s->ranks, s->nodes ? s->ranks / s->nodes : s->ranks, 1};
    struct collective_time t;
    bare.fit_count = 0;
    collective_estimate(&bare, s->collective, &g, payload_bytes, &t);
    return t.seconds;
}

static void emit_residuals(cJSON *list, const struct cluster *c, const struct calibrated_series *s,
                           const char *title) {
    for (size_t i = 0; i < s->point_count; i++) {
        const struct series_point *p = &s->points[i];
        cJSON *o = json_append_object(list);
        json_add_string(o, "name", title);
        json_add_double(o, "payload_bytes", p->payload_bytes);
        json_add_double(o, "measured_s", p->seconds);
        json_add_double(o, "fitted_s",
                        series_fit_seconds(&s->fit, p->payload_bytes, p->sent_bytes));
        json_add_double(o, "model_s", model_s(c, s, p->payload_bytes));
    }
}

static cJSON *emit_checked(cJSON *root, const char *key, const struct calibrated_law *l) {
    if (l->points == 0) {
        cJSON_AddNullToObject(root, key);
        return NULL;
    }
    cJSON *o = json_add_object(root, key);
    json_add_u64(o, "points", l->points);
    json_add_double(o, "median_error_before", l->before);
    json_add_double(o, "median_error_fitted", l->after);
    json_add_double(o, "median_error_left_out", l->left_out);
    json_add_string(o, "refused", l->refused);
    return o;
}

cJSON *emit_fit_json(const struct calibration *c, const char *command, struct arena *a) {
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", "shardplan.fit/1");
    json_add_string(root, "command", command);
    json_add_string(root, "name", c->cluster.name);
    cJSON *fits = json_add_array(root, "fits"), *residuals = json_add_array(root, "residuals");
    cJSON *refused = json_add_array(root, "refused");
    for (size_t i = 0; i < c->series_count; i++) {
        const struct calibrated_series *s = &c->series[i];
        const char *title = title_of(s, a);
        if (s->refused) {
            cJSON *o = json_append_object(refused);
            json_add_string(o, "law", title);
            json_add_string(o, "reason", s->refused);
            continue;
        }
        for (size_t k = 0; k < s->fit.piece_count; k++)
            emit_law(fits, title, s, &s->fit.pieces[k], line_rate(&c->cluster, s));
        emit_residuals(residuals, &c->cluster, s, title);
    }
    cJSON *rates = json_add_array(root, "rates");
    for (size_t i = 0; i < c->rate_count; i++) {
        cJSON *o = json_append_object(rates);
        json_add_string(o, "path", c->rates[i].path);
        json_add_string(o, "unit", c->rates[i].unit);
        json_add_figure(o, "before", c->rates[i].before);
        json_add_figure(o, "after", c->rates[i].after);
        json_add_u64(o, "samples", c->rates[i].samples);
        json_add_u64(o, "sizes", c->rates[i].sizes);
        json_add_double(o, "left_out", c->rates[i].sizes ? c->rates[i].left_out : NAN);
    }
    emit_checked(root, "gemm", &c->gemm);
    cJSON *runs = emit_checked(root, "runs", &c->runs.law);
    if (c->runs.law.points) {
        json_add_u64(runs, "folds", c->runs.folds);
        json_add_u64(runs, "rows_left_out", c->runs.left_out);
        json_add_string(runs, "rows_left_out_because", c->runs.left_out_note);
    }
    json_add_u64(root, "left_out", c->left_out);
    return root;
}

static void print_law(const struct calibrated_series *s, size_t piece, struct arena *a, FILE *out) {
    const struct series_law *l = &s->fit.pieces[piece];
    char latency[32], rate[32], low[32], high[32];
    fprintf(out, "%-36s %9s ± %4.1f %% %11s ± %4.1f %% %9s-%-9s %6zu %6.1f %%\n", title_of(s, a),
            units_format_seconds(latency, sizeof latency, l->latency_s), 100 * l->latency_error,
            units_format_rate(rate, sizeof rate, l->bytes_per_s), 100 * l->bandwidth_error,
            units_format_bytes(low, sizeof low, l->min_payload_bytes),
            units_format_bytes(high, sizeof high, l->max_payload_bytes), l->points,
            100 * s->fit.cross_validation);
}

static void print_rate(const struct calibrated_rate *r, FILE *out) {
    fprintf(out, "%-36s %.4g %s (95 %%: %.4g to %.4g) from %zu result%s", r->path, r->after.value,
            r->unit, r->after.low, r->after.high, r->samples, r->samples == 1 ? "" : "s");
    if (figure_is_known(r->before) && r->before.source)
        fprintf(out, "; before %.4g, %s", r->before.value, provenance_name(r->before.provenance));
    if (r->sizes)
        fprintf(out, "; %zu sizes, each from the others: %.1f %% off", r->sizes, 100 * r->left_out);
    fputc('\n', out);
}

static void print_checked(const char *what, const struct calibrated_law *l, FILE *out) {
    if (l->points == 0)
        return;
    fprintf(out, "\n%zu %s: median error", l->points, what);
    if (isfinite(l->before))
        fprintf(out, " %.1f %% before", 100 * l->before);
    if (isfinite(l->left_out))
        fprintf(out, ", %.1f %% on those left out", 100 * l->left_out);
    if (isfinite(l->after))
        fprintf(out, ", %.1f %% on those fitted to", 100 * l->after);
    fprintf(out, "%s%s\n", l->refused ? "; constants kept as they were: " : "",
            l->refused ? l->refused : "");
}

void emit_fit_table(const struct calibration *c, struct arena *a, FILE *out) {
    fprintf(out, "%s, from measurements\n", c->cluster.name);
    if (c->cluster.fit_count)
        fprintf(out, "\n%-36s %9s ± %6s %11s ± %6s %19s %6s %8s\n", "collective", "latency", "s.e.",
                "busbw", "s.e.", "measured payloads", "points", "left out");
    for (size_t i = 0; i < c->series_count; i++) {
        for (size_t k = 0; !c->series[i].refused && k < c->series[i].fit.piece_count; k++)
            print_law(&c->series[i], k, a, out);
        if (c->series[i].refused)
            fprintf(out, "%-36s not fitted: %s\n", title_of(&c->series[i], a),
                    c->series[i].refused);
    }
    if (c->rate_count)
        fputc('\n', out);
    for (size_t i = 0; i < c->rate_count; i++)
        print_rate(&c->rates[i], out);
    print_checked("matrix products", &c->gemm, out);
    print_checked("training runs", &c->runs.law, out);
    if (c->runs.left_out)
        fprintf(out, "%zu runs not used, first: %s\n", c->runs.left_out, c->runs.left_out_note);
    if (c->left_out)
        fprintf(out,
                "\n%zu results left out: wrong data, oversubscribed, or several ranks on one GPU\n",
                c->left_out);
}
