// SPDX-License-Identifier: Apache-2.0
// Matrix products on a GPU by cuBLASLt, laid out as a linear layer's forward: y[m,n] = x[m,k] with
// weights stored [n,k]. docs/method.md §gemm-bench.
#pragma once

#include "bench/backend.h"

extern const struct backend backend_gemm;
