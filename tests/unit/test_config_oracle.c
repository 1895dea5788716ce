// SPDX-License-Identifier: Apache-2.0
// The readers against what DeepSpeed and accelerate themselves make of the same configurations:
// tests/oracle/configs.json, written by tests/oracle/configs.py with the versions it names.
#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "config_reading.h"

static const char *text_in(struct json_node o, const char *key) {
    const char *s = NULL;
    struct err e = {0};
    if (!json_get_string(o, key, false, &s, &e))
        fail_msg("%s", e.text);
    return s;
}

static const char *yes(bool b) {
    return b ? "true" : "false";
}

// The frameworks' own words, where they are no recipe field.
static const char *framework_value(struct reading *x, const char *name) {
    static const char *const sharding[STRATEGY_COUNT] = {
        [STRATEGY_FSDP1] = "FULL_SHARD",
        [STRATEGY_FSDP1_GRAD_OP] = "SHARD_GRAD_OP",
        [STRATEGY_FSDP1_NOSHARD] = "NO_SHARD",
        [STRATEGY_FSDP1_HYBRID] = "HYBRID_SHARD",
    };
    static const char *const prefetch[] = {"BACKWARD_PRE", "BACKWARD_POST", "NO"};
    const struct recipe *r = &x->r;
    if (strcmp(name, "stage") == 0)
        return recipe_is_stage3(r)             ? "3"
               : r->strategy == STRATEGY_ZERO2 ? "2"
               : r->strategy == STRATEGY_ZERO1 ? "1"
                                               : "0";
    if (strcmp(name, "bf16") == 0)
        return yes(r->precision == PRECISION_BF16_MIXED || r->precision == PRECISION_BF16_PURE);
    if (strcmp(name, "fp16") == 0)
        return yes(r->precision == PRECISION_FP16_MIXED);
    if (strcmp(name, "overlap_comm") == 0)
        return yes(recipe_overlaps(r));
    if (strcmp(name, "ddp") == 0)
        return yes(r->strategy == STRATEGY_DDP);
    if (strcmp(name, "fsdp_version") == 0)
        return recipe_is_fsdp2(r) ? "2" : "1";
    if (strcmp(name, "cpu_offload") == 0)
        return yes(r->offload_param == OFFLOAD_CPU);
    if (strcmp(name, "activation_checkpointing") == 0)
        return yes(r->recompute == RECOMPUTE_FULL);
    if (strcmp(name, "wrapped") == 0)
        return yes(r->wrap != WRAP_MODEL);
    if (strcmp(name, "reshard") == 0)
        return yes(r->strategy == STRATEGY_FSDP2);
    if (strcmp(name, "sharding_strategy") == 0)
        return sharding[r->strategy];
    if (strcmp(name, "backward_prefetch") == 0)
        return prefetch[r->backward_prefetch];
    return field(x, name);
}

// Below stage 3 the planner drops offload that DeepSpeed parses and then ignores.
static bool dropped(const struct reading *x, const char *name, const char *want) {
    return strcmp(name, "offload_param") == 0 && strcmp(want, "none") != 0 &&
           !recipe_is_stage3(&x->r);
}

static size_t compare(struct reading *x, struct json_node values, const char *name) {
    size_t bad = 0;
    for (size_t i = 0; i < json_size(values); i++) {
        const char *key = json_key(json_at(values, i)), *want = text_in(values, key);
        const char *got = framework_value(x, key);
        if (strcmp(got, want) == 0 || dropped(x, key, want) || strcmp(want, "None") == 0)
            continue;
        print_message("%s: %s is %s, the framework says %s\n", name, key, got, want);
        bad++;
    }
    return bad;
}

static size_t run_case(struct json_node c) {
    struct json_node config, values;
    const char *name = text_in(c, "name"), *refused = text_in(c, "refused");
    char *json = json_find(c, "deepspeed", &config) ? cJSON_Print(config.item) : NULL;
    struct reading x = read_text(json ? json : text_in(c, "accelerate"), false);
    size_t bad = 0;
    free(json);
    if (x.ok == (refused != NULL)) {
        print_message("%s: %s, the framework: %s\n", name, x.ok ? "read" : x.e.text,
                      refused ? refused : "accepts it");
        bad = 1;
    } else if (x.ok && json_find(c, "values", &values)) {
        bad = compare(&x, values, name);
    }
    arena_destroy(x.a);
    return bad;
}

static void test_readers_agree_with_the_frameworks(void **state) {
    (void)state;
    char path[4096];
    struct err e = {0};
    struct json_node cases;
    size_t bad = 0;
    snprintf(path, sizeof path, "%s/tests/oracle/configs.json", getenv("SHARDPLAN_SOURCE_ROOT"));
    struct json_doc *doc = json_read_file(path, &e);
    if (doc == NULL)
        fail_msg("%s", e.text);
    assert_true(json_find(json_root(doc), "cases", &cases) && json_size(cases) >= 50);
    for (size_t i = 0; i < json_size(cases); i++)
        bad += run_case(json_at(cases, i));
    json_destroy(doc);
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_readers_agree_with_the_frameworks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
