// SPDX-License-Identifier: Apache-2.0
// Verdicts as tables: accept, check, explain; and files of schemas this program does not know.
#include "page.h"

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

void page_accept_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema", "command", "model", "cluster",
                                          "checks", "verdict", NULL};
    static const char *const other[] = {"schema",   "command", "model", "cluster",
                                        "findings", "verdict", NULL};
    struct view list = list_of(root);
    bool checks = view_is_array(view_find(root, "checks"));
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

void page_other_answer(struct page *p, struct view root) {
    const char *schema = view_string(root, "schema");
    html_raw(&p->html, "<p>A file of ");
    if (schema) {
        html_raw(&p->html, "schema ");
        html_user(&p->html, schema);
    } else {
        html_raw(&p->html, "no stated schema");
    }
    html_raw(&p->html, ", shown as plain tables.</p>\n");
}

void page_other_body(struct page *p, struct view root) {
    static const char *const handled[] = {"schema", "command", NULL};
    show_rest(&p->html, root, handled);
}
