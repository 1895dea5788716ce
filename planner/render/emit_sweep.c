// SPDX-License-Identifier: Apache-2.0
#include "render/emit_sweep.h"

#include "base/units.h"
#include "plan/recommend.h"
#include "render/emit_plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void add_range(cJSON *space, const char *key, const struct sweep_values *v) {
    cJSON *list = json_add_array(space, key);
    for (size_t i = 0; i < v->count; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber((double)v->items[i]));
}

static void add_names(cJSON *space, const char *key, const struct sweep_values *v,
                      const char *const *names) {
    cJSON *list = json_add_array(space, key);
    for (size_t i = 0; i < v->count; i++)
        cJSON_AddItemToArray(list, cJSON_CreateString(names[v->items[i]]));
}

static void emit_space(cJSON *root, const struct sweep_result *r, const struct sweep_request *q) {
    const struct sweep_space *s = &r->space;
    const char *offloads[SWEEP_OFFLOADS];
    for (size_t i = 0; i < SWEEP_OFFLOADS; i++)
        offloads[i] = sweep_offloads[i].name;
    cJSON *o = json_add_object(root, "space");
    cJSON *list = json_add_array(o, "strategy");
    for (size_t i = 0; i < q->basis.recipe_count; i++)
        cJSON_AddItemToArray(list,
                             cJSON_CreateString(strategy_names[q->basis.recipes[i].strategy]));
    add_range(o, "nodes", &s->nodes);
    add_range(o, "shard_group", &s->shard_group);
    add_range(o, "tp", &s->tp);
    add_range(o, "cp", &s->cp);
    add_range(o, "pp", &s->pp);
    add_range(o, "ep", &s->ep);
    add_names(o, "offload", &s->offload, offloads);
    add_names(o, "precision", &s->precision, precision_names);
    add_range(o, "micro_batch", &s->micro_batch);
    add_names(o, "recompute", &s->recompute, recompute_names);
    add_names(o, "loss", &s->loss, loss_names);
    add_range(o, "reduce_bucket_elements", &s->reduce_bucket);
    add_range(o, "prefetch_bucket_elements", &s->prefetch_bucket);
    add_range(o, "max_live_elements", &s->max_live);
    json_add_u64(o, "global_batch", q->basis.global_batch);
    json_add_string(o, "objective", sweep_objective_names[q->objective]);
}

struct entries {
    const char *key;
    const struct sweep_plan *items;
    size_t count;
    bool own_points;            // numbered within their strategy: not said
    const struct plan_set *set; // whose measured runs each is compared with; NULL = none
};

static void emit_entries(cJSON *root, const struct entries *n, struct arena *a) {
    cJSON *list = json_add_array(root, n->key);
    const struct sweep_plan *p = n->items;
    for (size_t i = 0; i < n->count; i++) {
        emit_plan_entry(list, &p[i].plan, n->set, a);
        cJSON *o = cJSON_GetArrayItem(list, (int)i);
        if (!n->own_points)
            json_add_u64(o, "point", p[i].point);
        json_add_u64(o, "nodes", p[i].nodes);
        json_add_u64(o, "gpus", p[i].gpus);
        json_add_double(o, "tokens_per_s", p[i].tokens_per_s);
        json_add_double(o, "usd_per_billion_tokens", p[i].usd_per_billion_tokens);
    }
}

cJSON *emit_sweep_json(const struct sweep_result *r, const struct emit_sweep_context *x,
                       struct arena *a) {
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", "shardplan.sweep/1");
    json_add_string(root, "command", x->command);
    emit_model_cluster(root, x->request->basis.model, x->request->basis.cluster,
                       x->request->basis.recipe_count ? &x->request->basis.recipes[0] : NULL);
    emit_space(root, r, x->request);
    json_add_u64(root, "points", r->points);
    cJSON *o = json_add_object(root, "evaluated");
    json_add_u64(o, "bounded", r->bounded);
    json_add_u64(o, "duplicates", r->duplicates);
    json_add_u64(o, "pruned", r->pruned);
    json_add_u64(o, "simulated", r->simulated);
    json_add_u64(root, "pruned", r->pruned);
    json_add_u64(root, "simulated", r->simulated);
    json_add_u64(root, "feasible", r->feasible);
    json_add_double(root, "elapsed_s", x->elapsed_s);
    json_add_bool(root, "interrupted", r->interrupted);
    emit_entries(root, &(struct entries){"plans", r->plans, r->plan_count, false, x->best}, a);
    emit_entries(root, &(struct entries){"pareto", r->pareto, r->pareto_count, false, NULL}, a);
    emit_entries(root,
                 &(struct entries){"by_strategy", x->strategies, x->strategy_count, true, NULL}, a);
    if (x->best) {
        emit_inputs(root, x->best, x->origins);
        emit_assumed(root, x->best);
    }
    return root;
}

// The plan's title and how it splits the model: "zero1 tp4 pp2".
static const char *title_of(const struct plan *p, struct arena *a) {
    const struct recipe *r = &p->recipe;
    const struct {
        const char *name;
        uint64_t ways;
    } splits[] = {{"tp", r->tp}, {"cp", r->cp}, {"pp", r->pp}, {"ep", r->ep}};
    const char *text = plan_title(p, a);
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        if (splits[i].ways > 1)
            text = arena_printf(a, "%s %s%" PRIu64, text, splits[i].name, splits[i].ways);
    return text;
}

static char *short_count(uint64_t n, struct arena *a) {
    char text[32];
    units_format_count(text, sizeof text, (double)n);
    char *out = arena_strdup(a, text), *space = strchr(out, ' ');
    if (space)
        memmove(space, space + 1, strlen(space));
    return out;
}

// Elements of the buckets that the strategy has: reduce, then prefetch and live limit.
static const char *buckets_of(const struct recipe *r, struct arena *a) {
    if (recipe_is_stage3(r))
        return arena_printf(a, "%s/%s/%s", short_count(r->reduce_bucket_elements, a),
                            short_count(r->prefetch_bucket_elements, a),
                            short_count(r->max_live_elements, a));
    bool zero = r->strategy == STRATEGY_ZERO1 || r->strategy == STRATEGY_ZERO2;
    return zero ? short_count(r->reduce_bucket_elements, a) : "-";
}

static void print_row(const struct sweep_plan *p, size_t rank, const struct emit_sweep_context *x,
                      struct arena *a, FILE *out) {
    const struct recipe *r = &p->plan.recipe;
    char step[32], usd[32] = "-";
    if (isfinite(p->usd_per_billion_tokens))
        snprintf(usd, sizeof usd, "%.0f", p->usd_per_billion_tokens);
    fprintf(out, "%3zu  %-30s %5" PRIu64 " %5" PRIu64 " %5" PRIu64 "  %-19s %-8s %-10s", rank,
            title_of(&p->plan, a), p->gpus, r->micro_batch, r->grad_accum,
            recompute_names[r->recompute], loss_names[r->loss], precision_names[r->precision]);
    fprintf(out, " %-15s %9s %10.0f %6.1f %8.2f %-5s %8s  %s", buckets_of(r, a),
            units_format_seconds(step, sizeof step, p->plan.time.step_s), p->tokens_per_s,
            100 * p->plan.time.mfu, (double)p->plan.memory.allocated_peak_bytes / (double)UNITS_GIB,
            fits_state_names[p->plan.memory.fits_state], usd, bound_names[p->plan.time.bound_by]);
    if (x->tokens > 0)
        fprintf(out, "  %.1f days", x->tokens / p->tokens_per_s / UNITS_DAY_S);
    fputc('\n', out);
}

// What to give `shardplan plan` for this point of the space.
static void print_options(const struct sweep_plan *p, const struct emit_sweep_context *x,
                          struct arena *a, FILE *out) {
    const struct recipe *r = &p->plan.recipe;
    fprintf(out, "\nThe first as options: %s --precision %s", plan_options(&p->plan, a),
            precision_names[r->precision]);
    if (p->gpus != x->request->basis.cluster->gpus)
        fprintf(out, " --nodes %" PRIu64 " --gpus %" PRIu64, p->nodes, p->gpus);
    if (recipe_has_shard_group(r->strategy))
        fprintf(out, " --shard-group %" PRIu64, r->shard_group);
    if (recipe_is_deepspeed(r))
        fprintf(out, " --set recipe.reduce_bucket_elements=%" PRIu64, r->reduce_bucket_elements);
    if (recipe_is_stage3(r))
        fprintf(out,
                " --set recipe.prefetch_bucket_elements=%" PRIu64
                " --set recipe.max_live_elements=%" PRIu64,
                r->prefetch_bucket_elements, r->max_live_elements);
    fputc('\n', out);
}

static void print_rows(const char *title, const struct sweep_plan *p, size_t count,
                       const struct emit_sweep_context *x, struct arena *a, FILE *out) {
    fprintf(out,
            "\n%s\n%3s  %-30s %5s %5s %5s  %-19s %-8s %-10s %-15s %9s %10s %6s %8s %-5s %8s  %s\n",
            title, "#", "plan", "GPUs", "micro", "accum", "recompute", "loss", "precision",
            "buckets", "step", "tokens/s", "MFU", "peak", "fits", "USD per", "bound by");
    fprintf(out, "%3s  %-30s %5s %5s %5s  %-19s %-8s %-10s %-15s %9s %10s %6s %8s %-5s %8s\n", "",
            "", "", "", "", "", "", "", "", "", "all GPUs", "%", "GiB", "", "1e9 tok");
    for (size_t i = 0; i < count; i++)
        print_row(&p[i], i + 1, x, a, out);
}

// A faster plan that trains otherwise is not the same plan.
static void print_numerics(const struct recipe *best, const struct recipe *asked, FILE *out) {
    if (best->precision != asked->precision)
        fprintf(out, "It trains in %s, not in %s: --range precision=%s keeps to that.\n",
                precision_names[best->precision], precision_names[asked->precision],
                precision_names[asked->precision]);
    if (best->quantized_weights || best->quantized_gradients)
        fprintf(out, "It sends quantised %s, which changes the numerics.\n",
                !best->quantized_gradients ? "weights"
                : best->quantized_weights  ? "weights and gradients"
                                           : "gradients");
}

void emit_sweep_table(const struct sweep_result *r, const struct emit_sweep_context *x,
                      struct arena *a, FILE *out) {
    const struct sweep_basis *b = &x->request->basis;
    fprintf(out, "%s on %s, global batch %" PRIu64 " sequences of %" PRIu64 " tokens, best by %s\n",
            b->model->name, b->cluster->name, b->global_batch, b->recipes[0].seq,
            sweep_objective_names[x->request->objective]);
    fprintf(out,
            "%" PRIu64 " points in %.2f s: %" PRIu64 " bounded (%" PRIu64
            " more are the same as another), %" PRIu64 " pruned, %" PRIu64 " simulated, %" PRIu64
            " of them fit%s\n",
            r->points, x->elapsed_s, r->bounded, r->duplicates, r->pruned, r->simulated,
            r->feasible, r->interrupted ? " (interrupted: the best so far)" : "");
    if (r->plan_count == 0)
        fputs("\nNothing fits. `shardplan advise` says what would.\n", out);
    else
        print_rows("Best", r->plans, r->plan_count, x, a, out);
    if (r->plan_count)
        print_options(&r->plans[0], x, a, out);
    if (r->plan_count)
        print_numerics(&r->plans[0].plan.recipe, &b->recipes[0], out);
    if (x->strategy_count > 1)
        print_rows("Best of each strategy", x->strategies, x->strategy_count, x, a, out);
    if (r->pareto_count)
        print_rows(
            "Pareto front of step time, peak memory and GPUs (cost follows from step and GPUs)",
            r->pareto, r->pareto_count, x, a, out);
}

static void csv_rows(FILE *f, const char *list, const struct sweep_plan *p, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const struct plan *q = &p[i].plan;
        const struct recipe *r = &q->recipe;
        fprintf(f,
                "%s,%zu,%s,%s,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%s,%s,%s,",
                list, i + 1, strategy_names[r->strategy], offload_names[r->offload_optimizer],
                offload_names[r->offload_param], p[i].nodes, p[i].gpus, r->shard_group, r->tp,
                r->cp, r->pp, r->ep, r->micro_batch, r->grad_accum, recompute_names[r->recompute],
                loss_names[r->loss], precision_names[r->precision]);
        fprintf(f, "%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.9g,%.9g,%.9g,%" PRIu64 ",",
                r->reduce_bucket_elements, r->prefetch_bucket_elements, r->max_live_elements,
                q->time.step_s, p[i].tokens_per_s, q->time.mfu, q->memory.allocated_peak_bytes);
        if (isfinite(p[i].usd_per_billion_tokens))
            fprintf(f, "%.9g", p[i].usd_per_billion_tokens);
        fprintf(f, ",%s\r\n", bound_names[q->time.bound_by]);
    }
}

char *emit_sweep_csv(const struct sweep_result *r, struct arena *a) {
    char *text = NULL;
    size_t size = 0;
    (void)a;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fputs("list,rank,strategy,offload_optimizer,offload_param,nodes,gpus,shard_group,tp,cp,pp,ep,"
          "micro_"
          "batch,"
          "grad_accum,"
          "recompute,loss,precision,reduce_bucket_elements,prefetch_bucket_elements,max_live_"
          "elements,step_s,"
          "tokens_per_s,mfu,allocated_peak_bytes,usd_per_billion_tokens,bound_by\r\n",
          f);
    csv_rows(f, "best", r->plans, r->plan_count);
    csv_rows(f, "pareto", r->pareto, r->pareto_count);
    fclose(f);
    return text;
}
