// SPDX-License-Identifier: Apache-2.0
#include "cost/compute_ops.h"

#include "cost/memory_parts.h"

#include <math.h>
#include <string.h>

double compute_tokens(const struct recipe *r) {
    const double cp = r->cp > 1 ? (double)r->cp : 1.0;
    return (double)r->micro_batch * (double)r->seq / cp;
}

static double tensor_ways(const struct recipe *r) {
    return r->tp > 1 ? (double)r->tp : 1.0;
}

static double pairs_of(double seq, double window) {
    if (window <= 0 || window >= seq) {
        return seq * seq / 2.0;
    }
    return window * seq - window * window / 2.0;
}

double compute_attention_pairs(const struct model *m, const struct recipe *r) {
    const double seq = (double)r->seq;
    const double full = pairs_of(seq, 0);
    if (m->sliding_window == 0) {
        return full;
    }
    const double local = pairs_of(seq, (double)m->sliding_window);
    const double global = m->sliding_every > 0 ? 1.0 / (double)m->sliding_every : 0.0;
    return global * full + (1.0 - global) * local;
}

void compute_recompute_shares(const struct recipe *r, double *gemm, double *attention,
                              double *memory) {
    *gemm = *attention = *memory = 0.0;
    switch (r->recompute) {
    case RECOMPUTE_FULL:
        *gemm = *attention = *memory = 1.0;
        break;
    case RECOMPUTE_EVERY_N:
        *gemm = *attention = *memory =
            1.0 / (double)(r->recompute_every > 0 ? r->recompute_every : 1);
        break;
    case RECOMPUTE_SELECTIVE_OP: // attention and every second matmul are kept
        *gemm = 0.5;
        *memory = 1.0;
        break;
    case RECOMPUTE_SELECTIVE_ATTENTION:
        *attention = 1.0;
        break;
    default:
        break;
    }
}

// How many times each memory-bound operation touches one element, and with how many kernels.
struct touches {
    double forward_bytes, backward_bytes; // per element
    uint64_t forward_kernels, backward_kernels;
};

static bool is_fused(const struct recipe *r) {
    return r->stack != STACK_EAGER || r->compile;
}

static double element_bytes(const struct recipe *r) {
    return fmax(1.0, dtype_bytes(r->compute_dtype == DTYPE_FP8 ? DTYPE_BF16 : r->compute_dtype));
}

// Eager RMSNorm is a chain of fp32 kernels; LayerNorm has always been one.
static struct touches norm_touches(const struct model *m, const struct recipe *r) {
    const double e = element_bytes(r);
    if (m->norm == NORM_RMS && !is_fused(r)) {
        return (struct touches){20 + 2 * e, 32 + 2 * e, 6, 12};
    }
    struct touches t = {2 * e, 3 * e, 1, 2};
    if (r->precision == PRECISION_AMP_BF16 && !is_fused(r)) { // autocast norms run in fp32
        t = (struct touches){8 + 2 * (4 + e), 12 + 2 * (4 + e), 3, 4};
    }
    return t;
}

static struct touches residual_touches(const struct recipe *r) {
    const double e = element_bytes(r);
    return r->stack == STACK_COMPILED || r->compile ? (struct touches){1.5 * e, 1.5 * e, 0, 0}
                                                    : (struct touches){3 * e, 3 * e, 1, 1};
}

static struct touches activation_touches(const struct model *m, const struct recipe *r) {
    const double e = element_bytes(r);
    // GPT-2's own approximation of GELU is eight kernels of Python in its public codes.
    const bool composed =
        !is_fused(r) && m->architecture != NULL && strcmp(m->architecture, "gpt2") == 0;
    if (!m->gated_mlp) {
        return composed ? (struct touches){18 * e, 27 * e, 8, 12}
                        : (struct touches){2 * e, 3 * e, 1, 1};
    }
    return is_fused(r) ? (struct touches){3 * e, 5 * e, 1, 1}
                       : (struct touches){5 * e, 9 * e, 2, 3};
}

static struct touches rope_touches(const struct recipe *r) {
    const double e = element_bytes(r);
    return is_fused(r) ? (struct touches){2 * e, 2 * e, 1, 1}
                       : (struct touches){6 * e, 6 * e, 10, 10};
}

static void touch(struct unit_ops *o, struct touches t, double elements, double calls) {
    o->forward_bytes += t.forward_bytes * elements * calls;
    o->backward_bytes += t.backward_bytes * elements * calls;
    o->forward_kernels += (uint64_t)((double)t.forward_kernels * calls + 0.5);
    o->backward_kernels += (uint64_t)((double)t.backward_kernels * calls + 0.5);
}

static void add_gemm(struct unit_ops *o, struct gemm_shape s, double trained) {
    if (o->gemm_count < COMPUTE_SHAPES_MAX && s.m > 0 && s.n > 0 && s.k > 0) {
        o->trained[o->gemm_count] = trained;
        o->gemms[o->gemm_count++] = s;
    }
}

// Adapters have few shapes, each many times.
static void add_adapter(struct unit_ops *o, struct gemm_shape s) {
    for (size_t i = 0; i < o->gemm_count; i++) {
        struct gemm_shape *at = &o->gemms[i];
        if (o->trained[i] == 1 && at->m == s.m && at->n == s.n && at->k == s.k &&
            at->dtype == s.dtype) {
            at->count += s.count;
            return;
        }
    }
    add_gemm(o, s, 1);
}

// y += scale * B(A x) beside a frozen layer, and the gradient of x added to the layer's own.
static void adapter_ops(const struct recipe *r, const struct gemm_shape *layer,
                        struct unit_ops *o) {
    struct gemm_shape a = *layer, b = *layer;
    a.n = b.k = r->lora_rank;
    a.dtype = b.dtype = layer->dtype == DTYPE_FP8 ? DTYPE_BF16 : layer->dtype;
    add_adapter(o, a);
    add_adapter(o, b);
    const double e = element_bytes(r), m = (double)layer->m * (double)layer->count;
    o->forward_bytes += (2 + 3) * e * m * (double)layer->n;
    o->backward_bytes += e * m * (2 * (double)layer->n + 3 * (double)layer->k);
    o->forward_kernels += 2 * layer->count;
    o->backward_kernels += 2 * layer->count;
}

// A 4-bit weight is turned into 16 bits before each use of it.
static void dequantise_ops(const struct recipe *r, const struct gemm_shape *layer,
                           struct unit_ops *o) {
    const double each = memory_frozen_element_bytes(r) + element_bytes(r);
    const double bytes = each * (double)layer->n * (double)layer->k * (double)layer->count;
    o->forward_bytes += bytes;
    o->backward_bytes += bytes;
    o->forward_kernels += layer->count;
    o->backward_kernels += layer->count;
}

// Megatron splits the inputs of these, the outputs of all others.
static bool splits_inputs(const char *name) {
    static const char *const parts[] = {"o_proj", "out_proj",      "down_proj", "c_proj", "fc2",
                                        "fc_out", "dense_4h_to_h", ".dense.",   ".w2"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strstr(name, parts[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static uint64_t divided(uint64_t n, double ways) {
    return (uint64_t)fmax(1.0, floor((double)n / ways));
}

static enum dtype gemm_dtype(const struct recipe *r, enum tensor_role role) {
    if (r->compute_dtype == DTYPE_FP8 || r->precision == PRECISION_FP8) {
        return role == TENSOR_LINEAR || role == TENSOR_EXPERT ? DTYPE_FP8 : DTYPE_BF16;
    }
    return r->compute_dtype;
}

static void linear_gemm(const struct model *m, const struct recipe *r, const struct tensor *t,
                        struct unit_ops *o) {
    const double ways = tensor_ways(r);
    struct gemm_shape s = {.m = (uint64_t)compute_tokens(r),
                           .n = t->transposed ? t->cols : t->rows,
                           .k = t->transposed ? t->rows : t->cols,
                           .count = 1,
                           .dtype = gemm_dtype(r, t->role)};
    if (t->role == TENSOR_EXPERT && m->experts > 0) {
        const double ep = r->ep > 1 ? (double)r->ep : 1.0;
        const double per_expert = (double)s.m * (double)m->experts_per_token / (double)m->experts;
        s.count = divided(t->count, ep); // ep ranks send their tokens here: M grows by ep
        s.m = (uint64_t)fmax(1.0, per_expert * ep);
    }
    if (ways > 1 && t->role != TENSOR_ROUTER) {
        if (splits_inputs(t->name)) {
            s.k = divided(s.k, ways);
        } else {
            s.n = divided(s.n, ways);
        }
    }
    const double trained = recipe_trained_share(r);
    add_gemm(o, s, trained);
    if (r->precision ==
        PRECISION_AMP_BF16) { // autocast copies the fp32 weight, and its gradient back
        const double cast = (4 + element_bytes(r)) * (double)(s.n * s.k * s.count);
        o->forward_bytes += cast;
        o->backward_bytes += trained * cast;
        o->forward_kernels += 2 * s.count;
        o->backward_kernels += trained > 0 ? 2 * s.count : 0;
    }
    if (r->base_4bit && t->role != TENSOR_ROUTER) {
        dequantise_ops(r, &s, o);
    }
    if (recipe_adapts(r, t)) {
        adapter_ops(r, &s, o);
    }
}

static void attention_ops(const struct model *m, const struct recipe *r, struct unit_ops *o) {
    const double ways = tensor_ways(r), e = element_bytes(r);
    const double heads = (double)m->heads / ways;
    const double kv = (double)(m->kv_heads > 0 ? m->kv_heads : m->heads) / ways;
    const double qk_dim = m->kv_lora_rank > 0 ? (double)(m->qk_nope_head_dim + m->qk_rope_head_dim)
                                              : (double)m->head_dim;
    const double v_dim = m->kv_lora_rank > 0 ? (double)m->v_head_dim : (double)m->head_dim;
    const double batch = (double)r->micro_batch, tokens = compute_tokens(r);
    const double cp = r->cp > 1 ? (double)r->cp : 1.0;
    o->attention_flop = 2.0 * compute_attention_pairs(m, r) * batch * heads * (qk_dim + v_dim) / cp;
    if (r->attention == ATTENTION_MATH) {
        const double scores = batch * heads * (double)r->seq * (double)r->seq / cp;
        o->attention_math_flop = 2.0 * scores * (qk_dim + v_dim);
        // scale and mask, softmax in and out, read by the value matmul; backward the same again.
        o->score_bytes = scores * (6 * e + (m->dropout > 0 ? 2 * e + 1 : 0));
        o->forward_kernels += 6;
        o->backward_kernels += 8;
    } else {
        o->forward_kernels += 3;
        o->backward_kernels += 3;
    }
    if (!m->learned_positions) {
        touch(o, rope_touches(r), tokens * (heads + kv) * qk_dim, 1);
    }
    o->backward_bytes += 2 * e * tokens * (heads + 2 * kv) * qk_dim; // gradients of q, k, v joined
    o->backward_kernels += 1;
}

static void norm_ops(const struct model *m, const struct recipe *r, const struct tensor *t,
                     struct unit_ops *o) {
    double width = (double)t->rows;
    // Sequence parallelism shares the norms' tokens between the tensor-parallel ranks.
    const double tokens = compute_tokens(r) / tensor_ways(r);
    if (m->qk_norm && strstr(t->name, "q_norm") != NULL) {
        width = (double)(m->heads * m->head_dim);
    } else if (m->qk_norm && strstr(t->name, "k_norm") != NULL) {
        width = (double)(m->kv_heads * m->head_dim);
    }
    touch(o, norm_touches(m, r), width * tokens, 1);
}

static void mlp_ops(const struct model *m, const struct recipe *r, const struct model_unit *u,
                    struct unit_ops *o) {
    const double tokens = compute_tokens(r), ways = tensor_ways(r), e = element_bytes(r);
    if (!u->moe) {
        touch(o, activation_touches(m, r), tokens * (double)m->ffn / ways, 1);
        return;
    }
    const double routed = tokens * (double)m->experts_per_token;
    touch(o, activation_touches(m, r), routed * (double)m->moe_ffn / ways, 1);
    if (m->shared_ffn > 0) {
        touch(o, activation_touches(m, r), tokens * (double)m->shared_ffn / ways, 1);
    }
    // Tokens copied to their experts and weighted back; router softmax and top-k in fp32.
    const struct touches move = {4 * e, 5 * e, 4, 6};
    touch(o, move, routed * (double)m->hidden, 1);
    const struct touches route = {16, 16, 5, 5};
    touch(o, route, tokens * (double)m->experts, 1);
}

static void residual_ops(const struct model *m, const struct recipe *r, struct unit_ops *o) {
    const double elements = compute_tokens(r) * (double)m->hidden / tensor_ways(r);
    const double calls = m->parallel_residual ? 1.5 : 2.0;
    const double e = element_bytes(r);
    touch(o, residual_touches(r), elements, calls);
    if (m->dropout > 0 && r->stack != STACK_COMPILED) {
        const struct touches drop = {2 * e + 1, 2 * e + 1, 1, 1};
        touch(o, drop, elements, 2.0);
    }
}

static void block_ops(const struct model *m, const struct recipe *r, const struct model_unit *u,
                      struct unit_ops *o) {
    const double tokens = compute_tokens(r), e = element_bytes(r);
    const double trained = recipe_trained_share(r);
    attention_ops(m, r, o);
    mlp_ops(m, r, u, o);
    residual_ops(m, r, o);
    for (size_t i = 0; i < u->tensor_count; i++) {
        const struct tensor *t = &u->tensors[i];
        const bool of_norm = i > 0 && u->tensors[i - 1].role == TENSOR_NORM;
        if (t->role == TENSOR_BIAS && !of_norm && trained > 0) { // the output's gradient summed
            o->backward_bytes += trained * e * tokens * (double)t->rows / tensor_ways(r);
            o->backward_kernels += 1;
        }
    }
}

bool compute_has_head(const struct model *m, const struct model_unit *u) {
    return u->kind == UNIT_HEAD || (u->kind == UNIT_FINAL_NORM && m->tied_embeddings);
}

static void head_ops(const struct model *m, const struct recipe *r, struct unit_ops *o) {
    const double tokens = compute_tokens(r), vocab = (double)m->vocab / tensor_ways(r);
    const double e = element_bytes(r);
    struct gemm_shape s = {.m = (uint64_t)tokens,
                           .n = (uint64_t)vocab,
                           .k = m->embed_dim ? m->embed_dim : m->hidden,
                           .count = 1,
                           .dtype = gemm_dtype(r, TENSOR_HEAD)};
    add_gemm(o, s, recipe_trained_share(r));
    // Bytes per logit. torch: fp32 copy, shifted copy, log-softmax, and their gradients.
    struct touches loss = {14 + 2 * e, 22 + 2 * e, 5, 6};
    if (r->loss == LOSS_FUSED) {
        loss = (struct touches){2 * e, 2 * e, 2, 2};
    } else if (r->loss == LOSS_CHUNKED) {
        loss = (struct touches){3 * e, 2 * e, 16, 16};
    } else if (is_fused(r)) {
        loss = (struct touches){2 + 2 * e, 4 + 2 * e, 3, 3};
    }
    touch(o, loss, tokens * vocab, 1);
}

static void embedding_ops(const struct model *m, const struct recipe *r, struct unit_ops *o) {
    const double e = element_bytes(r), tokens = compute_tokens(r);
    const double h = (double)m->hidden, vocab = (double)m->vocab / tensor_ways(r);
    o->forward_bytes += tokens * h * 2 * e;
    const double trained = recipe_trained_share(r);
    o->backward_bytes +=
        trained * (tokens * h * 3 * e + vocab * h * e); // gather's transpose, dense gradient zeroed
    o->forward_kernels += m->learned_positions ? 3 : 1;
    if (trained > 0) {
        o->backward_kernels += m->learned_positions ? 5 : 3;
    }
}

void compute_ops_unit(const struct model *m, const struct recipe *r, const struct model_unit *u,
                      struct unit_ops *out) {
    *out = (struct unit_ops){0};
    for (size_t i = 0; i < u->tensor_count; i++) {
        const struct tensor *t = &u->tensors[i];
        switch (t->role) {
        case TENSOR_LINEAR:
        case TENSOR_ROUTER:
        case TENSOR_EXPERT:
            linear_gemm(m, r, t, out);
            break;
        case TENSOR_NORM:
            norm_ops(m, r, t, out);
            break;
        default:
            break;
        }
    }
    if (u->kind == UNIT_BLOCK) {
        block_ops(m, r, u, out);
    } else if (u->kind == UNIT_EMBEDDING) {
        embedding_ops(m, r, out);
    }
    if (compute_has_head(m, u)) {
        head_ops(m, r, out);
    }
}
