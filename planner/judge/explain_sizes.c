// SPDX-License-Identifier: Apache-2.0
// The allocations of a training run whose sizes are known beforehand.
#include "judge/explain.h"

#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct sizes {
    const struct explain_request *q;
    const struct recipe *r; // the recipe being tried
    double world;
    double bytes, tolerance_bytes;
    struct arena *a;
    struct explain_cause *out;
    size_t count, max;
};

// PyTorch asks the driver for multiples of 2 MiB above 10 MiB, and logs that size.
static double as_logged(double bytes) {
    double step = 2.0 * (double)UNITS_MIB;
    return bytes >= 10.0 * (double)UNITS_MIB ? ceil(bytes / step) * step : bytes;
}

static void offer(struct sizes *s, double bytes, struct explain_cause cause) {
    bool near = fabs(as_logged(bytes) - s->bytes) <= s->tolerance_bytes ||
                fabs(bytes - s->bytes) <= s->tolerance_bytes;
    if (!near || bytes <= 0 || s->count >= s->max)
        return;
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->out[i].what, cause.what) == 0)
            return;
    cause.bytes = bytes;
    s->out[s->count++] = cause;
}

#define SAY(s, ...) arena_printf((s)->a, __VA_ARGS__)

static void offer_shards(struct sizes *s) {
    double psi = (double)recipe_trainable(s->r, s->q->model), n = s->world;
    bool three = recipe_is_stage3(s->r);
    double group = fmin((double)s->r->sub_group_elements, psi / n);
    if (three && group < psi / n)
        offer(s, 4 * group,
              (struct explain_cause){
                  .what = SAY(s, "one fp32 sub-group (sub_group_size %.3g elements x 4 B)", group),
                  .phase = "init or step",
                  .advice = "a smaller sub_group_size (1e8): the step works group by group"});
    offer(s, 4 * psi / n,
          (struct explain_cause){
              .what = SAY(s,
                          "parameters x 4 B / %.0f GPUs: the fp32 partition (master weights at "
                          "init, a moment in the first step, or gradients cast for the step)",
                          n),
              .phase = "init or step_first",
              .advice = "more GPUs, optimizer offload, or an 8-bit optimizer"});
    offer(s, 2 * psi / n,
          (struct explain_cause){
              .what = SAY(s, "parameters x 2 B / %.0f GPUs: the 16-bit partition, flattened", n),
              .phase = "init or step",
              .advice = "more GPUs or optimizer offload"});
}

static void offer_copies(struct sizes *s) {
    double psi = (double)s->q->model->parameters;
    offer(s, 2 * psi,
          (struct explain_cause){
              .what = "the whole model in 16 bit: a full copy on this GPU",
              .phase = "load or init",
              .advice = "zero.Init, the meta device or efficient loading, so that no rank holds a "
                        "whole copy; stages 0 to 2 always do: use zero3 or fsdp2"});
    offer(s, 4 * psi,
          (struct explain_cause){
              .what = "the whole model in fp32: a full copy on this GPU",
              .phase = "load or init",
              .advice = "load in bf16, and shard while loading (zero.Init, meta device)"});
}

static void offer_buckets(struct sizes *s) {
    double elements = (double)s->r->reduce_bucket_elements;
    if (!recipe_is_deepspeed(s->r))
        return;
    offer(
        s, 2 * elements,
        (struct explain_cause){
            .what = SAY(s, "a gradient bucket (reduce_bucket_size %.3g elements x 2 B)", elements),
            .phase = "backward",
            .advice = "a smaller reduce_bucket_size (5e7)"});
    offer(s, 4 * elements,
          (struct explain_cause){
              .what = SAY(s, "a gradient bucket in fp32 (reduce_bucket_size %.3g elements x 4 B)",
                          elements),
              .phase = "backward",
              .advice = "a smaller reduce_bucket_size, and 16-bit communication"});
}

static void offer_logits(struct sizes *s) {
    const struct model *m = s->q->model;
    double tokens = (double)s->r->micro_batch * (double)s->r->seq;
    static const struct {
        double bytes;
        const char *name;
    } types[] = {{2, "16 bit"}, {4, "fp32"}};
    for (size_t i = 0; i < 2; i++) {
        double per_token = (double)m->vocab * types[i].bytes;
        const char *what = SAY(s, "logits in %s: %.0f tokens x %llu words x %.0f B", types[i].name,
                               tokens, (unsigned long long)m->vocab, types[i].bytes);
        struct explain_cause c = {.what = what,
                                  .phase = "loss",
                                  .advice = "a fused or chunked cross-entropy, or a smaller "
                                            "micro-batch"};
        offer(s, tokens * per_token, c);
        offer(s, (tokens - (double)s->r->micro_batch) * per_token, c); // shifted labels
    }
}

static void offer_activations(struct sizes *s) {
    const struct model *m = s->q->model;
    double tokens = (double)s->r->micro_batch * (double)s->r->seq;
    double scores = tokens * (double)s->r->seq * (double)m->heads;
    for (int bytes = 2; bytes <= 4; bytes += 2) {
        offer(s, scores * bytes,
              (struct explain_cause){
                  .what = SAY(s, "attention scores, %d B: heads x s x s per sequence", bytes),
                  .phase = "forward",
                  .advice = "flash attention (or sdpa): eager attention stores the scores"});
        offer(s, tokens * (double)(m->ffn ? m->ffn : m->moe_ffn) * bytes,
              (struct explain_cause){.what = SAY(s, "one MLP activation, %d B: b x s x ffn", bytes),
                                     .phase = "forward or backward",
                                     .advice = "activation checkpointing or a smaller "
                                               "micro-batch"});
    }
}

static void offer_units(struct sizes *s) {
    const struct model *m = s->q->model;
    if (!recipe_gathers(s->r))
        return;
    for (size_t u = 0; u < m->unit_count; u++)
        for (int bytes = 2; bytes <= 4; bytes += 2)
            offer(s, (double)m->units[u].parameters * bytes,
                  (struct explain_cause){
                      .what = SAY(s, "the gathered unit %s, %d B per parameter", m->units[u].name,
                                  bytes),
                      .phase = "forward or backward",
                      .advice = "smaller units, less prefetch, or a smaller micro-batch"});
}

static void offer_all(struct sizes *s) {
    offer_logits(s);
    offer_shards(s);
    offer_copies(s);
    offer_buckets(s);
    offer_units(s);
    offer_activations(s);
}

// Without a configuration: the frameworks' defaults, at every usual group size.
static void try_defaults(struct sizes *s) {
    static const enum strategy tried[] = {STRATEGY_ZERO3, STRATEGY_FSDP2};
    static const double worlds[] = {8, 4, 2, 16, 32, 64, 1};
    double given = s->q->cluster ? (double)s->q->cluster->gpus : 0;
    for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++) {
        struct recipe r;
        recipe_defaults(tried[i], &r);
        r.seq = s->q->model->max_positions < 4096 ? s->q->model->max_positions : 4096;
        s->r = &r;
        for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
            s->world = given > 0 ? given : worlds[w];
            offer_all(s);
        }
    }
}

size_t explain_copies(const struct explain_request *q, double bytes, double tolerance_bytes,
                      struct arena *a, struct explain_cause *out) {
    struct sizes s = {
        .q = q, .bytes = bytes, .tolerance_bytes = tolerance_bytes, .a = a, .out = out, .max = 1};
    offer_copies(&s);
    return s.count;
}

size_t explain_sizes(const struct explain_request *q, double bytes, double tolerance_bytes,
                     struct arena *a, struct explain_cause *out, size_t max) {
    struct sizes s = {.q = q,
                      .r = q->recipe,
                      .bytes = bytes,
                      .tolerance_bytes = tolerance_bytes,
                      .a = a,
                      .out = out,
                      .max = max};
    if (q->recipe != NULL) {
        s.world = (double)(q->recipe->strategy == STRATEGY_ZEROPP ? q->recipe->world
                                                                  : q->recipe->shard_group);
        if (q->recipe->strategy == STRATEGY_DDP)
            s.world = 1;
        offer_all(&s);
    } else {
        try_defaults(&s);
    }
    return s.count;
}
