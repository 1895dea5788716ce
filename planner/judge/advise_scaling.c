// SPDX-License-Identifier: Apache-2.0
#include "judge/advise_scaling.h"

#include <math.h>

static bool scale_to(const struct advise_request *q, const struct advise_way *best, uint64_t nodes,
                     struct arena *a, struct advise_scaling *out, struct err *e) {
    struct cluster c = best->cluster;
    struct recipe r = best->plan.recipe;
    struct plan p;
    struct err ignored = {0};
    if (!cluster_resize(&c, nodes, nodes * c.gpus_per_node, e))
        return false;
    r.global_batch = 0; // the same batch per GPU
    *out = (struct advise_scaling){.nodes = nodes,
                                   .gpus = c.gpus,
                                   .step_s = NAN,
                                   .tokens_per_s_per_gpu = NAN,
                                   .exposed_comm_s = NAN};
    if (!plan_evaluate(q->model, &c, &r, PLAN_TIME_IF_FITS, a, &p, &ignored) || p.reason)
        return true; // groups that do not divide: nothing to say of this size
    out->fits = p.fits;
    out->sequences_per_step = p.recipe.global_batch;
    out->step_s = p.time.step_s;
    out->tokens_per_s_per_gpu = p.time.tokens_per_s_per_gpu;
    out->exposed_comm_s = p.time.exposed_comm_s;
    return true;
}

bool advise_scale(const struct advise_request *q, const struct advise_way *best, struct advice *v,
                  struct err *e) {
    struct arena *scratch = arena_create();
    bool ok = true;
    for (uint64_t nodes = 1; ok && v->scaling_count < ADVISE_SCALING_POINTS; nodes *= 2) {
        arena_reset(scratch);
        ok = scale_to(q, best, nodes, scratch, &v->scaling[v->scaling_count++], e);
    }
    arena_destroy(scratch);
    return ok;
}
