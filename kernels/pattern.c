// SPDX-License-Identifier: Apache-2.0
#include "kernels/pattern.h"

#include <string.h>

void pattern_store(enum pattern_type type, void *at, uint32_t value) {
    uint32_t bits = pattern_bits(type, value); // little-endian: its first bytes
    memcpy(at, &bits, pattern_bytes(type));
}

// Encoded elements of every possible value, so that filling and checking are table look-ups.
struct table {
    uint32_t range;
    size_t size;
    unsigned char element[128][4];
};

static void table_init(struct table *t, const struct pattern *p) {
    t->range = pattern_range(p->type, p->ranks);
    t->size = pattern_bytes(p->type);
    for (uint32_t v = 0; v < 128; v++)
        pattern_store(p->type, t->element[v], v);
}

void pattern_fill(const struct pattern *p, void *to, uint64_t first, uint64_t count) {
    struct table t;
    table_init(&t, p);
    unsigned char *at = to;
    for (uint64_t i = 0; i < count; i++)
        memcpy(at + i * t.size, t.element[pattern_value(p->seed, p->rank, first + i, t.range)],
               t.size);
}

uint64_t pattern_wrong(const struct pattern *p, const void *from, uint64_t first, uint64_t count) {
    struct table t;
    table_init(&t, p);
    const unsigned char *at = from;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t v = pattern_value(p->seed, p->rank, first + i, t.range);
        wrong += memcmp(at + i * t.size, t.element[v], t.size) != 0;
    }
    return wrong;
}

uint64_t pattern_wrong_sum(const struct pattern *p, const uint32_t *members, const void *from,
                           uint64_t first, uint64_t count) {
    const unsigned char *at = from;
    uint32_t range = pattern_range(p->type, p->ranks);
    size_t size = pattern_bytes(p->type);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t sum = 0;
        unsigned char element[4];
        for (uint32_t r = 0; r < p->ranks; r++)
            sum += pattern_value(p->seed, members ? members[r] : r, first + i, range);
        pattern_store(p->type, element, sum);
        wrong += memcmp(at + i * size, element, size) != 0;
    }
    return wrong;
}
