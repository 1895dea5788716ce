// SPDX-License-Identifier: Apache-2.0
// gnuplot's SVG rewritten for the page: see gnuplot_inline.
#include "gnuplot.h"
#include "html.h"

#include <stdlib.h>
#include <string.h>

static bool is_known(const char *name, size_t length) {
    static const char *const known[] = {"g",    "path",   "text",    "polygon", "polyline",
                                        "rect", "circle", "use",     "defs",    "pattern",
                                        "line", "tspan",  "clipPath"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i]) == length && memcmp(known[i], name, length) == 0)
            return true;
    return false;
}

// gnuplot's point shapes keep their ids: the page defines each once. Others get the figure's id.
static bool is_shared(const char *id) {
    return strncmp(id, "gpPt", 4) == 0 || strncmp(id, "gpDot", 5) == 0;
}

static bool starts(const char *s, const char *prefix) {
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

// One tag from `<` to its `>`, with ids rewritten and references kept inside the page.
static void put_tag(struct html *h, const char *tag, const char *end, const char *id) {
    for (const char *c = tag; c < end;) {
        size_t skip = 0;
        if (starts(c, "id='") || starts(c, "id=\""))
            skip = 4;
        else if (starts(c, "href='#") || starts(c, "url(#"))
            skip = c[0] == 'h' ? 7 : 5;
        if (skip == 0) {
            fputc(*c++ == '\n' ? ' ' : c[-1], h->out);
            continue;
        }
        fwrite(c, 1, skip, h->out);
        c += skip;
        if (!is_shared(c))
            html_printf(h, "%s-", id);
    }
}

static const char *skip_element(const char *tag, const char *closing) {
    const char *end = strstr(tag, closing);
    return end ? end + strlen(closing) : NULL;
}

// Past the shared definitions that open the file.
static const char *body_of(const char *svg) {
    const char *canvas = strstr(svg, "<g id=\"gnuplot_canvas\">");
    const char *defs = canvas ? strstr(canvas, "</defs>") : NULL;
    return defs ? defs + strlen("</defs>") : NULL;
}

static const char *dimension(const char *svg, const char *name, int *out) {
    const char *at = strstr(svg, name);
    char *end = NULL;
    if (!at)
        return NULL;
    *out = (int)strtol(at + strlen(name), &end, 10);
    return end;
}

static bool put_body(struct html *h, const char *c, const char *id) {
    while (*c) {
        if (*c != '<') {
            fputc(*c++, h->out);
            continue;
        }
        const char *end = strchr(c, '>');
        if (!end)
            return false;
        end++;
        const char *name = c[1] == '/' ? c + 2 : c + 1;
        size_t length = strcspn(name, " \t\r\n/>");
        if (starts(c, "<title>"))
            c = skip_element(c, "</title>");
        else if (starts(c, "</svg>"))
            return true;
        else if (!is_known(name, length))
            return false;
        else {
            put_tag(h, c, end, id);
            c = end;
        }
        if (!c)
            return false;
    }
    return false;
}

char *gnuplot_inline(const char *svg, const char *id, const char *variant, const char *alt) {
    struct html h;
    int width = 0, height = 0;
    const char *body = body_of(svg);
    if (!body || !dimension(svg, "width=\"", &width) || !dimension(svg, "height=\"", &height))
        return NULL;
    html_init(&h);
    html_printf(&h, "<svg class=\"%s\" viewBox=\"0 0 %d %d\" role=img aria-label=\"", variant,
                width, height);
    html_text(&h, alt);
    html_raw(&h, "\"><g>");
    bool good = put_body(&h, body, id);
    html_raw(&h, "</svg>");
    html_finish(&h);
    if (good)
        return h.text;
    free(h.text);
    return NULL;
}
