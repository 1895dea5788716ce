// SPDX-License-Identifier: Apache-2.0
// The only place where a scale factor lives. MiB is 2^20, MB is 10^6, Gb is bits; always.
#pragma once

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define UNITS_KIB (1ULL << 10)
#define UNITS_MIB (1ULL << 20)
#define UNITS_GIB (1ULL << 30)
#define UNITS_TIB (1ULL << 40)
#define UNITS_KILO 1e3
#define UNITS_MEGA 1e6
#define UNITS_GIGA 1e9
#define UNITS_TERA 1e12
#define UNITS_MILLI 1e-3
#define UNITS_MICRO 1e-6
#define UNITS_NANO 1e-9
#define UNITS_HOUR_S 3600.0
#define UNITS_DAY_S 86400.0

// Each parser takes the whole string or fails naming what it expected.
bool units_parse_bytes(const char *s, uint64_t *out_bytes, struct err *e);    // 64MiB, 5e8, 1.5GB
bool units_parse_rate(const char *s, double *out_bytes_per_s, struct err *e); // 400Gb/s, 25GB/s
bool units_parse_seconds(const char *s, double *out_s, struct err *e);        // 2.5us, 10ms, 3s
// 7B, 1e9, 4096, 2M (decimal), 4Ki
bool units_parse_count(const char *s, uint64_t *out, struct err *e);
bool units_parse_double(const char *s, double *out, struct err *e);

// Formatters write into buf (at least 32 bytes) and return it. <= 5 significant digits.
char *units_format_gib(char *buf, size_t size, double bytes);        // "12.39 GiB"
char *units_format_bytes(char *buf, size_t size, double bytes);      // "64 MiB": best binary unit
char *units_format_rate(char *buf, size_t size, double bytes_per_s); // "24.5 GB/s"
char *units_format_net(char *buf, size_t size, double bytes_per_s);  // "400 Gb/s"
char *units_format_seconds(char *buf, size_t size, double s);        // "12.3 ms"
char *units_format_count(char *buf, size_t size, double n);          // "6.74 B" (1e9)

// Overflow-checked 64-bit arithmetic: false (ERR_INPUT) on overflow.
bool units_add(uint64_t a, uint64_t b, uint64_t *out, struct err *e);
bool units_mul(uint64_t a, uint64_t b, uint64_t *out, struct err *e);
uint64_t units_ceil_div(uint64_t a, uint64_t b);       // b > 0
uint64_t units_ceil_to(uint64_t a, uint64_t multiple); // smallest multiple >= a; saturates
