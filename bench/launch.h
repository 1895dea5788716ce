// SPDX-License-Identifier: Apache-2.0
// Starting this program's own ranks on this machine with mpirun.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "bench/signals.h"

#include <stdbool.h>
#include <stdint.h>

struct launch {
    const char *const *argv; // of this program: argv[0] is replaced by its path; NULL-terminated
    const char *out;         // the ranks append their results here
    uint64_t ranks;          // 0 = one per processor, at least 2
    double timeout_s;        // longest time without a new result
};

// Waits for the ranks. *status is the exit status they agreed on (0 or 1: done). ERR_RESOURCE when
// mpirun is missing, a rank died or nothing moved for too long; ERR_INTERRUPTED on a signal.
bool launch_ranks(const struct launch *l, struct signals *s, struct arena *a, int *status,
                  struct err *e);

// How many ranks a request for `asked` starts.
uint64_t launch_rank_count(uint64_t asked);

// True in a process that launch_ranks started: it appends results and prints no table.
bool launch_is_child(void);
