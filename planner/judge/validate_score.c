// SPDX-License-Identifier: Apache-2.0
// The rules of scoring, from a row's own words; docs/validation.md §rules.
#include "judge/validate_row.h"

#include "base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CARD_LIMIT 0.95 // readings above this share of the card measure the allocator's pressure

static bool has(const char *text, const char *part) {
    return text != NULL && strcasestr(text, part) != NULL;
}

static bool is_none(const char *text) {
    return text == NULL || strcmp(text, "none") == 0;
}

struct rule {
    const char *words[2]; // all of them
    const char *id;
};

static const char *gpu_of(const char *text) {
    static const struct rule rules[] = {
        {{"gb300", NULL}, NULL},
        {{"gb200", NULL}, "gb200-186gb"},
        {{"b200", NULL}, "b200-sxm-180gb"},
        {{"gh200", NULL}, "gh200-96gb"},
        {{"h200", NULL}, "h200-sxm-141gb"},
        {{"h100", "pcie"}, "h100-pcie-80gb"},
        {{"h100", "96gb"}, "h100-hbm2e-96gb-500w"},
        {{"h100", NULL}, "h100-sxm5-80gb"},
        {{"a100", "pcie"}, "a100-pcie-80gb"},
        {{"a100", "40gb"}, "a100-sxm4-40gb"},
        {{"a100", NULL}, "a100-sxm4-80gb"},
        {{"v100", "sxm3"}, "v100-sxm3-32gb"},
        {{"v100", "16gb"}, "v100-sxm2-16gb"},
        {{"v100", NULL}, "v100-sxm2-32gb"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const char *second = rules[i].words[1];
        if (has(text, rules[i].words[0]) && (second == NULL || has(text, second))) {
            return rules[i].id;
        }
    }
    return NULL;
}

static const char *stack_of(const struct run_row *r) {
    if (has(r->framework, "megatron-deepspeed")) {
        return "deepspeed";
    }
    if (has(r->framework, "megatron")) {
        return "megatron";
    }
    if (has(r->framework, "fsdp2") || has(r->framework, "fully_shard")) {
        return "fsdp2";
    }
    if (has(r->strategy, "zero")) {
        return "deepspeed";
    }
    if (has(r->strategy, "fsdp") || has(r->strategy, "hsdp")) {
        return "fsdp1";
    }
    return has(r->strategy, "single") ? "single" : "ddp";
}

static enum score_group group_of(const struct run_row *r) {
    if (r->tp > 1 || r->pp > 1 || r->cp > 1 || r->ep > 1) {
        return SCORE_MIXED;
    }
    return r->float8 ? SCORE_FLOAT8 : SCORE_DATA_PARALLEL;
}

// "8x200 Gb/s HDR IB per node", "3.2 Tb/s per node", "400 Gb/s per GPU": the node's total.
static double stated_node_rate(const struct run_row *r) {
    const char *s = r->interconnect_inter;
    const char *unit = s != NULL ? strstr(s, "b/s") : NULL;
    if (unit == NULL || unit - s < 2) {
        return 0.0;
    }
    const double scale = unit[-1] == 'T' ? UNITS_TERA : UNITS_GIGA;
    char *end = NULL;
    double v = strtod(s, &end);
    if (end == s) {
        return 0.0;
    }
    if (*end == 'x') {
        v *= strtod(end + 1, NULL);
    }
    if (strstr(s, "per GPU") != NULL) {
        v *= r->gpus_per_node > 0 ? (double)r->gpus_per_node : 8.0;
    }
    return v * scale / 8.0;
}

static double assumed_node_rate(const char *gpu_id) {
    const double gbit = UNITS_GIGA / 8.0;
    if (gpu_id == NULL) {
        return 0.0;
    }
    if (strncmp(gpu_id, "v100-sxm2", 9) == 0) {
        return 400 * gbit;
    }
    return (strncmp(gpu_id, "v100", 4) == 0 || strncmp(gpu_id, "a100", 4) == 0 ? 1600 : 3200) *
           gbit;
}

static void network_of(const struct run_row *r, struct run_score *s) {
    const uint64_t node = r->gpus_per_node > 0 ? r->gpus_per_node : 8;
    if (r->gpus <= node) {
        s->network_note = "single node";
        return;
    }
    s->node_bytes_per_s = stated_node_rate(r);
    s->network_provenance = "stated";
    s->network_note = r->interconnect_inter;
    if (s->node_bytes_per_s <= 0) {
        s->node_bytes_per_s = assumed_node_rate(s->gpu_id);
        s->network_provenance = "assumed";
        s->network_note = "one NIC per GPU at the DGX rate of that GPU";
    }
}

// Matmul parameters of the stated architecture, head in and look-up out.
static double matmul_parameters(const struct run_model *m) {
    const double h = (double)m->hidden,
                 d = m->head_dim > 0 ? (double)m->head_dim : h / (double)m->heads;
    const double kv = (double)(m->kv_heads > 0 ? m->kv_heads : m->heads);
    const double attention = 2.0 * h * d * ((double)m->heads + kv);
    const double mlp = (m->gated_mlp ? 3.0 : 2.0) * h * (double)m->ffn;
    return (double)m->layers * (attention + mlp) + (double)m->vocab * h;
}

// FLOPs per token by the row's own counting rule.
static double counted_flop(const struct run_row *r) {
    const struct run_model *m = &r->model;
    const double width = m->head_dim > 0 ? (double)(m->head_dim * m->heads) : (double)m->hidden;
    const double attention = 12.0 * (double)m->layers * width * (double)r->seq;
    const bool causal =
        has(r->measured.flop_counting, "causal") && !has(r->measured.flop_counting, "non-causal");
    const bool again =
        has(r->measured.flop_counting, "recompute counted") || has(r->measured.flop_counting, "8P");
    const double once = 6.0 * matmul_parameters(m) + attention * (causal ? 0.5 : 1.0);
    return again ? once * 4.0 / 3.0 : once;
}

static void step_of(const struct run_row *r, struct run_score *s) {
    const struct run_measured *m = &r->measured;
    const double ways = (double)(r->tp * r->pp * r->cp);
    const double tokens =
        (double)r->micro_batch * (double)r->grad_accum * (double)r->seq; // one dp rank
    const double ranks = (double)r->gpus / ways;
    s->step_s = NAN;
    if (isfinite(m->step_s)) {
        s->step_s = m->step_s;
        s->step_basis = "printed";
    } else if (isfinite(m->step_derived_s)) {
        s->step_s = m->step_derived_s;
        s->step_basis = "derived from printed throughput";
    } else if (tokens > 0 && isfinite(m->tokens_per_s)) {
        s->step_s = tokens * ranks / m->tokens_per_s;
        s->step_basis = "derived from printed throughput";
    } else if (tokens > 0 && isfinite(m->samples_per_s)) {
        s->step_s = tokens / (double)r->seq * ranks / m->samples_per_s;
        s->step_basis = "derived from printed throughput";
    } else if (tokens > 0 && isfinite(m->tokens_per_s_per_gpu)) {
        s->step_s = tokens / (m->tokens_per_s_per_gpu * ways);
        s->step_basis = "derived from tokens/s/GPU";
    } else if (tokens > 0 && isfinite(m->flop_per_s_per_gpu) && r->model.heads > 0) {
        s->step_s = counted_flop(r) * tokens / ways / m->flop_per_s_per_gpu;
        s->step_basis = "derived from TFLOPS by the row's counting rule";
    }
}

static const char *add_reason(struct arena *a, const char *so_far, const char *reason) {
    return so_far != NULL ? arena_printf(a, "%s; %s", so_far, reason) : reason;
}

static const char *missing_of(const struct run_row *r, const struct run_score *s, struct arena *a) {
    const struct {
        const char *name;
        bool missing;
    } needed[] = {
        {"layers", r->model.layers == 0},
        {"hidden", r->model.hidden == 0},
        {"vocab", r->model.vocab == 0},
        {"seq_len", r->seq == 0},
        {"micro_batch", r->micro_batch == 0},
        {"recompute", r->recompute == NULL || has(r->recompute, "not stated")},
        {"gpu", s->gpu_id == NULL},
    };
    const char *list = NULL;
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (needed[i].missing) {
            list = list != NULL ? arena_printf(a, "%s, %s", list, needed[i].name) : needed[i].name;
        }
    }
    return list != NULL ? arena_printf(a, "not stated: %s", list) : NULL;
}

static enum memory_reading reading_of(const char *kind) {
    if (kind == NULL || has(kind, "not stated")) {
        return READING_NONE;
    }
    if (has(kind, "nvidia-smi")) {
        return READING_NVIDIA_SMI;
    }
    if (has(kind, "reserved")) {
        return READING_RESERVED;
    }
    return has(kind, "allocated") ? READING_ALLOCATED : READING_NONE;
}

// "...-80gb": the card's nominal size.
static double card_gib(const char *gpu_id) {
    const char *at = gpu_id != NULL ? strstr(gpu_id, "gb") : NULL;
    for (at = gpu_id; at != NULL && *at != '\0'; at++) {
        char *end = NULL;
        if (isdigit((unsigned char)*at) && (at == gpu_id || at[-1] == '-')) {
            const double v = strtod(at, &end);
            if (strncmp(end, "gb", 2) == 0) {
                return v;
            }
        }
    }
    return INFINITY;
}

static void eligibility(const struct run_row *r, struct run_score *s, struct arena *a) {
    const char *common = NULL;
    if (r->tier == NULL || strcmp(r->tier, "core") != 0) {
        common = arena_printf(a, "tier %s", r->tier != NULL ? r->tier : "not stated");
    }
    const char *missing = missing_of(r, s, a);
    if (missing != NULL) {
        common = add_reason(a, common, missing);
    }
    s->time_reason = s->memory_reason = common;
    if (!is_none(r->offload_activations)) {
        s->time_reason = add_reason(a, s->time_reason, "activation offload");
    }
    if (has(r->gpu, "power-limited")) {
        s->time_reason = add_reason(a, s->time_reason, "power-limited part");
    }
    if (!isfinite(s->step_s)) {
        s->time_reason = add_reason(a, s->time_reason, "no step time can be derived");
    }
    if (!isfinite(s->memory_gib)) {
        s->memory_reason = add_reason(a, s->memory_reason, "no memory figure");
    } else if (s->memory_reading == READING_NONE) {
        s->memory_reason = add_reason(a, s->memory_reason, "kind of memory figure not stated");
    } else if (s->memory_gib > CARD_LIMIT * card_gib(s->gpu_id)) {
        s->memory_reason = add_reason(
            a, s->memory_reason, "reading at the card's limit (over 95 %): allocator pressure");
    }
    s->time_scored = s->time_reason == NULL;
    s->memory_scored = s->memory_reason == NULL;
}

void validate_row_score(struct run_row *row, struct arena *a) {
    struct run_score s = {0};
    s.gpu_id = gpu_of(row->gpu);
    s.stack = stack_of(row);
    s.group = group_of(row);
    s.memory_gib = row->measured.memory_gib;
    s.memory_reading = reading_of(row->measured.memory_kind);
    network_of(row, &s);
    step_of(row, &s);
    eligibility(row, &s, a);
    row->score = s;
}
