// SPDX-License-Identifier: Apache-2.0
// The figures a plan stood on, and which assumed ones would change the answer.
#pragma once

#include "plan/plan.h"

// Fills s->inputs and s->assumptions; the latter by re-simulating the recommended plan with each
// assumed figure at both ends of its interval.
bool plan_inputs(struct plan_set *s, struct plan_workspace *w, struct arena *a, struct err *e);
