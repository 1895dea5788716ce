// SPDX-License-Identifier: Apache-2.0
// How long a wait for a device may take: its time limit, and after an interrupt only as long as
// work that is well needs to end.
#pragma once

#include "base/err.h"
#include "bench/signals.h"

#include <stdbool.h>

struct patience {
    double limit_s;          // longest silence
    struct signals *signals; // NULL: nobody interrupts
};

struct patience_wait {
    struct patience patience;
    double deadline_s; // of clock_now_s
    bool interrupted;
};

struct patience_wait patience_begin(struct patience p);

// A short nap. False when there is no time left, with ERR_INTERRUPTED in `e` if an interrupt took
// it away; otherwise the caller says what was silent.
bool patience_nap(struct patience_wait *w, struct err *e);
