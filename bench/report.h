// SPDX-License-Identifier: Apache-2.0
// Handing a finished result to shardreport, which makes the page.
#pragma once

#include "base/arena.h"
#include "base/err.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

// `written`: the file that already holds `root`, or NULL: then it is written to DIR/result.json.
// ERR_RESOURCE when shardreport is missing or fails.
bool report_make(const char *dir, const char *written, const cJSON *root, struct arena *a,
                 struct err *e);
