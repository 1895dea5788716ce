// SPDX-License-Identifier: Apache-2.0
// A cluster file on arbitrary bytes: refused with a reason, or a cluster within its limits.
#include "base/arena.h"
#include "describe/cluster.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *a = arena_create();
    struct cluster c;
    struct err e = {0};
    if (!cluster_read_text((const char *)data, size, a, &c, &e)) {
        if (e.kind == ERR_NONE || e.text[0] == '\0')
            abort();
    } else if (c.gpus == 0 || c.gpus > c.nodes * c.gpus_per_node || c.nodes > CLUSTER_NODES_MAX ||
               c.nics_per_node == 0 || !figure_is_known(gpu_visible_bytes(&c.gpu))) {
        abort();
    }
    arena_destroy(a);
    return 0;
}
