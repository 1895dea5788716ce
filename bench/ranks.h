// SPDX-License-Identifier: Apache-2.0
// The processes of one run: one alone, or the ranks of an MPI job. Collective: every rank calls
// every function in the same order.
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct ranks {
    int rank, count;             // this process and how many there are
    int node, nodes;             // index of this rank's host among the distinct hosts
    int local_rank, local_count; // among the ranks on the same host
    bool oversubscribed;         // some host has more ranks than processors
    const char *library;         // "Open MPI 4.1.4"; "single process"
    void (*broadcast)(void *data, size_t bytes, int root);
    void (*gather)(const void *mine, size_t bytes, void *all); // on every rank, in rank order
    void (*largest)(double *values, size_t n);                 // element-wise maximum everywhere
    void (*barrier)(void);
    // Says why and ends every rank; the only way out of a half-finished collective.
    void (*abort)(int status, const char *why);
};

// True when a launcher (mpirun, srun) started this process as a rank.
bool ranks_launched(void);

// Tasks of the Slurm step that this process is one of, when srun started them as strangers to one
// another (--mpi=none); 0 otherwise.
int ranks_strangers(void);

// Joins the launcher's job, or stands alone. One call per process; `many_threads`:
// several threads will call MPI. `out` points to static storage.
bool ranks_open(bool many_threads, const struct ranks **out, struct err *e);
void ranks_close(const struct ranks *r);
