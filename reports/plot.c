// SPDX-License-Identifier: Apache-2.0
#include "plot.h"

#include "html.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *const colour_rgb[] = {
    [PLOT_BLUE] = "#0072B2",   [PLOT_VERMILLION] = "#D55E00", [PLOT_GREEN] = "#009E73",
    [PLOT_ORANGE] = "#E69F00", [PLOT_SKY] = "#56B4E9",        [PLOT_PURPLE] = "#CC79A7",
    [PLOT_YELLOW] = "#F0E442", [PLOT_LIGHT] = "#BBBBBB",      [PLOT_GREY] = "#808080",
    [PLOT_TEXT] = "#000000",
};
_Static_assert(sizeof colour_rgb / sizeof *colour_rgb == PLOT_COLOUR_COUNT, "one per colour");

const char *plot_rgb(enum plot_colour c) {
    return colour_rgb[c];
}

// Not quite black and not quite white: the page repaints only the exact ones in dark mode.
const char *plot_ink(enum plot_colour c) {
    return c == PLOT_BLUE || c == PLOT_TEXT ? "#FFFFFE" : "#000001";
}

void plot_set_init(struct plot_set *s, struct arena *a) {
    *s = (struct plot_set){.arena = a};
}

static void free_texts(struct plot *p) {
    free(p->data_text);
    free(p->common_text);
    free(p->wide_text);
    free(p->narrow_text);
    free(p->draw_text);
    free(p->wide_svg);
    free(p->narrow_svg);
}

void plot_set_finish(struct plot_set *s) {
    for (size_t i = 0; i < s->count; i++) {
        plot_close(s->plots[i]);
        free_texts(s->plots[i]);
    }
    free(s->plots);
    s->plots = NULL;
    s->count = 0;
}

static const char *unique_name(struct plot_set *s, const char *stem) {
    size_t same = 1, length = strlen(stem);
    for (size_t i = 0; i < s->count; i++) {
        const char *name = s->plots[i]->name;
        if (strncmp(name, stem, length) == 0 &&
            (name[length] == '\0' ||
             (name[length] == '-' &&
              strspn(name + length + 1, "0123456789") == strlen(name + length + 1))))
            same++;
    }
    return same == 1 ? arena_strdup(s->arena, stem) : arena_printf(s->arena, "%s-%zu", stem, same);
}

static FILE *stream(char **text, size_t *bytes) {
    FILE *f = open_memstream(text, bytes);
    if (!f)
        abort();
    return f;
}

struct plot *plot_add(struct plot_set *s, const char *stem, const char *heading) {
    struct plot *p = arena_alloc(s->arena, sizeof *p);
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 16;
        s->plots = realloc(s->plots, s->capacity * sizeof *s->plots);
        if (!s->plots)
            abort();
    }
    p->name = unique_name(s, stem);
    p->heading = heading;
    p->alt = heading;
    p->height = p->narrow_height = 400;
    p->data = stream(&p->data_text, &p->data_bytes);
    p->common = stream(&p->common_text, &p->common_bytes);
    p->wide = stream(&p->wide_text, &p->wide_bytes);
    p->narrow = stream(&p->narrow_text, &p->narrow_bytes);
    p->draw = stream(&p->draw_text, &p->draw_bytes);
    s->plots[s->count++] = p;
    return p;
}

void plot_close(struct plot *p) {
    FILE **files[] = {&p->data, &p->common, &p->wide, &p->narrow, &p->draw};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (*files[i] && fclose(*files[i]) != 0)
            abort();
        *files[i] = NULL;
    }
}

int plot_block(struct plot *p) {
    if (p->blocks > 0 && p->rows == 0)
        fputs("NaN\tNaN\tNaN\tNaN\tNaN\n", p->data); // gnuplot does not count an empty block
    if (p->blocks > 0)
        fputs("\n\n", p->data);
    p->rows = 0;
    return p->blocks++;
}

void plot_number(struct plot *p, double v) {
    if (isfinite(v))
        fprintf(p->data, "%.9g\t", v);
    else
        fputs("NaN\t", p->data);
}

// gnuplot reads escapes inside quoted data, and a double quote would end the field.
void plot_string(struct plot *p, const char *s, size_t limit) {
    char text[PLOT_LABEL];
    size_t count = html_clean(text, sizeof text, s, limit);
    fputc('"', p->data);
    for (const char *c = text; *c; c++) {
        if (*c == '\\')
            fputs("\\\\", p->data);
        else
            fputc(*c == '"' ? '\'' : *c, p->data);
    }
    fputs(count ? "\"\t" : " \"\t", p->data);
}

void plot_row_end(struct plot *p) {
    fputc('\n', p->data);
    p->rows++;
}

void plot_clause(struct plot *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs(p->clauses++ ? ", \\\n     " : "plot ", p->draw);
    vfprintf(p->draw, format, args);
    va_end(args);
}

// gnuplot fills columns of `rows` entries; it chooses fewer columns itself only when told no rows.
static int write_key(FILE *out, bool narrow, size_t names, size_t longest, int body) {
    double room = narrow ? PLOT_NARROW - 16 : PLOT_WIDE - 40;
    double entry = (narrow ? 7.2 : 8.4) * (double)longest + (narrow ? 44 : 58);
    size_t columns = entry < room ? (size_t)(room / entry) : 1;
    size_t rows = (names + columns - 1) / columns;
    int px = names ? 16 + (narrow ? 17 : 21) * (int)rows : 12;
    double height = body + px;
    if (names == 0) {
        fprintf(out, "unset key\nset tmargin at screen %.4f\n", 1 - px / height);
        return px;
    }
    fprintf(out,
            "set key at screen %.3f,%.4f left top vertical maxrows %zu Left reverse samplen %s "
            "width 0\nset tmargin at screen %.4f\n",
            narrow ? 0.02 : 0.03, 1 - 4 / height, rows, narrow ? "1" : "1.4", 1 - px / height);
    return px;
}

void plot_key(struct plot *p, size_t names, size_t longest, const int body[2]) {
    p->height = body[0] + write_key(p->wide, false, names, longest, body[0]);
    p->narrow_height = body[1] + write_key(p->narrow, true, names, longest, body[1]);
}

char *plot_script(const struct plot *p) {
    struct html out;
    html_init(&out);
    html_printf(&out,
                "# Draw again with: gnuplot %s.gp (reads %s.dat; writes %s.svg, %s-narrow.svg, "
                "%s.png)\n",
                p->name, p->name, p->name, p->name, p->name);
    html_printf(&out, "file = '%s.dat'\n", p->name);
    html_raw(&out, "set encoding utf8\nset datafile separator \"\\t\"\n"
                   "set datafile missing \"NaN\"\nset datafile commentschars \"\"\n"
                   "set border 3 lc rgb \"#808080\"\n"
                   "set tics nomirror scale 0.4 textcolor rgb \"#000000\"\nset clip two\n");
    html_raw(&out, p->common_text);
    html_printf(&out,
                "\nnarrow = 0\nset terminal svg size %d,%d font \"sans-serif,14\" noenhanced\n"
                "set output '%s.svg'\n%s%s\n",
                PLOT_WIDE, p->height, p->name, p->wide_text, p->draw_text);
    html_printf(&out,
                "\nnarrow = 1\nset terminal svg size %d,%d font \"sans-serif,12\" noenhanced\n"
                "set output '%s-narrow.svg'\n%sreplot\n",
                PLOT_NARROW, p->narrow_height, p->name, p->narrow_text);
    html_printf(&out,
                "\nnarrow = 0\nset terminal pngcairo size %d,%d font \"sans-serif,14\" fontscale "
                "1.125 linewidth "
                "1.5 pointscale 1.5 noenhanced background \"#ffffff\"\nset output "
                "'%s.png'\n%sreplot\nset output\n",
                PLOT_WIDE * 3 / 2, p->height * 3 / 2, p->name, p->wide_text);
    html_finish(&out);
    return out.text;
}
