// SPDX-License-Identifier: Apache-2.0
#include "render/emit_advise.h"

#include "base/units.h"
#include "render/emit_plan.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void emit_way(cJSON *o, const struct advise_way *w, struct arena *a) {
    json_add_string(o, "kind", advise_way_names[w->kind]);
    json_add_string(o, "title", w->title);
    json_add_bool(o, "possible", w->possible);
    json_add_u64(o, "nodes", w->cluster.nodes);
    json_add_u64(o, "gpus", w->cluster.gpus);
    json_add_double(o, "inter_node_bytes_per_s_per_gpu",
                    w->cluster.nodes > 1 ? break_even_bandwidth(&w->cluster, BREAK_INTER) : NAN);
    json_add_string(o, "plan", w->possible ? plan_title(&w->plan, a) : NULL);
    json_add_string(o, "reason", w->sentence);
    json_add_double(o, "step_s", w->possible ? w->plan.time.step_s : NAN);
    json_add_double(o, "tokens_per_s", w->tokens_per_s);
    json_add_double(o, "days", w->days);
    json_add_double(o, "usd_per_billion_tokens", w->usd_per_billion_tokens);
    json_add_string(o, "price_date", w->cluster.price_date);
    if (!w->possible)
        return;
    json_add_string(o, "fits_state", fits_state_names[w->plan.memory.fits_state]);
    json_add_u64(o, "allocated_peak_bytes", w->plan.memory.allocated_peak_bytes);
    json_add_u64(o, "reserved_low_bytes", w->plan.memory.reserved_low_bytes);
    json_add_u64(o, "reserved_high_bytes", w->plan.memory.reserved_high_bytes);
    json_add_u64(o, "capacity_bytes", w->plan.memory.capacity_bytes);
    json_add_u64(o, "host_bytes_per_node", w->plan.memory.host_bytes);
    json_add_u64(o, "nvme_bytes_per_node", w->plan.memory.nvme_bytes);
    json_add_string(o, "bound_by", bound_names[w->plan.time.bound_by]);
    emit_time(o, "time", &w->plan.time);
    emit_recipe(o, "recipe", &w->plan.recipe);
}

static void emit_break_evens(cJSON *root, const struct advice *v) {
    cJSON *list = json_add_array(root, "break_even");
    for (size_t i = 0; i < BREAK_LINK_COUNT; i++) {
        const struct break_even *b = &v->break_evens[i];
        if (!b->unit_of)
            continue;
        cJSON *o = json_append_object(list);
        json_add_string(o, "link", break_even_link_names[b->link]);
        json_add_string(o, "of", b->unit_of);
        json_add_double(o, "current_bytes_per_s", b->current_bytes_per_s);
        json_add_double(o, "needed_bytes_per_s", b->needed_bytes_per_s);
        json_add_double(o, "sold_bytes_per_s", b->sold_bytes_per_s);
        json_add_double(o, "step_s", b->step_s);
        json_add_double(o, "floor_step_s", b->floor_step_s);
        json_add_double(o, "compute_s", b->compute_s);
        json_add_string(o, "reason", b->reason);
    }
    list = json_add_array(root, "sensitivities");
    for (size_t i = 0; i < v->sensitivity_count; i++) {
        const struct sensitivity *s = &v->sensitivities[i];
        cJSON *o = json_append_object(list);
        json_add_string(o, "path", s->path);
        json_add_string(o, "of", s->unit);
        json_add_double(o, "value_bytes_per_s", s->value);
        json_add_double(o, "step_s_per_byte_per_s", s->step_s_per_unit);
        json_add_double(o, "gain_of_10_percent", s->gain_of_10_percent);
    }
}

static void emit_curves(cJSON *root, const struct advice *v, struct arena *a) {
    cJSON *list = json_add_array(root, "bandwidth_curves");
    for (size_t i = 0; i < v->curve_count; i++) {
        cJSON *o = json_append_object(list);
        const struct advise_way *w = v->curves[i].way;
        json_add_string(o, "kind", advise_way_names[w->kind]);
        json_add_string(o, "title", w->title);
        json_add_string(o, "plan", plan_title(&w->plan, a));
        json_add_u64(o, "nodes", w->cluster.nodes);
        json_add_u64(o, "tokens_per_step", w->plan.recipe.global_batch * w->plan.recipe.seq);
        cJSON *points = json_add_array(o, "points");
        for (size_t k = 0; k < ADVISE_CURVE_POINTS; k++) {
            cJSON *p = json_append_object(points);
            json_add_double(p, "inter_node_bytes_per_s_per_gpu", v->curves[i].bytes_per_s[k]);
            json_add_double(p, "step_s", v->curves[i].step_s[k]);
        }
    }
}

static void emit_scaling(cJSON *root, const struct advice *v) {
    cJSON *list = json_add_array(root, "scaling");
    for (size_t i = 0; i < v->scaling_count; i++) {
        const struct advise_scaling *s = &v->scaling[i];
        cJSON *o = json_append_object(list);
        json_add_u64(o, "nodes", s->nodes);
        json_add_u64(o, "gpus", s->gpus);
        json_add_bool(o, "fits", s->fits);
        json_add_u64(o, "sequences_per_step", s->sequences_per_step);
        json_add_double(o, "step_s", s->step_s);
        json_add_double(o, "tokens_per_s_per_gpu", s->tokens_per_s_per_gpu);
        json_add_double(o, "exposed_comm_s", s->exposed_comm_s);
    }
}

cJSON *emit_advise_json(const struct advice *v, const struct advise_request *q, const char *command,
                        const struct recipe_origins *origins, struct arena *a) {
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", "shardplan.advise/1");
    json_add_string(root, "command", command);
    emit_model_cluster(root, q->model, q->cluster,
                       v->plans.plan_count ? &v->plans.plans[0].recipe : NULL);
    emit_recommendation(root, &v->recommendation);
    json_add_string(root, "sentence", v->sentence);
    json_add_double(root, "tokens", q->tokens > 0 ? q->tokens : UNITS_GIGA);
    json_add_u64(root, "best_way", v->best_way);
    if (v->safe.possible)
        emit_way(json_add_object(root, "safe_way"), &v->safe, a);
    else
        json_add_null(root, "safe_way");
    cJSON *list = json_add_array(root, "ways");
    for (size_t i = 0; i < v->way_count; i++)
        emit_way(json_append_object(list), &v->ways[i], a);
    emit_break_evens(root, v);
    emit_curves(root, v, a);
    emit_scaling(root, v);
    json_add_double(root, "hiding_tokens_per_gpu_per_micro_step", v->hiding_tokens_per_gpu);
    json_add_string(root, "hiding_reason", v->hiding_reason);
    json_add_double(root, "offload_pays_tokens_per_step", v->offload_tokens_per_step);
    json_add_double(root, "gib_worth_s", v->gib_worth_s);
    list = json_add_array(root, "plans");
    for (size_t i = 0; i < v->plans.plan_count; i++)
        emit_plan_entry(list, &v->plans.plans[i], &v->plans, a);
    emit_inputs(root, &v->plans, origins);
    list = json_add_array(root, "measure_first");
    for (size_t i = 0; i < v->plans.assumption_count; i++) {
        cJSON *o = json_append_object(list);
        json_add_string(o, "path", v->plans.assumptions[i].path);
        json_add_string(o, "effect", v->plans.assumptions[i].effect);
        json_add_string(o, "measure_with", v->plans.assumptions[i].measure_with);
    }
    return root;
}

static void print_way(const struct advise_way *w, bool best, struct arena *a, FILE *out) {
    fprintf(out, "%c %-15s %-26s %5" PRIu64 "  ", best ? '>' : ' ', advise_way_names[w->kind],
            w->title, w->cluster.gpus);
    if (!w->possible) {
        fprintf(out, "%s\n", w->sentence);
        return;
    }
    char step[32], usd[32] = "-";
    const struct recipe *r = &w->plan.recipe;
    if (isfinite(w->usd_per_billion_tokens))
        snprintf(usd, sizeof usd, "%.0f", w->usd_per_billion_tokens);
    fprintf(out, "%-36s %4" PRIu64 "x%-4" PRIu64 " %-12s %9s %10.0f %8.2f %8s  %s%s\n",
            plan_title(&w->plan, a), r->micro_batch, r->grad_accum, recompute_names[r->recompute],
            units_format_seconds(step, sizeof step, w->plan.time.step_s), w->tokens_per_s, w->days,
            usd, bound_names[w->plan.time.bound_by], advise_is_tight(w) ? ", memory tight" : "");
}

static void print_break_even(const struct break_even *b, FILE *out) {
    char now[32] = "unknown", needed[32], sold[32];
    bool net = b->link == BREAK_INTER;
    char *(*format)(char *, size_t, double) = net ? units_format_net : units_format_rate;
    if (!b->unit_of || (b->reason && strcmp(b->reason, "not_used") == 0))
        return;
    if (isfinite(b->current_bytes_per_s))
        format(now, sizeof now, b->current_bytes_per_s);
    fprintf(out, "  %-12s %s %s now; ", break_even_link_names[b->link], now, b->unit_of);
    if (!isfinite(b->needed_bytes_per_s)) {
        fprintf(out, "no bandwidth is enough: latency holds the step at %.2fx of compute alone\n",
                b->floor_step_s / b->compute_s);
        return;
    }
    fprintf(out, "%s stops mattering (step within 5 %% of infinite)",
            format(needed, sizeof needed, b->needed_bytes_per_s));
    if (isfinite(b->sold_bytes_per_s))
        fprintf(out, ", sold as %s", format(sold, sizeof sold, b->sold_bytes_per_s));
    fprintf(out, "%s\n", b->reason ? ": enough already" : "");
}

// Its tokens per second and GPU as a share of the smallest size that it fits on.
static void print_scaling(const struct advice *v, FILE *out) {
    double base = NAN;
    for (size_t i = 0; i < v->scaling_count; i++) {
        const struct advise_scaling *s = &v->scaling[i];
        if (!isfinite(s->tokens_per_s_per_gpu))
            continue;
        if (!isfinite(base)) {
            base = s->tokens_per_s_per_gpu;
            fprintf(out,
                    "  the same batch per GPU on more nodes: %.0f tokens/s per GPU on %" PRIu64,
                    base, s->nodes);
        } else {
            fprintf(out, ", %.0f %% of it on %" PRIu64, 100 * s->tokens_per_s_per_gpu / base,
                    s->nodes);
        }
    }
    if (isfinite(base))
        fputc('\n', out);
}

static void print_worth(const struct advice *v, FILE *out) {
    for (size_t i = 0; i < v->sensitivity_count; i++)
        fprintf(out, "  10 %% more %s bandwidth saves %.1f %% of the step\n",
                v->sensitivities[i].path, 100 * v->sensitivities[i].gain_of_10_percent);
    if (isfinite(v->gib_worth_s))
        fprintf(out, "  a GiB more on every GPU saves %.3g s per step\n", v->gib_worth_s);
    if (isfinite(v->hiding_tokens_per_gpu))
        fprintf(out, "  the network hides behind compute from %.0f tokens per GPU and micro-step\n",
                v->hiding_tokens_per_gpu);
    else if (v->hiding_reason)
        fprintf(out, "  no micro-batch hides the network (%s)\n", v->hiding_reason);
    if (isfinite(v->offload_tokens_per_step))
        fprintf(out, "  offload costs less than 10 %% of the step from %.3g tokens per step\n",
                v->offload_tokens_per_step);
}

void emit_advise_table(const struct advice *v, const struct advise_request *q, struct arena *a,
                       FILE *out) {
    char tokens[32];
    units_format_count(tokens, sizeof tokens, q->tokens > 0 ? q->tokens : UNITS_GIGA);
    fprintf(out, "%s on %s: offload, more bandwidth or more GPUs?\n", q->model->name,
            q->cluster->name);
    fprintf(out, "\n  %-15s %-26s %5s  %-36s %9s %-12s %9s %10s %8s %8s  %s\n", "way", "", "GPUs",
            "best plan", "batch", "recompute", "step", "tokens/s", "days", "USD per", "bound by");
    fprintf(out, "  %-15s %-26s %5s  %-36s %9s %-12s %9s %10s %8s %8s\n", "", "", "", "",
            "micro x g", "", "", "all GPUs", tokens, "1e9 tok");
    for (size_t i = 0; i < v->way_count; i++)
        print_way(&v->ways[i], v->ways[i].possible && i == v->best_way, a, out);
    fprintf(out, "\n%s\n", v->sentence);
    if (v->recommendation.action_count)
        fprintf(out, "  %s\n", v->recommendation.actions[0]);
    if (v->safe.possible)
        fprintf(out, "  %s\n", v->recommendation.actions[1]);
    if (v->precision_hint)
        fprintf(out, "  %s\n", v->precision_hint);
    if (v->split_hint)
        fprintf(out, "  %s\n", v->split_hint);
    fputs("\nBandwidth for the recommended plan\n", out);
    for (size_t i = 0; i < BREAK_LINK_COUNT; i++)
        print_break_even(&v->break_evens[i], out);
    print_worth(v, out);
    print_scaling(v, out);
    for (size_t i = 0; i < v->plans.assumption_count && i < 3; i++)
        fprintf(out, "%s  - %s: %s; %s\n",
                i ? "" : "\nMeasure these first (assumed figures that matter)\n",
                v->plans.assumptions[i].path, v->plans.assumptions[i].effect,
                v->plans.assumptions[i].measure_with ? v->plans.assumptions[i].measure_with : "-");
}
