// SPDX-License-Identifier: Apache-2.0
#include "bench/groups.h"

uint64_t groups_of(const struct bench_point *p, uint64_t count, uint64_t member) {
    if (p->paired)
        return member == p->first || member == p->second ? 0 : GROUPS_NONE;
    if (p->left_out > 0)
        return member == p->left_out - 1 ? GROUPS_NONE : 0;
    if (p->group_size == 0)
        return 0;
    uint64_t stride = p->group_stride ? p->group_stride : 1, block = p->group_size * stride;
    uint64_t whole = count / block * block;
    return member < whole ? member / block * stride + member % stride : GROUPS_NONE;
}

uint32_t groups_list(const struct bench_point *p, uint64_t count, uint64_t group, uint32_t *out) {
    uint32_t n = 0;
    for (uint64_t m = 0; group != GROUPS_NONE && m < count; m++)
        if (groups_of(p, count, m) == group)
            out[n++] = (uint32_t)m;
    return n;
}
