// SPDX-License-Identifier: Apache-2.0
#include "describe/recipe_config.h"

#include "base/json.h"
#include "describe/import_text.h"

#include <ctype.h>
#include <string.h>

const char *const config_kind_names[CONFIG_KIND_COUNT] = {
    [CONFIG_DEEPSPEED] = "deepspeed",
    [CONFIG_ACCELERATE] = "accelerate",
    [CONFIG_FSDP2] = "fsdp2",
    [CONFIG_TORCHTITAN] = "torchtitan",
};

static bool kind_of_json(const char *path, enum config_kind *out, struct err *e) {
    struct json_doc *doc = json_read_file(path, e);
    struct json_node n;
    if (doc == NULL)
        return false;
    bool fsdp2 = json_is_object(json_root(doc)) && json_find(json_root(doc), "fully_shard", &n);
    *out = fsdp2 ? CONFIG_FSDP2 : CONFIG_DEEPSPEED;
    json_destroy(doc);
    return true;
}

// The first line that is neither empty nor a comment tells TOML from YAML.
static enum config_kind kind_of_lines(const char *text) {
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\r\n");
        size_t skip = strspn(at, " \t");
        if (skip < n && at[skip] != '#') {
            const char *eq = memchr(at, '=', n), *colon = memchr(at, ':', n);
            bool toml = at[skip] == '[' || (eq && (!colon || eq < colon));
            return toml ? CONFIG_TORCHTITAN : CONFIG_ACCELERATE;
        }
        at += n + (at[n] != '\0');
    }
    return CONFIG_ACCELERATE;
}

bool recipe_config_kind(const char *path, enum config_kind *out, struct err *e) {
    struct arena *a = arena_create();
    size_t bytes = 0;
    const char *text = import_text_read(path, a, &bytes, e);
    bool ok = text != NULL;
    if (ok) {
        const char *at = text;
        while (isspace((unsigned char)*at))
            at++;
        if (*at == '\0')
            ok = err_set(e, ERR_INPUT, "%s: empty", path);
        else if (*at == '{')
            ok = kind_of_json(path, out, e);
        else
            *out = kind_of_lines(text);
    }
    arena_destroy(a);
    return ok;
}

bool recipe_read_config(const char *path, const struct config_context *x, struct recipe *out,
                        struct err *e) {
    enum config_kind kind;
    if (!recipe_config_kind(path, &kind, e))
        return false;
    if (x->facts)
        x->facts->kind = kind;
    switch (kind) {
    case CONFIG_DEEPSPEED:
        return recipe_read_deepspeed(path, x, out, e);
    case CONFIG_FSDP2:
        return recipe_read_fsdp2(path, x, out, e);
    case CONFIG_TORCHTITAN:
        return recipe_read_torchtitan(path, x, out, e);
    default:
        return recipe_read_accelerate(path, x, out, e);
    }
}
