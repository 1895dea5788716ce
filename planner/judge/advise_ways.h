// SPDX-License-Identifier: Apache-2.0
// The ways out that `advise` compares: each is the best plan of a small sweep on changed hardware.
#pragma once

#include "judge/advise.h"

// Fills v->ways and v->gib_worth_s; v->plans is there.
bool advise_ways(const struct advise_request *q, struct arena *a, struct advice *v, struct err *e);
