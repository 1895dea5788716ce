// SPDX-License-Identifier: Apache-2.0
// One reader of foreign configurations (FUZZ_READER) on arbitrary bytes: it may refuse, it must
// not crash, hang or succeed with a recipe whose fields can't be written and read back.
#include "base/arena.h"
#include "describe/recipe_config.h"
#include "describe/recipe_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

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

static void read_once(const char *path, bool lenient) {
    struct arena *a = arena_create();
    struct recipe_origins origins = {0};
    struct warnings warnings = {0};
    struct config_facts facts = {0};
    struct config_context x = {a, &model, &origins, &warnings, &facts, lenient};
    struct recipe r;
    struct err e = {0};
    if (FUZZ_READER(path, &x, &r, &e))
        check_fields(&r, a);
    else if (e.kind == ERR_NONE || e.text[0] == '\0')
        abort(); // a refusal has a reason
    arena_destroy(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    read_once(path, false);
    read_once(path, true);
    close(fd);
    return 0;
}
