// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "bench/clock.h"
#include "bench/io.h"
#include "bench/rehearse_private.h"

#define UNIT_TURNS 1000

// A chain of dependent additions: its time is the core's, whatever the memory does.
void rehearse_spin(double units) {
    volatile double sum = 0;
    for (double u = 0; u < units; u++) {
        double x = sum;
        for (int i = 0; i < UNIT_TURNS; i++) {
            x += 1.0;
            __asm__ volatile("" : "+x"(x)); // keeps the chain
        }
        sum = x;
    }
}

// The best of several: what the core does when nobody disturbs it.
double rehearse_calibrate(void) {
    const double units = 2000;
    double best_s = INFINITY;
    for (int i = 0; i < 9; i++) {
        double before = clock_now_s();
        rehearse_spin(units);
        best_s = fmin(best_s, clock_now_s() - before);
    }
    return units / best_s;
}

static bool storage(const struct graph_task *t, struct rehearse_lane *lane,
                    const struct rehearse_work *w, struct err *e) {
    const uint64_t piece = 4 * UNITS_MIB;
    bool write = t->kind == GRAPH_NVME_WRITE;
    uint64_t left = (uint64_t)(t->bytes * w->shrink), at = 0;
    while (left > 0) {
        // Whole pieces keep O_DIRECT's alignment; the last one may be a little longer.
        size_t n = piece;
        if (at + n > w->file.bytes)
            at = 0;
        ssize_t done = write ? pwrite(w->file.fd, lane->from, n, (off_t)at)
                             : pread(w->file.fd, lane->from, n, (off_t)at);
        if (done != (ssize_t)n)
            return io_failed(write, (int)done, n, e);
        at += n;
        left -= left < n ? left : n;
    }
    return true;
}

static void optimizer(const struct graph_task *t, struct rehearse_lane *lane, double shrink) {
    struct adam_hyper h = adam_hyper_at((struct adam_settings){1e-3, 0.9, 0.999, 1e-8, 0.01}, 10);
    double left = t->bytes * shrink; // its bytes are elements
    while (left > 0) {
        size_t n = left < (double)lane->adam_elements ? (size_t)ceil(left) : lane->adam_elements;
        adam_best()->step(&lane->adam, &h, 0, n);
        left -= (double)n;
    }
}

bool rehearse_do(const struct graph_task *t, struct rehearse_lane *lane,
                 const struct rehearse_work *w, struct err *e) {
    switch (t->kind) {
    case GRAPH_COPY:
        memcpy(lane->to, lane->from, (size_t)(t->bytes * w->shrink));
        return true;
    case GRAPH_NVME_READ:
    case GRAPH_NVME_WRITE:
        return storage(t, lane, w, e);
    case GRAPH_ADAM:
        optimizer(t, lane, w->shrink);
        return true;
    case GRAPH_ALLOC:
    case GRAPH_FREE:
        return true; // its memory is the lanes': a host has no allocator to imitate
    default:
        rehearse_spin(t->duration_s * w->shrink * w->units_per_s);
        return true;
    }
}
