// SPDX-License-Identifier: Apache-2.0
// Lines and words of a log as people paste it: without colour codes and without rank prefixes.
#pragma once

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMPORT_WORDS_MAX 64

struct import_line {
    const char *text; // cleaned, in the arena
    const char *raw;  // with colours removed only (tabs and positions kept)
    int number;       // 1-based
    const char *words[IMPORT_WORDS_MAX];
    size_t word_count; // split at white space
};

struct import_lines {
    struct import_line *items;
    size_t count;
};

void import_split(const char *text, size_t bytes, struct arena *a, struct import_lines *out);
// Whole-word numbers; false when anything else follows.
bool import_u64(const char *word, uint64_t *out);
bool import_double(const char *word, double *out);
