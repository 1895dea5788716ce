// SPDX-License-Identifier: Apache-2.0
// Readers of the frameworks' own configuration files: DeepSpeed JSON and accelerate YAML.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "describe/model.h"
#include "describe/recipe.h"
#include "describe/warnings.h"

#include <stdbool.h>
#include <stdint.h>

enum config_kind {
    CONFIG_DEEPSPEED,
    CONFIG_ACCELERATE,
    CONFIG_FSDP2,
    CONFIG_TORCHTITAN,
    CONFIG_KIND_COUNT
};
extern const char *const config_kind_names[CONFIG_KIND_COUNT];

// What a file says about the launch rather than the recipe; 0 = not said.
struct config_facts {
    enum config_kind kind;
    uint64_t processes, machines;
    const char *deepspeed_file; // that an accelerate file points to
    bool leaf_module;           // MoE blocks are gathered as one (leaf_module or class names)
};

struct config_context {
    struct arena *arena;
    const struct model *model;      // resolves "auto"; NULL leaves framework defaults
    struct recipe_origins *origins; // may be NULL
    struct warnings *warnings;      // may be NULL
    struct config_facts *facts;     // may be NULL
    bool lenient; // what the framework refuses becomes a warning of kind WARNING_REFUSED
};

struct config_text {
    const char *name; // for messages
    const char *text; // NUL-terminated
    size_t bytes;
};

// Kind by content, not by file name.
bool recipe_config_kind(const struct config_text *t, enum config_kind *out, struct err *e);
// Any kind from a file. *out starts from the defaults of the strategy the file names.
bool recipe_read_config(const char *path, const struct config_context *x, struct recipe *out,
                        struct err *e);
// The same from text, of a known kind.
bool recipe_parse_config(enum config_kind kind, const struct config_text *t,
                         const struct config_context *x, struct recipe *out, struct err *e);
// One per kind. accelerate may point to a DeepSpeed file, which is read too.
bool recipe_parse_deepspeed(const struct config_text *t, const struct config_context *x,
                            struct recipe *out, struct err *e);
bool recipe_parse_accelerate(const struct config_text *t, const struct config_context *x,
                             struct recipe *out, struct err *e);
// The arguments of torch's fully_shard as `shardplan emit fsdp2` writes them.
bool recipe_parse_fsdp2(const struct config_text *t, const struct config_context *x,
                        struct recipe *out, struct err *e);
bool recipe_parse_torchtitan(const struct config_text *t, const struct config_context *x,
                             struct recipe *out, struct err *e);
