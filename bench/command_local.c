// SPDX-License-Identifier: Apache-2.0
// Commands that need no other rank: copies, the CPU optimizer.
#include <string.h>

#include "base/units.h"
#include "bench/commands.h"
#include "bench/inventory.h"
#include "bench/words.h"
#include "kernels/adam.h"

static uint64_t threads_of(const struct run *r) {
    return r->options->threads ? r->options->threads : (uint64_t)inventory_processors();
}

static void add_copy(struct run *r, struct point_list *list, const char *direction,
                     uint64_t threads) {
    struct bench_point p = {
        .kind = "copy",
        .direction = direction,
        .payload_bytes = r->options->bytes,
        .threads = threads,
    };
    run_add_point(r, list, &p);
}

bool command_copy(struct run *r, const struct opt_texts *rest, struct err *e) {
    static const char *const names[] = {"cuda", "host", NULL};
    static const char *const on_gpus[] = {"h2d", "d2h", "bidirectional", "d2d", "p2p", NULL};
    static const char *const on_host[] = {"h2h", NULL};
    static const char *const all[] = {"h2d", "d2h", "bidirectional", "d2d", "p2p", "h2h", NULL};
    struct point_list list = {0};
    (void)rest;
    struct opt_texts wanted = r->options->directions;
    for (size_t i = 0; i < wanted.count; i++)
        if (!words_check("--direction", wanted.items[i], all, e))
            return false;
    const struct backend *b = command_backend(r, names, e);
    if (b == NULL)
        return false;
    bool gpu = strcmp(b->name, "host") != 0;
    const char *const *usual = gpu ? on_gpus : on_host;
    for (size_t i = 0; wanted.count > 0 ? i < wanted.count : usual[i] != NULL; i++) {
        const char *direction = wanted.count > 0 ? wanted.items[i] : usual[i];
        if (!gpu && strcmp(direction, "h2h") != 0)
            return err_set(e, ERR_RESOURCE, "copies \"%s\" need the cuda backend", direction);
        if (gpu) {
            command_add_gpu_copies(r, &list, direction);
        } else if (r->options->threads > 0) {
            add_copy(r, &list, direction, r->options->threads);
        } else {
            add_copy(r, &list, direction, 1);
            if (threads_of(r) > 1)
                add_copy(r, &list, direction, threads_of(r));
        }
    }
    return run_points(r, b, &list, e);
}

static void add_adam(struct run *r, struct point_list *list, const char *kind, const char *variant,
                     enum dtype dtype) {
    const uint64_t grain = UNITS_MIB, bytes_each = 28;
    uint64_t n = r->options->parameters;
    if (n == 0)
        n = units_ceil_to(4 * inventory_last_level_cache_bytes() / bytes_each, grain);
    uint64_t each = strcmp(variant, "triad") == 0 ? 16 : dtype == DTYPE_BF16 ? 30 : 28;
    struct bench_point p = {
        .kind = kind,
        .algorithm = variant,
        .dtype = dtype,
        .n = n,
        .payload_bytes = n * each,
        .threads = threads_of(r),
    };
    run_add_point(r, list, &p);
}

bool command_adam(struct run *r, const struct opt_texts *rest, struct err *e) {
    struct point_list list = {0};
    const struct options *o = r->options;
    (void)rest;
    static const char *const known[] = {"reference", "scalar", "avx2", "avx512", NULL};
    const char *best[] = {adam_best()->name};
    struct opt_texts variants = o->variants;
    if (variants.count == 0)
        variants = (struct opt_texts){.items = best, .count = 1};
    for (size_t i = 0; i < variants.count; i++) {
        if (!words_check("--variant", variants.items[i], known, e))
            return false;
        if (adam_find(variants.items[i]) == NULL)
            return err_set(e, ERR_RESOURCE, "this processor does not run Adam variant \"%s\"",
                           variants.items[i]);
        for (size_t j = 0; j < o->dtypes.count; j++) {
            enum dtype d;
            if (!dtype_find(o->dtypes.items[j], &d) || (d != DTYPE_FP32 && d != DTYPE_BF16))
                return err_set(e, ERR_USAGE, "--dtype: gradients are fp32 or bf16, not \"%s\"",
                               o->dtypes.items[j]);
            add_adam(r, &list, "adam", variants.items[i], d);
        }
    }
    add_adam(r, &list, "memory", "triad", DTYPE_FP32);
    add_adam(r, &list, "memory", "rmw", DTYPE_FP32);
    return run_points(r, backend_find("adam"), &list, e);
}
