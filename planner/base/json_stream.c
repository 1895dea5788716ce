// SPDX-License-Identifier: Apache-2.0
#include "base/json_stream.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 65536, NUMBER_MAX = 64 };

// What may come next.
enum expect { EXPECT_VALUE, EXPECT_FIRST, EXPECT_COMMA, EXPECT_END };

struct json_stream {
    FILE *file; // NULL = text
    char *name;
    const char *at, *end; // unread bytes
    char *chunk;
    uint64_t read_bytes, line, token_line;
    enum expect expect;
    char open[JSON_STREAM_DEPTH_MAX]; // '{' or '['
    size_t depth;
    char text[JSON_STREAM_TEXT_MAX + 8];
    double number;
};

static struct json_stream *create(const char *name) {
    struct json_stream *s = calloc(1, sizeof *s);
    char *copy = strdup(name);
    if (s == NULL || copy == NULL) {
        free(s);
        free(copy);
        return NULL;
    }
    s->name = copy;
    s->line = s->token_line = 1;
    return s;
}

struct json_stream *json_stream_open(const char *path, struct err *e) {
    struct json_stream *s = create(path);
    if (s == NULL || (s->chunk = malloc(CHUNK_BYTES)) == NULL) {
        err_set(e, ERR_RESOURCE, "%s: out of memory", path);
        goto fail;
    }
    s->file = fopen(path, "rb");
    if (s->file == NULL) {
        err_set(e, ERR_INPUT, "%s: %s", path, strerror(errno));
        goto fail;
    }
    return s;
fail:
    json_stream_close(s);
    return NULL;
}

struct json_stream *json_stream_of_text(const char *text, size_t bytes, const char *name) {
    struct json_stream *s = create(name);
    if (s == NULL)
        return NULL;
    s->at = text;
    s->end = text + bytes;
    s->read_bytes = bytes;
    return s;
}

void json_stream_close(struct json_stream *s) {
    if (s == NULL)
        return;
    if (s->file)
        fclose(s->file);
    free(s->chunk);
    free(s->name);
    free(s);
}

bool json_stream_fail(const struct json_stream *s, struct err *e, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return err_set(e, ERR_INPUT, "%s:%llu: %s", s->name, (unsigned long long)s->token_line, text);
}

// The next byte without taking it; EOF at the end.
static int peek(struct json_stream *s) {
    if (s->at < s->end)
        return (unsigned char)*s->at;
    if (s->file == NULL)
        return EOF;
    size_t n = fread(s->chunk, 1, CHUNK_BYTES, s->file);
    if (n == 0)
        return EOF;
    s->at = s->chunk;
    s->end = s->chunk + n;
    s->read_bytes += n;
    return (unsigned char)*s->at;
}

static int take(struct json_stream *s) {
    int c = peek(s);
    if (c != EOF) {
        s->at++;
        s->line += c == '\n';
    }
    return c;
}

static void skip_space(struct json_stream *s) {
    for (int c = peek(s); c == ' ' || c == '\n' || c == '\r' || c == '\t'; c = peek(s))
        take(s);
    s->token_line = s->line;
}

static bool cut_off(const struct json_stream *s, struct err *e) {
    if (s->file && ferror(s->file))
        return err_set(e, ERR_INPUT, "%s: cannot be read", s->name);
    return json_stream_fail(s, e, "the file is cut off here, %zu levels deep", s->depth);
}

static bool unexpected(const struct json_stream *s, int c, const char *wanted, struct err *e) {
    if (c == EOF)
        return cut_off(s, e);
    if (c >= ' ' && c < 127)
        return json_stream_fail(s, e, "expected %s, found '%c'", wanted, c);
    return json_stream_fail(s, e, "expected %s, found byte 0x%02x", wanted, (unsigned)c);
}

// ---- scalars ------------------------------------------------------------------------------------

static void put(struct json_stream *s, size_t *n, int c) {
    if (*n < JSON_STREAM_TEXT_MAX)
        s->text[(*n)++] = (char)c;
}

static void put_utf8(struct json_stream *s, size_t *n, unsigned code) {
    if (code < 0x80) {
        put(s, n, (int)code);
    } else if (code < 0x800) {
        put(s, n, (int)(0xc0 | code >> 6));
        put(s, n, (int)(0x80 | (code & 0x3f)));
    } else { // halves of a surrogate pair stay apart: names are only compared
        put(s, n, (int)(0xe0 | code >> 12));
        put(s, n, (int)(0x80 | (code >> 6 & 0x3f)));
        put(s, n, (int)(0x80 | (code & 0x3f)));
    }
}

static bool read_escape(struct json_stream *s, size_t *n, struct err *e) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = take(s);
    const char *found = c == EOF || c == 0 ? NULL : strchr(from, c);
    if (found) {
        put(s, n, to[found - from]);
        return true;
    }
    if (c != 'u')
        return unexpected(s, c, "an escape", e);
    unsigned code = 0;
    for (int i = 0; i < 4; i++) {
        c = take(s);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return unexpected(s, c, "a hexadecimal digit", e);
        code = code * 16 + (unsigned)digit;
    }
    put_utf8(s, n, code ? code : 0xfffd);
    return true;
}

static bool read_string(struct json_stream *s, struct err *e) {
    size_t n = 0;
    take(s);
    for (;;) {
        int c = take(s);
        if (c == '"')
            break;
        if (c == EOF)
            return cut_off(s, e);
        if (c < ' ')
            return json_stream_fail(s, e, "control character 0x%02x in a string", (unsigned)c);
        if (c != '\\')
            put(s, &n, c);
        else if (!read_escape(s, &n, e))
            return false;
    }
    s->text[n] = '\0';
    return true;
}

static bool read_digits(struct json_stream *s, size_t *n) {
    bool any = false;
    for (int c = peek(s); c >= '0' && c <= '9'; c = peek(s)) {
        if (*n < NUMBER_MAX)
            s->text[(*n)++] = (char)c;
        take(s);
        any = true;
    }
    return any;
}

static bool read_number(struct json_stream *s, struct err *e) {
    size_t n = 0;
    if (peek(s) == '-')
        s->text[n++] = (char)take(s);
    if (!read_digits(s, &n))
        return unexpected(s, peek(s), "a digit", e);
    if (peek(s) == '.') {
        s->text[n++] = (char)take(s);
        if (!read_digits(s, &n))
            return unexpected(s, peek(s), "a digit", e);
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->text[n++] = (char)take(s);
        if (peek(s) == '+' || peek(s) == '-')
            s->text[n++] = (char)take(s);
        if (!read_digits(s, &n))
            return unexpected(s, peek(s), "a digit", e);
    }
    s->text[n] = '\0';
    if (n >= NUMBER_MAX)
        return json_stream_fail(s, e, "a number of more than %d characters", NUMBER_MAX);
    s->number = strtod(s->text, NULL);
    return true;
}

static bool read_word(struct json_stream *s, enum json_token *out, struct err *e) {
    static const struct {
        const char *word;
        enum json_token token;
        double number;
    } words[] = {{"true", JSON_TOKEN_TRUE, 0},
                 {"false", JSON_TOKEN_FALSE, 0},
                 {"null", JSON_TOKEN_NULL, 0},
                 {"NaN", JSON_TOKEN_NUMBER, NAN},
                 {"nan", JSON_TOKEN_NUMBER, NAN},
                 {"inf", JSON_TOKEN_NUMBER, INFINITY},
                 {"Infinity", JSON_TOKEN_NUMBER, INFINITY}};
    size_t n = 0;
    int c = peek(s);
    for (; (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); c = peek(s)) {
        put(s, &n, c);
        take(s);
    }
    s->text[n] = '\0';
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (n > 0 && strcmp(s->text, words[i].word) == 0) {
            *out = words[i].token;
            s->number = words[i].number;
            return true;
        }
    if (n > 0)
        return c == EOF ? cut_off(s, e) : json_stream_fail(s, e, "'%.40s' is no value", s->text);
    return unexpected(s, c, "a value", e);
}

// ---- structure ----------------------------------------------------------------------------------

static void value_done(struct json_stream *s) {
    s->expect = s->depth > 0 ? EXPECT_COMMA : EXPECT_END;
}

static bool open_level(struct json_stream *s, int c, enum json_token *out, struct err *e) {
    if (s->depth == JSON_STREAM_DEPTH_MAX)
        return json_stream_fail(s, e, "deeper than %d levels", JSON_STREAM_DEPTH_MAX);
    take(s);
    s->open[s->depth++] = (char)c;
    s->expect = EXPECT_FIRST;
    *out = c == '{' ? JSON_TOKEN_OBJECT : JSON_TOKEN_ARRAY;
    return true;
}

static bool close_level(struct json_stream *s, enum json_token *out) {
    take(s);
    *out = s->open[--s->depth] == '{' ? JSON_TOKEN_OBJECT_END : JSON_TOKEN_ARRAY_END;
    value_done(s);
    return true;
}

static bool read_value(struct json_stream *s, enum json_token *out, struct err *e) {
    int c = peek(s);
    if (c == '{' || c == '[')
        return open_level(s, c, out, e);
    bool ok;
    if (c == '"') {
        *out = JSON_TOKEN_STRING;
        ok = read_string(s, e);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        *out = JSON_TOKEN_NUMBER;
        ok = read_number(s, e);
        int after = peek(s);
        if (ok && after != EOF && strchr(",]} \t\r\n", after) == NULL)
            return unexpected(s, after, "the end of a number", e);
    } else {
        ok = read_word(s, out, e);
    }
    if (ok)
        value_done(s);
    return ok;
}

static bool read_key(struct json_stream *s, enum json_token *out, struct err *e) {
    if (peek(s) != '"')
        return unexpected(s, peek(s), "a key", e);
    if (!read_string(s, e))
        return false;
    skip_space(s);
    if (peek(s) != ':')
        return unexpected(s, peek(s), "':'", e);
    take(s);
    s->expect = EXPECT_VALUE;
    *out = JSON_TOKEN_KEY;
    return true;
}

bool json_stream_next(struct json_stream *s, enum json_token *out, struct err *e) {
    skip_space(s);
    int c = peek(s);
    if (s->expect == EXPECT_END) {
        *out = JSON_TOKEN_END;
        return c == EOF || unexpected(s, c, "the end of the file", e);
    }
    if (s->expect == EXPECT_VALUE)
        return read_value(s, out, e);
    bool object = s->open[s->depth - 1] == '{';
    if ((s->expect == EXPECT_FIRST || s->expect == EXPECT_COMMA) && c == (object ? '}' : ']'))
        return close_level(s, out);
    if (s->expect == EXPECT_COMMA) {
        if (c != ',')
            return unexpected(s, c, object ? "',' or '}'" : "',' or ']'", e);
        take(s);
        skip_space(s);
    }
    return object ? read_key(s, out, e) : read_value(s, out, e);
}

bool json_stream_skip(struct json_stream *s, enum json_token token, struct err *e) {
    if (token != JSON_TOKEN_OBJECT && token != JSON_TOKEN_ARRAY)
        return true;
    size_t depth = s->depth - 1;
    while (s->depth > depth)
        if (!json_stream_next(s, &token, e))
            return false;
    return true;
}

const char *json_stream_text(const struct json_stream *s) {
    return s->text;
}

double json_stream_number(const struct json_stream *s) {
    return s->number;
}

bool json_stream_u64(const struct json_stream *s, uint64_t *out) {
    if (s->text[0] < '0' || s->text[0] > '9' || strpbrk(s->text, ".eE"))
        return false;
    errno = 0;
    unsigned long long v = strtoull(s->text, NULL, 10);
    if (errno == ERANGE)
        return false;
    *out = v;
    return true;
}

uint64_t json_stream_line(const struct json_stream *s) {
    return s->token_line;
}

uint64_t json_stream_bytes(const struct json_stream *s) {
    return s->read_bytes;
}

const char *json_stream_name(const struct json_stream *s) {
    return s->name;
}
