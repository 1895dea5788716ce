// SPDX-License-Identifier: Apache-2.0
#include "plan/recommend.h"

#include "base/units.h"
#include "cost/compute.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool offloads(const struct plan *p) {
    return p->recipe.offload_optimizer != OFFLOAD_NONE || p->recipe.offload_param != OFFLOAD_NONE;
}

static bool uses_nvme(const struct recipe *r) {
    return r->offload_optimizer == OFFLOAD_NVME || r->offload_param == OFFLOAD_NVME;
}

// Tokens per second where time is known; without time, fewer bytes on the slowest link is better.
static double merit(const struct plan *p) {
    if (isfinite(p->time.tokens_per_s_per_gpu))
        return p->time.tokens_per_s_per_gpu;
    return -(p->volume.sent_bytes_per_gpu + p->volume.h2d_bytes + p->volume.d2h_bytes);
}

static bool better(const struct plan *p, const struct plan *best) {
    bool tight = p->memory.fits_state == FITS_TIGHT,
         best_tight = best->memory.fits_state == FITS_TIGHT;
    if (tight != best_tight)
        return best_tight; // a sure fit beats a faster "perhaps"
    return merit(p) > merit(best);
}

static size_t best_fitting(const struct plan_set *s) {
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < s->plan_count; i++) {
        if (!s->plans[i].fits || s->plans[i].reason)
            continue;
        if (best == SIZE_MAX || better(&s->plans[i], &s->plans[best]))
            best = i;
    }
    return best;
}

static void add_action(struct recommendation *r, const char *text) {
    if (r->action_count < sizeof r->actions / sizeof r->actions[0])
        r->actions[r->action_count++] = text;
}

#define WORTH_MENTIONING 1.1 // times as fast; less is within what the times are known to

struct knob {
    const char *text;
    enum recompute recompute;
    enum loss_head loss;
    uint64_t micro_batch; // 0 = as asked
};

// In order of what they cost.
static const struct knob knobs[] = {
    {"--loss chunked", RECOMPUTE_COUNT, LOSS_CHUNKED, 0},
    {"--recompute selective-op", RECOMPUTE_SELECTIVE_OP, LOSS_COUNT, 0},
    {"--recompute full", RECOMPUTE_FULL, LOSS_COUNT, 0},
    {"--recompute full --loss chunked", RECOMPUTE_FULL, LOSS_CHUNKED, 0},
    {"--recompute full --loss chunked --micro-batch 1", RECOMPUTE_FULL, LOSS_CHUNKED, 1},
};

static void apply_knob(const struct knob *k, struct recipe *r) {
    if (k->recompute != RECOMPUTE_COUNT)
        r->recompute = k->recompute;
    if (k->loss != LOSS_COUNT)
        r->loss = k->loss;
    if (k->micro_batch && r->micro_batch > k->micro_batch) {
        r->grad_accum *= r->micro_batch / k->micro_batch;
        r->micro_batch = k->micro_batch;
        r->global_batch = 0;
    }
}

// The claim goes no further than what was tried.
static const char *impossible_text(const struct plan_set *s, struct arena *a) {
    bool asked[STRATEGY_COUNT] = {false}, offload = false, all = true;
    for (size_t i = 0; i < s->plan_count; i++) {
        asked[s->plans[i].recipe.strategy] = true;
        offload = offload || offloads(&s->plans[i]);
    }
    for (int i = 0; i < STRATEGY_ALL_COUNT; i++)
        all = all && asked[i];
    return arena_printf(a, "%s recompute mode%s or number of GPUs up to %d makes this fit%s",
                        all ? "no strategy," : "with the strategies asked for, no",
                        offload ? ", offload" : "", PLAN_GPUS_MAX,
                        all ? "" : "; others may: see --strategy all");
}

struct turned {              // a knob under which a plan of the set fits
    const struct knob *knob; // NULL = none does
    size_t index;            // of the plan as it was asked for
    struct plan plan;        // as the knob makes it
};

// The cheapest knob under which any of the set's plans with, or without, offload fits, and the best
// of those that do.
static bool find_knob(const struct plan_set *s, bool offload, struct plan_workspace *w,
                      struct arena *a, struct turned *out, struct err *e) {
    *out = (struct turned){.knob = NULL};
    for (size_t k = 0; k < sizeof knobs / sizeof knobs[0] && !out->knob; k++)
        for (size_t i = 0; i < s->plan_count; i++) {
            struct recipe r = s->plans[i].recipe;
            if (s->plans[i].reason || offloads(&s->plans[i]) != offload)
                continue;
            if (out->knob && uses_nvme(&r) && !uses_nvme(&out->plan.recipe))
                continue; // NVMe is for what the host's memory can't hold
            struct plan p;
            apply_knob(&knobs[k], &r);
            const struct plan_question q = {s->model, s->cluster, &r, PLAN_TIME_IF_FITS, w};
            if (!plan_answer(&q, a, &p, e))
                return false;
            if (p.fits && !p.reason && (!out->knob || better(&p, &out->plan)))
                *out = (struct turned){.knob = &knobs[k], .index = i, .plan = p};
        }
    return true;
}

static size_t fewest_gpus(const struct plan_set *s, uint64_t *gpus) {
    size_t best = SIZE_MAX;
    *gpus = 0;
    for (size_t i = 0; i < s->plan_count; i++) {
        const struct plan *p = &s->plans[i];
        if (p->min_gpus == 0 || p->min_gpus <= s->cluster->gpus)
            continue; // cannot be cured by GPUs alone: it fails for its host or NVMe
        if (best == SIZE_MAX || p->min_gpus < *gpus ||
            (p->min_gpus == *gpus && offloads(&s->plans[best]) && !offloads(p))) {
            best = i;
            *gpus = p->min_gpus;
        }
    }
    return best;
}

static char *strategy_text(const struct recipe *r, struct arena *a) {
    if (r->strategy == STRATEGY_FSDP2_RESHARD)
        return arena_printf(a, "fsdp2-reshard=%llu", (unsigned long long)r->reshard_group);
    return arena_strdup(a, strategy_names[r->strategy]);
}

static const char *speed_text(const struct plan *p, struct arena *a) {
    char step[32];
    if (!isfinite(p->time.step_s))
        return "the fewest bytes to move (time unknown)";
    units_format_seconds(step, sizeof step, p->time.step_s);
    return arena_printf(a, "the fastest that fits: %.0f tokens/s per GPU, step %s, bound by %s",
                        p->time.tokens_per_s_per_gpu, step, bound_words[p->time.bound_by]);
}

// The options that make the plan, one action each.
static void add_options(struct recommendation *r, const struct plan *p, struct arena *a) {
    add_action(r, arena_printf(a, "train with --strategy %s", strategy_text(&p->recipe, a)));
    if (p->recipe.offload_optimizer != OFFLOAD_NONE)
        add_action(r, arena_printf(a, "--offload-optimizer %s",
                                   offload_names[p->recipe.offload_optimizer]));
    if (p->recipe.offload_param != OFFLOAD_NONE)
        add_action(r,
                   arena_printf(a, "--offload-param %s", offload_names[p->recipe.offload_param]));
}

const char *plan_precision_hint(const struct cluster *c, const struct recipe *r, struct arena *a) {
    if (r->compute_dtype != DTYPE_BF16 || compute_peak_dtype(&c->gpu, r) != DTYPE_FP32)
        return NULL;
    return arena_printf(a,
                        "--precision fp16-mixed: %s has no bf16 matrix units, so bf16 is priced "
                        "at its fp32 rate",
                        c->gpu.name ? c->gpu.name : "this GPU");
}

static const char *remedy(const struct recipe *r, enum memory_phase phase) {
    if (phase == PHASE_SAVE && r->full_state_dict)
        return "; sharded checkpoints gather nothing: --set recipe.full_state_dict=false";
    if (phase != PHASE_LOAD)
        return "";
    if (recipe_is_stage3(r) && !r->zero_init)
        return "; build it under zero.Init: --set recipe.zero_init=true";
    return "";
}

// FSDP's users mostly load on the CPU; the phase is of a model loaded on every GPU.
static bool is_certain(const struct plan *p, enum memory_phase phase) {
    bool loads = phase == PHASE_LOAD || phase == PHASE_INIT;
    return !loads || recipe_is_deepspeed(&p->recipe) || p->recipe.framework == FRAMEWORK_DDP;
}

size_t plan_notes(const struct plan *p, struct arena *a, const char *out[PLAN_NOTES_MAX]) {
    static const enum memory_phase outside[] = {PHASE_LOAD, PHASE_INIT, PHASE_SAVE, PHASE_RESUME};
    const struct recipe *r = &p->recipe;
    size_t n = 0;
    if (p->reason)
        return 0;
    uint64_t gpus = r->world * r->tp * r->cp * r->pp;
    if (gpus == 1 && r->framework != FRAMEWORK_DDP && r->offload_optimizer == OFFLOAD_NONE)
        out[n++] = "one GPU: shard degree 1, so it shards nothing and holds all states";
    for (size_t i = 0; i < sizeof outside / sizeof *outside && p->fits; i++) {
        char bytes[32], capacity[32];
        enum memory_phase k = outside[i];
        const struct memory_phase_bytes *needs = &p->memory.phases[k];
        bool gpu = needs->allocated_bytes > p->memory.capacity_bytes;
        if (p->memory.phase_fits[k] || !is_certain(p, k))
            continue;
        units_format_gib(bytes, sizeof bytes,
                         (double)(gpu ? needs->allocated_bytes : needs->host_bytes));
        units_format_gib(capacity, sizeof capacity,
                         (double)(gpu ? p->memory.capacity_bytes : p->memory.host_capacity_bytes));
        out[n++] = arena_printf(a, "%s takes %s, more than %s %s of %s%s", memory_phase_names[k],
                                bytes, gpu ? "the" : "fits in the", capacity,
                                gpu ? "the card" : "a node's host memory", remedy(r, k));
    }
    return n;
}

// Stages wait for the first and the last micro-step (docs/method.md §model-parallel).
static void add_bubble(struct recommendation *r, const struct plan *p, struct arena *a) {
    const uint64_t stages = p->recipe.pp, now = p->recipe.grad_accum, more = 4 * stages;
    if (p->time.bound_by != BOUND_PIPELINE_BUBBLE || stages < 2 || now >= more)
        return;
    const double waits = (double)(stages - 1) / fmax(1, (double)p->recipe.virtual_stages);
    add_action(r, arena_printf(a,
                               "raise --grad-accum, and with it the batch: a pipeline of %" PRIu64
                               " stages idles %.0f %% of a step of %" PRIu64
                               " micro-step%s, %.0f %% of one of %" PRIu64,
                               stages, 100 * waits / (waits + (double)now), now,
                               now == 1 ? "" : "s", 100 * waits / (waits + (double)more), more));
}

static void recommend_fit(struct plan_set *s, size_t best, struct arena *a) {
    struct recommendation *r = &s->recommendation;
    const struct plan *p = &s->plans[best];
    r->plan_index = best;
    r->choice = offloads(p) ? CHOICE_OFFLOAD : CHOICE_AS_IS;
    r->reason =
        arena_printf(a, "%s is %s%s", plan_title(p, a), speed_text(p, a),
                     p->memory.fits_state == FITS_TIGHT
                         ? "; memory is tight (the allocator's upper estimate exceeds the card)"
                         : "");
    add_options(r, p, a);
    add_bubble(r, p, a);
    const char *precision = plan_precision_hint(s->cluster, &p->recipe, a);
    if (precision)
        add_action(r, precision);
    const char *notes[PLAN_NOTES_MAX];
    size_t count = plan_notes(p, a, notes);
    for (size_t i = 0; i < count; i++)
        add_action(r, notes[i]);
}

// Offload keeps the recipe as asked; say so when turning a knob instead would be faster.
static bool mention_knob(struct plan_set *s, struct plan_workspace *w, struct arena *a,
                         struct err *e) {
    struct recommendation *r = &s->recommendation;
    struct turned t;
    if (r->choice != CHOICE_OFFLOAD)
        return true;
    if (!find_knob(s, false, w, a, &t, e))
        return false;
    double gain = t.knob ? t.plan.time.tokens_per_s_per_gpu /
                               s->plans[r->plan_index].time.tokens_per_s_per_gpu
                         : NAN;
    if (!(gain > WORTH_MENTIONING))
        return true;
    const char *strategy = strategy_text(&t.plan.recipe, a);
    r->reason = arena_printf(a, "%s. With %s, %s needs no offload and is %.1f times as fast",
                             r->reason, t.knob->text, strategy, gain);
    add_action(r, arena_printf(a,
                               "or, without offload, --strategy %s %s: %.0f tokens/s per GPU, "
                               "%.1f times as fast",
                               strategy, t.knob->text, t.plan.time.tokens_per_s_per_gpu, gain));
    return true;
}

static bool recommend_change(struct plan_set *s, struct plan_workspace *w, struct arena *a,
                             struct err *e) {
    struct recommendation *r = &s->recommendation;
    struct turned t;
    uint64_t gpus;
    if (!find_knob(s, false, w, a, &t, e) || (!t.knob && !find_knob(s, true, w, a, &t, e)))
        return false;
    if (t.knob) {
        *r = (struct recommendation){.plan_index = t.index, .choice = CHOICE_CHANGE_KNOBS};
        r->reason = arena_printf(a, "nothing fits as asked; with %s, %s is %s", t.knob->text,
                                 plan_title(&t.plan, a), speed_text(&t.plan, a));
        add_options(r, &s->plans[t.index], a);
        add_action(r, t.knob->text);
        return true;
    }
    size_t index = fewest_gpus(s, &gpus);
    if (index != SIZE_MAX) {
        *r = (struct recommendation){.plan_index = index, .choice = CHOICE_MORE_GPUS};
        r->reason = arena_printf(a, "nothing fits on %llu GPUs; %s needs at least %llu",
                                 (unsigned long long)s->cluster->gpus,
                                 plan_title(&s->plans[index], a), (unsigned long long)gpus);
        add_options(r, &s->plans[index], a);
        add_action(r, arena_printf(a, "--gpus %llu", (unsigned long long)gpus));
        return true;
    }
    *r = (struct recommendation){.plan_index = 0, .choice = CHOICE_IMPOSSIBLE};
    r->reason = impossible_text(s, a);
    return true;
}

bool recommend(struct plan_set *s, struct plan_workspace *w, struct arena *a, struct err *e) {
    size_t best = best_fitting(s);
    s->recommendation = (struct recommendation){0};
    if (best != SIZE_MAX) {
        recommend_fit(s, best, a);
        return mention_knob(s, w, a, e);
    }
    return recommend_change(s, w, a, e);
}

char *plan_options(const struct plan *p, struct arena *a) {
    const struct recipe *r = &p->recipe;
    char recompute[32];
    char *text = arena_printf(a, "--strategy %s", strategy_text(r, a));
    if (r->offload_optimizer != OFFLOAD_NONE)
        text =
            arena_printf(a, "%s --offload-optimizer %s", text, offload_names[r->offload_optimizer]);
    if (r->offload_param != OFFLOAD_NONE)
        text = arena_printf(a, "%s --offload-param %s", text, offload_names[r->offload_param]);
    const struct {
        const char *option;
        uint64_t size;
    } groups[] = {{"tp", r->tp}, {"cp", r->cp}, {"pp", r->pp}, {"ep", r->ep}};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (groups[i].size > 1)
            text = arena_printf(a, "%s --%s %" PRIu64, text, groups[i].option, groups[i].size);
    if (r->recompute == RECOMPUTE_EVERY_N)
        snprintf(recompute, sizeof recompute, "every-%" PRIu64, r->recompute_every);
    else
        snprintf(recompute, sizeof recompute, "%s", recompute_names[r->recompute]);
    return arena_printf(
        a, "%s --micro-batch %" PRIu64 " --grad-accum %" PRIu64 " --recompute %s --loss %s", text,
        r->micro_batch, r->grad_accum, recompute, loss_names[r->loss]);
}

char *plan_title(const struct plan *p, struct arena *a) {
    const struct recipe *r = &p->recipe;
    char *title = strategy_text(r, a);
    if (r->offload_optimizer != OFFLOAD_NONE && r->offload_optimizer == r->offload_param)
        return arena_printf(a, "%s + all %s", title, offload_names[r->offload_param]);
    if (r->offload_optimizer != OFFLOAD_NONE)
        title = arena_printf(a, "%s + optimizer %s", title, offload_names[r->offload_optimizer]);
    if (r->offload_param != OFFLOAD_NONE)
        title = arena_printf(a, "%s + params %s", title, offload_names[r->offload_param]);
    return title;
}
