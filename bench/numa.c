// SPDX-License-Identifier: Apache-2.0
#include "bench/numa.h"

#include <ctype.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NODES_MAX 64

int numa_nodes(void) {
    char path[64];
    int n = 0;
    for (int node = 0; node < NODES_MAX; node++) {
        snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", node);
        n += access(path, F_OK) == 0;
    }
    return n > 0 ? n : 1;
}

int numa_of_pci(const char *pci_id) {
    char path[96], id[32];
    int node = -1;
    size_t i = 0;
    for (; pci_id[i] != '\0' && i + 1 < sizeof(id); i++)
        id[i] = (char)tolower((unsigned char)pci_id[i]);
    id[i] = '\0';
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", id);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return -1;
    if (fscanf(f, "%d", &node) != 1)
        node = -1;
    fclose(f);
    return node;
}

bool numa_prefer(int node) {
    if (node < 0 || node >= NODES_MAX)
        return false;
    unsigned long mask = 1ul << node;
    return syscall(SYS_set_mempolicy, MPOL_BIND, &mask, NODES_MAX + 1) == 0;
}

void numa_release(void) {
    syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0);
}
