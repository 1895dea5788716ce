// SPDX-License-Identifier: Apache-2.0
#include "cost/volume.h"

#include "base/arena.h"
#include "cost/volume_parts.h"

#include <assert.h>
#include <math.h>

double volume_inter_fraction(uint64_t group_size, uint64_t ranks_per_node) {
    if (ranks_per_node == 0 || group_size <= ranks_per_node)
        return 0;
    return 1 / (double)ranks_per_node;
}

double volume_textbook_multiple(const struct recipe *r) {
    double replica = r->replica_group > 1 && r->shard_group > 0 ? 2 / (double)r->shard_group : 0;
    switch (r->strategy) {
    case STRATEGY_HSDP:
    case STRATEGY_FSDP1_HYBRID:
    case STRATEGY_MICS:
        return 3 + replica;
    case STRATEGY_FSDP1_HYBRID_ZERO2:
        return 2 + replica;
    case STRATEGY_ZERO3:
    case STRATEGY_ZEROPP:
    case STRATEGY_FSDP1:
    case STRATEGY_FSDP2:
    case STRATEGY_FSDP2_RESHARD:
        return 3;
    default:
        return 2;
    }
}

// Share of the model that crosses nodes; NAN where the strategy has no hierarchy.
static double inter_node_multiple(const struct recipe *r, const struct cluster *c) {
    bool inside = r->shard_group <= (c->gpus_per_node ? c->gpus_per_node : 1);
    switch (r->strategy) {
    case STRATEGY_ZEROPP: {
        double weights = r->quantized_weights ? 0.5 : 1;
        double backward = r->hpz && inside ? 0 : weights;
        return weights + backward + (r->quantized_gradients ? 0.25 : 1);
    }
    case STRATEGY_HSDP:
    case STRATEGY_FSDP1_HYBRID:
    case STRATEGY_FSDP1_HYBRID_ZERO2:
    case STRATEGY_MICS:
        return inside && r->replica_group > 1 ? 2 / (double)r->shard_group : NAN;
    default:
        return NAN;
    }
}

static struct transfer *next_transfer(struct volume *v) {
    assert(v->transfer_count < VOLUME_TRANSFERS_MAX); // the rules add a dozen at most
    return &v->transfers[v->transfer_count++];
}

void volume_add(struct volume_parts *v, const struct volume_entry *t) {
    uint64_t n = (uint64_t)(t->group_size + 0.5), k = (uint64_t)(t->ranks_per_node + 0.5);
    if (n <= 1 || t->payload_bytes <= 0 || t->count <= 0)
        return;
    double sent = collective_sent_bytes(t->collective, t->payload_bytes, n);
    if (t->collective == COLLECTIVE_REDUCE || t->collective == COLLECTIVE_BROADCAST)
        sent *= (t->group_size - 1) / t->group_size; // the end of the chain sends nothing
    double inter = volume_inter_fraction(n, k) * sent;
    *next_transfer(v->out) =
        (struct transfer){.phase = t->phase,
                          .kind = TRANSFER_COLLECTIVE,
                          .collective = t->collective,
                          .dtype = t->dtype,
                          .group = t->group,
                          .group_size = n,
                          .count = (uint64_t)(t->count + 0.5),
                          .payload_bytes = t->payload_bytes,
                          .sent_bytes = sent,
                          .inter_node_bytes = inter,
                          .link = inter > 0 ? LINK_INTER_NODE : LINK_INTRA_NODE,
                          .what = t->what};
}

void volume_copy(struct volume_parts *v, const struct volume_copy *copy) {
    if (copy->bytes <= 0)
        return;
    bool nvme = copy->kind == TRANSFER_NVME_READ || copy->kind == TRANSFER_NVME_WRITE;
    *next_transfer(v->out) = (struct transfer){.phase = copy->phase,
                                               .kind = copy->kind,
                                               .dtype = v->memory.recipe->param_dtype,
                                               .group = GROUP_HOST,
                                               .group_size = 1,
                                               .count = (uint64_t)(copy->count + 0.5),
                                               .payload_bytes = copy->bytes,
                                               .sent_bytes = copy->bytes,
                                               .link = nvme ? LINK_NVME : LINK_PCIE,
                                               .what = copy->what};
}

static void sum_collective(struct volume *v, const struct transfer *t) {
    switch (t->collective) {
    case COLLECTIVE_ALL_GATHER:
        v->all_gather_bytes += t->sent_bytes;
        break;
    case COLLECTIVE_REDUCE_SCATTER:
        v->reduce_scatter_bytes += t->sent_bytes;
        break;
    case COLLECTIVE_ALL_REDUCE:
        v->all_reduce_bytes += t->sent_bytes;
        break;
    default:
        v->other_bytes += t->sent_bytes;
    }
    v->sent_bytes_per_gpu += t->sent_bytes;
    v->inter_node_bytes_per_gpu += t->inter_node_bytes;
}

static void sum_up(struct volume_parts *p) {
    struct volume *v = p->out;
    for (size_t i = 0; i < v->transfer_count; i++) {
        const struct transfer *t = &v->transfers[i];
        double *const copies[TRANSFER_KIND_COUNT] = {
            [TRANSFER_H2D] = &v->h2d_bytes,
            [TRANSFER_D2H] = &v->d2h_bytes,
            [TRANSFER_NVME_READ] = &v->nvme_read_bytes,
            [TRANSFER_NVME_WRITE] = &v->nvme_write_bytes,
        };
        if (t->kind == TRANSFER_COLLECTIVE)
            sum_collective(v, t);
        else
            *copies[t->kind] += t->sent_bytes;
    }
    v->intra_node_bytes_per_gpu = v->sent_bytes_per_gpu - v->inter_node_bytes_per_gpu;
    const struct cluster *c = p->memory.cluster;
    double nics = (double)(c->nics_per_node ? c->nics_per_node : 1);
    double gpus = (double)memory_local_ranks(c, p->memory.recipe);
    v->inter_node_bytes_per_nic = v->inter_node_bytes_per_gpu * gpus / nics;
    double moved = v->h2d_bytes + v->d2h_bytes + v->nvme_read_bytes + v->nvme_write_bytes;
    v->host_dram_bytes_per_node += gpus * moved;
}

static bool prepare(struct volume_parts *v, struct err *e) {
    struct memory_parts *p = &v->memory;
    if (!memory_sizes_fill(p, e))
        return false;
    memory_states_fill(p);
    const struct recipe *r = p->recipe;
    v->accumulate = (double)(r->grad_accum ? r->grad_accum : 1);
    // Megatron adds micro-steps up in its main gradients and reduces them once.
    v->syncs = r->no_sync || memory_is_megatron(r) ? 1 : v->accumulate;
    v->local_ranks = (double)memory_local_replicas(p->cluster, r);
    if (!recipe_is_stage3(r))
        return true;
    if (r->zero3 != NULL) {
        p->zero3 = *r->zero3;
        return true;
    }
    struct arena *scratch = arena_create();
    bool ok = zero3_lookup(p->model, r, scratch, &p->zero3, e);
    arena_destroy(scratch);
    return ok;
}

bool volume_estimate(const struct model *m, const struct cluster *c, const struct recipe *r,
                     struct volume *out, struct err *e) {
    struct volume result = {0};
    struct volume_parts v = {.memory = {.model = m, .cluster = c, .recipe = r}, .out = &result};
    if (!prepare(&v, e))
        return false;
    const struct memory_sizes *s = &v.memory.sizes;
    result.textbook_multiple = volume_textbook_multiple(r);
    result.textbook_bytes =
        result.textbook_multiple * (s->trainable + s->frozen) * dtype_bytes(recipe_gather_dtype(r));
    result.textbook_inter_node_multiple = inter_node_multiple(r, c);
    if (recipe_is_deepspeed(r) && !memory_is_megatron(r))
        volume_deepspeed(&v);
    else
        volume_torch(&v);
    volume_model_parallel(&v);
    volume_muon(&v);
    volume_offload(&v);
    sum_up(&v);
    *out = result;
    return true;
}
