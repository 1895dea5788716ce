// SPDX-License-Identifier: Apache-2.0
#include "judge/check.h"

#include "base/units.h"
#include "describe/import_deepspeed_keys.h"
#include "describe/version.h"
#include "judge/check_rules.h"

#include <math.h>
#include <string.h>

const char *const severity_names[SEVERITY_COUNT] = {"info", "warning", "error"};

// ---- helpers of the rules -----------------------------------------------------------------------

void check_add(struct check *k, struct finding f) {
    struct check_result *r = k->out;
    for (size_t i = 0; i < k->origins.count && strncmp(f.path, "recipe.", 7) == 0; i++)
        if (strcmp(k->origins.items[i].path, f.path) == 0)
            f.path = k->origins.items[i].source;
    if (strncmp(f.path, "recipe.", 7) == 0)
        f.path = arena_printf(k->a, "%s (%s)", k->q->path, f.path + 7);
    if (f.cost_bytes == 0)
        f.cost_bytes = NAN;
    if (f.cost_s == 0)
        f.cost_s = NAN;
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 16;
        struct finding *items = arena_array(k->a, capacity, sizeof *items);
        if (r->count)
            memcpy(items, r->findings, r->count * sizeof *items);
        r->findings = items;
        r->capacity = capacity;
    }
    r->findings[r->count++] = f;
}

static const char *key_of_field(enum config_kind kind, const char *field) {
    static const struct {
        enum config_kind kind;
        const char *field, *key;
    } rows[] = {
        {CONFIG_DEEPSPEED, "overlap_comm", "zero_optimization.overlap_comm"},
        {CONFIG_DEEPSPEED, "stage", "zero_optimization.stage"},
        {CONFIG_ACCELERATE, "zero_init", "deepspeed_config.zero3_init_flag"},
        {CONFIG_ACCELERATE, "gather_16bit_on_save", "deepspeed_config.zero3_save_16bit_model"},
        {CONFIG_ACCELERATE, "wrap", "fsdp_config.fsdp_auto_wrap_policy"},
        {CONFIG_ACCELERATE, "cpu_ram_efficient_loading",
         "fsdp_config.fsdp_cpu_ram_efficient_loading"},
        {CONFIG_ACCELERATE, "sync_module_states", "fsdp_config.fsdp_sync_module_states"},
        {CONFIG_ACCELERATE, "full_state_dict", "fsdp_config.fsdp_state_dict_type"},
        {CONFIG_ACCELERATE, "use_orig_params", "fsdp_config.fsdp_use_orig_params"},
        {CONFIG_ACCELERATE, "backward_prefetch", "fsdp_config.fsdp_backward_prefetch"},
        {CONFIG_ACCELERATE, "precision", "mixed_precision"},
        {CONFIG_ACCELERATE, "processes", "num_processes"},
        {CONFIG_ACCELERATE, "machines", "num_machines"},
        {CONFIG_TORCHTITAN, "reduce_dtype", "training.mixed_precision_reduce"},
        {CONFIG_TORCHTITAN, "precision", "training.mixed_precision_param"},
        {CONFIG_TORCHTITAN, "optimizer_fused", "optimizer.implementation"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].kind == kind && strcmp(rows[i].field, field) == 0)
            return rows[i].key;
    for (size_t i = 0; kind == CONFIG_DEEPSPEED && i < ds_key_count; i++)
        if (ds_keys[i].field && ds_keys[i].kind != DS_ALIAS && !strcmp(ds_keys[i].field, field))
            return ds_keys[i].path;
    return NULL;
}

struct edit check_set(const struct check *k, const char *field, const char *value) {
    const char *key = k->out->facts.deepspeed_file ? NULL : key_of_field(k->out->facts.kind, field);
    if (key == NULL)
        return (struct edit){EDIT_NONE, NULL, NULL};
    if (k->out->facts.kind == CONFIG_TORCHTITAN && strcmp(value, "bf16") == 0)
        value = "bfloat16";
    return (struct edit){EDIT_SET, key, arena_strdup(k->a, value)};
}

double check_seconds(const struct check *k, double sent_bytes) {
    const struct cluster *c = k->c;
    double rate = c->gpu.nvlink_busbw_bytes_per_s.value;
    if (c->nodes > 1 && figure_is_known(c->nic_bytes_per_s)) {
        double share = figure_is_known(c->inter_efficiency) ? c->inter_efficiency.value : 1;
        rate = c->nic_bytes_per_s.value * (double)c->nics_per_node * share /
               (double)check_node_ranks(k);
    } else if (!figure_is_known(c->gpu.nvlink_busbw_bytes_per_s)) {
        rate = c->gpu.pcie_h2d_bytes_per_s.value;
    }
    return rate > 0 ? sent_bytes / rate : NAN;
}

double check_trainable(const struct check *k) {
    return (double)recipe_trainable(k->r, k->m);
}

double check_frozen(const struct check *k) {
    return (double)recipe_frozen(k->r, k->m);
}

uint64_t check_node_ranks(const struct check *k) {
    uint64_t nodes = k->c->nodes ? k->c->nodes : 1;
    return k->c->gpus / nodes ? k->c->gpus / nodes : 1;
}

double check_largest_tensor(const struct check *k) {
    uint64_t largest = 0;
    for (size_t u = 0; u < k->m->unit_count; u++)
        for (size_t t = 0; t < k->m->units[u].tensor_count; t++)
            if (tensor_numel(&k->m->units[u].tensors[t]) > largest)
                largest = tensor_numel(&k->m->units[u].tensors[t]);
    return (double)largest;
}

const char *check_gib(const struct check *k, double bytes) {
    char buf[32];
    return arena_strdup(k->a, units_format_gib(buf, sizeof buf, bytes));
}

// ---- what the reader said -----------------------------------------------------------------------

// "file:12 zero_optimization.x" -> "zero_optimization.x"
static const char *key_in(const char *path) {
    const char *space = strrchr(path, ' ');
    return space ? space + 1 : path;
}

static struct edit edit_of(const struct check *k, const struct warning *w) {
    const char *quote = strstr(w->text, "did you mean '");
    if (quote != NULL) {
        quote += strlen("did you mean '");
        const char *name = arena_printf(k->a, "%.*s", (int)strcspn(quote, "'"), quote);
        const char *dot = strrchr(name, '.');
        return (struct edit){EDIT_RENAME, key_in(w->path), dot ? dot + 1 : name};
    }
    if (w->kind == WARNING_INERT)
        return (struct edit){EDIT_REMOVE, key_in(w->path), NULL};
    return (struct edit){EDIT_NONE, NULL, NULL};
}

static void add_reader_findings(struct check *k) {
    static const struct {
        const char *id;
        enum severity severity;
        const char *fix;
    } rows[WARNING_KIND_COUNT] = {
        [WARNING_UNKNOWN] = {"unknown-key", SEVERITY_WARNING, "correct or remove the key"},
        [WARNING_INERT] = {"inert-key", SEVERITY_WARNING, "remove the key"},
        [WARNING_DEPRECATED] = {"deprecated-key", SEVERITY_WARNING, "use the current name"},
        [WARNING_REFUSED] = {"refused", SEVERITY_ERROR, "correct the value or the key"},
        [WARNING_ASSUMED] = {"assumed", SEVERITY_INFO, NULL},
        [WARNING_LEFT_OUT] = {"left-out", SEVERITY_WARNING, NULL},
    };
    for (size_t i = 0; i < k->warnings.count; i++) {
        const struct warning *w = &k->warnings.items[i];
        // "auto" is the trainer's to fill, and NO_WRAP has a rule of its own.
        if (w->kind == WARNING_ASSUMED &&
            (strstr(w->text, "\"auto\"") || strstr(w->path, "auto_wrap_policy")))
            continue;
        check_add(k, (struct finding){.id = rows[w->kind].id,
                                      .severity = rows[w->kind].severity,
                                      .path = w->path,
                                      .text = w->text,
                                      .fix = rows[w->kind].fix,
                                      .edits = {edit_of(k, w)}});
    }
}

static void run(struct check *k, check_rule *const *rules) {
    for (; *rules != NULL; rules++)
        (*rules)(k);
}

// Errors first; otherwise the order in which the rules stand.
static void sort_findings(struct check_result *r, struct arena *a) {
    struct finding *sorted = arena_array(a, r->count + 1, sizeof *sorted);
    size_t n = 0;
    for (int s = SEVERITY_ERROR; s >= SEVERITY_INFO; s--)
        for (size_t i = 0; i < r->count; i++)
            if (r->findings[i].severity == (enum severity)s)
                sorted[n++] = r->findings[i];
    r->findings = sorted;
}

static bool read_recipe(struct check *k, struct err *e) {
    const struct check_request *q = k->q;
    struct config_context x = {k->a, q->model, &k->origins, &k->warnings, &k->out->facts, true};
    struct err resolve = {0};
    if (!recipe_read_config(q->path, &x, &k->out->recipe, e))
        return false;
    if (q->options && !recipe_apply(q->options, k->a, &k->out->recipe, &k->origins, e))
        return false;
    if (q->options && q->options->framework_version &&
        !version_warn(q->options->framework_version, k->a, &k->warnings, e))
        return false;
    k->out->resolved =
        recipe_resolve(&k->out->recipe, q->model, q->cluster, &resolve) &&
        memory_estimate(q->model, q->cluster, &k->out->recipe, &k->out->memory, &resolve);
    if (!k->out->resolved)
        check_add(k, (struct finding){.id = "refused",
                                      .severity = SEVERITY_ERROR,
                                      .path = q->path,
                                      .text = arena_strdup(k->a, resolve.text),
                                      .fix = "make the sizes divide each other"});
    return true;
}

bool check_config(const struct check_request *q, struct arena *a, struct check_result *out,
                  struct err *e) {
    struct check_result result = {0};
    struct check k = {.q = q, .a = a, .m = q->model, .c = q->cluster, .out = &result};
    k.r = &result.recipe;
    k.memory = &result.memory;
    if (!read_recipe(&k, e))
        return false;
    add_reader_findings(&k);
    run(&k, check_rules_launch);
    if (result.resolved) {
        run(&k, check_rules_deepspeed);
        run(&k, check_rules_fsdp);
        run(&k, check_rules_memory);
    }
    sort_findings(&result, a);
    *out = result;
    return true;
}

size_t check_errors(const struct check_result *r) {
    size_t n = 0;
    for (size_t i = 0; i < r->count; i++)
        n += r->findings[i].severity == SEVERITY_ERROR;
    return n;
}
