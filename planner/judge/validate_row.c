// SPDX-License-Identifier: Apache-2.0
#include "judge/validate_row.h"

#include "base/json.h"
#include "base/units.h"

#include <math.h>
#include <string.h>

const char *const score_group_names[SCORE_GROUP_COUNT] = {
    [SCORE_DATA_PARALLEL] = "data_parallel", [SCORE_MIXED] = "mixed", [SCORE_FLOAT8] = "float8"};
const char *const memory_reading_names[READING_COUNT] = {[READING_ALLOCATED] = "allocated",
                                                         [READING_RESERVED] = "reserved",
                                                         [READING_NVIDIA_SMI] = "nvidia_smi"};

// A member that is null or of another type counts as not stated: sources differ.
static const char *text_of(struct json_node o, const char *key, struct arena *a) {
    struct json_node n;
    const char *s = NULL;
    if (json_find(o, key, &n) && json_is_string(n) && json_get_string(o, key, true, &s, NULL)) {
        return arena_strdup(a, s);
    }
    return NULL;
}

static double number_of(struct json_node o, const char *key) {
    struct json_node n;
    double v = NAN;
    if (json_find(o, key, &n) && json_is_number(n) && json_as_double(n, &v, NULL)) {
        return v;
    }
    return NAN;
}

static uint64_t count_of(struct json_node o, const char *key) {
    const double v = number_of(o, key);
    return v >= 1 && v < 1e18 ? (uint64_t)v : 0;
}

static bool flag_of(struct json_node o, const char *key) {
    bool v = false;
    struct json_node n;
    return json_find(o, key, &n) && !json_is_null(n) && json_get_bool(o, key, true, &v, NULL) && v;
}

static uint64_t ways_of(struct json_node o, const char *key) {
    const uint64_t v = count_of(o, key);
    return v > 0 ? v : 1;
}

static void read_model(struct json_node o, struct arena *a, struct run_model *m) {
    m->name = text_of(o, "name", a);
    m->positions = text_of(o, "positions", a);
    m->layers = count_of(o, "layers");
    m->hidden = count_of(o, "hidden");
    m->heads = count_of(o, "heads");
    m->kv_heads = count_of(o, "kv_heads");
    m->head_dim = count_of(o, "head_dim");
    m->ffn = count_of(o, "ffn");
    m->vocab = count_of(o, "vocab");
    m->experts = count_of(o, "n_experts");
    m->experts_per_token = count_of(o, "top_k");
    m->moe_ffn = count_of(o, "moe_ffn");
    m->parameters = number_of(o, "params");
    m->gated_mlp = flag_of(o, "gated_mlp");
    m->tied_embeddings = flag_of(o, "tied_embeddings");
    m->biases = flag_of(o, "biases");
}

static void read_measured(struct json_node o, struct arena *a, struct run_measured *m) {
    m->step_s = number_of(o, "step_time_s");
    m->step_derived_s = number_of(o, "step_time_derived_s");
    m->tokens_per_s_per_gpu = number_of(o, "tokens_per_s_per_gpu");
    m->tokens_per_s = number_of(o, "tokens_per_s_total");
    m->samples_per_s = number_of(o, "samples_per_s_total");
    m->flop_per_s_per_gpu = number_of(o, "tflops_per_gpu") * UNITS_TERA;
    m->flop_counting = text_of(o, "tflops_counting", a);
    m->memory_gib = number_of(o, "peak_memory_gib");
    m->memory_kind = text_of(o, "peak_memory_kind", a);
    m->out_of_memory = flag_of(o, "oom");
}

static const char *join_reasons(struct json_node score, const char *key, struct arena *a) {
    struct json_node all, list;
    char *joined = NULL;
    if (!json_find(score, "not_scored_because", &all) || !json_is_object(all) ||
        !json_find(all, key, &list) || !json_is_array(list)) {
        return NULL;
    }
    for (size_t i = 0; i < json_size(list); i++) {
        const struct json_node n = json_at(list, i);
        const char *s = json_is_string(n) ? n.item->valuestring : "";
        joined = joined != NULL ? arena_printf(a, "%s; %s", joined, s) : arena_strdup(a, s);
    }
    return joined;
}

static bool read_score(struct json_node o, struct arena *a, struct run_score *s, struct err *e) {
    const char *group = text_of(o, "group", a), *reading = text_of(o, "memory_reading", a);
    const int g = kinds_find(score_group_names, SCORE_GROUP_COUNT, group != NULL ? group : "");
    if (g < 0) {
        return json_fail(o, e, "group must be data_parallel, mixed or float8");
    }
    s->group = (enum score_group)g;
    s->memory_reading = READING_NONE;
    for (int i = READING_ALLOCATED; reading != NULL && i < READING_COUNT; i++) {
        if (strcmp(reading, memory_reading_names[i]) == 0) {
            s->memory_reading = (enum memory_reading)i;
        }
    }
    const double gbit = number_of(o, "node_gbit_per_s");
    s->node_bytes_per_s = isnan(gbit) ? 0.0 : gbit * UNITS_GIGA / 8.0;
    s->gpu_id = text_of(o, "gpu_id", a);
    s->stack = text_of(o, "stack", a);
    if (s->stack == NULL) {
        return json_fail(o, e, "a score block names its stack");
    }
    s->step_basis = text_of(o, "step_basis", a);
    s->network_note = text_of(o, "network_note", a);
    s->network_provenance = text_of(o, "network_provenance", a);
    s->step_s = number_of(o, "step_s");
    s->memory_gib = number_of(o, "memory_gib");
    s->time_scored = flag_of(o, "time_scored");
    s->memory_scored = flag_of(o, "memory_scored");
    s->time_reason = join_reasons(o, "time", a);
    s->memory_reason = join_reasons(o, "memory", a);
    return true;
}

static void read_run(struct json_node o, struct arena *a, struct run_row *r) {
    struct json_node n;
    r->source = text_of(o, "source", a);
    r->tier = text_of(o, "tier", a);
    r->value_kind = text_of(o, "value_kind", a);
    r->notes = text_of(o, "notes", a);
    r->gpu = text_of(o, "gpu", a);
    r->interconnect_inter = text_of(o, "interconnect_inter", a);
    r->framework = text_of(o, "framework", a);
    r->framework_version = text_of(o, "framework_version", a);
    r->strategy = text_of(o, "strategy", a);
    r->gpus = count_of(o, "gpus_total");
    r->gpus_per_node = count_of(o, "gpus_per_node");
    r->shard_group = count_of(o, "hybrid_shard_group");
    r->tp = ways_of(o, "tp");
    r->pp = ways_of(o, "pp");
    r->cp = ways_of(o, "cp");
    r->ep = ways_of(o, "ep");
    r->virtual_stages = ways_of(o, "virtual_stages");
    r->seq = count_of(o, "seq_len");
    r->micro_batch = count_of(o, "micro_batch_per_gpu");
    r->grad_accum = count_of(o, "grad_accum");
    r->param_dtype = text_of(o, "param_dtype", a);
    r->reduce_dtype = text_of(o, "reduce_dtype", a);
    r->optimizer = text_of(o, "optimizer", a);
    r->recompute = text_of(o, "activation_checkpointing", a);
    r->attention = text_of(o, "attention", a);
    r->compile = flag_of(o, "compile");
    r->float8 = flag_of(o, "float8");
    if (json_find(o, "offload", &n) && json_is_object(n)) {
        r->offload_optimizer = text_of(n, "optimizer", a);
        r->offload_params = text_of(n, "params", a);
        r->offload_activations = text_of(n, "activations", a);
    }
    if (json_find(o, "kernels", &n) && json_is_object(n)) {
        r->loss_head = text_of(n, "loss_head", a);
    }
}

static bool read_row(struct json_node o, struct arena *a, struct run_row *r, struct err *e) {
    struct json_node n;
    *r = (struct run_row){0};
    r->id = text_of(o, "id", a);
    if (r->id == NULL || !json_find(o, "model", &n) || !json_is_object(n)) {
        return json_fail(o, e, "a run needs an id and a model");
    }
    read_model(n, a, &r->model);
    if (!json_find(o, "measured", &n) || !json_is_object(n)) {
        return json_fail(o, e, "a run needs the block \"measured\"");
    }
    read_measured(n, a, &r->measured);
    read_run(o, a, r);
    if (json_find(o, "score", &n) && json_is_object(n)) {
        return read_score(n, a, &r->score, e);
    }
    validate_row_score(r, a);
    return true;
}

bool validate_row_read(const char *path, struct arena *a, struct run_row **out, size_t *count,
                       struct err *e) {
    struct json_doc *doc = json_read_file(path, e);
    bool ok = false;
    if (doc == NULL) {
        return false;
    }
    struct json_node root = json_root(doc), rows = root;
    if (!json_is_array(rows) &&
        !(json_is_object(root) && json_find(root, "rows", &rows) && json_is_array(rows))) {
        json_fail(root, e, "expected an array of runs");
        goto fail;
    }
    const size_t n = json_size(rows);
    struct run_row *list = arena_array(a, n, sizeof *list);
    for (size_t i = 0; i < n; i++) {
        const struct json_node row = json_at(rows, i);
        if (!json_is_object(row)) {
            json_fail(row, e, "a run must be an object");
            goto fail;
        }
        if (!read_row(row, a, &list[i], e)) {
            goto fail;
        }
    }
    *out = list;
    *count = n;
    ok = true;
fail:
    json_destroy(doc);
    return ok;
}
