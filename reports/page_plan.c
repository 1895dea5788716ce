// SPDX-License-Identifier: Apache-2.0
#include "origins.h"
#include "plans.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static struct plans read_plans(struct view root) {
    return plans_read(view_find(root, "plans"), view_number(root, "recommendation.plan_index"));
}

static size_t count_fitting(const struct plans *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++)
        n += strcmp(plans_fits(s->items[i]), "no") != 0;
    return n;
}

// The plan that comes nearest to fitting.
static size_t nearest(const struct plans *s) {
    size_t best = SIZE_MAX;
    double least = INFINITY;
    for (size_t i = 0; i < s->count; i++) {
        double v = view_number(s->items[i], "memory.allocated_peak_bytes");
        if (v < least) {
            least = v;
            best = i;
        }
    }
    return best;
}

static void say_fits(struct page *p, const struct plans *s, size_t i) {
    struct html *h = &p->html;
    struct view plan = s->items[i];
    bool tight = strcmp(plans_fits(plan), "tight") == 0;
    html_raw(h, "<p class=headline>");
    page_badge(p, plans_fits(plan));
    html_raw(h, " ");
    html_user(h, s->labels[i]);
    html_raw(h, tight ? " fits tightly" : " fits");
    if (!isnan(view_number(plan, "time.step_s"))) {
        html_raw(h, " and takes ");
        show_value(h, plan, "time.step_s");
        html_raw(h, " per step");
        if (view_string(plan, "bound_by")) {
            html_raw(h, ", bound by ");
            html_user(h, show_word(view_string(plan, "bound_by")));
        }
    }
    html_raw(h, ".</p>\n");
}

// Loading, building, saving and resuming are not part of a step, but they too must fit.
static void say_outside(struct page *p, struct view plan) {
    static const struct {
        const char *phase, *key; // a setting that cures it
        bool value;              // where it has this value
        const char *cure;
    } cures[] = {{"init", "recipe.meta_init", false,
                  " Building the model on the meta device (<code>--set "
                  "recipe.meta_init=true</code>) cures load and init."},
                 {"save", "recipe.full_state_dict", true,
                  " Saving sharded (<code>--set recipe.full_state_dict=false</code>) cures save."}};
    struct html *h = &p->html;
    struct view phases = view_find(plan, "memory.phases");
    bool fsdp = view_string(plan, "strategy") && strstr(view_string(plan, "strategy"), "fsdp");
    bool cured[2] = {false, false};
    size_t i = 0, said = 0;
    for (const cJSON *c = view_first(phases); c; c = c->next, i++) {
        struct view phase = view_member(phases, c, i);
        const char *name = view_string(phase, "phase");
        if (!name || view_bool(phase, "fits") != 0)
            continue;
        html_raw(h, said++ ? ", " : "<p class=missing>The step fits, but not what is around it: ");
        html_user(h, show_word(name));
        html_raw(h, " takes ");
        show_value(h, phase, "allocated_bytes");
        for (size_t k = 0; k < 2; k++)
            cured[k] |= fsdp && strcmp(name, cures[k].phase) == 0 &&
                        view_bool(plan, cures[k].key) == cures[k].value;
    }
    html_raw(h, said ? " per GPU." : "");
    for (size_t k = 0; k < 2; k++)
        html_raw(h, cured[k] ? cures[k].cure : "");
    html_raw(h, said ? "</p>\n" : "");
}

// The key figures of one plan.
static void say_facts(struct page *p, struct view plan) {
    page_facts_open(p);
    page_fact(p, "Peak memory per GPU", plan, "memory.allocated_peak_bytes",
              "memory.capacity_bytes");
    if (view_number(plan, "host.bytes_per_node") > 0)
        page_fact(p, "Host memory per node", plan, "host.bytes_per_node", "host.capacity_bytes");
    page_fact(p, "Optimizer step", plan, "time.step_s", NULL);
    page_fact(p, "Tokens/s per GPU", plan, "time.tokens_per_s_per_gpu", NULL);
    page_fact(p, "Model FLOPs utilization", plan, "time.mfu", NULL);
    page_fact(p, "Sequences per step", plan, "recipe.global_batch", NULL);
    page_facts_close(p);
}

static void say_short(struct page *p, const struct plans *s) {
    struct html *h = &p->html;
    size_t i = nearest(s);
    html_raw(h, "<p class=headline>");
    page_badge(p, "no");
    html_printf(h, " None of the %zu plans fits.", s->count);
    if (i < s->count) {
        html_raw(h, " The nearest is ");
        html_user(h, s->labels[i]);
        if (view_number(s->items[i], "memory.short_bytes") > 0) {
            html_raw(h, ", short by ");
            show_value(h, s->items[i], "memory.short_bytes");
            html_raw(h, " per GPU");
        }
        if (view_number(s->items[i], "memory.min_gpus") > 0) {
            html_raw(h, "; it needs ");
            show_value(h, s->items[i], "memory.min_gpus");
            html_raw(h, " GPUs");
        }
        html_raw(h, ".");
    }
    html_raw(h, "</p>\n");
}

static void say_actions(struct page *p, struct view recommendation) {
    struct html *h = &p->html;
    struct view actions = view_find(recommendation, "actions");
    size_t i = 0;
    if (view_count(actions) == 0)
        return;
    html_raw(h, "<p>Do this:</p><ul>");
    for (const cJSON *c = view_first(actions); c && i < 12; c = c->next, i++) {
        html_raw(h, "<li>");
        show_scalar(h, view_member(actions, c, i));
        html_raw(h, "</li>");
    }
    html_raw(h, "</ul>\n");
}

static void say_recommendation(struct page *p, struct view root) {
    struct html *h = &p->html;
    struct view recommendation = view_find(root, "recommendation");
    const char *words = page_choice(view_string(recommendation, "choice"));
    const char *reason = view_string(recommendation, "reason");
    if (words || reason) {
        html_raw(h, "<p>");
        if (words) {
            html_raw(h, "<b>");
            html_text(h, words);
            html_raw(h, reason ? ":</b> " : ".</b>");
        }
        html_user(h, reason);
        html_raw(h, reason ? ".</p>\n" : "</p>\n");
    } else {
        html_raw(h, "<p class=note>The file gives no recommendation.</p>\n");
    }
    say_actions(p, recommendation);
}

void page_plan_answer(struct page *p, struct view root) {
    struct plans s = read_plans(root);
    size_t fitting = count_fitting(&s), fastest = plans_fastest(&s), chosen = fastest;
    if (s.recommended != SIZE_MAX && strcmp(plans_fits(s.items[s.recommended]), "no") != 0)
        chosen = s.recommended;
    if (s.count == 0)
        html_raw(&p->html, "<p class=headline>The file holds no plan.</p>\n");
    else if (fitting == 0)
        say_short(p, &s);
    else if (chosen != SIZE_MAX)
        say_fits(p, &s, chosen);
    else
        html_printf(&p->html, "<p class=headline>%zu of %zu plans fit.</p>\n", fitting, s.count);
    if (fitting && chosen != SIZE_MAX)
        say_facts(p, s.items[chosen]);
    if (fastest != SIZE_MAX && fastest != s.recommended && s.recommended != SIZE_MAX) {
        html_raw(&p->html, "<p>The fastest that fits is ");
        html_user(&p->html, s.labels[fastest]);
        html_raw(&p->html, " at ");
        show_value(&p->html, s.items[fastest], "time.step_s");
        html_raw(&p->html, " per step.</p>\n");
    }
    say_recommendation(p, root);
    if (fitting && chosen != SIZE_MAX)
        say_outside(p, s.items[chosen]);
}

static void say_reasons(struct page *p, const struct plans *s) {
    struct html *h = &p->html;
    size_t said = 0;
    for (size_t i = 0; i < s->count; i++) {
        const char *plan_reason = view_string(s->items[i], "reason");
        const char *reason = plan_reason ? plan_reason : view_string(s->items[i], "time.reason");
        if (!reason || !*reason || said >= 20)
            continue;
        html_raw(h, said++ ? "<li>" : "<p>What could not be told:</p><ul class=note><li>");
        html_user(h, s->labels[i]);
        html_raw(h, ": ");
        html_user(h, reason);
        html_raw(h, "</li>");
    }
    html_raw(h, said ? "</ul>\n" : "");
}

static void host_table(struct page *p, const struct plans *s) {
    static const char *const cells[] = {
        "host.bytes_per_node", "host.pinned_bytes_per_node",      "host.pinned_rounding_bytes",
        "host.capacity_bytes", "volume.host_dram_bytes_per_node", "nvme.bytes_per_node",
        "nvme.capacity_bytes"};
    struct html *h = &p->html;
    bool any = false;
    for (size_t i = 0; i < s->count; i++)
        any |= view_number(s->items[i], cells[0]) > 0 || view_number(s->items[i], cells[5]) > 0;
    if (!any)
        return;
    show_table_open(h, "Host and NVMe per node");
    html_raw(h,
             "<thead><tr><th scope=col>Plan<th scope=col>Host memory<th scope=col>of it pinned"
             "<th scope=col>lost to rounding<th scope=col>Host capacity<th scope=col>Host traffic "
             "per step<th scope=col>NVMe<th scope=col>NVMe capacity</tr></thead><tbody>\n");
    for (size_t i = 0; i < s->count; i++) {
        html_raw(h, i == s->recommended ? "<tr class=marked><th scope=row>" : "<tr><th scope=row>");
        html_user(h, s->labels[i]);
        html_raw(h, "</th>");
        for (size_t k = 0; k < sizeof cells / sizeof *cells; k++) {
            html_raw(h, "<td>");
            show_value(h, s->items[i], cells[k]);
            html_raw(h, "</td>");
        }
        html_raw(h, "</tr>\n");
    }
    html_raw(h, "</tbody>");
    show_table_close(h);
}

static void transfers_table(struct page *p, struct view plan) {
    static const struct show_column columns[] = {
        {"kind", "Transfer"},   {"phase", "Phase"}, {"dtype", "Type"},
        {"group", "Group"},     {"count", "Count"}, {"payload_bytes", "Payload"},
        {"sent_bytes", "Sent"}, {"link", "Link"}};
    struct view transfers = view_find(plan, "volume.transfers");
    if (view_count(transfers))
        show_rows(&p->html, transfers,
                  &(struct show_table){"Transfers of one step", columns, 8, 60, 0});
}

static void plan_details(struct page *p, const struct plans *s) {
    static const char *const shown[] = {"strategy", "recipe", "volume", "proven", "bound_by", NULL};
    struct html *h = &p->html;
    html_raw(h, s->count ? "<details><summary>Every figure of each plan</summary>\n" : "");
    for (size_t i = 0; i < s->count && i < 16; i++) {
        html_raw(h, "<details><summary>");
        html_user(h, s->labels[i]);
        html_raw(h, "</summary>\n");
        transfers_table(p, s->items[i]);
        for (const cJSON *c = view_first(s->items[i]); c; c = c->next) {
            size_t k = 0;
            while (shown[k] && strcmp(shown[k], c->string) != 0)
                k++;
            if (!shown[k] && cJSON_IsObject(c))
                show_any(h, view_member(s->items[i], c, 0),
                         arena_printf(p->arena, "%.60s", c->string));
        }
        html_raw(h, "</details>\n");
    }
    html_raw(h, s->count ? "</details>\n" : "");
}

void page_plan_body(struct page *p, struct view root) {
    static const char *const handled[] = {
        "schema", "command", "model",          "cluster",
        "inputs", "plans",   "recommendation", "assumed_that_matter",
        NULL};
    struct plans s = read_plans(root);
    size_t fastest = plans_fastest(&s);
    size_t main_plan = s.recommended != SIZE_MAX ? s.recommended
                       : fastest != SIZE_MAX     ? fastest
                                                 : 0;
    plans_memory_figure(p, &s);
    if (s.count)
        plans_phases_figure(p, &s, main_plan);
    plans_time_figure(p, &s);
    plans_volume_figure(p, &s);
    html_raw(&p->html, "<p class=note>Step time against bandwidth, offload and more nodes beside "
                       "these plans: the same command with <code>advise</code> for "
                       "<code>plan</code>.</p>\n");
    page_heading(p, "The plans in figures");
    plans_table(p, &s, "Plans");
    say_reasons(p, &s);
    host_table(p, &s);
    plan_details(p, &s);
    if (s.count)
        origins_recipe(p, view_find(s.items[main_plan], "recipe"), root,
                       &(struct recipe_of){.title = s.labels[main_plan]});
    page_heading(p, "What this rests on");
    origins_assumed(p, view_find(root, "assumed_that_matter"));
    plans_nearest(p, &s);
    origins_inputs(p, view_find(root, "inputs"));
    show_rest(&p->html, root, handled);
}
