// SPDX-License-Identifier: Apache-2.0
// Storage as an optimizer uses it: read, write, mixed, and the swap of optimizer states (16 bytes
// read and 16 written per parameter), pipelined or not. docs/method.md §storage.
#pragma once

#include "bench/backend.h"

extern const struct backend backend_nvme;

// Bytes that one iteration of a point moves: enough that filling and draining the queue does not
// show, and whole tiles for the swap patterns.
uint64_t backend_nvme_payload(const char *pattern, uint64_t block_bytes, uint64_t depth,
                              uint64_t jobs);
