// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include "cost/zero3_memo.h"
#include "plan/plan_inputs.h"
#include "plan/recommend.h"

#include <math.h>
#include <string.h>

const char *const proof_names[PROOF_COUNT] = {
    [PROOF_ORACLE] = "oracle",
    [PROOF_MEASURED] = "measured",
    [PROOF_RULE] = "rule",
    [PROOF_UNPROVEN] = "unproven",
};

const char *const choice_names[CHOICE_COUNT] = {
    [CHOICE_AS_IS] = "as_is",         [CHOICE_CHANGE_KNOBS] = "change_knobs",
    [CHOICE_OFFLOAD] = "offload",     [CHOICE_MORE_BANDWIDTH] = "more_bandwidth",
    [CHOICE_MORE_GPUS] = "more_gpus", [CHOICE_IMPOSSIBLE] = "impossible",
};

static void time_unknown(struct step_time *t, const char *reason) {
    *t = (struct step_time){.step_s = NAN,
                            .step_low_s = NAN,
                            .step_high_s = NAN,
                            .forward_s = NAN,
                            .backward_s = NAN,
                            .optimizer_s = NAN,
                            .compute_s = NAN,
                            .exposed_comm_s = NAN,
                            .exposed_offload_s = NAN,
                            .host_issue_s = NAN,
                            .bubble_s = NAN,
                            .tokens_per_s_per_gpu = NAN,
                            .mfu = NAN,
                            .hfu = NAN,
                            .peak_flop_per_s = NAN,
                            .reason = reason};
}

// Collectives that tests/oracle counted call by call; copies of offload were not.
static bool ran_by_oracle(const struct recipe *r) {
    bool plain = r->tp <= 1 && r->cp <= 1 && r->pp <= 1 && r->ep <= 1 && r->lora_rank == 0 &&
                 r->wrap == WRAP_BLOCK && r->stack != STACK_MEGATRON && !r->embedding_group;
    bool offloads = r->offload_optimizer != OFFLOAD_NONE || r->offload_param != OFFLOAD_NONE;
    bool strategy = r->strategy != STRATEGY_MICS && r->strategy != STRATEGY_ZEROPP;
    bool rare = r->all_reduce_for_fetch || r->allgather_sequential || r->frozen_fraction > 0 ||
                (recipe_is_stage3(r) && r->recompute != RECOMPUTE_NONE);
    return plain && !offloads && strategy && !rare;
}

// What stands behind each answer: measured where the validation set covers the strategy, the
// framework's own behaviour where the oracle ran it, else the rule as read from source.
static void set_proof(struct plan *p) {
    const struct recipe *r = &p->recipe;
    bool offloads = r->offload_optimizer != OFFLOAD_NONE || r->offload_param != OFFLOAD_NONE;
    bool tracked = r->strategy == STRATEGY_FSDP2 || r->strategy == STRATEGY_HSDP ||
                   r->strategy == STRATEGY_FSDP2_NORESHARD;
    p->proven_memory = tracked && ran_by_oracle(r) ? PROOF_ORACLE : PROOF_RULE;
    p->proven_volume = ran_by_oracle(r) ? PROOF_ORACLE : PROOF_RULE;
    p->proven_time = PROOF_UNPROVEN;
    switch (r->strategy) {
    case STRATEGY_ZERO3:
    case STRATEGY_FSDP1:
    case STRATEGY_FSDP2:
        p->proven_time = offloads && r->strategy != STRATEGY_ZERO3 ? PROOF_RULE : PROOF_MEASURED;
        break;
    case STRATEGY_MICS:
    case STRATEGY_ZEROPP:
        break;
    default:
        p->proven_time = PROOF_RULE;
    }
    if (r->tp > 1 || r->cp > 1)
        p->proven_time = PROOF_RULE;
    if (r->pp > 1 || r->ep > 1)
        p->proven_time = PROOF_UNPROVEN;
}

struct plan_workspace {
    struct arena *scratch; // one plan's
    struct arena *kept;    // the memo's
    struct zero3_memo *memo;
};

struct plan_workspace *plan_workspace_create(void) {
    struct arena *kept = arena_create();
    struct plan_workspace *w = arena_alloc(kept, sizeof *w);
    w->kept = kept;
    w->scratch = arena_create();
    w->memo = zero3_memo_create(kept);
    return w;
}

void plan_workspace_destroy(struct plan_workspace *w) {
    if (w == NULL)
        return;
    arena_destroy(w->scratch);
    arena_destroy(w->kept); // holds w
}

// Memory, volume and time of one recipe read the same replay of ZeRO-3's coordinator.
static bool find_coordinator(struct plan_workspace *w, const struct model *m, struct recipe *r,
                             struct err *e) {
    if (recipe_is_stage3(r) && (r->zero3 == NULL || r->zero3->hooks == NULL))
        r->zero3 = zero3_memo_find(w->memo, m, r, w->scratch, e);
    return !recipe_is_stage3(r) || r->zero3 != NULL;
}

static void simulate(const struct step_request *q, struct plan_workspace *w, struct arena *a,
                     struct step_time *out) {
    struct err why = {0};
    if (!step_simulate(q, w->scratch, out, NULL, &why))
        time_unknown(out, arena_strdup(a, why.text));
    for (size_t i = 0; i < out->wait_count; i++) {
        out->waits[i].on = arena_strdup(a, out->waits[i].on);
        out->waits[i].phase = arena_strdup(a, out->waits[i].phase);
    }
}

bool plan_answer(const struct plan_question *q, struct arena *a, struct plan *out, struct err *e) {
    const struct model *m = q->model;
    const struct cluster *c = q->cluster;
    struct plan p = {.recipe = *q->recipe};
    struct err why = {0};
    time_unknown(&p.time, "not simulated");
    if (!recipe_resolve(&p.recipe, m, c, &why)) {
        p.reason = arena_strdup(a, why.text);
        p.time.reason = p.reason;
        *out = p;
        return true;
    }
    arena_reset(q->workspace->scratch);
    if (!find_coordinator(q->workspace, m, &p.recipe, e) ||
        !memory_estimate(m, c, &p.recipe, &p.memory, e) ||
        !volume_estimate(m, c, &p.recipe, &p.volume, e))
        return false;
    p.fits = p.memory.fits_state != FITS_NO && (p.memory.host_fits || !p.memory.host_known) &&
             (p.memory.nvme_fits || !p.memory.nvme_known);
    if (q->time == PLAN_TIME_ALWAYS || (q->time == PLAN_TIME_IF_FITS && p.fits)) {
        struct step_request step = {
            .model = m, .cluster = c, .recipe = &p.recipe, .quick = q->time == PLAN_TIME_IF_FITS};
        simulate(&step, q->workspace, a, &p.time);
    }
    set_proof(&p);
    p.recipe.zero3 = q->recipe->zero3; // the memo ends here: callers change the recipe's knobs
    *out = p;
    return true;
}

bool plan_evaluate(const struct model *m, const struct cluster *c, const struct recipe *r,
                   enum plan_time time, struct arena *a, struct plan *out, struct err *e) {
    struct plan_workspace *w = plan_workspace_create();
    bool ok = plan_answer(&(struct plan_question){m, c, r, time, w}, a, out, e);
    plan_workspace_destroy(w);
    return ok;
}

struct offload_variant {
    enum strategy strategy;
    enum offload optimizer, param;
};

// DESIGN §5: what plan also shows when nothing fits.
static const struct offload_variant offload_variants[] = {
    {STRATEGY_ZERO2, OFFLOAD_CPU, OFFLOAD_NONE}, {STRATEGY_ZERO3, OFFLOAD_CPU, OFFLOAD_NONE},
    {STRATEGY_ZERO3, OFFLOAD_CPU, OFFLOAD_CPU},  {STRATEGY_ZERO3, OFFLOAD_NVME, OFFLOAD_NONE},
    {STRATEGY_ZERO3, OFFLOAD_NVME, OFFLOAD_CPU}, {STRATEGY_ZERO3, OFFLOAD_NVME, OFFLOAD_NVME},
    {STRATEGY_FSDP1, OFFLOAD_CPU, OFFLOAD_CPU},  {STRATEGY_FSDP2, OFFLOAD_CPU, OFFLOAD_CPU},
};
#define OFFLOAD_VARIANTS (sizeof offload_variants / sizeof offload_variants[0])

static const struct recipe *find_strategy(const struct recipe *recipes, size_t count,
                                          enum strategy s) {
    for (size_t i = 0; i < count; i++)
        if (recipes[i].strategy == s && recipes[i].offload_optimizer == OFFLOAD_NONE &&
            recipes[i].offload_param == OFFLOAD_NONE)
            return &recipes[i];
    return NULL;
}

static void fill_min_gpus(const struct plan_set *s, struct plan_workspace *w) {
    for (size_t i = 0; i < s->plan_count; i++) {
        struct plan *p = &s->plans[i];
        struct recipe r = p->recipe;
        if (p->reason || !find_coordinator(w, s->model, &r, NULL))
            continue;
        p->min_gpus = memory_min_gpus(s->model, s->cluster, &r, PLAN_GPUS_MAX);
    }
}

static bool add_plan(struct plan_set *s, const struct recipe *r, struct plan_workspace *w,
                     struct arena *a, struct err *e) {
    const struct plan_question q = {s->model, s->cluster, r, PLAN_TIME_ALWAYS, w};
    if (!plan_answer(&q, a, &s->plans[s->plan_count], e))
        return false;
    s->plan_count++;
    return true;
}

static bool add_offload_variants(struct plan_set *s, const struct plan_request *q,
                                 struct plan_workspace *w, struct arena *a, struct err *e) {
    for (size_t i = 0; i < OFFLOAD_VARIANTS; i++) {
        const struct recipe *base =
            find_strategy(q->recipes, q->recipe_count, offload_variants[i].strategy);
        if (!base)
            continue;
        struct recipe r = *base;
        r.offload_optimizer = offload_variants[i].optimizer;
        r.offload_param = offload_variants[i].param;
        if (!add_plan(s, &r, w, a, e))
            return false;
    }
    return true;
}

static bool fill_set(struct plan_set *s, const struct plan_request *q, struct plan_workspace *w,
                     struct arena *a, struct err *e) {
    bool any = false;
    for (size_t i = 0; i < q->recipe_count; i++) {
        if (!add_plan(s, &q->recipes[i], w, a, e))
            return false;
        any = any || s->plans[i].fits;
    }
    if (q->offload == PLAN_OFFLOAD_ALWAYS || (q->offload == PLAN_OFFLOAD_IF_NEEDED && !any)) {
        if (!add_offload_variants(s, q, w, a, e))
            return false;
    }
    fill_min_gpus(s, w);
    return recommend(s, w, a, e) && plan_inputs(s, w, a, e);
}

bool plan_all(const struct plan_request *q, struct arena *a, struct plan_set *out, struct err *e) {
    struct plan_set s = {.model = q->model, .cluster = q->cluster};
    s.plans = arena_array(a, q->recipe_count + OFFLOAD_VARIANTS, sizeof *s.plans);
    struct plan_workspace *w = plan_workspace_create();
    bool ok = fill_set(&s, q, w, a, e);
    plan_workspace_destroy(w);
    if (ok)
        *out = s;
    return ok;
}

struct measured_key plan_measured_key(const struct model *m, const struct cluster *c,
                                      const struct recipe *r) {
    return (struct measured_key){
        .gpu = c->gpu.id,
        .sm = c->gpu.sm ? c->gpu.sm : "unknown",
        .framework = framework_names[r->framework],
        .strategy = strategy_names[r->strategy],
        .parameters = (double)m->parameters,
        .tokens_per_gpu =
            (double)(r->micro_batch * r->grad_accum * r->seq) / (double)(r->tp * r->cp * r->pp),
        .gpus = c->gpus,
        .fp8 = r->compute_dtype == DTYPE_FP8,
        .offload = r->offload_optimizer != OFFLOAD_NONE || r->offload_param != OFFLOAD_NONE};
}
