// SPDX-License-Identifier: Apache-2.0
// The machine and the program, as every result file's header states them.
#pragma once

#include "base/arena.h"
#include "describe/measure.h"

#include <stdbool.h>

void inventory_host(struct arena *a, struct measure_host *out);
void inventory_build(struct arena *a, struct measure_build *out);
bool inventory_optimised(void); // compiled with optimisation and without a sanitizer
int inventory_processors(void); // that this process may run on
uint64_t inventory_last_level_cache_bytes(void);

// Sum of bytes sent by every network interface but loopback since boot; 0 when unreadable.
uint64_t inventory_network_sent_bytes(void);

bool inventory_has_rdma(void); // a network card that reads and writes remote memory itself
