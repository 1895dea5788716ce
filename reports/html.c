// SPDX-License-Identifier: Apache-2.0
#include "html.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT 0xFFFDu
#define ELLIPSIS 0x2026u
#define DROPPED 0xFFFFFFFFu

void html_init(struct html *h) {
    h->text = NULL;
    h->bytes = 0;
    h->file = 0;
    h->out = open_memstream(&h->text, &h->bytes);
    if (!h->out)
        abort();
}

void html_finish(struct html *h) {
    if (h->out && fclose(h->out) != 0)
        abort();
    h->out = NULL;
}

void html_discard(struct html *h) {
    html_finish(h);
    free(h->text);
    h->text = NULL;
}

void html_raw(struct html *h, const char *markup) {
    fputs(markup, h->out);
}

void html_printf(struct html *h, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfprintf(h->out, format, args);
    va_end(args);
}

// One UTF-8 character from *s, advancing it; REPLACEMENT for a malformed byte.
static uint32_t next_character(const char **s) {
    const unsigned char *u = (const unsigned char *)*s;
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    int length = u[0] < 0x80 ? 1 : u[0] >= 0xF0 && u[0] < 0xF5 ? 4 : u[0] >= 0xE0 ? 3 : 2;
    uint32_t c = u[0];
    *s += 1;
    if (length == 1)
        return c;
    if (u[0] < 0xC2 || u[0] >= 0xF5)
        return REPLACEMENT;
    c &= 0xFFu >> (length + 1);
    for (int i = 1; i < length; i++) {
        if ((u[i] & 0xC0) != 0x80)
            return REPLACEMENT;
        c = c << 6 | (u[i] & 0x3F);
    }
    if (c < lowest[length] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return REPLACEMENT;
    *s += length - 1;
    return c;
}

static uint32_t clean_character(uint32_t c) {
    if (c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029)
        return ' ';
    if (c == 0x200E || c == 0x200F || c == 0x061C || (c >= 0x202A && c <= 0x202E) ||
        (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF)
        return DROPPED;
    return c == 0xFFFE || c == 0xFFFF ? REPLACEMENT : c;
}

static size_t put_utf8(char *out, uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    out[0] = (char)(lead[length] | c);
    return length;
}

static const char *escape_of(uint32_t c) {
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void html_text(struct html *h, const char *s) {
    while (s && *s) {
        uint32_t c = clean_character(next_character(&s));
        char utf8[4];
        if (c == DROPPED)
            continue;
        const char *escape = escape_of(c);
        if (escape)
            fputs(escape, h->out);
        else
            fwrite(utf8, 1, put_utf8(utf8, c), h->out);
    }
}

void html_lines(struct html *h, const char *s) {
    while (s && *s) {
        size_t length = strcspn(s, "\n");
        char *line = strndup(s, length);
        if (!line)
            abort();
        html_user(h, line);
        free(line);
        s += length;
        if (*s == '\n') {
            html_raw(h, "\n");
            s++;
        }
    }
}

void html_user(struct html *h, const char *s) {
    html_raw(h, "<bdi>");
    html_text(h, s);
    html_raw(h, "</bdi>");
}

size_t html_clean(char *out, size_t size, const char *s, size_t limit) {
    size_t used = 0, count = 0;
    while (s && *s && used + 8 < size) {
        uint32_t c = clean_character(next_character(&s));
        if (c == DROPPED)
            continue;
        if (count + 1 == limit && *s) {
            used += put_utf8(out + used, ELLIPSIS);
            count++;
            break;
        }
        used += put_utf8(out + used, c);
        count++;
    }
    out[used] = '\0';
    return count;
}
