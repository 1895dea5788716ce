// SPDX-License-Identifier: Apache-2.0
// Traces and snapshots of any bytes: refused with a reason, or totals that hold together.
#include "describe/profile.h"
#include "describe/snapshot.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void trace(const char *text, size_t size) {
    struct arena *a = arena_create();
    struct warnings w = {0};
    struct profile p;
    struct err e = {0};
    if (!profile_parse(text, size, "fuzz", a, &w, &p, &e)) {
        if (e.kind != ERR_INPUT || e.text[0] == '\0')
            abort();
    } else {
        double parts = p.compute_s + p.exposed_comm_s + p.exposed_copy_s + p.idle_s;
        double whole = 0;
        for (size_t i = 0; i < p.step_count; i++)
            whole += p.steps[i].step_s / (double)p.step_count;
        if (p.step_count == 0 || !(fabs(parts - whole) <= 1e-6 * whole))
            abort();
    }
    arena_destroy(a);
}

static void snapshot(const char *text, size_t size) {
    struct arena *a = arena_create();
    struct warnings w = {0};
    struct snapshot s;
    struct err e = {0};
    if (!snapshot_parse(text, size, "fuzz", a, &w, &s, &e)) {
        if (e.kind != ERR_INPUT || e.text[0] == '\0')
            abort();
    } else {
        uint64_t sum = 0;
        for (int i = 0; i < SNAPSHOT_CLASS_COUNT; i++)
            sum += s.peak_bytes[i];
        if (sum != s.allocated_peak_bytes || s.peak_framed_bytes > sum)
            abort();
    }
    arena_destroy(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    trace((const char *)data, size);
    snapshot((const char *)data, size);
    return 0;
}
