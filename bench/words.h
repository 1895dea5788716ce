// SPDX-License-Identifier: Apache-2.0
// Words of the command line that are not known: what there is instead.
#pragma once

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>

// Lists of known words end with NULL.
// Always false with ERR_USAGE: `OPTION: no "WORD"; nearest is A; there are A, B, C`.
bool words_refuse(const char *option, const char *word, const char *const *known, struct err *e);

// True when `word` is one of `known` (without case); otherwise words_refuse.
bool words_check(const char *option, const char *word, const char *const *known, struct err *e);

// "A, B, C" in `a`.
const char *words_join(const char *const *known, struct arena *a);
