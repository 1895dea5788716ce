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

// Processors of a node: "0-15,64-79".
static bool processors_of(int node, cpu_set_t *out) {
    char path[64];
    int first, last, n = 0;
    char mark;
    CPU_ZERO(out);
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return false;
    while (fscanf(f, "%d", &first) == 1) {
        last = first;
        mark = (char)fgetc(f);
        if (mark == '-' && fscanf(f, "%d", &last) == 1)
            mark = (char)fgetc(f);
        for (int i = first; i <= last && i < CPU_SETSIZE; i++, n++)
            CPU_SET(i, out);
        if (mark != ',')
            break;
    }
    fclose(f);
    return n > 0; // a node may have memory only
}

bool numa_prefer(int node, struct numa_before *before) {
    cpu_set_t its;
    if (node < 0 || node >= NODES_MAX ||
        sched_getaffinity(0, sizeof(before->processors), &before->processors) != 0)
        return false;
    unsigned long mask = 1ul << node;
    if (syscall(SYS_set_mempolicy, MPOL_BIND, &mask, NODES_MAX + 1) != 0)
        return false;
    if (processors_of(node, &its))
        sched_setaffinity(0, sizeof(its), &its); // refused: the policy alone holds
    return true;
}

void numa_release(const struct numa_before *before) {
    syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0);
    sched_setaffinity(0, sizeof(before->processors), &before->processors);
}
