// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    double factor;
};

#define UNITS_PIB (1ULL << 50)
#define UNITS_PETA 1e15
#define BITS 0.125 // bytes in a bit

static const struct unit byte_units[] = {
    {"", 1},
    {"B", 1},
    {"kB", UNITS_KILO},
    {"KB", UNITS_KILO},
    {"MB", UNITS_MEGA},
    {"GB", UNITS_GIGA},
    {"TB", UNITS_TERA},
    {"PB", UNITS_PETA},
    {"KiB", UNITS_KIB},
    {"MiB", UNITS_MIB},
    {"GiB", UNITS_GIB},
    {"TiB", UNITS_TIB},
    {"PiB", UNITS_PIB},
    {NULL, 0},
};

// The part before "/s" or "ps". No bare number: bits and bytes would be guessed.
static const struct unit rate_units[] = {
    {"B", 1},
    {"kB", UNITS_KILO},
    {"KB", UNITS_KILO},
    {"MB", UNITS_MEGA},
    {"GB", UNITS_GIGA},
    {"TB", UNITS_TERA},
    {"KiB", UNITS_KIB},
    {"MiB", UNITS_MIB},
    {"GiB", UNITS_GIB},
    {"TiB", UNITS_TIB},
    {"b", BITS},
    {"kb", UNITS_KILO *BITS},
    {"Kb", UNITS_KILO *BITS},
    {"Mb", UNITS_MEGA *BITS},
    {"Gb", UNITS_GIGA *BITS},
    {"Tb", UNITS_TERA *BITS},
    {"bit", BITS},
    {"kbit", UNITS_KILO *BITS},
    {"Mbit", UNITS_MEGA *BITS},
    {"Gbit", UNITS_GIGA *BITS},
    {"Tbit", UNITS_TERA *BITS},
    {NULL, 0},
};

static const struct unit second_units[] = {
    {"", 1},
    {"s", 1},
    {"ms", UNITS_MILLI},
    {"us", UNITS_MICRO},
    {"µs", UNITS_MICRO},
    {"ns", UNITS_NANO},
    {"min", 60},
    {"h", 3600},
    {"d", 86400},
    {NULL, 0},
};

static const struct unit count_units[] = {
    {"", 1},           {"k", UNITS_KILO}, {"K", UNITS_KILO}, {"m", UNITS_MEGA}, {"M", UNITS_MEGA},
    {"b", UNITS_GIGA}, {"B", UNITS_GIGA}, {"G", UNITS_GIGA}, {"t", UNITS_TERA}, {"T", UNITS_TERA},
    {"Ki", UNITS_KIB}, {"Mi", UNITS_MIB}, {"Gi", UNITS_GIB}, {NULL, 0},
};

// A plain decimal number (no hex, infinity or NaN) at the start of s; NULL when there is none.
static const char *parse_number(const char *s, long double *out) {
    const char *p = s;
    while (isspace((unsigned char)*p))
        p++;
    const char *digits = p + (*p == '-' || *p == '+');
    if (!isdigit((unsigned char)*digits) && !(*digits == '.' && isdigit((unsigned char)digits[1])))
        return NULL;
    if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X'))
        return NULL;
    char *end;
    errno = 0;
    *out = strtold(p, &end);
    if (errno == ERANGE || !isfinite(*out))
        return NULL;
    while (*end == ' ')
        end++;
    return end;
}

static const struct unit *find_unit(const struct unit *units, const char *name, size_t length) {
    for (const struct unit *u = units; u->name; u++)
        if (strlen(u->name) == length && strncmp(u->name, name, length) == 0)
            return u;
    return NULL;
}

static size_t trimmed_length(const char *s) {
    size_t length = strlen(s);
    while (length && isspace((unsigned char)s[length - 1]))
        length--;
    return length;
}

// value >= 0 times its unit; false without an error record when the text is anything else.
static bool parse_scaled(const char *s, const struct unit *units, long double *out) {
    long double number;
    const char *rest = s ? parse_number(s, &number) : NULL;
    const struct unit *u = rest ? find_unit(units, rest, trimmed_length(rest)) : NULL;
    if (!u || number < 0)
        return false;
    // Divide by the whole reciprocal of a small unit: 25 us must be the double nearest 25e-6.
    *out = u->factor < 1 ? number / roundl(1 / (long double)u->factor)
                         : number * (long double)u->factor;
    return true;
}

static bool to_u64(long double v, uint64_t *out) {
    const long double limit = 18446744073709551616.0L; // 2^64
    v = roundl(v);
    if (v >= limit)
        return false;
    *out = (uint64_t)v;
    return true;
}

static const char *shown(const char *s) {
    return s ? s : "";
}

bool units_parse_bytes(const char *s, uint64_t *out_bytes, struct err *e) {
    long double v;
    if (!parse_scaled(s, byte_units, &v))
        return err_set(e, ERR_INPUT,
                       "'%.64s': expected a size such as 64MiB (2^20), 64MB (10^6), 1.5GB or 4096",
                       shown(s));
    if (!to_u64(v, out_bytes))
        return err_set(e, ERR_INPUT, "'%.64s': larger than 2^64 bytes", s);
    return true;
}

bool units_parse_rate(const char *s, double *out_bytes_per_s, struct err *e) {
    long double number;
    const char *rest = s ? parse_number(s, &number) : NULL;
    size_t length = rest ? trimmed_length(rest) : 0;
    const struct unit *u = NULL;
    if (length > 2 &&
        (strncmp(rest + length - 2, "/s", 2) == 0 || strncmp(rest + length - 2, "ps", 2) == 0))
        u = find_unit(rate_units, rest, length - 2);
    if (!u || number < 0 || !isfinite((double)(number * (long double)u->factor)))
        return err_set(e, ERR_INPUT,
                       "'%.64s': expected a rate with its unit, such as 400Gb/s (bits) or 25GB/s",
                       shown(s));
    *out_bytes_per_s = (double)(number * (long double)u->factor);
    return true;
}

bool units_parse_seconds(const char *s, double *out_s, struct err *e) {
    long double v;
    if (!parse_scaled(s, second_units, &v) || !isfinite((double)v))
        return err_set(e, ERR_INPUT, "'%.64s': expected a time such as 2.5us, 10ms or 3s",
                       shown(s));
    *out_s = (double)v;
    return true;
}

bool units_parse_count(const char *s, uint64_t *out, struct err *e) {
    long double v;
    uint64_t whole;
    if (!parse_scaled(s, count_units, &v))
        return err_set(e, ERR_INPUT, "'%.64s': expected a count such as 4096, 2M, 7B or 1e9",
                       shown(s));
    if (!to_u64(v, &whole))
        return err_set(e, ERR_INPUT, "'%.64s': larger than 2^64", s);
    // 6.74B has no exact binary form, so a whole number is one up to rounding.
    if (fabsl(v - (long double)whole) > v * 1e-15L)
        return err_set(e, ERR_INPUT, "'%.64s': expected a whole number", s);
    *out = whole;
    return true;
}

bool units_parse_double(const char *s, double *out, struct err *e) {
    long double number;
    const char *rest = s ? parse_number(s, &number) : NULL;
    if (!rest || trimmed_length(rest) > 0 || !isfinite((double)number))
        return err_set(e, ERR_INPUT, "'%.64s': expected a number", shown(s));
    *out = strtod(s, NULL);
    return true;
}

// `significant` digits without an exponent; trailing zeros of the fraction go.
static void format_number(char *buf, size_t size, double v, int significant) {
    int magnitude = v != 0 ? (int)floor(log10(fabs(v))) : 0;
    int decimals = significant - 1 - magnitude;
    decimals = decimals < 0 ? 0 : decimals > 12 ? 12 : decimals;
    snprintf(buf, size, "%.*f", decimals, v);
    if (!strchr(buf, '.'))
        return;
    size_t n = strlen(buf);
    while (buf[n - 1] == '0')
        buf[--n] = '\0';
    if (buf[n - 1] == '.')
        buf[--n] = '\0';
}

// units run from small to large; the largest that leaves a number of at least one is taken.
static char *format_scaled(char *buf, size_t size, double v, const struct unit *units,
                           int significant) {
    if (isnan(v)) {
        snprintf(buf, size, "-");
        return buf;
    }
    if (isinf(v)) {
        snprintf(buf, size, v > 0 ? "inf" : "-inf");
        return buf;
    }
    const struct unit *u = units;
    // 0.9995: what rounds up to one of the next unit is shown in it.
    while (u[1].name && fabs(v) >= 0.9995 * u[1].factor)
        u++;
    char number[32];
    format_number(number, sizeof number, v / u->factor, significant);
    snprintf(buf, size, "%s%s%s", number, *u->name ? " " : "", u->name);
    return buf;
}

char *units_format_gib(char *buf, size_t size, double bytes) {
    double gib = bytes / (double)UNITS_GIB, magnitude = fabs(gib);
    if (isnan(bytes))
        snprintf(buf, size, "-");
    else if (magnitude > 0 && magnitude < 0.01)
        snprintf(buf, size, "%.2g GiB", gib);
    else
        snprintf(buf, size, "%.*f GiB", magnitude < 999.995 ? 2 : magnitude < 9999.95 ? 1 : 0, gib);
    return buf;
}

char *units_format_bytes(char *buf, size_t size, double bytes) {
    static const struct unit units[] = {
        {"B", 1},           {"KiB", UNITS_KIB}, {"MiB", UNITS_MIB}, {"GiB", UNITS_GIB},
        {"TiB", UNITS_TIB}, {"PiB", UNITS_PIB}, {NULL, 0},
    };
    return format_scaled(buf, size, bytes, units, 4);
}

char *units_format_rate(char *buf, size_t size, double bytes_per_s) {
    static const struct unit units[] = {
        {"B/s", 1},           {"kB/s", UNITS_KILO}, {"MB/s", UNITS_MEGA},
        {"GB/s", UNITS_GIGA}, {"TB/s", UNITS_TERA}, {NULL, 0},
    };
    return format_scaled(buf, size, bytes_per_s, units, 3);
}

char *units_format_net(char *buf, size_t size, double bytes_per_s) {
    static const struct unit units[] = {
        {"b/s", 1}, {"kb/s", UNITS_KILO}, {"Mb/s", UNITS_MEGA}, {"Gb/s", UNITS_GIGA}, {NULL, 0},
    };
    return format_scaled(buf, size, bytes_per_s / BITS, units, 3);
}

char *units_format_seconds(char *buf, size_t size, double s) {
    static const struct unit units[] = {
        {"ns", UNITS_NANO}, {"us", UNITS_MICRO}, {"ms", UNITS_MILLI}, {"s", 1}, {NULL, 0},
    };
    static const struct unit long_units[] = {
        {"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}, {NULL, 0},
    };
    const double two_minutes = 120;
    if (s == 0) {
        snprintf(buf, size, "0 s");
        return buf;
    }
    return format_scaled(buf, size, s, fabs(s) < two_minutes ? units : long_units, 3);
}

char *units_format_count(char *buf, size_t size, double n) {
    static const struct unit units[] = {
        {"", 1},           {"K", UNITS_KILO}, {"M", UNITS_MEGA},
        {"B", UNITS_GIGA}, {"T", UNITS_TERA}, {NULL, 0},
    };
    return format_scaled(buf, size, n, units, 3);
}

bool units_add(uint64_t a, uint64_t b, uint64_t *out, struct err *e) {
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return err_set(e, ERR_INPUT, "%llu + %llu does not fit 64 bits", (unsigned long long)a,
                       (unsigned long long)b);
    *out = sum;
    return true;
}

bool units_mul(uint64_t a, uint64_t b, uint64_t *out, struct err *e) {
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return err_set(e, ERR_INPUT, "%llu x %llu does not fit 64 bits", (unsigned long long)a,
                       (unsigned long long)b);
    *out = product;
    return true;
}

uint64_t units_ceil_div(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}

uint64_t units_ceil_to(uint64_t a, uint64_t multiple) {
    uint64_t rounded;
    if (__builtin_mul_overflow(units_ceil_div(a, multiple), multiple, &rounded))
        return UINT64_MAX;
    return rounded;
}
