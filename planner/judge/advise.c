// SPDX-License-Identifier: Apache-2.0
#include "judge/advise.h"

#include "base/units.h"
#include "describe/recipe_fields.h"
#include "judge/advise_scaling.h"
#include "judge/advise_ways.h"
#include "plan/recommend.h"

#include <math.h>
#include <string.h>

// A change below this share of the step is not worth a sentence.
static const double worthwhile = 0.03;

static const struct advise_way *best_of(const struct advice *v, enum advise_way_kind kind) {
    const struct advise_way *best = NULL;
    for (size_t i = 0; i < v->way_count; i++)
        if (v->ways[i].kind == kind && v->ways[i].possible &&
            (!best || v->ways[i].tokens_per_s > best->tokens_per_s))
            best = &v->ways[i];
    return best;
}

// GPU-seconds per token: what every way costs, whatever a GPU's price.
static double gpu_seconds(const struct advise_way *w) {
    return (double)w->cluster.gpus / w->tokens_per_s;
}

static bool needs_network(const struct advise_way *w) {
    return w && (w->plan.time.bound_by == BOUND_INTER_NODE ||
                 w->plan.time.bound_by == BOUND_NETWORK_LATENCY);
}

// A plan that fits where what its time follows from is unknown, or NULL.
static const struct plan *fits_untimed(const struct advice *v) {
    for (size_t i = 0; i < v->plans.plan_count; i++)
        if (v->plans.plans[i].fits && !v->plans.plans[i].reason && v->plans.plans[i].time.reason)
            return &v->plans.plans[i];
    return NULL;
}

// On the hardware at hand, then with a better network, then with more GPUs. Offload wins over more
// GPUs when a token costs no more GPU time; otherwise GPUs are the cheaper memory.
static const struct advise_way *choose(const struct advice *v, enum choice *choice) {
    const struct advise_way *as_is = best_of(v, WAY_AS_IS), *knobs = best_of(v, WAY_KNOBS);
    const struct advise_way *offload = best_of(v, WAY_OFFLOAD), *net = best_of(v, WAY_BANDWIDTH);
    const struct advise_way *gpus = best_of(v, WAY_GPUS);
    const struct advise_way *here = as_is;
    *choice = CHOICE_AS_IS;
    if (knobs && (!here || knobs->tokens_per_s > (1 + worthwhile) * here->tokens_per_s)) {
        here = knobs;
        *choice = CHOICE_CHANGE_KNOBS;
    }
    if (offload && (!here || offload->tokens_per_s > (1 + worthwhile) * here->tokens_per_s)) {
        here = offload;
        *choice = CHOICE_OFFLOAD;
    }
    if (needs_network(here) && net && net->tokens_per_s > 1.2 * here->tokens_per_s) {
        *choice = CHOICE_MORE_BANDWIDTH;
        return net;
    }
    if (*choice == CHOICE_OFFLOAD && gpus && gpu_seconds(gpus) < 0.9 * gpu_seconds(here)) {
        *choice = CHOICE_MORE_GPUS;
        return gpus;
    }
    if (!here && gpus) {
        *choice = CHOICE_MORE_GPUS;
        return gpus;
    }
    if (!here)
        *choice = fits_untimed(v) ? v->plans.recommendation.choice : CHOICE_IMPOSSIBLE;
    return here;
}

static const char *against(const struct advise_way *best, const struct advise_way *other,
                           struct arena *a) {
    if (!other || other == best)
        return "";
    double ratio = best->tokens_per_s / other->tokens_per_s;
    double cost = gpu_seconds(best) / gpu_seconds(other);
    return arena_printf(a, "; %s (%s) would be %.2fx its speed at %.2fx its GPU time per token",
                        advise_way_names[other->kind], other->title, 1 / ratio, 1 / cost);
}

static const char *const choice_words[CHOICE_COUNT] = {
    [CHOICE_AS_IS] = "Train as asked",    [CHOICE_CHANGE_KNOBS] = "Change settings",
    [CHOICE_OFFLOAD] = "Offload",         [CHOICE_MORE_BANDWIDTH] = "Buy bandwidth",
    [CHOICE_MORE_GPUS] = "Use more GPUs", [CHOICE_IMPOSSIBLE] = "Not possible here",
};

// What a plan that may or may not fit risks, and what to take if it doesn't.
static const char *tight_text(const struct advice *v, const struct advise_way *best,
                              struct arena *a) {
    char low[32], high[32], capacity[32];
    const struct memory *m = &best->plan.memory;
    if (!advise_is_tight(best))
        return "";
    units_format_gib(low, sizeof low, (double)m->reserved_low_bytes);
    units_format_gib(high, sizeof high, (double)m->reserved_high_bytes);
    units_format_gib(capacity, sizeof capacity, (double)m->capacity_bytes);
    const char *text =
        arena_printf(a, "; memory is tight: %s to %s reserved, %s usable", low, high, capacity);
    if (!v->safe.possible)
        return arena_printf(a, "%s, and nothing on this hardware is sure to fit", text);
    return arena_printf(a, "%s; sure to fit: %s, %.0f tokens/s", text, v->safe.sentence,
                        v->safe.tokens_per_s);
}

static void write_sentence(struct advice *v, const struct advise_way *best, enum choice choice,
                           struct arena *a) {
    char step[32];
    const struct plan *untimed = fits_untimed(v);
    if (!best && untimed) {
        v->sentence =
            arena_printf(a, "%s fits, but its time is unknown, so nothing can be compared: %s.",
                         plan_title(untimed, a), untimed->time.reason);
        return;
    }
    if (!best) {
        v->sentence = "Nothing within 64 times the nodes makes this fit: use a smaller model, a "
                      "shorter sequence or split the model itself.";
        return;
    }
    units_format_seconds(step, sizeof step, best->plan.time.step_s);
    const char *tight = tight_text(v, best, a);
    const struct advise_way *gpus = best_of(v, WAY_GPUS), *offload = best_of(v, WAY_OFFLOAD);
    v->sentence = arena_printf(
        a, "%s: %s with %s, step %s, %.0f tokens/s, bound by %s%s%s%s.", choice_words[choice],
        best->title, best->sentence, step, best->tokens_per_s,
        bound_words[best->plan.time.bound_by],
        choice == CHOICE_OFFLOAD || choice == CHOICE_MORE_BANDWIDTH ? against(best, gpus, a) : "",
        choice == CHOICE_MORE_GPUS || choice == CHOICE_MORE_BANDWIDTH ? against(best, offload, a)
                                                                      : "",
        tight);
}

// The ways share out states; a model can be split too.
static const char *split_hint(const struct advice *v, struct arena *a) {
    const struct plan_set *s = &v->plans;
    const struct recipe *r = s->plan_count > 0 ? &s->plans[0].recipe : NULL;
    if (!r || s->cluster->gpus < 2 || r->tp * r->cp * r->pp * r->ep > 1 || r->lora_rank > 0)
        return NULL;
    return arena_printf(
        a,
        "not searched: splitting the model itself; `shardplan sweep %s %s --strategy "
        "%s` does, from the links' rates and even load%s",
        s->model->name, s->cluster->name,
        s->model->experts > 0 ? "zero2,fsdp2 --ep 1,2,4,8" : "zero1,fsdp2 --tp 1,2,4,8 --pp 1,2,4",
        s->model->experts > 0 ? " of the experts" : ", with a pipeline's bubble as an estimate");
}

static void fill_recommendation(struct advice *v, const struct advise_way *best, enum choice choice,
                                struct arena *a) {
    struct recommendation *r = &v->recommendation;
    *r =
        (struct recommendation){.plan_index = v->plans.recommendation.plan_index, .choice = choice};
    r->reason = v->sentence;
    if (!best || choice == CHOICE_OFFLOAD || choice == CHOICE_MORE_GPUS)
        v->split_hint = split_hint(v, a);
    if (!best) {
        if (v->split_hint)
            r->actions[r->action_count++] = v->split_hint;
        return;
    }
    v->best_way = (size_t)(best - v->ways);
    r->actions[r->action_count++] =
        arena_printf(a, "%s: %s", best->title, plan_options(&best->plan, a));
    if (v->safe.possible)
        r->actions[r->action_count++] = arena_printf(a, "if it runs out of memory, %s: %s",
                                                     v->safe.title, plan_options(&v->safe.plan, a));
    v->precision_hint = plan_precision_hint(v->plans.cluster, &best->plan.recipe, a);
    if (v->precision_hint)
        r->actions[r->action_count++] = v->precision_hint;
    if (v->split_hint)
        r->actions[r->action_count++] = v->split_hint;
    for (size_t i = 0; i < v->plans.assumption_count && i < 2; i++)
        if (v->plans.assumptions[i].measure_with)
            r->actions[r->action_count++] = arena_printf(
                a, "measure this first: %s (%s), with: %s", v->plans.assumptions[i].path,
                v->plans.assumptions[i].effect, v->plans.assumptions[i].measure_with);
}

static bool fill_links(const struct advise_request *q, const struct advise_way *best,
                       struct arena *a, struct advice *v, struct err *e) {
    const struct break_even_subject s = {q->model, &best->cluster, &best->plan};
    for (size_t i = 0; i < BREAK_LINK_COUNT; i++) {
        struct break_even *b = &v->break_evens[i];
        if (!break_even_find(&s, (enum break_even_link)i, a, b, e))
            return false;
        bool used = !b->reason || strcmp(b->reason, "not_used") != 0;
        if (used && isfinite(b->current_bytes_per_s) &&
            !break_even_sensitivity(&s, (enum break_even_link)i, a,
                                    &v->sensitivities[v->sensitivity_count++], e))
            return false;
    }
    return true;
}

// Micro-steps grow until the network hides behind compute: the step within 5 % of one on an
// infinitely fast network.
static bool find_hiding(const struct advise_request *q, const struct advise_way *best,
                        struct arena *a, struct advice *v, struct err *e) {
    static const struct step_scale fast = {INFINITY, INFINITY, 1, 1, 1, 1, 1};
    v->hiding_tokens_per_gpu = NAN;
    v->hiding_reason = "latency_bound";
    struct recipe r = best->plan.recipe;
    r.grad_accum = 1;
    r.global_batch = 0;
    for (r.micro_batch = 1; r.micro_batch <= 1024; r.micro_batch *= 2) {
        struct recipe resolved = r;
        struct step_time real, ideal;
        struct step_request s = {.model = q->model, .cluster = &best->cluster, .recipe = &resolved};
        if (!recipe_resolve(&resolved, q->model, &best->cluster, e) ||
            !step_simulate(&s, a, &real, NULL, e))
            return false;
        s.scale = &fast;
        if (!step_simulate(&s, a, &ideal, NULL, e))
            return false;
        if (real.step_s <= 1.05 * ideal.step_s) {
            v->hiding_tokens_per_gpu = (double)(r.micro_batch * r.seq);
            v->hiding_reason = NULL;
            return true;
        }
    }
    return true;
}

static bool find_offload_batch(const struct advise_request *q, struct arena *a, struct advice *v,
                               struct err *e) {
    const struct advise_way *w = best_of(v, WAY_OFFLOAD);
    v->offload_tokens_per_step = NAN;
    if (!w)
        return true;
    struct recipe r = w->plan.recipe;
    r.global_batch = 0;
    for (r.grad_accum = 1; r.grad_accum <= 4096; r.grad_accum *= 2) {
        struct recipe resolved = r;
        struct step_time t;
        struct step_request s = {.model = q->model, .cluster = &w->cluster, .recipe = &resolved};
        if (!recipe_resolve(&resolved, q->model, &w->cluster, e) ||
            !step_simulate(&s, a, &t, NULL, e))
            return false;
        if (t.exposed_offload_s < 0.1 * t.step_s) {
            v->offload_tokens_per_step =
                (double)(r.grad_accum * r.micro_batch * r.seq) * (double)w->cluster.gpus;
            return true;
        }
    }
    return true;
}

static bool same_plan(const struct plan *x, const struct plan *y) {
    return recipe_field_difference(&x->recipe, &y->recipe) == NULL;
}

// What is worth a curve: of offloads and faster networks the best, of each number of nodes one, and
// no plan twice on one network.
static bool has_curve(const struct advice *v, const struct advise_way *w) {
    bool one_of_kind = w->kind == WAY_OFFLOAD || w->kind == WAY_BANDWIDTH;
    if (!w->possible || (one_of_kind && w != best_of(v, w->kind)))
        return true;
    for (size_t i = 0; i < v->curve_count; i++) {
        const struct advise_way *drawn = v->curves[i].way;
        if (drawn->cluster.nodes == w->cluster.nodes &&
            (w->kind == WAY_GPUS || same_plan(&drawn->plan, &w->plan)))
            return true;
    }
    return false;
}

static bool add_curve(const struct advise_request *q, const struct advise_way *w, struct arena *a,
                      struct advice *v, struct err *e) {
    static const double gbit_per_s[ADVISE_CURVE_POINTS] = {12.5, 25,  50,   100, 200,
                                                           400,  800, 1600, 3200};
    if (v->curve_count == ADVISE_WAYS_MAX || has_curve(v, w))
        return true;
    struct advise_curve *curve = &v->curves[v->curve_count++];
    const struct break_even_subject s = {q->model, &w->cluster, &w->plan};
    double now = break_even_bandwidth(&w->cluster, BREAK_INTER);
    curve->way = w;
    for (size_t k = 0; k < ADVISE_CURVE_POINTS; k++) {
        curve->bytes_per_s[k] = gbit_per_s[k] * UNITS_GIGA / 8;
        curve->step_s[k] = w->plan.time.step_s;
        if (w->cluster.nodes > 1 &&
            !break_even_step(&s, BREAK_INTER, curve->bytes_per_s[k] / now, a, &curve->step_s[k], e))
            return false;
    }
    return true;
}

static bool fill_curves(const struct advise_request *q, struct arena *a, struct advice *v,
                        struct err *e) {
    bool ok = true;
    for (size_t i = 0; ok && i < v->way_count; i++) {
        if (v->ways[i].kind == WAY_OFFLOAD) // HSDP stands beside the other plans without offload
            ok = add_curve(q, &v->hsdp, a, v, e);
        ok = ok && add_curve(q, &v->ways[i], a, v, e);
    }
    return ok;
}

static void say_why_not(struct advice *v) {
    const struct plan *p = fits_untimed(v);
    bool offloads = p && (p->recipe.offload_optimizer || p->recipe.offload_param);
    for (size_t i = 0; i < v->way_count; i++) {
        struct advise_way *w = &v->ways[i];
        if (!w->possible)
            w->sentence =
                p && (!offloads || w->kind == WAY_OFFLOAD) ? p->time.reason : "no plan fits";
    }
}

bool advise(const struct advise_request *q, struct arena *a, struct advice *out, struct err *e) {
    struct advice *v = arena_alloc(a, sizeof *v);
    struct plan_request p = {.model = q->model,
                             .cluster = q->cluster,
                             .recipes = q->recipes,
                             .recipe_count = q->recipe_count,
                             .offload = PLAN_OFFLOAD_ALWAYS};
    enum choice choice;
    v->hiding_tokens_per_gpu = v->offload_tokens_per_step = v->gib_worth_s = NAN;
    if (!plan_all(&p, a, &v->plans, e) || !advise_ways(q, a, v, e))
        return false;
    say_why_not(v);
    const struct advise_way *best = choose(v, &choice);
    if (best && !advise_safe(q, best, a, &v->safe, e))
        return false;
    write_sentence(v, best, choice, a);
    fill_recommendation(v, best, choice, a);
    if (best && (!fill_links(q, best, a, v, e) || !find_hiding(q, best, a, v, e) ||
                 !advise_scale(q, best, v, e)))
        return false;
    if (!find_offload_batch(q, a, v, e) || !fill_curves(q, a, v, e))
        return false;
    *out = *v;
    for (size_t i = 0; i < v->curve_count; i++) // the ways moved with the struct
        out->curves[i].way =
            v->curves[i].way == &v->hsdp ? &out->hsdp : &out->ways[v->curves[i].way - v->ways];
    return true;
}
