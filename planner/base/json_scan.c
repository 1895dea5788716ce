// SPDX-License-Identifier: Apache-2.0
#include "base/json_scan.h"

#include <ctype.h>
#include <string.h>

struct scan {
    const char *p, *end;
    const char *fault; // NULL while all is well
    const cJSON *target;
    const char *found;
};

static bool fail(struct scan *s, const char *fault) {
    if (!s->fault)
        s->fault = fault;
    return false;
}

static void skip_space(struct scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static char peek(const struct scan *s) {
    return s->p < s->end ? *s->p : '\0';
}

static bool scan_digits(struct scan *s) {
    if (!isdigit((unsigned char)peek(s)))
        return fail(s, "a digit is missing in a number");
    while (isdigit((unsigned char)peek(s)))
        s->p++;
    return true;
}

static bool scan_number(struct scan *s) {
    if (peek(s) == '-')
        s->p++;
    if (peek(s) == '0' && s->p + 1 < s->end && isdigit((unsigned char)s->p[1]))
        return fail(s, "a number starts with 0");
    if (!scan_digits(s))
        return false;
    if (peek(s) == '.') {
        s->p++;
        if (!scan_digits(s))
            return false;
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->p++;
        if (peek(s) == '+' || peek(s) == '-')
            s->p++;
        return scan_digits(s);
    }
    return true;
}

static bool scan_escape(struct scan *s) {
    s->p++;
    char c = peek(s);
    if (c != 'u') {
        if (!c || !strchr("\"\\/bfnrt", c))
            return fail(s, "an unknown escape in a string");
        s->p++;
        return true;
    }
    s->p++;
    bool zero = true;
    for (int i = 0; i < 4; i++, s->p++) {
        if (!isxdigit((unsigned char)peek(s)))
            return fail(s, "\\u needs four hexadecimal digits");
        zero = zero && *s->p == '0';
    }
    return zero ? fail(s, "a string holds the character 0") : true;
}

size_t json_scan_utf8(const unsigned char *p, size_t left) {
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (n == 0 || p[0] > 0xf4 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool surrogate = p[0] == 0xed && p[1] > 0x9f, beyond = p[0] == 0xf4 && p[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : n;
}

static bool scan_string(struct scan *s) {
    s->p++;
    while (s->p < s->end && *s->p != '"') {
        if (*s->p == '\\') {
            if (!scan_escape(s))
                return false;
            continue;
        }
        if ((unsigned char)*s->p < 0x20)
            return fail(s, "a control character or line end in a string");
        size_t n = json_scan_utf8((const unsigned char *)s->p, (size_t)(s->end - s->p));
        if (n == 0)
            return fail(s, "a string is not UTF-8");
        s->p += n;
    }
    if (s->p >= s->end)
        return fail(s, "a string has no end");
    s->p++;
    return true;
}

static bool scan_value(struct scan *s, const cJSON *item, int depth);

static bool scan_word(struct scan *s, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(s->end - s->p) < n || strncmp(s->p, word, n) != 0)
        return fail(s, "a value is missing or unknown");
    s->p += n;
    return true;
}

static bool scan_key(struct scan *s) {
    if (peek(s) != '"')
        return fail(s, "a member name in quotes is missing");
    if (!scan_string(s))
        return false;
    skip_space(s);
    if (peek(s) != ':')
        return fail(s, "a ':' is missing after a member name");
    s->p++;
    return true;
}

// An object or an array; `item` is NULL while only the syntax is checked.
static bool scan_container(struct scan *s, const cJSON *item, int depth) {
    const bool object = *s->p == '{';
    const char close = object ? '}' : ']';
    if (depth >= JSON_DEPTH_MAX)
        return fail(s, "nested more than 64 deep");
    s->p++;
    skip_space(s);
    if (peek(s) == close) {
        s->p++;
        return true;
    }
    for (const cJSON *child = item ? item->child : NULL;; child = child ? child->next : NULL) {
        skip_space(s);
        if ((object && !scan_key(s)) || !scan_value(s, child, depth + 1))
            return false;
        skip_space(s);
        char c = peek(s);
        if (c != ',' && c != close)
            return fail(s, object ? "a ',' or '}' is missing" : "a ',' or ']' is missing");
        s->p++;
        if (c == close)
            return true;
    }
}

// False ends the walk: at a fault, or because the target is found.
static bool scan_value(struct scan *s, const cJSON *item, int depth) {
    skip_space(s);
    if (item && item == s->target) {
        s->found = s->p;
        return false;
    }
    switch (peek(s)) {
    case '{':
    case '[':
        return scan_container(s, item, depth);
    case '"':
        return scan_string(s);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    default:
        if (peek(s) == '-' || isdigit((unsigned char)peek(s)))
            return scan_number(s);
        return fail(s, "a value is missing or unknown");
    }
}

const char *json_scan_check(const char *text, size_t bytes, size_t *at) {
    struct scan s = {.p = text, .end = text + bytes};
    if (scan_value(&s, NULL, 0)) {
        skip_space(&s);
        if (s.p < s.end)
            fail(&s, "text after the end of the document");
    }
    *at = (size_t)(s.p - text);
    return s.fault;
}

bool json_scan_find(const char *text, const cJSON *root, const cJSON *target, size_t *at) {
    struct scan s = {.p = text, .end = text + strlen(text), .target = target};
    scan_value(&s, root, 0);
    if (!s.found)
        return false;
    *at = (size_t)(s.found - text);
    return true;
}

int json_scan_line(const char *text, size_t at) {
    int line = 1;
    for (size_t i = 0; i < at; i++)
        line += text[i] == '\n';
    return line;
}
