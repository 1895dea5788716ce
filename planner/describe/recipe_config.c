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

static bool kind_of_json(const struct config_text *t, enum config_kind *out, struct err *e) {
    struct json_doc *doc = json_read_text(t->text, t->bytes, t->name, e);
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

bool recipe_config_kind(const struct config_text *t, enum config_kind *out, struct err *e) {
    const char *at = t->text;
    while (isspace((unsigned char)*at))
        at++;
    if (*at == '\0')
        return err_set(e, ERR_INPUT, "%s: empty", t->name);
    if (*at == '{')
        return kind_of_json(t, out, e);
    *out = kind_of_lines(t->text);
    return true;
}

bool recipe_parse_config(enum config_kind kind, const struct config_text *t,
                         const struct config_context *x, struct recipe *out, struct err *e) {
    switch (kind) {
    case CONFIG_DEEPSPEED:
        return recipe_parse_deepspeed(t, x, out, e);
    case CONFIG_FSDP2:
        return recipe_parse_fsdp2(t, x, out, e);
    case CONFIG_TORCHTITAN:
        return recipe_parse_torchtitan(t, x, out, e);
    default:
        return recipe_parse_accelerate(t, x, out, e);
    }
}

bool recipe_read_config(const char *path, const struct config_context *x, struct recipe *out,
                        struct err *e) {
    enum config_kind kind;
    struct config_text t = {.name = path};
    t.text = import_text_read(path, x->arena, &t.bytes, e);
    if (t.text == NULL || !recipe_config_kind(&t, &kind, e))
        return false;
    if (x->facts)
        x->facts->kind = kind;
    return recipe_parse_config(kind, &t, x, out, e);
}
