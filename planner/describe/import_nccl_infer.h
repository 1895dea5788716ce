// SPDX-License-Identifier: Apache-2.0
// Which collective an nccl-tests table shows, and over how many ranks: its output does not say.
#pragma once

#include "base/kinds.h"
#include "describe/import.h"

struct import_nccl_row {
    uint64_t size, count;
    const char *type, *redop; // redop NULL = column absent
    int64_t root;
    double algbw, busbw; // GB/s as printed
};

// What the rows and comments of one table told.
struct import_nccl_facts {
    const char *title; // "all_gather_perf_mpi" or NULL
    const char *software, *gpu;
    size_t rank_lines, hosts;
    bool in_place_unchecked;     // "N/A" under in-place #wrong: only all-to-all can't run in place
    struct import_nccl_row best; // the row with the most precise busbw / algbw
    bool any;
};

struct import_nccl_verdict {
    enum collective collective;
    uint64_t ranks; // 0 = unknown
};

void import_nccl_observe(struct import_nccl_facts *f, const struct import_nccl_row *row);
// ERR_INPUT when nothing decides; s->op overrides, a contradiction becomes a warning.
bool import_nccl_infer(const struct import_nccl_facts *f, const struct import_source *s,
                       struct import_nccl_verdict *out, struct err *e);
