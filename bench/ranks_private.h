// SPDX-License-Identifier: Apache-2.0
// Between the files that implement ranks.h.
#pragma once

#include "bench/ranks.h"

const struct ranks *ranks_alone(void);

// How many processes the launcher says it started; 1 when it says nothing.
int ranks_promised(void);

// MPI builds only.
bool ranks_mpi_open(bool many_threads, const struct ranks **out, struct err *e);
void ranks_mpi_close(const struct ranks *r);
