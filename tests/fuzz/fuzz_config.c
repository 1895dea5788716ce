// SPDX-License-Identifier: Apache-2.0
// One reader of foreign configurations (FUZZ_READER) on arbitrary bytes: it may refuse, it must
// not crash, hang or succeed with a recipe whose fields can't be written and read back.
#include "base/arena.h"
#include "describe/recipe_config.h"
#include "describe/recipe_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct model model = {
    .name = "m", .layers = 32, .hidden = 4096, .max_positions = 8192, .parameters = 7000000000};

static void check_fields(const struct recipe *r, struct arena *a) {
    struct recipe copy;
    struct err e = {0};
    recipe_defaults(STRATEGY_DDP, &copy);
    for (size_t i = 0; i < recipe_field_count; i++) {
        const struct recipe_field *f = &recipe_fields[i];
        if (!f->derived && !recipe_field_set(&copy, f->name, recipe_field_text(r, f, a), a, &e)) {
            fprintf(stderr, "%s\n", e.text);
            abort();
        }
    }
}

static void read_once(const struct config_text *t, bool lenient) {
    struct arena *a = arena_create();
    struct recipe_origins origins = {0};
    struct warnings warnings = {0};
    struct config_facts facts = {0};
    struct config_context x = {a, &model, &origins, &warnings, &facts, lenient};
    struct recipe r;
    struct err e = {0};
    if (FUZZ_READER(t, &x, &r, &e))
        check_fields(&r, a);
    else if (e.kind == ERR_NONE || e.text[0] == '\0')
        abort(); // a refusal has a reason
    arena_destroy(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (memchr(data, '\0', size) != NULL)
        return 0; // import_text_read refuses such files
    char *text = malloc(size + 1);
    if (text == NULL)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    struct config_text t = {"fuzz", text, size};
    read_once(&t, false);
    read_once(&t, true);
    free(text);
    return 0;
}
