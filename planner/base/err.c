// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

bool err_set(struct err *e, enum err_kind kind, const char *format, ...) {
    if (!e || e->kind != ERR_NONE)
        return false;
    e->kind = kind;
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    return false;
}

void err_note(struct err *e, const char *format, ...) {
    if (!e || e->kind == ERR_NONE)
        return;
    char old[sizeof e->text];
    memcpy(old, e->text, sizeof old);
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    size_t used = strlen(e->text);
    snprintf(e->text + used, sizeof e->text - used, ": %s", old);
}

bool err_of_usage(struct err *e) {
    if (e && e->kind == ERR_INPUT)
        e->kind = ERR_USAGE;
    return false;
}

void err_clear(struct err *e) {
    if (!e)
        return;
    e->kind = ERR_NONE;
    e->text[0] = '\0';
}

int err_exit_status(const struct err *e) {
    switch (e ? e->kind : ERR_NONE) {
    case ERR_USAGE:
        return 2;
    case ERR_INPUT:
        return 3;
    case ERR_RESOURCE:
        return 4;
    case ERR_INTERRUPTED:
        return 130;
    case ERR_NONE:
    case ERR_KIND_COUNT:
        break;
    }
    return 0;
}
