// SPDX-License-Identifier: Apache-2.0
#include "bench/ranks.h"

#include <stdlib.h>

#include "bench/bench_features.h"
#include "bench/ranks_private.h"

bool ranks_launched(void) {
    static const char *const marks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        if (getenv(marks[i]) != NULL)
            return true;
    return false;
}

static int count_in(const char *name) {
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : 0;
}

int ranks_strangers(void) {
    // A batch script has SLURM_PROCID too, but is no step.
    int tasks = count_in("SLURM_STEP_NUM_TASKS");
    return !ranks_launched() && getenv("SLURM_PROCID") != NULL && tasks > 1 ? tasks : 0;
}

int ranks_promised(void) {
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (count_in(sizes[i]) > 0)
            return count_in(sizes[i]);
    return getenv("PMIX_RANK") != NULL && count_in("SLURM_STEP_NUM_TASKS") > 0
               ? count_in("SLURM_STEP_NUM_TASKS")
               : 1;
}

bool ranks_open(bool many_threads, const struct ranks **out, struct err *e) {
#if BENCH_HAVE_MPI
    if (ranks_launched())
        return ranks_mpi_open(many_threads, out, e);
#endif
    (void)e, (void)many_threads;
    *out = ranks_alone();
    return true;
}

void ranks_close(const struct ranks *r) {
#if BENCH_HAVE_MPI
    if (r != NULL && r != ranks_alone())
        ranks_mpi_close(r);
#endif
    (void)r;
}
