// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "base/units.h"
#include "bench/backend_nvme.h"
#include "bench/commands.h"
#include "bench/words.h"

#define BLOCK_GRAIN 4096

static bool add_point(struct run *r, struct point_list *list, const char *const *text,
                      struct err *e) {
    struct bench_point p = {.kind = "nvme", .direction = text[0]};
    if (!units_parse_bytes(text[1], &p.block_bytes, e) ||
        !units_parse_count(text[2], &p.queue_depth, e) || !units_parse_count(text[3], &p.jobs, e))
        return false;
    if (p.block_bytes == 0 || p.block_bytes % BLOCK_GRAIN != 0 || p.block_bytes > UNITS_GIB)
        return err_set(e, ERR_USAGE, "--block: %s is not a multiple of 4 KiB up to 1 GiB", text[1]);
    if (p.queue_depth == 0 || p.queue_depth > 1024 || p.jobs == 0 || p.jobs > 256)
        return err_set(e, ERR_USAGE, "--depth goes from 1 to 1024 and --jobs from 1 to 256");
    p.payload_bytes = backend_nvme_payload(p.direction, p.block_bytes, p.queue_depth, p.jobs);
    run_add_point(r, list, &p);
    return true;
}

// Plain reads and writes once more, with GPU memory at the other end; a build with CUDA says why
// not.
static bool run_to_gpu(struct run *r, const struct point_list *all, struct err *e) {
    const struct backend *b = backend_find("cufile");
    struct point_list list = {0};
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->items[i].direction, "read") == 0 ||
            strcmp(all->items[i].direction, "write") == 0)
            run_add_point(r, &list, &all->items[i]);
    return b == NULL || list.count == 0 || run_points_or_waive(r, b, &list, e);
}

bool command_nvme(struct run *r, const struct opt_texts *rest, struct err *e) {
    static const char *const known[] = {"read", "write", "mixed", "swap", "swap_pipelined", NULL};
    const struct options *o = r->options;
    struct point_list list = {0};
    (void)rest;
    for (size_t i = 0; i < o->patterns.count; i++) {
        if (!words_check("--pattern", o->patterns.items[i], known, e))
            return false;
        for (size_t b = 0; b < o->blocks.count; b++)
            for (size_t d = 0; d < o->depths.count; d++)
                for (size_t j = 0; j < o->jobs.count; j++) {
                    const char *text[] = {known[kinds_find(known, 5, o->patterns.items[i])],
                                          o->blocks.items[b], o->depths.items[d], o->jobs.items[j]};
                    if (!add_point(r, &list, text, e))
                        return false;
                }
    }
    return run_points(r, backend_find("nvme"), &list, e) && run_to_gpu(r, &list, e);
}
