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
