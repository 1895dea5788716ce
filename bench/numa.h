// SPDX-License-Identifier: Apache-2.0
// Which memory node a device hangs on, and host memory from a chosen node. From sysfs and the
// kernel's own calls, so it needs no library.
#pragma once

#include <stdbool.h>

int numa_nodes(void);                // at least 1
int numa_of_pci(const char *pci_id); // "0000:3b:00.0"; -1 when the firmware does not say

// Pages that this thread touches first come from `node` until numa_release. False: not possible,
// and nothing changed.
bool numa_prefer(int node);
void numa_release(void);
