// SPDX-License-Identifier: Apache-2.0
// Hugging Face config.json in the shapes that users hold. A foreign file: its other keys are
// ignored, contradictions and impossible values are errors with file, line and path.
#include "describe/model.h"
#include "describe/model_family.h"

#include "base/json.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#define SYNONYMS 6
#define VALUE_MAX (1ULL << 28)

struct field {
    size_t offset;
    const char *keys[SYNONYMS];
};

#define FIELD(member, ...)                                                                         \
    {                                                                                              \
        offsetof(struct model, member), {                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct field fields[] = {
    FIELD(layers, "num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    FIELD(hidden, "hidden_size", "n_embd", "d_model"),
    FIELD(ffn, "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    FIELD(heads, "num_attention_heads", "n_head", "n_heads"),
    FIELD(kv_heads, "num_key_value_heads", "num_kv_heads", "n_head_kv"),
    FIELD(head_dim, "head_dim"),
    FIELD(vocab, "vocab_size"),
    FIELD(max_positions, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
    FIELD(embed_dim, "word_embed_proj_dim"),
    FIELD(experts, "num_local_experts", "num_experts", "n_routed_experts"),
    FIELD(experts_per_token, "num_experts_per_tok", "num_experts_per_token"),
    FIELD(moe_ffn, "moe_intermediate_size"),
    FIELD(shared_ffn, "shared_expert_intermediate_size"),
    FIELD(dense_layers, "first_k_dense_replace"),
    FIELD(q_lora_rank, "q_lora_rank"),
    FIELD(kv_lora_rank, "kv_lora_rank"),
    FIELD(qk_nope_head_dim, "qk_nope_head_dim"),
    FIELD(qk_rope_head_dim, "qk_rope_head_dim"),
    FIELD(v_head_dim, "v_head_dim"),
};

struct reader {
    struct json_node text, root; // the nested text model, or both the same
    struct arena *a;
    struct model *m;
    const struct family *family;
    bool assumed; // unknown model_type, counted as a llama
};

static bool present(struct json_node o, const char *key, struct json_node *out) {
    return json_find(o, key, out) && !json_is_null(*out);
}

static bool read_field(const struct reader *r, const struct field *f, struct err *e) {
    uint64_t *target = (uint64_t *)(void *)((char *)r->m + f->offset);
    const char *first = NULL;
    for (size_t i = 0; i < SYNONYMS && f->keys[i]; i++) {
        struct json_node n;
        uint64_t value;
        if (!present(r->text, f->keys[i], &n))
            continue;
        if (!json_as_u64(n, &value, e))
            return false;
        if (value > VALUE_MAX)
            return json_fail(n, e, "%" PRIu64 " is more than any model has (limit %llu)", value,
                             VALUE_MAX);
        if (first && value != *target)
            return json_fail(n, e, "%" PRIu64 " contradicts \"%s\": %" PRIu64, value, first,
                             *target);
        first = f->keys[i];
        *target = value;
    }
    return true;
}

static bool read_flag(const struct reader *r, const char *key, bool *out, struct err *e) {
    return json_get_bool(r->text, key, false, out, e);
}

// Tying is written beside the text model or above it.
static bool read_tying(const struct reader *r, struct err *e) {
    struct json_node n;
    bool nested = present(r->text, "tie_word_embeddings", &n);
    return json_get_bool(nested ? r->text : r->root, "tie_word_embeddings", false,
                         &r->m->tied_embeddings, e);
}

static bool read_dropout(const struct reader *r, struct err *e) {
    static const char *const keys[] = {"attention_dropout", "hidden_dropout", "dropout",
                                       "resid_pdrop",       "attn_pdrop",     "embd_pdrop",
                                       "resid_dropout",     "emb_pdrop"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        double p = 0;
        struct json_node n;
        if (!present(r->text, keys[i], &n))
            continue;
        if (!json_as_double(n, &p, e))
            return false;
        if (!(p >= 0 && p < 1))
            return json_fail(n, e, "a dropout probability is at least 0 and below 1");
        if (p > r->m->dropout)
            r->m->dropout = p;
    }
    return true;
}

static bool read_dtype(const struct reader *r, struct err *e) {
    static const char *const keys[] = {"torch_dtype", "dtype"};
    r->m->stored_dtype = DTYPE_FP32;
    for (size_t i = 0; i < 2; i++) {
        struct json_node n;
        if (!present(r->text, keys[i], &n) && !present(r->root, keys[i], &n))
            continue;
        if (!json_is_string(n) || !dtype_find(n.item->valuestring, &r->m->stored_dtype))
            return json_fail(n, e, "expected a tensor type such as \"bfloat16\"");
        return true;
    }
    return true;
}

static bool read_activation(const struct reader *r, struct err *e) {
    static const char *const keys[] = {"hidden_act", "hidden_activation", "activation_function",
                                       "activation"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *text = NULL;
        if (!json_get_string(r->text, keys[i], false, &text, e))
            return false;
        if (!text)
            continue;
        if (strcasestr(text, "gelu"))
            r->m->activation = ACTIVATION_GELU;
        else if (strcasestr(text, "silu") || strcasestr(text, "swish"))
            r->m->activation = ACTIVATION_SILU;
        else if (strcasestr(text, "relu"))
            r->m->activation = ACTIVATION_RELU;
        return true;
    }
    return true;
}

static bool read_window(const struct reader *r, struct err *e) {
    struct model *m = r->m;
    bool used = true;
    uint64_t window = 0, every = !strcmp(m->architecture, "gemma2") ? 2 : 0;
    if (!strcmp(m->architecture, "gemma3"))
        every = 6;
    if (!read_flag(r, "use_sliding_window", &used, e) ||
        !json_get_u64(r->text, "sliding_window", false, &window, e) ||
        !json_get_u64(r->text, "sliding_window_pattern", false, &every, e))
        return false;
    m->sliding_window = used ? window : 0;
    m->sliding_every = m->sliding_window ? every : 0;
    return true;
}

static bool read_bias_flags(const struct reader *r, struct err *e) {
    struct model *m = r->m;
    bool qwen = !strncmp(m->architecture, "qwen2", strlen("qwen2"));
    bool attention = false, all = false;
    struct json_node n;
    if (!qwen && present(r->text, "attention_bias", &n)) { // qwen2 fixes its own
        if (!read_flag(r, "attention_bias", &attention, e))
            return false;
        m->qkv_bias = m->out_bias = attention;
    }
    if (!read_flag(r, "mlp_bias", &m->mlp_bias, e))
        return false;
    if (!strcmp(m->architecture, "opt") && present(r->text, "enable_bias", &n)) {
        if (!read_flag(r, "enable_bias", &all, e))
            return false;
        m->qkv_bias = m->out_bias = m->mlp_bias = all;
    }
    if (!strcmp(m->architecture, "gpt_neox") &&
        !read_flag(r, "use_parallel_residual", &m->parallel_residual, e))
        return false;
    return true;
}

static bool read_falcon(const struct reader *r, struct err *e) {
    struct model *m = r->m;
    bool modern = false, multi_query = true, parallel = true, bias = false;
    uint64_t norms = 0;
    if (!read_flag(r, "new_decoder_architecture", &modern, e) ||
        !read_flag(r, "multi_query", &multi_query, e) ||
        !read_flag(r, "parallel_attn", &parallel, e) || !read_flag(r, "bias", &bias, e) ||
        !json_get_u64(r->text, "num_ln_in_parallel_attn", false, &norms, e))
        return false;
    m->parallel_residual = parallel || modern;
    m->block_norms = modern && norms != 1 ? 2 : m->parallel_residual ? 1 : 2;
    m->qkv_bias = m->out_bias = m->mlp_bias = bias;
    if (!modern)
        m->kv_heads = multi_query ? 1 : m->heads;
    return true;
}

static bool read_mpt(const struct reader *r, struct err *e) {
    struct model *m = r->m;
    bool no_bias = true, learned = true, alibi = false, rope = false;
    uint64_t ratio = 4;
    struct json_node attention;
    if (!read_flag(r, "no_bias", &no_bias, e) || !read_flag(r, "learned_pos_emb", &learned, e) ||
        !json_get_u64(r->text, "expansion_ratio", false, &ratio, e))
        return false;
    if (present(r->text, "attn_config", &attention)) {
        if (!json_get_bool(attention, "alibi", false, &alibi, e) ||
            !json_get_bool(attention, "rope", false, &rope, e) ||
            !json_get_u64(attention, "kv_n_heads", false, &m->kv_heads, e))
            return false;
    }
    if (m->ffn == 0 && ratio < VALUE_MAX)
        m->ffn = ratio * m->hidden;
    m->learned_positions = learned && !alibi && !rope;
    m->qkv_bias = m->out_bias = m->mlp_bias = m->norm_bias = !no_bias;
    return true;
}

static bool read_opt(const struct reader *r, struct err *e) {
    bool before = true;
    if (!read_flag(r, "do_layer_norm_before", &before, e))
        return false;
    r->m->no_final_norm = !before; // norms after each part: the last block ends in one
    return true;
}

// Which blocks hold experts: first_k_dense_replace, or the list of dense layers (a prefix of them).
static bool read_moe_layers(const struct reader *r, struct err *e) {
    struct json_node n;
    uint64_t step = 1;
    static const char *const steps[] = {"decoder_sparse_step", "moe_layer_freq"};
    for (size_t i = 0; i < 2; i++) {
        if (!present(r->text, steps[i], &n))
            continue;
        if (!json_as_u64(n, &step, e))
            return false;
        if (step != 1)
            return json_fail(n, e, "experts in every %" PRIu64 "th layer are not supported", step);
    }
    if (!present(r->text, "mlp_only_layers", &n))
        return true;
    if (!json_is_array(n))
        return json_fail(n, e, "expected an array of layer numbers");
    for (size_t i = 0; i < json_size(n); i++) {
        uint64_t layer;
        if (!json_as_u64(json_at(n, i), &layer, e))
            return false;
        if (layer != i)
            return json_fail(json_at(n, i), e, "dense layers must come first: expected %zu", i);
    }
    if (json_size(n) > 0)
        r->m->dense_layers = json_size(n);
    return true;
}

static bool read_experts(const struct reader *r, struct err *e) {
    struct model *m = r->m;
    uint64_t shared = 0;
    if (m->experts == 0) {
        m->experts_per_token = m->moe_ffn = m->shared_ffn = m->dense_layers = 0;
        return true;
    }
    if (!json_get_u64(r->text, "n_shared_experts", false, &shared, e) || !read_moe_layers(r, e))
        return false;
    if (shared > m->experts)
        return json_fail(r->text, e, "n_shared_experts %" PRIu64 " is more than all experts",
                         shared);
    if (shared)
        m->shared_ffn = shared * m->moe_ffn;
    return true;
}

static bool read_special(const struct reader *r, struct err *e) {
    const char *type = r->m->architecture;
    if (!strcmp(type, "falcon"))
        return read_falcon(r, e);
    if (!strcmp(type, "mpt"))
        return read_mpt(r, e);
    if (!strcmp(type, "opt"))
        return read_opt(r, e);
    return true;
}

// Types whose config may leave the feed-forward size out mean four times the hidden size.
static void default_ffn(struct model *m) {
    if (m->ffn == 0 && !m->gated_mlp)
        m->ffn = 4 * m->hidden;
}

static bool text_model(struct json_node root, struct json_node *out) {
    static const char *const keys[] = {"text_config", "llm_config", "language_config"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (json_find(root, keys[i], out) && json_is_object(*out))
            return true;
    *out = root;
    return false;
}

static bool read_type(struct reader *r, struct err *e) {
    const char *type = NULL;
    bool encoder_decoder = false;
    struct json_node n, hidden;
    if (!json_get_string(r->text, "model_type", false, &type, e) ||
        (!type && !json_get_string(r->root, "model_type", true, &type, e)) ||
        !json_get_bool(r->root, "is_encoder_decoder", false, &encoder_decoder, e))
        return false;
    if (encoder_decoder)
        return json_fail(r->root, e, "%s is an encoder-decoder; only decoders can be planned",
                         type);
    r->family = model_family(type);
    if (!r->family) {
        bool shaped = present(r->text, "num_hidden_layers", &n) &&
                      present(r->text, "intermediate_size", &n) &&
                      present(r->text, "hidden_size", &hidden);
        if (!shaped || strstr(type, "bert") || strstr(type, "vit"))
            return json_fail(r->text, e, "model_type \"%s\" is not one shardplan can count", type);
        r->assumed = true;
        r->family = model_family("llama");
        r->m->source = arena_printf(r->a, "assumed: model_type \"%s\" counted as a llama", type);
    }
    return model_architecture(r->m, r->family->model_type, e);
}

static bool read_own(const struct reader *r, struct err *e) {
    struct json_node own;
    const char *source = NULL;
    if (!json_find(r->root, "_shardplan", &own))
        return true;
    if (!json_get_string(own, "source", false, &source, e) ||
        !json_get_u64(own, "parameters", false, &r->m->stated_parameters, e) ||
        !json_get_bool(own, "positions_follow_seq", false, &r->m->positions_follow_seq, e))
        return false;
    if (source)
        r->m->source = arena_strdup(r->a, source);
    return true;
}

static bool read_all(struct reader *r, struct err *e) {
    if (!read_type(r, e))
        return false;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (!read_field(r, &fields[i], e))
            return false;
    if (!read_special(r, e))
        return false;
    default_ffn(r->m);
    return read_tying(r, e) && read_bias_flags(r, e) && read_experts(r, e) && read_dropout(r, e) &&
           read_dtype(r, e) && read_activation(r, e) && read_window(r, e) && read_own(r, e);
}

// "models/transformers/llama-2-7b.json" and "models/llama-2-7b/config.json" are both llama-2-7b.
static const char *name_from_path(const char *path, struct arena *a) {
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    if (strcasecmp(file, "config.json") != 0 || !slash) {
        size_t n = strlen(file);
        if (n > strlen(".json") && !strcasecmp(file + n - strlen(".json"), ".json"))
            n -= strlen(".json");
        return arena_printf(a, "%.*s", (int)n, file);
    }
    const char *end = slash, *start = end;
    while (start > path && start[-1] != '/')
        start--;
    return start == end ? "config" : arena_printf(a, "%.*s", (int)(end - start), start);
}

static bool check_stated(const struct model *m, const char *path, struct err *e) {
    if (m->stated_parameters == 0 || m->stated_parameters == m->parameters)
        return true;
    return err_set(e, ERR_INPUT,
                   "%s $._shardplan.parameters: states %" PRIu64
                   " parameters, the shape has %" PRIu64
                   "; remove the key if the shape was changed",
                   path, m->stated_parameters, m->parameters);
}

static bool read_document(const struct json_doc *doc, const char *path, struct arena *a,
                          struct model *out, struct err *e) {
    struct model m = {.name = name_from_path(path, a), .source = arena_strdup(a, path)};
    struct reader r = {.a = a, .m = &m, .root = json_root(doc)};
    if (!json_is_object(r.root))
        return json_fail(r.root, e, "expected an object");
    text_model(r.root, &r.text);
    if (!read_all(&r, e))
        return false;
    if (!model_finish(&m, a, e)) {
        err_note(e, "%s", path);
        return false;
    }
    if (!check_stated(&m, path, e))
        return false;
    *out = m;
    return true;
}

bool model_read(const char *config_path, struct arena *a, struct model *out, struct err *e) {
    struct json_doc *doc = json_read_file(config_path, e);
    bool ok = doc && read_document(doc, config_path, a, out, e);
    json_destroy(doc);
    return ok;
}

bool model_read_text(const struct model_text *t, struct arena *a, struct model *out,
                     struct err *e) {
    struct json_doc *doc = json_read_text(t->text, t->bytes, t->name, e);
    bool ok = doc && read_document(doc, t->name, a, out, e);
    json_destroy(doc);
    return ok;
}
