// SPDX-License-Identifier: Apache-2.0
// Verdicts as tables: accept, check, explain.
#include "chart.h"
#include "page.h"

#include "base/units.h"

#include <math.h>

#include <string.h>

static struct view list_of(struct view root) {
    static const char *const names[] = {"checks", "findings", "rows", "results"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct view v = view_find(root, names[i]);
        if (view_is_array(v))
            return v;
    }
    return (struct view){.path = "$", .arena = root.arena};
}

static const char *status_of(const cJSON *item) {
    static const char *const names[] = {"status", "verdict", "result", "severity"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *s = view_item_string(item, names[i]);
        if (s)
            return s;
    }
    return NULL;
}

#define STATUSES 8

static void say_counts(struct page *p, struct view list) {
    const char *names[STATUSES];
    size_t counts[STATUSES] = {0}, n = 0;
    for (const cJSON *c = view_first(list); c; c = c->next) {
        const char *status = status_of(c);
        size_t i = 0;
        while (status && i < n && strcmp(names[i], status) != 0)
            i++;
        if (!status || i == STATUSES)
            continue;
        if (i == n)
            names[n++] = status;
        counts[i]++;
    }
    html_raw(&p->html, "<p>");
    for (size_t i = 0; i < n; i++) {
        html_printf(&p->html, "%s%zu ", i ? ", " : "", counts[i]);
        page_badge(p, names[i]);
    }
    html_raw(&p->html, n ? ".</p>\n" : "</p>\n");
}

static bool is_status(const cJSON *check, const char *word) {
    const char *status = status_of(check);
    return status && strcmp(status, word) == 0;
}

// The failure that names a culprit, else the first one; its place in the list. NULL: none fails.
static const cJSON *worst_check(struct view list, size_t *index) {
    const cJSON *worst = NULL;
    size_t i = 0;
    for (const cJSON *c = view_first(list); c; c = c->next, i++) {
        if (!is_status(c, "FAIL") || (worst && !view_item_string(c, "culprit")))
            continue;
        worst = c;
        *index = i;
        if (view_item_string(c, "culprit"))
            break;
    }
    return worst;
}

static void say_next_step(struct page *p, struct view list) {
    size_t index = 0;
    const cJSON *worst = worst_check(list, &index);
    struct html *h = &p->html;
    if (!worst)
        return;
    html_raw(h, "<p>");
    if (view_item_string(worst, "culprit")) {
        html_raw(h, "<b>");
        html_user(h, view_item_string(worst, "culprit"));
        html_raw(h, "</b>: ");
    }
    html_user(h, view_item_string(worst, "name"));
    html_raw(h, ", ");
    html_user(h, view_item_string(worst, "reason"));
    if (view_item_string(worst, "next_step")) {
        html_raw(h, ". Do this: ");
        html_user(h, view_item_string(worst, "next_step"));
    }
    html_raw(h, ".</p>\n");
}

void page_accept_answer(struct page *p, struct view root) {
    const char *verdict = view_string(root, "verdict");
    if (!verdict)
        verdict = view_string(root, "status");
    html_raw(&p->html, "<p class=headline>The cluster's acceptance: ");
    page_badge(p, verdict ? verdict : "not stated");
    html_raw(&p->html, "</p>\n");
    say_counts(p, list_of(root));
    if (view_string(root, "reason")) {
        html_raw(&p->html, "<p>");
        html_user(&p->html, view_string(root, "reason"));
        html_raw(&p->html, ".</p>\n");
    }
    say_next_step(p, list_of(root));
}

static bool is_shown_apart(const char *key) {
    static const char *const names[] = {"status", "verdict", "result", "severity"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(key, names[i]) == 0)
            return true;
    return false;
}

// One row per finding: its status as a badge, then its other members.
static void verdict_table(struct page *p, struct view list, const char *caption) {
    struct html *h = &p->html;
    size_t i = 0;
    if (view_count(list) == 0) {
        html_raw(h, "<p class=missing>The file lists no finding.</p>\n");
        return;
    }
    show_table_open(h, caption);
    html_raw(h, "<thead><tr><th scope=col>Status<th scope=col>What<th scope=col>Figures and reason"
                "</tr></thead><tbody>\n");
    for (const cJSON *c = view_first(list); c && i < 400; c = c->next, i++) {
        struct view row = view_member(list, c, i);
        size_t shown = 0;
        html_raw(h, "<tr><td>");
        page_badge(p, status_of(c) ? status_of(c) : "not stated");
        html_raw(h, "</td>");
        for (const cJSON *m = view_first(row); m; m = m->next) {
            if (!m->string || is_shown_apart(m->string) || cJSON_IsNull(m))
                continue;
            struct view v = view_member(row, m, 0);
            if (!view_is_scalar(v))
                continue;
            html_raw(h, shown == 0 ? "<th scope=row>" : shown == 1 ? "<td>" : "<br>");
            if (shown > 0) {
                show_label(h, m->string);
                html_raw(h, ": ");
            }
            show_scalar(h, v);
            if (shown++ == 0)
                html_raw(h, "</th>");
        }
        html_raw(h, shown > 1 ? "</td></tr>\n" : "<td></td></tr>\n");
    }
    html_raw(h, "</tbody>");
    show_table_close(h);
}

// ---- acceptance ---------------------------------------------------------------------------------

enum { CHECKS_SHOWN = 20, STATES = 4 };
static const char *const states[STATES] = {"FAIL", "NODATA", "WAIVED", "PASS"};

static size_t state_of(const cJSON *check) {
    size_t i = 0;
    while (i < STATES - 1 && !is_status(check, states[i]))
        i++;
    return i;
}

struct checks { // bars of one picture; three segments per bar
    const char *rows[CHECKS_SHOWN], *ends[CHECKS_SHOWN];
    double values[3 * CHECKS_SHOWN], limits[CHECKS_SHOWN];
    size_t count;
};

static void add_check(struct checks *k, const cJSON *c, struct arena *a) {
    double rate = view_item_number(c, "measured_bytes_per_s");
    double limit = view_item_number(c, "limit_bytes_per_s");
    const char *name = view_item_string(c, "name"), *status = status_of(c);
    const size_t segments[STATES] = {0, 2, 2, 1};
    if (!(rate > 0) || k->count == CHECKS_SHOWN)
        return;
    k->rows[k->count] = name ? name : "check";
    k->ends[k->count] =
        limit > 0 ? arena_printf(a, "%.3g of %.3g, %.12s", rate / UNITS_GIGA, limit / UNITS_GIGA,
                                 status ? status : "")
                  : arena_printf(a, "%.3g, %.12s", rate / UNITS_GIGA, status ? status : "");
    k->limits[k->count] = limit / UNITS_GIGA;
    for (size_t i = 0; i < 3; i++)
        k->values[3 * k->count + i] = i == segments[state_of(c)] ? rate / UNITS_GIGA : 0;
    k->count++;
}

static const char *checks_alt(struct page *p, struct view list, size_t drawn) {
    size_t failed = 0, index = 0;
    for (const cJSON *c = view_first(list); c; c = c->next)
        failed += state_of(c) == 0;
    const cJSON *worst = worst_check(list, &index);
    const char *name = worst ? view_item_string(worst, "name") : NULL;
    return arena_printf(p->arena, "%zu of %zu checks fail%s%.80s; the dashed mark is the limit%s",
                        failed, view_count(list), name ? ", foremost " : "", name ? name : "",
                        drawn == CHECKS_SHOWN && drawn < view_count(list)
                            ? "; the other rates are in the table"
                            : "");
}

// The culprit first, then the other failures, what passed, and what was not judged.
static void checks_figure(struct page *p, struct view list) {
    static const char *const names[] = {"fails", "passes", "not judged"};
    static const enum plot_colour colours[] = {PLOT_VERMILLION, PLOT_BLUE, PLOT_LIGHT};
    static const size_t order[STATES] = {0, 3, 2, 1};
    struct checks k = {.count = 0};
    size_t index = 0;
    const cJSON *worst = worst_check(list, &index);
    if (worst)
        add_check(&k, worst, p->arena);
    for (size_t i = 0; i < STATES; i++)
        for (const cJSON *c = view_first(list); c; c = c->next)
            if (c != worst && state_of(c) == order[i])
                add_check(&k, c, p->arena);
    if (k.count == 0)
        return;
    struct plot *plot =
        plot_add(&p->plots, "checks", "Measured rate of each check beside its limit");
    plot->alt = checks_alt(p, list, k.count);
    chart_bars(plot, &(struct chart_bars){.x_label = "measured rate (GB/s)",
                                          .segments = names,
                                          .colours = colours,
                                          .segment_count = 3,
                                          .rows = k.rows,
                                          .row_count = k.count,
                                          .per_row = 1,
                                          .values = k.values,
                                          .limits = k.limits,
                                          .limit_label = "limit",
                                          .limit_text = "",
                                          .ends = k.ends});
    page_figure(p, plot);
}

static void check_row(struct page *p, struct view check) {
    static const char *const cells[] = {"measured_bytes_per_s",
                                        "limit_bytes_per_s",
                                        "baseline_bytes_per_s",
                                        "model_bytes_per_s",
                                        "required",
                                        "reason",
                                        "next_step"};
    struct html *h = &p->html;
    html_raw(h, "<tr><td>");
    page_badge(p, status_of(check.item) ? status_of(check.item) : "not stated");
    html_raw(h, "</td><th scope=row>");
    show_value(h, check, "name");
    html_raw(h, "</th>");
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        html_raw(h, i < 5 ? "<td>" : "<td class=words>");
        show_value(h, check, cells[i]);
        html_raw(h, "</td>");
    }
    html_raw(h, "</tr>\n");
}

// Rows of the checks whose state lies in [first, last]; nothing when there are none.
static void checks_table(struct page *p, struct view list, size_t first, size_t last,
                         const char *caption) {
    struct html *h = &p->html;
    size_t shown = 0, room = 400;
    for (size_t state = first; state <= last; state++) {
        size_t i = 0;
        for (const cJSON *c = view_first(list); c && shown < room; c = c->next, i++) {
            if (state_of(c) != state)
                continue;
            if (shown++ == 0) {
                show_table_open(h, caption);
                html_raw(h, "<thead><tr><th scope=col>Status<th scope=col>Check<th "
                            "scope=col>Measured<th scope=col>Limit<th scope=col>Baseline<th "
                            "scope=col>Model<th scope=col>Required<th scope=col>Reason<th "
                            "scope=col>Next step</tr></thead><tbody>\n");
            }
            check_row(p, view_member(list, c, i));
        }
    }
    if (shown) {
        html_raw(h, "</tbody>");
        show_table_close(h);
    }
}

static size_t count_passed(struct view list) {
    size_t n = 0;
    for (const cJSON *c = view_first(list); c; c = c->next)
        n += state_of(c) == STATES - 1;
    return n;
}

void page_accept_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema", "command", "model",  "cluster",
                                          "checks", "verdict", "reason", NULL};
    struct view list = view_find(root, "checks");
    size_t passed = count_passed(list);
    bool fold = passed > 8 && passed < view_count(list);
    if (view_count(list) == 0)
        html_raw(&p->html, "<p class=missing>The file lists no check.</p>\n");
    checks_figure(p, list);
    checks_table(p, list, 0, STATES - 2, "Checks that fail or were not judged");
    if (fold)
        html_printf(&p->html, "<details><summary>%zu checks pass</summary>\n", passed);
    checks_table(p, list, STATES - 1, STATES - 1, "Checks that pass");
    if (fold)
        html_raw(&p->html, "</details>\n");
    show_rest(&p->html, root, handled);
}

void page_findings_answer(struct page *p, struct view root) {
    struct view list = list_of(root);
    const char *text = view_string(root, "answer");
    if (!text)
        text = view_string(root, "cause");
    html_printf(&p->html, "<p class=headline>%zu finding%s.</p>\n", view_count(list),
                view_count(list) == 1 ? "" : "s");
    if (text) {
        html_raw(&p->html, "<p>");
        html_user(&p->html, text);
        html_raw(&p->html, "</p>\n");
    }
    say_counts(p, list);
}

void page_findings_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema",  "command",  "model",
                                          "cluster", "findings", NULL};
    verdict_table(p, list_of(root), "Findings");
    show_rest(&p->html, root, handled);
}

// The event everything else followed from: events[first].
static struct view first_event(struct view root) {
    struct view events = view_find(root, "events");
    double first = view_number(root, "first");
    const cJSON *item = first >= 0 ? cJSON_GetArrayItem(events.item, (int)first) : NULL;
    return item ? view_member(events, item, (size_t)first)
                : (struct view){.arena = root.arena, .path = "$"};
}

void page_explain_answer(struct page *p, struct view root) {
    struct html *h = &p->html;
    struct view first = first_event(root);
    html_raw(h, "<p class=headline>");
    if (first.item) {
        html_user(h, view_string(first, "meaning"));
        html_raw(h, "</p>\n<p>");
        html_user(h, view_string(first, "advice"));
    } else {
        html_printf(h, "%zu lines of the log were understood; none of them is a failure.",
                    view_count(view_find(root, "events")));
    }
    html_raw(h, "</p>\n");
}

static void explain_event(struct page *p, struct view event) {
    struct html *h = &p->html;
    struct view causes = view_find(event, "causes");
    const char *kind = view_string(event, "kind");
    size_t i = 0;
    html_raw(h, "<tr><th scope=row>");
    show_value(h, event, "line");
    html_raw(h, "</th><td>");
    html_user(h, kind ? show_spaced(kind, p->arena) : NULL);
    html_raw(h, "</td><td><code>");
    show_value(h, event, "text");
    html_raw(h, "</code></td><td class=words>");
    html_user(h, view_string(event, "meaning"));
    for (const cJSON *c = view_first(causes); c && i < 8; c = c->next, i++) {
        html_raw(h, i ? "</li><li>" : "<ul><li>");
        show_value(h, view_member(causes, c, i), "what");
        html_raw(h, " ");
        show_value(h, view_member(causes, c, i), "bytes");
    }
    html_raw(h, i ? "</li></ul></td><td class=words>" : "</td><td class=words>");
    html_user(h, view_string(event, "advice"));
    html_raw(h, "</td></tr>\n");
}

void page_explain_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema", "command", "model", "log",
                                          "first",  "events",  NULL};
    struct html *h = &p->html;
    struct view events = view_find(root, "events");
    size_t i = 0;
    show_table_open(h, "Lines of the log that say something");
    html_raw(h, "<thead><tr><th scope=col>Line<th scope=col>Kind<th scope=col>Text<th "
                "scope=col>Meaning<th scope=col>What to do</tr></thead><tbody>\n");
    for (const cJSON *c = view_first(events); c && i < 200; c = c->next, i++)
        explain_event(p, view_member(events, c, i));
    html_raw(h, "</tbody>");
    show_table_close(h);
    show_rest(h, root, handled);
}
