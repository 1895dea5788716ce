// SPDX-License-Identifier: Apache-2.0
// Every key of a DeepSpeed configuration and what it means here; used by the reader and by check.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum ds_kind {
    DS_SECTION,    // object, read key by key
    DS_OPAQUE,     // object or value the planner doesn't need
    DS_COUNT,      // whole number into a recipe field
    DS_NUMBER,     // number into a recipe field
    DS_BOOL,       // boolean into a recipe field
    DS_DTYPE,      // type name into a recipe field
    DS_DEVICE,     // none, cpu, nvme into a recipe field
    DS_SPECIAL,    // handled when the file has been read whole
    DS_INERT,      // accepted, but read by nothing: text says so
    DS_UNMODELLED, // changes memory, bytes or time in a way not modelled: text says so
    DS_ALIAS,      // old name of the key in `field`
};

// What Hugging Face puts for "auto"; AUTO_NONE: nothing, and DeepSpeed drops the key.
enum ds_auto {
    AUTO_NONE,
    AUTO_TRAINER,    // a trainer argument: the recipe's default stays
    AUTO_HIDDEN2,    // hidden * hidden
    AUTO_HIDDEN2_09, // int(0.9 * hidden * hidden)
    AUTO_HIDDEN_10,  // 10 * hidden
};

struct ds_key {
    const char *path; // "zero_optimization.reduce_bucket_size"
    enum ds_kind kind;
    const char *field; // recipe field, or the new name of an alias
    enum ds_auto on_auto;
    const char *text; // why it is inert or unmodelled; NULL otherwise
    bool stage3_only;
};

extern const struct ds_key ds_keys[];
extern const size_t ds_key_count;

const struct ds_key *ds_key_find(const char *path);
// Keys of this section are checked by DeepSpeed: an unknown one stops it.
bool ds_section_is_strict(const char *section);
// Nearest known key within a section ("" = top level), or NULL.
const char *ds_key_nearest(const char *section, const char *name);
