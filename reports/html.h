// SPDX-License-Identifier: Apache-2.0
// A page under construction. Text from files only enters through html_text and html_user, which
// escape it; html_raw and html_printf are for this program's own markup and numbers.
#pragma once

#include <stddef.h>
#include <stdio.h>

struct html {
    FILE *out;
    char *text;   // valid after html_finish; malloc'd
    size_t bytes; // likewise
    int file;     // index of the result file that figures now come from (data-file)
};

void html_init(struct html *h);
void html_finish(struct html *h);  // closes `out`; the caller frees text
void html_discard(struct html *h); // closes and frees; safe on a zeroed or finished page

void html_raw(struct html *h, const char *markup);
void html_printf(struct html *h, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Escaped for element content and quoted attributes. Control characters become spaces, bytes that
// are not UTF-8 become U+FFFD. Direction controls are dropped. NULL writes nothing.
void html_text(struct html *h, const char *s);
// The same inside <bdi>, so that right-to-left text cannot reorder what surrounds it.
void html_user(struct html *h, const char *s);
// The same line by line, for <pre>: only the ends of lines stay.
void html_lines(struct html *h, const char *s);

// Copy `s` with the same cleaning but no escaping; at most `limit` characters, then an ellipsis.
// Returns characters written to `out` (not bytes). `size` counts bytes with the final NUL.
size_t html_clean(char *out, size_t size, const char *s, size_t limit);
