// SPDX-License-Identifier: Apache-2.0
// A safetensors header on arbitrary bytes, compared with a small model when it is accepted.
#include "base/arena.h"
#include "describe/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compare(const struct safetensors *s, struct arena *a) {
    struct safetensors_check c;
    struct err e = {0};
    struct model m = {.architecture = "llama",
                      .layers = 2,
                      .hidden = 8,
                      .ffn = 16,
                      .heads = 2,
                      .vocab = 32,
                      .gated_mlp = true};
    if (!model_finish(&m, a, &e))
        abort();
    safetensors_compare(s, &m, a, &c);
    if (c.matched + c.shaped + c.extra > s->count + 21)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *a = arena_create();
    struct safetensors s;
    struct err e = {0};
    // The first byte stands for the size of the data section, in units of 8 bytes.
    struct safetensors_header h = {(const char *)data + 1, "fuzz", size ? size - 1 : 0,
                                   size ? data[0] * 8U : 0};
    if (size > 0 && safetensors_parse(&h, a, &s, &e)) {
        if (arena_used_bytes(a) > 8 * size + 4096)
            abort(); // more than what such a file is worth
        compare(&s, a);
    } else if (size > 0 && (e.kind == ERR_NONE || e.text[0] == '\0')) {
        abort();
    }
    arena_destroy(a);
    return 0;
}
