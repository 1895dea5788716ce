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
// Looks at the same suspects after which they are named, and the most looks in all.
#define ROUNDS_STEADY 2
#define ROUNDS_MAX 6

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

static struct bench_point pair_point(const struct run *r, uint64_t first, uint64_t second) {
    return (struct bench_point){
        .kind = collective_name(COLLECTIVE_SEND_RECV),
        .collective = COLLECTIVE_SEND_RECV,
        .algorithm = "library",
        .dtype = DTYPE_BF16,
        .payload_bytes = pair_bytes(r),
        .paired = true,
        .first = first,
        .second = second,
    };
}

static struct bench_point left_out_point(const struct run *r, uint64_t rank) {
    return (struct bench_point){
        .kind = collective_name(COLLECTIVE_ALL_GATHER),
        .collective = COLLECTIVE_ALL_GATHER,
        .algorithm = "ring",
        .dtype = DTYPE_BF16,
        .payload_bytes = pair_bytes(r),
        .left_out = rank + 1,
    };
}

void tournament_add_pairs(struct run *r, struct point_list *list) {
    uint64_t *who = arena_array(r->arena, r->rank_count, sizeof(*who));
    size_t n = leaders(r, who);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i + 1; j < n; j++) {
            struct bench_point p = pair_point(r, who[i], who[j]);
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
        struct bench_point p = left_out_point(r, who[i]);
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

static bool same_group(const struct measure_result *x, const struct measure_result *y) {
    return x->group != NULL && y->group != NULL && strcmp(x->group, y->group) == 0;
}

// Seconds per byte of every sample of the turns of one pair; returns how many.
static size_t pool(const struct measurement *m, size_t of, double *out) {
    size_t n = 0;
    for (size_t i = of; i < m->count; i++) {
        const struct measure_result *r = &m->results[i];
        if (!same_group(r, &m->results[of]) || !(r->busbw_bytes_per_s > 0))
            continue;
        bool known = r->samples > 0 && r->median_s > 0;
        for (size_t k = 0; k < (known ? r->samples : 1) && out != NULL; k++)
            out[n + k] = (known ? r->samples_s[k] / r->median_s : 1) / r->busbw_bytes_per_s;
        n += known ? r->samples : 1;
    }
    return n;
}

// Of each result's pair, the rate of the lower quartile of the times of all its turns: other load
// lengthens many of them, and one taken right after a late stamp is too short, so neither the
// median nor the least says what a link can do. The caller frees.
static double *usual_rates(const struct measurement *m) {
    double *rates = calloc(m->count + 1, sizeof(*rates));
    if (rates == NULL)
        abort();
    for (size_t i = 0; i < m->count; i++) {
        size_t first = 0;
        while (first < i && !same_group(&m->results[first], &m->results[i]))
            first++;
        size_t n = first == i ? pool(m, i, NULL) : 0;
        double *times = malloc((n + 1) * sizeof(*times));
        if (times == NULL)
            abort();
        if (n > 0)
            pool(m, i, times);
        rates[i] = first < i ? rates[first] : n > 0 ? 1 / stats_quantile(times, n, 0.25) : 0;
        free(times);
    }
    return rates;
}

static void name_rank(struct tournament *t, uint64_t rank) {
    for (size_t i = 0; i < t->slow_rank_count; i++)
        if (t->slow_ranks[i] == rank)
            return;
    if (t->slow_rank_count < 16)
        t->slow_ranks[t->slow_rank_count++] = rank;
}

static bool named(const struct tournament *t, uint64_t a, uint64_t b) {
    for (size_t i = 0; i < t->slow_pair_count; i++)
        if (t->slow_pairs[i][0] == a && t->slow_pairs[i][1] == b)
            return true;
    return false;
}

// A slow rank is slow with everybody: its best pair is below the best pair of the median rank.
static void judge_pairs(const struct measurement *m, uint64_t ranks, const double *rates,
                        struct tournament *t) {
    double *best = calloc(ranks, sizeof(*best)), *sorted = malloc(ranks * sizeof(*sorted));
    uint64_t a, b;
    size_t n = 0;
    if (best == NULL || sorted == NULL)
        abort();
    for (size_t i = 0; i < m->count; i++) {
        if (!pair_of(&m->results[i], ranks, &a, &b))
            continue;
        best[a] = fmax(best[a], rates[i]);
        best[b] = fmax(best[b], rates[i]);
    }
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
            !(rates[i] < SLOW_SHARE * fmin(best[a], best[b])) || named(t, a, b) ||
            t->slow_pair_count == 16)
            continue;
        t->slow_pairs[t->slow_pair_count][0] = a;
        t->slow_pairs[t->slow_pair_count++][1] = b;
    }
    free(best);
}

// The best of all runs without `out`; with `others`, without any other rank.
static double best_left_out(const struct measurement *m, uint64_t ranks, const double *rates,
                            uint64_t out, bool others) {
    double best = 0;
    uint64_t x;
    for (size_t i = 0; i < m->count; i++)
        if (left_out_of(&m->results[i], ranks, &x) && (x != out) == others)
            best = fmax(best, rates[i]);
    return best;
}

// Without the slow rank the others are faster than without anybody else. A slow link makes two
// runs fast, each without one of its ends, and names nobody.
static void judge_left_out(const struct measurement *m, uint64_t ranks, const double *rates,
                           struct tournament *t) {
    size_t n = 0;
    for (uint64_t i = 0; i < ranks; i++)
        n += best_left_out(m, ranks, rates, i, false) > 0;
    for (uint64_t i = 0; n > 2 && i < ranks; i++)
        if (best_left_out(m, ranks, rates, i, true) <
            SLOW_SHARE * best_left_out(m, ranks, rates, i, false))
            name_rank(t, i);
}

void tournament_find(const struct measurement *m, uint64_t ranks, struct tournament *out) {
    double *rates = usual_rates(m);
    memset(out, 0, sizeof(*out));
    judge_pairs(m, ranks, rates, out);
    judge_left_out(m, ranks, rates, out);
    free(rates);
}

static bool named_rank(const struct tournament *t, uint64_t rank) {
    for (size_t i = 0; i < t->slow_rank_count; i++)
        if (t->slow_ranks[i] == rank)
            return true;
    return false;
}

static bool suspect(const struct tournament *t, uint64_t a, uint64_t b) {
    return named(t, a, b) || named_rank(t, a) || named_rank(t, b);
}

static void add_pick(struct tournament_round *o, struct tournament_pick p) {
    if (o->count == o->room) {
        o->room = o->room ? 2 * o->room : 32;
        o->items = realloc(o->items, o->room * sizeof(*o->items));
        if (o->items == NULL)
            abort();
    }
    o->items[o->count++] = p;
}

// What a round is made from.
struct look {
    const struct measurement *m;
    uint64_t ranks;
    const struct tournament *t;
    const double *rates;
};

// What a suspect is compared with: the fastest pair of its end that nobody suspects; of anybody,
// when that end is a suspect itself.
static void add_mark(const struct look *k, uint64_t end, struct tournament_round *o) {
    double best = 0;
    struct tournament_pick mark = {0};
    uint64_t a, b;
    for (size_t i = 0; i < k->m->count; i++) {
        if (!(k->rates[i] > best) || !pair_of(&k->m->results[i], k->ranks, &a, &b) ||
            suspect(k->t, a, b) || (a != end && b != end && !named_rank(k->t, end)))
            continue;
        best = k->rates[i];
        mark = (struct tournament_pick){.first = a, .second = b};
    }
    if (best > 0)
        add_pick(o, mark);
}

static bool first_of_pair(const struct measurement *m, size_t at) {
    for (size_t i = 0; i < at; i++)
        if (same_group(&m->results[i], &m->results[at]))
            return false;
    return true;
}

void tournament_next_round(const struct measurement *m, uint64_t ranks, const struct tournament *t,
                           struct tournament_round *o) {
    double *rates = usual_rates(m);
    struct look k = {.m = m, .ranks = ranks, .t = t, .rates = rates};
    uint64_t a, b;
    o->count = 0;
    for (size_t i = 0; i < m->count; i++) {
        if (!pair_of(&m->results[i], ranks, &a, &b) || !suspect(t, a, b) || !first_of_pair(m, i))
            continue;
        add_mark(&k, a, o);
        add_pick(o, (struct tournament_pick){.first = a, .second = b});
        add_mark(&k, b, o);
    }
    bool left_out = false; // all of them again: which stands out is a matter of all
    for (size_t i = 0; i < t->slow_rank_count; i++)
        left_out |= best_left_out(m, ranks, rates, t->slow_ranks[i], false) > 0;
    for (uint64_t i = 0; left_out && i < ranks; i++)
        if (best_left_out(m, ranks, rates, i, false) > 0)
            add_pick(o, (struct tournament_pick){.left_out = i + 1});
    free(rates);
}

static bool same_names(const struct tournament *x, const struct tournament *y) {
    return x->slow_rank_count == y->slow_rank_count && x->slow_pair_count == y->slow_pair_count &&
           memcmp(x->slow_ranks, y->slow_ranks, sizeof(x->slow_ranks)) == 0 &&
           memcmp(x->slow_pairs, y->slow_pairs, sizeof(x->slow_pairs)) == 0;
}

// Rank 0 knows the results and says to all what the round consists of.
static void share_round(const struct run *r, struct tournament_round *o, struct tournament *t) {
    uint64_t count = 0;
    if (r->ranks->rank == 0) {
        tournament_find(sink_results(r->sink), r->rank_count, t);
        tournament_next_round(sink_results(r->sink), r->rank_count, t, o);
        count = o->count;
    }
    r->ranks->broadcast(t, sizeof(*t), 0);
    r->ranks->broadcast(&count, sizeof(count), 0);
    while (o->count < count)
        add_pick(o, (struct tournament_pick){0});
    if (count > 0)
        r->ranks->broadcast(o->items, count * sizeof(*o->items), 0);
}

static bool run_round(struct run *r, const struct backend *b, const struct tournament_round *o,
                      struct err *e) {
    struct point_list list = {0};
    for (size_t i = 0; i < o->count; i++) {
        const struct tournament_pick *k = &o->items[i];
        struct bench_point p = k->left_out > 0 ? left_out_point(r, k->left_out - 1)
                                               : pair_point(r, k->first, k->second);
        run_add_point(r, &list, &p);
    }
    r->again = true;
    bool ok = run_points(r, b, &list, e);
    r->again = false;
    return ok;
}

static bool judged(const struct run *r) {
    return !r->ranks->oversubscribed || r->ranks->nodes > 1;
}

bool tournament_look_again(struct run *r, const struct backend *b, struct err *e) {
    struct tournament_round o = {0};
    struct tournament before = {0}, t = {0};
    bool ok = true;
    for (int round = 0, steady = 0; ok && judged(r) && round <= ROUNDS_MAX; round++) {
        before = t;
        o.count = 0;
        share_round(r, &o, &t);
        steady = round > 0 && same_names(&t, &before) ? steady + 1 : 0;
        if (o.count == 0 || steady == ROUNDS_STEADY || round == ROUNDS_MAX)
            break;
        ok = run_round(r, b, &o, e);
    }
    free(o.items);
    return ok;
}

void tournament_judge(struct run *r) {
    struct tournament t;
    char rate[32];
    if (!judged(r)) {
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
