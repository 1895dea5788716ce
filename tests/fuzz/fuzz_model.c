// SPDX-License-Identifier: Apache-2.0
// config.json on arbitrary bytes: refused with a reason, or a model whose parts add up.
#include "base/arena.h"
#include "describe/model.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_sums(const struct model *m) {
    uint64_t total = 0, instances = 0;
    for (size_t i = 0; i < m->unit_count; i++) {
        uint64_t unit = 0;
        for (size_t k = 0; k < m->units[i].tensor_count; k++)
            unit += tensor_numel(&m->units[i].tensors[k]) * m->units[i].tensors[k].count;
        if (unit != m->units[i].parameters)
            abort();
        total += unit * m->units[i].repeat;
        instances += m->units[i].repeat;
    }
    if (total != m->parameters || m->active_parameters > total || instances != model_instances(m))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *a = arena_create();
    struct model m;
    struct err e = {0};
    struct model_text t = {(const char *)data, "config.json", size};
    if (model_read_text(&t, a, &m, &e))
        check_sums(&m);
    else if (e.kind == ERR_NONE || e.text[0] == '\0')
        abort();
    arena_destroy(a);
    return 0;
}
