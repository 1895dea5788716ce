// SPDX-License-Identifier: Apache-2.0
// torch-native settings into a recipe: fully_shard's arguments (JSON) and torchtitan's job file
// (TOML: sections of `key = scalar`); docs/formats.md §torch.
#include "base/json.h"
#include "base/units.h"
#include "describe/import_text.h"
#include "describe/recipe_config.h"
#include "describe/recipe_fields.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define NAME_MAX_LENGTH 64 // no key comes near; a longer one gets no suggestion
#define UNKNOWN_MAX 1000   // keys looked up for a suggestion

struct torch {
    const struct config_context *x;
    const char *file;
    unsigned line;
    struct recipe r;
    uint64_t replicate, shard; // mesh as written; 0 = not said
    size_t unknown;
    struct err *e;
};

static const char *where(struct torch *t, const char *path) {
    return arena_printf(t->x->arena, "%s:%u %s", t->file, t->line, path);
}

static void warn(struct torch *t, enum warning_kind kind, const char *path, const char *text) {
    if (t->x->warnings != NULL)
        warnings_add(t->x->warnings, t->x->arena, kind, where(t, path), text);
}

static bool set(struct torch *t, const char *path, const char *field, const char *value) {
    struct err local = {0};
    struct arena *a = t->x->arena;
    if (!recipe_field_set(&t->r, field, value, a, &local))
        return err_set(t->e, ERR_INPUT, "%s: %s", where(t, path), local.text);
    if (t->x->origins != NULL)
        recipe_note(t->x->origins, a, arena_printf(a, "recipe.%s", field),
                    recipe_field_text(&t->r, recipe_field_find(field), a), where(t, path));
    return true;
}

// Type of parameters and reduction into a precision scheme.
static bool set_precision(struct torch *t, const char *path, const char *param,
                          const char *reduce) {
    enum dtype p = DTYPE_FP32;
    bool known = !param || dtype_find(param, &p);
    if (!known || (p != DTYPE_FP32 && p != DTYPE_BF16 && p != DTYPE_FP16))
        return err_set(t->e, ERR_INPUT, "%s: '%s' is not a type of parameters (fp32, bf16, fp16)",
                       where(t, path), param);
    const char *value = p == DTYPE_BF16 ? "bf16-mixed" : p == DTYPE_FP16 ? "fp16-mixed" : "fp32";
    return set(t, path, "precision", value) &&
           (reduce == NULL || set(t, path, "reduce_dtype", reduce));
}

// A mesh of replicas turns FSDP2 into HSDP.
static void set_mesh(struct torch *t) {
    if (t->replicate > 1 && t->r.strategy == STRATEGY_FSDP2) {
        t->r.strategy = STRATEGY_HSDP;
        t->r.shard_group = t->shard * (t->r.cp > 0 ? t->r.cp : 1); // dp_shard_cp
    }
}

// ---- fully_shard --------------------------------------------------------------------------------

static bool read_reshard(struct torch *t, struct json_node n) {
    uint64_t k = 0;
    struct err ignored = {0};
    if (cJSON_IsFalse(n.item)) {
        t->r.strategy = STRATEGY_FSDP2_NORESHARD;
    } else if (json_is_number(n)) {
        if (!json_as_u64(n, &k, &ignored) || k < 2)
            return json_fail(n, t->e, "expected true, false or a whole number of at least 2");
        t->r.strategy = STRATEGY_FSDP2_RESHARD;
        t->r.reshard_group = k;
    } else if (!cJSON_IsTrue(n.item) && !json_is_null(n)) {
        return json_fail(n, t->e, "expected true, false or a whole number of at least 2");
    }
    return true;
}

static bool read_policy(struct torch *t, struct json_node shard) {
    static const char *const keys[] = {"param_dtype", "reduce_dtype", "output_dtype",
                                       "cast_forward_inputs"};
    struct json_node policy, n;
    const char *param = NULL, *reduce = NULL;
    if (json_find(shard, "mp_policy", &policy) && !json_is_null(policy)) {
        if (!json_is_object(policy))
            return json_fail(policy, t->e, "expected an object or null");
        if (!json_check_keys(policy, keys, sizeof keys / sizeof keys[0], t->e) ||
            !json_get_string(policy, "param_dtype", false, &param, t->e) ||
            !json_get_string(policy, "reduce_dtype", false, &reduce, t->e))
            return false;
    }
    if (!set_precision(t, "fully_shard.mp_policy", param, reduce))
        return false;
    if (!json_find(shard, "offload_policy", &n) || json_is_null(n))
        return true;
    if (!json_is_object(n) || !json_get_bool(n, "pin_memory", false, &t->r.pin_memory, t->e))
        return json_is_object(n) ? false : json_fail(n, t->e, "expected an object or null");
    t->r.offload_optimizer = t->r.offload_param = OFFLOAD_CPU;
    return true;
}

static bool read_own(struct torch *t, struct json_node root) {
    struct json_node own;
    if (!json_find(root, "_shardplan", &own))
        return true;
    if (!json_is_object(own))
        return json_fail(own, t->e, "expected an object of recipe fields");
    for (size_t i = 0; i < json_size(own); i++) {
        struct json_node n = json_at(own, i);
        struct err local = {0};
        if (!json_is_string(n))
            return json_fail(n, t->e, "expected the field's value as a string");
        if (!recipe_field_set(&t->r, json_key(n), n.item->valuestring, t->x->arena, &local))
            return json_fail(n, t->e, "%s", local.text);
    }
    return true;
}

static bool read_fully_shard(struct torch *t, struct json_node root) {
    static const char *const top[] = {"fully_shard", "mesh"};
    static const char *const keys[] = {"reshard_after_forward", "mp_policy", "offload_policy"};
    static const char *const axes[] = {"replicate", "shard"};
    struct json_node shard, n;
    if (!json_check_keys(root, top, 2, t->e))
        return false;
    if (!json_find(root, "fully_shard", &shard))
        return json_fail(root, t->e, "expected an object with fully_shard");
    t->line = (unsigned)json_line(shard);
    if (!json_is_object(shard))
        return json_fail(shard, t->e, "expected an object of fully_shard's arguments");
    if (!json_check_keys(shard, keys, sizeof keys / sizeof keys[0], t->e))
        return false;
    if (json_find(root, "mesh", &n)) {
        if (!json_is_object(n))
            return json_fail(n, t->e, "expected {\"replicate\": R, \"shard\": S}");
        if (!json_check_keys(n, axes, 2, t->e) ||
            !json_get_u64(n, "replicate", false, &t->replicate, t->e) ||
            !json_get_u64(n, "shard", false, &t->shard, t->e))
            return false;
    }
    if (json_find(shard, "reshard_after_forward", &n) && !read_reshard(t, n))
        return false;
    set_mesh(t);
    return read_policy(t, shard) && read_own(t, root);
}

bool recipe_parse_fsdp2(const struct config_text *text, const struct config_context *x,
                        struct recipe *out, struct err *e) {
    struct json_doc *doc = json_read_text(text->text, text->bytes, text->name, e);
    struct torch t = {.x = x, .file = text->name, .line = 1, .e = e};
    if (doc == NULL)
        return false;
    recipe_defaults(STRATEGY_FSDP2, &t.r);
    bool ok = json_is_object(json_root(doc))
                  ? read_fully_shard(&t, json_root(doc))
                  : json_fail(json_root(doc), e, "expected an object with fully_shard");
    if (ok)
        *out = t.r;
    json_destroy(doc);
    return ok;
}

// ---- torchtitan ---------------------------------------------------------------------------------

struct titan_key {
    const char *path, *field; // field NULL: handled by name in take_titan
};
static const struct titan_key titan_keys[] = {
    {"training.local_batch_size", "micro_batch"},
    {"training.global_batch_size", NULL},
    {"training.seq_len", "seq"},
    {"training.max_norm", "clip"},
    {"training.mixed_precision_param", NULL},
    {"training.mixed_precision_reduce", "reduce_dtype"},
    {"training.enable_cpu_offload", NULL},
    {"training.dtype", NULL},
    {"parallelism.data_parallel_replicate_degree", NULL},
    {"parallelism.data_parallel_shard_degree", NULL},
    {"parallelism.fsdp_reshard_after_forward", NULL},
    {"parallelism.tensor_parallel_degree", "tp"},
    {"parallelism.context_parallel_degree", "cp"},
    {"parallelism.pipeline_parallel_degree", "pp"},
    {"parallelism.expert_parallel_degree", "ep"},
    {"activation_checkpoint.mode", NULL},
    {"activation_checkpoint.selective_ac_option", NULL},
    {"optimizer.name", NULL},
    {"optimizer.implementation", NULL},
    {"compile.enable", "compile"},
};

static bool take_recompute(struct torch *t, const char *path, const char *value) {
    if (strcmp(path, "activation_checkpoint.mode") == 0) {
        if (strcmp(value, "selective") == 0) // the option may stand before or after the mode
            return t->r.recompute != RECOMPUTE_NONE || set(t, path, "recompute", "selective-op");
        if (strcmp(value, "full") != 0 && strcmp(value, "none") != 0)
            return err_set(t->e, ERR_INPUT, "%s: expected none, selective or full", where(t, path));
        return set(t, path, "recompute", value);
    }
    if (t->r.recompute == RECOMPUTE_FULL || strcmp(value, "op") == 0)
        return true;
    return set(t, path, "recompute", "every-N") && set(t, path, "recompute_every", value);
}

static bool take_degree(struct torch *t, const char *path, const char *value) {
    uint64_t n = 0;
    if (strcmp(value, "-1") == 0) // the rest of the GPUs
        return true;
    if (!units_parse_count(value, &n, t->e)) {
        err_note(t->e, "%s", where(t, path));
        return false;
    }
    if (strstr(path, "replicate"))
        t->replicate = n;
    else
        t->shard = n;
    return true;
}

static bool take_titan(struct torch *t, const char *path, const char *value) {
    if (strncmp(path, "activation_checkpoint.", 22) == 0)
        return take_recompute(t, path, value);
    if (strstr(path, "_degree"))
        return take_degree(t, path, value);
    if (strcmp(path, "training.global_batch_size") == 0) {
        if (strcmp(value, "-1") == 0)
            return true;
        t->r.grad_accum = 0;
        return set(t, path, "global_batch", value);
    }
    if (strcmp(path, "training.mixed_precision_param") == 0)
        return set_precision(t, path, value, NULL);
    if (strcmp(path, "training.dtype") == 0)
        return strcmp(value, "float32") == 0 || set(t, path, "precision", "bf16-pure");
    if (strcmp(path, "training.enable_cpu_offload") == 0) {
        bool on = strcmp(value, "true") == 0;
        return set(t, path, "offload_optimizer", on ? "cpu" : "none") &&
               set(t, path, "offload_param", on ? "cpu" : "none");
    }
    if (strcmp(path, "parallelism.fsdp_reshard_after_forward") == 0) {
        if (strcmp(value, "never") == 0)
            t->r.strategy = STRATEGY_FSDP2_NORESHARD;
        t->r.reshard_root = strcmp(value, "always") == 0;
        return true;
    }
    if (strcmp(path, "optimizer.implementation") == 0) {
        t->r.optimizer_fused = strcmp(value, "fused") == 0;
        t->r.optimizer_foreach = strcmp(value, "foreach") == 0;
        return true;
    }
    if (strcasecmp(value, "Adam") == 0 || strcasecmp(value, "AdamW") == 0)
        return set(t, path, "optimizer", "adamw");
    warn(t, WARNING_ASSUMED, path, "this optimizer is not modelled; counted as AdamW");
    return true;
}

// Job settings without a say here are many and change by release: only keys of the sections above
// that come near a known one are reported.
static bool take_line(struct torch *t, const char *path, const char *value) {
    const char *names[sizeof titan_keys / sizeof titan_keys[0]];
    const size_t count = sizeof titan_keys / sizeof titan_keys[0];
    for (size_t i = 0; i < count; i++) {
        names[i] = titan_keys[i].path;
        if (strcmp(path, names[i]) != 0)
            continue;
        if (titan_keys[i].field != NULL)
            return set(t, path, titan_keys[i].field, value);
        return take_titan(t, path, value);
    }
    bool look = strlen(path) < NAME_MAX_LENGTH && t->unknown++ < UNKNOWN_MAX;
    const char *near = look ? kinds_nearest(names, count, path) : NULL;
    if (near != NULL)
        warn(t, WARNING_UNKNOWN, path,
             arena_printf(t->x->arena, "unknown key; did you mean '%s'?", near));
    return true;
}

// One line of the TOML subset: a section, a comment, or key = scalar. Scalars lose their quotes.
static bool read_line(struct torch *t, char *line, char *section, size_t section_size) {
    line += strspn(line, " \t");
    if (*line == '\0' || *line == '#')
        return true;
    if (*line == '[') {
        char *end = strchr(line, ']');
        size_t n = end ? (size_t)(end - line - 1) : 0;
        if (n == 0 || n >= section_size)
            return err_set(t->e, ERR_INPUT, "%s:%u: not a TOML section", t->file, t->line);
        memcpy(section, line + 1, n);
        section[n] = '\0';
        return true;
    }
    char *eq = strchr(line, '=');
    if (eq == NULL)
        return err_set(t->e, ERR_INPUT, "%s:%u: expected key = value", t->file, t->line);
    size_t key = (size_t)(eq - line);
    while (key > 0 && strchr(" \t", line[key - 1]))
        key--;
    char *value = eq + 1 + strspn(eq + 1, " \t");
    size_t n = strcspn(value, *value == '"' || *value == '\'' ? "" : "#");
    if (*value == '"' || *value == '\'') {
        char quote[2] = {*value, '\0'};
        value++;
        n = strcspn(value, quote);
    }
    while (n > 0 && strchr(" \t", value[n - 1]))
        n--;
    const char *path = arena_printf(t->x->arena, "%s.%.*s", section, (int)key, line);
    return take_line(t, path, arena_printf(t->x->arena, "%.*s", (int)n, value));
}

bool recipe_parse_torchtitan(const struct config_text *text, const struct config_context *x,
                             struct recipe *out, struct err *e) {
    struct torch t = {.x = x, .file = text->name, .line = 1, .e = e};
    char section[64] = "";
    recipe_defaults(STRATEGY_FSDP2, &t.r);
    t.r.optimizer_fused = true; // torchtitan's default
    t.r.optimizer_foreach = false;
    char *copy = arena_strdup(x->arena, text->text);
    for (char *at = copy; at != NULL; t.line++) {
        char *next = strchr(at, '\n');
        if (next != NULL)
            *next++ = '\0';
        size_t n = strlen(at);
        if (n > 0 && at[n - 1] == '\r')
            at[n - 1] = '\0';
        if (!read_line(&t, at, section, sizeof section))
            return false;
        at = next;
    }
    set_mesh(&t);
    if (!import_text_fields(text, x, &t.r, e))
        return false;
    *out = t.r;
    return true;
}
