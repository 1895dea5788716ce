// SPDX-License-Identifier: Apache-2.0
// The page: an answer per result, then a section per result with its figures and tables.
#pragma once

#include "html.h"
#include "load.h"
#include "plot.h"
#include "show.h"
#include "view.h"

struct page {
    struct html html;
    struct plot_set plots;
    struct arena *arena;
    const struct results *results; // all files given, for sections that draw on another one
};

// Writers of one kind of result. `answer` is a few sentences for the top of the page; `body` is
// the section below its heading. Both take the result's root.
typedef void page_writer(struct page *p, struct view root);
struct page_section {
    page_writer *answer, *body;
};

void page_plan_answer(struct page *p, struct view root);
void page_plan_body(struct page *p, struct view root);
void page_step_answer(struct page *p, struct view root);
void page_step_body(struct page *p, struct view root);
void page_sweep_answer(struct page *p, struct view root);
void page_sweep_body(struct page *p, struct view root);
void page_advise_answer(struct page *p, struct view root);
void page_advise_body(struct page *p, struct view root);
void page_bench_answer(struct page *p, struct view root);
void page_bench_body(struct page *p, struct view root);
void page_confirm_answer(struct page *p, struct view root);
void page_confirm_body(struct page *p, struct view root);
void page_accept_answer(struct page *p, struct view root);
void page_accept_body(struct page *p, struct view root);
void page_validate_answer(struct page *p, struct view root);
void page_validate_body(struct page *p, struct view root);
void page_fit_answer(struct page *p, struct view root);
void page_fit_body(struct page *p, struct view root);
void page_rehearse_answer(struct page *p, struct view root);
void page_rehearse_body(struct page *p, struct view root);
void page_findings_answer(struct page *p, struct view root);
void page_findings_body(struct page *p, struct view root); // check
void page_explain_answer(struct page *p, struct view root);
void page_explain_body(struct page *p, struct view root);
void page_plain_answer(struct page *p, struct view root);
void page_plain_body(struct page *p, struct view root);

// Where a figure belongs; its picture is put there when the page is complete.
void page_figure(struct page *p, struct plot *plot);
void page_heading(struct page *p, const char *text); // <h3>, constant text
// The line that reproduces the result, when the file states it.
void page_command(struct page *p, struct view root);
// Model, cluster and such as "llama-2-7b on dgx-a100, 8 GPUs"; missing parts are left out.
void page_subject(struct page *p, struct view root);
// What a recommendation's choice says to do ("Offload"); NULL for a word that is not one.
const char *page_choice(const char *choice);
// A table of every {"value", "provenance", ...} in a catalog's entry or a cluster file.
void page_figures(struct page *p, struct view entry);
// "<verdict class>": a coloured word with text for those who do not see colour.
void page_badge(struct page *p, const char *status);

// Key figures under the answer: page_facts_open, page_fact of each, page_facts_close. A figure that
// the file does not state is left out; `of` is a second one it is part of, or NULL.
void page_facts_open(struct page *p);
void page_fact(struct page *p, const char *name, struct view parent, const char *dotted,
               const char *of);
void page_facts_close(struct page *p);

// All sections written, nothing drawn. Then page_assemble after gnuplot_draw gives the final text,
// malloc'd.
void page_write(struct page *p, const struct results *r);
char *page_assemble(struct page *p, size_t *bytes);
