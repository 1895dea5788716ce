// SPDX-License-Identifier: Apache-2.0
// GPUDirect Storage: kind "nvme" between a file and GPU memory by cuFile, which is looked for when
// the backend opens (libcufile.so.0), so that no build needs it. Directions "read" and "write";
// jobs × depth threads keep as many requests in flight.
#pragma once

#include "bench/backend.h"

extern const struct backend backend_cufile;
