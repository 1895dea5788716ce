// SPDX-License-Identifier: Apache-2.0
// The 16-bit sums of collectives, portable loop against the best of this processor: segments of
// 256 KiB as the ring adds them, alternated in one process, medians. Fails below the ratio given.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"
#include "bench/clock.h"
#include "kernels/reduce.h"

#define COUNT (128 * 1024)
#define TURNS 41
#define REPEATS 20

static uint16_t to[COUNT], from[COUNT];

static double once(const struct reduce_variant *v, bool fp16) {
    memset(to, 0, sizeof(to));
    double before = clock_thread_cpu_s();
    for (int i = 0; i < REPEATS; i++)
        fp16 ? v->sum_fp16(to, from, COUNT) : v->sum_bf16(to, from, COUNT);
    return (clock_thread_cpu_s() - before) / REPEATS;
}

int main(int argc, char **argv) {
    double wanted = argc > 1 ? atof(argv[1]) : 0;
    const struct reduce_variant *best = reduce_variants, *portable = reduce_variants;
    bool well = true;
    while (!best->supported())
        best++;
    while (portable[1].name != NULL)
        portable++;
    if (best == portable) {
        printf("only the portable sums run on this processor\n");
        return 77;
    }
    for (size_t i = 0; i < COUNT; i++)
        from[i] = (uint16_t)(i % 0x0800); // small: no sum leaves the range
    for (int fp16 = 0; fp16 < 2; fp16++) {
        double times[2][2 * TURNS];
        for (int t = 0; t < TURNS; t++) {
            times[0][2 * t] = once(portable, fp16);
            times[1][2 * t] = once(best, fp16);
            times[1][2 * t + 1] = once(best, fp16);
            times[0][2 * t + 1] = once(portable, fp16);
        }
        double slow = stats_median(times[0], 2 * TURNS), fast = stats_median(times[1], 2 * TURNS);
        printf("{\"benchmark\":\"reduce\",\"dtype\":\"%s\",\"variant\":\"%s\","
               "\"portable_elements_per_s\":%.4g,\"elements_per_s\":%.4g,\"ratio\":%.2f}\n",
               fp16 ? "fp16" : "bf16", best->name, COUNT / slow, COUNT / fast, slow / fast);
        well = well && (!fp16 || slow / fast >= wanted);
    }
    return well ? 0 : 1;
}
