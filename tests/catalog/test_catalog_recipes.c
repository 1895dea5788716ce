// SPDX-License-Identifier: Apache-2.0
// The example configurations in models/recipes are read by their own readers, without a warning.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "describe/catalog.h"
#include "describe/recipe_config.h"

static const struct {
    const char *file;
    enum strategy strategy;
    enum offload optimizer, param;
} examples[] = {
    {"deepspeed-zero2.json", STRATEGY_ZERO2, OFFLOAD_NONE, OFFLOAD_NONE},
    {"deepspeed-zero3.json", STRATEGY_ZERO3, OFFLOAD_NONE, OFFLOAD_NONE},
    {"deepspeed-zero3-cpu-offload.json", STRATEGY_ZERO3, OFFLOAD_CPU, OFFLOAD_CPU},
    {"deepspeed-zero3-nvme-offload.json", STRATEGY_ZERO3, OFFLOAD_NVME, OFFLOAD_NONE},
    {"accelerate-fsdp2.yaml", STRATEGY_FSDP2, OFFLOAD_NONE, OFFLOAD_NONE},
    {"torchtitan-hsdp.toml", STRATEGY_HSDP, OFFLOAD_NONE, OFFLOAD_NONE},
};

static void examples_are_read(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        struct arena *a = arena_create();
        struct err e = {0};
        struct model m;
        struct recipe r;
        struct warnings w = {0};
        assert_true(model_load("llama-3-8b", a, &m, &e));
        struct config_context x = {.arena = a, .model = &m, .warnings = &w};
        const char *path = arena_printf(a, "%s/recipes/%s", catalog_dir(), examples[i].file);
        if (!recipe_read_config(path, &x, &r, &e))
            fail_msg("%s", e.text);
        for (size_t k = 0; k < w.count; k++)
            print_error("%s: %s\n", w.items[k].path, w.items[k].text);
        assert_int_equal(w.count, 0);
        assert_int_equal(r.strategy, examples[i].strategy);
        assert_int_equal(r.offload_optimizer, examples[i].optimizer);
        assert_int_equal(r.offload_param, examples[i].param);
        arena_destroy(a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
