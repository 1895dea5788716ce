// SPDX-License-Identifier: Apache-2.0
// Time to build, run and account one step: an 80-layer FSDP2 step on 4 and on 16,384 GPUs. Fails
// when it takes longer than the first argument in microseconds (0 = report only).
#include "base/arena.h"
#include "base/units.h"
#include "plan/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { REPEATS = 50 };

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); // a rate per core, whoever shares it
    return (double)t.tv_sec + (double)t.tv_nsec * UNITS_NANO;
}

static double best_s(const struct step_request *q) {
    struct arena *a = arena_create();
    double best = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        struct step_time t;
        arena_reset(a);
        double begin_s = now_s();
        if (!step_simulate(q, a, &t, NULL, NULL))
            abort();
        double took_s = now_s() - begin_s;
        best = took_s < best ? took_s : best;
    }
    arena_destroy(a);
    return best;
}

int main(int argc, char **argv) {
    double wanted_s = argc > 1 ? atof(argv[1]) * UNITS_MICRO : 0, slowest_s = 0;
    const uint64_t gpus[] = {4, 16384};
    struct arena *a = arena_create();
    for (int i = 0; i < 2; i++) {
        struct model m;
        struct cluster c;
        struct recipe r;
        struct err e = {0};
        recipe_defaults(STRATEGY_FSDP2, &r);
        r.seq = 4096;
        r.micro_batch = r.grad_accum = 1;
        if (!model_load("llama-2-70b", a, &m, &e) || !cluster_load("dgx-h100", a, &c, &e) ||
            !cluster_resize(&c, (gpus[i] + 7) / 8, gpus[i], &e) ||
            !recipe_resolve(&r, &m, &c, &e)) {
            fprintf(stderr, "%s\n", e.text);
            return 1;
        }
        struct step_request q = {.model = &m, .cluster = &c, .recipe = &r};
        double took_s = best_s(&q);
        slowest_s = took_s > slowest_s ? took_s : slowest_s;
        printf("%6llu GPUs: %.0f us a step\n", (unsigned long long)gpus[i], took_s / UNITS_MICRO);
    }
    arena_destroy(a);
    return wanted_s > 0 && slowest_s > wanted_s ? 1 : 0;
}
