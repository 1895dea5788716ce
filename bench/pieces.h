// SPDX-License-Identifier: Apache-2.0
// Which contents a collective starts from and must end in, in pieces of one member's array each:
// what backends fill and check, whatever memory it lies in.
#pragma once

#include "base/kinds.h"

#include <stdbool.h>
#include <stdint.h>

// One member's place in a collective.
struct pieces_place {
    enum collective collective;
    uint32_t rank, size;     // among the members
    const uint32_t *members; // whose contents are whose, by rank
    uint64_t chunk;          // elements of one member's part
    bool in_place;
};

// Elements [first, first + count) of member `owner`'s array, or of the sum over all members; in
// the buffer they start at its chunk `at`.
struct piece {
    uint64_t at, first, count;
    uint32_t owner;
    bool summed;
};

// What the member holds before, in its sending buffer.
struct piece pieces_sent(const struct pieces_place *p);

// The i-th piece of what it must hold afterwards, in its receiving buffer. False: there is no more.
bool pieces_received(const struct pieces_place *p, uint32_t i, struct piece *out);
