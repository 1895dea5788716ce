// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bench/pieces.h"

// The member of rank 1 among ranks 4, 7 and 9 of a run, parts of 10 elements.
static const uint32_t members[] = {4, 7, 9};
static struct pieces_place place(enum collective c) {
    return (struct pieces_place){
        .collective = c, .rank = 1, .size = 3, .members = members, .chunk = 10};
}

static void same(struct piece got, struct piece want) {
    assert_int_equal(got.at, want.at);
    assert_int_equal(got.first, want.first);
    assert_int_equal(got.count, want.count);
    assert_int_equal(got.owner, want.owner);
    assert_int_equal(got.summed, want.summed);
}

static void expect(enum collective c, struct piece sent, const struct piece *received, uint32_t n) {
    struct pieces_place p = place(c);
    struct piece got;
    same(pieces_sent(&p), sent);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(pieces_received(&p, i, &got));
        same(got, received[i]);
    }
    assert_false(pieces_received(&p, n, &got));
}

static void knows_every_collective(void **state) {
    const struct piece part = {0, 10, 10, 7, false}, all = {0, 0, 30, 7, false};
    const struct piece own = {0, 0, 10, 7, false};
    (void)state;
    expect(COLLECTIVE_ALL_GATHER, part,
           (struct piece[]){{0, 0, 10, 4, false}, {1, 10, 10, 7, false}, {2, 20, 10, 9, false}}, 3);
    expect(COLLECTIVE_ALL_TO_ALL, all,
           (struct piece[]){{0, 10, 10, 4, false}, {1, 10, 10, 7, false}, {2, 10, 10, 9, false}},
           3);
    expect(COLLECTIVE_REDUCE_SCATTER, all, (struct piece[]){{0, 10, 10, 0, true}}, 1);
    expect(COLLECTIVE_ALL_REDUCE, all, (struct piece[]){{0, 0, 30, 0, true}}, 1);
    expect(COLLECTIVE_BROADCAST, own, (struct piece[]){{0, 0, 10, 4, false}}, 1);
    expect(COLLECTIVE_SEND_RECV, own, (struct piece[]){{0, 0, 10, 4, false}}, 1);
    expect(COLLECTIVE_REDUCE, own, NULL, 0); // the root's alone
}

static void knows_places(void **state) {
    struct pieces_place p = place(COLLECTIVE_ALL_GATHER);
    struct piece got;
    (void)state;
    p.in_place = true;
    assert_int_equal(pieces_sent(&p).at, 1);
    p = place(COLLECTIVE_REDUCE);
    p.rank = 0;
    assert_true(pieces_received(&p, 0, &got));
    same(got, (struct piece){0, 0, 10, 0, true});
    p = place(COLLECTIVE_SEND_RECV);
    p.rank = 0; // the last one is the first one's neighbour
    assert_true(pieces_received(&p, 0, &got));
    assert_int_equal(got.owner, 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_every_collective),
        cmocka_unit_test(knows_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
