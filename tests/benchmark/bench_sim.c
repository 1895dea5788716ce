// SPDX-License-Identifier: Apache-2.0
// Tasks per second of the event engine with sharing on, 2,000 to 100,000 tasks. Fails below the
// rate given as the first argument (0 = report only), for builds without optimisation or
// sanitizers.
#include "base/arena.h"
#include "base/stats.h"
#include "base/units.h"
#include "plan/sim.h"

#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STREAMS = 8, RESOURCES = 4, REPEATS = 7 };

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); // a rate per core, whoever shares it
    return (double)t.tv_sec + (double)t.tv_nsec * UNITS_NANO;
}

// A step-like graph: a compute stream, copies and collectives that share a switch, a network card
// and the multiprocessors, with dependencies a few tasks back and a host that issues everything.
static struct sim *build(struct arena *a, uint32_t tasks) {
    struct sim *s = sim_create(a, STREAMS, RESOURCES);
    for (uint32_t i = 0; i < RESOURCES; i++)
        sim_resource(s, i, 1);
    for (uint32_t i = 0; i < tasks; i++) {
        uint64_t bits = stats_random_u64(1, 2, i);
        struct sim_task t = {.stream = (uint32_t)(bits % STREAMS),
                             .duration_s = (double)(bits >> 8 & 1023) * UNITS_MICRO,
                             .issue_s = 2 * UNITS_MICRO};
        for (uint32_t k = 1; k <= 2 && i > 8; k++)
            t.deps[t.dep_count++] = i - 1 - (uint32_t)(bits >> (16 + 4 * k) & 7);
        t.demands[0] = (struct sim_demand){(uint32_t)(bits >> 40 & 3), 0.3};
        t.demands[1] = (struct sim_demand){(uint32_t)(bits >> 44 & 3), 0.5};
        t.demand_count = t.demands[0].resource == t.demands[1].resource ? 1 : 2;
        t.alloc_bytes_at_start = t.free_bytes_at_end = (int64_t)(bits >> 50);
        sim_add(s, &t);
    }
    return s;
}

static int counter_open(void) {
    struct perf_event_attr attr = {.type = PERF_TYPE_HARDWARE,
                                   .size = sizeof attr,
                                   .config = PERF_COUNT_HW_INSTRUCTIONS,
                                   .disabled = 1,
                                   .exclude_kernel = 1};
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

static double measure(uint32_t tasks, int counter, double *instructions) {
    double best_s = 1e9;
    struct arena *graph = arena_create(), *run = arena_create();
    struct sim *s = build(graph, tasks);
    for (int i = 0; i < REPEATS; i++) {
        arena_reset(run);
        struct sim_result out;
        if (counter >= 0) {
            ioctl(counter, PERF_EVENT_IOC_RESET, 0);
            ioctl(counter, PERF_EVENT_IOC_ENABLE, 0);
        }
        double begin_s = now_s();
        if (!sim_run(s, NULL, run, &out, NULL))
            abort();
        double took_s = now_s() - begin_s;
        long long count = 0;
        if (counter >= 0 && read(counter, &count, sizeof count) == sizeof count)
            *instructions = (double)count / tasks;
        best_s = took_s < best_s ? took_s : best_s;
    }
    arena_destroy(graph);
    arena_destroy(run);
    return tasks / best_s;
}

int main(int argc, char **argv) {
    const uint32_t sizes[] = {2000, 5000, 10000, 20000, 50000, 100000};
    double wanted = argc > 1 ? atof(argv[1]) : 0, slowest = 1e300;
    int counter = counter_open();
    printf("%10s %16s %20s\n", "tasks", "tasks/s (M)", "instructions/task");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double instructions = 0;
        double rate = measure(sizes[i], counter, &instructions);
        slowest = rate < slowest ? rate : slowest;
        if (counter >= 0)
            printf("%10u %16.2f %20.0f\n", sizes[i], rate / UNITS_MEGA, instructions);
        else
            printf("%10u %16.2f %20s\n", sizes[i], rate / UNITS_MEGA, "no counter");
    }
    return slowest < wanted ? 1 : 0;
}
