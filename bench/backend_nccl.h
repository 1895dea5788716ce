// SPDX-License-Identifier: Apache-2.0
// Collectives between GPUs by NCCL: all GPUs of one process, or one GPU per rank of a job.
// docs/method.md §nccl.
#pragma once

#include "bench/backend.h"

extern const struct backend backend_nccl;
