// SPDX-License-Identifier: Apache-2.0
// Small text files read whole, and the recipe fields that emit leaves in their comments.
#pragma once

#include "base/err.h"
#include "describe/recipe_config.h"

#include <stdbool.h>
#include <stddef.h>

// NUL-terminated contents in the arena; refuses directories, NUL bytes and files over 1 MiB.
char *import_text_read(const char *path, struct arena *a, size_t *bytes, struct err *e);
// Lines "# shardplan: NAME=VALUE" set recipe fields that the file's own format has no key for.
bool import_text_fields(const struct config_text *t, const struct config_context *x,
                        struct recipe *r, struct err *e);
