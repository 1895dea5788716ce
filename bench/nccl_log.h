// SPDX-License-Identifier: Apache-2.0
// Which algorithm and protocol NCCL chose, from its own debug output (subsystem TUNING), which is
// sent to memory unless the user has asked for it himself.
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct nccl_log {
    int fd; // -1: the output is not ours
    off_t read;
    const char *reason; // why nothing is known
};

// Before NCCL's first call: it reads its environment once. The file stays open as long as NCCL may
// write to it: until the process ends.
void nccl_log_open(struct nccl_log *l);

// The last choice since the previous call, "ring/simple"; what NCCL_ALGO and NCCL_PROTO force when
// the log says nothing; NULL when neither does. Static text.
const char *nccl_log_choice(struct nccl_log *l);

// The choice in the last line of `text` that names one, or NULL. Names or numbers.
const char *nccl_log_parse(const char *text);
