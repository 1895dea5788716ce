// SPDX-License-Identifier: Apache-2.0
#include "page.h"

#include "base/build.h"
#include "gnuplot.h"
#include "style.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIGURE_MARK '\x01' // cannot come from a file: html_text turns controls into spaces

static const struct page_section sections[] = {
    [RESULT_ADVISE] = {page_advise_answer, page_advise_body},
    [RESULT_PLAN] = {page_plan_answer, page_plan_body},
    [RESULT_CONFIRM] = {page_confirm_answer, page_confirm_body},
    [RESULT_SIMULATE] = {page_step_answer, page_step_body},
    [RESULT_SWEEP] = {page_sweep_answer, page_sweep_body},
    [RESULT_ACCEPT] = {page_accept_answer, page_accept_body},
    [RESULT_CHECK] = {page_findings_answer, page_findings_body},
    [RESULT_EXPLAIN] = {page_explain_answer, page_explain_body},
    [RESULT_MEASUREMENT] = {page_bench_answer, page_bench_body},
    [RESULT_FIT] = {page_fit_answer, page_fit_body},
    [RESULT_REHEARSE] = {page_rehearse_answer, page_rehearse_body},
    [RESULT_VALIDATE] = {page_validate_answer, page_validate_body},
    [RESULT_PLAIN] = {page_plain_answer, page_plain_body},
};
_Static_assert(sizeof sections / sizeof *sections == RESULT_KIND_COUNT, "one per kind");

void page_figure(struct page *p, struct plot *plot) {
    for (size_t i = 0; i < p->plots.count; i++)
        if (p->plots.plots[i] == plot)
            html_printf(&p->html, "%c%zu%c\n", FIGURE_MARK, i, FIGURE_MARK);
}

void page_heading(struct page *p, const char *text) {
    html_raw(&p->html, "<h3>");
    html_text(&p->html, text);
    html_raw(&p->html, "</h3>\n");
}

void page_command(struct page *p, struct view root) {
    const char *command = view_string(root, "command");
    if (!command) {
        html_raw(&p->html, "<p class=note>The file does not state the command that made it.</p>\n");
        return;
    }
    html_raw(&p->html, "<p>To reproduce this:</p><pre class=command tabindex=0><code>");
    html_user(&p->html, command);
    html_raw(&p->html, "</code></pre>\n");
}

static const char *name_of(struct view root, const char *key) {
    const char *direct = view_string(root, key);
    return direct ? direct : view_string(view_find(root, key), "name");
}

// "4 nodes" or, of a sweep, "2, 4, 8 nodes".
static void put_nodes(struct page *p, struct view root) {
    struct view swept = view_find(root, "space.nodes");
    double nodes = view_number(root, "cluster.nodes");
    size_t i = 0;
    if (view_count(swept) < 2) {
        if (!isnan(nodes))
            html_printf(&p->html, " in %.0f node%s", nodes, nodes == 1 ? "" : "s");
        return;
    }
    for (const cJSON *c = view_first(swept); c && i < 8; c = c->next, i++)
        html_printf(&p->html, "%s%.0f", i ? ", " : "", c->valuedouble);
    html_raw(&p->html, i < view_count(swept) ? "\xe2\x80\xa6 nodes" : " nodes");
}

void page_subject(struct page *p, struct view root) {
    const char *model = name_of(root, "model"), *cluster = name_of(root, "cluster");
    double gpus = view_number(root, "cluster.gpus");
    bool swept = view_count(view_find(root, "space.nodes")) > 1;
    if (model)
        html_user(&p->html, model);
    if (cluster) {
        html_raw(&p->html, model ? " on " : "");
        html_user(&p->html, cluster);
    }
    if (swept || !isnan(gpus))
        html_raw(&p->html, model || cluster ? ", " : "");
    if (!swept && !isnan(gpus))
        html_printf(&p->html, "%.0f GPU%s", gpus, gpus == 1 ? "" : "s");
    put_nodes(p, root);
}

const char *page_choice(const char *choice) {
    static const struct {
        const char *choice, *words;
    } known[] = {{"as_is", "Run it as it is"},
                 {"change_knobs", "Change these settings"},
                 {"offload", "Offload"},
                 {"more_bandwidth", "Buy bandwidth"},
                 {"more_gpus", "It needs more GPUs"},
                 {"impossible", "Not possible here"}};
    for (size_t i = 0; choice && i < sizeof known / sizeof *known; i++)
        if (strcmp(choice, known[i].choice) == 0)
            return known[i].words;
    return NULL;
}

void page_badge(struct page *p, const char *status) {
    static const struct {
        const char *word, *class;
    } known[] = {{"yes", "good"},      {"pass", "good"},    {"no", "bad"},
                 {"fail", "bad"},      {"error", "bad"},    {"tight", "warn"},
                 {"waived", "warn"},   {"nodata", "warn"},  {"warning", "warn"},
                 {"unproven", "warn"}, {"assumed", "warn"}, {"oracle", "good"},
                 {"measured", "good"}, {"fitted", "good"}};
    char word[32];
    const char *class = "plain";
    html_clean(word, sizeof word, status, 24);
    for (char *c = word; *c; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c - 'A' + 'a');
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(word, known[i].word) == 0)
            class = known[i].class;
    html_printf(&p->html, "<span class=\"badge %s\">", class);
    html_user(&p->html, status);
    html_raw(&p->html, "</span>");
}

void page_facts_open(struct page *p) {
    html_raw(&p->html, "<dl class=facts>");
}

void page_fact(struct page *p, const char *name, struct view parent, const char *dotted,
               const char *of) {
    if (view_is_missing(view_find(parent, dotted)))
        return;
    html_raw(&p->html, "<div><dt>");
    html_text(&p->html, name);
    html_raw(&p->html, "</dt><dd>");
    show_value(&p->html, parent, dotted);
    if (of && !isnan(view_number(parent, of))) {
        html_raw(&p->html, " <small>of ");
        show_value(&p->html, parent, of);
        html_raw(&p->html, "</small>");
    }
    html_raw(&p->html, "</dd></div>");
}

void page_facts_close(struct page *p) {
    html_raw(&p->html, "</dl>\n");
}

static void write_head(struct page *p, const struct results *r) {
    struct html *h = &p->html;
    html_raw(h, "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
                "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src "
                "'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
                "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
                "<meta name=color-scheme content=\"light dark\">\n"
                "<link rel=icon href=\"data:,\">\n<title>shardplan report");
    for (size_t i = 0; i < r->count && i < 1; i++) {
        struct view root = view_root(r->items[i].root, p->arena);
        const char *model = name_of(root, "model");
        html_raw(h, model ? ": " : "");
        html_text(h, model);
    }
    html_raw(h, "</title>\n<style>\n");
    html_raw(h, style_sheet);
    html_raw(h,
             "</style>\n</head>\n<body>\n<a class=skip href=\"#answer\">Skip to the answer</a>\n");
    html_raw(h, style_shapes);
}

static void section_link(struct page *p, const struct results *r, size_t i) {
    html_printf(&p->html, "<a href=\"#result-%zu\">", i);
    html_text(&p->html, r->items[i].title);
    html_raw(&p->html, "</a>");
}

// The first result that names a model or a cluster; else what the first result is.
static void write_title(struct page *p, const struct results *r) {
    for (size_t i = 0; i < r->count; i++) {
        struct view root = view_root(r->items[i].root, p->arena);
        if (name_of(root, "model") || name_of(root, "cluster")) {
            page_subject(p, root);
            return;
        }
    }
    html_text(&p->html, r->items[0].title);
}

static bool same_subject(struct view x, struct view y) {
    static const char *const keys[] = {"model", "cluster"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *p = name_of(x, keys[i]), *q = name_of(y, keys[i]);
        if (p && q && strcmp(p, q) != 0)
            return false;
    }
    double p = view_number(x, "cluster.gpus"), q = view_number(y, "cluster.gpus");
    return isnan(p) || isnan(q) || p == q;
}

// Results of different models or clusters: each answer says whose it is.
static bool subjects_differ(struct page *p, const struct results *r) {
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < i; k++)
            if (!same_subject(view_root(r->items[i].root, p->arena),
                              view_root(r->items[k].root, p->arena)))
                return true;
    return false;
}

static void write_answers(struct page *p, const struct results *r) {
    struct html *h = &p->html;
    bool differ = subjects_differ(p, r);
    html_raw(h, "<header><p class=brand>shardplan report</p><h1>");
    if (r->count)
        write_title(p, r);
    html_raw(h, "</h1>\n");
    if (r->count > 1) {
        html_raw(h, "<nav aria-label=Sections><ul>");
        for (size_t i = 0; i < r->count; i++) {
            html_raw(h, "<li>");
            section_link(p, r, i);
            html_raw(h, "</li>");
        }
        html_raw(h, "</ul></nav>");
    }
    html_raw(h, "</header>\n<main>\n<section id=answer aria-labelledby=answer-title>"
                "<h2 id=answer-title>The answer</h2>\n");
    for (size_t i = 0; i < r->count; i++) {
        h->file = (int)i;
        html_raw(h, r->count > 1 ? "<div class=answer><p class=from>" : "<div class=answer>");
        if (r->count > 1) {
            struct view root = view_root(r->items[i].root, p->arena);
            bool named = name_of(root, "model") || name_of(root, "cluster");
            section_link(p, r, i);
            if (differ && named) {
                html_raw(h, ": ");
                page_subject(p, root);
            }
            html_raw(h, "</p>");
        }
        sections[r->items[i].kind].answer(p, view_root(r->items[i].root, p->arena));
        html_raw(h, "</div>\n");
    }
    html_raw(h, "</section>\n");
}

void page_write(struct page *p, const struct results *r) {
    struct html *h = &p->html;
    p->results = r;
    write_head(p, r);
    write_answers(p, r);
    for (size_t i = 0; i < r->count; i++) {
        struct view root = view_root(r->items[i].root, p->arena);
        h->file = (int)i;
        html_printf(
            h, "<section id=\"result-%zu\" aria-labelledby=\"title-%zu\"><h2 id=\"title-%zu\">", i,
            i, i);
        html_text(h, r->items[i].title);
        html_raw(h, " <small>");
        html_user(h, r->items[i].name);
        html_raw(h, "</small></h2>\n");
        if (r->items[i].cut)
            html_raw(h, "<p class=missing>The file's last line was cut off, as by a crash: it is "
                        "left out.</p>\n");
        sections[r->items[i].kind].body(p, root);
        page_command(p, root);
        html_raw(h, "</section>\n");
    }
    html_raw(h, "</main>\n<footer><p>Written by shardreport ");
    html_text(h, build_version());
    html_raw(h,
             ". Memory in GiB (2<sup>30</sup> bytes), rates in GB/s (10<sup>9</sup> bytes per "
             "second). An en dash means that the file does not state the figure. The plots' data "
             "and gnuplot scripts are in <code>plots/</code>.</p></footer>\n</body>\n</html>\n");
}

static void put_picture(struct html *h, const struct plot *p, size_t index, bool narrow) {
    char id[32];
    snprintf(id, sizeof id, "p%zu%c", index, narrow ? 'n' : 'w');
    const char *svg = narrow ? p->narrow_svg : p->wide_svg;
    char *markup =
        svg ? gnuplot_inline(svg, id, narrow ? "plot narrow" : "plot wide", p->alt) : NULL;
    if (markup)
        html_raw(h, markup);
    else
        html_raw(h, "<p class=missing>No picture: gnuplot's output was not understood.</p>");
    free(markup);
}

static void put_caption(struct html *h, const struct plot *p) {
    size_t end = strlen(p->alt);
    html_raw(h, "<figcaption><b>");
    html_text(h, p->heading);
    html_raw(h, "</b> ");
    html_text(h, p->alt);
    html_raw(h, end && strchr(".!?", p->alt[end - 1]) ? "</figcaption>" : ".</figcaption>");
}

// What it shows and what is found in it, then the picture.
static void put_figure(struct html *h, const struct plot *p, size_t index) {
    html_printf(h, "<figure id=\"figure-%s\">", p->name);
    put_caption(h, p);
    if (p->trouble) {
        html_raw(h, "<p class=missing>No picture: ");
        html_text(h, p->trouble);
        html_raw(h, ".</p>");
    } else {
        put_picture(h, p, index, false);
        put_picture(h, p, index, true);
    }
    html_raw(h, "</figure>");
}

char *page_assemble(struct page *p, size_t *bytes) {
    struct html out;
    html_init(&out);
    html_finish(&p->html);
    for (const char *c = p->html.text; *c;) {
        if (*c != FIGURE_MARK) {
            size_t run = strcspn(c, "\x01");
            fwrite(c, 1, run, out.out);
            c += run;
            continue;
        }
        char *end;
        size_t index = strtoul(c + 1, &end, 10);
        put_figure(&out, p->plots.plots[index], index);
        c = end + 1;
    }
    html_finish(&out);
    *bytes = out.bytes;
    return out.text;
}
