// SPDX-License-Identifier: Apache-2.0
#include "cost/memory.h"

#include "base/arena.h"
#include "base/units.h"
#include "cost/activation.h"
#include "cost/memory_parts.h"

#include <math.h>

const char *const memory_class_names[MEMORY_CLASS_COUNT] = {
    "params", "grads",       "optimizer", "master",        "gather",
    "bucket", "activations", "logits",    "step_transient"};
const char *const host_class_names[HOST_CLASS_COUNT] = {
    "params",       "grads",       "master",          "optimizer", "staging",
    "swap_buffers", "activations", "pinned_rounding", "load"};
const char *const memory_phase_names[PHASE_COUNT] = {
    "load", "init", "forward", "loss", "backward", "step_first", "step", "save", "resume"};
const char *const fits_state_names[FITS_STATE_COUNT] = {"no", "tight", "yes"};

// Overheads where the catalog knows none; docs/method.md §overheads.
#define CONTEXT_BYTES (0.5 * UNITS_GIB)
#define NCCL_FIRST_BYTES (0.75 * UNITS_GIB)
#define NCCL_NEXT_BYTES (0.25 * UNITS_GIB)
// Reserved over what the pools need: rounding, splits, cached leftovers; docs/method.md §overheads.
#define FRAGMENTATION 0.04
#define FRAGMENTATION_EXPANDABLE 0.01
#define FRAGMENTATION_HIGH 0.12
#define POOLS_LOW 0.95         // spread of measured runs below the pools
#define RECORD_STREAM_POOL 1.5 // a pool of blocks freed by record_stream, over its live peak
#define HOST_USABLE 0.9 // the rest serves the system, its page cache and the processes themselves
#define FSDP1_HIGH 1.3  // reserved over allocated, reported with the all-gather limiter
#define FSDP1_HIGH_UNLIMITED 1.7 // and without

uint64_t memory_local_ranks(const struct cluster *c, const struct recipe *r) {
    uint64_t local = c->gpus_per_node ? c->gpus_per_node : 1;
    uint64_t used = c->gpus ? c->gpus : r->world;
    return used < local ? used : local;
}

uint64_t memory_local_replicas(const struct cluster *c, const struct recipe *r) {
    uint64_t local = memory_local_ranks(c, r) / (r->tp ? r->tp : 1);
    if (local == 0)
        return 1;
    return r->world < local ? r->world : local;
}

static bool to_bytes(double v, uint64_t *out, struct err *e) {
    const double limit = 4611686018427387904.0; // 2^62
    if (!(v >= 0) || v >= limit)
        return err_set(e, ERR_INPUT, "memory: %g bytes do not fit 64 bits", v);
    *out = (uint64_t)(v + 0.5);
    return true;
}

static bool fill_phase(const struct memory_parts *p, const struct memory_host *h, int phase,
                       struct memory_phase_bytes *out, struct err *e) {
    out->allocated_bytes = out->host_bytes = 0;
    for (int k = 0; k < MEMORY_CLASS_COUNT; k++) {
        if (!to_bytes(p->phases[phase].classes[k], &out->classes_bytes[k], e) ||
            !units_add(out->allocated_bytes, out->classes_bytes[k], &out->allocated_bytes, e))
            return false;
    }
    for (int k = 0; k < HOST_CLASS_COUNT; k++) {
        if (!to_bytes(h->classes[phase][k], &out->host_classes_bytes[k], e) ||
            !units_add(out->host_bytes, out->host_classes_bytes[k], &out->host_bytes, e))
            return false;
    }
    return true;
}

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

// Classes are each their own maximum; states are what is resident after the last backward.
static bool fill_classes(const struct memory_parts *p, struct memory *out, struct err *e) {
    for (int k = 0; k <= MEMORY_MASTER; k++)
        if (!to_bytes(p->states[k], &out->classes_bytes[k], e))
            return false;
    out->peak_phase = PHASE_FORWARD;
    for (int i = PHASE_FORWARD; i <= PHASE_STEP; i++) {
        const struct memory_phase_bytes *f = &out->phases[i];
        for (int k = MEMORY_GATHER; k < MEMORY_CLASS_COUNT; k++)
            out->classes_bytes[k] = most(out->classes_bytes[k], f->classes_bytes[k]);
        if (f->allocated_bytes > out->phases[out->peak_phase].allocated_bytes)
            out->peak_phase = (enum memory_phase)i;
        out->host_bytes = most(out->host_bytes, f->host_bytes);
        for (int k = 0; k < HOST_CLASS_COUNT; k++)
            out->host_classes_bytes[k] = most(out->host_classes_bytes[k], f->host_classes_bytes[k]);
    }
    out->allocated_peak_bytes = out->phases[out->peak_phase].allocated_bytes;
    for (int k = 0; k <= MEMORY_MASTER; k++)
        out->steady_bytes += out->classes_bytes[k];
    if (p->recipe->framework == FRAMEWORK_DDP && !p->recipe->gradient_as_bucket_view)
        out->steady_bytes += out->classes_bytes[MEMORY_BUCKET];
    return true;
}

// The compute stream's pool, the side streams' pools and the hole at the loss, with an interval.
static bool fill_reserved(const struct memory_parts *p, struct memory *out, struct err *e) {
    const struct recipe *r = p->recipe;
    double compute = 0, allocated = (double)out->allocated_peak_bytes;
    for (int i = PHASE_FORWARD; i <= PHASE_STEP; i++)
        compute = fmax(compute, (double)out->phases[i].allocated_bytes - p->phases[i].side);
    bool record_stream = recipe_is_fsdp1(r) || recipe_is_stage3(r);
    double side = p->side_peak * (record_stream ? RECORD_STREAM_POOL : 1);
    double core = fmax(allocated, compute + side + p->waste);
    double extra = r->expandable_segments ? FRAGMENTATION_EXPANDABLE : FRAGMENTATION;
    if (record_stream)
        extra = 0; // its pools already carry it
    double high = core * (1 + FRAGMENTATION_HIGH);
    if (recipe_is_fsdp1(r) && recipe_gathers(r))
        high = fmax(high, allocated * (r->limit_all_gathers ? FSDP1_HIGH : FSDP1_HIGH_UNLIMITED));
    return to_bytes(core * (1 + extra), &out->reserved_bytes, e) &&
           to_bytes(POOLS_LOW * fmax(allocated, compute + p->side_peak), &out->reserved_low_bytes,
                    e) &&
           to_bytes(high, &out->reserved_high_bytes, e);
}

static double figure_or(struct figure f, double otherwise) {
    return figure_is_known(f) ? f.value : otherwise;
}

static uint64_t communicators(const struct recipe *r) {
    uint64_t n = 1;
    if (r->replica_group > 1 && r->shard_group > 1)
        n += 2;
    n += (r->tp > 1) + (r->cp > 1) + (r->pp > 1) + (r->ep > 1);
    return r->world > 1 ? n : 0;
}

static bool fill_fits(const struct memory_parts *p, struct memory *out, struct err *e) {
    const struct gpu *g = &p->cluster->gpu;
    uint64_t count = communicators(p->recipe);
    double nccl = 0;
    if (count > 0)
        nccl = figure_or(g->nccl_first_bytes, NCCL_FIRST_BYTES) +
               (double)(count - 1) * figure_or(g->nccl_next_bytes, NCCL_NEXT_BYTES);
    struct figure visible = gpu_visible_bytes(g);
    if (!to_bytes(figure_or(g->context_bytes, CONTEXT_BYTES), &out->context_bytes, e) ||
        !to_bytes(nccl, &out->nccl_bytes, e))
        return false;
    out->framework_bytes = out->context_bytes + out->nccl_bytes;
    out->nvidia_smi_bytes = out->reserved_bytes + out->framework_bytes;
    double capacity = figure_or(visible, 0) - (double)out->framework_bytes;
    if (!to_bytes(fmax(capacity, 0), &out->capacity_bytes, e))
        return false;
    uint64_t need = out->allocated_peak_bytes;
    out->headroom_bytes = (int64_t)out->capacity_bytes - (int64_t)need;
    out->short_bytes = need > out->capacity_bytes ? need - out->capacity_bytes : 0;
    out->fits_state = FITS_TIGHT;
    if (out->short_bytes > 0)
        out->fits_state = FITS_NO;
    else if (out->reserved_high_bytes <= out->capacity_bytes)
        out->fits_state = FITS_YES;
    return true;
}

static bool fill_host(const struct memory_parts *p, const struct memory_host *h, struct memory *out,
                      struct err *e) {
    const struct cluster *c = p->cluster;
    if (!to_bytes(h->pinned, &out->pinned_bytes, e) ||
        !to_bytes(h->pinned_rounding, &out->pinned_rounding_bytes, e) ||
        !to_bytes(h->nvme, &out->nvme_bytes, e))
        return false;
    out->host_known = figure_is_known(c->host_memory_bytes);
    out->nvme_known = figure_is_known(c->nvme_capacity_bytes);
    if (!to_bytes(figure_or(c->host_memory_bytes, 0), &out->host_capacity_bytes, e) ||
        !to_bytes(figure_or(c->nvme_capacity_bytes, 0), &out->nvme_capacity_bytes, e))
        return false;
    double usable = HOST_USABLE * (double)out->host_capacity_bytes;
    out->host_fits = !out->host_known || (double)out->host_bytes <= usable;
    out->nvme_fits = !out->nvme_known || out->nvme_bytes <= out->nvme_capacity_bytes;
    for (int i = 0; i < PHASE_COUNT; i++) {
        const struct memory_phase_bytes *f = &out->phases[i];
        bool host = !out->host_known || (double)f->host_bytes <= usable;
        out->phase_fits[i] = f->allocated_bytes <= out->capacity_bytes && host;
    }
    return true;
}

// The coordinator of stage 3: the caller's memo if it has one, else replayed here.
static bool coordinator(const struct model *m, const struct recipe *r, struct zero3_traffic *out,
                        struct err *e) {
    if (!recipe_is_stage3(r))
        return true;
    if (r->zero3 != NULL) {
        *out = *r->zero3;
        return true;
    }
    struct arena *scratch = arena_create();
    bool ok = zero3_lookup(m, r, scratch, out, e);
    arena_destroy(scratch);
    return ok;
}

bool memory_estimate(const struct model *m, const struct cluster *c, const struct recipe *r,
                     struct memory *out, struct err *e) {
    struct memory_parts p = {.model = m, .cluster = c, .recipe = r};
    struct memory_host host;
    struct memory result = {0};
    if (!memory_sizes_fill(&p, e) || !coordinator(m, r, &p.zero3, e))
        return false;
    memory_states_fill(&p);
    memory_phases_fill(&p);
    memory_host_fill(&p, &host);
    for (int i = 0; i < PHASE_COUNT; i++)
        if (!fill_phase(&p, &host, i, &result.phases[i], e))
            return false;
    if (!fill_classes(&p, &result, e) || !fill_reserved(&p, &result, e) ||
        !fill_fits(&p, &result, e) || !fill_host(&p, &host, &result, e))
        return false;
    bool moe = m->experts > 0;
    result.activation_layer_bytes = activation_layer_full_bytes(m, r, moe);
    result.checkpoint_layer_bytes = activation_layer_kept_bytes(m, r, moe);
    *out = result;
    return true;
}

// Estimate with `gpus` GPUs in nodes of the same shape; the recipe's groups follow.
static bool fits_on(const struct model *m, const struct cluster *c, const struct recipe *r,
                    uint64_t gpus) {
    struct cluster grown = *c;
    struct recipe resized = *r;
    struct memory need;
    grown.gpus = gpus;
    grown.nodes = units_ceil_div(gpus, c->gpus_per_node ? c->gpus_per_node : 1);
    resized.global_batch = 0;
    if (r->shard_group_derived)
        resized.shard_group = 0; // follows the GPUs of a node
    if (!recipe_resolve(&resized, m, &grown, NULL) ||
        !memory_estimate(m, &grown, &resized, &need, NULL))
        return false;
    return need.fits_state != FITS_NO && need.host_fits && need.nvme_fits;
}

uint64_t memory_min_gpus(const struct model *m, const struct cluster *c, const struct recipe *r,
                         uint64_t limit) {
    uint64_t node = c->gpus_per_node ? c->gpus_per_node : 1, high = 1;
    struct zero3_traffic memo; // the coordinator does not depend on the number of GPUs
    struct recipe with_memo = *r;
    if (recipe_is_stage3(r) && r->zero3 == NULL && coordinator(m, r, &memo, NULL)) {
        with_memo.zero3 = &memo;
        r = &with_memo;
    }
    // Doubling, then whole GPUs inside a node or whole nodes beyond it: need falls with more GPUs.
    while (high <= limit && !fits_on(m, c, r, high))
        high *= 2;
    if (high > limit)
        return limit > 0 && fits_on(m, c, r, limit) ? limit : 0;
    uint64_t low = high / 2, unit = high <= node ? 1 : node;
    while (high - low > unit) {
        uint64_t middle = low + (high - low) / 2 / unit * unit;
        if (middle <= low)
            middle = low + unit;
        if (fits_on(m, c, r, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}
