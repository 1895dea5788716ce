// SPDX-License-Identifier: Apache-2.0
// Every recipe field that a user can set changes some output of some plan, or is listed here with
// the place where it does: a knob that nothing reads would be a lie (reported case C148).
#include "describe/recipe_fields.h"
#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

// Read outside a plan's memory, volume and time.
static const char *const elsewhere[][2] = {
    {"framework_version", "warns with the defaults that moved; check"},
    {"tokens", "days, GPU-hours and cost of sweep and advise"},
    {"tp_without_sequence_parallel", "validate's rows with tensor parallelism"},
    {"aio_block_bytes", "emit; the NVMe rates of the cluster are measured with it"},
    {"aio_queue_depth", "emit; the NVMe rates of the cluster are measured with it"},
    {"round_robin_gradients", "emit; moves copies within backward, no byte and no wait"},
    {"find_unused_parameters", "emit; the first iteration's buckets only"},
    {"static_graph", "emit; the first iteration's buckets only"},
    {"use_orig_params", "check: LoRA under FSDP1"},
    {"sync_module_states", "check: efficient loading under FSDP1"},
};

// Where a field may matter: settings put over a strategy's defaults.
static const char *const contexts[][4] = {
    {NULL},
    {"grad_accum=4", NULL},
    {"grad_accum=4", "no_sync=true", NULL},
    {"offload_optimizer=cpu", NULL},
    {"offload_optimizer=cpu", "grad_accum=4", NULL},
    {"offload_optimizer=cpu", "sub_group_elements=100000000", NULL},
    {"offload_optimizer=cpu", "sub_group_elements=100000000", "clip=0", NULL},
    {"offload_optimizer=cpu", "super_offload=true", NULL},
    {"offload_optimizer=nvme", "offload_param=nvme", NULL},
    {"offload_optimizer=nvme", "sub_group_elements=100000000", NULL},
    {"compile=true", NULL},
    {"offload_param=cpu", NULL},
    {"lora_rank=16", NULL},
    {"precision=bf16-pure", NULL},
    {"precision=fp32", NULL},
    {"recompute=every-N", "recompute_every=2", NULL},
    {"wrap=size", "wrap_parameters=1000000000", NULL},
    {"max_live_elements=100000000", NULL},
    {"prefetch_bucket_elements=0", NULL},
    {"overlap_comm=on", NULL},
    {"optimizer_fused=false", "optimizer_foreach=false", NULL},
};

static const char *const counts[] = {"0", "1", "2", "4", "1000000", "20000000", "700000000"};
static const char *const numbers[] = {"0", "0.25", "0.5", "1"};
static const char *const types[] = {"fp32", "bf16", "fp16"};
static const char *const switches[] = {"true", "false"};
static const char *const texts[] = {"q_proj"};

static const char *const *values_of(const struct recipe_field *f, size_t *count) {
    switch (f->type) {
    case FIELD_BOOL:
        *count = 2;
        return switches;
    case FIELD_COUNT:
    case FIELD_BYTES:
        *count = sizeof counts / sizeof counts[0];
        return counts;
    case FIELD_NUMBER:
        *count = sizeof numbers / sizeof numbers[0];
        return numbers;
    case FIELD_TEXT:
        *count = 1;
        return texts;
    case FIELD_CHOICE:
        *count = f->name_count;
        return f->names;
    case FIELD_DTYPE:
        *count = sizeof types / sizeof types[0];
        return types;
    }
    return NULL;
}

struct bench {
    struct model model;
    struct cluster cluster;
    struct arena *a;
};

static bool evaluate(const struct bench *b, const struct recipe *r, struct plan *out) {
    struct err e = {0};
    return plan_evaluate(&b->model, &b->cluster, r, PLAN_TIME_ALWAYS, b->a, out, &e);
}

static bool differ(const struct plan *x, const struct plan *y) {
    const struct step_time *s = &x->time, *t = &y->time;
    if ((x->reason == NULL) != (y->reason == NULL))
        return true; // a refusal is an answer
    if (x->reason)
        return strcmp(x->reason, y->reason) != 0;
    return memcmp(&x->memory, &y->memory, sizeof x->memory) != 0 || s->step_s != t->step_s ||
           x->volume.sent_bytes_per_gpu != y->volume.sent_bytes_per_gpu ||
           x->volume.h2d_bytes != y->volume.h2d_bytes || x->fits != y->fits;
}

static bool context_recipe(const struct bench *b, enum strategy s, size_t i, struct recipe *r) {
    struct err e = {0};
    recipe_defaults(s, r);
    r->reshard_group = s == STRATEGY_FSDP2_RESHARD ? 4 : 0;
    for (size_t k = 0; k < 4 && contexts[i][k]; k++) {
        const char *eq = strchr(contexts[i][k], '=');
        const char *name = arena_printf(b->a, "%.*s", (int)(eq - contexts[i][k]), contexts[i][k]);
        if (!recipe_field_set(r, name, eq + 1, b->a, &e))
            fail_msg("%s", e.text);
    }
    return true;
}

static bool matters_in(const struct bench *b, const struct recipe_field *f,
                       const struct recipe *base, const struct plan *before) {
    size_t count = 0;
    const char *const *values = values_of(f, &count);
    for (size_t v = 0; v < count; v++) {
        struct recipe r = *base;
        struct plan after;
        struct err e = {0};
        if (!recipe_field_set(&r, f->name, values[v], b->a, &e))
            continue;
        if (evaluate(b, &r, &after) && differ(before, &after))
            return true;
    }
    return false;
}

static bool exempt(const char *name) {
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++)
        if (strcmp(elsewhere[i][0], name) == 0)
            return true;
    return false;
}

// Fields of this context that no context before it showed.
static size_t try_context(struct bench *b, enum strategy s, size_t context, bool *matters) {
    struct recipe base;
    struct plan before;
    size_t left = 0;
    bool runs = context_recipe(b, s, context, &base) && evaluate(b, &base, &before) &&
                before.reason == NULL;
    for (size_t k = 0; k < recipe_field_count; k++) {
        if (!matters[k] && runs)
            matters[k] = matters_in(b, &recipe_fields[k], &base, &before);
        left += !matters[k];
    }
    return left;
}

static void test_every_field_matters(void **state) {
    (void)state;
    bool matters[256] = {false};
    struct bench b = {0};
    struct arena *a = arena_create();
    struct err e = {0};
    size_t left = 1;
    assert_true(recipe_field_count <= sizeof matters / sizeof matters[0]);
    if (!model_load("llama-3.2-3b", a, &b.model, &e) ||
        !cluster_load("dgx-h100", a, &b.cluster, &e) || !cluster_resize(&b.cluster, 2, 0, &e))
        fail_msg("%s", e.text);
    for (size_t k = 0; k < recipe_field_count; k++)
        matters[k] = recipe_fields[k].derived || exempt(recipe_fields[k].name);
    for (size_t i = 0; left > 0 && i < sizeof contexts / sizeof contexts[0]; i++)
        for (int s = 0; left > 0 && s < STRATEGY_COUNT; s++) {
            b.a = arena_create();
            left = try_context(&b, (enum strategy)s, i, matters);
            arena_destroy(b.a);
        }
    for (size_t k = 0; k < recipe_field_count; k++)
        if (!matters[k])
            print_message("recipe.%s changes nothing\n", recipe_fields[k].name);
    arena_destroy(a);
    assert_int_equal(left, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_field_matters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
