// SPDX-License-Identifier: Apache-2.0
// Who of a run's members (ranks, or GPUs) takes part in a point, and with whom.
#pragma once

#include "bench/backend.h"

#include <stdint.h>

#define GROUPS_NONE UINT64_MAX

// The group of `member` among `count`; groups are of neighbours, or strided. GROUPS_NONE: it stays
// out.
uint64_t groups_of(const struct bench_point *p, uint64_t count, uint64_t member);

// The members of `group`, ascending; `out` has room for `count`. Returns how many.
uint32_t groups_list(const struct bench_point *p, uint64_t count, uint64_t group, uint32_t *out);
