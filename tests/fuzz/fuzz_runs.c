// SPDX-License-Identifier: Apache-2.0
// Files of measured runs and of measured collectives on arbitrary bytes: refused with a reason, or
// every point has a name and is scored or says why not.
#include "base/arena.h"
#include "judge/validate.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok, const struct validate_result *r, const struct err *e) {
    if (!ok) {
        if (e->kind == ERR_NONE || e->text[0] == '\0')
            abort();
        return;
    }
    for (size_t i = 0; i < r->point_count; i++)
        if (!r->points[i].id || (!r->points[i].scored && !r->points[i].reason))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (int runs = 0; runs < 2; runs++) {
        struct arena *a = arena_create();
        struct validate_result *r = arena_alloc(a, sizeof *r);
        struct err e = {0};
        *r = (struct validate_result){0};
        bool ok = runs ? validate_runs(path, a, r, &e) : validate_collectives(path, a, r, &e);
        check(ok, r, &e);
        arena_destroy(a);
    }
    close(fd);
    return 0;
}
