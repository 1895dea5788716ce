// SPDX-License-Identifier: Apache-2.0
// JSON read token by token in constant memory, for files too large to keep: other tools' traces.
// Strict as RFC 8259, but for the numbers NaN, Infinity, inf and nan, which those tools write.
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_token {
    JSON_TOKEN_END, // after the one value
    JSON_TOKEN_OBJECT,
    JSON_TOKEN_OBJECT_END,
    JSON_TOKEN_ARRAY,
    JSON_TOKEN_ARRAY_END,
    JSON_TOKEN_KEY,
    JSON_TOKEN_STRING,
    JSON_TOKEN_NUMBER,
    JSON_TOKEN_TRUE,
    JSON_TOKEN_FALSE,
    JSON_TOKEN_NULL
};

enum {
    JSON_STREAM_DEPTH_MAX = 64,
    JSON_STREAM_TEXT_MAX = 1024 // longer keys and strings are cut, which is no error
};

struct json_stream;

// NULL on error. Close with json_stream_close, which takes NULL.
struct json_stream *json_stream_open(const char *path, struct err *e);
struct json_stream *json_stream_of_text(const char *text, size_t bytes, const char *name);
void json_stream_close(struct json_stream *s);

// The next token. ERR_INPUT "file:line: reason" on what is not JSON, or cut off.
bool json_stream_next(struct json_stream *s, enum json_token *out, struct err *e);
// Of the KEY or STRING just read; valid until the next call.
const char *json_stream_text(const struct json_stream *s);
// Of the NUMBER just read.
double json_stream_number(const struct json_stream *s);
// The same number exactly, when it is an integer from 0 to 2^64-1.
bool json_stream_u64(const struct json_stream *s, uint64_t *out);
// After `token` was read: to the end of the object or array it opens; nothing for a scalar.
bool json_stream_skip(struct json_stream *s, enum json_token token, struct err *e);
uint64_t json_stream_line(const struct json_stream *s); // 1-based, of the token just read
uint64_t json_stream_bytes(const struct json_stream *s);
const char *json_stream_name(const struct json_stream *s);
bool json_stream_fail(const struct json_stream *s, struct err *e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
