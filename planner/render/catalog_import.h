// SPDX-License-Identifier: Apache-2.0
// `catalog import`: other tools' output as measurement or topology files.
#pragma once

#include "render/cli.h"

struct import_request {
    struct output_request output; // first: shares the options of `catalog`
    const char *op, *out;
};

// Files are cli->rest from index 1 on. All must be of one sort; measurements are joined.
bool catalog_import(struct cli *cli, const struct import_request *q);
