// SPDX-License-Identifier: Apache-2.0
// What a machine without a GPU has: copies between host buffers (kind "copy", direction "h2h") and
// fp32 matrix products (kind "gemm").
#pragma once

#include "bench/backend.h"

extern const struct backend backend_host;
