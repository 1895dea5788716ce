// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void sizes_keep_binary_and_decimal_apart(void **state) {
    (void)state;
    const struct {
        const char *text;
        uint64_t bytes;
    } known[] = {
        {"64MiB", 67108864},
        {"64MB", 64000000},
        {"5e8", 500000000},
        {"1.5GB", 1500000000},
        {"80 GiB", 85899345920},
        {"0", 0},
        {"1kB", 1000},
        {"1KiB", 1024},
        {"0.5KiB", 512},
        {"2TiB", 2199023255552},
        {"9007199254740993", 9007199254740993},
        {"18446744073709551615", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint64_t v = 1;
        assert_true(units_parse_bytes(known[i].text, &v, NULL));
        assert_int_equal(v, known[i].bytes);
    }
}

static void rates_count_bits_as_bits(void **state) {
    (void)state;
    const struct {
        const char *text;
        double bytes_per_s;
    } known[] = {
        {"400Gb/s", 5e10},     {"400Gbps", 5e10},      {"400 Gbit/s", 5e10}, {"25GB/s", 25e9},
        {"3.35TB/s", 3.35e12}, {"1GiB/s", 1073741824}, {"100Mb/s", 12.5e6},  {"8b/s", 1},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        double v = 0;
        assert_true(units_parse_rate(known[i].text, &v, NULL));
        assert_true(v == known[i].bytes_per_s);
    }
}

static void times_and_counts_are_exact(void **state) {
    (void)state;
    double s = 0;
    assert_true(units_parse_seconds("2.5us", &s, NULL) && s == 2.5e-6);
    assert_true(units_parse_seconds("10ms", &s, NULL) && s == 0.01);
    assert_true(units_parse_seconds("3s", &s, NULL) && s == 3);
    assert_true(units_parse_seconds("3", &s, NULL) && s == 3);
    assert_true(units_parse_seconds("2h", &s, NULL) && s == 7200);
    uint64_t n = 0;
    assert_true(units_parse_count("7B", &n, NULL) && n == 7000000000);
    assert_true(units_parse_count("6.74B", &n, NULL) && n == 6740000000);
    assert_true(units_parse_count("1e9", &n, NULL) && n == 1000000000);
    assert_true(units_parse_count("4096", &n, NULL) && n == 4096);
    assert_true(units_parse_count("2M", &n, NULL) && n == 2000000);
    assert_true(units_parse_count("4k", &n, NULL) && n == 4000);
    assert_true(units_parse_count("4Ki", &n, NULL) && n == 4096);
    assert_true(units_parse_count("1Mi", &n, NULL) && n == 1048576);
    double d = 0;
    assert_true(units_parse_double("-1.25", &d, NULL) && d == -1.25);
    assert_true(units_parse_double("0.1", &d, NULL) && d == 0.1);
}

static void refuse(bool ok, const struct err *e, const char *must_name) {
    assert_false(ok);
    assert_int_equal(e->kind, ERR_INPUT);
    assert_non_null(strstr(e->text, must_name));
}

static void garbage_is_refused_and_named(void **state) {
    (void)state;
    const char *sizes[] = {"",     " ",      "GB",    "-1GB",  "64M",
                           "64Gb", "64 mib", "1.2.3", "0x10",  "inf",
                           "nan",  "1e400",  "12GBx", "5 G B", "18446744073709551616"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct err e = {0};
        uint64_t v = 42;
        refuse(units_parse_bytes(sizes[i], &v, &e), &e, sizes[i]);
        assert_int_equal(v, 42);
    }
    const char *rates[] = {"400",     "400G",   "400GB",   "/s",
                           "400gb/s", "-1GB/s", "1GB/s/s", "1e308GB/s"};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct err e = {0};
        double v;
        refuse(units_parse_rate(rates[i], &v, &e), &e, rates[i]);
    }
    const char *counts[] = {"1.5", "-3", "7Q", "2e20", "1e-1", "seven"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct err e = {0};
        uint64_t v;
        refuse(units_parse_count(counts[i], &v, &e), &e, counts[i]);
    }
    struct err e = {0};
    double d;
    refuse(units_parse_seconds("5 parsecs", &d, &e), &e, "expected a time");
    err_clear(&e);
    refuse(units_parse_seconds("1e308h", &d, &e), &e, "expected a time");
    err_clear(&e);
    refuse(units_parse_double("1.5x", &d, &e), &e, "expected a number");
    err_clear(&e);
    refuse(units_parse_double(NULL, &d, &e), &e, "expected a number");
}

static void people_read_at_most_five_digits(void **state) {
    (void)state;
    char b[32];
    assert_string_equal(units_format_gib(b, sizeof b, 12.39 * 1073741824.0), "12.39 GiB");
    assert_string_equal(units_format_gib(b, sizeof b, 1500 * 1073741824.0), "1500.0 GiB");
    assert_string_equal(units_format_gib(b, sizeof b, 0), "0.00 GiB");
    assert_string_equal(units_format_gib(b, sizeof b, NAN), "-");
    assert_string_equal(units_format_bytes(b, sizeof b, 67108864), "64 MiB");
    assert_string_equal(units_format_bytes(b, sizeof b, 1000), "1000 B");
    assert_string_equal(units_format_bytes(b, sizeof b, 1024), "1 KiB");
    assert_string_equal(units_format_rate(b, sizeof b, 24.5e9), "24.5 GB/s");
    assert_string_equal(units_format_rate(b, sizeof b, 999.96e6), "1 GB/s");
    assert_string_equal(units_format_net(b, sizeof b, 5e10), "400 Gb/s");
    assert_string_equal(units_format_seconds(b, sizeof b, 0.0123), "12.3 ms");
    assert_string_equal(units_format_seconds(b, sizeof b, 3e-6), "3 us");
    assert_string_equal(units_format_seconds(b, sizeof b, 7200), "2 h");
    assert_string_equal(units_format_seconds(b, sizeof b, 0), "0 s");
    assert_string_equal(units_format_count(b, sizeof b, 6738415616.0), "6.74 B");
    assert_string_equal(units_format_count(b, sizeof b, 512), "512");
    assert_string_equal(units_format_rate(b, sizeof b, INFINITY), "inf");
}

static void overflow_is_an_error(void **state) {
    (void)state;
    struct err e = {0};
    uint64_t v = 7;
    assert_false(units_add(UINT64_MAX, 1, &v, &e));
    assert_int_equal(e.kind, ERR_INPUT);
    assert_false(units_mul(1ULL << 33, 1ULL << 31, &v, NULL));
    assert_int_equal(v, 7);
    assert_true(units_mul(1ULL << 32, (1ULL << 32) - 1, &v, NULL));
    assert_int_equal(v, 18446744069414584320ULL);
    assert_true(units_add(UINT64_MAX - 1, 1, &v, NULL));
    assert_int_equal(v, UINT64_MAX);
    assert_int_equal(units_ceil_div(10, 3), 4);
    assert_int_equal(units_ceil_div(9, 3), 3);
    assert_int_equal(units_ceil_div(UINT64_MAX, 2), 1ULL << 63);
    assert_int_equal(units_ceil_to(513, 512), 1024);
    assert_int_equal(units_ceil_to(0, 512), 0);
    assert_int_equal(units_ceil_to(UINT64_MAX, 512), UINT64_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_keep_binary_and_decimal_apart),
        cmocka_unit_test(rates_count_bits_as_bits),
        cmocka_unit_test(times_and_counts_are_exact),
        cmocka_unit_test(garbage_is_refused_and_named),
        cmocka_unit_test(people_read_at_most_five_digits),
        cmocka_unit_test(overflow_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
