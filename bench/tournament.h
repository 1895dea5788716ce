// SPDX-License-Identifier: Apache-2.0
// Finding the slow link or node: every pair of nodes exchanges data both ways, and a collective
// runs without each node in turn. docs/method.md §tournament.
#pragma once

#include "bench/run.h"

// Pairs of nodes (their first ranks); pairs of ranks when there is one node.
void tournament_add_pairs(struct run *r, struct point_list *list);
void tournament_add_leave_one_out(struct run *r, struct point_list *list);

// Pairs that the results so far would name: a second look before anybody is blamed.
void tournament_add_suspects(struct run *r, struct point_list *list);

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
