// SPDX-License-Identifier: Apache-2.0
// Headers of safetensors files: names, types, shapes; the weights themselves are never read. A
// header is hostile until proven otherwise: nothing is allocated beyond what the file holds.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "describe/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_RANK_MAX 8

struct safetensors_tensor {
    const char *name;
    const char *dtype; // as written: "BF16"
    uint64_t shape[SAFETENSORS_RANK_MAX];
    uint32_t rank;
    uint64_t begin_bytes, end_bytes; // in its file's data section
};

// All tensors of a file or of a sharded checkpoint, sorted by name.
struct safetensors {
    const struct safetensors_tensor *tensors;
    size_t count, files;
    uint64_t data_bytes;
};

// How a checkpoint compares with the inventory.
struct safetensors_check {
    size_t matched, extra;  // extra: tensors the inventory does not know (buffers, other towers)
    size_t missing, shaped; // shaped: present with another shape
    size_t typed;           // stored in another type than the config names
    const char *first;      // the first missing or misshaped tensor, described; NULL when none
    bool comparable;        // false: no token table by the family's name, nothing was compared
};

bool safetensors_read(const char *path, struct arena *a, struct safetensors *out, struct err *e);
// model.safetensors, or model.safetensors.index.json and its shards. *found false when neither is
// there.
bool safetensors_read_folder(const char *folder, struct arena *a, struct safetensors *out,
                             bool *found, struct err *e);
void safetensors_compare(const struct safetensors *s, const struct model *m, struct arena *a,
                         struct safetensors_check *out);
// The header's text alone, for readers that have it in memory.
struct safetensors_header {
    const char *text, *file; // file: for messages
    uint64_t bytes, data_bytes;
};
bool safetensors_parse(const struct safetensors_header *h, struct arena *a, struct safetensors *out,
                       struct err *e);
