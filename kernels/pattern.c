// SPDX-License-Identifier: Apache-2.0
#include "kernels/pattern.h"

#include <string.h>

#include "kernels/half.h"

size_t pattern_bytes(enum pattern_type type) {
    return type == PATTERN_FP32 ? 4 : type == PATTERN_INT8 ? 1 : 2;
}

void pattern_store(enum pattern_type type, void *at, uint32_t value) {
    float f = (float)value;
    uint16_t h;
    switch (type) {
    case PATTERN_FP32:
        memcpy(at, &f, sizeof(f));
        break;
    case PATTERN_BF16:
        h = half_to_bf16(f);
        memcpy(at, &h, sizeof(h));
        break;
    case PATTERN_FP16:
        h = half_to_fp16(f);
        memcpy(at, &h, sizeof(h));
        break;
    default:
        *(uint8_t *)at = (uint8_t)value;
    }
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
