// SPDX-License-Identifier: Apache-2.0
// Framework releases: comparison, and the defaults that moved between them and the modelled ones.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "describe/warnings.h"

#include <stdbool.h>

enum version_framework { VERSION_DEEPSPEED, VERSION_TORCH };

struct version {
    enum version_framework framework;
    unsigned major, minor, patch;
};

// "deepspeed-0.19.6", "torch-2.9", "torch 2.9.1+cu128".
bool version_parse(const char *text, struct version *out, struct err *e);
// Older than major.minor.patch of the same framework.
bool version_before(const struct version *v, unsigned major, unsigned minor, unsigned patch);
// One warning per default that differs from the modelled release; none for the modelled one.
bool version_warn(const char *text, struct arena *a, struct warnings *w, struct err *e);
