// SPDX-License-Identifier: Apache-2.0
// The test file of the storage measurements. It has no name once it is open, so the kernel removes
// it after any exit, and it is opened beneath its folder without following links.
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct scratch {
    int fd;
    uint64_t bytes;  // written with contents, not holes
    bool direct;     // past the page cache
    char where[160]; // file system and device, for the inventory
};

struct scratch_request {
    const char *folder;
    uint64_t max_bytes;     // also at most a quarter of the free space
    uint64_t grain_bytes;   // the size is a multiple of it, and at least one
    bool ignore_free_space; // test hook: run into a full file system
};

bool scratch_open(const struct scratch_request *r, struct scratch *out, struct err *e);
void scratch_close(struct scratch *s);
