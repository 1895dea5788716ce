// SPDX-License-Identifier: Apache-2.0
// accelerate's YAML configuration into a recipe; docs/formats.md §accelerate.
#include "describe/import_text.h"
#include "describe/recipe_config.h"
#include "describe/recipe_fields.h"

#include "base/units.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#define NAME_MAX_LENGTH 64

struct acc {
    const struct config_context *x;
    const char *file;
    yaml_document_t doc;
    struct recipe r;
    bool fsdp2;
    struct err *e;
};

typedef bool take_fn(struct acc *c, const yaml_node_t *value, const char *path);
struct acc_key {
    const char *name;
    take_fn *take; // NULL: known, without a say here
};

// ---- reporting ----------------------------------------------------------------------------------

static const char *where(struct acc *c, const yaml_node_t *n, const char *path) {
    return arena_printf(c->x->arena, "%s:%zu %s", c->file, n ? n->start_mark.line + 1 : (size_t)1,
                        path);
}

static void warn(struct acc *c, const yaml_node_t *n, enum warning_kind kind, const char *path,
                 const char *text) {
    if (c->x->warnings != NULL)
        warnings_add(c->x->warnings, c->x->arena, kind, where(c, n, path), text);
}

static bool refuse(struct acc *c, const yaml_node_t *n, const char *path, const char *text) {
    if (!c->x->lenient)
        return err_set(c->e, ERR_INPUT, "%s: %s", where(c, n, path), text);
    warn(c, n, WARNING_REFUSED, path, text);
    return true;
}

static const char *text_of(const yaml_node_t *n) {
    return n && n->type == YAML_SCALAR_NODE ? (const char *)n->data.scalar.value : NULL;
}

static bool set(struct acc *c, const yaml_node_t *n, const char *path, const char *field,
                const char *value) {
    struct err local = {0};
    struct arena *a = c->x->arena;
    if (!recipe_field_set(&c->r, field, value, a, &local))
        return refuse(c, n, path, local.text);
    if (c->x->origins != NULL)
        recipe_note(c->x->origins, a, arena_printf(a, "recipe.%s", field),
                    recipe_field_text(&c->r, recipe_field_find(field), a), where(c, n, path));
    return true;
}

static bool is_true(const char *text) {
    static const char *const yes[] = {"true", "yes", "on", "1", "y", "t"};
    return text && kinds_find(yes, sizeof yes / sizeof yes[0], text) >= 0;
}

static bool is_false(const char *text) {
    static const char *const no[] = {"false", "no", "off", "0", "n", "f"};
    return text && kinds_find(no, sizeof no / sizeof no[0], text) >= 0;
}

// accelerate writes absent values as null, "null", "none" or leaves them empty.
static bool is_absent(const char *text) {
    return text == NULL || *text == '\0' || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0;
}

static const yaml_node_t *find(struct acc *c, const yaml_node_t *map, const char *name) {
    if (map == NULL || map->type != YAML_MAPPING_NODE)
        return NULL;
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        const char *key = text_of(yaml_document_get_node(&c->doc, p->key));
        if (key != NULL && strcmp(key, name) == 0)
            return yaml_document_get_node(&c->doc, p->value);
    }
    return NULL;
}

// ---- values -------------------------------------------------------------------------------------

static bool take_switch(struct acc *c, const yaml_node_t *n, const char *path, const char *field) {
    const char *text = text_of(n);
    if (!is_true(text) && !is_false(text))
        return refuse(c, n, path, "expected true or false");
    return set(c, n, path, field, is_true(text) ? "true" : "false");
}

static bool take_stage_number(struct acc *c, const yaml_node_t *n, const char *path) {
    (void)c, (void)n, (void)path;
    return true; // read before the walk
}

static bool take_accum(struct acc *c, const yaml_node_t *n, const char *path) {
    uint64_t value = 0;
    struct err ignored = {0};
    const char *text = text_of(n);
    if (text && strcasecmp(text, "auto") == 0)
        return true;
    if (text == NULL || !units_parse_count(text, &value, &ignored) || value == 0)
        return refuse(c, n, path, "expected a whole number of at least 1");
    return set(c, n, path, "grad_accum", text);
}

static bool take_clip(struct acc *c, const yaml_node_t *n, const char *path) {
    const char *text = text_of(n);
    if (is_absent(text) || strcasecmp(text, "auto") == 0 || strcasecmp(text, "none") == 0)
        return true;
    return set(c, n, path, "clip", text);
}

static bool take_device(struct acc *c, const yaml_node_t *n, const char *path) {
    const char *text = text_of(n);
    bool param = strstr(path, "offload_param") != NULL;
    if (is_absent(text) || strcasecmp(text, "none") == 0)
        return true;
    if (param && !recipe_is_stage3(&c->r)) {
        warn(c, n, WARNING_INERT, path,
             "parameter offload has no effect below stage 3: every GPU keeps all parameters");
        return true;
    }
    if (strcasecmp(text, "nvme") == 0 && !recipe_is_stage3(&c->r)) {
        warn(c, n, WARNING_INERT, path,
             "below stage 3 DeepSpeed takes nvme for cpu: the states go to host memory");
        text = "cpu";
    }
    return set(c, n, path, param ? "offload_param" : "offload_optimizer", text);
}

static bool take_zero_init(struct acc *c, const yaml_node_t *n, const char *path) {
    return take_switch(c, n, path, "zero_init");
}

static bool take_save_16bit(struct acc *c, const yaml_node_t *n, const char *path) {
    return take_switch(c, n, path, "gather_16bit_on_save");
}

static bool take_offload(struct acc *c, const yaml_node_t *n, const char *path) {
    const char *text = text_of(n);
    if (!is_true(text) && !is_false(text))
        return refuse(c, n, path, "expected true or false");
    const char *device = is_true(text) ? "cpu" : "none";
    return set(c, n, path, "offload_optimizer", device) && set(c, n, path, "offload_param", device);
}

static bool take_wrap(struct acc *c, const yaml_node_t *n, const char *path) {
    const char *text = text_of(n);
    if (text && strcasecmp(text, "TRANSFORMER_BASED_WRAP") == 0)
        return set(c, n, path, "wrap", "block");
    if (text && strcasecmp(text, "SIZE_BASED_WRAP") == 0) {
        if (c->r.wrap_parameters == 0)
            c->r.wrap_parameters = (uint64_t)(100 * UNITS_MEGA);
        return set(c, n, path, "wrap", "size");
    }
    if (text && strcasecmp(text, "NO_WRAP") == 0)
        return set(c, n, path, "wrap", "model");
    return refuse(c, n, path, "expected TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP");
}

static bool take_min_params(struct acc *c, const yaml_node_t *n, const char *path) {
    return is_absent(text_of(n)) || set(c, n, path, "wrap_parameters", text_of(n));
}

static bool take_backward_prefetch(struct acc *c, const yaml_node_t *n, const char *path) {
    static const char *const names[] = {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"};
    const char *text = text_of(n);
    if (c->fsdp2) {
        warn(c, n, WARNING_INERT, path, "FSDP2 always prefetches in backward; this key is ignored");
        return true;
    }
    int found = is_absent(text) ? PREFETCH_BACKWARD_NONE : kinds_find(names, PREFETCH_COUNT, text);
    if (found < 0)
        return refuse(c, n, path, "expected BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH");
    return set(c, n, path, "backward_prefetch", prefetch_names[found]);
}

static bool take_forward_prefetch(struct acc *c, const yaml_node_t *n, const char *path) {
    if (c->fsdp2) {
        warn(c, n, WARNING_INERT, path, "FSDP2 has no such setting; this key is ignored");
        return true;
    }
    return take_switch(c, n, path, "forward_prefetch");
}

static bool take_fsdp1_switch(struct acc *c, const yaml_node_t *n, const char *path) {
    if (c->fsdp2) {
        warn(c, n, WARNING_INERT, path, "FSDP2 has no such setting; this key is ignored");
        return true;
    }
    return take_switch(c, n, path,
                       strstr(path, "use_orig") ? "use_orig_params" : "sync_module_states");
}

static bool take_state_dict(struct acc *c, const yaml_node_t *n, const char *path) {
    const char *text = text_of(n);
    bool full = text && strcasecmp(text, "FULL_STATE_DICT") == 0;
    if (!full && (text == NULL || (strcasecmp(text, "SHARDED_STATE_DICT") != 0 &&
                                   strcasecmp(text, "LOCAL_STATE_DICT") != 0)))
        return refuse(c, n, path,
                      "expected FULL_STATE_DICT, SHARDED_STATE_DICT or "
                      "LOCAL_STATE_DICT");
    return set(c, n, path, "full_state_dict", full ? "true" : "false");
}

static bool take_ram_efficient(struct acc *c, const yaml_node_t *n, const char *path) {
    return take_switch(c, n, path, "cpu_ram_efficient_loading");
}

static bool take_checkpointing(struct acc *c, const yaml_node_t *n, const char *path) {
    const char *text = text_of(n);
    if (!is_true(text) && !is_false(text))
        return refuse(c, n, path, "expected true or false");
    return set(c, n, path, "recompute", is_true(text) ? "full" : "none");
}

static bool take_activation_offload(struct acc *c, const yaml_node_t *n, const char *path) {
    return take_switch(c, n, path, "activation_offload");
}

// ---- keys ---------------------------------------------------------------------------------------

static const struct acc_key fsdp_keys[] = {
    {"fsdp_version", take_stage_number},
    {"fsdp_sharding_strategy", take_stage_number},
    {"fsdp_reshard_after_forward", take_stage_number},
    {"fsdp_auto_wrap_policy", take_wrap},
    {"fsdp_transformer_layer_cls_to_wrap", NULL},
    {"fsdp_min_num_params", take_min_params},
    {"fsdp_backward_prefetch", take_backward_prefetch},
    {"fsdp_backward_prefetch_policy", take_backward_prefetch},
    {"fsdp_forward_prefetch", take_forward_prefetch},
    {"fsdp_state_dict_type", take_state_dict},
    {"fsdp_offload_params", take_offload},
    {"fsdp_cpu_ram_efficient_loading", take_ram_efficient},
    {"fsdp_sync_module_states", take_fsdp1_switch},
    {"fsdp_use_orig_params", take_fsdp1_switch},
    {"fsdp_activation_checkpointing", take_checkpointing},
    {"fsdp_activation_checkpointing_offload", take_activation_offload},
    {NULL, NULL},
};
static const struct acc_key deepspeed_keys[] = {
    {"gradient_accumulation_steps", take_accum}, {"gradient_clipping", take_clip},
    {"offload_optimizer_device", take_device},   {"offload_param_device", take_device},
    {"offload_optimizer_nvme_path", NULL},       {"offload_param_nvme_path", NULL},
    {"zero3_init_flag", take_zero_init},         {"zero3_save_16bit_model", take_save_16bit},
    {"zero_stage", take_stage_number},           {"deepspeed_config_file", NULL},
    {"deepspeed_multinode_launcher", NULL},      {"deepspeed_hostfile", NULL},
    {"deepspeed_exclusion_filter", NULL},        {"deepspeed_inclusion_filter", NULL},
    {"deepspeed_moe_layer_cls_names", NULL},     {NULL, NULL},
};
static const struct acc_key top_keys[] = {
    {"compute_environment", NULL},
    {"debug", NULL},
    {"distributed_type", NULL},
    {"downcast_bf16", NULL},
    {"machine_rank", NULL},
    {"main_process_ip", NULL},
    {"main_process_port", NULL},
    {"main_training_function", NULL},
    {"mixed_precision", NULL},
    {"num_machines", NULL},
    {"num_processes", NULL},
    {"rdzv_backend", NULL},
    {"same_network", NULL},
    {"tpu_env", NULL},
    {"tpu_use_cluster", NULL},
    {"tpu_use_sudo", NULL},
    {"use_cpu", NULL},
    {"tpu_vm", NULL},
    {"enable_cpu_affinity", NULL},
    {"dynamo_config", NULL},
    {"dynamo_backend", NULL},
    {"deepspeed_config", NULL},
    {"fsdp_config", NULL},
    {"megatron_lm_config", NULL},
    {"mpirun_config", NULL},
    {"gpu_ids", NULL},
    {"command_file", NULL},
    {"commands", NULL},
    {"fp8_config", NULL},
    {"parallelism_config", NULL},
    {"tpu_name", NULL},
    {"tpu_zone", NULL},
    {NULL, NULL},
};

static bool unknown_key(struct acc *c, const struct acc_key *keys, const yaml_node_t *n,
                        const char *name, const char *path) {
    const char *names[64];
    size_t count = 0;
    while (keys[count].name != NULL) {
        names[count] = keys[count].name;
        count++;
    }
    const char *near = strlen(name) < NAME_MAX_LENGTH ? kinds_nearest(names, count, name) : NULL;
    const char *text =
        near ? arena_printf(c->x->arena, "unknown key; did you mean '%s'?", near) : "unknown key";
    // accelerate compares the top level with its own fields and stops; sub-maps pass into the
    // environment unread.
    if (keys == top_keys)
        return refuse(c, n, path, arena_printf(c->x->arena, "%s (accelerate refuses it)", text));
    warn(c, n, WARNING_UNKNOWN, path, text);
    return true;
}

static bool walk(struct acc *c, const yaml_node_t *map, const struct acc_key *keys,
                 const char *prefix) {
    if (map == NULL || map->type != YAML_MAPPING_NODE)
        return true;
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        const yaml_node_t *key = yaml_document_get_node(&c->doc, p->key);
        const yaml_node_t *value = yaml_document_get_node(&c->doc, p->value);
        const char *name = text_of(key);
        const struct acc_key *k = keys;
        if (name == NULL)
            return err_set(c->e, ERR_INPUT, "%s:%zu: a key must be text", c->file,
                           key ? key->start_mark.line + 1 : (size_t)1);
        const char *path = arena_printf(c->x->arena, "%s%s", prefix, name);
        while (k->name != NULL && strcmp(k->name, name) != 0)
            k++;
        if (k->name == NULL ? !unknown_key(c, keys, value, name, path)
                            : k->take != NULL && !k->take(c, value, path))
            return false;
    }
    return true;
}

// ---- the three kinds of launch ------------------------------------------------------------------

static bool read_mixed_precision(struct acc *c, const yaml_node_t *root) {
    const yaml_node_t *n = find(c, root, "mixed_precision");
    const char *text = text_of(n), *path = "mixed_precision", *value = NULL;
    bool ddp = c->r.framework == FRAMEWORK_DDP;
    bool fsdp = recipe_is_fsdp1(&c->r) || recipe_is_fsdp2(&c->r);
    if (is_absent(text) || is_false(text))
        value = "fp32";
    else if (strcasecmp(text, "bf16") == 0)
        value = ddp ? "amp-bf16" : "bf16-mixed";
    else if (strcasecmp(text, "fp16") == 0)
        value = ddp ? "amp-bf16" : "fp16-mixed";
    else if (strcasecmp(text, "fp8") == 0)
        value = "fp8";
    else
        return refuse(c, n, path, "expected no, fp16, bf16 or fp8");
    if (ddp && text && strcasecmp(text, "fp16") == 0)
        warn(c, n, WARNING_ASSUMED, path, "fp16 autocast is planned as bf16 autocast: same bytes");
    if (!set(c, n, path, "precision", value))
        return false;
    // accelerate passes one type for parameters and reduction to FSDP.
    if (fsdp && text && (strcasecmp(text, "bf16") == 0 || strcasecmp(text, "fp16") == 0))
        return set(c, n, path, "reduce_dtype", text);
    return true;
}

static bool read_sharding(struct acc *c, const yaml_node_t *fsdp) {
    static const char *const names[] = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                        "HYBRID_SHARD_ZERO2"};
    static const enum strategy strategies[] = {STRATEGY_FSDP1, STRATEGY_FSDP1_GRAD_OP,
                                               STRATEGY_FSDP1_NOSHARD, STRATEGY_FSDP1_HYBRID,
                                               STRATEGY_FSDP1_HYBRID_ZERO2};
    const yaml_node_t *version = find(c, fsdp, "fsdp_version");
    const yaml_node_t *kind = find(c, fsdp, "fsdp_sharding_strategy");
    const yaml_node_t *reshard = find(c, fsdp, "fsdp_reshard_after_forward");
    const char *text = text_of(version);
    c->fsdp2 = text && strcmp(text, "2") == 0;
    if (text && !c->fsdp2 && strcmp(text, "1") != 0)
        return err_set(c->e, ERR_INPUT, "%s: expected 1 or 2",
                       where(c, version, "fsdp_config.fsdp_version"));
    if (c->fsdp2) {
        if (kind != NULL)
            warn(c, kind, WARNING_INERT, "fsdp_config.fsdp_sharding_strategy",
                 "FSDP2 ignores this key; fsdp_reshard_after_forward decides");
        text = text_of(reshard);
        if (text && !is_true(text) && !is_false(text))
            return refuse(c, reshard, "fsdp_config.fsdp_reshard_after_forward",
                          "expected true or false with FSDP2");
        recipe_defaults(is_false(text) ? STRATEGY_FSDP2_NORESHARD : STRATEGY_FSDP2, &c->r);
        return true;
    }
    const yaml_node_t *n = kind ? kind : reshard;
    text = text_of(n);
    int found = 0;
    if (text && is_false(text) && n == reshard)
        found = 1;
    else if (text && text[0] >= '1' && text[0] <= '5' && text[1] == '\0')
        found = text[0] - '1';
    else if (!is_absent(text) && !is_true(text))
        found = kinds_find(names, sizeof names / sizeof names[0], text);
    if (found < 0)
        return err_set(c->e, ERR_INPUT,
                       "%s: expected FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, "
                       "HYBRID_SHARD_ZERO2 or 1 to 5",
                       where(c, n, "fsdp_config.fsdp_sharding_strategy"));
    recipe_defaults(strategies[found], &c->r);
    return true;
}

static bool read_fsdp(struct acc *c, const yaml_node_t *root) {
    const yaml_node_t *fsdp = find(c, root, "fsdp_config");
    const yaml_node_t *mesh = find(c, root, "parallelism_config");
    if (!read_sharding(c, fsdp))
        return false;
    const char *replicas = text_of(find(c, mesh, "parallelism_config_dp_replicate_size"));
    const char *shards = text_of(find(c, mesh, "parallelism_config_dp_shard_size"));
    const char *tp = text_of(find(c, mesh, "parallelism_config_tp_size"));
    const char *cp = text_of(find(c, mesh, "parallelism_config_cp_size"));
    if (c->fsdp2 && replicas && shards && strcmp(replicas, "1") != 0) {
        recipe_defaults(STRATEGY_HSDP, &c->r);
        if (!set(c, mesh, "parallelism_config", "shard_group", shards))
            return false;
    }
    if ((tp && !set(c, mesh, "parallelism_config", "tp", tp)) ||
        (cp && !set(c, mesh, "parallelism_config", "cp", cp)))
        return false;
    if (c->r.strategy == STRATEGY_HSDP && c->r.cp > 1)
        c->r.shard_group *= c->r.cp; // the mesh shards over data and context ranks together
    // accelerate's defaults, which are not torch's.
    if (!c->fsdp2)
        c->r.backward_prefetch = PREFETCH_BACKWARD_NONE;
    c->r.wrap = WRAP_MODEL;
    c->r.no_sync = true;
    c->r.meta_init = false;
    c->r.cpu_ram_efficient_loading = true; // these three: what `accelerate launch` passes on
    c->r.use_orig_params = c->r.sync_module_states = !c->fsdp2;
    if (find(c, fsdp, "fsdp_auto_wrap_policy") == NULL)
        warn(c, fsdp, WARNING_ASSUMED, "fsdp_config.fsdp_auto_wrap_policy",
             "not given: accelerate then makes one unit of the whole model");
    if (!walk(c, fsdp, fsdp_keys, "fsdp_config."))
        return false;
    if (!c->fsdp2 && c->r.cpu_ram_efficient_loading && !c->r.sync_module_states)
        return refuse(c, find(c, fsdp, "fsdp_sync_module_states"),
                      "fsdp_config.fsdp_sync_module_states",
                      "accelerate refuses efficient loading without synchronised states");
    return true;
}

// accelerate checks these itself (utils/dataclasses.py, _deepspeed_config_checks).
static bool refuse_beside_file(struct acc *c, const yaml_node_t *root, const yaml_node_t *map) {
    static const char *const names[] = {
        "gradient_accumulation_steps", "gradient_clipping",      "zero_stage",
        "offload_optimizer_device",    "offload_param_device",   "offload_param_nvme_path",
        "offload_optimizer_nvme_path", "zero3_save_16bit_model", "mixed_precision",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool top = strcmp(names[i], "mixed_precision") == 0;
        const yaml_node_t *n = find(c, top ? root : map, names[i]);
        const char *path =
            arena_printf(c->x->arena, "%s%s", top ? "" : "deepspeed_config.", names[i]);
        if (n != NULL && !refuse(c, n, path,
                                 "accelerate refuses this key beside "
                                 "deepspeed_config_file; it belongs in that file"))
            return false;
    }
    return true;
}

static bool read_deepspeed(struct acc *c, const yaml_node_t *root) {
    static const enum strategy stages[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2,
                                           STRATEGY_ZERO3};
    const yaml_node_t *map = find(c, root, "deepspeed_config");
    const yaml_node_t *n = find(c, map, "zero_stage");
    const char *text = text_of(n), *file = text_of(find(c, map, "deepspeed_config_file"));
    uint64_t stage = 2;
    struct err ignored = {0};
    if (c->x->facts && !is_absent(text_of(find(c, map, "deepspeed_moe_layer_cls_names"))))
        c->x->facts->leaf_module = true;
    if (!is_absent(file) && strcasecmp(file, "none") != 0) {
        const char *slash = file[0] == '/' ? NULL : strrchr(c->file, '/');
        const char *path =
            slash ? arena_printf(c->x->arena, "%.*s/%s", (int)(slash - c->file), c->file, file)
                  : file;
        if (c->x->facts)
            c->x->facts->deepspeed_file = path;
        struct config_text t = {.name = path};
        t.text = import_text_read(path, c->x->arena, &t.bytes, c->e);
        if (t.text == NULL || !recipe_parse_deepspeed(&t, c->x, &c->r, c->e) ||
            !refuse_beside_file(c, root, map))
            return false;
        return walk(c, map, deepspeed_keys, "deepspeed_config.");
    }
    if (!is_absent(text) && (!units_parse_count(text, &stage, &ignored) || stage > 3))
        return err_set(c->e, ERR_INPUT, "%s: expected stage 0, 1, 2 or 3",
                       where(c, n, "deepspeed_config.zero_stage"));
    recipe_defaults(stages[stage], &c->r);
    if (stage == 0)
        c->r.no_sync = c->r.gradient_as_bucket_view = true;
    return walk(c, map, deepspeed_keys, "deepspeed_config.");
}

static void read_facts(struct acc *c, const yaml_node_t *root) {
    struct err ignored = {0};
    const char *processes = text_of(find(c, root, "num_processes"));
    const char *machines = text_of(find(c, root, "num_machines"));
    if (c->x->facts == NULL)
        return;
    if (processes)
        (void)units_parse_count(processes, &c->x->facts->processes, &ignored);
    if (machines)
        (void)units_parse_count(machines, &c->x->facts->machines, &ignored);
}

static bool read_root(struct acc *c, const struct config_text *text) {
    static const char *const kinds[] = {"DEEPSPEED", "FSDP", "MULTI_GPU", "NO"};
    const yaml_node_t *root = yaml_document_get_root_node(&c->doc);
    if (root == NULL || root->type != YAML_MAPPING_NODE)
        return err_set(c->e, ERR_INPUT, "%s: expected a map of accelerate settings", c->file);
    const yaml_node_t *n = find(c, root, "distributed_type");
    const char *type = text_of(n);
    int kind = is_absent(type) || is_false(type) ? 3 : kinds_find(kinds, 4, type);
    if (kind < 0)
        return err_set(c->e, ERR_INPUT, "%s: '%s' is not covered (DEEPSPEED, FSDP, MULTI_GPU, NO)",
                       where(c, n, "distributed_type"), type);
    if (kind == 0 ? !read_deepspeed(c, root) : kind == 1 && !read_fsdp(c, root))
        return false;
    if (kind >= 2)
        recipe_defaults(STRATEGY_DDP, &c->r);
    bool from_file = c->x->facts && c->x->facts->deepspeed_file;
    read_facts(c, root);
    return (from_file || read_mixed_precision(c, root)) && walk(c, root, top_keys, "") &&
           set(c, n, "distributed_type", "strategy", strategy_names[c->r.strategy]) &&
           import_text_fields(text, c->x, &c->r, c->e);
}

bool recipe_parse_accelerate(const struct config_text *t, const struct config_context *x,
                             struct recipe *out, struct err *e) {
    struct config_facts facts = {.kind = CONFIG_ACCELERATE};
    struct config_context own = *x;
    struct acc c = {.x = &own, .file = t->name, .e = e};
    yaml_parser_t parser;
    bool ok = false, parsed = false;
    own.facts = &facts;
    if (!yaml_parser_initialize(&parser))
        return err_set(e, ERR_RESOURCE, "%s: no memory for the YAML parser", t->name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)t->text, t->bytes);
    parsed = yaml_parser_load(&parser, &c.doc);
    if (!parsed)
        err_set(e, ERR_INPUT, "%s:%zu: %s", t->name, parser.problem_mark.line + 1,
                parser.problem ? parser.problem : "not YAML");
    ok = parsed && read_root(&c, t);
    if (parsed)
        yaml_document_delete(&c.doc);
    yaml_parser_delete(&parser);
    if (!ok)
        return false;
    *out = c.r;
    if (x->facts)
        *x->facts = facts;
    return true;
}
