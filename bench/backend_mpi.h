// SPDX-License-Identifier: Apache-2.0
// Collectives between host buffers: MPI's own ("library"), and a ring built on non-blocking
// point-to-point ("ring") whose bytes are known exactly. docs/method.md §ring.
#pragma once

#include "bench/backend.h"

extern const struct backend backend_mpi;
