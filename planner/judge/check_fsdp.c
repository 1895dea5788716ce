// SPDX-License-Identifier: Apache-2.0
// Traps of FSDP, accelerate and mixed precision, and of fine-tuning with frozen weights.
#include "judge/check_rules.h"

#include <math.h>
#include <string.h>

static bool fsdp(const struct check *k) {
    return recipe_is_fsdp1(k->r) || recipe_is_fsdp2(k->r);
}

static double gathered(const struct check *k) {
    return (double)k->m->parameters * dtype_bytes(recipe_gather_dtype(k->r));
}

static void rule_wrap(struct check *k) {
    if (!fsdp(k) || k->r->wrap != WRAP_MODEL)
        return;
    double bytes = gathered(k);
    check_add(k, (struct finding){
                     .id = "no-wrap",
                     .severity = bytes > (double)k->memory->capacity_bytes ? SEVERITY_ERROR
                                                                           : SEVERITY_WARNING,
                     .path = "recipe.wrap",
                     .text = arena_printf(k->a,
                                          "no auto-wrap policy: the model is one unit, gathered "
                                          "whole (%s) on every GPU with nothing to overlap",
                                          check_gib(k, bytes)),
                     .cost_bytes = bytes,
                     .fix = "fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP",
                     .edits = {check_set(k, "wrap", "TRANSFORMER_BASED_WRAP")}});
}

static void rule_autocast(struct check *k) {
    double bytes = 2 * (double)k->m->parameters;
    if (!fsdp(k) || k->r->precision != PRECISION_AMP_BF16 || k->r->recompute == RECOMPUTE_FULL)
        return;
    check_add(k, (struct finding){.id = "autocast",
                                  .severity = SEVERITY_WARNING,
                                  .path = "recipe.precision",
                                  .text = "autocast without FSDP's mixed precision gathers fp32 "
                                          "and saves a 16-bit copy of every weight until backward",
                                  .cost_bytes = bytes,
                                  .fix = "MixedPrecision(param_dtype=bfloat16)",
                                  .edits = {check_set(k, "precision", "bf16")}});
}

static void rule_full_precision(struct check *k) {
    if (k->r->precision != PRECISION_FP32 || k->m->parameters < 500000000)
        return;
    double n = (double)k->r->world, psi = (double)k->m->parameters;
    check_add(k, (struct finding){
                     .id = "no-mixed-precision",
                     .severity = SEVERITY_WARNING,
                     .path = "recipe.precision",
                     .text = "mixed precision is off: matmuls run in fp32, activations and "
                             "gathered weights take twice the bytes",
                     .cost_s = n > 1 ? check_seconds(k, 2 * psi * (n - 1) / n) : NAN,
                     .fix = k->out->facts.kind == CONFIG_DEEPSPEED ? "bf16 {\"enabled\": true}"
                                                                   : "mixed_precision bf16",
                     .edits = {k->out->facts.kind == CONFIG_DEEPSPEED
                                   ? (struct edit){EDIT_SET, "bf16.enabled", "true"}
                                   : check_set(k, "precision", "bf16")}});
}

static void rule_pure_bf16(struct check *k) {
    if (!fsdp(k) || k->r->precision != PRECISION_BF16_PURE)
        return;
    check_add(k, (struct finding){.id = "pure-bf16",
                                  .severity = SEVERITY_WARNING,
                                  .path = "recipe.precision",
                                  .text = "weights and Adam states in bf16: small updates round to "
                                          "nothing (states are 8 B per parameter, not 16)",
                                  .fix = "load in fp32 and train with mixed precision bf16",
                                  .edits = {check_set(k, "precision", "bf16")}});
}

static void rule_bf16_hardware(struct check *k) {
    bool bf16 = k->r->compute_dtype == DTYPE_BF16;
    bool has = figure_is_known(k->c->gpu.peak_flop_per_s[DTYPE_BF16]);
    if (!bf16 || has || !figure_is_known(k->c->gpu.peak_flop_per_s[DTYPE_FP16]))
        return;
    check_add(k, (struct finding){
                     .id = "no-bf16-units",
                     .severity = SEVERITY_ERROR,
                     .path = "recipe.precision",
                     .text = arena_printf(k->a, "%s has no bf16 matrix units", k->c->gpu.name),
                     .fix = "fp16 with loss scaling"});
}

static void rule_no_sync(struct check *k) {
    const struct recipe *r = k->r;
    if (!fsdp(k) || !r->no_sync || r->grad_accum < 2)
        return;
    bool wide = recipe_is_fsdp2(r) && r->reduce_dtype == DTYPE_FP32;
    double bytes =
        check_trainable(k) * dtype_bytes(wide ? r->reduce_dtype : recipe_gather_dtype(r));
    check_add(k, (struct finding){
                     .id = "no-sync-accumulation",
                     .severity = SEVERITY_WARNING,
                     .path = "recipe.grad_accum",
                     .text = arena_printf(k->a,
                                          "accumulating without communication keeps every gradient "
                                          "unsharded: %s per GPU",
                                          check_gib(k, bytes)),
                     .cost_bytes = bytes,
                     .fix = "GradientAccumulationPlugin(sync_each_batch=True): communication times "
                            "the micro-steps instead"});
}

static void rule_offload_accumulation(struct check *k) {
    if (!fsdp(k) || k->r->offload_param != OFFLOAD_CPU || k->r->grad_accum < 2)
        return;
    check_add(k, (struct finding){.id = "offload-accumulation",
                                  .severity = SEVERITY_WARNING,
                                  .path = "recipe.grad_accum",
                                  .text = "FSDP's CPU offload with accumulation adds gradients on "
                                          "the CPU, with the host waiting in every micro-step",
                                  .fix = "a larger micro-batch, or no offload"});
}

static void rule_loading(struct check *k) {
    const struct recipe *r = k->r;
    double model = (double)k->m->parameters * dtype_bytes(r->param_dtype);
    double host = model * (double)check_node_ranks(k), have = k->c->host_memory_bytes.value;
    if (!recipe_is_fsdp1(r) && !recipe_is_fsdp2(r))
        return;
    if (r->cpu_ram_efficient_loading && recipe_is_fsdp1(r) && !r->sync_module_states)
        check_add(k, (struct finding){.id = "sync-module-states",
                                      .severity = SEVERITY_ERROR,
                                      .path = "recipe.sync_module_states",
                                      .text = "efficient loading leaves ranks other than 0 with "
                                              "empty weights unless states are synchronised",
                                      .fix = "fsdp_sync_module_states true",
                                      .edits = {check_set(k, "sync_module_states", "true")}});
    if (r->cpu_ram_efficient_loading || r->meta_init || !(host > 0.5 * have))
        return;
    check_add(k,
              (struct finding){
                  .id = "load-per-rank",
                  .severity = host > have ? SEVERITY_ERROR : SEVERITY_WARNING,
                  .path = "recipe.cpu_ram_efficient_loading",
                  .text = arena_printf(k->a,
                                       "every rank loads the whole model: %s of each node's %s; "
                                       "%s when rank 0 alone loads",
                                       check_gib(k, host), check_gib(k, have), check_gib(k, model)),
                  .cost_bytes = host - model,
                  .fix = "fsdp_cpu_ram_efficient_loading true",
                  .edits = {check_set(k, "cpu_ram_efficient_loading", "true"),
                            recipe_is_fsdp1(r) ? check_set(k, "sync_module_states", "true")
                                               : (struct edit){EDIT_NONE, NULL, NULL}}});
}

static void rule_saving(struct check *k) {
    const struct recipe *r = k->r;
    double full = (double)k->m->parameters * dtype_bytes(r->param_dtype);
    double card = (double)k->memory->capacity_bytes, host = k->c->host_memory_bytes.value;
    double states = full + 2 * check_trainable(k) * dtype_bytes(r->state_dtype);
    if (fsdp(k) && r->full_state_dict && (full > 0.5 * card || states > 0.5 * host))
        check_add(k,
                  (struct finding){
                      .id = "full-state-dict",
                      .severity = full > card || states > host ? SEVERITY_ERROR : SEVERITY_WARNING,
                      .path = "recipe.full_state_dict",
                      .text = arena_printf(k->a,
                                           "FULL_STATE_DICT gathers the model on save: %s on a "
                                           "GPU unless offloaded, %s with the optimizer on rank "
                                           "0's host",
                                           check_gib(k, full), check_gib(k, states)),
                      .cost_bytes = full,
                      .fix = "SHARDED_STATE_DICT, or offload_to_cpu with rank0_only",
                      .edits = {check_set(k, "full_state_dict", "SHARDED_STATE_DICT")}});
    double weights = 2 * (double)k->m->parameters;
    bool lora = r->lora_rank > 0;
    if (recipe_is_stage3(r) && r->gather_16bit_on_save && (lora || weights > 0.5 * host))
        check_add(
            k, (struct finding){
                   .id = "gather-on-save",
                   .severity = weights > host ? SEVERITY_ERROR : SEVERITY_WARNING,
                   .path = "recipe.gather_16bit_on_save",
                   .text = arena_printf(k->a,
                                        "every save gathers the whole model on rank 0's "
                                        "host: %s%s",
                                        check_gib(k, weights),
                                        lora ? ", where an adapter needs only its own bytes" : ""),
                   .cost_bytes = weights,
                   .fix = "save less often; for LoRA save the adapter alone",
                   .edits = {check_set(k, "gather_16bit_on_save", "false")}});
}

static void rule_frozen(struct check *k) {
    const struct recipe *r = k->r;
    double frozen = check_frozen(k) * (r->base_4bit ? 0.5 : 2);
    double n = (double)r->shard_group;
    if (check_frozen(k) == 0 || r->world < 2)
        return;
    if (r->strategy == STRATEGY_ZERO1 || r->strategy == STRATEGY_ZERO2)
        check_add(k, (struct finding){
                         .id = "frozen-replicated",
                         .severity = frozen > (double)k->memory->capacity_bytes ? SEVERITY_ERROR
                                                                                : SEVERITY_WARNING,
                         .path = "recipe.strategy",
                         .text = arena_printf(k->a,
                                              "stages 1 and 2 keep frozen weights whole on every "
                                              "GPU: %s",
                                              check_gib(k, frozen)),
                         .cost_bytes = frozen * (1 - 1 / (double)r->world),
                         .fix = "zero3 or fsdp2 shards them (and re-gathers them)"});
    if (recipe_is_stage3(r) && r->base_4bit)
        check_add(k, (struct finding){.id = "quantised-zero3",
                                      .severity = SEVERITY_WARNING,
                                      .path = "recipe.base_4bit",
                                      .text = "a 4-bit base under stage 3 is not sharded at load: "
                                              "zero.Init does not apply to quantised weights",
                                      .cost_bytes = frozen,
                                      .fix = "fsdp2 with quantised storage, or zero2"});
    else if (recipe_is_stage3(r) && frozen < 0.7 * (double)k->memory->capacity_bytes)
        check_add(k,
                  (struct finding){
                      .id = "frozen-regathered",
                      .severity = SEVERITY_WARNING,
                      .path = "recipe.strategy",
                      .text = "stage 3 gathers the frozen weights again in every forward and "
                              "backward, though a whole copy fits",
                      .cost_s = check_seconds(k, 2 * frozen * (n - 1) / n * (double)r->grad_accum),
                      .fix = "zero2, which communicates the adapter alone"});
    if (recipe_is_fsdp1(r) && r->lora_rank > 0)
        check_add(k, (struct finding){
                         .id = "fsdp1-frozen",
                         .severity = r->use_orig_params ? SEVERITY_WARNING : SEVERITY_ERROR,
                         .path = "recipe.use_orig_params",
                         .text = r->use_orig_params
                                     ? "FSDP1 keeps and reduces full-unit gradients for units with "
                                       "an adapter in them: frozen weights save nothing"
                                     : "FSDP1 refuses frozen and trained parameters in one unit "
                                       "unless use_orig_params is on",
                         .fix = "fsdp_version 2",
                         .edits = {k->out->facts.kind == CONFIG_ACCELERATE
                                       ? (struct edit){EDIT_SET, "fsdp_config.fsdp_version", "2"}
                                       : (struct edit){EDIT_NONE, NULL, NULL}}});
}

static void rule_hybrid_group(struct check *k) {
    uint64_t node = check_node_ranks(k);
    const struct recipe *r = k->r;
    if (!fsdp(k) || !recipe_has_shard_group(r->strategy))
        return;
    if (k->c->nodes > 1 && r->shard_group > node)
        check_add(k, (struct finding){
                         .id = "group-not-node",
                         .severity = SEVERITY_WARNING,
                         .path = "recipe.shard_group",
                         .text = arena_printf(k->a,
                                              "the shard group of %llu spans nodes of %llu GPUs: "
                                              "every gather crosses the network",
                                              (unsigned long long)r->shard_group,
                                              (unsigned long long)node),
                         .fix = arena_printf(k->a, "shard over %llu", (unsigned long long)node)});
    if (r->replica_group == 1)
        check_add(k, (struct finding){.id = "hybrid-one-replica",
                                      .severity = SEVERITY_WARNING,
                                      .path = "recipe.shard_group",
                                      .text = "hybrid sharding with one replica is full sharding",
                                      .fix = "full sharding, or more nodes"});
}

static void rule_prefetch(struct check *k) {
    const struct recipe *r = k->r;
    if (!recipe_is_fsdp1(r) || r->backward_prefetch != PREFETCH_BACKWARD_NONE || r->world < 2 ||
        r->strategy == STRATEGY_FSDP1_NOSHARD)
        return;
    double n = (double)r->shard_group;
    check_add(k, (struct finding){
                     .id = "backward-prefetch",
                     .severity = SEVERITY_WARNING,
                     .path = "recipe.backward_prefetch",
                     .text = "no backward prefetch (accelerate's default, not torch's): each "
                             "unit's gather waits for the reduction before it",
                     .cost_s = check_seconds(k, gathered(k) * (n - 1) / n * (double)r->grad_accum),
                     .fix = "fsdp_backward_prefetch BACKWARD_PRE",
                     .edits = {check_set(k, "backward_prefetch", "BACKWARD_PRE")}});
}

check_rule *const check_rules_fsdp[] = {
    rule_wrap,
    rule_autocast,
    rule_full_precision,
    rule_pure_bf16,
    rule_bf16_hardware,
    rule_no_sync,
    rule_offload_accumulation,
    rule_loading,
    rule_saving,
    rule_frozen,
    rule_hybrid_group,
    rule_prefetch,
    NULL,
};
