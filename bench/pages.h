// SPDX-License-Identifier: Apache-2.0
// Large buffers of host memory: page-aligned, huge pages where the kernel gives them, not touched.
#pragma once

#include <stddef.h>

void *pages_map(size_t bytes); // zeroed on first touch; NULL when there is not enough
void pages_unmap(void *p, size_t bytes);
