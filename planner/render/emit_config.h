// SPDX-License-Identifier: Apache-2.0
// A recipe as a configuration of DeepSpeed, accelerate, torch's fully_shard or torchtitan. Reading
// the text back gives the same recipe; fields the format has no key for stand beside it.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "describe/cluster.h"
#include "describe/model.h"
#include "describe/recipe.h"
#include "describe/recipe_config.h"

#include <stdbool.h>

struct emit_config {
    enum config_kind kind;
    const struct model *model;
    const struct cluster *cluster;
    const struct recipe *recipe; // resolved for that model and cluster
    struct arena *arena;
};

// ERR_USAGE where the format can't state the strategy, naming one that can.
bool emit_config_text(const struct emit_config *q, const char **out, struct err *e);
