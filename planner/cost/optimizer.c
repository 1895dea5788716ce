// SPDX-License-Identifier: Apache-2.0
#include "cost/optimizer.h"

#include "base/kinds.h"
#include "cost/compute.h"

#include <math.h>

// bitsandbytes from 0.43 on: blocks of 256, an fp32 maximum each; smaller tensors stay in fp32.
static const double block_elements = 256, block_least_elements = 4096, fp32_bytes = 4;
static const double newton_schulz_iterations = 5;

bool optimizer_is_flat(const struct recipe *r) {
    return recipe_is_deepspeed(r) || recipe_is_fsdp1(r);
}

bool optimizer_is_muon_matrix(const struct model_unit *u, const struct tensor *t) {
    return u->kind == UNIT_BLOCK && (t->role == TENSOR_LINEAR || t->role == TENSOR_EXPERT) &&
           t->cols > 1;
}

// What one tensor costs a rank that holds 1/shards of its rows, and how many elements those are.
struct held {
    double bytes, elements;
};

static struct held eight_bit(const struct tensor *t, double rows) {
    double n = rows * (double)t->cols;
    if ((double)tensor_numel(t) < block_least_elements)
        return (struct held){2 * fp32_bytes * n, n};
    return (struct held){2 * (n + fp32_bytes * ceil(n / block_elements)), n};
}

// A row and a column of means stand for a matrix's second moment; vectors keep it whole.
static struct held factored(const struct tensor *t, double rows, double state_bytes) {
    double n = rows * (double)t->cols;
    return (struct held){state_bytes * (t->cols > 1 ? rows + (double)t->cols : n), n};
}

static struct held of_tensor(const struct model_unit *u, const struct tensor *t,
                             const struct recipe *r, double shards) {
    double rows = ceil((double)t->rows / shards), b = dtype_bytes(r->state_dtype);
    double n = rows * (double)t->cols;
    switch (r->optimizer) {
    case OPTIMIZER_ADAMW8BIT:
        return eight_bit(t, rows);
    case OPTIMIZER_ADAFACTOR:
        return factored(t, rows, b);
    default:
        return (struct held){(optimizer_is_muon_matrix(u, t) ? b : 2 * b) * n, n};
    }
}

static double mean_over_tensors(const struct model *m, const struct recipe *r, double shards) {
    struct held sum = {0};
    for (size_t i = 0; i < m->unit_count; i++) {
        const struct model_unit *u = &m->units[i];
        for (size_t k = 0; k < u->tensor_count; k++) {
            double times = (double)u->repeat * (double)u->tensors[k].count;
            struct held one = of_tensor(u, &u->tensors[k], r, shards);
            sum.bytes += times * one.bytes;
            sum.elements += times * one.elements;
        }
    }
    return sum.elements > 0 ? sum.bytes / sum.elements : 0;
}

double optimizer_state_bytes(const struct model *m, const struct recipe *r, double shards) {
    double b = dtype_bytes(r->state_dtype);
    bool flat = optimizer_is_flat(r) || r->lora_rank > 0;
    switch (r->optimizer) {
    case OPTIMIZER_ADAMW:
    case OPTIMIZER_ADAMW_BF16:
        return 2 * b;
    case OPTIMIZER_ADAMW8BIT:
        return flat ? 2 * (1 + fp32_bytes / block_elements) : mean_over_tensors(m, r, shards);
    case OPTIMIZER_ADAFACTOR:
        return flat ? b : mean_over_tensors(m, r, shards);
    case OPTIMIZER_MUON: // DeepSpeed keeps whole tensors apart in its flat groups
        return r->lora_rank > 0 ? b : mean_over_tensors(m, r, 1);
    default:
        return 0; // SGD without momentum
    }
}

// ---- Muon ---------------------------------------------------------------------------------------

double optimizer_muon_elements(const struct model *m, const struct recipe *r) {
    double sum = 0;
    if (r->optimizer != OPTIMIZER_MUON || r->lora_rank > 0)
        return 0;
    for (size_t i = 0; i < m->unit_count; i++)
        for (size_t k = 0; k < m->units[i].tensor_count; k++) {
            const struct tensor *t = &m->units[i].tensors[k];
            if (optimizer_is_muon_matrix(&m->units[i], t))
                sum += (double)tensor_numel(t) * (double)t->count * (double)m->units[i].repeat;
        }
    return sum / (double)(r->tp * r->pp);
}

// X of a x b, a <= b: A = X X', B = c1 A + c2 A A, X = c0 X + B X.
static void products(const struct tensor *t, uint64_t ways, struct gemm_shape out[3]) {
    uint64_t rows = t->rows / (ways > 0 && t->rows % ways == 0 ? ways : 1);
    uint64_t a = rows < t->cols ? rows : t->cols, b = rows < t->cols ? t->cols : rows;
    out[0] = (struct gemm_shape){a, a, b, 1, DTYPE_BF16};
    out[1] = (struct gemm_shape){a, a, a, 1, DTYPE_BF16};
    out[2] = (struct gemm_shape){a, b, a, 1, DTYPE_BF16};
}

double optimizer_muon_flop(const struct tensor *t) {
    struct gemm_shape s[3];
    double flop = 0;
    products(t, 1, s);
    for (int i = 0; i < 3; i++)
        flop += 2 * (double)s[i].m * (double)s[i].n * (double)s[i].k;
    return newton_schulz_iterations * flop;
}

static double matrix_s(const struct tensor *t, const struct cluster *c, const struct recipe *r) {
    struct gemm_shape s[3];
    double sum = 0;
    products(t, r->tp, s);
    for (int i = 0; i < 3; i++)
        sum += compute_gemm_s(&c->gpu, r->stack, &s[i]);
    return newton_schulz_iterations * sum;
}

double optimizer_muon_working_bytes(const struct model *m, const struct recipe *r) {
    const double bf16_bytes = 2;
    double most = 0;
    if (r->optimizer != OPTIMIZER_MUON || r->lora_rank > 0)
        return 0;
    for (size_t i = 0; i < m->unit_count; i++)
        for (size_t k = 0; k < m->units[i].tensor_count; k++) {
            struct gemm_shape s[3];
            if (!optimizer_is_muon_matrix(&m->units[i], &m->units[i].tensors[k]))
                continue;
            products(&m->units[i].tensors[k], r->tp, s);
            double a = (double)s[0].m, b = (double)s[0].k;
            most = fmax(most, bf16_bytes * (2 * a * b + 2 * a * a));
        }
    return most;
}

double optimizer_muon_s(const struct model *m, const struct cluster *c, const struct recipe *r) {
    double all = 0, longest = 0;
    if (r->optimizer != OPTIMIZER_MUON || r->lora_rank > 0)
        return 0;
    for (size_t i = 0; i < m->unit_count; i++)
        for (size_t k = 0; k < m->units[i].tensor_count; k++) {
            const struct tensor *t = &m->units[i].tensors[k];
            if (!optimizer_is_muon_matrix(&m->units[i], t))
                continue;
            double one = matrix_s(t, c, r);
            all += one * (double)t->count * (double)m->units[i].repeat / (double)r->pp;
            longest = fmax(longest, one);
        }
    if (!recipe_is_deepspeed(r)) // every rank orthogonalises every matrix
        return all;
    return fmax(all / (double)r->world, longest); // DeepSpeed: each its own
}

bool optimizer_muon_gathers(const struct recipe *r) {
    return r->optimizer == OPTIMIZER_MUON && recipe_gathers(r) && r->lora_rank == 0;
}

bool optimizer_muon_shares(const struct recipe *r) {
    return optimizer_muon_gathers(r) && recipe_is_stage3(r);
}
