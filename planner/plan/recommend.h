// SPDX-License-Identifier: Apache-2.0
// Pick one plan of a set and say why: the fastest that fits, else what would make one fit.
#pragma once

#include "plan/plan.h"

// Fills s->recommendation. Tries knobs (recompute, chunked loss, micro-batch 1) when nothing fits.
bool recommend(struct plan_set *s, struct plan_workspace *w, struct arena *a, struct err *e);
// What a plan that fits its steps does not survive or is not: loading, building, saving or resuming
// beyond the card, with what helps; nothing to shard over. At most PLAN_NOTES_MAX.
enum { PLAN_NOTES_MAX = 5 };
size_t plan_notes(const struct plan *p, struct arena *a, const char *out[PLAN_NOTES_MAX]);
// The command-line options of a plan, ready to paste: "--strategy zero3 --micro-batch 4 ...".
char *plan_options(const struct plan *p, struct arena *a);
