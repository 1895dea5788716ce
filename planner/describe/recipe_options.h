// SPDX-License-Identifier: Apache-2.0
// The recipe options of the command line, the recipes they ask for, and what they change on a
// cluster. A command's option struct starts with a struct recipe_request (offset 0).
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/opt.h"
#include "describe/cluster.h"
#include "describe/model.h"
#include "describe/recipe.h"
#include "describe/warnings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Which options the user gave, so that a configuration file keeps the others.
struct recipe_given {
    bool seq, micro_batch, grad_accum, global_batch, tokens, precision, optimizer, attention, loss,
        stack, offload_optimizer, offload_param, shard_group, tp, cp, pp, ep, clip, lora_rank,
        nodes, gpus, net, host_memory;
};

struct recipe_request {
    struct opt_texts strategies; // empty = all (or the configuration file's)
    const char *config;
    uint64_t seq, micro_batch, grad_accum, global_batch, shard_group, tp, cp, pp, ep, lora_rank;
    double tokens, clip;
    int precision, optimizer, attention, loss, stack, offload_optimizer, offload_param; // enums
    const char *reduce_dtype, *recompute, *wrap, *lora_targets, *framework_version;
    bool compile;
    // Cluster
    uint64_t nodes, gpus, host_memory_bytes;
    double net_bytes_per_s;
    const char *nvme;     // "7GB/s/4GB/s"
    struct opt_texts set; // --set PATH=VALUE: recipe., cluster., gpu.
    struct recipe_given given;
};

extern const struct opt recipe_options[];

struct recipe_list {
    struct recipe *items;
    struct recipe_origins *origins; // one per item
    size_t count;
    struct warnings warnings; // of the configuration file and the framework version
};

// The recipes a request asks for, not yet resolved. `m` resolves "auto" of configuration files.
bool recipe_request_expand(const struct recipe_request *q, const struct model *m, struct arena *a,
                           struct recipe_list *out, struct err *e);
// Put the request's options over one recipe, noting their origins (o may be NULL).
bool recipe_apply(const struct recipe_request *q, struct arena *a, struct recipe *r,
                  struct recipe_origins *o, struct err *e);
// --nodes, --gpus, --net, --host-memory, --nvme and --set cluster.*, gpu.* over a cluster.
bool recipe_apply_cluster(const struct recipe_request *q, struct cluster *c, struct err *e);
