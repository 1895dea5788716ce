// SPDX-License-Identifier: Apache-2.0
#include "origins.h"

#include <math.h>
#include <string.h>

#define UNLIMITED 9e18 // what frameworks write for "no limit"

enum origin { ORIGIN_GIVEN, ORIGIN_SEARCHED, ORIGIN_CHOICE, ORIGIN_FRAMEWORK, ORIGIN_DERIVED };

static bool is_among(const char *const *words, size_t count, const char *word) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0)
            return true;
    return false;
}

// The source of recipe.KEY among inputs[], whose paths may or may not say "recipe.".
static struct view input_for(struct view inputs, const char *key) {
    size_t i = 0;
    for (const cJSON *c = view_first(inputs); c; c = c->next, i++) {
        const char *path = view_item_string(c, "path");
        const char *plain = path && strncmp(path, "recipe.", 7) == 0 ? path + 7 : path;
        if (plain && strcmp(plain, key) == 0)
            return view_member(inputs, c, i);
    }
    return (struct view){.path = "$", .arena = inputs.arena};
}

// Settings that a sweep or advise varies even where its space does not name them so.
static bool is_offload(struct view value) {
    const char *key = value.item->string;
    return strncmp(key, "offload_", 8) == 0 && cJSON_IsString(value.item) &&
           strcmp(value.item->valuestring, "none") != 0;
}

static bool is_chosen(const char *const *chosen, const char *key) {
    for (; chosen && *chosen; chosen++)
        if (strcmp(*chosen, key) == 0)
            return true;
    return false;
}

static enum origin origin_of(struct view value, struct view root, const struct recipe_of *of) {
    static const char *const derived[] = {
        "framework",     "megatron_optimizer", "world",        "replica_group", "param_dtype",
        "compute_dtype", "grad_dtype",         "master_dtype", "state_dtype",   "has_master"};
    static const char *const choices[] = {"strategy",
                                          "framework_version",
                                          "stack",
                                          "shard_group",
                                          "tp",
                                          "cp",
                                          "pp",
                                          "ep",
                                          "wrap",
                                          "seq",
                                          "micro_batch",
                                          "grad_accum",
                                          "global_batch",
                                          "tokens",
                                          "precision",
                                          "optimizer",
                                          "clip",
                                          "recompute",
                                          "attention",
                                          "loss",
                                          "compile",
                                          "offload_optimizer",
                                          "offload_param",
                                          "lora_rank"};
    const char *key = value.item->string;
    if (is_chosen(of->chosen, key) || view_find(view_find(root, "space"), key).item)
        return ORIGIN_SEARCHED;
    if (view_string(value, "source") || input_for(view_find(root, "inputs"), key).item)
        return ORIGIN_GIVEN;
    if (is_offload(value))
        return ORIGIN_SEARCHED;
    if (is_among(derived, sizeof derived / sizeof *derived, key))
        return ORIGIN_DERIVED;
    return is_among(choices, sizeof choices / sizeof *choices, key) ? ORIGIN_CHOICE
                                                                    : ORIGIN_FRAMEWORK;
}

static void setting(struct page *p, struct view value, struct view root, bool given) {
    struct html *h = &p->html;
    const char *source = view_string(value, "source");
    if (!source && given)
        source = view_string(input_for(view_find(root, "inputs"), value.item->string), "source");
    html_raw(h, "<div><dt>");
    show_label(h, value.item->string);
    html_raw(h, "</dt><dd>");
    if (view_is_object(value))
        show_value(h, value, "value");
    else if (cJSON_IsNumber(value.item) && value.item->valuedouble >= UNLIMITED)
        html_raw(h, "no limit");
    else
        show_scalar(h, value);
    if (source) {
        html_raw(h, " <small>");
        html_user(h, source);
        html_raw(h, "</small>");
    }
    html_raw(h, "</dd></div>");
}

struct recipe_page {
    struct page *page;
    struct view recipe, root;
    const struct recipe_of *of;
};

static void group(const struct recipe_page *r, enum origin wanted, const char *heading) {
    struct html *h = &r->page->html;
    size_t i = 0, shown = 0;
    for (const cJSON *c = view_first(r->recipe); c; c = c->next, i++) {
        struct view value = view_member(r->recipe, c, i);
        if (origin_of(value, r->root, r->of) != wanted)
            continue;
        if (!shown++) {
            html_raw(h, "<h4>");
            html_text(h, heading);
            html_raw(h, "</h4><dl class=settings>");
        }
        setting(r->page, value, r->root, wanted == ORIGIN_GIVEN);
    }
    html_raw(h, shown ? "</dl>\n" : "");
}

void origins_recipe(struct page *p, struct view recipe, struct view root,
                    const struct recipe_of *of) {
    const struct recipe_page r = {p, recipe, root, of};
    struct html *h = &p->html;
    const char *version = view_string(recipe, "framework_version");
    if (view_count(recipe) == 0)
        return;
    html_raw(h, "<details open><summary>Recipe of ");
    html_user(h, of->title);
    html_raw(h, ": every setting and where it comes from</summary>\n");
    group(&r, ORIGIN_GIVEN, "Given");
    group(&r, ORIGIN_SEARCHED, "Chosen here");
    bool known = view_count(view_find(root, "inputs")) > 0; // then what was given is known too
    const char *start = known ? "Not given" : "Where the command does not say";
    group(&r, ORIGIN_CHOICE, arena_printf(p->arena, "%s: shardplan's default", start));
    group(&r, ORIGIN_DERIVED, "Follows from the others");
    group(&r, ORIGIN_FRAMEWORK,
          arena_printf(p->arena, "%s: the default of %.40s", start,
                       version ? version : "the framework"));
    html_raw(h, "</details>\n");
}

static void input_value(struct page *p, struct view input) {
    const char *unit = view_string(input, "unit");
    double v = view_number(input, "value");
    struct html *h = &p->html;
    static const char *const scaled[][2] = {{"bytes", "_bytes"},
                                            {"bytes/s", "_bytes_per_s"},
                                            {"s", "_s"},
                                            {"flop/s", "_flop_per_s"},
                                            {"parameters", "parameters"}};
    const char *key = NULL;
    for (size_t i = 0; unit && i < sizeof scaled / sizeof *scaled; i++)
        key = strcmp(unit, scaled[i][0]) == 0 ? scaled[i][1] : key;
    if (key && !isnan(v)) {
        show_value_as(h, input, "value", key);
        return;
    }
    show_value(h, input, "value");
    if (unit && !isnan(v)) {
        html_raw(h, " ");
        html_user(h, unit);
    }
}

#define INPUTS_SHOWN 500

static void input_rows(struct page *p, struct view inputs) {
    struct html *h = &p->html;
    size_t i = 0;
    for (const cJSON *c = view_first(inputs); c && i < INPUTS_SHOWN; c = c->next, i++) {
        struct view input = view_member(inputs, c, i);
        const char *provenance = view_string(input, "provenance");
        html_raw(h, "<tr><th scope=row>");
        show_value(h, input, "path");
        html_raw(h, "</th><td>");
        input_value(p, input);
        html_raw(h, "</td><td>");
        page_badge(p, provenance ? provenance : "not stated");
        html_raw(h, "</td><td>");
        show_value(h, input, "source");
        html_raw(h, "</td></tr>\n");
    }
}

void origins_assumed(struct page *p, struct view list) {
    static const struct show_column columns[] = {
        {"path", "Assumed figure"}, {"effect", "Effect"}, {"measure_with", "Measure it with"}};
    if (view_count(list))
        show_rows(&p->html, list,
                  &(struct show_table){"Assumed figures that matter most: measure these first",
                                       columns, 3, 12, 0});
    else
        html_raw(&p->html, "<p class=note>No assumed figure changes these results by much.</p>\n");
}

void origins_inputs(struct page *p, struct view inputs) {
    struct html *h = &p->html;
    if (view_count(inputs) == 0) {
        html_raw(h, "<p class=missing>The file does not list its inputs.</p>\n");
        return;
    }
    html_printf(h, "<details><summary>All %zu inputs and their origin</summary>\n",
                view_count(inputs));
    show_table_open(h, "Inputs");
    html_raw(h,
             "<thead><tr><th scope=col>Input<th scope=col>Value<th scope=col>Known by<th scope=col>"
             "Source</tr></thead><tbody>\n");
    input_rows(p, inputs);
    html_raw(h, "</tbody>");
    show_table_close(h);
    if (view_count(inputs) > INPUTS_SHOWN)
        html_printf(h, "<p class=note>%d of them shown; the rest is in the JSON.</p>\n",
                    INPUTS_SHOWN);
    html_raw(h, "</details>\n");
}
