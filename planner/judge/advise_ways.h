// SPDX-License-Identifier: Apache-2.0
// The ways out that `advise` compares: each is the best plan of a small sweep on changed hardware.
#pragma once

#include "judge/advise.h"

// Fills v->ways and v->gib_worth_s; v->plans is there.
// Where the plan of `best` is tight: the best that surely fits the same hardware, offloaded only if
// it must be; else, or when there is none, !possible.
bool advise_safe(const struct advise_request *q, const struct advise_way *best, struct arena *a,
                 struct advise_way *safe, struct err *e);
bool advise_ways(const struct advise_request *q, struct arena *a, struct advice *v, struct err *e);
