// SPDX-License-Identifier: Apache-2.0
#include "cost/compute.h"

#include "cost/compute_ops.h"
#include "describe/gpu_kernels.h"
#include "describe/version.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TILE_ELEMENTS (128.0 * 256.0)
#define ATTENTION_BACKWARD_FLOP 2.5  // five matmuls for two
#define MATH_ATTENTION_SHARE 0.6     // of the large-matmul rate, batched matmuls of head width
#define FP8_CAST_BYTES 3.0           // read 16 bit, write 8 bit
#define FP8_CAST_TRANSPOSE_BYTES 4.0 // and write it transposed

static double constant(const struct gpu *g, enum kernel_stack s, enum kernel_constant k) {
    return gpu_kernel(g, s, k).value;
}

// Matrix units for bf16 came with compute capability 8.0; before, bf16 runs at the fp32 rate.
static bool lacks_bf16(const struct gpu *g) {
    const char *prefix = "sm_";
    if (g->sm == NULL || strncmp(g->sm, prefix, strlen(prefix)) != 0)
        return false;
    return strtol(g->sm + strlen(prefix), NULL, 10) < 80;
}

// The type whose catalogued peak stands for `t`: its own, else the nearest that is known.
static enum dtype peak_dtype(const struct gpu *g, enum dtype t) {
    if (t == DTYPE_FP8 && !figure_is_known(g->peak_flop_per_s[t])) {
        t = DTYPE_BF16;
    }
    if (t == DTYPE_BF16 && !figure_is_known(g->peak_flop_per_s[t])) {
        t = lacks_bf16(g) ? DTYPE_FP32 : DTYPE_FP16;
    }
    return figure_is_known(g->peak_flop_per_s[t]) ? t : DTYPE_FP32;
}

static double peak_of(const struct gpu *g, enum dtype t) {
    return g->peak_flop_per_s[peak_dtype(g, t)].value;
}

enum dtype compute_peak_dtype(const struct gpu *g, const struct recipe *r) {
    return peak_dtype(g, r->precision == PRECISION_FP8 ? DTYPE_FP8 : r->compute_dtype);
}

double compute_peak_flop_per_s(const struct gpu *g, const struct recipe *r) {
    return g->peak_flop_per_s[compute_peak_dtype(g, r)].value;
}

static double hbm_rate(const struct gpu *g, enum kernel_stack s) {
    return g->hbm_bytes_per_s.value * constant(g, s, KERNEL_HBM_FRACTION);
}

static double gemm_rate(const struct gpu *g, enum kernel_stack s, enum dtype t) {
    double fraction = constant(g, s, KERNEL_GEMM_FRACTION);
    if (t == DTYPE_FP8) {
        fraction *= constant(g, s, KERNEL_GEMM_FP8_RATIO);
    } else if (peak_dtype(g, t) == DTYPE_FP32 && figure_is_known(g->matmul_fraction[DTYPE_FP32])) {
        fraction = g->matmul_fraction[DTYPE_FP32].value;
    }
    return peak_of(g, t) * fraction;
}

double compute_gemm_s(const struct gpu *g, enum kernel_stack s, const struct gemm_shape *shape) {
    const double m = (double)shape->m, n = (double)shape->n, k = (double)shape->k;
    const double tiles = m * n / TILE_ELEMENTS;
    const double fill = 1.0 + constant(g, s, KERNEL_GEMM_HALF_K) / k;
    const double wave = 1.0 + constant(g, s, KERNEL_GEMM_HALF_TILES) / tiles;
    const double math_s = 2.0 * m * n * k / gemm_rate(g, s, shape->dtype) * fill * wave;
    const double bytes = dtype_bytes(shape->dtype) * (m * k + k * n) + 2.0 * m * n;
    const double traffic_s = bytes / hbm_rate(g, s);
    // The slower of the two rules; the fourth power joins them smoothly.
    const double both_s = pow(pow(math_s, 4.0) + pow(traffic_s, 4.0), 0.25);
    return (double)shape->count * (both_s + constant(g, s, KERNEL_LAUNCH_S));
}

double compute_memory_bound_s(const struct gpu *g, enum kernel_stack s, double bytes) {
    return bytes > 0 ? bytes / hbm_rate(g, s) + constant(g, s, KERNEL_LAUNCH_S) : 0.0;
}

double compute_overlap_loss(const struct gpu *g, enum kernel_stack s) {
    return constant(g, s, KERNEL_OVERLAP_LOSS);
}

double compute_step_host_s(const struct cluster *c, const struct recipe *r) {
    return constant(&c->gpu, r->stack, KERNEL_STEP_HOST_S);
}

// Sum of one direction with its interval: each part is off by its own constant's spread.
struct tally {
    const struct gpu *gpu;
    enum kernel_stack stack;
    double micro_steps; // per optimizer step
    double s, low_s, high_s;
    double gemm_s, attention_s; // parts of s
};

static void tally_add(struct tally *t, double seconds, struct figure f) {
    t->s += seconds;
    const bool spread = f.value > 0 && f.low > 0 && f.high >= f.low;
    t->low_s += seconds * (spread ? f.value / f.high : 1.0);
    t->high_s += seconds * (spread ? f.value / f.low : 1.0);
}

static struct figure spread_of(const struct tally *t, enum kernel_constant k) {
    return gpu_kernel(t->gpu, t->stack, k);
}

static void tally_memory(struct tally *t, double bytes, double kernels) {
    tally_add(t, bytes / hbm_rate(t->gpu, t->stack), spread_of(t, KERNEL_HBM_FRACTION));
    tally_add(t, kernels * constant(t->gpu, t->stack, KERNEL_LAUNCH_S),
              spread_of(t, KERNEL_HBM_FRACTION));
}

static void add_shape(struct unit_cost *u, const struct gemm_shape *s) {
    if (u->shape_count < COMPUTE_SHAPES_MAX) {
        u->shapes[u->shape_count++] = *s;
    }
}

static double flop_of(const struct gemm_shape *s) {
    return 2.0 * (double)s->m * (double)s->n * (double)s->k * (double)s->count;
}

// Scaling and casting the operands of an fp8 matmul to 8 bits. Transformer Engine casts a tensor
// and its transpose in one kernel and keeps both for backward; weights once per step.
static double fp8_bytes(const struct tally *t, const struct gemm_shape *s, bool backward) {
    const double m = (double)s->m, n = (double)s->n, k = (double)s->k, count = (double)s->count;
    if (s->dtype != DTYPE_FP8) {
        return 0.0;
    }
    if (t->stack == STACK_MEGATRON) {
        const double elements = backward ? m * n : m * k + n * k / t->micro_steps;
        return FP8_CAST_TRANSPOSE_BYTES * elements * count;
    }
    return (backward ? 2.0 : 1.0) * FP8_CAST_BYTES * (m * k + n * k) * count;
}

static void tally_gemm(struct tally *t, double seconds) {
    tally_add(t, seconds, spread_of(t, KERNEL_GEMM_FRACTION));
    t->gemm_s += seconds;
}

static double gemms_forward(const struct unit_ops *o, struct tally *t, struct unit_cost *u,
                            double share) {
    double flop = 0.0;
    for (size_t i = 0; i < o->gemm_count; i++) {
        const struct gemm_shape *s = &o->gemms[i];
        tally_gemm(t, share * compute_gemm_s(t->gpu, t->stack, s));
        tally_memory(t, share * fp8_bytes(t, s, false), s->dtype == DTYPE_FP8 ? 2.0 * share : 0.0);
        flop += share * flop_of(s);
        if (share == 1.0) {
            add_shape(u, s);
        }
    }
    return flop;
}

// dX = dY W and dW = dY' X.
static double gemms_backward(const struct unit_ops *o, struct tally *t, struct unit_cost *u) {
    const double ratio = constant(t->gpu, t->stack, KERNEL_GEMM_BACKWARD_RATIO);
    double flop = 0.0;
    for (size_t i = 0; i < o->gemm_count; i++) {
        const struct gemm_shape *f = &o->gemms[i];
        const struct gemm_shape input = {f->m, f->k, f->n, f->count, f->dtype};
        const struct gemm_shape weight = {f->n, f->k, f->m, f->count, f->dtype};
        tally_gemm(t, compute_gemm_s(t->gpu, t->stack, &input) / ratio);
        flop += flop_of(&input);
        add_shape(u, &input);
        if (o->trained[i] > 0) {
            tally_gemm(t, o->trained[i] * compute_gemm_s(t->gpu, t->stack, &weight) / ratio);
            flop += o->trained[i] * flop_of(&weight);
            add_shape(u, &weight);
        }
        tally_memory(t, fp8_bytes(t, f, true), f->dtype == DTYPE_FP8 ? 4.0 : 0.0);
    }
    return flop;
}

// torch 2.2 brought FlashAttention-2; stacks before it ran the first kernels, written for Ampere.
static bool is_old_attention(const struct recipe *r) {
    struct version v;
    struct err ignored = {0};
    return r->framework_version != NULL && version_parse(r->framework_version, &v, &ignored) &&
           v.framework == VERSION_TORCH && version_before(&v, 2, 2, 0);
}

static double attention_rate(const struct gpu *g, const struct recipe *r, enum dtype dtype,
                             bool backward) {
    double fraction =
        constant(g, r->stack,
                 backward ? KERNEL_ATTENTION_BACKWARD_FRACTION : KERNEL_ATTENTION_FORWARD_FRACTION);
    if (is_old_attention(r)) {
        fraction *= constant(g, r->stack,
                             backward ? KERNEL_ATTENTION_OLD_BACKWARD_RATIO
                                      : KERNEL_ATTENTION_OLD_FORWARD_RATIO);
    }
    return peak_of(g, dtype) * fraction;
}

static void attention_kernels(const struct unit_ops *o, struct tally *t, const struct recipe *r,
                              bool backward, double share) {
    const enum dtype dtype = r->compute_dtype == DTYPE_FP8 ? DTYPE_BF16 : r->compute_dtype;
    if (o->attention_math_flop > 0) {
        const double times = share * (backward ? 2.0 : 1.0);
        const double rate = gemm_rate(t->gpu, t->stack, dtype) * MATH_ATTENTION_SHARE;
        tally_add(t, times * o->attention_math_flop / rate, spread_of(t, KERNEL_GEMM_FRACTION));
        tally_memory(t, times * o->score_bytes, 0);
        return;
    }
    const double times = share * (backward ? ATTENTION_BACKWARD_FLOP : 1.0);
    tally_add(t, times * o->attention_flop / attention_rate(t->gpu, r, dtype, backward),
              spread_of(t, backward ? KERNEL_ATTENTION_BACKWARD_FRACTION
                                    : KERNEL_ATTENTION_FORWARD_FRACTION));
}

static void attention(const struct unit_ops *o, struct tally *t, const struct recipe *r,
                      bool backward, double share) {
    const double before_s = t->s;
    attention_kernels(o, t, r, backward, share);
    t->attention_s += t->s - before_s;
}

static bool is_wrapped(const struct recipe *r) {
    return r->framework == FRAMEWORK_FSDP1 || r->framework == FRAMEWORK_FSDP2 ||
           (recipe_is_deepspeed(r) && r->strategy >= STRATEGY_ZERO3);
}

static void finish(const struct cluster *c, const struct recipe *r, const struct tally *t,
                   struct unit_cost *u) {
    const double hooks = is_wrapped(r) ? constant(&c->gpu, r->stack, KERNEL_UNIT_HOST_S) : 0.0;
    u->duration_s = t->s;
    u->low_s = t->low_s;
    u->high_s = t->high_s;
    u->gemm_s = t->gemm_s;
    u->attention_s = t->attention_s;
    u->issue_s = (double)u->kernels * constant(&c->gpu, r->stack, KERNEL_ISSUE_S) + hooks;
}

// Matmul launches: grouped experts go out one by one in eager code.
static uint64_t gemm_launches(const struct unit_ops *o, bool backward) {
    uint64_t n = 0;
    for (size_t i = 0; i < o->gemm_count; i++) {
        n += (backward && o->trained[i] > 0 ? 2 : 1) * o->gemms[i].count;
    }
    return n;
}

static void forward_cost(const struct cluster *c, const struct recipe *r, const struct unit_ops *o,
                         struct unit_cost *u) {
    struct tally t = {.gpu = &c->gpu, .stack = r->stack, .micro_steps = fmax(1, r->grad_accum)};
    u->model_flop = gemms_forward(o, &t, u, 1.0) + o->attention_flop;
    attention(o, &t, r, false, 1.0);
    tally_memory(&t, o->forward_bytes, (double)o->forward_kernels);
    u->flop = u->model_flop;
    u->memory_bytes = o->forward_bytes + o->score_bytes;
    u->kernels = o->forward_kernels + gemm_launches(o, false);
    finish(c, r, &t, u);
}

static void backward_cost(const struct cluster *c, const struct recipe *r, const struct unit_ops *o,
                          bool is_block, struct unit_cost *u) {
    struct tally t = {.gpu = &c->gpu, .stack = r->stack, .micro_steps = fmax(1, r->grad_accum)};
    double gemm = 0, att = 0, mem = 0;
    if (is_block) {
        compute_recompute_shares(r, &gemm, &att, &mem);
    }
    u->model_flop = gemms_backward(o, &t, u) + 2.0 * o->attention_flop;
    attention(o, &t, r, true, 1.0);
    tally_memory(&t, o->backward_bytes, (double)o->backward_kernels);
    u->memory_bytes = o->backward_bytes + 2.0 * o->score_bytes;
    u->kernels = o->backward_kernels + gemm_launches(o, true);
    const double again = gemm > 0 ? gemms_forward(o, &t, u, gemm) : 0.0;
    if (att > 0) {
        attention(o, &t, r, false, att);
    }
    if (mem > 0) {
        tally_memory(&t, mem * o->forward_bytes, mem * (double)o->forward_kernels);
        u->memory_bytes += mem * o->forward_bytes;
        u->kernels += (uint64_t)(mem * (double)(o->forward_kernels + gemm_launches(o, false)));
    }
    u->flop = u->model_flop + again + att * o->attention_flop;
    finish(c, r, &t, u);
}

void compute_unit(const struct compute_context *x, const struct model_unit *u,
                  struct unit_cost *forward, struct unit_cost *backward) {
    struct unit_ops o;
    compute_ops_unit(x->model, x->recipe, u, &o);
    *forward = (struct unit_cost){0};
    *backward = (struct unit_cost){0};
    forward_cost(x->cluster, x->recipe, &o, forward);
    backward_cost(x->cluster, x->recipe, &o, u->kind == UNIT_BLOCK, backward);
}

double compute_model_flop(const struct model *m, const struct recipe *r, bool with_recompute) {
    double flop = 0.0, gemm = 0.0, att = 0.0, mem = 0.0;
    compute_recompute_shares(r, &gemm, &att, &mem);
    for (size_t i = 0; i < m->unit_count; i++) {
        const struct model_unit *u = &m->units[i];
        struct unit_ops o;
        double linear = 0.0, trained = 0.0;
        compute_ops_unit(m, r, u, &o);
        for (size_t k = 0; k < o.gemm_count; k++) {
            linear += flop_of(&o.gemms[k]);
            trained += o.trained[k] * flop_of(&o.gemms[k]);
        }
        const bool again = with_recompute && u->kind == UNIT_BLOCK;
        const double once = 2.0 * linear + trained + 3.0 * o.attention_flop +
                            (again ? gemm * linear + att * o.attention_flop : 0.0);
        flop += once * (double)u->repeat;
    }
    return flop * (double)(r->grad_accum > 0 ? r->grad_accum : 1) / (double)(r->pp > 0 ? r->pp : 1);
}
