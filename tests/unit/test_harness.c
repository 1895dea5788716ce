// SPDX-License-Identifier: Apache-2.0
#include "bench/harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/backend_nvme.h"
#include "bench/sink.h"
#include "bench/team.h"
#include "bench/tournament.h"
#include "kernels/pattern.h"
#include "kernels/reduce.h"

// A backend with durations of its own: 1 ms, and every tenth one 5 ms.
struct fake {
    int prepared, released, verified;
    size_t turns;
    uint64_t wrong;
};

static bool fake_prepare(void *state, const struct bench_point *p, struct err *e) {
    struct fake *f = state;
    f->prepared++;
    return p->payload_bytes < 1000000 || err_set(e, ERR_RESOURCE, "too large");
}
static void fake_release(void *state) {
    ((struct fake *)state)->released++;
}
static bool fake_sample(void *state, size_t count, double *samples_s, struct err *e) {
    struct fake *f = state;
    (void)e;
    for (size_t i = 0; i < count; i++)
        samples_s[i] = f->turns++ % 10 == 9 ? 5e-3 : 1e-3;
    return true;
}
static bool fake_verify(void *state, uint64_t seed, uint64_t *wrong, struct err *e) {
    struct fake *f = state;
    (void)seed, (void)e;
    f->verified++;
    *wrong = f->wrong;
    return true;
}

static const struct backend fake_backend = {.name = "fake",
                                            .prepare = fake_prepare,
                                            .release = fake_release,
                                            .sample = fake_sample,
                                            .verify = fake_verify};

static struct bench_point gather(uint64_t bytes) {
    return (struct bench_point){.kind = "all_gather",
                                .collective = COLLECTIVE_ALL_GATHER,
                                .dtype = DTYPE_BF16,
                                .payload_bytes = bytes};
}

static void measures_a_point(void **state) {
    struct fake f = {0};
    struct signals signals;
    struct err e = {0};
    (void)state;
    assert_true(signals_init(&signals, &e));
    struct harness h = {.backend = &fake_backend, .state = &f, .signals = &signals};
    h.arena = arena_create();
    assert_true(ranks_open(false, &h.ranks, &e));
    struct harness_limits limits = harness_defaults();
    limits.warmup_s = 0;
    struct measure_result r;
    struct bench_point p = gather(4096);
    assert_true(harness_prepare(&h, &p, &e));
    assert_true(harness_run(&h, &p, &limits, &r, &e));
    assert_true(r.iterations >= limits.min_iterations);
    assert_true(fabs(r.median_s - 1e-3) < 1e-12 && fabs(r.max_s - 5e-3) < 1e-12);
    assert_true(r.confident && r.errors == 0);
    assert_true(fabs(r.algbw_bytes_per_s - 4096 / 1e-3) < 1e-3);
    assert_int_equal(f.verified, 2); // before and after
    assert_int_equal(f.prepared, f.released);

    f.wrong = 3;
    assert_true(harness_prepare(&h, &p, &e));
    assert_true(harness_run(&h, &p, &limits, &r, &e));
    assert_int_equal(r.errors, 6);

    p = gather(2000000);
    assert_false(harness_prepare(&h, &p, &e));
    assert_int_equal(e.kind, ERR_RESOURCE);
    assert_int_equal(f.prepared, f.released);
    signals_finish(&signals);
    arena_destroy(h.arena);
}

// Twice its settling time and more: what comes after it, as a mean, whatever the median is.
static void reports_the_settled_rate(void **state) {
    struct fake f = {0};
    struct signals signals;
    struct err e = {0};
    (void)state;
    assert_true(signals_init(&signals, &e));
    struct harness h = {.backend = &fake_backend, .state = &f, .signals = &signals};
    h.arena = arena_create();
    assert_true(ranks_open(false, &h.ranks, &e));
    struct harness_limits limits = harness_defaults();
    struct measure_result r;
    struct bench_point p = gather(4096);
    limits.warmup_s = 0;
    limits.settle_s = 1.4; // of the backend's own clock: 1000 iterations
    limits.least_s = 4.2;
    assert_true(harness_prepare(&h, &p, &e));
    assert_true(harness_run(&h, &p, &limits, &r, &e));
    assert_true(r.iterations >= 1900 && r.iterations < 3000);
    assert_true(r.settled_s >= 1.4 && r.settled_s < 1.41);
    assert_true(fabs(r.algbw_bytes_per_s / (4096 / 1.4e-3) - 1) < 0.01);
    assert_true(fabs(r.median_s - 1e-3) < 1e-12);

    limits.least_s = 0; // ends as soon as its median is known: not settled
    assert_true(harness_prepare(&h, &p, &e));
    assert_true(harness_run(&h, &p, &limits, &r, &e));
    assert_false(r.settled_s > 0);
    assert_true(fabs(r.algbw_bytes_per_s - 4096 / 1e-3) < 1e-3);
    signals_finish(&signals);
    arena_destroy(h.arena);
}

static void resumes_after_a_torn_line(void **state) {
    struct arena *a = arena_create();
    struct measure_host host = {0};
    struct measure_build build = {0};
    struct err e = {0};
    char path[] = "/tmp/test_harness_XXXXXX";
    (void)state;
    close(mkstemp(path));
    struct sink *s = sink_create(path, SINK_FRESH, &host, &build, a, &e);
    struct measure_result r, other;
    measure_result_init(&r);
    r.kind = "copy";
    r.backend = "host";
    r.payload_bytes = 64;
    r.median_s = 1;
    other = r;
    other.payload_bytes = 128;
    assert_true(sink_add(s, &r, &e));
    sink_destroy(s);
    FILE *f = fopen(path, "a");
    fputs("{\"kind\":\"copy\",\"back", f);
    fclose(f);
    s = sink_create(path, SINK_RESUME, &host, &build, a, &e);
    assert_non_null(s);
    assert_true(sink_has(s, &r));
    assert_false(sink_has(s, &other));
    assert_true(sink_add(s, &other, &e));
    sink_destroy(s);
    struct measurement m;
    assert_true(measure_read(path, a, &m, &e));
    assert_int_equal(m.count, 2);
    assert_false(m.torn);
    unlink(path);
    arena_destroy(a);
}

static struct measure_result pair(const char *group, double rate) {
    struct measure_result r;
    measure_result_init(&r);
    r.group = group;
    r.busbw_bytes_per_s = rate;
    return r;
}

static void names_the_slow_one(void **state) {
    struct tournament t;
    (void)state;
    // Rank 2 is at half rate with everybody.
    struct measure_result node[] = {pair("0,1", 10), pair("0,2", 5), pair("0,3", 10),
                                    pair("1,2", 5),  pair("1,3", 9), pair("2,3", 5)};
    struct measurement m = {.results = node, .count = 6};
    tournament_find(&m, 4, &t);
    assert_int_equal(t.slow_rank_count, 1);
    assert_int_equal(t.slow_ranks[0], 2);
    assert_int_equal(t.slow_pair_count, 0);
    // Only the link 1-3 is slow.
    struct measure_result link[] = {pair("0,1", 10), pair("0,2", 10), pair("0,3", 10),
                                    pair("1,2", 10), pair("1,3", 3),  pair("2,3", 10)};
    m.results = link;
    tournament_find(&m, 4, &t);
    assert_int_equal(t.slow_rank_count, 0);
    assert_int_equal(t.slow_pair_count, 1);
    assert_int_equal(t.slow_pairs[0][0], 1);
    assert_int_equal(t.slow_pairs[0][1], 3);
    // Everybody is faster without rank 1.
    struct measure_result left[] = {pair("all but 0", 5), pair("all but 1", 10),
                                    pair("all but 2", 5), pair("all but 3", 5)};
    m = (struct measurement){.results = left, .count = 4};
    tournament_find(&m, 4, &t);
    assert_int_equal(t.slow_rank_count, 1);
    assert_int_equal(t.slow_ranks[0], 1);
    // Ordinary spread names nobody.
    struct measure_result fine[] = {pair("0,1", 10), pair("0,2", 9), pair("1,2", 8.5)};
    m = (struct measurement){.results = fine, .count = 3};
    tournament_find(&m, 3, &t);
    assert_int_equal(t.slow_rank_count + t.slow_pair_count, 0);
}

static void suspects_get_another_look(void **state) {
    struct tournament t;
    struct tournament_round o = {0};
    (void)state;
    struct measure_result link[] = {pair("0,1", 10), pair("0,2", 11), pair("0,3", 10),
                                    pair("1,2", 12), pair("1,3", 3),  pair("2,3", 9)};
    struct measurement m = {.results = link, .count = 6};
    tournament_find(&m, 4, &t);
    tournament_next_round(&m, 4, &t, &o);
    assert_int_equal(o.count, 3); // 1,3 between the best pair of 1 and the best pair of 3
    const uint64_t want[3][2] = {{1, 2}, {1, 3}, {0, 3}};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(o.items[i].first, want[i][0]);
        assert_int_equal(o.items[i].second, want[i][1]);
    }
    // Better turns clear the pair; a worse one of somebody else blames nobody.
    struct measure_result cleared[] = {
        link[0],          link[1],        link[2],          link[3],        link[4],       link[5],
        pair("1,3", 9.5), pair("1,3", 9), pair("1,3", 9.5), pair("2,3", 2), pair("2,3", 9)};
    m = (struct measurement){.results = cleared, .count = 11};
    tournament_find(&m, 4, &t);
    assert_int_equal(t.slow_rank_count + t.slow_pair_count, 0);
    tournament_next_round(&m, 4, &t, &o);
    assert_int_equal(o.count, 0);
    // A slow rank: each of its pairs between the fastest of all and the fastest of the other end.
    struct measure_result node[] = {pair("0,1", 10),      pair("0,2", 5),
                                    pair("1,2", 4),       pair("all but 0", 5),
                                    pair("all but 1", 5), pair("all but 2", 9)};
    m = (struct measurement){.results = node, .count = 6};
    t = (struct tournament){.slow_ranks = {2}, .slow_rank_count = 1};
    tournament_next_round(&m, 3, &t, &o);
    assert_int_equal(o.count, 2 * 3 + 3);
    assert_int_equal(o.items[0].second, 1);
    assert_int_equal(o.items[1].second, 2);
    assert_int_equal(o.items[8].left_out, 3);
    free(o.items);
}

// One time that is too short does not make a link fast, two late ones not slow.
static void a_pair_is_its_usual_time(void **state) {
    double fine[] = {1, 1, 1, 1, 1, 1, 1, 1}, early[] = {1, 1, 0.2, 1, 1, 1, 1, 1};
    double late[] = {1, 3, 1, 3, 3, 3, 1, 3};
    struct measure_result all[] = {pair("0,1", 1), pair("0,2", 1), pair("1,2", 1)};
    const double *samples[] = {fine, early, late};
    const double medians[] = {1, 1, 3};
    struct tournament t;
    (void)state;
    for (int i = 0; i < 3; i++) {
        all[i].busbw_bytes_per_s = 1 / medians[i];
        all[i].median_s = medians[i];
        all[i].samples_s = samples[i];
        all[i].samples = 8;
    }
    struct measurement m = {.results = all, .count = 3};
    tournament_find(&m, 3, &t);
    assert_int_equal(t.slow_rank_count + t.slow_pair_count, 0);
    assert_true(fabs(t.typical_bytes_per_s - 1) < 1e-9);
}

static void patterns_catch_what_moves(void **state) {
    (void)state;
    for (int type = 0; type < PATTERN_TYPE_COUNT; type++) {
        struct pattern p = {.type = (enum pattern_type)type, .seed = 5, .rank = 1, .ranks = 3};
        size_t size = pattern_bytes(p.type);
        unsigned char *a = calloc(1000, size), *sum = calloc(1000, size);
        pattern_fill(&p, a, 100, 1000);
        assert_int_equal(pattern_wrong(&p, a, 100, 1000), 0);
        assert_true(pattern_wrong(&p, a, 101, 1000) > 900); // shifted by one
        p.seed = 6;
        assert_true(pattern_wrong(&p, a, 100, 1000) > 900); // stale
        for (p.rank = 0; p.rank < 3; p.rank++) {
            pattern_fill(&p, a, 100, 1000);
            reduce_sum(p.type, sum, a, 1000);
        }
        assert_int_equal(pattern_wrong_sum(&p, NULL, sum, 100, 1000), 0);
        sum[10 * size] ^= 1;
        sum[10 * size + size - 1] ^= 2;
        assert_int_equal(pattern_wrong_sum(&p, NULL, sum, 100, 1000), 1);
        free(a);
        free(sum);
    }
}

static void mark(void *context, size_t member, size_t size) {
    struct team_part part = team_slice(1001, 16, member, size);
    unsigned char *seen = context;
    for (size_t i = part.first; i < part.first + part.count; i++)
        seen[i]++;
}

static void teams_cover_everything_once(void **state) {
    (void)state;
    for (size_t threads = 1; threads < 6; threads++) {
        unsigned char seen[1001] = {0};
        struct team *t = team_create(threads);
        for (int turn = 0; turn < 50; turn++)
            team_run(t, mark, seen);
        for (size_t i = 0; i < sizeof(seen); i++)
            assert_int_equal(seen[i], 50);
        team_destroy(t);
    }
}

static void storage_payload_is_whole_tiles(void **state) {
    (void)state;
    assert_int_equal(backend_nvme_payload("read", 1 << 20, 16, 2), 256 << 20);
    assert_int_equal(backend_nvme_payload("swap", 1 << 20, 16, 1), 256 << 20);
    assert_int_equal(backend_nvme_payload("read", 4096, 1, 1), 16 << 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures_a_point),
        cmocka_unit_test(resumes_after_a_torn_line),
        cmocka_unit_test(reports_the_settled_rate),
        cmocka_unit_test(names_the_slow_one),
        cmocka_unit_test(suspects_get_another_look),
        cmocka_unit_test(a_pair_is_its_usual_time),
        cmocka_unit_test(patterns_catch_what_moves),
        cmocka_unit_test(teams_cover_everything_once),
        cmocka_unit_test(storage_payload_is_whole_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
