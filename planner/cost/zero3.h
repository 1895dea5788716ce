// SPDX-License-Identifier: Apache-2.0
// DeepSpeed ZeRO-3's parameter coordinator: what is gathered, prefetched, kept and released, module
// by module; docs/method.md §zero3. Pure; memoised by the caller per (model, recompute, limits).
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "describe/model.h"
#include "describe/recipe.h"

#include <stdbool.h>
#include <stdint.h>

struct zero3_traffic {
    uint64_t forward_elements, backward_elements; // gathered in one steady micro-step
    uint64_t calls, forward_calls;                // all-gather calls
    uint64_t peak_live_elements;                  // non-persistent elements gathered at once
    uint64_t forward_peak_elements;               // the same, until the end of forward
    uint64_t persistent_elements;
    uint64_t largest_handle_elements; // biggest coalesced gather
    uint64_t largest_parameter_elements;
};

// `scratch` holds a few hundred bytes per module while the call runs; the caller resets it.
bool zero3_simulate(const struct model *m, const struct recipe *r, struct arena *scratch,
                    struct zero3_traffic *out, struct err *e);

// The recipe's memo (recipe.zero3) when it has one, else zero3_simulate.
bool zero3_lookup(const struct model *m, const struct recipe *r, struct arena *scratch,
                  struct zero3_traffic *out, struct err *e);
