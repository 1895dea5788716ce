// SPDX-License-Identifier: Apache-2.0
// A GPU file on arbitrary bytes: refused with a reason, or its known figures are finite and above
// zero and what was read is written and read back.
#include "base/arena.h"
#include "base/json.h"
#include "describe/gpu.h"
#include "describe/gpu_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void positive(struct figure f) {
    if (figure_is_known(f) && !(f.value > 0 && isfinite(f.value)))
        abort();
}

static void check(const struct gpu *g, struct arena *a) {
    struct gpu again;
    struct err e = {0};
    positive(g->memory_nominal_bytes);
    positive(g->hbm_bytes_per_s);
    for (size_t t = 0; t < DTYPE_COUNT; t++)
        positive(g->peak_flop_per_s[t]);
    for (size_t s = 0; s < STACK_COUNT; s++)
        for (size_t k = 0; k < KERNEL_CONSTANT_COUNT; k++)
            positive(g->kernels[s].constants[k]);
    cJSON *o = cJSON_CreateObject();
    gpu_write_node(o, g);
    char *text = cJSON_PrintUnformatted(o);
    struct json_doc *doc = json_read_text(text, strlen(text), "again", &e);
    gpu_init(&again);
    if (!doc || !gpu_read_node(json_root(doc), a, &again, &e))
        abort();
    json_destroy(doc);
    cJSON_free(text);
    cJSON_Delete(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err e = {0};
    struct json_doc *doc = json_read_text((const char *)data, size, "fuzz", &e);
    if (!doc)
        return 0; // fuzz_json's business
    struct arena *a = arena_create();
    struct gpu g;
    gpu_init(&g);
    if (gpu_read_node(json_root(doc), a, &g, &e))
        check(&g, a);
    else if (e.kind == ERR_NONE || e.text[0] == '\0')
        abort();
    json_destroy(doc);
    arena_destroy(a);
    return 0;
}
