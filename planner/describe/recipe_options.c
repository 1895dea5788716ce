// SPDX-License-Identifier: Apache-2.0
#include "describe/recipe_options.h"

#include "base/units.h"
#include "describe/cluster_fields.h"
#include "describe/recipe_config.h"
#include "describe/recipe_fields.h"
#include "describe/version.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

// What completion offers; fsdp2-reshard= takes a number of GPUs behind it.
static const char *const strategy_words[] = {"all",
                                             "ddp",
                                             "zero1",
                                             "zero2",
                                             "zero3",
                                             "fsdp1",
                                             "fsdp2",
                                             "hsdp",
                                             "fsdp1-grad-op",
                                             "fsdp1-noshard",
                                             "fsdp1-hybrid",
                                             "fsdp1-hybrid-zero2",
                                             "fsdp2-noreshard",
                                             "fsdp2-reshard=",
                                             "mics",
                                             "zero++",
                                             NULL};
static const char *const precision_choices[] = {"fp32",     "bf16-pure", "bf16-mixed", "fp16-mixed",
                                                "amp-bf16", "fp8",       NULL};
static const char *const optimizer_choices[] = {"adamw",     "adamw-bf16", "adamw8bit", "sgd",
                                                "adafactor", "muon",       "none",      NULL};
static const char *const attention_choices[] = {"flash", "math", NULL};
static const char *const loss_choices[] = {"torch", "fused", "chunked", NULL};
static const char *const stack_choices[] = {"eager", "compiled", "megatron", NULL};
static const char *const offload_choices[] = {"none", "cpu", "nvme", NULL};

#define Q(field) offsetof(struct recipe_request, field)
#define G(field) offsetof(struct recipe_request, given.field)
#define RECIPE "Recipe"
#define MANY ((double)INT64_MAX)
#define CLUSTER "Cluster"

const struct opt recipe_options[] = {
    {"strategy", 's', OPT_TEXTS, Q(strategies), "NAME,...", 0, 0, strategy_words, NULL,
     "strategies, or all: ddp zero1 zero2 zero3 fsdp1 fsdp2 hsdp; also fsdp1-grad-op fsdp1-noshard "
     "fsdp1-hybrid "
     "fsdp1-hybrid-zero2 fsdp2-noreshard fsdp2-reshard=K mics zero++",
     RECIPE, SIZE_MAX},
    {"config", 'c', OPT_STRING, Q(config), "FILE", 0, 0, NULL, NULL,
     "start from a DeepSpeed JSON or accelerate YAML configuration; options given here override it",
     RECIPE, SIZE_MAX},
    {"seq", 0, OPT_COUNT, Q(seq), "N", 1, MANY, NULL, NULL,
     "tokens per sequence; default min(4096, the model's positions)", RECIPE, G(seq)},
    {"micro-batch", 'b', OPT_COUNT, Q(micro_batch), "N", 1, MANY, NULL, "1",
     "sequences per GPU and micro-step", RECIPE, G(micro_batch)},
    {"grad-accum", 'g', OPT_COUNT, Q(grad_accum), "N", 1, MANY, NULL, "1",
     "micro-steps per optimizer step", RECIPE, G(grad_accum)},
    {"global-batch", 0, OPT_COUNT, Q(global_batch), "N", 1, MANY, NULL, NULL,
     "sequences per optimizer step; derives --grad-accum when that is not given", RECIPE,
     G(global_batch)},
    {"tokens", 0, OPT_DOUBLE, Q(tokens), "N", 0, MANY, NULL, NULL,
     "length of training in tokens: adds days, GPU-hours and cost", RECIPE, G(tokens)},
    {"precision", 'p', OPT_CHOICE, Q(precision), "NAME", 0, 0, precision_choices, "bf16-mixed",
     "fp32, bf16-pure, bf16-mixed (fp32 master weights), fp16-mixed, amp-bf16 or fp8", RECIPE,
     G(precision)},
    {"reduce-dtype", 0, OPT_STRING, Q(reduce_dtype), "TYPE", 0, 0, NULL, NULL,
     "type gradients are reduced in; default per framework", RECIPE, SIZE_MAX},
    {"optimizer", 0, OPT_CHOICE, Q(optimizer), "NAME", 0, 0, optimizer_choices, "adamw",
     "adamw, adamw-bf16, adamw8bit, sgd, adafactor, muon or none", RECIPE, G(optimizer)},
    {"recompute", 'r', OPT_STRING, Q(recompute), "MODE", 0, 0, NULL, NULL,
     "none, full, selective-attention, selective-op or every-N; default none", RECIPE, SIZE_MAX},
    {"attention", 0, OPT_CHOICE, Q(attention), "NAME", 0, 0, attention_choices, "flash",
     "attention kernel: flash or math", RECIPE, G(attention)},
    {"loss", 0, OPT_CHOICE, Q(loss), "NAME", 0, 0, loss_choices, "torch",
     "loss head: torch, fused or chunked", RECIPE, G(loss)},
    {"compile", 0, OPT_FLAG, Q(compile), NULL, 0, 0, NULL, NULL, "torch.compile", RECIPE, SIZE_MAX},
    {"stack", 0, OPT_CHOICE, Q(stack), "NAME", 0, 0, stack_choices, "eager",
     "kernel stack: eager, compiled or megatron", RECIPE, G(stack)},
    {"wrap", 0, OPT_STRING, Q(wrap), "UNIT", 0, 0, NULL, NULL,
     "one FSDP unit per block, for the whole model, or per SIZE parameters; default block", RECIPE,
     SIZE_MAX},
    {"offload-optimizer", 0, OPT_CHOICE, Q(offload_optimizer), "DEVICE", 0, 0, offload_choices,
     "none", "where optimizer states live: none, cpu or nvme", RECIPE, G(offload_optimizer)},
    {"offload-param", 0, OPT_CHOICE, Q(offload_param), "DEVICE", 0, 0, offload_choices, "none",
     "where parameters live: none, cpu or nvme (ZeRO-3), cpu (FSDP)", RECIPE, G(offload_param)},
    {"shard-group", 0, OPT_COUNT, Q(shard_group), "N", 1, MANY, NULL, NULL,
     "GPUs per shard group of hsdp, mics and zero++; default the GPUs of a node", RECIPE,
     G(shard_group)},
    {"tp", 0, OPT_COUNT, Q(tp), "N", 1, MANY, NULL, "1", "tensor-parallel size, inside a node",
     RECIPE, G(tp)},
    {"cp", 0, OPT_COUNT, Q(cp), "N", 1, MANY, NULL, "1", "context-parallel size, inside a node",
     RECIPE, G(cp)},
    {"pp", 0, OPT_COUNT, Q(pp), "N", 1, MANY, NULL, "1", "pipeline stages (an estimate)", RECIPE,
     G(pp)},
    {"ep", 0, OPT_COUNT, Q(ep), "N", 1, MANY, NULL, "1",
     "expert-parallel size of a mixture (ddp, zero1, zero2, fsdp2, hsdp)", RECIPE, G(ep)},
    {"clip", 0, OPT_DOUBLE, Q(clip), "X", 0, MANY, NULL, "1",
     "gradient norm limit; 0 turns clipping off", RECIPE, G(clip)},
    {"lora-rank", 0, OPT_COUNT, Q(lora_rank), "N", 1, MANY, NULL, NULL,
     "train LoRA adapters of this rank", RECIPE, G(lora_rank)},
    {"lora-targets", 0, OPT_STRING, Q(lora_targets), "NAME,...", 0, 0, NULL, NULL,
     "modules that get adapters, such as q_proj,v_proj; default every linear layer of a block",
     RECIPE, SIZE_MAX},
    {"framework-version", 0, OPT_STRING, Q(framework_version), "NAME-X.Y", 0, 0, NULL, NULL,
     "deepspeed-0.19.6 or torch-2.9 unless given; names the defaults that differ", RECIPE,
     SIZE_MAX},
    {"nodes", 'N', OPT_COUNT, Q(nodes), "N", 1, MANY, NULL, NULL, "nodes of this kind", CLUSTER,
     G(nodes)},
    {"gpus", 'G', OPT_COUNT, Q(gpus), "N", 1, MANY, NULL, NULL, "GPUs in all", CLUSTER, G(gpus)},
    {"net", 0, OPT_RATE, Q(net_bytes_per_s), "RATE", 1, 0, NULL, NULL,
     "network per GPU, such as 400Gb/s", CLUSTER, G(net)},
    {"host-memory", 0, OPT_BYTES, Q(host_memory_bytes), "BYTES", 1, 0, NULL, NULL,
     "memory of one node", CLUSTER, G(host_memory)},
    {"nvme", 0, OPT_STRING, Q(nvme), "READ/WRITE", 0, 0, NULL, NULL,
     "NVMe rates of one node, such as 12GB/s/6GB/s", CLUSTER, SIZE_MAX},
    {"set", 0, OPT_TEXTS, Q(set), "PATH=VALUE", 0, 0, NULL, NULL,
     "set any field by its path, such as recipe.reduce_bucket_elements=5e7 or "
     "cluster.host_dram_bytes_per_s=300GB/s",
     RECIPE, SIZE_MAX},
    {.name = NULL},
};

// ---- options over a recipe ----------------------------------------------------------------------

struct apply {
    struct recipe *r;
    struct arena *a;
    struct recipe_origins *o;
    struct err *e;
};

// Every option ends in a field set by name, so parsing and origins live in one place.
static bool put(struct apply *x, const char *field, const char *option, const char *value) {
    const struct recipe_field *f = recipe_field_find(field);
    if (!recipe_field_set(x->r, field, value, x->a, x->e)) {
        err_note(x->e, "%s", option);
        return false;
    }
    recipe_note(x->o, x->a, arena_printf(x->a, "recipe.%s", f->name),
                recipe_field_text(x->r, f, x->a), option);
    return true;
}

static bool put_count(struct apply *x, bool given, const char *field, const char *option,
                      uint64_t value) {
    return !given || put(x, field, option, arena_printf(x->a, "%llu", (unsigned long long)value));
}

static bool put_double(struct apply *x, bool given, const char *field, const char *option,
                       double value) {
    return !given || put(x, field, option, arena_printf(x->a, "%.17g", value));
}

static bool put_text(struct apply *x, const char *field, const char *option, const char *value) {
    return value == NULL || put(x, field, option, value);
}

static bool put_choice(struct apply *x, bool given, const char *option, const char *const *choices,
                       int index) {
    char field[32];
    size_t n = strlen(option + 2);
    for (size_t i = 0; i <= n && i < sizeof field; i++)
        field[i] = option[2 + i] == '-' ? '_' : option[2 + i];
    return !given || put(x, field, option, choices[index]);
}

static bool put_recompute(struct apply *x, const char *text) {
    if (text == NULL)
        return true;
    const char *prefix = "every-";
    if (strncasecmp(text, prefix, strlen(prefix)) != 0 || strcasecmp(text, "every-N") == 0)
        return put(x, "recompute", "--recompute", text) &&
               (x->r->recompute != RECOMPUTE_EVERY_N ||
                err_set(x->e, ERR_USAGE, "--recompute every-N: give a number, such as every-2"));
    return put(x, "recompute", "--recompute", "every-N") &&
           put(x, "recompute_every", "--recompute", text + strlen(prefix));
}

static bool put_wrap(struct apply *x, const char *text) {
    if (text == NULL)
        return true;
    if (strcasecmp(text, "block") == 0 || strcasecmp(text, "model") == 0)
        return put(x, "wrap", "--wrap", text);
    return put(x, "wrap_parameters", "--wrap", text) && put(x, "wrap", "--wrap", "size");
}

static bool put_batch(struct apply *x, const struct recipe_request *q) {
    if (q->given.global_batch) {
        // A batch given in part leaves the rest to be derived.
        if (!q->given.grad_accum)
            x->r->grad_accum = 0;
        else if (!q->given.micro_batch)
            x->r->micro_batch = 0;
    } else if (q->given.micro_batch || q->given.grad_accum) {
        x->r->global_batch = 0;
    }
    return put_count(x, q->given.global_batch, "global_batch", "--global-batch", q->global_batch) &&
           put_count(x, q->given.micro_batch, "micro_batch", "--micro-batch", q->micro_batch) &&
           put_count(x, q->given.grad_accum, "grad_accum", "--grad-accum", q->grad_accum);
}

static bool put_shape(struct apply *x, const struct recipe_request *q) {
    const struct recipe_given *g = &q->given;
    bool shard = g->shard_group && recipe_has_shard_group(x->r->strategy);
    return put_count(x, g->seq, "seq", "--seq", q->seq) && put_batch(x, q) &&
           put_double(x, g->tokens, "tokens", "--tokens", q->tokens) &&
           put_count(x, shard, "shard_group", "--shard-group", q->shard_group) &&
           put_count(x, g->tp, "tp", "--tp", q->tp) && put_count(x, g->cp, "cp", "--cp", q->cp) &&
           put_count(x, g->pp, "pp", "--pp", q->pp) && put_count(x, g->ep, "ep", "--ep", q->ep) &&
           put_wrap(x, q->wrap);
}

static bool put_choices(struct apply *x, const struct recipe_request *q) {
    const struct recipe_given *g = &q->given;
    return put_choice(x, g->precision, "--precision", precision_choices, q->precision) &&
           put_text(x, "reduce_dtype", "--reduce-dtype", q->reduce_dtype) &&
           put_choice(x, g->optimizer, "--optimizer", optimizer_choices, q->optimizer) &&
           put_choice(x, g->attention, "--attention", attention_choices, q->attention) &&
           put_choice(x, g->loss, "--loss", loss_choices, q->loss) &&
           put_choice(x, g->stack, "--stack", stack_choices, q->stack) &&
           put_choice(x, g->offload_optimizer, "--offload-optimizer", offload_choices,
                      q->offload_optimizer) &&
           put_choice(x, g->offload_param, "--offload-param", offload_choices, q->offload_param);
}

static bool put_sets(struct apply *x, const struct opt_texts *set) {
    for (size_t i = 0; i < set->count; i++) {
        const char *text = set->items[i], *eq = strchr(text, '=');
        if (eq == NULL || eq == text)
            return err_set(x->e, ERR_USAGE, "--set %s: expected PATH=VALUE", text);
        if (cluster_field_owns(text))
            continue; // recipe_apply_cluster's
        const char *path = arena_printf(x->a, "%.*s", (int)(eq - text), text);
        if (!recipe_field_set(x->r, path, eq + 1, x->a, x->e))
            return false;
        const struct recipe_field *f = recipe_field_find(path);
        recipe_note(x->o, x->a, arena_printf(x->a, "recipe.%s", f->name),
                    recipe_field_text(x->r, f, x->a), "--set");
    }
    return true;
}

// A version names one framework; recipes of the others keep theirs.
static bool put_version(struct apply *x, const char *text) {
    struct version v;
    if (text == NULL)
        return true;
    if (!version_parse(text, &v, x->e))
        return false;
    if ((v.framework == VERSION_DEEPSPEED) != recipe_is_deepspeed(x->r))
        return true;
    return put(x, "framework_version", "--framework-version", text);
}

bool recipe_apply(const struct recipe_request *q, struct arena *a, struct recipe *r,
                  struct recipe_origins *o, struct err *e) {
    bool compiled = q->given.stack && q->stack == STACK_COMPILED;
    struct recipe next = *r;
    struct apply x = {&next, a, o, e};
    if (!put_shape(&x, q) || !put_choices(&x, q) || !put_recompute(&x, q->recompute) ||
        !put_double(&x, q->given.clip, "clip", "--clip", q->clip) ||
        !put_count(&x, q->given.lora_rank, "lora_rank", "--lora-rank", q->lora_rank) ||
        !put_text(&x, "lora_targets", "--lora-targets", q->lora_targets) ||
        !put_version(&x, q->framework_version) ||
        !put_text(&x, "compile", compiled && !q->compile ? "--stack" : "--compile",
                  q->compile || compiled ? "true" : NULL) ||
        !put_sets(&x, &q->set))
        return false;
    *r = next;
    return true;
}

// ---- which recipes ------------------------------------------------------------------------------

static bool asks_all(const struct opt_texts *t) {
    return t->count == 0 || (t->count == 1 && strcasecmp(t->items[0], "all") == 0);
}

static bool expand_base(const struct recipe_request *q, const struct model *m, struct arena *a,
                        struct recipe_list *out, struct err *e) {
    struct config_context x = {.arena = a, .model = m, .warnings = &out->warnings};
    bool own = q->config != NULL && q->strategies.count == 0;
    bool all = asks_all(&q->strategies);
    out->count = own ? 1 : all ? STRATEGY_ALL_COUNT : q->strategies.count;
    out->items = arena_array(a, out->count, sizeof *out->items);
    out->origins = arena_array(a, out->count, sizeof *out->origins);
    for (size_t i = 0; i < out->count; i++) {
        struct recipe *r = &out->items[i];
        enum strategy s = (enum strategy)i;
        uint64_t k = 0;
        if (!own && !all && !recipe_strategy_parse(q->strategies.items[i], &s, &k, e))
            return err_of_usage(e);
        recipe_defaults(s, r);
        x.origins = &out->origins[i];
        if (q->config != NULL && !recipe_read_config(q->config, &x, r, e))
            return false;
        x.warnings = NULL; // once is enough
        if (own)
            continue;
        struct recipe plain;
        recipe_defaults(s, &plain);
        if (q->config != NULL && plain.framework != r->framework)
            r->framework_version = plain.framework_version;
        r->strategy = s;
        r->framework = plain.framework;
        r->reshard_group = k;
        recipe_note(x.origins, a, "recipe.strategy", strategy_names[s],
                    all ? "--strategy all" : "--strategy");
    }
    return true;
}

bool recipe_request_expand(const struct recipe_request *q, const struct model *m, struct arena *a,
                           struct recipe_list *out, struct err *e) {
    struct recipe_list list = {0};
    if (!expand_base(q, m, a, &list, e))
        return false;
    if (q->given.shard_group && list.count == 1 && !recipe_has_shard_group(list.items[0].strategy))
        return err_set(e, ERR_USAGE,
                       "--shard-group: %s shards over all GPUs; use hsdp, fsdp1-hybrid, mics or "
                       "zero++",
                       strategy_names[list.items[0].strategy]);
    if (q->framework_version && !version_warn(q->framework_version, a, &list.warnings, e))
        return false;
    for (size_t i = 0; i < list.count; i++)
        if (!recipe_apply(q, a, &list.items[i], &list.origins[i], e))
            return err_of_usage(e);
    *out = list;
    return true;
}
