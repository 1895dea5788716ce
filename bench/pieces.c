// SPDX-License-Identifier: Apache-2.0
#include "bench/pieces.h"

struct piece pieces_sent(const struct pieces_place *p) {
    struct piece out = {.count = p->chunk, .owner = p->members[p->rank]};
    switch (p->collective) {
    case COLLECTIVE_ALL_GATHER:
        out.at = p->in_place ? p->rank : 0;
        out.first = p->rank * p->chunk;
        break;
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_ALL_REDUCE:
    case COLLECTIVE_ALL_TO_ALL:
        out.count = p->size * p->chunk;
        break;
    default:
        break;
    }
    return out;
}

bool pieces_received(const struct pieces_place *p, uint32_t i, struct piece *out) {
    bool parts = p->collective == COLLECTIVE_ALL_GATHER || p->collective == COLLECTIVE_ALL_TO_ALL;
    if (i >= (parts ? p->size : 1))
        return false;
    *out = (struct piece){.count = p->chunk};
    switch (p->collective) {
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_ALL_TO_ALL:
        out->at = i;
        out->first = (p->collective == COLLECTIVE_ALL_GATHER ? i : p->rank) * p->chunk;
        out->owner = p->members[i];
        return true;
    case COLLECTIVE_REDUCE_SCATTER:
        out->first = p->rank * p->chunk;
        out->summed = true;
        return true;
    case COLLECTIVE_ALL_REDUCE:
        out->count = p->size * p->chunk;
        out->summed = true;
        return true;
    case COLLECTIVE_REDUCE:
        out->summed = true;
        return p->rank == 0;
    case COLLECTIVE_BROADCAST:
        out->owner = p->members[0];
        return true;
    default:
        out->owner = p->members[(p->rank + p->size - 1) % p->size];
        return true;
    }
}
