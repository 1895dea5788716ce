// SPDX-License-Identifier: Apache-2.0
// Runs gnuplot on the figures of a page and takes its pictures into the page.
#pragma once

#include "base/err.h"
#include "plot.h"

#include <stdbool.h>

// Write DIR/plots/NAME.gp and .dat for each figure, run `program` on them (a few at a time), and
// read the pictures back. A figure that cannot be drawn gets its `trouble`; that is not an error.
// `program` NULL: draw nothing and say so. Errors: the files cannot be written.
bool gnuplot_draw(struct plot_set *s, const char *dir, const char *program, struct err *e);

// gnuplot's SVG as markup for the page: only known elements, ids made unique by `id`, its name
// given by `alt`. NULL when the text is not such an SVG. The caller frees it.
char *gnuplot_inline(const char *svg, const char *id, const char *variant, const char *alt);
