// SPDX-License-Identifier: Apache-2.0
// Tensor, context, pipeline and expert parallelism beside the data-parallel strategies: what is
// modelled, and why the rest is not. docs/method.md §model-parallel.
#include "base/units.h"
#include "describe/recipe.h"

#define ULL(n) ((unsigned long long)(n))

static uint64_t ways_of(const struct recipe *r) {
    return r->tp * r->cp * r->pp;
}

static bool refuse(struct err *e, const char *option, uint64_t n, const char *why) {
    return err_set(e, ERR_USAGE, "%s %llu: %s", option, ULL(n), why);
}

// Groups lie inside a node: tensor innermost, then context, then data, pipelines outermost.
static bool check_node(const struct recipe *r, const struct cluster *c, struct err *e) {
    uint64_t node = c->gpus_per_node ? c->gpus_per_node : 1, inner = r->tp * r->cp;
    uint64_t gpus = c->gpus ? c->gpus : c->nodes * node;
    if (gpus % ways_of(r) != 0)
        return err_set(e, ERR_USAGE,
                       "%llu GPUs do not divide into tensor %llu x context %llu x pipeline %llu",
                       ULL(gpus), ULL(r->tp), ULL(r->cp), ULL(r->pp));
    if (inner > 1 && node % inner != 0)
        return err_set(e, ERR_USAGE,
                       "--tp %llu --cp %llu: tensor and context groups are modelled inside a node, "
                       "and %llu GPUs do not divide into groups of %llu",
                       ULL(r->tp), ULL(r->cp), ULL(node), ULL(inner));
    return true;
}

static bool check_shape(const struct recipe *r, const struct model *m, struct err *e) {
    if (m->heads % r->tp != 0 || (m->kv_heads && m->kv_heads % r->tp != 0))
        return err_set(e, ERR_USAGE,
                       "--tp %llu: %s has %llu heads and %llu of keys and values, which must "
                       "divide; copies of keys and values are not modelled",
                       ULL(r->tp), m->name ? m->name : "the model", ULL(m->heads),
                       ULL(m->kv_heads));
    if (r->pp > m->layers)
        return err_set(e, ERR_USAGE, "--pp %llu: there are only %llu layers", ULL(r->pp),
                       ULL(m->layers));
    if (r->virtual_stages > 1 && (r->pp < 2 || r->pp * r->virtual_stages > m->layers))
        return err_set(e, ERR_USAGE,
                       "virtual_stages %llu: %llu layers are too few for %llu stages of as many "
                       "pieces, or there is no pipeline",
                       ULL(r->virtual_stages), ULL(m->layers), ULL(r->pp));
    return true;
}

static bool check_together(const struct recipe *r, struct err *e) {
    bool offload = r->offload_optimizer != OFFLOAD_NONE || r->offload_param != OFFLOAD_NONE ||
                   r->activation_offload;
    const char *option = r->tp > 1 ? "--tp" : r->cp > 1 ? "--cp" : "--pp";
    uint64_t n = r->tp > 1 ? r->tp : r->cp > 1 ? r->cp : r->pp;
    if (offload)
        return refuse(e, option, n, "offload beside model parallelism is not modelled");
    if (r->lora_rank > 0)
        return refuse(e, option, n, "LoRA beside model parallelism is not modelled");
    if (r->strategy == STRATEGY_MICS || r->strategy == STRATEGY_ZEROPP)
        return refuse(e, option, n, "mics and zero++ lay their groups over whole nodes");
    if (r->cp > 1 && recipe_has_shard_group(r->strategy) && r->shard_group % r->cp != 0)
        return refuse(e, "--cp", r->cp,
                      "context ranks share one copy: a multiple of them shards it");
    bool stages = recipe_is_stage3(r) || r->strategy == STRATEGY_ZERO2;
    if (r->pp > 1 && stages)
        return refuse(e, "--pp", r->pp, "DeepSpeed's pipeline engine takes ZeRO stage 1 at most");
    return true;
}

// Who trains experts in parallel, and what the others say.
static bool expert_strategy(const struct recipe *r, struct err *e) {
    switch (r->strategy) {
    case STRATEGY_DDP: // Megatron core
    case STRATEGY_ZERO1:
    case STRATEGY_ZERO2: // DeepSpeed-MoE
    case STRATEGY_FSDP2:
    case STRATEGY_FSDP2_NORESHARD:
    case STRATEGY_HSDP: // torchtitan
        return true;
    case STRATEGY_FSDP2_RESHARD:
        return refuse(e, "--ep", r->ep, "torchtitan reshards blocks fully or not at all");
    case STRATEGY_ZERO3:
    case STRATEGY_ZEROPP:
    case STRATEGY_MICS:
        return refuse(
            e, "--ep", r->ep,
            "DeepSpeed refuses its MoE layer with ZeRO stage 3 (engine.py: \"Use AutoEP or "
            "choose ZeRO stage 1/2\"), and AutoEP is not modelled; use zero2 or fsdp2");
    default:
        return refuse(e, "--ep", r->ep,
                      "FSDP1 has no mesh for experts; torchtitan shards them with fsdp2");
    }
}

static bool check_experts(const struct recipe *r, const struct model *m, uint64_t world,
                          struct err *e) {
    uint64_t n = r->ep;
    if (m->experts == 0)
        return refuse(e, "--ep", n, "the model has no experts");
    if (m->experts % n != 0 || world % n != 0)
        return err_set(e, ERR_USAGE,
                       "--ep %llu: must divide the %llu experts and the %llu data-parallel GPUs",
                       ULL(n), ULL(m->experts), ULL(world));
    if (!expert_strategy(r, e))
        return false;
    if (ways_of(r) > 1)
        return refuse(e, "--ep", n, "not modelled beside --tp, --cp or --pp");
    if (r->lora_rank > 0 || r->frozen_fraction > 0)
        return refuse(e, "--ep", n, "not modelled with frozen weights");
    if (r->offload_optimizer != OFFLOAD_NONE || r->offload_param != OFFLOAD_NONE)
        return refuse(e, "--ep", n, "not modelled with offload");
    if (recipe_is_fsdp2(r) && r->wrap != WRAP_BLOCK)
        return refuse(e, "--ep", n, "torchtitan wraps blocks and their experts: use --wrap block");
    if (r->optimizer == OPTIMIZER_MUON || r->optimizer == OPTIMIZER_ADAFACTOR)
        return refuse(e, "--ep", n, "not modelled with Muon and Adafactor");
    return true;
}

bool recipe_check_parallel(const struct recipe *r, const struct model *m, const struct cluster *c,
                           struct err *e) {
    if (r->tp == 0 || r->cp == 0 || r->pp == 0 || r->ep == 0 || r->virtual_stages == 0)
        return err_set(e, ERR_USAGE,
                       "--tp, --cp, --pp, --ep and virtual_stages must be at least 1");
    if (ways_of(r) > 1 && (!check_node(r, c, e) || !check_shape(r, m, e) || !check_together(r, e)))
        return false;
    uint64_t gpus = c->gpus ? c->gpus : c->nodes * c->gpus_per_node;
    return r->ep == 1 || check_experts(r, m, gpus / ways_of(r), e);
}

// What depends on the resolved groups and sequence. Ring attention gives every rank an early and a
// late piece, so that causal work is even.
bool recipe_check_context(const struct recipe *r, struct err *e) {
    if (r->cp > 1 && r->seq % (2 * r->cp) != 0)
        return err_set(e, ERR_USAGE, "--cp %llu: a sequence of %llu does not divide into %llu",
                       ULL(r->cp), ULL(r->seq), ULL(2 * r->cp));
    if (r->ep > 1 && recipe_is_fsdp2(r) && r->shard_group % r->ep != 0)
        return err_set(
            e, ERR_USAGE,
            "--ep %llu: must divide the shard group of %llu GPUs, which a block's experts "
            "and its other parameters share",
            ULL(r->ep), ULL(r->shard_group));
    return true;
}

// Blocks are dealt out evenly; the table stands before the first, final norm and head behind the
// last. A tied head needs the table there too.
uint64_t recipe_stage_units(const struct recipe *r, const struct model *m,
                            const struct model_unit *u) {
    if (r->pp <= 1)
        return u->repeat;
    if (u->kind == UNIT_EMBEDDING)
        return m->tied_embeddings ? u->repeat : 0;
    return u->kind == UNIT_BLOCK ? units_ceil_div(u->repeat, r->pp) : u->repeat;
}
