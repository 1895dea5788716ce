// SPDX-License-Identifier: Apache-2.0
// Which memory node a device hangs on, and host memory from a chosen node. From sysfs and the
// kernel's own calls, so it needs no library.
#pragma once

#include <sched.h>
#include <stdbool.h>

int numa_nodes(void);                // at least 1
int numa_of_pci(const char *pci_id); // "0000:3b:00.0"; -1 when the firmware does not say

// Until numa_release pages that this thread touches first, or that a driver takes for it, come from
// `node`: its memory policy and its processors are the node's. False: not possible, and nothing
// changed.
struct numa_before {
    cpu_set_t processors;
};
bool numa_prefer(int node, struct numa_before *before);
void numa_release(const struct numa_before *before);
