// SPDX-License-Identifier: Apache-2.0
// A process alone: the form of ranks.h in a build without MPI, and of any run not launched as
// ranks.
#include <stdlib.h>
#include <string.h>

#include "bench/ranks.h"
#include "bench/ranks_private.h"

static void broadcast(void *data, size_t bytes, int root) {
    (void)data, (void)bytes, (void)root;
}

static void gather(const void *mine, size_t bytes, void *all) {
    memcpy(all, mine, bytes);
}

static void largest(double *values, size_t n) {
    (void)values, (void)n;
}

static void barrier(void) {
}

static void end(int status, const char *why) {
    (void)why;
    exit(status);
}

static const struct ranks alone = {
    .count = 1,
    .nodes = 1,
    .local_count = 1,
    .library = "single process",
    .broadcast = broadcast,
    .gather = gather,
    .largest = largest,
    .barrier = barrier,
    .abort = end,
};

const struct ranks *ranks_alone(void) {
    return &alone;
}
