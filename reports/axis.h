// SPDX-License-Identifier: Apache-2.0
// Axes chosen here rather than by gnuplot, so that degenerate data still gets sensible ticks.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum axis_kind {
    AXIS_PLAIN, // numbers as they are; the label names the unit
    AXIS_BYTES, // log, ticks as 64 KiB, 1 MiB
    AXIS_COUNT  // log, ticks at powers of two: GPUs, nodes
};

struct axis {
    const char *label; // with its unit; constant text
    enum axis_kind kind;
    bool log;
    bool from_zero;   // a linear axis starts at 0
    double low, high; // range; set by axis_fit
};

// Choose low..high to hold min..max (either may be NAN: nothing known).
void axis_fit(struct axis *x, double min, double max);
// "set xrange", "set xlabel" and "set xtics (...)" for axis 'x' or 'y' with about `want` ticks.
void axis_write(const struct axis *x, char name, int want, FILE *out);
void axis_write_ticks(const struct axis *x, char name, int want, FILE *out);
// Characters of the longest of those ticks.
size_t axis_widest(const struct axis *x, int want);
// Fraction of the axis at v, 0 at low and 1 at high.
double axis_fraction(const struct axis *x, double v);
// A readable unit for seconds up to `max`: sets *unit ("s", "ms" or "µs") and returns the divisor.
double axis_seconds(double max, const char **unit);
// The same for bytes: "GiB", "MiB", "KiB" or "B".
double axis_bytes(double max, const char **unit);
// The same for rates: "GB/s", "MB/s" or "kB/s".
double axis_rate(double max, const char **unit);
