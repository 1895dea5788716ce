// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's JSON configuration into a recipe; keys and meanings in import_deepspeed_keys.c.
#include "base/json.h"
#include "base/units.h"
#include "describe/import_deepspeed_keys.h"
#include "describe/recipe_config.h"
#include "describe/recipe_fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define UNKNOWN_MAX 100    // warnings about unknown keys before the reader stops listing them
#define NAME_MAX_LENGTH 64 // no key comes near; a longer one gets no suggestion
#define KEYS_MAX 10000     // members of one object; DeepSpeed knows some hundred

struct ds {
    const struct config_context *x;
    const char *file;
    struct recipe r;
    int stage;
    bool fp16, bf16, fp16_auto, bf16_auto, autocast;
    enum dtype autocast_dtype;
    size_t unknown;
    struct err *e;
};

// ---- reporting ----------------------------------------------------------------------------------

static const char *where(struct ds *d, struct json_node n, const char *path) {
    return arena_printf(d->x->arena, "%s:%d %s", d->file, json_line(n), path);
}

static void warn(struct ds *d, struct json_node n, enum warning_kind kind, const char *path,
                 const char *text) {
    if (d->x->warnings != NULL)
        warnings_add(d->x->warnings, d->x->arena, kind, where(d, n, path), text);
}

// DeepSpeed stops here. A lenient reader goes on without the key.
static bool refuse(struct ds *d, struct json_node n, const char *path, const char *text) {
    if (!d->x->lenient)
        return json_fail(n, d->e, "%s", text);
    warn(d, n, WARNING_REFUSED, path, text);
    return true;
}

static bool set(struct ds *d, struct json_node n, const char *path, const char *field,
                const char *value) {
    struct err local = {0};
    struct arena *a = d->x->arena;
    if (!recipe_field_set(&d->r, field, value, a, &local))
        return refuse(d, n, path, local.text);
    if (d->x->origins != NULL)
        recipe_note(d->x->origins, a, arena_printf(a, "recipe.%s", field),
                    recipe_field_text(&d->r, recipe_field_find(field), a), where(d, n, path));
    return true;
}

// ---- values: numbers and booleans may be written as strings -------------------------------------

static bool read_number(struct json_node n, double *out) {
    struct err ignored = {0};
    if (json_is_string(n))
        return units_parse_double(n.item->valuestring, out, &ignored);
    return json_is_number(n) && json_as_double(n, out, &ignored);
}

static bool read_count(struct json_node n, uint64_t *out) {
    struct err ignored = {0};
    if (json_is_string(n)) { // pydantic takes digits; a number may be 5e8, a string may not
        const char *s = n.item->valuestring;
        return s[0] && s[strspn(s, "0123456789")] == '\0' && units_parse_count(s, out, &ignored);
    }
    return json_is_number(n) && json_as_u64(n, out, &ignored);
}

static bool read_bool(struct json_node n, bool *out) {
    static const char *const yes[] = {"true", "yes", "on", "1"};
    static const char *const no[] = {"false", "no", "off", "0"};
    if (cJSON_IsBool(n.item)) {
        *out = cJSON_IsTrue(n.item);
        return true;
    }
    if (!json_is_string(n))
        return false;
    *out = kinds_find(yes, 4, n.item->valuestring) >= 0;
    return *out || kinds_find(no, 4, n.item->valuestring) >= 0;
}

static bool is_auto(struct json_node n) {
    return json_is_string(n) && strcasecmp(n.item->valuestring, "auto") == 0;
}

static bool get(struct json_node o, const char *key, struct json_node *out) {
    return json_is_object(o) && json_find(o, key, out) && !json_is_null(*out);
}

static bool bool_at(struct json_node o, const char *key) {
    struct json_node n;
    bool value = false;
    return get(o, key, &n) && read_bool(n, &value) && value;
}

static double number_at(struct json_node o, const char *key, double absent) {
    struct json_node n;
    double value = absent;
    return get(o, key, &n) && read_number(n, &value) ? value : absent;
}

// ---- one key ------------------------------------------------------------------------------------

static bool take_auto(struct ds *d, struct json_node n, const struct ds_key *k) {
    const struct model *m = d->x->model;
    const char *path = k->path;
    uint64_t h = m ? m->hidden : 0, value = 0;
    switch (k->on_auto) {
    case AUTO_NONE:
        warn(d, n, WARNING_INERT, path,
             "Hugging Face doesn't fill this \"auto\": DeepSpeed drops it and takes its default");
        return true;
    case AUTO_TRAINER:
        return true;
    case AUTO_HIDDEN2:
        value = h * h;
        break;
    case AUTO_HIDDEN2_09:
        value = h * h * 9 / 10;
        break;
    case AUTO_HIDDEN_10:
        value = 10 * h;
        break;
    }
    if (m == NULL) {
        warn(d, n, WARNING_ASSUMED, path,
             "\"auto\" depends on the model's hidden size; no model given, so DeepSpeed's default "
             "is taken");
        return true;
    }
    return set(d, n, path, k->field, arena_printf(d->x->arena, "%llu", (unsigned long long)value));
}

static bool take_scalar(struct ds *d, struct json_node n, const struct ds_key *k) {
    struct arena *a = d->x->arena;
    uint64_t count = 0;
    double number = 0;
    bool flag = false;
    switch (k->kind) {
    case DS_COUNT:
        if (!read_count(n, &count))
            return refuse(d, n, k->path, "expected a whole number of at least 0");
        return set(d, n, k->path, k->field, arena_printf(a, "%llu", (unsigned long long)count));
    case DS_NUMBER:
        if (!read_number(n, &number) || !isfinite(number) || number < 0)
            return refuse(d, n, k->path, "expected a number of at least 0");
        return set(d, n, k->path, k->field, arena_printf(a, "%.17g", number));
    case DS_BOOL:
        if (!read_bool(n, &flag))
            return refuse(d, n, k->path, "expected true or false");
        return set(d, n, k->path, k->field, flag ? "true" : "false");
    default:
        if (!json_is_string(n))
            return refuse(d, n, k->path, "expected a string");
        return set(d, n, k->path, k->field, n.item->valuestring);
    }
}

static bool take_batch(struct ds *d, struct json_node n, const char *path) {
    const char *field = "grad_accum";
    uint64_t value = 0;
    if (strcmp(path, "train_batch_size") == 0)
        field = "global_batch";
    else if (strcmp(path, "train_micro_batch_size_per_gpu") == 0)
        field = "micro_batch";
    if (!read_count(n, &value) || value == 0)
        return refuse(d, n, path, "expected a whole number of at least 1");
    return set(d, n, path, field, arena_printf(d->x->arena, "%llu", (unsigned long long)value));
}

static bool take_optimizer(struct ds *d, struct json_node n, const char *path) {
    static const struct {
        const char *type, *name;
    } rows[] = {
        {"Adam", "adamw"},
        {"AdamW", "adamw"},
        {"FusedAdam", "adamw"},
        {"SGD", "sgd"},
        {"Adafactor", "adafactor"},
        {"Muon", "muon"},
        {"Adam8bit", "adamw8bit"},
        {"AdamW8bit", "adamw8bit"},
        {"paged_adamw_8bit", "adamw8bit"},
    };
    if (!json_is_string(n))
        return refuse(d, n, path, "expected an optimizer's name");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcasecmp(rows[i].type, n.item->valuestring) == 0)
            return set(d, n, path, "optimizer", rows[i].name);
    static const char *const one_bit[] = {"OneBitAdam", "ZeroOneAdam", "OneBitLamb"};
    for (size_t i = 0; i < sizeof one_bit / sizeof one_bit[0] && d->stage > 0; i++)
        if (strcasecmp(one_bit[i], n.item->valuestring) == 0)
            warn(d, n, WARNING_REFUSED, path,
                 "DeepSpeed stops: this optimizer can't run with ZeRO");
    warn(d, n, WARNING_ASSUMED, path, "this optimizer is not modelled; counted as AdamW");
    return true;
}

static bool take_special(struct ds *d, struct json_node n, const char *path) {
    const char *leaf = strrchr(path, '.');
    bool flag = false;
    leaf = leaf ? leaf + 1 : path;
    if (strcmp(path, "optimizer.type") == 0)
        return take_optimizer(d, n, path);
    if (strchr(path, '.') == NULL)
        return take_batch(d, n, path);
    if (strcmp(leaf, "overlap_comm") == 0) {
        if (!read_bool(n, &flag))
            return refuse(d, n, path, "expected true or false");
        return set(d, n, path, "overlap_comm", flag ? "on" : "off");
    }
    if (strcmp(leaf, "legacy_stage1") == 0 && read_bool(n, &flag) && flag)
        return refuse(d, n, path, "DeepSpeed no longer supports legacy_stage1");
    return true; // stage, groups and precision switches were read before the walk
}

// ---- the walk -----------------------------------------------------------------------------------

static bool unknown_key(struct ds *d, struct json_node n, const char *section, const char *path) {
    const char *name = json_key(n);
    if (d->unknown++ > UNKNOWN_MAX)
        return true;
    const char *near = strlen(name) < NAME_MAX_LENGTH ? ds_key_nearest(section, name) : NULL;
    const char *text =
        near ? arena_printf(d->x->arena, "unknown key; did you mean '%s'?", near) : "unknown key";
    if (ds_section_is_strict(section))
        return refuse(d, n, path, arena_printf(d->x->arena, "%s (DeepSpeed refuses it)", text));
    warn(d, n, WARNING_UNKNOWN, path, text);
    return true;
}

static bool walk(struct ds *d, struct json_node object, const char *actual, const char *canonical);

static bool take_alias(struct ds *d, struct json_node n, const char *path, const char *target) {
    const struct ds_key *k = ds_key_find(target);
    bool flag = false;
    warn(d, n, WARNING_DEPRECATED, path,
         arena_printf(d->x->arena, "old name; DeepSpeed reads it as %s", target));
    if (k->kind == DS_SECTION && json_is_object(n))
        return walk(d, n, path, target);
    if (k->kind != DS_SECTION)
        return take_scalar(d, n, k);
    if (!read_bool(n, &flag))
        return refuse(d, n, path, "expected true or false");
    return !flag || set(d, n, path, strrchr(target, '.') + 1, "cpu");
}

static bool take(struct ds *d, struct json_node n, const struct ds_key *k, const char *path) {
    if (json_is_null(n) || k->kind == DS_OPAQUE)
        return true;
    if (is_auto(n))
        return take_auto(d, n, k);
    if (k->stage3_only && d->stage < 3)
        warn(d, n, WARNING_INERT, path, "read by ZeRO stage 3 only");
    switch (k->kind) {
    case DS_SECTION:
        if (json_is_object(n))
            return walk(d, n, path, k->path);
        if (strcmp(k->path, "zero_optimization") == 0 && cJSON_IsBool(n.item))
            return true; // the boolean form; warned about when the stage was read
        return refuse(d, n, path, "expected an object");
    case DS_SPECIAL:
        return take_special(d, n, k->path);
    case DS_INERT:
        if (!cJSON_IsFalse(n.item))
            warn(d, n, WARNING_INERT, path, k->text);
        return true;
    case DS_UNMODELLED:
        if (!cJSON_IsFalse(n.item) && !(json_is_number(n) && n.item->valuedouble == 1.0))
            warn(d, n, WARNING_ASSUMED, path, k->text);
        return true;
    case DS_ALIAS:
        return take_alias(d, n, path, k->field);
    default:
        return take_scalar(d, n, k);
    }
}

// `actual` is the path as written, `canonical` the same under current names.
static bool walk(struct ds *d, struct json_node object, const char *actual, const char *canonical) {
    struct arena *a = d->x->arena;
    size_t n = json_size(object);
    if (n > KEYS_MAX)
        return json_fail(object, d->e, "%zu keys in one object: not a DeepSpeed configuration", n);
    for (size_t i = 0; i < n; i++) {
        struct json_node at = json_at(object, i);
        const char *name = json_key(at), *dot = *canonical ? "." : "";
        const char *path = arena_printf(a, "%s%s%s", actual, dot, name);
        const struct ds_key *k = ds_key_find(arena_printf(a, "%s%s%s", canonical, dot, name));
        if (!(k ? take(d, at, k, path) : unknown_key(d, at, canonical, path)))
            return false;
    }
    return true;
}

// ---- before the walk: what decides the strategy -------------------------------------------------

static bool read_stage(struct ds *d, struct json_node root, struct json_node *zero) {
    struct json_node n;
    double stage = 0;
    if (!get(root, "zero_optimization", zero))
        return true;
    if (cJSON_IsBool(zero->item)) {
        warn(d, *zero, WARNING_DEPRECATED, "zero_optimization",
             "a boolean means stage 1; write {\"stage\": 1}");
        d->stage = cJSON_IsTrue(zero->item) ? 1 : 0;
        return true;
    }
    if (!get(*zero, "stage", &n))
        return true;
    if (!read_number(n, &stage) || stage != floor(stage) || stage < 0 || stage > 3)
        return json_fail(n, d->e, "expected stage 0, 1, 2 or 3");
    d->stage = (int)stage;
    return true;
}

static enum strategy strategy_of(const struct ds *d, struct json_node zero) {
    static const enum strategy by_stage[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2,
                                             STRATEGY_ZERO3};
    if (d->stage < 3 || !json_is_object(zero))
        return by_stage[d->stage];
    if (number_at(zero, "mics_shard_size", -1) > 0)
        return STRATEGY_MICS;
    if (number_at(zero, "zero_hpz_partition_size", 1) > 1 ||
        bool_at(zero, "zero_quantized_weights") || bool_at(zero, "zero_quantized_gradients"))
        return STRATEGY_ZEROPP;
    return STRATEGY_ZERO3;
}

static bool read_groups(struct ds *d, struct json_node zero) {
    struct json_node n;
    const char *key =
        d->r.strategy == STRATEGY_MICS ? "mics_shard_size" : "zero_hpz_partition_size";
    if (!recipe_has_shard_group(d->r.strategy))
        return true;
    d->r.hpz = d->r.quantized_weights = d->r.quantized_gradients = false;
    uint64_t size = 0;
    if (!get(zero, key, &n))
        return true;
    const char *path = arena_printf(d->x->arena, "zero_optimization.%s", key);
    if (!read_count(n, &size) || size == 0)
        return refuse(d, n, path, "expected a whole number of at least 1");
    if (size == 1)
        return true;
    d->r.hpz = d->r.strategy == STRATEGY_ZEROPP;
    return set(d, n, path, "shard_group",
               arena_printf(d->x->arena, "%llu", (unsigned long long)size));
}

static bool read_engine(struct ds *d, struct json_node root, const char *key, bool *enabled,
                        bool *automatic) {
    struct json_node section, n;
    *enabled = *automatic = false;
    if (!get(root, key, &section) || !get(section, "enabled", &n))
        return true;
    *automatic = is_auto(n);
    if (*automatic || read_bool(n, enabled))
        return true;
    return refuse(d, n, arena_printf(d->x->arena, "%s.enabled", key), "expected true or false");
}

static bool read_autocast(struct ds *d, struct json_node root) {
    struct json_node section, n;
    bool ignored = false;
    if (!read_engine(d, root, "torch_autocast", &d->autocast, &ignored))
        return false;
    d->autocast_dtype = DTYPE_BF16;
    if (!get(root, "torch_autocast", &section) || !get(section, "dtype", &n))
        return true;
    bool known = json_is_string(n) && dtype_find(n.item->valuestring, &d->autocast_dtype);
    if (!known || (d->autocast_dtype != DTYPE_BF16 && d->autocast_dtype != DTYPE_FP16))
        return refuse(d, n, "torch_autocast.dtype", "expected bfloat16 or float16");
    return true;
}

static bool read_precision(struct ds *d, struct json_node root) {
    struct json_node n = root;
    const char *bf16 = get(root, "bf16", &n) ? "bf16" : "bfloat16", *value = "fp32";
    if (!read_engine(d, root, bf16, &d->bf16, &d->bf16_auto) ||
        !read_engine(d, root, "fp16", &d->fp16, &d->fp16_auto) || !read_autocast(d, root))
        return false;
    bool has_bf16 = get(root, bf16, &n);
    if (d->bf16 && d->fp16)
        return refuse(d, n, bf16, "bf16 and fp16 exclude each other");
    if (!d->bf16 && !d->fp16 && !d->autocast && (d->bf16_auto || d->fp16_auto)) {
        d->bf16 = d->bf16_auto;
        d->fp16 = !d->bf16_auto;
        (void)get(root, d->bf16 ? bf16 : "fp16", &n);
        warn(d, n, WARNING_ASSUMED, d->bf16 ? bf16 : "fp16",
             "\"auto\" follows the trainer's flag; taken as on");
    } else if (!has_bf16) {
        (void)get(root, "fp16", &n);
    }
    if (d->bf16)
        value = "bf16-mixed";
    else if (d->fp16)
        value = "fp16-mixed";
    else if (d->autocast)
        value = "amp-bf16";
    return set(d, n, "precision", "precision", value);
}

// ---- after the walk -----------------------------------------------------------------------------

static bool finish_ratio(struct ds *d, struct json_node zero) {
    struct json_node n = zero;
    const char *path = "zero_optimization.offload_optimizer.ratio";
    if (d->r.offload_ratio == 1)
        return true;
    (void)get(zero, "offload_optimizer", &n);
    bool low = d->stage < 3;
    if (!low && d->r.offload_ratio >= 0 && d->r.offload_ratio <= 1)
        return true;
    d->r.offload_ratio = 1;
    return refuse(d, n, path,
                  low ? "DeepSpeed refuses a ratio below stage 3" : "expected a ratio of 0 to 1");
}

// What the parser takes and the ZeRO optimizers' constructors assert: runtime/zero/stage_1_and_2.py
// and stage3.py.
static void finish_asserts(struct ds *d, struct json_node root, struct json_node zero) {
    struct json_node n;
    struct recipe *r = &d->r;
    bool scatters = d->stage >= 2 && r->reduce_scatter;
    if (scatters && number_at(root, "gradient_predivide_factor", 1) != 1 &&
        get(root, "gradient_predivide_factor", &n))
        warn(d, n, WARNING_REFUSED, "gradient_predivide_factor",
             "DeepSpeed stops: with reduce_scatter it must be 1");
    if (scatters && bool_at(root, "prescale_gradients") && get(root, "prescale_gradients", &n))
        warn(d, n, WARNING_REFUSED, "prescale_gradients",
             "DeepSpeed stops: with reduce_scatter it must be false");
    double bucket = number_at(zero, "allgather_bucket_size", 0);
    if ((d->stage == 1 || d->stage == 2) && fmod(bucket, 2) != 0 &&
        get(zero, "allgather_bucket_size", &n))
        warn(d, n, WARNING_REFUSED, "zero_optimization.allgather_bucket_size",
             "DeepSpeed stops: it must be even");
    if (d->stage == 0 || r->optimizer != OPTIMIZER_MUON || !r->reduce_scatter)
        return;
    r->reduce_scatter = false;
    warn(d, zero, WARNING_REFUSED, "zero_optimization.reduce_scatter",
         "DeepSpeed stops: Muon needs it false; planned so");
}

static void finish_offload(struct ds *d, struct json_node zero) {
    struct json_node n = zero;
    struct recipe *r = &d->r;
    if (d->stage >= 3)
        return;
    if (r->offload_param != OFFLOAD_NONE) {
        (void)get(zero, "offload_param", &n);
        warn(d, n, WARNING_INERT, "zero_optimization.offload_param",
             "parameter offload has no effect below stage 3: every GPU keeps all parameters");
        r->offload_param = OFFLOAD_NONE;
    }
    if (r->offload_optimizer == OFFLOAD_NVME || (d->stage == 0 && r->offload_optimizer)) {
        (void)get(zero, "offload_optimizer", &n);
        warn(d, n, WARNING_INERT, "zero_optimization.offload_optimizer",
             d->stage == 0
                 ? "optimizer offload needs ZeRO stage 1 or more"
                 : "below stage 3 DeepSpeed takes nvme for cpu: the states go to host memory");
        r->offload_optimizer = d->stage == 0 ? OFFLOAD_NONE : OFFLOAD_CPU;
    }
    if (r->super_offload) {
        (void)get(zero, "offload_optimizer", &n);
        warn(d, n, WARNING_INERT, "zero_optimization.offload_optimizer",
             "super_offload is read by stage 3 only");
        r->super_offload = false;
    }
}

static void finish_batch(struct ds *d, struct json_node root) {
    struct json_node n;
    bool micro = get(root, "train_micro_batch_size_per_gpu", &n) && !is_auto(n);
    bool accum = get(root, "gradient_accumulation_steps", &n) && !is_auto(n);
    if (d->r.global_batch == 0)
        return;
    // Two of the three fix the third, as DeepSpeed does; one alone leaves one micro-step.
    if (micro && !accum)
        d->r.grad_accum = 0;
    else if (!micro)
        d->r.micro_batch = 0;
}

// Fields DeepSpeed has no key for, as `shardplan emit` leaves them beside its keys.
static bool read_own(struct ds *d, struct json_node root) {
    struct json_node own;
    if (!get(root, "_shardplan", &own))
        return true;
    if (!json_is_object(own))
        return json_fail(own, d->e, "expected an object of recipe fields");
    for (size_t i = 0; i < json_size(own); i++) {
        struct json_node n = json_at(own, i);
        struct err local = {0};
        if (!json_is_string(n))
            return json_fail(n, d->e, "expected the field's value as a string");
        if (!recipe_field_set(&d->r, json_key(n), n.item->valuestring, d->x->arena, &local))
            return json_fail(n, d->e, "%s", local.text);
    }
    return true;
}

static bool read_root(struct ds *d, struct json_node root) {
    struct json_node zero = root, leaf;
    if (!json_is_object(root))
        return json_fail(root, d->e, "expected an object of DeepSpeed settings");
    if (!read_stage(d, root, &zero))
        return false;
    recipe_defaults(strategy_of(d, zero), &d->r);
    if (!set(d, zero, "zero_optimization.stage", "strategy", strategy_names[d->r.strategy]))
        return false;
    if (d->stage == 0) {
        // The engine's own wrapper: gradients all-reduced at the boundary, no bucket copy kept.
        d->r.no_sync = d->r.gradient_as_bucket_view = true;
        warn(d, zero, WARNING_ASSUMED, "zero_optimization.stage",
             "stage 0 shards nothing; planned as DDP");
    }
    if (d->x->facts && json_is_object(zero) && json_find(zero, "leaf_module", &leaf))
        d->x->facts->leaf_module = json_size(leaf) > 0;
    if (!read_groups(d, zero) || !read_precision(d, root) || !walk(d, root, "", ""))
        return false;
    if (d->r.precision == PRECISION_BF16_MIXED && d->r.bf16_master_weights_and_grads &&
        d->r.bf16_optimizer_states)
        d->r.precision = PRECISION_BF16_PURE;
    if (!finish_ratio(d, zero))
        return false;
    finish_asserts(d, root, zero);
    finish_offload(d, zero);
    finish_batch(d, root);
    return read_own(d, root);
}

bool recipe_parse_deepspeed(const struct config_text *t, const struct config_context *x,
                            struct recipe *out, struct err *e) {
    struct json_doc *doc = json_read_text(t->text, t->bytes, t->name, e);
    if (doc == NULL)
        return false;
    struct ds d = {.x = x, .file = t->name, .e = e};
    bool ok = read_root(&d, json_root(doc));
    if (ok)
        *out = d.r;
    json_destroy(doc);
    return ok;
}
