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
        html_raw(&p->html, "</p>\n");
    }
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

#define CHECKS_SHOWN 20

struct checks { // bars of one picture; three segments per bar
    const char *rows[CHECKS_SHOWN], *ends[CHECKS_SHOWN];
    double values[3 * CHECKS_SHOWN], limits[CHECKS_SHOWN];
    size_t count;
};

static void add_check(struct checks *k, const cJSON *c, size_t segment, struct arena *a) {
    double rate = view_item_number(c, "measured_bytes_per_s");
    double limit = view_item_number(c, "limit_bytes_per_s");
    const char *name = view_item_string(c, "name"), *status = status_of(c);
    if (!(rate > 0) || k->count == CHECKS_SHOWN)
        return;
    k->rows[k->count] = name ? name : "check";
    k->ends[k->count] = arena_printf(a, "%.3g %.12s", rate / UNITS_GIGA, status ? status : "");
    k->limits[k->count] = limit / UNITS_GIGA;
    for (size_t i = 0; i < 3; i++)
        k->values[3 * k->count + i] = i == segment ? rate / UNITS_GIGA : 0;
    k->count++;
}

// What failed first, then what passed, then what was not judged; each rate beside its limit.
static void checks_figure(struct page *p, struct view list) {
    static const char *const words[] = {"FAIL", "PASS"};
    static const char *const names[] = {"fails", "passes", "not judged"};
    static const enum plot_colour colours[] = {PLOT_VERMILLION, PLOT_BLUE, PLOT_LIGHT};
    struct checks k = {.count = 0};
    size_t failed = 0;
    for (size_t segment = 0; segment < 3; segment++)
        for (const cJSON *c = view_first(list); c; c = c->next) {
            const char *status = status_of(c);
            size_t own = 0;
            while (own < 2 && (!status || strcmp(status, words[own]) != 0))
                own++;
            failed += own == 0 && segment == 0;
            if (own == segment)
                add_check(&k, c, segment, p->arena);
        }
    if (k.count == 0)
        return;
    struct plot *plot =
        plot_add(&p->plots, "checks", "Measured rate of each check beside its limit");
    plot->alt =
        arena_printf(p->arena, "%zu of %zu checks fail%s%.80s; the dashed mark is the limit",
                     failed, view_count(list), failed ? ", first " : "", failed ? k.rows[0] : "");
    chart_bars(plot, &(struct chart_bars){.x_label = "GB/s",
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

void page_accept_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema", "command", "model", "cluster",
                                          "checks", "verdict", NULL};
    static const char *const other[] = {"schema",   "command", "model", "cluster",
                                        "findings", "verdict", NULL};
    struct view list = list_of(root);
    bool checks = view_is_array(view_find(root, "checks"));
    checks_figure(p, list);
    verdict_table(p, list, "Checks");
    show_rest(&p->html, root, checks ? handled : other);
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
    size_t i = 0;
    html_raw(h, "<tr><th scope=row>");
    show_value(h, event, "line");
    html_raw(h, "</th><td>");
    show_value(h, event, "kind");
    html_raw(h, "</td><td><code>");
    show_value(h, event, "text");
    html_raw(h, "</code></td><td>");
    html_user(h, view_string(event, "meaning"));
    for (const cJSON *c = view_first(causes); c && i < 8; c = c->next, i++) {
        html_raw(h, i ? "</li><li>" : "<ul><li>");
        show_value(h, view_member(causes, c, i), "what");
        html_raw(h, " ");
        show_value(h, view_member(causes, c, i), "bytes");
    }
    html_raw(h, i ? "</li></ul></td><td>" : "</td><td>");
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
