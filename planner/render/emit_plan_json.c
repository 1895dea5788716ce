// SPDX-License-Identifier: Apache-2.0
#include "render/emit_plan.h"

#include <inttypes.h>
#include <math.h>

static void add_names(cJSON *o, const char *const *names, const uint64_t *bytes, size_t count,
                      struct arena *a) {
    for (size_t i = 0; i < count; i++)
        json_add_u64(o, arena_printf(a, "%s_bytes", names[i]), bytes[i]);
}

static void emit_gpu_phases(cJSON *memory, const struct memory *m, struct arena *a) {
    cJSON *phases = json_add_array(memory, "phases");
    for (size_t i = 0; i < PHASE_COUNT; i++) {
        cJSON *p = json_append_object(phases);
        json_add_string(p, "phase", memory_phase_names[i]);
        add_names(p, memory_class_names, m->phases[i].classes_bytes, MEMORY_CLASS_COUNT, a);
        json_add_u64(p, "allocated_bytes", m->phases[i].allocated_bytes);
        json_add_bool(p, "fits", m->phase_fits[i]);
    }
}

static void emit_memory(cJSON *plan, const struct plan *p, struct arena *a) {
    const struct memory *m = &p->memory;
    cJSON *o = json_add_object(plan, "memory");
    add_names(o, memory_class_names, m->classes_bytes, MEMORY_CLASS_COUNT, a);
    json_add_u64(o, "framework_bytes", m->framework_bytes);
    json_add_u64(o, "context_bytes", m->context_bytes);
    json_add_u64(o, "nccl_bytes", m->nccl_bytes);
    json_add_u64(o, "steady_bytes", m->steady_bytes);
    json_add_u64(o, "allocated_peak_bytes", m->allocated_peak_bytes);
    json_add_string(o, "peak_phase", memory_phase_names[m->peak_phase]);
    json_add_u64(o, "reserved_bytes", m->reserved_bytes);
    json_add_u64(o, "reserved_low_bytes", m->reserved_low_bytes);
    json_add_u64(o, "reserved_high_bytes", m->reserved_high_bytes);
    json_add_u64(o, "nvidia_smi_bytes", m->nvidia_smi_bytes);
    json_add_u64(o, "capacity_bytes", m->capacity_bytes);
    json_add_double(o, "headroom_bytes", (double)m->headroom_bytes);
    json_add_u64(o, "short_bytes", m->short_bytes);
    json_add_bool(o, "fits", m->fits_state != FITS_NO);
    json_add_string(o, "fits_state", fits_state_names[m->fits_state]);
    if (p->min_gpus)
        json_add_u64(o, "min_gpus", p->min_gpus);
    else
        json_add_null(o, "min_gpus");
    emit_gpu_phases(o, m, a);
}

static void emit_host(cJSON *plan, const struct memory *m, struct arena *a) {
    cJSON *o = json_add_object(plan, "host");
    json_add_u64(o, "bytes_per_node", m->host_bytes);
    json_add_u64(o, "pinned_bytes_per_node", m->pinned_bytes);
    json_add_u64(o, "pinned_rounding_bytes", m->pinned_rounding_bytes);
    add_names(o, host_class_names, m->host_classes_bytes, HOST_PINNED_ROUNDING, a);
    if (m->host_known) {
        json_add_u64(o, "capacity_bytes", m->host_capacity_bytes);
        json_add_bool(o, "fits", m->host_fits);
    } else {
        json_add_null(o, "capacity_bytes");
        json_add_null(o, "fits");
        json_add_string(o, "reason", "the cluster's host memory is unknown; give --host-memory");
    }
    cJSON *phases = json_add_array(o, "phases");
    for (size_t i = 0; i < PHASE_COUNT; i++) {
        cJSON *p = json_append_object(phases);
        json_add_string(p, "phase", memory_phase_names[i]);
        add_names(p, host_class_names, m->phases[i].host_classes_bytes, HOST_CLASS_COUNT, a);
        json_add_u64(p, "bytes_per_node", m->phases[i].host_bytes);
    }
    cJSON *n = json_add_object(plan, "nvme");
    json_add_u64(n, "bytes_per_node", m->nvme_bytes);
    if (m->nvme_known) {
        json_add_u64(n, "capacity_bytes", m->nvme_capacity_bytes);
        json_add_bool(n, "fits", m->nvme_fits);
    } else {
        json_add_null(n, "capacity_bytes");
        json_add_null(n, "fits");
        json_add_string(n, "reason", "the cluster's NVMe capacity is unknown");
    }
}

static const char *const group_names[TRANSFER_GROUP_COUNT] = {
    [GROUP_WORLD] = "world",     [GROUP_SHARD] = "shard",   [GROUP_REPLICA] = "replica",
    [GROUP_NODE] = "node",       [GROUP_HOST] = "host",     [GROUP_TENSOR] = "tensor",
    [GROUP_CONTEXT] = "context", [GROUP_EXPERT] = "expert", [GROUP_PIPELINE] = "pipeline",
};

static const char *transfer_kind(const struct transfer *t) {
    static const char *const names[TRANSFER_KIND_COUNT] = {
        [TRANSFER_COLLECTIVE] = "collective",
        [TRANSFER_H2D] = "h2d",
        [TRANSFER_D2H] = "d2h",
        [TRANSFER_NVME_READ] = "nvme_read",
        [TRANSFER_NVME_WRITE] = "nvme_write",
    };
    return t->kind == TRANSFER_COLLECTIVE ? collective_name(t->collective) : names[t->kind];
}

static void emit_transfer(cJSON *list, const struct transfer *t) {
    cJSON *o = json_append_object(list);
    json_add_string(o, "phase", t->phase);
    json_add_string(o, "kind", transfer_kind(t));
    json_add_string(o, "what", t->what);
    json_add_string(o, "dtype", dtype_name(t->dtype));
    json_add_string(o, "group", group_names[t->group]);
    json_add_u64(o, "group_size", t->group_size);
    json_add_u64(o, "count", t->count);
    json_add_double(o, "payload_bytes", t->payload_bytes);
    json_add_double(o, "sent_bytes", t->sent_bytes);
    json_add_double(o, "inter_node_bytes", t->inter_node_bytes);
    json_add_string(o, "link", link_name(t->link));
}

static void emit_volume(cJSON *plan, const struct volume *v) {
    cJSON *o = json_add_object(plan, "volume");
    json_add_double(o, "textbook_multiple", v->textbook_multiple);
    json_add_double(o, "textbook_bytes", v->textbook_bytes);
    json_add_double(o, "textbook_inter_node_multiple", v->textbook_inter_node_multiple);
    json_add_double(o, "all_gather_bytes", v->all_gather_bytes);
    json_add_double(o, "reduce_scatter_bytes", v->reduce_scatter_bytes);
    json_add_double(o, "all_reduce_bytes", v->all_reduce_bytes);
    json_add_double(o, "other_bytes", v->other_bytes);
    json_add_double(o, "sent_bytes_per_gpu", v->sent_bytes_per_gpu);
    json_add_double(o, "intra_node_bytes_per_gpu", v->intra_node_bytes_per_gpu);
    json_add_double(o, "inter_node_bytes_per_gpu", v->inter_node_bytes_per_gpu);
    json_add_double(o, "inter_node_bytes_per_nic", v->inter_node_bytes_per_nic);
    json_add_double(o, "h2d_bytes", v->h2d_bytes);
    json_add_double(o, "d2h_bytes", v->d2h_bytes);
    json_add_double(o, "nvme_read_bytes", v->nvme_read_bytes);
    json_add_double(o, "nvme_write_bytes", v->nvme_write_bytes);
    json_add_double(o, "host_dram_bytes_per_node", v->host_dram_bytes_per_node);
    cJSON *list = json_add_array(o, "transfers");
    for (size_t i = 0; i < v->transfer_count; i++)
        emit_transfer(list, &v->transfers[i]);
}

void emit_time(cJSON *parent, const char *key, const struct step_time *t) {
    cJSON *o = json_add_object(parent, key);
    json_add_double(o, "step_s", t->step_s);
    json_add_double(o, "step_low_s", t->step_low_s);
    json_add_double(o, "step_high_s", t->step_high_s);
    json_add_double(o, "forward_s", t->forward_s);
    json_add_double(o, "backward_s", t->backward_s);
    json_add_double(o, "optimizer_s", t->optimizer_s);
    json_add_double(o, "compute_s", t->compute_s);
    json_add_double(o, "exposed_comm_s", t->exposed_comm_s);
    json_add_double(o, "exposed_offload_s", t->exposed_offload_s);
    json_add_double(o, "host_issue_s", t->host_issue_s);
    json_add_double(o, "bubble_s", t->bubble_s);
    json_add_double(o, "tokens_per_s_per_gpu", t->tokens_per_s_per_gpu);
    json_add_double(o, "mfu", t->mfu);
    json_add_double(o, "hfu", t->hfu);
    json_add_double(o, "peak_flop_per_s", t->peak_flop_per_s);
    json_add_string(o, "reason", t->reason);
}

void emit_recommendation(cJSON *root, const struct recommendation *r) {
    cJSON *o = json_add_object(root, "recommendation");
    json_add_u64(o, "plan_index", r->plan_index);
    json_add_string(o, "choice", choice_names[r->choice]);
    json_add_string(o, "reason", r->reason);
    cJSON *actions = json_add_array(o, "actions");
    for (size_t i = 0; i < r->action_count; i++)
        cJSON_AddItemToArray(actions, cJSON_CreateString(r->actions[i]));
}

void emit_plan_entry(cJSON *plans, const struct plan *p, const struct plan_set *s,
                     struct arena *a) {
    cJSON *o = json_append_object(plans);
    json_add_string(o, "title", plan_title(p, a));
    json_add_string(o, "strategy", strategy_names[p->recipe.strategy]);
    emit_recipe(o, "recipe", &p->recipe);
    cJSON *proven = json_add_object(o, "proven");
    json_add_string(proven, "memory", proof_names[p->proven_memory]);
    json_add_string(proven, "volume", proof_names[p->proven_volume]);
    json_add_string(proven, "time", proof_names[p->proven_time]);
    json_add_string(o, "reason", p->reason);
    if (p->reason) {
        json_add_null(o, "memory");
        json_add_null(o, "host");
        json_add_null(o, "nvme");
        json_add_null(o, "volume");
    } else {
        emit_memory(o, p, a);
        emit_host(o, &p->memory, a);
        emit_volume(o, &p->volume);
    }
    json_add_bool(o, "fits", p->fits);
    emit_time(o, "time", &p->time);
    json_add_string(o, "bound_by", isfinite(p->time.step_s) ? bound_names[p->time.bound_by] : NULL);
    if (s == NULL || s->measured == NULL || p->reason)
        return;
    struct measured_key k = plan_measured_key(s->model, s->cluster, &p->recipe);
    emit_nearest(o, s->measured, &k, a);
}

void emit_nearest(cJSON *parent, const struct measured_table *t, const struct measured_key *k,
                  struct arena *a) {
    struct measured_nearest n;
    measured_find(t, k, a, &n);
    if (n.run == NULL) {
        json_add_null(parent, "nearest_measured");
        return;
    }
    cJSON *o = json_add_object(parent, "nearest_measured");
    json_add_string(o, "id", n.run->id);
    json_add_string(o, "source", n.run->source);
    json_add_string(o, "gpu", n.run->key.gpu);
    json_add_string(o, "framework", n.run->key.framework);
    json_add_string(o, "strategy", n.run->key.strategy);
    json_add_double(o, "parameters", n.run->key.parameters);
    json_add_u64(o, "gpus", n.run->key.gpus);
    json_add_double(o, "tokens_per_gpu", n.run->key.tokens_per_gpu);
    json_add_bool(o, "offload", n.run->key.offload);
    json_add_bool(o, "fp8", n.run->key.fp8);
    json_add_double(o, "distance", n.distance);
    json_add_string(o, "differs", n.differs);
    json_add_double(o, "measured_s", n.run->measured_s);
    json_add_double(o, "predicted_s", n.run->predicted_s);
    json_add_double(o, "error", n.error);
    json_add_u64(o, "group_n", n.group_n);
    json_add_double(o, "group_error", n.group_error);
}

void emit_model_cluster(cJSON *root, const struct model *m, const struct cluster *c,
                        const struct recipe *r) {
    cJSON *o = json_add_object(root, "model");
    json_add_string(o, "name", m->name);
    json_add_string(o, "source", m->source);
    json_add_u64(o, "parameters", m->parameters);
    json_add_u64(o, "trainable_parameters", r ? recipe_trainable(r, m) : m->parameters);
    o = json_add_object(root, "cluster");
    json_add_string(o, "name", c->name);
    json_add_string(o, "gpu", c->gpu.id);
    json_add_u64(o, "nodes", c->nodes);
    json_add_u64(o, "gpus", c->gpus);
}

void emit_inputs(cJSON *root, const struct plan_set *s, const struct recipe_origins *origins) {
    cJSON *list = json_add_array(root, "inputs");
    for (size_t i = 0; i < s->input_count; i++) {
        const struct plan_input *in = &s->inputs[i];
        cJSON *o = json_append_object(list);
        bool known = figure_is_known(in->figure);
        json_add_string(o, "path", in->path);
        json_add_double(o, "value", in->figure.value);
        json_add_string(o, "unit", in->unit);
        json_add_string(o, "provenance", known ? provenance_name(in->figure.provenance) : NULL);
        json_add_string(o, "source", known ? in->figure.source : "unknown, and no default exists");
        json_add_double(o, "low", in->figure.low);
        json_add_double(o, "high", in->figure.high);
    }
    for (size_t i = 0; origins && i < origins->count; i++) {
        cJSON *o = json_append_object(list);
        json_add_string(o, "path", origins->items[i].path);
        json_add_string(o, "value", origins->items[i].value);
        json_add_null(o, "unit");
        json_add_string(o, "provenance", "given");
        json_add_string(o, "source", origins->items[i].source);
    }
}

void emit_assumed(cJSON *root, const struct plan_set *s) {
    cJSON *list = json_add_array(root, "assumed_that_matter");
    for (size_t i = 0; i < s->assumption_count; i++) {
        cJSON *o = json_append_object(list);
        json_add_string(o, "path", s->assumptions[i].path);
        json_add_string(o, "effect", s->assumptions[i].effect);
        json_add_double(o, "effect_fraction", s->assumptions[i].effect_fraction);
        json_add_string(o, "measure_with", s->assumptions[i].measure_with);
    }
}

cJSON *emit_plan_json(const struct plan_set *s, const char *command,
                      const struct recipe_origins *origins, struct arena *a) {
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", "shardplan.plan/1");
    json_add_string(root, "command", command);
    const struct recipe *r = s->plan_count ? &s->plans[s->recommendation.plan_index].recipe : NULL;
    emit_model_cluster(root, s->model, s->cluster, r);
    emit_recommendation(root, &s->recommendation);
    cJSON *plans = json_add_array(root, "plans");
    for (size_t i = 0; i < s->plan_count; i++)
        emit_plan_entry(plans, &s->plans[i], s, a);
    emit_inputs(root, s, origins);
    emit_assumed(root, s);
    return root;
}
