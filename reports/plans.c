// SPDX-License-Identifier: Apache-2.0
#include "plans.h"

#include "base/units.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_OPEN 24 // rows shown without asking
#define TABLE_MOST 600

static const char *offload_words(struct view plan, struct arena *a) {
    const char *optimizer = view_string(plan, "recipe.offload_optimizer");
    const char *param = view_string(plan, "recipe.offload_param");
    bool o = optimizer && strcmp(optimizer, "none") != 0, w = param && strcmp(param, "none") != 0;
    if (o && w && strcmp(optimizer, param) == 0)
        return arena_printf(a, " + %s offload", optimizer);
    if (o && w)
        return arena_printf(a, " + optim. %s, params %s", optimizer, param);
    if (o)
        return arena_printf(a, " + optim. on %s", optimizer);
    return w ? arena_printf(a, " + params on %s", param) : "";
}

// " tp8 pp2": how a plan splits the model, which its title does not say.
static const char *split_words(struct view plan) {
    static const char *const splits[] = {"tp", "cp", "pp", "ep"};
    const char *text = "";
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        double ways = view_number(view_find(plan, "recipe"), splits[i]);
        if (ways > 1)
            text = arena_printf(plan.arena, "%s %s%.0f", text, splits[i], ways);
    }
    return text;
}

static const char *strategy_label(struct view plan) {
    const char *strategy = view_string(plan, "strategy"), *title = view_string(plan, "title");
    if (title && *title)
        return arena_printf(plan.arena, "%.120s%s", title, split_words(plan));
    const char *name = strategy ? strategy : view_string(plan, "recipe.strategy");
    if (!name)
        name = view_string(plan, "name");
    return arena_printf(plan.arena, "%.60s%.60s%s", name ? name : "plan",
                        offload_words(plan, plan.arena), split_words(plan));
}

// Knobs that tell plans of one strategy apart, in the order in which they are tried, in words and
// in brief for pictures. Of those that share a `once` letter only the first that differs is used.
static const struct {
    const char *path, *before, *brief, *after;
    char once;
} knobs[] = {
    {"recipe.micro_batch", "micro-batch ", "mb ", "", 0},
    {"recipe.world", "", "", " GPUs", 'g'},
    {"gpus", "", "", " GPUs", 'g'},
    {"cluster.gpus", "", "", " GPUs", 'g'},
    {"nodes", "", "", " nodes", 'g'},
    {"recipe.grad_accum", "accumulate ", "acc ", "", 0},
    {"recipe.shard_group", "groups of ", "groups of ", "", 0},
    {"recipe.reduce_bucket_elements", "bucket ", "bucket ", "", 0},
    {"recipe.prefetch_bucket_elements", "prefetch ", "prefetch ", "", 0},
    {"recipe.max_live_elements", "live ", "live ", "", 0},
    {"recipe.persistence_elements", "persist ", "persist ", "", 0},
};
#define KNOBS_BEFORE_WORDS 7
static const struct {
    const char *path, *format, *brief;
} word_knobs[] = {{"recipe.recompute", "recompute %.30s", "%.30s"},
                  {"recipe.precision", "%.30s", "%.30s"},
                  {"recipe.loss", "%.30s loss", "%.30s loss"}};

static bool number_differs(const struct plans *s, const char *path) {
    for (size_t i = 1; i < s->count; i++) {
        double a = view_number(s->items[0], path), b = view_number(s->items[i], path);
        if (a != b && !(isnan(a) && isnan(b)))
            return true;
    }
    return false;
}

static bool word_differs(const struct plans *s, const char *path) {
    for (size_t i = 1; i < s->count; i++) {
        const char *a = view_string(s->items[0], path), *b = view_string(s->items[i], path);
        if (a && b && strcmp(a, b) != 0)
            return true;
    }
    return false;
}

static bool labels_unique(const struct plans *s) {
    for (size_t i = 0; i < s->count; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(s->labels[i], s->labels[k]) == 0)
                return false;
    return true;
}

static void extend(struct plans *s, size_t i, const char *label, const char *name) {
    struct arena *a = s->items[i].arena;
    s->labels[i] = arena_printf(a, "%s, %s", s->labels[i], label);
    s->names[i] = *s->names[i] ? arena_printf(a, "%s, %s", s->names[i], name) : name;
}

static void extend_by_words(struct plans *s) {
    for (size_t k = 0; k < sizeof word_knobs / sizeof *word_knobs && !labels_unique(s); k++) {
        if (!word_differs(s, word_knobs[k].path))
            continue;
        for (size_t i = 0; i < s->count; i++) {
            struct arena *a = s->items[i].arena;
            const char *word = view_string(s->items[i], word_knobs[k].path);
            bool none = word && strcmp(word, "none") == 0;
            word = word ? word : "?";
            extend(s, i, arena_printf(a, word_knobs[k].format, word),
                   none ? "no recompute" : arena_printf(a, word_knobs[k].brief, word));
        }
    }
}

static void extend_by_numbers(struct plans *s, size_t from, size_t to) {
    char used = 0;
    for (size_t k = from; k < to && !labels_unique(s); k++) {
        if ((knobs[k].once && knobs[k].once == used) || !number_differs(s, knobs[k].path))
            continue;
        used = knobs[k].once ? knobs[k].once : used;
        for (size_t i = 0; i < s->count; i++) {
            struct arena *a = s->items[i].arena;
            char text[32] = "?";
            double v = view_number(s->items[i], knobs[k].path);
            if (!isnan(v))
                units_format_count(text, sizeof text, v);
            extend(s, i, arena_printf(a, "%s%s%s", knobs[k].before, text, knobs[k].after),
                   arena_printf(a, "%s%s%s", knobs[k].brief, text, knobs[k].after));
        }
    }
}

// The title that all of several plans have, or NULL.
static const char *shared_title(const struct plans *s) {
    for (size_t i = 1; i < s->count; i++)
        if (strcmp(s->titles[i], s->titles[0]) != 0)
            return NULL;
    return s->count > 1 ? s->titles[0] : NULL;
}

struct plans plans_read(struct view array, double recommended) {
    struct plans s = {.count = view_count(array), .recommended = SIZE_MAX};
    size_t i = 0;
    s.items = arena_array(array.arena, s.count + 1, sizeof *s.items);
    s.labels = arena_array(array.arena, s.count + 1, sizeof *s.labels);
    s.titles = arena_array(array.arena, s.count + 1, sizeof *s.titles);
    s.names = arena_array(array.arena, s.count + 1, sizeof *s.names);
    for (const cJSON *c = view_first(array); c; c = c->next, i++) {
        s.items[i] = view_member(array, c, i);
        s.labels[i] = s.titles[i] = strategy_label(s.items[i]);
    }
    s.shared = shared_title(&s);
    for (i = 0; i < s.count; i++)
        s.names[i] = s.shared ? "" : s.titles[i];
    extend_by_numbers(&s, 0, KNOBS_BEFORE_WORDS);
    extend_by_words(&s);
    extend_by_numbers(&s, KNOBS_BEFORE_WORDS, sizeof knobs / sizeof *knobs);
    for (i = 0; i < s.count; i++)
        s.names[i] = *s.names[i] ? s.names[i] : s.titles[i];
    if (recommended >= 0 && recommended < (double)s.count)
        s.recommended = (size_t)recommended;
    return s;
}

const char *plans_fits(struct view plan) {
    const char *state = view_string(plan, "memory.fits_state");
    int fits = view_bool(plan, "memory.fits"), whole = view_bool(plan, "fits");
    int host = view_bool(plan, "host.fits"), nvme = view_bool(plan, "nvme.fits");
    if (host == 0 || nvme == 0 || whole == 0)
        return "no";
    if (state)
        return state;
    return fits == 1 || whole == 1 ? "yes" : fits == 0 ? "no" : "not known";
}

size_t plans_fastest(const struct plans *s) {
    size_t best = SIZE_MAX;
    double least = INFINITY;
    for (size_t i = 0; i < s->count; i++) {
        double t = view_number(s->items[i], "time.step_s");
        if (strcmp(plans_fits(s->items[i]), "no") != 0 && t < least) {
            least = t;
            best = i;
        }
    }
    return best;
}

static bool is_picked(const size_t *picked, size_t n, size_t index) {
    for (size_t i = 0; i < n; i++)
        if (picked[i] == index)
            return true;
    return false;
}

static bool title_picked(const struct plans *s, const size_t *picked, size_t n, size_t index) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(s->titles[picked[i]], s->titles[index]) == 0)
            return true;
    return false;
}

static int by_index(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

size_t plans_pick(const struct plans *s, size_t picked[PLANS_SHOWN]) {
    size_t n = 0;
    if (s->recommended != SIZE_MAX)
        picked[n++] = s->recommended;
    for (int fitting = 1; fitting >= 0; fitting--)
        for (size_t i = 0; i < s->count && n < PLANS_SHOWN; i++)
            if ((strcmp(plans_fits(s->items[i]), "no") != 0) == fitting &&
                !title_picked(s, picked, n, i))
                picked[n++] = i;
    for (size_t i = 0; i < s->count && n < (s->shared ? PLANS_ALIKE : PLANS_SHOWN); i++)
        if (!is_picked(picked, n, i))
            picked[n++] = i;
    qsort(picked, n, sizeof *picked, by_index);
    return n;
}

// "oracle memory, volume": each kind of proof once, with what it proves.
static void proof_cell(struct page *p, struct view plan) {
    static const char *const parts[] = {"memory", "volume", "time"};
    const char *proofs[3];
    size_t shown = 0;
    for (size_t i = 0; i < 3; i++) {
        proofs[i] = view_string(view_find(plan, "proven"), parts[i]);
        proofs[i] = proofs[i] ? proofs[i] : "unproven";
    }
    for (size_t i = 0; i < 3; i++) {
        if ((i > 0 && strcmp(proofs[i], proofs[0]) == 0) ||
            (i > 1 && strcmp(proofs[i], proofs[1]) == 0))
            continue;
        html_raw(&p->html, shown++ ? "<br>" : "");
        page_badge(p, proofs[i]);
        for (size_t k = i; k < 3; k++)
            if (strcmp(proofs[k], proofs[i]) == 0)
                html_printf(&p->html, "%s%s", k == i ? " " : ", ", parts[k]);
    }
}

static void headroom_cell(struct page *p, struct view plan) {
    if (view_number(plan, "memory.short_bytes") > 0) {
        html_raw(&p->html, "short by ");
        show_value(&p->html, plan, "memory.short_bytes");
    } else {
        show_value(&p->html, plan, "memory.headroom_bytes");
    }
}

static void table_row(struct page *p, const struct plans *s, size_t i) {
    static const char *const cells[] = {"memory.min_gpus", "time.step_s",
                                        "time.tokens_per_s_per_gpu", "time.mfu", "bound_by"};
    struct html *h = &p->html;
    struct view plan = s->items[i];
    html_raw(h, i == s->recommended ? "<tr class=marked><th scope=row>" : "<tr><th scope=row>");
    html_user(h, s->labels[i]);
    html_raw(h, i == s->recommended ? " <small>(recommended)</small></th><td>" : "</th><td>");
    page_badge(p, plans_fits(plan));
    html_raw(h, "</td><td class=r>");
    show_value(h, plan, "memory.allocated_peak_bytes");
    html_raw(h, "</td><td class=r>");
    headroom_cell(p, plan);
    for (size_t k = 0; k < sizeof cells / sizeof *cells; k++) {
        html_raw(h, k + 1 < sizeof cells / sizeof *cells ? "</td><td class=r>"
                                                         : "</td><td class=tight>");
        show_value(h, plan, cells[k]);
    }
    html_raw(h, "</td><td class=tight>");
    proof_cell(p, plan);
    html_raw(h, "</td></tr>\n");
}

static void table_part(struct page *p, const struct plans *s, const char *caption, size_t from,
                       size_t to) {
    struct html *h = &p->html;
    html_raw(h, "<div class=plans>");
    show_table_open(h, caption);
    html_raw(h, "<thead><tr><th scope=col>Plan<th scope=col>Fits<th scope=col>Peak<br>allocated"
                "<th scope=col>Headroom<th scope=col>Fewest<br>GPUs"
                "<th scope=col>Step<th scope=col>Tokens/s<br>per GPU<th scope=col>MFU"
                "<th scope=col>Bound by<th scope=col>Known by</tr></thead><tbody>\n");
    for (size_t i = from; i < to; i++)
        table_row(p, s, i);
    html_raw(h, "</tbody>");
    show_table_close(h);
    html_raw(h, "</div>");
}

void plans_table(struct page *p, const struct plans *s, const char *caption) {
    size_t open = s->count > TABLE_OPEN + 8 ? TABLE_OPEN : s->count;
    table_part(p, s, caption, 0, open);
    if (open == s->count)
        return;
    html_printf(&p->html, "<details><summary>The other %zu plans</summary>\n", s->count - open);
    table_part(p, s, "The other plans", open, s->count < TABLE_MOST ? s->count : TABLE_MOST);
    if (s->count > TABLE_MOST)
        html_printf(&p->html, "<p class=note>The %zu after them stand in the JSON alone.</p>\n",
                    s->count - TABLE_MOST);
    html_raw(&p->html, "</details>\n");
}

// The same run, and the same differences to it.
static bool same_nearest(struct view a, struct view b) {
    static const char *const keys[] = {"id", "differs"};
    for (size_t k = 0; k < 2; k++) {
        const char *x = view_string(a, keys[k]), *y = view_string(b, keys[k]);
        if ((x == NULL) != (y == NULL) || (x && strcmp(x, y) != 0))
            return false;
    }
    return true;
}

// A row for this plan and those after it to which the same applies; none if an earlier one did.
static void nearest_row(struct page *p, const struct plans *s, size_t i) {
    struct html *h = &p->html;
    struct view n = view_find(s->items[i], "nearest_measured");
    for (size_t k = 0; k < i; k++)
        if (same_nearest(view_find(s->items[k], "nearest_measured"), n))
            return;
    html_raw(h, "<tr><th scope=row>");
    html_user(h, s->titles[i]);
    for (size_t k = i + 1; k < s->count; k++)
        if (same_nearest(view_find(s->items[k], "nearest_measured"), n) &&
            strcmp(s->titles[k], s->titles[k - 1]) != 0) {
            html_raw(h, ", ");
            html_user(h, s->titles[k]);
        }
    html_raw(h, "</th><td>");
    show_value(h, n, "id");
    html_raw(h, "</td><td>");
    html_user(h, view_string(n, "differs") ? view_string(n, "differs") : "nothing that counts");
    html_raw(h, "</td><td>");
    show_value(h, n, "measured_s");
    html_raw(h, "</td><td>");
    show_value(h, n, "predicted_s");
    html_raw(h, "</td><td>");
    show_value_as(h, n, "error", "fraction");
    html_raw(h, "</td><td>");
    show_value_as(h, n, "group_error", "fraction");
    html_raw(h, " over ");
    show_value(h, n, "group_n");
    html_raw(h, view_number(n, "group_n") < 5 ? " runs (few: no claim)" : " runs");
    html_raw(h, "</td><td>");
    show_value(h, n, "source");
    html_raw(h, "</td></tr>\n");
}

void plans_nearest(struct page *p, const struct plans *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++)
        n += view_is_object(view_find(s->items[i], "nearest_measured"));
    if (n == 0) {
        html_raw(&p->html, "<p class=note>The file names no measured run near these plans.</p>\n");
        return;
    }
    show_table_open(&p->html, "The measured run nearest to each plan, and how far off it is "
                              "predicted");
    html_raw(&p->html,
             "<thead><tr><th scope=col>Plan<th scope=col>Nearest measured run<th scope=col>It "
             "differs by<th scope=col>Measured step<th scope=col>Predicted<th scope=col>Error<th "
             "scope=col>Mean error of its GPU and strategy<th scope=col>Source</tr></thead>"
             "<tbody>\n");
    for (size_t i = 0; i < s->count; i++)
        if (view_is_object(view_find(s->items[i], "nearest_measured")))
            nearest_row(p, s, i);
    html_raw(&p->html, "</tbody>");
    show_table_close(&p->html);
}
