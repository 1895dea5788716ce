// SPDX-License-Identifier: Apache-2.0
// Bytes that GPUs and network ports sent, by the hardware's own counters: NVLink by NVML (loaded at
// run time), InfiniBand ports by sysfs. docs/method.md §wire.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_GPUS_MAX 64

struct wire {
    void *library; // NVML, or NULL
    int (*read_fields)(void *device, int count, void *fields);
    int (*shut_down)(void);
    void *gpus[WIRE_GPUS_MAX];
    size_t gpu_count;
    char ports_folder[64]; // of InfiniBand devices; "" = not counted by this process
    char reason[128];      // why a counter is missing; "" when all are there
};

// `pci_ids` of the GPUs whose links count. `ports`: also this node's InfiniBand ports.
void wire_open(struct wire *w, const char *const *pci_ids, size_t count, bool ports);
void wire_close(struct wire *w);

// Bytes sent since some fixed time in the past. False: nothing here counts.
bool wire_sent_bytes(const struct wire *w, double *bytes);

// Sum over DEVICE/ports/N/counters/port_xmit_data under `folder`, whose unit is four bytes.
bool wire_ports_sent_bytes(const char *folder, double *bytes);
