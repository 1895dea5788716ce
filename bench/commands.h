// SPDX-License-Identifier: Apache-2.0
// The subcommands of shardbench. Each fills the run's sink; main prints.
#pragma once

#include "base/err.h"
#include "bench/run.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

bool command_collectives(struct run *r, const struct opt_texts *rest, struct err *e);
bool command_copy(struct run *r, const struct opt_texts *rest, struct err *e);
bool command_cuda(struct run *r, const struct opt_texts *rest, struct err *e);
bool command_adam(struct run *r, const struct opt_texts *rest, struct err *e);
bool command_gemm(struct run *r, const struct opt_texts *rest, struct err *e);
bool command_nvme(struct run *r, const struct opt_texts *rest, struct err *e);
bool command_confirm(struct run *r, const struct opt_texts *rest, struct err *e);
bool command_rehearse(struct run *r, const struct opt_texts *rest, struct err *e);
bool command_all(struct run *r, const struct opt_texts *rest, struct err *e);

// The named backend, or the first of `names` (NULL-terminated) that opens here; ERR_RESOURCE when
// none does.
const struct backend *command_backend(struct run *r, const char *const *names, struct err *e);

// Right or wrong before ranks are started: the words of a command line.
bool command_collectives_check(struct run *r, struct err *e);
bool command_backend_check(struct run *r, struct err *e); // of confirm and graph

// GPUs that this process may use; 0 where there is none, or no CUDA in this build.
uint64_t command_gpus(const struct run *r);

// The copies of one direction on this machine's GPUs: each, all at once, every pair.
void command_add_gpu_copies(struct run *r, struct point_list *list, const char *direction);

// True when the named backend is in this build and opens here.
bool command_usable(struct run *r, const char *name);

// True when NCCL runs here with at least two GPUs, and nothing else was asked for; r->rank_count is
// then theirs.
bool command_has_gpus(struct run *r);

bool command_rehearse_result(struct run *r, const struct opt_texts *rest, cJSON **out,
                             struct err *e);

// The document that confirm makes of its results; the caller deletes it.
bool command_confirm_result(struct run *r, const struct opt_texts *rest, cJSON **out,
                            struct err *e);
