// SPDX-License-Identifier: Apache-2.0
#include "cost/activation.h"

#include <math.h>
#include <string.h>

// Why a tensor survives forward under a recompute mode; docs/method.md §activations.
enum keep {
    KEEP_PLAIN,     // dropped by full and by selective-op
    KEEP_INPUT,     // the block's input: kept by every mode
    KEEP_OP,        // output of a listed operator: kept by selective-op
    KEEP_ATTENTION, // inside the attention product: dropped by selective-attention
    KEEP_OP_ONLY,   // saved for nobody but selective-op
    KEEP_INPUT_ONLY // the 16-bit block input where only a recompute mode stores it
};

struct table {
    const struct model *m;
    const struct recipe *r;
    struct saved_tensor *out;
    size_t count;
    double tokens, element_bytes, linear_bytes; // of activations, of what linear layers keep
    double split, unsplit; // tensor parallelism: 1/t on sharded tensors, on the others
    double stream_bytes;   // per element of the residual stream: fp32 under autocast
    bool compiled, megatron, autocast;
    bool fused; // the MLP's activation is one kernel: it saves its inputs alone (Liger, flash-attn)
};

static double dim(uint64_t v) {
    return (double)v;
}

static uint64_t to_bytes(double v) {
    const double limit = 4611686018427387904.0; // 2^62: a sum of a few still fits 64 bits
    return v >= limit ? (uint64_t)limit : (uint64_t)(v + 0.5);
}

double activation_tokens(const struct recipe *r) {
    return dim(r->seq) * dim(r->micro_batch) / dim(r->cp ? r->cp : 1);
}

static bool recomputed(enum recompute mode, enum keep keep) {
    switch (mode) {
    case RECOMPUTE_FULL:
    case RECOMPUTE_EVERY_N:
        return keep != KEEP_INPUT && keep != KEEP_INPUT_ONLY;
    case RECOMPUTE_SELECTIVE_OP:
        return keep == KEEP_PLAIN || keep == KEEP_ATTENTION;
    case RECOMPUTE_SELECTIVE_ATTENTION:
        return keep == KEEP_ATTENTION;
    default:
        return false;
    }
}

static void save(struct table *t, const char *name, double bytes_per_token, enum keep keep) {
    enum recompute mode = t->r->recompute;
    if (bytes_per_token <= 0 || (keep == KEEP_OP_ONLY && mode != RECOMPUTE_SELECTIVE_OP))
        return;
    if (keep == KEEP_INPUT_ONLY &&
        (mode == RECOMPUTE_NONE || mode == RECOMPUTE_SELECTIVE_ATTENTION))
        return;
    t->out[t->count++] =
        (struct saved_tensor){name, to_bytes(bytes_per_token * t->tokens), recomputed(mode, keep)};
}

// A norm's own tensors: its input and what it hands to the layer that reads it.
// Autocast norms in fp32, then casts once for each of the `readers`, linear layers.
static void save_norm(struct table *t, const char *input, const char *output, bool first,
                      double readers) {
    double e = t->stream_bytes, u = t->unsplit, width = dim(t->m->hidden);
    bool rms = t->m->norm == NORM_RMS && !t->megatron;
    if (t->compiled || !rms)
        save(t, input, e * width * u, first ? KEEP_INPUT : KEEP_PLAIN);
    if (rms && !t->compiled) {
        if (first)
            save(t, "block input", e * width * u, KEEP_INPUT_ONLY);
        save(t, input, 4 * width * u, KEEP_PLAIN); // Hugging Face norms in fp32
        save(t, "normalised", e * width * u, KEEP_PLAIN);
        save(t, "norm statistics", 4 * u, KEEP_PLAIN);
    } else if (!t->compiled && !t->megatron) {
        save(t, "norm statistics", 8 * u, KEEP_PLAIN); // mean and reciprocal deviation, fp32
    }
    if (output && !t->compiled)
        save(t, output, (t->autocast ? readers : 1) * t->linear_bytes * width * u, KEEP_PLAIN);
}

static void save_mask(struct table *t, const char *name, double width) {
    if (t->m->dropout > 0 && !t->compiled)
        save(t, name, width * t->unsplit, KEEP_PLAIN); // one byte; compiled code replays the seed
}

// Scores, probabilities and their dropout: only where the kernel is not flash attention.
static void save_attention_product(struct table *t) {
    double scores = dim(t->m->heads) * dim(t->r->seq) * t->split, e = t->element_bytes;
    if (t->r->attention == ATTENTION_FLASH) {
        save(t, "log-sum-exp", 4 * dim(t->m->heads) * t->split, KEEP_OP);
        return;
    }
    if (t->megatron) {
        save(t, "softmax", e * scores, KEEP_ATTENTION);
    } else { // softmax runs in fp32; without dropout its 16-bit copy is the matmul's operand
        save(t, "softmax in fp32", 4 * scores, KEEP_ATTENTION);
        if (e < 4 && t->m->dropout <= 0)
            save(t, "softmax", e * scores, KEEP_ATTENTION);
    }
    if (t->m->dropout > 0) {
        save(t, "attention dropout mask", scores, KEEP_ATTENTION);
        save(t, "dropped softmax", e * scores, KEEP_ATTENTION);
    }
}

static void save_plain_attention(struct table *t) {
    const struct model *m = t->m;
    double e = t->element_bytes * t->split;
    double q = dim(m->heads * m->head_dim), kv = dim(m->kv_heads * m->head_dim);
    bool eager = !t->compiled && !t->megatron;
    if (m->qk_norm && eager) {
        save(t, "query and key norm inputs", 4 * (q + kv) * t->split, KEEP_PLAIN);
        save(t, "query and key normalised", e * (q + kv), KEEP_PLAIN);
    }
    // Eager attention expands grouped keys and values to every head before the kernel.
    double saved_kv = eager && t->r->recompute != RECOMPUTE_SELECTIVE_OP ? q : kv;
    save(t, "queries", e * q, KEEP_OP);
    save(t, "keys", e * saved_kv, KEEP_PLAIN);
    save(t, "values", e * saved_kv, KEEP_OP);
    save_attention_product(t);
    save(t, "attention output", e * q, KEEP_OP);
    if (t->linear_bytes < t->element_bytes)
        save(t, "attention output in 8 bits", t->linear_bytes * q * t->split, KEEP_OP);
}

static void save_latent_attention(struct table *t) {
    const struct model *m = t->m;
    double e = t->element_bytes * t->split, lora_q = dim(m->q_lora_rank);
    double lora_kv = dim(m->kv_lora_rank), rope = dim(m->qk_rope_head_dim);
    double qk = dim(m->heads * (m->qk_nope_head_dim + m->qk_rope_head_dim));
    double v = dim(m->heads * m->v_head_dim);
    double norm = t->compiled ? t->element_bytes : 4 + 2 * t->element_bytes;
    save(t, "query latent and its norm", norm * lora_q, KEEP_PLAIN);
    save(t, "key-value latent and its norm", norm * lora_kv + t->element_bytes * rope, KEEP_PLAIN);
    save(t, "queries", e * qk, KEEP_OP);
    save(t, "keys", e * qk, KEEP_PLAIN);
    save(t, "values", e * v, KEEP_OP);
    save_attention_product(t);
    save(t, "attention output", e * v, KEEP_OP);
}

// One MLP of `width` per token copy: `copies` is experts per token in a mixture, whose grouped
// matmuls (`listed` false) are not on torchtitan's list.
static void save_mlp(struct table *t, double width, double copies, bool listed) {
    enum keep op = listed ? KEEP_OP : KEEP_PLAIN;
    double f = t->element_bytes * width * copies * t->split;
    if (t->m->gated_mlp) {
        save(t, "gate", f, op);
        save(t, "up", f, KEEP_PLAIN);
        if (!t->compiled && !t->fused)
            save(t, "activated gate", f, KEEP_PLAIN);
    } else {
        save(t, "up", f, op);
        // gelu_new is written out in Python: x^3, tanh, 1 + tanh and x / 2 are saved beside x.
        bool spelled_out = !t->compiled && !t->fused && t->m->architecture &&
                           strcmp(t->m->architecture, "gpt2") == 0;
        if (spelled_out)
            save(t, "gelu_new intermediates", 3 * f, KEEP_PLAIN);
    }
    if (!t->compiled)
        save(t, "down input", f / t->element_bytes * t->linear_bytes, KEEP_PLAIN);
}

static void save_experts(struct table *t) {
    const struct model *m = t->m;
    double copies = dim(m->experts_per_token), e = t->element_bytes;
    save(t, "router logits and probabilities", 8 * dim(m->experts), KEEP_PLAIN);
    save(t, "dispatched tokens", e * dim(m->hidden) * copies, KEEP_PLAIN);
    save_mlp(t, dim(m->moe_ffn), copies, false);
    save(t, "expert outputs", e * dim(m->hidden) * copies, KEEP_PLAIN);
    if (m->shared_ffn > 0)
        save_mlp(t, dim(m->shared_ffn), 1, true);
}

static struct table table_start(const struct model *m, const struct recipe *r,
                                struct saved_tensor *out) {
    struct table t = {.m = m, .r = r, .out = out, .tokens = activation_tokens(r)};
    t.element_bytes = dtype_bytes(recipe_activation_dtype(r));
    t.split = 1 / dim(r->tp ? r->tp : 1);
    t.unsplit = r->tp_without_sequence_parallel ? 1 : t.split;
    t.compiled = r->compile; // a stack of fused kernels alone saves what eager saves
    t.megatron = r->stack == STACK_MEGATRON;
    t.fused = r->stack != STACK_EAGER;
    // Transformer Engine keeps the cast inputs of its linear layers.
    bool cast = t.megatron && r->precision == PRECISION_FP8;
    t.linear_bytes = cast ? dtype_bytes(DTYPE_FP8) : t.element_bytes;
    t.autocast = r->precision == PRECISION_AMP_BF16 && !t.compiled && !t.megatron;
    t.stream_bytes = t.autocast ? 4 : t.element_bytes;
    return t;
}

// Linear layers that read one input: separate projections, or 1 where they are joined.
static double readers(const struct model *m, const char *last, double separate) {
    for (size_t i = 0; i < m->unit_count; i++)
        for (size_t k = 0; k < m->units[i].tensor_count; k++)
            if (m->units[i].kind == UNIT_BLOCK && strstr(m->units[i].tensors[k].name, last))
                return separate;
    return 1;
}

size_t activation_layer(const struct model *m, const struct recipe *r, bool moe,
                        struct saved_tensor *out) {
    struct table t = table_start(m, r, out);
    double h = dim(m->hidden), e = t.element_bytes;
    save_norm(&t, "attention norm input", "attention input", true, readers(m, "k_proj", 3));
    if (m->kv_lora_rank > 0)
        save_latent_attention(&t);
    else
        save_plain_attention(&t);
    save_mask(&t, "attention residual dropout mask", h);
    if (m->post_norms)
        save_norm(&t, "post-attention norm input", NULL, false, 1);
    if (!m->parallel_residual || m->block_norms != 1)
        save_norm(&t, "MLP norm input", "MLP input", false, readers(m, "gate_proj", 2));
    if (moe)
        save_experts(&t);
    else
        save_mlp(&t, dim(m->ffn), 1, true);
    // The seventh matmul (the fourth without a gate is an even one) is on torchtitan's list too,
    // though nothing in backward reads it: eager stores it, compiled code does not.
    if (m->gated_mlp && !moe && !t.compiled)
        save(&t, "down output", e * h * t.unsplit, KEEP_OP_ONLY);
    save_mask(&t, "MLP residual dropout mask", h);
    if (m->post_norms)
        save_norm(&t, "post-MLP norm input", NULL, false, 1);
    return t.count;
}

static void sum_layer(const struct model *m, const struct recipe *r, bool moe, uint64_t *kept,
                      uint64_t *rebuilt) {
    struct saved_tensor rows[ACTIVATION_SAVED_MAX];
    size_t n = activation_layer(m, r, moe, rows);
    *kept = *rebuilt = 0;
    for (size_t i = 0; i < n; i++)
        *(rows[i].recomputed ? rebuilt : kept) += rows[i].bytes;
}

uint64_t activation_layer_kept_bytes(const struct model *m, const struct recipe *r, bool moe) {
    uint64_t kept, rebuilt;
    sum_layer(m, r, moe, &kept, &rebuilt);
    return kept;
}

uint64_t activation_layer_full_bytes(const struct model *m, const struct recipe *r, bool moe) {
    uint64_t kept, rebuilt;
    sum_layer(m, r, moe, &kept, &rebuilt);
    return kept + rebuilt;
}

double activation_unit_kept_bytes(const struct model *m, const struct recipe *r,
                                  const struct model_unit *u) {
    struct recipe plain = *r;
    plain.recompute = RECOMPUTE_NONE;
    double kept = (double)activation_layer_kept_bytes(m, r, u->moe);
    uint64_t before = 0, every = r->recompute_every ? r->recompute_every : 1;
    if (r->recompute != RECOMPUTE_EVERY_N || u->repeat == 0)
        return kept;
    for (size_t i = 0; i < m->unit_count && &m->units[i] != u; i++)
        before += m->units[i].kind == UNIT_BLOCK ? m->units[i].repeat : 0;
    uint64_t end = before + u->repeat; // layers whose index is a multiple of N
    uint64_t dropping = (end + every - 1) / every - (before + every - 1) / every;
    double stored = (double)activation_layer_kept_bytes(m, &plain, u->moe);
    return (dim(dropping) * kept + dim(u->repeat - dropping) * stored) / dim(u->repeat);
}

uint64_t activation_blocks_bytes(const struct model *m, const struct recipe *r) {
    double total = 0;
    for (size_t i = 0; i < m->unit_count; i++)
        if (m->units[i].kind == UNIT_BLOCK)
            total += dim(m->units[i].repeat) * activation_unit_kept_bytes(m, r, &m->units[i]);
    // 1F1B: the first stage has min(g, pp) micro-batches under way. docs/method.md §model-parallel.
    uint64_t stages = r->pp ? r->pp : 1,
             under_way = r->grad_accum < stages ? r->grad_accum : stages;
    double first = total / dim(stages) * dim(under_way ? under_way : 1);
    if (r->virtual_stages > 1) { // an interleaved schedule starts more (arXiv 2205.05198 §4.2.3)
        first *= 1 + (dim(stages) - 1) / (dim(stages) * dim(r->virtual_stages));
        first = fmin(first, total / dim(stages) * dim(r->grad_accum)); // while there are more
    }
    return to_bytes(first);
}

uint64_t activation_working_bytes(const struct model *m, const struct recipe *r) {
    uint64_t most = 0;
    for (size_t i = 0; i < m->unit_count; i++) {
        uint64_t kept, rebuilt;
        if (m->units[i].kind != UNIT_BLOCK)
            continue;
        sum_layer(m, r, m->units[i].moe, &kept, &rebuilt);
        most = rebuilt > most ? rebuilt : most;
    }
    return most + activation_gradient_bytes(m, r);
}

uint64_t activation_gradient_bytes(const struct model *m, const struct recipe *r) {
    struct table t = table_start(m, r, NULL);
    return to_bytes(t.stream_bytes * dim(m->hidden) * t.unsplit * t.tokens);
}

uint64_t activation_embedding_bytes(const struct model *m, const struct recipe *r) {
    struct table t = table_start(m, r, NULL);
    double h = dim(m->hidden), e = t.element_bytes, per_token = 2 * e * h;
    if (m->norm == NORM_RMS && !t.compiled && !t.megatron)
        per_token = (4 + t.stream_bytes + e) * h;
    if (m->dropout > 0 && !t.compiled)
        per_token += h;
    return to_bytes(per_token * t.unsplit * t.tokens);
}

// Head and loss fused over chunks of T / ceil(V / h) tokens (Liger): the gradients of the hidden
// states and of the head exist from forward on; one chunk's logits and one product at a time.
static void chunked_logits(const struct model *m, const struct table *t, double *held,
                           double *peak) {
    double v = dim(m->vocab) * t->split, h = dim(m->hidden), e = t->element_bytes;
    double chunks = (double)((m->vocab + m->hidden - 1) / m->hidden);
    *held = e * h * t->tokens + e * v * h;
    *peak = *held + (e + 4) * v * t->tokens / chunks + (e + 4) * v * h;
}

void activation_logits(const struct model *m, const struct recipe *r, uint64_t *held_bytes,
                       uint64_t *peak_bytes) {
    struct table t = table_start(m, r, NULL);
    double e = t.element_bytes, elements = dim(m->vocab) * t.split * t.tokens;
    double held = 4 * elements, peak = 12 * elements; // fp32: log-softmax and two gradients
    if (r->loss == LOSS_CHUNKED) {
        chunked_logits(m, &t, &held, &peak);
    } else if (r->loss == LOSS_FUSED || (t.compiled && !r->loss_eager)) {
        held = e * elements;
        peak = 2 * e * elements;
    } else if (t.megatron) {
        held = 4 * elements; // the softmax overwrites the fp32 logits
        peak = (e + 4) * elements;
    } else if (r->tp > 1) {
        peak = 16 * elements; // loss parallel keeps exp(x) beside the sum and the gradient
    }
    *held_bytes = to_bytes(held);
    *peak_bytes = to_bytes(peak);
}
