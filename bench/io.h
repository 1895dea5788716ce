// SPDX-License-Identifier: Apache-2.0
// Asynchronous block requests of one job on one file: by io_uring, or by threads that call pread
// and pwrite where the kernel refuses io_uring.
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct io_request {
    bool write;
    uint32_t slot;   // of the job's buffer; at most one request per slot at a time
    uint64_t offset; // in the file
};

struct io_setup {
    int fd;
    char *buffer; // slots * block bytes, page-aligned
    uint64_t block_bytes;
    uint32_t slots;
};

struct io_engine {
    const char *name;
    // ERR_RESOURCE when the kernel or its limits refuse. *note may receive a sentence (static).
    bool (*open)(const struct io_setup *s, void **state, const char **note, struct err *e);
    void (*close)(void *state);
    bool (*push)(void *state, const struct io_request *r, struct err *e);
    // Starts what was pushed, waits for at least one request, stores up to `room` finished slots.
    bool (*wait)(void *state, uint32_t *slots, size_t room, size_t *count, struct err *e);
};

extern const struct io_engine io_uring_engine; // builds with liburing
extern const struct io_engine io_pool_engine;

// The error of a request that ended with `result` (bytes, or a negative errno).
bool io_failed(bool write, int result, uint64_t wanted, struct err *e);
