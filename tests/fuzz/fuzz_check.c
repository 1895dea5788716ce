// SPDX-License-Identifier: Apache-2.0
// check and its fix on arbitrary configurations: every finding says what and where, and a file that
// could be read can still be read when it is fixed.
#include "judge/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
                                   .kv_heads = 32,
                                   .head_dim = 128,
                                   .vocab = 32000,
                                   .max_positions = 4096,
                                   .units = units,
                                   .unit_count = 1,
                                   .parameters = 536870912,
                                   .active_parameters = 536870912,
                                   .matmul_parameters = 536870912};

static struct cluster fuzz_cluster(void) {
    struct cluster c = {.name = "c", .nodes = 2, .gpus_per_node = 8, .gpus = 16};
    c.nics_per_node = 8;
    c.gpu.name = "GPU";
    c.gpu.memory_torch_bytes = figure_known(80e9, PROVENANCE_SPEC, "fuzz");
    c.gpu.context_bytes = c.gpu.nccl_first_bytes = c.gpu.nccl_next_bytes =
        figure_known(5e8, PROVENANCE_SPEC, "fuzz");
    c.host_memory_bytes = figure_known(1e12, PROVENANCE_SPEC, "fuzz");
    c.nic_bytes_per_s = figure_known(5e10, PROVENANCE_SPEC, "fuzz");
    return c;
}

static int text_file(const void *data, size_t size, char *path, size_t path_size) {
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, path_size, "/proc/self/fd/%d", fd);
    return fd;
}

static bool check_once(const struct check_request *q, struct arena *a, struct check_result *r) {
    struct err e = {0};
    if (!check_config(q, a, r, &e)) {
        if (e.text[0] == '\0')
            abort();
        return false;
    }
    for (size_t i = 0; i < r->count; i++)
        if (!r->findings[i].id || !r->findings[i].path || !r->findings[i].text)
            abort();
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct cluster c = fuzz_cluster();
    struct arena *a = arena_create();
    struct check_result r, after;
    struct err e = {0};
    char path[64], fixed[64];
    const char *text = NULL;
    size_t applied = 0;
    int fd = text_file(data, size, path, sizeof path);
    struct check_request q = {.path = path, .model = &model, .cluster = &c};
    if (check_once(&q, a, &r)) {
        if (!check_fix(&q, &r, a, &text, &applied, &e))
            abort();
        int other = text_file(text, strlen(text), fixed, sizeof fixed);
        q.path = fixed;
        if (!check_once(&q, a, &after))
            abort();
        close(other);
    }
    close(fd);
    arena_destroy(a);
    return 0;
}
