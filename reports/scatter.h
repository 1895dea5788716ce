// SPDX-License-Identifier: Apache-2.0
// Measured against predicted, with the line of equality and a band of ten percent.
#pragma once

#include "page.h"

#include <stddef.h>

struct scatter_points {
    const double *predicted, *measured;
    size_t count;
    const char *name; // in the key
};

struct scatter {
    const char *stem, *heading;    // constants
    const char *x_label, *y_label; // measured, predicted, with units
    const char *finding;           // alt text; NULL: counted here
    const struct scatter_points *sets;
    size_t set_count; // up to 8
};
void scatter_figure(struct page *p, const struct scatter *s);

// Numbers of `key` in each element of `array` that passes; NAN where absent. `keys` is a list of
// spellings separated by "|".
double *scatter_column(struct view array, const char *keys);
double scatter_number(const cJSON *item, const char *keys);
