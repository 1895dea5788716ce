// SPDX-License-Identifier: Apache-2.0
// Of a build without CUDA or NCCL: there are no GPUs to rehearse on.
#include "bench/rehearse_gpu.h"

uint64_t rehearse_gpu_count(const struct ranks *r) {
    (void)r;
    return 0;
}

struct gpu_rehearsal *rehearse_gpu_create(const struct rehearse_setup *s, struct arena *a,
                                          struct err *e) {
    (void)s, (void)a;
    err_set(e, ERR_RESOURCE, "this build has no CUDA with NCCL");
    return NULL;
}

void rehearse_gpu_destroy(struct gpu_rehearsal *r) {
    (void)r;
}

bool rehearse_gpu_step(struct gpu_rehearsal *r, double *start_s, double *end_s, double *step_s,
                       struct err *e) {
    (void)r, (void)start_s, (void)end_s, (void)step_s;
    return err_set(e, ERR_RESOURCE, "this build has no CUDA with NCCL");
}

size_t rehearse_gpu_sent(const struct gpu_rehearsal *r, const struct rehearse_sent **list) {
    (void)r;
    *list = NULL;
    return 0;
}

const char *rehearse_gpu_note(const struct gpu_rehearsal *r) {
    (void)r;
    return NULL;
}
