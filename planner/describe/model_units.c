// SPDX-License-Identifier: Apache-2.0
// The parameter inventory: docs/method.md §parameters.
#include "describe/model.h"
#include "describe/model_family.h"

#include "base/units.h"

#include <inttypes.h>
#include <string.h>

#define UNIT_TENSORS_MAX 64
#define MODEL_LAYERS_MAX 10000
#define MODEL_WIDTH_MAX (1ULL << 24)
#define MODEL_HEADS_MAX (1ULL << 16)
#define MODEL_ROWS_MAX (1ULL << 28)

struct shape {
    enum tensor_role role;
    uint64_t rows, cols, count;
    bool bias, linear; // linear: stored [in, out] in Conv1D families
};

struct builder {
    const struct model *m;
    const struct family *family;
    struct arena *a;
    struct tensor *tensors;
    size_t count;
};

uint64_t tensor_numel(const struct tensor *t) {
    return t->rows * t->cols;
}

static void builder_start(struct builder *b) {
    b->tensors = arena_array(b->a, UNIT_TENSORS_MAX, sizeof *b->tensors);
    b->count = 0;
}

static void add_tensor(struct builder *b, const char *module, const char *suffix,
                       const struct shape *s) {
    struct tensor *t = &b->tensors[b->count++];
    bool transposed = s->linear && (b->family->flags & FAMILY_CONV1D);
    t->module = module;
    t->name = arena_printf(b->a, "%s.%s", module, suffix);
    t->role = s->role;
    t->rows = transposed ? s->cols : s->rows;
    t->cols = transposed ? s->rows : s->cols;
    t->transposed = transposed;
    t->count = s->count;
}

// The weight, and the bias that goes with it.
static void add_module(struct builder *b, const char *module, const struct shape *s) {
    add_tensor(b, module, "weight", s);
    if (s->bias) {
        struct shape bias = {TENSOR_BIAS, s->rows, 1, s->count, false, false};
        add_tensor(b, module, "bias", &bias);
    }
}

static void add_norm(struct builder *b, const char *module) {
    struct shape s = {TENSOR_NORM, b->m->hidden, 1, 1, b->m->norm_bias, false};
    add_module(b, module, &s);
}

static struct shape linear(uint64_t rows, uint64_t cols, bool bias) {
    return (struct shape){TENSOR_LINEAR, rows, cols, 1, bias, true};
}

static struct shape norm(uint64_t width, bool bias) {
    return (struct shape){TENSOR_NORM, width, 1, 1, bias, false};
}

static struct shape expert(const struct model *m, uint64_t rows, uint64_t cols) {
    return (struct shape){TENSOR_EXPERT, rows, cols, m->experts, false, true};
}

static bool norm_shape(const struct model *m, enum part part, struct shape *s) {
    *s = norm(m->hidden, m->norm_bias);
    return part == PART_NORM || (part == PART_NORM_ONE && m->block_norms == 1) ||
           (part == PART_NORM_TWO && m->block_norms == 2) ||
           (part == PART_NORM_POST && m->post_norms);
}

static bool attention_shape(const struct builder *b, enum part part, struct shape *s) {
    const struct model *m = b->m;
    bool wide = b->family->flags & FAMILY_QK_NORM_WIDE;
    uint64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    switch (part) {
    case PART_Q:
        *s = linear(q, m->hidden, m->qkv_bias);
        return true;
    case PART_K:
    case PART_V:
        *s = linear(kv, m->hidden, m->qkv_bias);
        return true;
    case PART_QKV:
        *s = linear(q + 2 * kv, m->hidden, m->qkv_bias);
        return true;
    case PART_OUT:
        *s = linear(m->hidden, q, m->out_bias);
        return true;
    case PART_Q_NORM:
        *s = norm(wide ? q : m->head_dim, m->norm_bias);
        return m->qk_norm;
    default: // PART_K_NORM
        *s = norm(wide ? kv : m->head_dim, m->norm_bias);
        return m->qk_norm;
    }
}

static bool latent_shape(const struct model *m, enum part part, struct shape *s) {
    uint64_t q = m->heads * (m->qk_nope_head_dim + m->qk_rope_head_dim);
    switch (part) {
    case PART_MLA_Q:
        *s = linear(q, m->hidden, false);
        return m->q_lora_rank == 0;
    case PART_MLA_QA:
        *s = linear(m->q_lora_rank, m->hidden, m->qkv_bias);
        return m->q_lora_rank > 0;
    case PART_MLA_QA_NORM:
        *s = norm(m->q_lora_rank, false);
        return m->q_lora_rank > 0;
    case PART_MLA_QB:
        *s = linear(q, m->q_lora_rank, false);
        return m->q_lora_rank > 0;
    case PART_MLA_KVA:
        *s = linear(m->kv_lora_rank + m->qk_rope_head_dim, m->hidden, m->qkv_bias);
        return true;
    case PART_MLA_KVA_NORM:
        *s = norm(m->kv_lora_rank, false);
        return true;
    case PART_MLA_KVB:
        *s = linear(m->heads * (m->qk_nope_head_dim + m->v_head_dim), m->kv_lora_rank, false);
        return true;
    default: // PART_MLA_OUT
        *s = linear(m->hidden, m->heads * m->v_head_dim, m->out_bias);
        return true;
    }
}

static bool mlp_shape(const struct model *m, enum part part, struct shape *s) {
    switch (part) {
    case PART_GATE:
        *s = linear(m->ffn, m->hidden, m->mlp_bias);
        return m->gated_mlp;
    case PART_UP:
        *s = linear(m->ffn, m->hidden, m->mlp_bias);
        return true;
    case PART_GATE_UP:
        *s = linear(2 * m->ffn, m->hidden, m->mlp_bias);
        return true;
    default: // PART_DOWN
        *s = linear(m->hidden, m->ffn, m->mlp_bias);
        return true;
    }
}

static bool moe_shape(const struct model *m, enum part part, struct shape *s) {
    switch (part) {
    case PART_ROUTER:
        *s = (struct shape){TENSOR_ROUTER, m->experts, m->hidden, 1, false, true};
        return true;
    case PART_EXPERT_GATE:
    case PART_EXPERT_UP:
        *s = expert(m, m->moe_ffn, m->hidden);
        return part == PART_EXPERT_UP || m->gated_mlp;
    case PART_EXPERT_DOWN:
        *s = expert(m, m->hidden, m->moe_ffn);
        return true;
    case PART_SHARED_GATE:
        *s = linear(m->shared_ffn, m->hidden, false);
        return m->shared_ffn > 0 && m->gated_mlp;
    case PART_SHARED_UP:
        *s = linear(m->shared_ffn, m->hidden, false);
        return m->shared_ffn > 0;
    case PART_SHARED_DOWN:
        *s = linear(m->hidden, m->shared_ffn, false);
        return m->shared_ffn > 0;
    default: // PART_SHARED_ROUTER
        *s = (struct shape){TENSOR_ROUTER, 1, m->hidden, 1, false, true};
        return m->shared_ffn > 0;
    }
}

static bool part_shape(const struct builder *b, enum part part, bool moe, struct shape *s) {
    if (part <= PART_NORM_POST)
        return norm_shape(b->m, part, s);
    if (part <= PART_K_NORM)
        return attention_shape(b, part, s);
    if (part <= PART_MLA_OUT)
        return latent_shape(b->m, part, s);
    if (part <= PART_GATE_UP)
        return !moe && mlp_shape(b->m, part, s);
    return moe && moe_shape(b->m, part, s);
}

static bool unit_count_parameters(struct model_unit *u, struct err *e) {
    uint64_t total = 0;
    for (size_t i = 0; i < u->tensor_count; i++) {
        uint64_t n;
        if (!units_mul(u->tensors[i].rows, u->tensors[i].cols, &n, e) ||
            !units_mul(n, u->tensors[i].count, &n, e) || !units_add(total, n, &total, e))
            return false;
    }
    u->parameters = total;
    return true;
}

static struct model_unit unit_from(const struct builder *b, enum unit_kind kind, const char *name) {
    return (struct model_unit){
        .kind = kind, .name = name, .repeat = 1, .tensors = b->tensors, .tensor_count = b->count};
}

static struct model_unit build_embedding(struct builder *b) {
    const struct model *m = b->m;
    const struct family *f = b->family;
    uint64_t width = m->embed_dim ? m->embed_dim : m->hidden;
    builder_start(b);
    struct shape table = {TENSOR_EMBEDDING, m->vocab, width, 1, false, false};
    add_module(b, f->embed, &table);
    if (m->learned_positions && f->position) {
        struct shape position = {
            TENSOR_POSITION, m->max_positions + f->position_extra, m->hidden, 1, false, false};
        add_module(b, f->position, &position);
    }
    if (width != m->hidden) {
        struct shape out = linear(width, m->hidden, false), in = linear(m->hidden, width, false);
        add_module(b, "project_out", &out);
        add_module(b, "project_in", &in);
    }
    if (f->embed_norm)
        add_norm(b, f->embed_norm);
    return unit_from(b, UNIT_EMBEDDING, f->embed);
}

static struct model_unit build_block(struct builder *b, bool moe, uint64_t repeat) {
    builder_start(b);
    for (size_t i = 0; i < b->family->row_count; i++) {
        struct shape s;
        if (part_shape(b, b->family->rows[i].part, moe, &s))
            add_module(b, b->family->rows[i].module, &s);
    }
    struct model_unit u = unit_from(b, UNIT_BLOCK, b->family->layers);
    u.moe = moe;
    u.repeat = repeat;
    return u;
}

static void build_units(struct model *m, struct builder *b, struct model_unit *u) {
    size_t n = 0;
    uint64_t dense = m->experts ? m->dense_layers : m->layers;
    u[n++] = build_embedding(b);
    if (dense)
        u[n++] = build_block(b, false, dense);
    if (m->layers > dense)
        u[n++] = build_block(b, true, m->layers - dense);
    builder_start(b);
    if (!m->no_final_norm)
        add_norm(b, b->family->norm);
    u[n++] = unit_from(b, UNIT_FINAL_NORM, b->family->norm); // a tied head's work is billed here
    if (!m->tied_embeddings || m->head_bias) {
        struct shape head = {TENSOR_HEAD, m->vocab,     m->embed_dim ? m->embed_dim : m->hidden,
                             1,           m->head_bias, false};
        struct shape bias = {TENSOR_BIAS, m->vocab, 1, 1, false, false};
        builder_start(b);
        if (m->tied_embeddings)
            add_tensor(b, b->family->head, "bias", &bias);
        else
            add_module(b, b->family->head, &head);
        u[n++] = unit_from(b, UNIT_HEAD, b->family->head);
    }
    m->units = u;
    m->unit_count = n;
}

// What one token uses of a unit: routed experts count as experts_per_token of them.
static void unit_add_use(struct model *m, const struct model_unit *u) {
    for (size_t i = 0; i < u->tensor_count; i++) {
        const struct tensor *t = &u->tensors[i];
        bool routed = t->role == TENSOR_EXPERT;
        uint64_t n = tensor_numel(t) * (routed ? m->experts_per_token : t->count) * u->repeat;
        m->active_parameters += n;
        if (routed || t->role == TENSOR_LINEAR || t->role == TENSOR_ROUTER ||
            t->role == TENSOR_HEAD)
            m->matmul_parameters += n;
    }
}

static bool count_model(struct model *m, struct model_unit *units, struct err *e) {
    m->parameters = m->active_parameters = m->matmul_parameters = 0;
    for (size_t i = 0; i < m->unit_count; i++) {
        uint64_t n;
        if (!unit_count_parameters(&units[i], e) ||
            !units_mul(units[i].parameters, units[i].repeat, &n, e) ||
            !units_add(m->parameters, n, &m->parameters, e))
            return false;
        unit_add_use(m, &units[i]);
    }
    if (m->tied_embeddings)
        m->matmul_parameters += m->vocab * (m->embed_dim ? m->embed_dim : m->hidden);
    return true;
}

// The limits keep every product of two or three of these far inside 64 bits.
static bool check_ranges(const struct model *m, struct err *e) {
    bool moe_only = m->experts && m->dense_layers == 0;
    const struct {
        const char *name;
        uint64_t value, min, max;
    } fields[] = {
        {"layers", m->layers, 1, MODEL_LAYERS_MAX},
        {"hidden size", m->hidden, 1, MODEL_WIDTH_MAX},
        {"attention heads", m->heads, 1, MODEL_HEADS_MAX},
        {"key-value heads", m->kv_heads, 1, MODEL_HEADS_MAX},
        {"head size", m->head_dim, 0, MODEL_HEADS_MAX},
        {"vocabulary", m->vocab, 1, MODEL_ROWS_MAX},
        {"feed-forward size", m->ffn, moe_only ? 0 : 1, MODEL_WIDTH_MAX},
        {"positions", m->max_positions, 0, MODEL_ROWS_MAX},
        {"embedding width", m->embed_dim, 0, MODEL_WIDTH_MAX},
        {"experts", m->experts, 0, MODEL_HEADS_MAX},
        {"expert feed-forward size", m->moe_ffn, m->experts ? 1 : 0, MODEL_WIDTH_MAX},
        {"shared expert size", m->shared_ffn, 0, MODEL_WIDTH_MAX},
        {"q_lora_rank", m->q_lora_rank, 0, MODEL_WIDTH_MAX},
        {"kv_lora_rank", m->kv_lora_rank, 0, MODEL_WIDTH_MAX},
        {"qk_nope_head_dim", m->qk_nope_head_dim, 0, MODEL_HEADS_MAX},
        {"qk_rope_head_dim", m->qk_rope_head_dim, 0, MODEL_HEADS_MAX},
        {"v_head_dim", m->v_head_dim, 0, MODEL_HEADS_MAX},
    };
    const char *name = m->name ? m->name : "";
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (fields[i].value == 0 && fields[i].min > 0)
            return err_set(e, ERR_INPUT, "model %s: %s is missing or zero", name, fields[i].name);
        if (fields[i].value > fields[i].max)
            return err_set(e, ERR_INPUT, "model %s: %s is %" PRIu64 ", the limit is %" PRIu64, name,
                           fields[i].name, fields[i].value, fields[i].max);
    }
    return true;
}
static bool check_shape(const struct model *m, struct err *e) {
    const char *name = m->name ? m->name : "";
    if (m->kv_lora_rank == 0 && m->head_dim == 0)
        return err_set(e, ERR_INPUT,
                       "model %s: hidden size %" PRIu64 " is not a multiple of %" PRIu64
                       " heads and head_dim is not given",
                       name, m->hidden, m->heads);
    if (m->kv_heads > m->heads || m->heads % m->kv_heads)
        return err_set(e, ERR_INPUT,
                       "model %s: %" PRIu64 " key-value heads do not divide %" PRIu64 " heads",
                       name, m->kv_heads, m->heads);
    if (m->experts && (m->experts_per_token == 0 || m->experts_per_token > m->experts))
        return err_set(e, ERR_INPUT,
                       "model %s: %" PRIu64 " experts per token of %" PRIu64 " experts", name,
                       m->experts_per_token, m->experts);
    bool latent = !strncmp(m->architecture, "deepseek", strlen("deepseek"));
    if (latent && (!m->kv_lora_rank || !m->v_head_dim || !m->qk_nope_head_dim))
        return err_set(e, ERR_INPUT,
                       "model %s: kv_lora_rank, v_head_dim and qk_nope_head_dim are "
                       "needed for %s",
                       name, m->architecture);
    if (m->experts && m->dense_layers > m->layers)
        return err_set(e, ERR_INPUT, "model %s: %" PRIu64 " dense layers of %" PRIu64 " layers",
                       name, m->dense_layers, m->layers);
    if (m->learned_positions && m->max_positions == 0)
        return err_set(e, ERR_INPUT, "model %s: learned positions need their number", name);
    return true;
}

static void fill_derived(struct model *m) {
    if (m->heads && m->head_dim == 0 && m->hidden % m->heads == 0)
        m->head_dim = m->hidden / m->heads;
    if (m->kv_heads == 0)
        m->kv_heads = m->heads;
    if (m->experts && m->moe_ffn == 0)
        m->moe_ffn = m->ffn;
    if (m->block_norms == 0)
        m->block_norms = 2;
    if (m->embed_dim == m->hidden)
        m->embed_dim = 0;
}

bool model_finish(struct model *m, struct arena *a, struct err *e) {
    struct model out = *m;
    if (!out.architecture)
        out.architecture = out.gated_mlp ? "llama" : "gpt2";
    const struct family *family = model_family(out.architecture);
    if (!family)
        return err_set(e, ERR_INPUT, "model %s: unknown model_type \"%s\"",
                       out.name ? out.name : "", out.architecture);
    fill_derived(&out);
    if (!check_ranges(&out, e) || !check_shape(&out, e))
        return false;
    struct builder b = {.m = &out, .family = family, .a = a};
    struct model_unit *units = arena_array(a, 5, sizeof *units);
    build_units(&out, &b, units);
    if (!count_model(&out, units, e))
        return false;
    *m = out;
    return true;
}

bool model_architecture(struct model *m, const char *model_type, struct err *e) {
    const struct family *f = model_family(model_type);
    if (!f)
        return err_set(e, ERR_INPUT, "unknown model_type \"%s\"", model_type ? model_type : "");
    m->architecture = f->model_type;
    m->gated_mlp = f->flags & FAMILY_GATED;
    m->tied_embeddings = f->flags & FAMILY_TIED;
    m->learned_positions = f->flags & FAMILY_POSITIONS;
    m->parallel_residual = f->flags & FAMILY_PARALLEL;
    m->qkv_bias = f->flags & FAMILY_QKV_BIAS;
    m->out_bias = f->flags & FAMILY_OUT_BIAS;
    m->mlp_bias = f->flags & FAMILY_MLP_BIAS;
    m->norm_bias = f->flags & FAMILY_NORM_BIAS;
    m->head_bias = f->flags & FAMILY_HEAD_BIAS;
    m->qk_norm = f->flags & FAMILY_QK_NORM;
    m->post_norms = f->flags & FAMILY_POST_NORMS;
    m->block_norms = f->flags & FAMILY_ONE_NORM ? 1 : 2;
    m->norm = f->flags & FAMILY_LAYER_NORM ? NORM_LAYER : NORM_RMS;
    m->activation = f->activation;
    return true;
}

bool model_set_positions(struct model *m, uint64_t positions, struct arena *a, struct err *e) {
    if (!m->learned_positions || m->max_positions == positions)
        return true;
    struct model changed = *m;
    changed.max_positions = positions;
    if (!model_finish(&changed, a, e))
        return false;
    *m = changed;
    return true;
}

uint64_t model_instances(const struct model *m) {
    uint64_t n = 0;
    for (size_t i = 0; i < m->unit_count; i++)
        n += m->units[i].repeat;
    return n;
}

const struct model_unit *model_unit_at(const struct model *m, uint64_t i) {
    for (size_t k = 0; k < m->unit_count; k++) {
        if (i < m->units[k].repeat)
            return &m->units[k];
        i -= m->units[k].repeat;
    }
    return NULL;
}
