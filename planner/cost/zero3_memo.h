// SPDX-License-Identifier: Apache-2.0
// Replays of ZeRO-3's coordinator, remembered per (model, recompute, limits): plans that differ in
// anything else share one. Not for use by several threads at once.
#pragma once

#include "cost/zero3.h"

struct zero3_memo;

// Lives and grows in `a`.
struct zero3_memo *zero3_memo_create(struct arena *a);
// The replay with its hooks, valid as long as the memo's arena and `scratch`; NULL on failure. The
// model must stay where it is and as it is.
const struct zero3_traffic *zero3_memo_find(struct zero3_memo *memo, const struct model *m,
                                            const struct recipe *r, struct arena *scratch,
                                            struct err *e);
