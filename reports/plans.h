// SPDX-License-Identifier: Apache-2.0
// What plan, sweep and advise results have in common: a list of plans and figures drawn from it.
#pragma once

#include "page.h"

#define PLANS_SHOWN 16 // bars in one picture
#define PLANS_ALIKE 8  // of one strategy

struct plans {
    struct view *items;
    const char **labels; // "zero3, optimizer on cpu"; plans that differ otherwise get more words
    const char **titles; // the same without the words that tell plans of one strategy apart
    const char **names;  // labels in brief, less the title where all plans share one
    const char *shared;  // that title; NULL: they differ
    size_t count;
    size_t recommended; // SIZE_MAX: none
};

// From an array of plans; `recommended` as in recommendation.plan_index (NAN: none).
struct plans plans_read(struct view array, double recommended);
size_t plans_fastest(const struct plans *s); // that fits, by step time; SIZE_MAX: none or no times
// Which plans a picture shows, in their order: all, or the recommended one, the first of each title
// (those that fit first) and then the first of the list. Returns how many.
size_t plans_pick(const struct plans *s, size_t picked[PLANS_SHOWN]);

const char *plans_fits(struct view plan); // "yes", "tight", "no" or "not known"
void plans_table(struct page *p, const struct plans *s, const char *caption);

// Figures; each adds itself to the page, or a sentence where the data is missing.
void plans_memory_figure(struct page *p, const struct plans *s);
void plans_phases_figure(struct page *p, const struct plans *s, size_t index);
void plans_volume_figure(struct page *p, const struct plans *s);
void plans_time_figure(struct page *p, const struct plans *s);
// Tokens per second and GPU over GPUs, beside what no loss from the first size on would give.
struct plans_scaling {
    const char *heading, *alt;
    const double *gpus, *rate; // tokens per second and GPU; `count` of each
    size_t count;
};
void plans_scaling_figure(struct page *p, const struct plans_scaling *s);
// The measured run nearest to each plan and its error; a note when no plan names one.
void plans_nearest(struct page *p, const struct plans *s);
