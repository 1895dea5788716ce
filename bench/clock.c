// SPDX-License-Identifier: Apache-2.0
#include "bench/clock.h"

#include <time.h>

#include "base/units.h"

static double read_clock(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * UNITS_NANO;
}

double clock_now_s(void) {
    return read_clock(CLOCK_MONOTONIC);
}

double clock_thread_cpu_s(void) {
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

double clock_process_cpu_s(void) {
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

bool clock_time(clock_body *body, void *context, size_t count, double *samples_s, struct err *e) {
    double before = clock_now_s();
    for (size_t i = 0; i < count; i++) {
        if (!body(context, e))
            return false;
        double after = clock_now_s();
        samples_s[i] = after - before;
        before = after;
    }
    return true;
}
