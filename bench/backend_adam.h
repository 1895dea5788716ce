// SPDX-License-Identifier: Apache-2.0
// CPU Adam beside its ceiling, and the two memory loops that make the ceiling (kind "memory",
// algorithms "triad" and "rmw"). docs/method.md §adam.
#pragma once

#include "bench/backend.h"

extern const struct backend backend_adam;
