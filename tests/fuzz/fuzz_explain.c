// SPDX-License-Identifier: Apache-2.0
// explain on arbitrary logs: every event has a meaning, and causes have the size they claim.
#include "judge/explain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct tensor tensors[] = {
    {.name = "w", .module = "w", .role = TENSOR_LINEAR, .rows = 4096, .cols = 4096, .count = 1}};
static const struct model_unit units[] = {{.kind = UNIT_BLOCK,
                                           .name = "layers",
                                           .repeat = 32,
                                           .tensors = tensors,
                                           .tensor_count = 1,
                                           .parameters = 16777216}};
static const struct model model = {.name = "m",
                                   .layers = 32,
                                   .hidden = 4096,
                                   .ffn = 11008,
                                   .heads = 32,
                                   .vocab = 32000,
                                   .max_positions = 4096,
                                   .units = units,
                                   .unit_count = 1,
                                   .parameters = 6738415616};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct arena *a = arena_create();
    struct explain_request q = {.path = path, .model = &model};
    struct explain_result r;
    struct err e = {0};
    if (!explain_log(&q, a, &r, &e))
        abort(); // any bytes are a log
    for (size_t i = 0; i < r.count; i++) {
        if (r.events[i].meaning == NULL || r.events[i].count == 0)
            abort();
        for (size_t k = 0; k < r.events[i].cause_count; k++)
            if (!(r.events[i].causes[k].bytes > 0))
                abort();
    }
    arena_destroy(a);
    close(fd);
    return 0;
}
