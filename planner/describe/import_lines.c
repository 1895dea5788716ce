// SPDX-License-Identifier: Apache-2.0
#include "describe/import_lines.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ESC [ ... letter, and the bare "[4m" that is left when a terminal ate the ESC.
static size_t colour_length(const char *p) {
    size_t n = 0;
    if (p[0] == '\033')
        n = 1;
    if (p[n] != '[')
        return n;
    size_t k = n + 1;
    while (isdigit((unsigned char)p[k]) || p[k] == ';')
        k++;
    if (p[k] == 'm' && (n == 1 || k > n + 1))
        return k + 1;
    return n;
}

static char *without_colours(const char *from, size_t bytes, struct arena *a) {
    char *line = arena_alloc(a, bytes + 1), *out = line;
    memcpy(line, from, bytes);
    for (const char *p = line; *p;) {
        size_t n = colour_length(p);
        if (n > 0) {
            p += n;
            continue;
        }
        if (*p != '\r')
            *out++ = *p;
        p++;
    }
    *out = '\0';
    return line;
}

// "[1,0]<stdout>:", "[0]", "0: ": what launchers put before a rank's line.
static const char *after_prefix(const char *p) {
    const char *q = p;
    if (*q == '[') {
        q++;
        while (isdigit((unsigned char)*q) || *q == ',')
            q++;
        if (q == p + 1 || *q != ']')
            return p;
        q++;
        if (strncmp(q, "<stdout>:", 9) == 0 || strncmp(q, "<stderr>:", 9) == 0)
            q += 9;
        else if (*q == ':')
            q++;
        return q;
    }
    while (isdigit((unsigned char)*q))
        q++;
    return q > p && q[0] == ':' && (q[1] == ' ' || q[1] == '#') ? q + 1 : p;
}

static void split_words(struct import_line *line, struct arena *a) {
    char *copy = arena_strdup(a, line->text), *save = NULL;
    for (char *w = strtok_r(copy, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
        if (line->word_count == IMPORT_WORDS_MAX)
            return;
        line->words[line->word_count++] = w;
    }
}

void import_split(const char *text, size_t bytes, struct arena *a, struct import_lines *out) {
    struct import_lines lines = {0};
    size_t most = 1;
    for (size_t i = 0; i < bytes; i++)
        most += text[i] == '\n';
    lines.items = arena_array(a, most, sizeof *lines.items);
    for (size_t start = 0; start < bytes;) {
        const char *end = memchr(text + start, '\n', bytes - start);
        size_t n = end ? (size_t)(end - text) - start : bytes - start;
        struct import_line *line = &lines.items[lines.count++];
        line->number = (int)lines.count;
        line->raw = without_colours(text + start, n, a);
        line->text = after_prefix(line->raw);
        split_words(line, a);
        start += n + 1;
    }
    *out = lines;
}

bool import_u64(const char *word, uint64_t *out) {
    char *end;
    if (!isdigit((unsigned char)word[0]))
        return false;
    errno = 0;
    unsigned long long v = strtoull(word, &end, 10);
    if (*end || errno)
        return false;
    *out = v;
    return true;
}

bool import_double(const char *word, double *out) {
    char *end;
    if (!isdigit((unsigned char)word[0]) && word[0] != '.' && word[0] != '-')
        return false;
    double v = strtod(word, &end);
    if (*end)
        return false;
    *out = v;
    return true;
}
