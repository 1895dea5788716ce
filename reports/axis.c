// SPDX-License-Identifier: Apache-2.0
#include "axis.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

#define AXIS_TICKS 64

// The 1-2-5 step that gives at most `want` intervals over `span`.
static double nice_step(double span, int want) {
    double raw = span / (want > 0 ? want : 1);
    double power = pow(10, floor(log10(raw)));
    static const double steps[] = {1, 2, 5, 10};
    for (size_t i = 0; i < 4; i++)
        if (steps[i] * power >= raw * 0.999)
            return steps[i] * power;
    return 10 * power;
}

static double log_base(const struct axis *x) {
    return x->kind == AXIS_PLAIN ? 10 : 2;
}

void axis_fit(struct axis *x, double min, double max) {
    if (isnan(min) || isnan(max)) {
        min = x->log ? 1 : 0;
        max = x->log ? 10 : 1;
    }
    if (x->log) {
        double base = log_base(x), margin = base == 2 ? 0.4 : 0.06;
        if (max / min < 2) { // room for a tick on both sides
            min /= base == 2 ? 2 : 1.5;
            max *= base == 2 ? 2 : 1.5;
        }
        x->low = min * pow(base, -margin);
        x->high = max * pow(base, margin);
        return;
    }
    if (x->from_zero)
        min = fmin(min, 0);
    double least = 0.08 * fmax(fabs(min), fabs(max)); // small differences are shown as small
    if (!x->from_zero && max > min && max - min < least) {
        double middle = 0.5 * (min + max);
        min = middle - 0.5 * least;
        max = middle + 0.5 * least;
    }
    if (max <= min) {
        double pad = fabs(max) > 0 ? 0.2 * fabs(max) : 1;
        min = x->from_zero ? fmin(min, 0) : min - pad;
        max += pad;
    }
    double pad = 0.04 * (max - min);
    x->low = x->from_zero && min >= 0 ? 0 : min - pad;
    x->high = max + pad;
}

double axis_fraction(const struct axis *x, double v) {
    return x->log ? log(v / x->low) / log(x->high / x->low) : (v - x->low) / (x->high - x->low);
}

static size_t linear_ticks(const struct axis *x, int want, double *ticks) {
    double step = nice_step(x->high - x->low, want);
    size_t n = 0;
    for (double i = ceil(x->low / step - 1e-8); i * step <= x->high + 1e-8 * step && n < AXIS_TICKS;
         i++)
        ticks[n++] = fabs(i) < 0.5 ? 0 : i * step;
    return n;
}

static size_t power_ticks(const struct axis *x, double base, int want, double *ticks) {
    double first = ceil(log(x->low) / log(base) - 1e-8),
           last = floor(log(x->high) / log(base) + 1e-8);
    double stride = fmax(1, ceil((last - first + 1) / want));
    size_t n = 0;
    for (double e = ceil(first / stride) * stride; e <= last && n < AXIS_TICKS; e += stride)
        ticks[n++] = pow(base, e);
    return n;
}

// Few decades: 1-2-5 within each.
static size_t decade_ticks(const struct axis *x, double *ticks) {
    static const double steps[] = {1, 2, 5};
    size_t n = 0;
    for (double e = floor(log10(x->low)); e <= ceil(log10(x->high)); e++)
        for (size_t i = 0; i < 3; i++) {
            double v = steps[i] * pow(10, e);
            if (v >= x->low * 0.9999 && v <= x->high * 1.0001 && n < AXIS_TICKS)
                ticks[n++] = v;
        }
    return n;
}

static size_t choose(const struct axis *x, int want, double *ticks) {
    if (!x->log)
        return linear_ticks(x, want, ticks);
    if (log_base(x) == 2)
        return power_ticks(x, 2, want, ticks);
    if (x->high / x->low < 1000) {
        size_t n = decade_ticks(x, ticks);
        if (n <= (size_t)want + 2)
            return n > 2 ? n : linear_ticks(x, want, ticks);
    }
    return power_ticks(x, 10, want, ticks);
}

static void tick_text(const struct axis *x, double v, char *text, size_t size) {
    if (x->kind == AXIS_BYTES)
        units_format_bytes(text, size, v);
    else if (fabs(v) >= UNITS_TERA)
        snprintf(text, size, "%.2g", v);
    else if (fabs(v) >= UNITS_MEGA)
        snprintf(text, size, "%.4g M", v / UNITS_MEGA);
    else if (fabs(v) >= 10 * UNITS_KILO)
        snprintf(text, size, "%.4g k", v / UNITS_KILO);
    else if (v != 0 && fabs(v) < UNITS_MILLI)
        snprintf(text, size, "%.3g", v);
    else
        snprintf(text, size, "%.6g", v);
}

void axis_write_ticks(const struct axis *x, char name, int want, FILE *out) {
    double ticks[AXIS_TICKS];
    size_t n = choose(x, want, ticks);
    fprintf(out, "set %ctics (", name);
    for (size_t i = 0; i < n; i++) {
        char text[64];
        tick_text(x, ticks[i], text, sizeof text);
        fprintf(out, "%s\"%s\" %.12g", i ? ", " : "", text, ticks[i]);
    }
    fputs(")\n", out);
}

size_t axis_widest(const struct axis *x, int want) {
    double ticks[AXIS_TICKS];
    size_t n = choose(x, want, ticks), longest = 1;
    for (size_t i = 0; i < n; i++) {
        char text[64];
        tick_text(x, ticks[i], text, sizeof text);
        longest = strlen(text) > longest ? strlen(text) : longest;
    }
    return longest;
}

void axis_write(const struct axis *x, char name, int want, FILE *out) {
    if (x->log)
        fprintf(out, "set logscale %c %g\n", name, log_base(x));
    fprintf(out, "set %crange [%.12g:%.12g]\nset %clabel \"%s\"\n", name, x->low, x->high, name,
            x->label);
    axis_write_ticks(x, name, want, out);
}

double axis_seconds(double max, const char **unit) {
    static const struct {
        const char *name;
        double scale;
    } units[] = {{"s", 1}, {"ms", UNITS_MILLI}, {"\xc2\xb5s", UNITS_MICRO}};
    size_t i = !(max > 0) || max >= 1 ? 0 : max >= UNITS_MILLI ? 1 : 2;
    *unit = units[i].name;
    return units[i].scale;
}

double axis_bytes(double max, const char **unit) {
    static const struct {
        const char *name;
        double scale;
    } units[] = {{"GiB", (double)UNITS_GIB},
                 {"MiB", (double)UNITS_MIB},
                 {"KiB", (double)UNITS_KIB},
                 {"B", 1}};
    size_t i = 0;
    while (i < 3 && max < units[i].scale)
        i++;
    *unit = units[i].name;
    return units[i].scale;
}

double axis_rate(double max, const char **unit) {
    static const struct {
        const char *name;
        double scale;
    } units[] = {{"GB/s", UNITS_GIGA}, {"MB/s", UNITS_MEGA}, {"kB/s", UNITS_KILO}};
    size_t i = 0;
    while (i < 2 && max < units[i].scale)
        i++;
    *unit = max > 0 ? units[i].name : units[0].name;
    return max > 0 ? units[i].scale : units[0].scale;
}
