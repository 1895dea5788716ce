// SPDX-License-Identifier: Apache-2.0
// Figures as gnuplot input: a script of this program's own text, and a data file that holds every
// string and number from the results. A string from a file never reaches a script.
#pragma once

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define PLOT_WIDE 1080  // px, width of the wide picture
#define PLOT_NARROW 420 // px, width of the picture for phones
#define PLOT_LABEL 160  // bytes for a cleaned label

// Okabe-Ito, then two greys and the text colour.
enum plot_colour {
    PLOT_BLUE,
    PLOT_VERMILLION,
    PLOT_GREEN,
    PLOT_ORANGE,
    PLOT_SKY,
    PLOT_PURPLE,
    PLOT_YELLOW,
    PLOT_LIGHT,
    PLOT_GREY,
    PLOT_TEXT,
    PLOT_COLOUR_COUNT
};

struct plot {
    const char *name;          // file stem, [a-z0-9-]
    const char *heading;       // constant caption
    const char *alt;           // the finding, in a sentence
    int height, narrow_height; // px
    FILE *data, *common, *wide, *narrow, *draw;
    char *data_text, *common_text, *wide_text, *narrow_text, *draw_text;
    size_t data_bytes, common_bytes, wide_bytes, narrow_bytes, draw_bytes;
    int blocks;                  // data blocks written, for `index`
    int rows;                    // rows of the last block
    int clauses;                 // parts of the plot command written
    const char *trouble;         // why there is no picture, or NULL
    char *wide_svg, *narrow_svg; // filled by gnuplot_draw; malloc'd or NULL
};

struct plot_set {
    struct arena *arena;
    struct plot **plots;
    size_t count, capacity;
};

void plot_set_init(struct plot_set *s, struct arena *a);
void plot_set_finish(struct plot_set *s);
// A new figure; a second one of the same stem becomes "stem-2".
struct plot *plot_add(struct plot_set *s, const char *stem, const char *heading);
void plot_close(struct plot *p); // ends writing; the texts become valid

// Data file. Fields of a row are separated by tabs, blocks by blank lines.
int plot_block(struct plot *p); // starts a block, returns its index
void plot_number(struct plot *p, double v);
void plot_string(struct plot *p, const char *s, size_t limit); // at most `limit` characters
void plot_row_end(struct plot *p);

// The plot command: clauses are joined by commas.
void plot_clause(struct plot *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

const char *plot_rgb(enum plot_colour c); // "#0072B2"
// Text over a fill of that colour: "#ffffff" variants keep their colour in the dark page.
const char *plot_ink(enum plot_colour c);

// A figure whose bodies, wide and narrow, take `body` px below a key of `names` entries, the
// longest of `longest` characters: sets both heights and writes the key across the top of both
// pictures.
void plot_key(struct plot *p, size_t names, size_t longest, const int body[2]);

// Whole script of a figure; the caller frees it.
char *plot_script(const struct plot *p);
