// SPDX-License-Identifier: Apache-2.0
// Every figure of a cluster and its GPU by path: `--set cluster.NAME=VALUE`, `--set
// gpu.NAME=VALUE`. The same paths stand in a result's inputs[] and assumed_that_matter[].
#pragma once

#include "base/err.h"
#include "describe/cluster.h"

#include <stdbool.h>
#include <stddef.h>

struct cluster_field {
    const char *path;  // "cluster.nic_bytes_per_s"
    size_t offset;     // in struct cluster
    bool whole;        // uint64_t; otherwise struct figure
    const char *value; // what a value looks like: "rate", "bytes", "seconds", "number", "count"
    const char *help;
};

extern const struct cluster_field cluster_fields[];
extern const size_t cluster_field_count;

// True for paths that this file answers ("cluster.", "gpu."), known or not.
bool cluster_field_owns(const char *path);
// ERR_USAGE naming the path, the value and what was expected. The figure's provenance becomes spec,
// its source "--set".
bool cluster_field_set(struct cluster *c, const char *path, const char *value, struct err *e);
