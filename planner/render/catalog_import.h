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

// PyTorch's own files, known by their first bytes.
enum import_profile_kind { IMPORT_PROFILE_NONE, IMPORT_PROFILE_TRACE, IMPORT_PROFILE_SNAPSHOT };
enum import_profile_kind catalog_import_sniff(const char *path);
bool catalog_import_profile(struct cli *cli, const struct import_request *q,
                            enum import_profile_kind kind);
