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

// Gathers of the parameters of one size: padding depends on the group, the replay does not.
#define ZERO3_SIZES_MAX 24
struct zero3_size {
    uint64_t numel;
    uint32_t forward, backward, persistent; // gathers in one micro-step; persistent parameters
};

struct zero3_hook;
struct zero3_traffic {
    struct zero3_size sizes[ZERO3_SIZES_MAX];
    uint32_t size_count;
    uint64_t forward_elements, backward_elements; // gathered in one steady micro-step
    uint64_t calls, forward_calls;                // all-gather calls
    uint64_t peak_live_elements;                  // non-persistent elements gathered at once
    uint64_t forward_peak_elements;               // the same, until the end of forward
    uint64_t persistent_elements, persistent_parameters;
    uint64_t largest_handle_elements; // biggest coalesced gather
    uint64_t largest_parameter_elements;
    const struct zero3_hook *hooks; // every pre-hook of the micro-step, or NULL: not kept
    uint32_t hook_count;
};

// What one pre-hook did, for callers that time it. Gathers are numbered in issue order from 0: the
// hook's demand fetch comes first, then its prefetch.
struct zero3_hook {
    uint32_t unit; // instance in forward order; UINT32_MAX for the root module
    bool backward; // after the turn; recomputed forwards count as backward
    uint64_t demand_elements, prefetch_elements; // 0 = not issued
    uint64_t live_elements;                      // gathered after both
    int64_t newest_gather; // latest gather that brought one of the module's parameters; -1 = none
};
struct zero3_watch {
    void (*hook)(void *context, const struct zero3_hook *h);
    void *context;
};

// `scratch` holds a few hundred bytes per module while the call runs; the caller resets it.
bool zero3_simulate(const struct model *m, const struct recipe *r, struct arena *scratch,
                    struct zero3_traffic *out, struct err *e);
// The same, reporting every pre-hook of the micro-step to `watch`.
bool zero3_observe(const struct model *m, const struct recipe *r, struct arena *scratch,
                   const struct zero3_watch *watch, struct zero3_traffic *out, struct err *e);

// Elements by which gathering each parameter padded to a multiple of `ranks` exceeds the traffic's.
struct zero3_padding {
    double forward, backward, persistent;
};
struct zero3_padding zero3_padding(const struct zero3_traffic *t, uint64_t ranks);

// LoRA's adapters, which the replay of the base model leaves out. They are modules beside their
// linear layers: small ones persist like any parameter, the others are gathered with the base.
struct zero3_adapters {
    double persistent_parameters, persistent_elements;
    double per_element; // gathered with each element of the base
};
struct zero3_adapters zero3_adapters(const struct model *m, const struct recipe *r,
                                     const struct zero3_traffic *t);

// The same with the hooks kept in `a`.
bool zero3_record(const struct model *m, const struct recipe *r, struct arena *a,
                  struct arena *scratch, struct zero3_traffic *out, struct err *e);
// The recipe's memo (recipe.zero3) when it has one, else zero3_simulate.
bool zero3_lookup(const struct model *m, const struct recipe *r, struct arena *scratch,
                  struct zero3_traffic *out, struct err *e);
