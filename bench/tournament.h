// SPDX-License-Identifier: Apache-2.0
// Finding the slow link or node: every pair of nodes exchanges data both ways, and a collective
// runs without each node in turn. docs/method.md §tournament.
#pragma once

#include "bench/run.h"

// Pairs of nodes (their first ranks); pairs of ranks when there is one node.
void tournament_add_pairs(struct run *r, struct point_list *list);
void tournament_add_leave_one_out(struct run *r, struct point_list *list);

// Before anybody is blamed: whom the results so far would name is measured again, in turn with
// those who set the mark, until two rounds leave the names as they are. Collective over the ranks.
bool tournament_look_again(struct run *r, const struct backend *b, struct err *e);

// Rank 0: adds a note for each slow pair and node, or one that there is none.
void tournament_judge(struct run *r);

// The judgement alone, over any results with groups "a,b" and "all but c".
struct tournament {
    uint64_t slow_ranks[16];
    size_t slow_rank_count;
    uint64_t slow_pairs[16][2];
    size_t slow_pair_count;
    double typical_bytes_per_s; // best rate of the median rank
};
void tournament_find(const struct measurement *m, uint64_t ranks, struct tournament *out);

// What a round of second looks measures, in order: each suspect pair between the fastest trusted
// pairs of its ends, then, when a suspect rank was left out of a collective, every rank left out.
struct tournament_pick {
    uint64_t first, second; // of a pair
    uint64_t left_out;      // rank + 1; 0: a pair
};
struct tournament_round {
    struct tournament_pick *items; // malloc'ed, freed by the caller
    size_t count, room;
};
void tournament_next_round(const struct measurement *m, uint64_t ranks, const struct tournament *t,
                           struct tournament_round *out);
