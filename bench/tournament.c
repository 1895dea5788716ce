// SPDX-License-Identifier: Apache-2.0
#include "bench/tournament.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"
#include "base/units.h"

// Below this share of what its ends reach elsewhere, a link is slow.
#define SLOW_SHARE 0.75
#define PAIR_BYTES (4 * UNITS_MIB)

// Several GPUs of one process: a collective has more members than there are ranks.
static bool alone(const struct run *r) {
    return r->rank_count != (uint64_t)r->ranks->count;
}

// Ranks that stand for their node (or all members, on one node). Returns how many.
static size_t leaders(const struct run *r, uint64_t *out) {
    if (alone(r)) {
        for (uint64_t i = 0; i < r->rank_count; i++)
            out[i] = i;
        return r->rank_count;
    }
    int mine[2] = {r->ranks->node, r->ranks->local_rank};
    int(*all)[2] = calloc((size_t)r->ranks->count, sizeof(*all));
    size_t n = 0;
    if (all == NULL)
        abort();
    r->ranks->gather(mine, sizeof(mine), all);
    for (int i = 0; i < r->ranks->count; i++)
        if (r->ranks->nodes == 1 || all[i][1] == 0)
            out[n++] = (uint64_t)i;
    free(all);
    return n;
}

static uint64_t pair_bytes(const struct run *r) {
    bool given = r->options->end_given;
    return given && r->options->end_bytes < PAIR_BYTES ? r->options->end_bytes / 4 * 4 : PAIR_BYTES;
}

void tournament_add_pairs(struct run *r, struct point_list *list) {
    uint64_t *who = arena_array(r->arena, r->rank_count, sizeof(*who));
    size_t n = leaders(r, who);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i + 1; j < n; j++) {
            struct bench_point p = {
                .kind = collective_name(COLLECTIVE_SEND_RECV),
                .collective = COLLECTIVE_SEND_RECV,
                .algorithm = "library",
                .dtype = DTYPE_BF16,
                .payload_bytes = pair_bytes(r),
                .paired = true,
                .first = who[i],
                .second = who[j],
            };
            run_add_point(r, list, &p);
        }
    }
}

void tournament_add_leave_one_out(struct run *r, struct point_list *list) {
    uint64_t *who = arena_array(r->arena, r->rank_count, sizeof(*who));
    size_t n = leaders(r, who);
    if (r->rank_count < 3 || r->rank_count != n)
        return; // several ranks of a node cannot be left out one by one
    for (size_t i = 0; i < n; i++) {
        struct bench_point p = {
            .kind = collective_name(COLLECTIVE_ALL_GATHER),
            .collective = COLLECTIVE_ALL_GATHER,
            .algorithm = "ring",
            .dtype = DTYPE_BF16,
            .payload_bytes = pair_bytes(r),
            .left_out = who[i] + 1,
        };
        run_add_point(r, list, &p);
    }
}

static bool pair_of(const struct measure_result *m, uint64_t ranks, uint64_t *a, uint64_t *b) {
    unsigned long long x, y;
    if (m->group == NULL || sscanf(m->group, "%llu,%llu", &x, &y) != 2 || x >= ranks || y >= ranks)
        return false;
    *a = x;
    *b = y;
    return true;
}

static bool left_out_of(const struct measure_result *m, uint64_t ranks, uint64_t *out) {
    unsigned long long x;
    if (m->group == NULL || sscanf(m->group, "all but %llu", &x) != 1 || x >= ranks)
        return false;
    *out = x;
    return true;
}

// The best that was seen: other load on a machine slows a pair down, nothing speeds it up.
static double best_rate(const struct measure_result *r) {
    bool known = r->min_s > 0 && r->median_s > 0;
    return r->busbw_bytes_per_s * (known ? r->median_s / r->min_s : 1);
}

static void name_rank(struct tournament *t, uint64_t rank) {
    for (size_t i = 0; i < t->slow_rank_count; i++)
        if (t->slow_ranks[i] == rank)
            return;
    if (t->slow_rank_count < 16)
        t->slow_ranks[t->slow_rank_count++] = rank;
}

// The best of all measurements of the same pair.
static double best_of_pair(const struct measurement *m, const struct measure_result *pair) {
    double best = 0;
    for (size_t i = 0; i < m->count; i++)
        if (m->results[i].group != NULL && strcmp(m->results[i].group, pair->group) == 0)
            best = fmax(best, best_rate(&m->results[i]));
    return best;
}

static bool named(const struct tournament *t, uint64_t a, uint64_t b) {
    for (size_t i = 0; i < t->slow_pair_count; i++)
        if (t->slow_pairs[i][0] == a && t->slow_pairs[i][1] == b)
            return true;
    return false;
}

// A slow rank is slow with everybody: its best pair is below the best pair of the median rank.
static void judge_pairs(const struct measurement *m, uint64_t ranks, double *best,
                        struct tournament *t) {
    uint64_t a, b;
    size_t n = 0;
    for (size_t i = 0; i < m->count; i++) {
        if (!pair_of(&m->results[i], ranks, &a, &b))
            continue;
        best[a] = fmax(best[a], best_rate(&m->results[i]));
        best[b] = fmax(best[b], best_rate(&m->results[i]));
    }
    double *sorted = malloc(ranks * sizeof(*sorted));
    if (sorted == NULL)
        abort();
    for (uint64_t i = 0; i < ranks; i++)
        if (best[i] > 0)
            sorted[n++] = best[i];
    t->typical_bytes_per_s = n > 0 ? stats_median(sorted, n) : NAN;
    free(sorted);
    for (uint64_t i = 0; n > 2 && i < ranks; i++)
        if (best[i] > 0 && best[i] < SLOW_SHARE * t->typical_bytes_per_s)
            name_rank(t, i);
    for (size_t i = 0; n > 2 && i < m->count; i++) {
        if (!pair_of(&m->results[i], ranks, &a, &b) ||
            !(best_of_pair(m, &m->results[i]) < SLOW_SHARE * fmin(best[a], best[b])) ||
            named(t, a, b) || t->slow_pair_count == 16)
            continue;
        t->slow_pairs[t->slow_pair_count][0] = a;
        t->slow_pairs[t->slow_pair_count++][1] = b;
    }
}

// Without the slow rank the others are faster than without anybody else.
static void judge_left_out(const struct measurement *m, uint64_t ranks, struct tournament *t) {
    double *busbw = malloc((m->count + 1) * sizeof(*busbw));
    uint64_t out;
    size_t n = 0;
    if (busbw == NULL)
        abort();
    for (size_t i = 0; i < m->count; i++)
        if (left_out_of(&m->results[i], ranks, &out))
            busbw[n++] = best_rate(&m->results[i]);
    double usual = n > 2 ? stats_median(busbw, n) : INFINITY;
    free(busbw);
    for (size_t i = 0; i < m->count; i++)
        if (left_out_of(&m->results[i], ranks, &out) &&
            usual < SLOW_SHARE * best_rate(&m->results[i]))
            name_rank(t, out);
}

void tournament_find(const struct measurement *m, uint64_t ranks, struct tournament *out) {
    double *best = calloc(ranks, sizeof(*best));
    if (best == NULL)
        abort();
    memset(out, 0, sizeof(*out));
    judge_pairs(m, ranks, best, out);
    judge_left_out(m, ranks, out);
    free(best);
}

void tournament_add_suspects(struct run *r, struct point_list *list) {
    struct tournament t = {0};
    if (r->ranks->rank == 0)
        tournament_find(sink_results(r->sink), r->rank_count, &t);
    r->ranks->broadcast(&t, sizeof(t), 0);
    struct point_list all = {0};
    tournament_add_pairs(r, &all);
    for (size_t i = 0; i < all.count; i++) {
        const struct bench_point *p = &all.items[i];
        bool suspect = named(&t, p->first, p->second);
        for (size_t k = 0; k < t.slow_rank_count; k++)
            suspect |= t.slow_ranks[k] == p->first || t.slow_ranks[k] == p->second;
        if (suspect)
            run_add_point(r, list, p);
    }
}

void tournament_judge(struct run *r) {
    struct tournament t;
    char rate[32];
    if (r->ranks->oversubscribed && r->ranks->nodes == 1) {
        run_note(r, "links are not judged: more ranks than processors");
        return;
    }
    tournament_find(sink_results(r->sink), r->rank_count, &t);
    const char *what = r->ranks->nodes > 1 ? "node of rank" : "rank";
    for (size_t i = 0; i < t.slow_rank_count; i++)
        run_note(r, "slow: %s %llu is slow with every partner", what,
                 (unsigned long long)t.slow_ranks[i]);
    for (size_t i = 0; i < t.slow_pair_count; i++)
        run_note(r, "slow: the link between ranks %llu and %llu; each is faster with others",
                 (unsigned long long)t.slow_pairs[i][0], (unsigned long long)t.slow_pairs[i][1]);
    if (t.slow_rank_count + t.slow_pair_count == 0 && isfinite(t.typical_bytes_per_s))
        run_note(r, "no slow link or node: pairs reach %s",
                 units_format_rate(rate, sizeof(rate), t.typical_bytes_per_s));
}
