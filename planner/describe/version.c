// SPDX-License-Identifier: Apache-2.0
#include "describe/version.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *const names[] = {[VERSION_DEEPSPEED] = "deepspeed", [VERSION_TORCH] = "torch"};
static const struct version modelled[] = {
    [VERSION_DEEPSPEED] = {VERSION_DEEPSPEED, 0, 19, 6},
    [VERSION_TORCH] = {VERSION_TORCH, 2, 9, 0},
};

// docs/method.md §versions.
static const struct {
    struct version before;
    const char *text;
} moved[] = {
    {{VERSION_DEEPSPEED, 0, 4, 0},
     "releases before 0.4 allocate 4.5 x reduce_bucket_size per gradient bucket: 5e8 elements with "
     "overlap_comm cost 8.4 GiB there, 1.9 GiB in the modelled release"},
    {{VERSION_DEEPSPEED, 0, 19, 0},
     "gradient_clipping and pin_memory had other defaults in earlier releases (off); write both "
     "keys into the configuration"},
    {{VERSION_TORCH, 1, 12, 0}, "FullyShardedDataParallel is not part of this release"},
    {{VERSION_TORCH, 2, 1, 0},
     "foreach AdamW keeps two temporary lists of one state's size here, one in the modelled "
     "release"},
    {{VERSION_TORCH, 2, 4, 0}, "FSDP2 (fully_shard) is not part of this release"},
};

bool version_parse(const char *text, struct version *out, struct err *e) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t n = strlen(names[i]);
        if (strncasecmp(text, names[i], n) != 0)
            continue;
        struct version v = {.framework = (enum version_framework)i};
        const char *at = text + n + strspn(text + n, "- =v");
        if (sscanf(at, "%5u.%5u.%5u", &v.major, &v.minor, &v.patch) < 2)
            break;
        *out = v;
        return true;
    }
    return err_set(e, ERR_USAGE,
                   "framework version '%s': expected deepspeed-X.Y.Z or torch-X.Y, such as "
                   "deepspeed-0.19.6",
                   text);
}

bool version_before(const struct version *v, unsigned major, unsigned minor, unsigned patch) {
    if (v->major != major)
        return v->major < major;
    if (v->minor != minor)
        return v->minor < minor;
    return v->patch < patch;
}

bool version_warn(const char *text, struct arena *a, struct warnings *w, struct err *e) {
    struct version v;
    if (!version_parse(text, &v, e))
        return false;
    const struct version *m = &modelled[v.framework];
    if (v.major == m->major && v.minor == m->minor)
        return true;
    const char *path = arena_printf(a, "framework_version %s", text);
    warnings_add(w, a, WARNING_ASSUMED, path,
                 arena_printf(a, "rules follow %s-%u.%u.%u; other releases may differ",
                              names[v.framework], m->major, m->minor, m->patch));
    for (size_t i = 0; i < sizeof moved / sizeof moved[0]; i++) {
        const struct version *b = &moved[i].before;
        if (b->framework == v.framework && version_before(&v, b->major, b->minor, b->patch))
            warnings_add(w, a, WARNING_ASSUMED, path, moved[i].text);
    }
    return true;
}
