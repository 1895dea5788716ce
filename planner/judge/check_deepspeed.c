// SPDX-License-Identifier: Apache-2.0
// Traps of DeepSpeed's keys; docs/method.md §traps has the source of each.
#include "base/units.h"
#include "describe/version.h"
#include "judge/check_rules.h"

#include <math.h>
#include <string.h>

static bool stage12(const struct check *k) {
    return k->r->strategy == STRATEGY_ZERO1 || k->r->strategy == STRATEGY_ZERO2;
}

static double shards(const struct check *k) {
    return (double)(k->r->strategy == STRATEGY_MICS ? k->r->shard_group : k->r->world);
}

static double sub_groups(const struct check *k) {
    return ceil(check_trainable(k) / shards(k) / (double)k->r->sub_group_elements);
}

// Bytes of the gradient buckets; releases before 0.4 kept 4.5 times the size in each.
static double bucket_bytes(const struct check *k) {
    struct version v = {0};
    struct err ignored = {0};
    double factor = 1;
    if (version_parse(k->r->framework_version, &v, &ignored) && version_before(&v, 0, 4, 0))
        factor = 4.5;
    double copies = stage12(k) && recipe_overlaps(k->r) ? 2 : 1;
    return (double)k->r->reduce_bucket_elements * dtype_bytes(k->r->reduce_dtype) * copies * factor;
}

static void rule_bucket_size(struct check *k) {
    const struct recipe *r = k->r;
    double bytes = bucket_bytes(k), card = (double)k->memory->capacity_bytes;
    if (!recipe_is_deepspeed(r) || (!r->contiguous_gradients && stage12(k)))
        return;
    double saving = 12 * check_trainable(k) * (1 - 1 / shards(k));
    if (bytes > 0.1 * card || (bytes > saving && r->world > 1))
        check_add(
            k,
            (struct finding){
                .id = "bucket-size",
                .severity = SEVERITY_WARNING,
                .path = "recipe.reduce_bucket_elements",
                .text = arena_printf(
                    k->a, "gradient buckets take %s on every GPU (elements, not bytes%s): %s",
                    check_gib(k, bytes),
                    stage12(k) && recipe_overlaps(r) ? ", two of them with overlap_comm" : "",
                    bytes > saving ? "more than sharding saves here" : "over a tenth of the GPU"),
                .cost_bytes = bytes,
                .fix = "reduce_bucket_size 5e7",
                .edits = {check_set(k, "reduce_bucket_elements", "50000000")}});
}

static void rule_bucket_unit(struct check *k) {
    const struct recipe *r = k->r;
    uint64_t n = r->reduce_bucket_elements;
    bool whole = n >= 16 * UNITS_MIB && n % UNITS_MIB == 0 && n != k->m->hidden * k->m->hidden;
    if (!recipe_is_deepspeed(r) || !whole)
        return;
    check_add(k,
              (struct finding){
                  .id = "bucket-unit",
                  .severity = SEVERITY_WARNING,
                  .path = "recipe.reduce_bucket_elements",
                  .text = arena_printf(k->a,
                                       "%llu looks like bytes; DeepSpeed counts elements, so "
                                       "the bucket takes %s",
                                       (unsigned long long)n, check_gib(k, bucket_bytes(k))),
                  .cost_bytes = bucket_bytes(k) * (1 - 1 / dtype_bytes(r->reduce_dtype)),
                  .fix = "divide by the bytes per element",
                  .edits = {check_set(k, "reduce_bucket_elements",
                                      arena_printf(k->a, "%llu", (unsigned long long)(n / 2)))}});
}

static void rule_overlap(struct check *k) {
    const struct recipe *r = k->r;
    bool three = recipe_is_stage3(r) && r->overlap_comm == OVERLAP_OFF;
    if (!(three || (stage12(k) && !recipe_overlaps(r))) || r->world < 2)
        return;
    double n = (double)r->world, factor = stage12(k) ? 2 : 1;
    double sent = factor * check_trainable(k) * dtype_bytes(r->reduce_dtype) * (n - 1) / n;
    check_add(k, (struct finding){
                     .id = "overlap-off",
                     .severity = SEVERITY_WARNING,
                     .path = "recipe.overlap_comm",
                     .text = arena_printf(
                         k->a, "overlap_comm is off%s: gradients are reduced with compute waiting",
                         three ? "" : " (stages 1 and 2 leave it off unless told)"),
                     .cost_s = check_seconds(k, sent),
                     .fix = "overlap_comm true (stages 1 and 2: one more bucket)",
                     .edits = {check_set(k, "overlap_comm", "true")}});
}

static void rule_stage2_accumulation(struct check *k) {
    const struct recipe *r = k->r;
    if (r->strategy != STRATEGY_ZERO2 || r->grad_accum < 2 || r->world < 2)
        return;
    double n = (double)r->world, more = (double)(r->grad_accum - 1);
    double sent = more * 2 * check_trainable(k) * dtype_bytes(r->reduce_dtype) * (n - 1) / n;
    check_add(k, (struct finding){
                     .id = "stage2-accumulation",
                     .severity = SEVERITY_WARNING,
                     .path = "recipe.grad_accum",
                     .text = arena_printf(k->a,
                                          "stage 2 reduces every gradient in each of the %llu "
                                          "micro-steps; accumulating saves no communication",
                                          (unsigned long long)r->grad_accum),
                     .cost_s = check_seconds(k, sent),
                     .fix = "a larger micro-batch, or stage 1, which reduces once per step"});
}

static void rule_nvme_buffers(struct check *k) {
    const struct recipe *r = k->r;
    uint64_t need = r->pipeline_read && r->pipeline_write   ? 12
                    : r->pipeline_read || r->pipeline_write ? 8
                                                            : 4;
    if (r->offload_optimizer != OFFLOAD_NVME || r->nvme_buffer_count_optimizer >= need)
        return;
    check_add(k, (struct finding){
                     .id = "nvme-buffers",
                     .severity = SEVERITY_ERROR,
                     .path = "recipe.nvme_buffer_count_optimizer",
                     .text = arena_printf(k->a,
                                          "%llu swap buffers, but Adam needs %llu%s: the run stops "
                                          "with \"ran out of swap buffers\"",
                                          (unsigned long long)r->nvme_buffer_count_optimizer,
                                          (unsigned long long)need,
                                          need > 4 ? " with this pipelining" : ""),
                     .fix = arena_printf(k->a, "offload_optimizer.buffer_count %llu",
                                         (unsigned long long)need),
                     .edits = {check_set(k, "nvme_buffer_count_optimizer",
                                         arena_printf(k->a, "%llu", (unsigned long long)need))}});
}

static void rule_nvme_param_buffer(struct check *k) {
    const struct recipe *r = k->r;
    double largest = ceil(check_largest_tensor(k) / shards(k));
    if (r->offload_param != OFFLOAD_NVME || largest <= (double)r->nvme_buffer_elements_param)
        return;
    check_add(k,
              (struct finding){
                  .id = "nvme-param-buffer",
                  .severity = SEVERITY_ERROR,
                  .path = "recipe.nvme_buffer_elements_param",
                  .text = arena_printf(k->a,
                                       "the largest parameter's partition has %.0f elements, "
                                       "more than one buffer (buffer_size %llu): DeepSpeed "
                                       "stops with an assertion",
                                       largest, (unsigned long long)r->nvme_buffer_elements_param),
                  .fix = arena_printf(k->a, "offload_param.buffer_size %.0f", largest),
                  .edits = {check_set(k, "nvme_buffer_elements_param",
                                      arena_printf(k->a, "%.0f", largest))}});
}

static void rule_swap_memory(struct check *k) {
    const struct recipe *r = k->r;
    double group = fmin((double)r->sub_group_elements, check_trainable(k) / shards(k));
    double bytes = (double)r->nvme_buffer_count_optimizer * group * dtype_bytes(DTYPE_FP32) *
                   (double)check_node_ranks(k);
    double host = k->c->host_memory_bytes.value;
    if (r->offload_optimizer != OFFLOAD_NVME || !(bytes > 0.25 * host))
        return;
    check_add(
        k, (struct finding){.id = "nvme-swap-memory",
                            .severity = SEVERITY_WARNING,
                            .path = "recipe.sub_group_elements",
                            .text = arena_printf(k->a,
                                                 "NVMe swap buffers pin %s of each node's memory: "
                                                 "buffer_count x sub_group_size x 4 B per rank",
                                                 check_gib(k, bytes)),
                            .cost_bytes = bytes,
                            .fix = "sub_group_size 1e8",
                            .edits = {check_set(k, "sub_group_elements", "100000000")}});
}

static void rule_ratio(struct check *k) {
    const struct recipe *r = k->r;
    double groups = sub_groups(k), on_gpu = floor((1 - r->offload_ratio) * groups);
    if (!recipe_is_stage3(r) || r->offload_optimizer != OFFLOAD_CPU || r->offload_ratio >= 1 ||
        on_gpu > 0)
        return;
    double want = check_trainable(k) / shards(k) / 10;
    check_add(k,
              (struct finding){
                  .id = "ratio-no-effect",
                  .severity = SEVERITY_WARNING,
                  .path = "recipe.offload_ratio",
                  .text = arena_printf(k->a,
                                       "ratio %g keeps nothing on the GPU: it is cut to whole "
                                       "sub-groups, and there %s %.0f",
                                       r->offload_ratio, groups == 1 ? "is" : "are", groups),
                  .fix = arena_printf(k->a, "sub_group_size %.0f (ten sub-groups)", want),
                  .edits = {check_set(k, "sub_group_elements", arena_printf(k->a, "%.0f", want))}});
}

static void rule_super_offload(struct check *k) {
    if (!k->r->super_offload || k->r->clip <= 0)
        return;
    check_add(k, (struct finding){.id = "super-offload-clip",
                                  .severity = SEVERITY_WARNING,
                                  .path = "recipe.super_offload",
                                  .text = "SuperOffload overlaps Adam with backward only without "
                                          "clipping, and gradient_clipping defaults to 1.0: every "
                                          "CPU sub-group is stepped afterwards",
                                  .fix = "gradient_clipping 0, or drop super_offload",
                                  .edits = {check_set(k, "clip", "0")}});
}

static void rule_sub_groups(struct check *k) {
    double groups = sub_groups(k);
    if (!recipe_is_stage3(k->r) || groups <= 100)
        return;
    check_add(k, (struct finding){
                     .id = "sub-groups",
                     .severity = SEVERITY_WARNING,
                     .path = "recipe.sub_group_elements",
                     .text = arena_printf(k->a,
                                          "%.0f sub-groups: one norm all-reduce and one small Adam "
                                          "launch each",
                                          groups),
                     .cost_s = groups * (k->c->nodes > 1 ? 60 : 30) * UNITS_MICRO,
                     .fix = "sub_group_size 1e9",
                     .edits = {check_set(k, "sub_group_elements", "1000000000")}});
}

static void rule_prefetch(struct check *k) {
    const struct recipe *r = k->r;
    if (!recipe_is_stage3(r) || (r->prefetch_bucket_elements > 0 && !r->allgather_sequential))
        return;
    double n = (double)r->world;
    double sent = 2 * (double)k->m->parameters * dtype_bytes(recipe_gather_dtype(r)) * (n - 1) / n;
    check_add(k,
              (struct finding){.id = "prefetch-off",
                               .severity = SEVERITY_WARNING,
                               .path = r->allgather_sequential ? "recipe.allgather_sequential"
                                                               : "recipe.prefetch_bucket_elements",
                               .text = "parameters are gathered only when a module asks for "
                                       "them; no gather overlaps compute",
                               .cost_s = check_seconds(k, sent),
                               .fix = "stage3_prefetch_bucket_size 5e7, "
                                      "stage3_allgather_sequential false",
                               .edits = {check_set(k, "prefetch_bucket_elements", "50000000"),
                                         check_set(k, "allgather_sequential", "false")}});
}

static void rule_persistence(struct check *k) {
    const struct recipe *r = k->r;
    double elements = 0;
    if (!recipe_is_stage3(r))
        return;
    for (size_t u = 0; u < k->m->unit_count; u++)
        for (size_t t = 0; t < k->m->units[u].tensor_count; t++) {
            const struct tensor *x = &k->m->units[u].tensors[t];
            if (tensor_numel(x) <= r->persistence_elements)
                elements +=
                    (double)tensor_numel(x) * (double)x->count * (double)k->m->units[u].repeat;
        }
    double bytes =
        fmin(elements, (double)r->model_persistence_elements) * dtype_bytes(r->param_dtype);
    if (bytes < 0.05 * (double)k->memory->capacity_bytes)
        return;
    check_add(k, (struct finding){
                     .id = "persistence",
                     .severity = SEVERITY_WARNING,
                     .path = "recipe.persistence_elements",
                     .text = arena_printf(k->a,
                                          "parameters up to %llu elements are never sharded: %s on "
                                          "every GPU",
                                          (unsigned long long)r->persistence_elements,
                                          check_gib(k, bytes)),
                     .cost_bytes = bytes,
                     .fix = "stage3_param_persistence_threshold 1e5",
                     .edits = {check_set(k, "persistence_elements", "100000")}});
}

static void rule_live_parameters(struct check *k) {
    const struct recipe *r = k->r;
    if (!recipe_is_stage3(r))
        return;
    if (r->max_live_elements < (uint64_t)(100 * UNITS_MEGA))
        check_add(k, (struct finding){
                         .id = "max-live",
                         .severity = SEVERITY_WARNING,
                         .path = "recipe.max_live_elements",
                         .text = "stage3_max_live_parameters only throttles prefetch: it caps no "
                                 "memory, and demand gathers ignore it",
                         .fix = "1e9, and a smaller micro-batch where memory is short",
                         .edits = {check_set(k, "max_live_elements", "1000000000")}});
    if (r->max_reuse_elements < (uint64_t)UNITS_MEGA &&
        r->max_live_elements >= (uint64_t)UNITS_GIGA && r->prefetch_bucket_elements > 0)
        check_add(k, (struct finding){
                         .id = "max-reuse",
                         .severity = SEVERITY_WARNING,
                         .path = "recipe.max_reuse_elements",
                         .text = "stage3_max_reuse_distance 0 saves nothing at this "
                                 "max_live_parameters: prefetch run-ahead pins the same tail",
                         .fix = "lower stage3_max_live_parameters instead",
                         .edits = {check_set(k, "max_reuse_elements", "1000000000")}});
}

static void rule_doubled_traffic(struct check *k) {
    const struct recipe *r = k->r;
    double n = (double)r->world, q = (n - 1) / n;
    if (recipe_is_stage3(r) && !r->reduce_scatter && r->optimizer != OPTIMIZER_MUON)
        check_add(k,
                  (struct finding){
                      .id = "reduce-scatter-off",
                      .severity = SEVERITY_WARNING,
                      .path = "recipe.reduce_scatter",
                      .text = "gradients are all-reduced: twice the bytes of a reduce-scatter",
                      .cost_s = check_seconds(k, check_trainable(k) * dtype_bytes(r->reduce_dtype) *
                                                     q * (double)r->grad_accum),
                      .fix = "reduce_scatter true",
                      .edits = {check_set(k, "reduce_scatter", "true")}});
    if (recipe_is_stage3(r) && r->all_reduce_for_fetch)
        check_add(
            k, (struct finding){.id = "all-reduce-fetch",
                                .severity = SEVERITY_WARNING,
                                .path = "recipe.all_reduce_for_fetch",
                                .text = "parameters are gathered by all-reduce: twice the bytes",
                                .cost_s = check_seconds(k, 2 * (double)k->m->parameters *
                                                               dtype_bytes(recipe_gather_dtype(r)) *
                                                               q * (double)r->grad_accum),
                                .fix = "stage3_use_all_reduce_for_fetch_params false",
                                .edits = {check_set(k, "all_reduce_for_fetch", "false")}});
    bool wide = recipe_is_deepspeed(r) && dtype_bits(r->reduce_dtype) > dtype_bits(r->grad_dtype);
    if (wide && r->reduce_dtype_given)
        check_add(k, (struct finding){
                         .id = "communication-type",
                         .severity = SEVERITY_WARNING,
                         .path = "recipe.reduce_dtype",
                         .text = "communication_data_type fp32 under a 16-bit engine doubles "
                                 "gradient bytes and adds cast copies",
                         .cost_s = check_seconds(k, (stage12(k) ? 2 : 1) * check_trainable(k) *
                                                        dtype_bytes(r->grad_dtype) * q),
                         .fix = "drop communication_data_type",
                         .edits = {{EDIT_REMOVE, "communication_data_type", NULL}}});
}

static void rule_accumulation_type(struct check *k) {
    const struct recipe *r = k->r;
    double psi = check_trainable(k);
    if (!r->grad_accum_dtype_given || r->grad_accum_dtype != DTYPE_FP32 ||
        r->param_dtype == DTYPE_FP32)
        return;
    struct finding f = {.id = "accumulation-type",
                        .severity = SEVERITY_WARNING,
                        .path = "recipe.grad_accum_dtype",
                        .fix = "drop data_types.grad_accum_dtype, or accept the cost",
                        .edits = {{EDIT_REMOVE, "data_types", NULL}}};
    if (r->strategy == STRATEGY_ZERO1 && r->offload_optimizer == OFFLOAD_NONE) {
        f.cost_bytes = 4 * psi;
        f.text = arena_printf(k->a,
                              "grad_accum_dtype fp32 under stage 1 keeps a full fp32 gradient copy "
                              "on every GPU: %s, not sharded",
                              check_gib(k, f.cost_bytes));
    } else if (r->strategy == STRATEGY_ZERO2) {
        f.text = "stage 2 accumulates in the model's type whatever grad_accum_dtype says";
    } else if (recipe_is_stage3(r)) {
        f.severity = SEVERITY_INFO;
        f.cost_bytes = 2 * psi / shards(k);
        f.text = arena_printf(k->a, "grad_accum_dtype fp32 costs %s more per GPU",
                              check_gib(k, f.cost_bytes));
        f.edits[0].kind = EDIT_NONE;
    } else {
        return;
    }
    check_add(k, f);
}

static void rule_zero_init(struct check *k) {
    const struct recipe *r = k->r;
    double copy = (double)k->m->parameters * dtype_bytes(r->param_dtype);
    double host = copy * (double)check_node_ranks(k);
    if (!recipe_is_stage3(r) || r->zero_init)
        return;
    bool gpu = copy > (double)k->memory->capacity_bytes;
    bool node = host > k->c->host_memory_bytes.value;
    check_add(k, (struct finding){
                     .id = "load-replica",
                     .severity = gpu || node ? SEVERITY_ERROR : SEVERITY_WARNING,
                     .path = "recipe.zero_init",
                     .text = arena_printf(k->a,
                                          "without zero.Init every rank builds the whole model "
                                          "first: %s per GPU or %s per node%s",
                                          check_gib(k, copy), check_gib(k, host),
                                          gpu    ? ", more than the GPU has"
                                          : node ? ", more than the node has"
                                                 : ""),
                     .cost_bytes = copy,
                     .fix = "zero3_init_flag true (or build the model under deepspeed.zero.Init)",
                     .edits = {check_set(k, "zero_init", "true")}});
}

static void rule_moe_leaf(struct check *k) {
    if (!recipe_is_stage3(k->r) || k->m->experts == 0 || k->out->facts.leaf_module)
        return;
    check_add(k, (struct finding){.id = "moe-leaf",
                                  .severity = SEVERITY_WARNING,
                                  .path = k->q->path,
                                  .text = "a mixture of experts under stage 3 routes differently "
                                          "on every rank: gathers of single experts fall out of "
                                          "step and the run hangs or thrashes",
                                  .fix = "set_z3_leaf_modules on the MoE block, or "
                                         "zero_optimization.leaf_module"});
}

static void rule_hierarchy(struct check *k) {
    const struct recipe *r = k->r;
    uint64_t node = check_node_ranks(k);
    bool grouped = (r->strategy == STRATEGY_ZEROPP && r->hpz) || r->strategy == STRATEGY_MICS;
    double copy = (double)k->m->parameters * dtype_bytes(r->param_dtype) / (double)r->shard_group;
    if (grouped && r->shard_group != node && k->c->nodes > 1)
        check_add(k, (struct finding){
                         .id = "group-not-node",
                         .severity = SEVERITY_WARNING,
                         .path = "recipe.shard_group",
                         .text = arena_printf(
                             k->a,
                             "the group of %llu is not a node's %llu GPUs: its "
                             "gathers %s",
                             (unsigned long long)r->shard_group, (unsigned long long)node,
                             r->shard_group > node ? "cross the network" : "hold more copies"),
                         .fix = arena_printf(k->a, "%llu", (unsigned long long)node),
                         .edits = {{EDIT_SET,
                                    r->strategy == STRATEGY_MICS
                                        ? "zero_optimization.mics_shard_size"
                                        : "zero_optimization.zero_hpz_partition_size",
                                    arena_printf(k->a, "%llu", (unsigned long long)node)}}});
    if (r->strategy == STRATEGY_ZEROPP && k->c->nodes == 1)
        check_add(
            k, (struct finding){
                   .id = "zeropp-one-node",
                   .severity = SEVERITY_WARNING,
                   .path = r->hpz ? "recipe.shard_group" : "recipe.quantized_gradients",
                   .text = "ZeRO++ works between nodes: on one node hpZ only adds a copy and "
                           "qgZ does nothing",
                   .cost_bytes = r->hpz ? copy : NAN,
                   .fix = "drop zero_hpz_partition_size and zero_quantized_gradients",
                   .edits = {{EDIT_REMOVE, "zero_optimization.zero_hpz_partition_size", NULL},
                             {EDIT_REMOVE, "zero_optimization.zero_quantized_gradients", NULL}}});
    bool offload = r->offload_param != OFFLOAD_NONE || r->offload_optimizer != OFFLOAD_NONE;
    if (r->strategy == STRATEGY_ZEROPP && r->hpz && offload)
        check_add(k, (struct finding){.id = "hpz-offload",
                                      .severity = SEVERITY_WARNING,
                                      .path = r->offload_param ? "recipe.offload_param"
                                                               : "recipe.offload_optimizer",
                                      .text = "hpZ together with offload is little tested: with "
                                              "parameter offload its secondary copy lives in host "
                                              "memory and every gather crosses PCIe",
                                      .fix = "one of the two"});
}

static void rule_nvme_checkpoint(struct check *k) {
    struct version v = {0};
    struct err ignored = {0};
    bool nvme = k->r->offload_param == OFFLOAD_NVME || k->r->offload_optimizer == OFFLOAD_NVME;
    if (!nvme || !version_parse(k->r->framework_version, &v, &ignored))
        return;
    bool old = version_before(&v, 0, 13, 0);
    check_add(k, (struct finding){.id = "nvme-checkpoint",
                                  .severity = old ? SEVERITY_WARNING : SEVERITY_INFO,
                                  .path = k->r->offload_param == OFFLOAD_NVME
                                              ? "recipe.offload_param"
                                              : "recipe.offload_optimizer",
                                  .text = "states on NVMe are saved by copying the swap folder: "
                                          "early releases refuse to save, and a checkpoint needs "
                                          "the same number of ranks",
                                  .fix = "save and load once before the long run"});
}

// deepspeedai/DeepSpeed pull request 7307.
static void rule_copy_back(struct check *k) {
    struct version v = {0};
    struct err ignored = {0};
    if (!stage12(k) || k->r->offload_optimizer != OFFLOAD_CPU ||
        !version_parse(k->r->framework_version, &v, &ignored) || !version_before(&v, 0, 17, 0))
        return;
    double bytes = 4 * check_trainable(k);
    check_add(k, (struct finding){.id = "offload-copy-back",
                                  .severity = SEVERITY_WARNING,
                                  .path = "recipe.offload_optimizer",
                                  .text = "DeepSpeed before 0.17 copies updated weights back in "
                                          "fp32: the step holds about three times the 16-bit "
                                          "weights on the GPU",
                                  .cost_bytes = bytes,
                                  .fix = "DeepSpeed 0.17 or later"});
}

check_rule *const check_rules_deepspeed[] = {
    rule_bucket_size,         rule_bucket_unit,     rule_overlap,
    rule_stage2_accumulation, rule_nvme_buffers,    rule_nvme_param_buffer,
    rule_swap_memory,         rule_ratio,           rule_super_offload,
    rule_sub_groups,          rule_prefetch,        rule_persistence,
    rule_live_parameters,     rule_doubled_traffic, rule_accumulation_type,
    rule_zero_init,           rule_moe_leaf,        rule_hierarchy,
    rule_nvme_checkpoint,     rule_copy_back,       NULL,
};
