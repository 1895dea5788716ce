// SPDX-License-Identifier: Apache-2.0
#include "base/build.h"

#include "base/build_commit.h"
#include "config.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *build_version(void) {
    return SHARDPLAN_VERSION;
}

const char *build_commit(void) {
    return BUILD_COMMIT;
}

const char *build_type(void) {
    return SHARDPLAN_BUILD_TYPE;
}

const char *build_flags(void) {
    return SHARDPLAN_BUILD_FLAGS;
}

const char *build_libexec_dir(void) {
    return SHARDPLAN_LIBEXECDIR;
}

const char *build_program_dir(struct arena *a) {
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0)
        return ".";
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash)
        return ".";
    slash[slash == path] = '\0';
    return arena_strdup(a, path);
}

const char *build_catalog_dir(struct arena *a) {
    const char *chosen = getenv("SHARDPLAN_CATALOG");
    if (chosen && *chosen)
        return arena_strdup(a, chosen);
    const char *program = build_program_dir(a);
    size_t root = strlen(SHARDPLAN_BUILD_ROOT);
    bool in_build_tree = strncmp(program, SHARDPLAN_BUILD_ROOT, root) == 0 &&
                         (program[root] == '/' || program[root] == '\0');
    return in_build_tree ? SHARDPLAN_SOURCE_CATALOG : SHARDPLAN_INSTALLED_CATALOG;
}
