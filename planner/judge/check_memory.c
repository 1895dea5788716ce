// SPDX-License-Identifier: Apache-2.0
// Does it fit: GPU by phase, host, NVMe, and what shard groups of one are worth.
#include "judge/check_rules.h"

#include <math.h>
#include <string.h>

static void rule_gpu(struct check *k) {
    const struct memory *m = k->memory;
    const struct recipe *r = k->r;
    if (m->fits_state != FITS_NO)
        return;
    double weights = (double)k->m->parameters * dtype_bytes(r->param_dtype);
    bool whole = r->strategy == STRATEGY_ZERO1 || r->strategy == STRATEGY_ZERO2 ||
                 r->strategy == STRATEGY_DDP;
    bool never = whole && weights > (double)m->capacity_bytes;
    check_add(k,
              (struct finding){
                  .id = never ? "never-fits" : "gpu-memory",
                  .severity = SEVERITY_ERROR,
                  .path = "recipe.strategy",
                  .text = never ? arena_printf(k->a,
                                               "every GPU holds all weights under %s: %s of %s; no "
                                               "number of GPUs helps",
                                               strategy_names[r->strategy], check_gib(k, weights),
                                               check_gib(k, (double)m->capacity_bytes))
                                : arena_printf(k->a, "peak %s in %s, %s more than the GPU has",
                                               check_gib(k, (double)m->allocated_peak_bytes),
                                               memory_phase_names[m->peak_phase],
                                               check_gib(k, (double)m->short_bytes)),
                  .cost_bytes = (double)m->short_bytes,
                  .fix = never ? "zero3 or fsdp2"
                               : "see `shardplan advise`: recompute, offload, more GPUs"});
}

static void rule_phases(struct check *k) {
    static const enum memory_phase phases[] = {PHASE_LOAD, PHASE_INIT, PHASE_SAVE, PHASE_RESUME};
    const struct memory *m = k->memory;
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
        const struct memory_phase_bytes *p = &m->phases[phases[i]];
        if (m->phase_fits[phases[i]] || m->fits_state == FITS_NO)
            continue;
        bool gpu = p->allocated_bytes > m->capacity_bytes;
        check_add(
            k, (struct finding){
                   .id = "phase-memory",
                   .severity = SEVERITY_ERROR,
                   .path = "recipe.strategy",
                   .text = arena_printf(
                       k->a, "training fits, %s does not: %s on %s", memory_phase_names[phases[i]],
                       check_gib(k, (double)(gpu ? p->allocated_bytes : p->host_bytes)),
                       gpu ? "the GPU" : "each node's host"),
                   .cost_bytes = gpu ? (double)(p->allocated_bytes - m->capacity_bytes)
                                     : (double)p->host_bytes,
                   .fix = phases[i] == PHASE_SAVE
                              ? "a sharded checkpoint"
                              : "load shard by shard: zero.Init, the meta device, or rank 0 "
                                "alone"});
    }
}

// Where only the rounding of pinned buffers is too much.
static struct edit unpin(const struct check *k, enum offload where, const char *section) {
    const struct memory *m = k->memory;
    bool rounding =
        !m->host_fits && m->host_bytes - m->pinned_rounding_bytes <= m->host_capacity_bytes;
    if (where == OFFLOAD_NONE || !rounding || k->out->facts.kind != CONFIG_DEEPSPEED)
        return (struct edit){EDIT_NONE, NULL, NULL};
    return (struct edit){EDIT_SET, arena_printf(k->a, "zero_optimization.%s.pin_memory", section),
                         "false"};
}

static void rule_host(struct check *k) {
    const struct memory *m = k->memory;
    const struct recipe *r = k->r;
    bool offload = r->offload_optimizer != OFFLOAD_NONE || r->offload_param != OFFLOAD_NONE;
    if (!offload || !m->host_known)
        return;
    double need = (double)m->host_bytes, have = (double)m->host_capacity_bytes;
    double rounding = (double)m->pinned_rounding_bytes;
    bool unpinned = need - rounding <= have;
    if (!m->host_fits || need > 0.9 * have)
        check_add(k, (struct finding){
                         .id = "host-memory",
                         .severity = m->host_fits ? SEVERITY_WARNING : SEVERITY_ERROR,
                         .path = "recipe.offload_optimizer",
                         .text = arena_printf(
                             k->a,
                             "offload needs %s of each node's %s%s; the kernel kills the run (exit "
                             "-9) when it runs out",
                             check_gib(k, need), check_gib(k, have),
                             rounding > 0 && !m->host_fits && unpinned
                                 ? " (without the rounding of pinned buffers it would fit)"
                                 : ""),
                         .cost_bytes = need - have > 0 ? need - have : NAN,
                         .fix = !m->host_fits && unpinned
                                    ? "pin_memory false"
                                    : "NVMe for the optimizer, more nodes, or less offload",
                         .edits = {unpin(k, r->offload_optimizer, "offload_optimizer"),
                                   unpin(k, r->offload_param, "offload_param")}});
    if (rounding > 0.15 * need)
        check_add(k, (struct finding){
                         .id = "pinned-rounding",
                         .severity = SEVERITY_WARNING,
                         .path = "recipe.pin_memory",
                         .text = arena_printf(k->a,
                                              "pinned buffers are rounded up to powers of two: %s "
                                              "of %s per node is rounding",
                                              check_gib(k, rounding), check_gib(k, need)),
                         .cost_bytes = rounding,
                         .fix = "pin_memory false where host memory is short"});
}

static void rule_nvme(struct check *k) {
    const struct memory *m = k->memory;
    bool nvme = k->r->offload_optimizer == OFFLOAD_NVME || k->r->offload_param == OFFLOAD_NVME;
    if (!nvme || !m->nvme_known || m->nvme_fits)
        return;
    check_add(k, (struct finding){
                     .id = "nvme-capacity",
                     .severity = SEVERITY_ERROR,
                     .path = "recipe.offload_optimizer",
                     .text = arena_printf(k->a, "NVMe offload needs %s per node, the node has %s",
                                          check_gib(k, (double)m->nvme_bytes),
                                          check_gib(k, (double)m->nvme_capacity_bytes)),
                     .cost_bytes = (double)(m->nvme_bytes - m->nvme_capacity_bytes),
                     .fix = "more nodes, or the CPU for one of the two"});
}

static void rule_shard_degree(struct check *k) {
    const struct recipe *r = k->r;
    if (r->world != 1 || r->strategy == STRATEGY_DDP)
        return;
    bool offload = r->offload_optimizer != OFFLOAD_NONE;
    if (offload)
        return; // on one GPU, stage 3 is how offload is had
    check_add(k, (struct finding){.id = "shard-degree-one",
                                  .severity = SEVERITY_WARNING,
                                  .path = "recipe.strategy",
                                  .text = "shard degree = 1: one GPU has nothing to shard with, so "
                                          "sharding saves nothing",
                                  .fix = "more GPUs, offload, or LoRA"});
}

static void rule_foreach(struct check *k) {
    const struct memory *m = k->memory;
    const struct memory_phase_bytes *p = &m->phases[m->peak_phase];
    double transient = (double)p->classes_bytes[MEMORY_STEP_TRANSIENT];
    bool step = m->peak_phase == PHASE_STEP || m->peak_phase == PHASE_STEP_FIRST;
    if (!k->r->optimizer_foreach || k->r->optimizer_fused || m->fits_state == FITS_YES || !step ||
        transient <= 0)
        return;
    check_add(k, (struct finding){
                     .id = "foreach-optimizer",
                     .severity = SEVERITY_WARNING,
                     .path = "recipe.optimizer_foreach",
                     .text = arena_printf(k->a,
                                          "torch's foreach AdamW keeps a temporary of one state "
                                          "(%s), and the step is the peak",
                                          check_gib(k, transient)),
                     .cost_bytes = transient,
                     .fix = "AdamW(fused=True)",
                     .edits = {check_set(k, "optimizer_fused", "fused")}});
}

static void rule_tight(struct check *k) {
    const struct memory *m = k->memory;
    if (m->fits_state != FITS_TIGHT)
        return;
    check_add(k,
              (struct finding){
                  .id = "tight",
                  .severity = SEVERITY_WARNING,
                  .path = "recipe.strategy",
                  .text = arena_printf(k->a,
                                       "allocated peak %s fits, but the allocator may reserve up "
                                       "to %s of %s: expect cache flushes",
                                       check_gib(k, (double)m->allocated_peak_bytes),
                                       check_gib(k, (double)m->reserved_high_bytes),
                                       check_gib(k, (double)m->capacity_bytes)),
                  .fix = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or a smaller "
                         "micro-batch"});
}

check_rule *const check_rules_memory[] = {
    rule_gpu, rule_phases, rule_host, rule_nvme, rule_shard_degree, rule_foreach, rule_tight, NULL,
};
