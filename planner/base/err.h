// SPDX-License-Identifier: Apache-2.0
// One error record, filled by the function that decides, passed through by everyone else.
#pragma once

#include <stdbool.h>

enum err_kind {
    ERR_NONE,
    ERR_USAGE,       // exit 2: the command line is wrong
    ERR_INPUT,       // exit 3: a file or value is wrong
    ERR_RESOURCE,    // exit 4: a resource, device, backend or required measurement is missing
    ERR_INTERRUPTED, // exit 130: Ctrl-C; finished results are kept
    ERR_KIND_COUNT
};

struct err {
    enum err_kind kind;
    char text[1024];
};

// Record an error unless one is recorded already (the first error wins). Always returns false, so
// that a failing function can `return err_set(e, ...)`. `e` may be NULL.
bool err_set(struct err *e, enum err_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Put context before the recorded text: "<context>: <text>". Nothing is recorded when `e` is empty.
void err_note(struct err *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

// A value that came by an option is the command line's fault, whatever its parser thought. Always
// returns false.
bool err_of_usage(struct err *e);

void err_clear(struct err *e);

// Process exit status for a recorded error: 0, 2, 3, 4 or 130.
int err_exit_status(const struct err *e);
