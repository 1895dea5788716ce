// SPDX-License-Identifier: Apache-2.0
// Lints a framework's configuration against a model and a cluster: silent traps, what each costs,
// and the fix. docs/formats.md §check lists the findings.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "cost/memory.h"
#include "describe/recipe_config.h"
#include "describe/recipe_options.h"

#include <stdbool.h>
#include <stddef.h>

enum severity { SEVERITY_INFO, SEVERITY_WARNING, SEVERITY_ERROR, SEVERITY_COUNT };
extern const char *const severity_names[SEVERITY_COUNT];

// A change of the configuration file, by the file's own key.
enum edit_kind { EDIT_NONE, EDIT_SET, EDIT_REMOVE, EDIT_RENAME };
struct edit {
    enum edit_kind kind;
    const char *path;  // "zero_optimization.overlap_comm"
    const char *value; // SET: value as JSON or YAML scalar text; RENAME: new last name
};
#define FINDING_EDITS_MAX 2

struct finding {
    const char *id; // "nvme-buffers"
    enum severity severity;
    const char *path;  // "ds_config.json:12 zero_optimization.stage"
    const char *text;  // what happens
    double cost_bytes; // per GPU unless the text says per node; NAN = none
    double cost_s;     // per optimizer step; NAN = none
    const char *fix;   // what to do, or NULL
    struct edit edits[FINDING_EDITS_MAX];
};

struct check_request {
    const char *path;                     // the configuration
    const char *environment;              // file of NAME=VALUE lines or a launch script, or NULL
    const struct recipe_request *options; // put over the file
    const struct model *model;
    const struct cluster *cluster;
};

struct check_result {
    struct config_facts facts;
    struct recipe recipe;
    bool resolved; // the recipe can run on this cluster; memory is filled
    struct memory memory;
    struct finding *findings; // errors first
    size_t count, capacity;
};

// False only where the file can't be read at all.
bool check_config(const struct check_request *q, struct arena *a, struct check_result *out,
                  struct err *e);
// Text of the configuration with the findings' edits applied. JSON is rewritten, YAML and TOML are
// edited line by line. *applied counts findings whose edit was made.
bool check_fix(const struct check_request *q, const struct check_result *r, struct arena *a,
               const char **text, size_t *applied, struct err *e);
size_t check_errors(const struct check_result *r);
