// SPDX-License-Identifier: Apache-2.0
// Reported user cases as a table: tests/cases/plan_cases.json. Every clause that memory and volume
// can answer from what the report states is a run with checks; the others are listed with a reason.
#include "base/json.h"
#include "cost/activation.h"
#include "cost/memory_parts.h"
#include "cost/volume.h"
#include "describe/recipe_fields.h"
#include "memory_case.h"

#include <stdlib.h>

struct setting { // one run
    struct model model;
    struct cluster cluster;
    struct recipe recipe;
    struct memory memory;
    struct volume volume;
    struct memory_parts parts;
};

static struct arena *arena;
static const char *where; // case id, for messages

static void need(bool ok, const struct err *e) {
    if (!ok)
        fail_msg("%s: %s", where, e->text);
}

static const char *text(struct json_node o, const char *key) {
    const char *s = NULL;
    struct err e = {0};
    need(json_get_string(o, key, true, &s, &e), &e);
    return s;
}

static uint64_t count(struct json_node o, const char *key, uint64_t otherwise) {
    struct json_node n;
    uint64_t v = otherwise;
    struct err e = {0};
    if (json_find(o, key, &n))
        need(json_as_u64(n, &v, &e), &e);
    return v;
}

// `layers` equal matrices that hold `parameters` together.
static struct model equal_matrices(struct json_node o) {
    uint64_t layers = count(o, "layers", 1);
    struct model m = bulk_model((double)count(o, "parameters", 0) / (double)layers, arena);
    struct model_unit *u = arena_array(arena, 1, sizeof *u);
    *u = m.units[0];
    u->repeat = layers;
    m.units = u;
    m.layers = layers;
    m.parameters *= layers;
    m.matmul_parameters = m.parameters;
    m.heads = m.kv_heads = 8;
    m.head_dim = 128;
    return m;
}

static struct model shaped(struct json_node o) {
    struct model m = {.name = "shaped"};
    struct err e = {0};
    need(model_architecture(&m, text(o, "arch"), &e), &e);
    m.layers = count(o, "layers", 1);
    m.hidden = count(o, "hidden", 0);
    m.heads = count(o, "heads", 1);
    m.kv_heads = count(o, "kv_heads", m.heads);
    m.ffn = count(o, "ffn", 0);
    m.vocab = count(o, "vocab", 0);
    m.max_positions = count(o, "positions", 0);
    need(model_finish(&m, arena, &e), &e);
    return m;
}

static struct model read_model(struct json_node run) {
    struct json_node n;
    struct model m;
    struct err e = {0};
    assert_true(json_find(run, "model", &n));
    if (json_is_object(n)) {
        struct json_node arch;
        return json_find(n, "arch", &arch) ? shaped(n) : equal_matrices(n);
    }
    need(model_load(text(run, "model"), arena, &m, &e), &e);
    return m;
}

static struct cluster read_cluster(struct json_node run) {
    struct json_node n;
    struct err e = {0};
    double host = json_find(run, "host_gb", &n) ? (double)count(run, "host_gb", 0) * GB : 0;
    struct cluster c =
        plain_cluster(count(run, "gpus", 1), count(run, "gpus_per_node", 8), 80 * GIB, host);
    if (json_find(run, "gpu", &n))
        need(gpu_load(text(run, "gpu"), arena, &c.gpu, &e), &e);
    c.nics_per_node = 1;
    return c;
}

static void read_recipe(struct json_node run, struct setting *s) {
    struct err e = {0};
    struct json_node fields;
    enum strategy strategy;
    uint64_t group = 0, tp = 1;
    need(recipe_strategy_parse(text(run, "strategy"), &strategy, &group, &e), &e);
    s->recipe = short_recipe(strategy, PRECISION_BF16_MIXED);
    s->recipe.seq = s->model.max_positions && s->model.max_positions < 4096 ? 0 : 1;
    if (json_find(run, "recipe", &fields))
        for (size_t i = 0; i < json_size(fields); i++) {
            const char *key = json_key(json_at(fields, i)), *value = text(fields, key);
            if (strcmp(key, "tp") == 0)
                tp = strtoull(value, NULL, 10);
            else
                need(recipe_field_set(&s->recipe, key, value, arena, &e), &e);
        }
    need(recipe_resolve(&s->recipe, &s->model, &s->cluster, &e), &e);
    s->recipe.tp = tp;
}

static void evaluate(struct json_node run, struct setting *s) {
    struct err e = {0};
    s->model = read_model(run);
    s->cluster = read_cluster(run);
    read_recipe(run, s);
    need(memory_estimate(&s->model, &s->cluster, &s->recipe, &s->memory, &e), &e);
    need(volume_estimate(&s->model, &s->cluster, &s->recipe, &s->volume, &e), &e);
    s->parts =
        (struct memory_parts){.model = &s->model, .cluster = &s->cluster, .recipe = &s->recipe};
    need(memory_sizes_fill(&s->parts, &e), &e);
}

// ---- quantities ---------------------------------------------------------------------------------

static bool phase_quantity(const struct setting *s, const char *name, double *out) {
    char phase[32] = "";
    const char *rest = strchr(name, '.');
    if (!rest || (size_t)(rest - name) >= sizeof phase)
        return false;
    memcpy(phase, name, (size_t)(rest - name));
    int p = kinds_find(memory_phase_names, PHASE_COUNT, phase);
    if (p < 0)
        return false;
    const struct memory_phase_bytes *f = &s->memory.phases[p];
    if (strcmp(++rest, "host_gib") == 0)
        *out = (double)f->host_bytes / GIB;
    else if (strcmp(rest, "host_load_gib") == 0)
        *out = (double)f->host_classes_bytes[HOST_LOAD] / GIB;
    else if (strcmp(rest, "gib") == 0)
        *out = (double)f->allocated_bytes / GIB;
    else {
        char class[32] = "";
        size_t n = strlen(rest);
        if (n < 5 || n >= sizeof class || strcmp(rest + n - 4, "_gib") != 0)
            return false;
        memcpy(class, rest, n - 4);
        int k = kinds_find(memory_class_names, MEMORY_CLASS_COUNT, class);
        if (k < 0)
            return false;
        *out = (double)f->classes_bytes[k] / GIB;
    }
    return true;
}

static double backward_bucket_term(const struct setting *s) {
    double flat = fmin((double)s->recipe.reduce_bucket_elements, (double)s->model.parameters);
    double cast =
        s->recipe.offload_optimizer != OFFLOAD_NONE ? s->parts.sizes.largest_parameter : 0;
    return (double)s->memory.phases[PHASE_BACKWARD].classes_bytes[MEMORY_BUCKET] - 2 * flat -
           2 * cast;
}

static double transfers(const struct setting *s, const char *phase, enum collective k, bool inter) {
    double sum = 0;
    for (size_t i = 0; i < s->volume.transfer_count; i++) {
        const struct transfer *t = &s->volume.transfers[i];
        if (t->kind == TRANSFER_COLLECTIVE && t->collective == k && strcmp(t->phase, phase) == 0 &&
            t->payload_bytes > 1000)
            sum += inter ? t->inter_node_bytes : t->payload_bytes;
    }
    return sum;
}

static bool volume_quantity(const struct setting *s, const char *name, double *out) {
    const struct volume *v = &s->volume;
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"volume.inter_gb", v->inter_node_bytes_per_gpu / GB},
        {"volume.inter_over_sent", v->inter_node_bytes_per_gpu / v->sent_bytes_per_gpu},
        {"volume.nvme_read_gb", v->nvme_read_bytes / GB},
        {"volume.nvme_write_gb", v->nvme_write_bytes / GB},
        {"volume.backward_inter_gather_gb",
         transfers(s, "backward", COLLECTIVE_ALL_GATHER, true) / GB},
        {"volume.all_reduce_payload_gb",
         transfers(s, "backward", COLLECTIVE_ALL_REDUCE, false) / GB},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(name, rows[i].name) == 0) {
            *out = rows[i].value;
            return true;
        }
    return false;
}

static bool memory_quantity(const struct setting *s, const char *name, double *out) {
    const struct memory *m = &s->memory;
    const struct memory_sizes *z = &s->parts.sizes;
    const uint64_t *c = m->classes_bytes;
    double psi = (double)s->model.parameters, steady = (double)m->steady_bytes;
    double owned_node = z->owned * (double)memory_local_ranks(&s->cluster, &s->recipe);
    double step = (double)m->phases[PHASE_STEP].allocated_bytes;
    double resume = (double)m->phases[PHASE_RESUME].host_classes_bytes[HOST_LOAD];
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"steady_gib", steady / GIB},
        {"allocated_peak_gib", (double)m->allocated_peak_bytes / GIB},
        {"allocated_peak_gb", (double)m->allocated_peak_bytes / GB},
        {"reserved_gib", (double)m->reserved_bytes / GIB},
        {"params_gib", (double)c[MEMORY_PARAMS] / GIB},
        {"grads_gib", (double)c[MEMORY_GRADS] / GIB},
        {"params_and_grads_gib", (double)(c[MEMORY_PARAMS] + c[MEMORY_GRADS]) / GIB},
        {"activations_gib", (double)c[MEMORY_ACTIVATIONS] / GIB},
        {"bucket_gib", (double)c[MEMORY_BUCKET] / GIB},
        {"bucket_term_mib", backward_bucket_term(s) / (1024 * 1024)},
        {"bucket_term_gib", backward_bucket_term(s) / GIB},
        {"logits_gib", (double)c[MEMORY_LOGITS] / GIB},
        {"logits_gb", (double)c[MEMORY_LOGITS] / GB},
        {"logits_over_three_gib", (double)c[MEMORY_LOGITS] / 3 / GIB},
        {"host_gib", (double)m->host_bytes / GIB},
        {"host_base_gib", (double)(m->host_bytes - m->pinned_rounding_bytes) / GIB},
        {"pinned_over_two_gib", (double)m->pinned_bytes / 2 / GIB},
        {"nvme_gb", (double)m->nvme_bytes / GB},
        {"shard_degree", z->shard_degree},
        {"steady_bytes_per_parameter", steady / psi},
        {"grads_bytes_per_parameter", (double)c[MEMORY_GRADS] / psi},
        {"steady_over_fp32_parameters", steady / (4 * psi)},
        {"step_transient_bytes_per_owned_parameter", (double)c[MEMORY_STEP_TRANSIENT] / z->owned},
        {"gather_over_parameters", (double)c[MEMORY_GATHER] / (2 * psi)},
        {"hpz_gib", (double)m->phases[PHASE_STEP].classes_bytes[MEMORY_GATHER] / GIB},
        {"host_staging_bytes_per_owned_parameter",
         (double)m->host_classes_bytes[HOST_STAGING] / owned_node},
        {"resume_host_bytes_per_parameter", resume / psi},
        {"phase.step_over_params", step / (double)c[MEMORY_PARAMS]},
        {"resume_over_steady", (double)m->phases[PHASE_RESUME].allocated_bytes /
                                   (double)m->phases[PHASE_SAVE].allocated_bytes},
        {"phase.load_over_steady", (double)m->phases[PHASE_LOAD].allocated_bytes / steady},
        {"activation_and_states_gb_per_layer",
         ((double)m->activation_layer_bytes + 16 * z->block / z->shard_degree) / GB},
        {"min_gpus", (double)memory_min_gpus(&s->model, &s->cluster, &s->recipe, 4096)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(name, rows[i].name) == 0) {
            *out = rows[i].value;
            return true;
        }
    return false;
}

static double quantity(const struct setting *s, const char *name) {
    double v = NAN;
    if (memory_quantity(s, name, &v) || volume_quantity(s, name, &v))
        return v;
    if (strncmp(name, "phase.", 6) == 0 && phase_quantity(s, name + 6, &v))
        return v;
    fail_msg("%s: unknown quantity %s", where, name);
    return v;
}

// ---- checks -------------------------------------------------------------------------------------

static void check_range(const struct setting *s, struct json_node check) {
    const char *name = text(check, "quantity");
    double v = quantity(s, name), bound;
    struct json_node n;
    struct err e = {0};
    if (json_find(check, "min", &n)) {
        need(json_as_double(n, &bound, &e), &e);
        if (!(v >= bound))
            fail_msg("%s: %s is %.6g, expected at least %.6g", where, name, v, bound);
    }
    if (json_find(check, "max", &n)) {
        need(json_as_double(n, &bound, &e), &e);
        if (!(v <= bound))
            fail_msg("%s: %s is %.6g, expected at most %.6g", where, name, v, bound);
    }
}

static void check_fits(const struct setting *s, struct json_node allowed) {
    const char *got = fits_state_names[s->memory.fits_state];
    for (size_t i = 0; i < json_size(allowed); i++)
        if (strcmp(json_at(allowed, i).item->valuestring, got) == 0)
            return;
    fail_msg("%s: fits is %s: peak %.2f GiB, reserved to %.2f GiB, capacity %.2f GiB", where, got,
             (double)s->memory.allocated_peak_bytes / GIB,
             (double)s->memory.reserved_high_bytes / GIB, (double)s->memory.capacity_bytes / GIB);
}

static void check(const struct setting *s, struct json_node c) {
    struct json_node n;
    bool expected = false;
    struct err e = {0};
    if (json_find(c, "quantity", &n)) {
        check_range(s, c);
    } else if (json_find(c, "fits", &n)) {
        check_fits(s, n);
    } else if (json_find(c, "phase_misfit", &n)) {
        int p = kinds_find(memory_phase_names, PHASE_COUNT, text(c, "phase_misfit"));
        assert_true(p >= 0);
        if (s->memory.phase_fits[p])
            fail_msg("%s: phase %s fits", where, memory_phase_names[p]);
    } else {
        need(json_get_bool(c, "host_fits", true, &expected, &e), &e);
        if (s->memory.host_fits != expected)
            fail_msg("%s: host_fits is %d", where, s->memory.host_fits);
    }
}

static void every_case(void **state) {
    (void)state;
    char path[4096];
    struct err e = {0};
    struct json_node cases, runs, checks;
    snprintf(path, sizeof path, "%s/tests/cases/plan_cases.json", getenv("SHARDPLAN_SOURCE_ROOT"));
    struct json_doc *doc = json_read_file(path, &e);
    where = path;
    need(doc != NULL, &e);
    assert_true(json_find(json_root(doc), "cases", &cases));
    assert_true(json_size(cases) >= 45);
    for (size_t i = 0; i < json_size(cases); i++) {
        where = text(json_at(cases, i), "id");
        assert_true(json_find(json_at(cases, i), "runs", &runs) && json_size(runs) > 0);
        for (size_t k = 0; k < json_size(runs); k++) {
            struct setting s;
            evaluate(json_at(runs, k), &s);
            assert_true(json_find(json_at(runs, k), "checks", &checks) && json_size(checks) > 0);
            for (size_t j = 0; j < json_size(checks); j++)
                check(&s, json_at(checks, j));
        }
    }
    json_destroy(doc);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_case)};
    arena = arena_create();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_destroy(arena);
    return failed;
}
