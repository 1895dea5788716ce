// SPDX-License-Identifier: Apache-2.0
#include "bench/patience.h"

#include <math.h>
#include <time.h>

#include "bench/clock.h"

#define NAP_NS 20000
#define AFTER_INTERRUPT_S 0.5

struct patience_wait patience_begin(struct patience p) {
    return (struct patience_wait){.patience = p, .deadline_s = clock_now_s() + p.limit_s};
}

bool patience_nap(struct patience_wait *w, struct err *e) {
    const struct timespec nap = {.tv_nsec = NAP_NS};
    if (!w->interrupted && w->patience.signals != NULL &&
        signals_interrupted(w->patience.signals)) {
        w->interrupted = true;
        w->deadline_s = fmin(w->deadline_s, clock_now_s() + AFTER_INTERRUPT_S);
    }
    if (clock_now_s() > w->deadline_s)
        return w->interrupted ? err_set(e, ERR_INTERRUPTED, "interrupted") : false;
    nanosleep(&nap, NULL);
    return true;
}
