// SPDX-License-Identifier: Apache-2.0
// Parts of the report that need no browser: escaping, numbers as text, axes, ink on colours.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "axis.h"
#include "gnuplot.h"
#include "html.h"
#include "plot.h"
#include "show.h"

static char *escaped(const char *s) {
    struct html h;
    html_init(&h);
    html_text(&h, s);
    html_finish(&h);
    return h.text;
}

static void expect_escaped(const char *s, const char *expected) {
    char *text = escaped(s);
    assert_string_equal(text, expected);
    free(text);
}

static void text_is_escaped(void **state) {
    (void)state;
    expect_escaped("a<b & \"c\" 'd'>", "a&lt;b &amp; &quot;c&quot; &#39;d&#39;&gt;");
    expect_escaped("line\nnext\x01", "line next ");
    expect_escaped("\xe2\x80\xae"
                   "evil",
                   "evil");                                 // right-to-left override
    expect_escaped("\xd7\xa9\xd7\x9c", "\xd7\xa9\xd7\x9c"); // Hebrew stays
    expect_escaped("\xff\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    expect_escaped("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); // a lone surrogate
    expect_escaped("\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd");                 // cut short
    expect_escaped(NULL, "");
}

static void text_is_shortened(void **state) {
    char text[64];
    (void)state;
    assert_int_equal(html_clean(text, sizeof text, "abcdef", 4), 4);
    assert_string_equal(text, "abc\xe2\x80\xa6");
    assert_int_equal(html_clean(text, sizeof text, "abcd", 4), 4);
    assert_string_equal(text, "abcd");
    assert_int_equal(html_clean(text, 12, "0123456789abcdef", 40),
                     4); // room for one long character stays
}

static void expect_format(const char *key, double v, const char *expected) {
    char text[SHOW_TEXT];
    assert_string_equal(show_format(text, key, v), expected);
}

static void numbers_carry_their_unit(void **state) {
    (void)state;
    expect_format("capacity_bytes", 85899345920.0, "80.00 GiB");
    expect_format("bytes_per_node", 64.0 * 1024 * 1024, "64 MiB");
    expect_format("headroom_bytes", -85899345920.0,
                  "\xe2\x88\x92"
                  "80.00 GiB");
    expect_format("busbw_bytes_per_s", 24.5e9, "24.5 GB/s");
    expect_format("step_s", 0.0123, "12.3 ms");
    expect_format("tokens_per_s_per_gpu", 3413, "3,413");
    expect_format("peak_flop_per_s", 989.5e12, "989.5 TFLOP/s");
    expect_format("mfu", 0.475, "47.5 %");
    expect_format("mape", 0.00435, "0.435 %");
    expect_format("min_gpus", 1234567, "1,234,567");
    expect_format("parameters", 6738415616.0, "6,738,415,616");
    expect_format("model_persistence_elements", 9223372036854775807.0, "no limit");
    expect_format("ratio", 1.0745, "1.075");
    expect_format("step_s", NAN, "\xe2\x80\x93");
}

static size_t ticks_of(const struct axis *x, int want, double *first, double *last) {
    char *text;
    size_t bytes, n = 0;
    FILE *out = open_memstream(&text, &bytes);
    axis_write_ticks(x, 'x', want, out);
    fclose(out);
    for (const char *c = strchr(text, '"'); c; c = strchr(c, '"'), n++) {
        c = strchr(c + 1, '"') + 1;
        double v = strtod(c, NULL);
        *first = n == 0 ? v : *first;
        *last = v;
    }
    free(text);
    return n;
}

static void expect_axis(struct axis x, double min, double max) {
    double first = NAN, last = NAN;
    axis_fit(&x, min, max);
    assert_true(x.high > x.low);
    if (!isnan(min)) {
        assert_true(x.low <= min);
        assert_true(x.high >= max);
    }
    size_t n = ticks_of(&x, 8, &first, &last);
    assert_in_range(n, 1, 12);
    assert_true(first >= x.low * (1 - 1e-6) - 1e-12);
    assert_true(last <= x.high * (1 + 1e-6) + 1e-12);
}

static void axes_hold_their_data(void **state) {
    struct axis plain = {.label = "s"}, zero = {.label = "s", .from_zero = true};
    struct axis log10s = {.label = "s", .log = true};
    struct axis bytes = {.label = "bytes", .kind = AXIS_BYTES, .log = true};
    (void)state;
    expect_axis(plain, 3, 17);
    expect_axis(plain, -5, -5);
    expect_axis(plain, 0, 0);
    expect_axis(plain, NAN, NAN);
    expect_axis(zero, 0, 0);
    expect_axis(zero, 1e-9, 1e-9);
    expect_axis(zero, 2, 1e15);
    expect_axis(log10s, 1, 1);
    expect_axis(log10s, 1e-6, 1e3);
    expect_axis(log10s, 3, 20);
    expect_axis(log10s, NAN, NAN);
    expect_axis(bytes, 8, 8589934592.0);
    expect_axis(bytes, 1024, 1024);
}

// Small differences do not fill an axis; labels need ticks around a single size.
static void axes_do_not_exaggerate(void **state) {
    struct axis near = {.label = "s"}, one = {.label = "B", .kind = AXIS_BYTES, .log = true};
    double first, last;
    (void)state;
    axis_fit(&near, 3.53, 3.54);
    assert_true(near.high - near.low >= 0.08 * 3.54);
    assert_true(near.low > 3 && near.high < 4);
    axis_fit(&one, 1024, 1024);
    assert_true(ticks_of(&one, 8, &first, &last) >= 2);
}

static void words_are_plain(void **state) {
    (void)state;
    assert_string_equal(show_word("inter_node"), "inter-node network");
    assert_string_equal(show_word("already_enough"), "enough already");
    assert_string_equal(show_word("compute"), "compute");
    assert_null(show_word(NULL));
}

static double linear(double v) {
    return v <= 0.03928 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4);
}

static double luminance(const char *rgb) {
    unsigned long v = strtoul(rgb + 1, NULL, 16);
    return 0.2126 * linear((double)(v >> 16 & 255) / 255) +
           0.7152 * linear((double)(v >> 8 & 255) / 255) + 0.0722 * linear((double)(v & 255) / 255);
}

static void ink_can_be_read(void **state) {
    (void)state;
    for (int c = 0; c < PLOT_TEXT; c++) {
        double a = luminance(plot_rgb((enum plot_colour)c)),
               b = luminance(plot_ink((enum plot_colour)c));
        double ratio = (fmax(a, b) + 0.05) / (fmin(a, b) + 0.05);
        assert_true(ratio >= 4.5);
    }
}

static void strings_stay_in_the_data(void **state) {
    struct arena *a = arena_create();
    struct plot_set set;
    (void)state;
    plot_set_init(&set, a);
    struct plot *p = plot_add(&set, "memory", "Memory");
    plot_block(p);
    plot_string(p, "x\"; system \"id\n\\n`id`\ty", 60);
    plot_number(p, NAN);
    plot_number(p, 1.5);
    plot_row_end(p);
    assert_string_equal(plot_add(&set, "memory", "Memory")->name, "memory-2");
    plot_close(p);
    assert_string_equal(p->data_text, "\"x'; system 'id \\\\n`id` y\"\tNaN\t1.5\t\n");
    char *script = plot_script(p);
    assert_null(strstr(script, "system"));
    free(script);
    plot_set_finish(&set);
    arena_destroy(a);
}

static void only_known_svg_enters(void **state) {
    static const char head[] =
        "<svg width=\"10\" height=\"20\"><g id=\"gnuplot_canvas\"><defs></defs>";
    char text[512];
    (void)state;
    snprintf(text, sizeof text,
             "%s<g id='a'><title>t</title><use xlink:href='#gpPt6'/><path id='b'/></g></g></svg>",
             head);
    char *good = gnuplot_inline(text, "p1", "wide", "says <this>");
    assert_non_null(good);
    assert_non_null(strstr(good, "id='p1-a'"));
    assert_non_null(strstr(good, "'#gpPt6'"));
    assert_non_null(strstr(good, "aria-label=\"says &lt;this&gt;\""));
    assert_null(strstr(good, "<title>"));
    free(good);
    snprintf(text, sizeof text, "%s<script>x</script></g></svg>", head);
    assert_null(gnuplot_inline(text, "p1", "wide", ""));
    assert_null(gnuplot_inline("", "p1", "wide", ""));
    snprintf(text, sizeof text, "%s<g", head);
    assert_null(gnuplot_inline(text, "p1", "wide", ""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_escaped),          cmocka_unit_test(text_is_shortened),
        cmocka_unit_test(numbers_carry_their_unit), cmocka_unit_test(axes_hold_their_data),
        cmocka_unit_test(axes_do_not_exaggerate),   cmocka_unit_test(words_are_plain),
        cmocka_unit_test(ink_can_be_read),          cmocka_unit_test(strings_stay_in_the_data),
        cmocka_unit_test(only_known_svg_enters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
