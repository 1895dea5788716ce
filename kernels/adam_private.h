// SPDX-License-Identifier: Apache-2.0
// Between the files of the Adam kernels.
#pragma once

#include "kernels/adam.h"

adam_function adam_step_scalar, adam_step_avx2, adam_step_avx512;
adam_rmw_function adam_rmw_scalar, adam_rmw_avx2, adam_rmw_avx512;
adam_triad_function adam_triad_scalar, adam_triad_avx2, adam_triad_avx512;

// Elements [first, first + count) by the defining scalar code: tails of the vector variants.
void adam_reference(const struct adam_arrays *a, const struct adam_hyper *h, size_t first,
                    size_t count);
