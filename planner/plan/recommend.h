// SPDX-License-Identifier: Apache-2.0
// Pick one plan of a set and say why: the fastest that fits, else what would make one fit.
#pragma once

#include "plan/plan.h"

// Fills s->recommendation. Tries knobs (recompute, chunked loss, micro-batch 1) when nothing fits.
bool recommend(struct plan_set *s, struct plan_workspace *w, struct arena *a, struct err *e);
// The command-line options of a plan, ready to paste: "--strategy zero3 --micro-batch 4 ...".
char *plan_options(const struct plan *p, struct arena *a);
