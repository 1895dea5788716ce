// SPDX-License-Identifier: Apache-2.0
// Pick one plan of a set and say why: the fastest that fits, else what would make one fit.
#pragma once

#include "plan/plan.h"

// Fills s->recommendation. Tries knobs (recompute, chunked loss, micro-batch 1) when nothing fits.
bool recommend(struct plan_set *s, struct plan_workspace *w, struct arena *a, struct err *e);
