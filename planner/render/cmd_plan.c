// SPDX-License-Identifier: Apache-2.0
#include "render/cmd.h"

#include "plan/plan.h"
#include "render/emit_plan.h"

#include <stdio.h>
#include <string.h>

struct plan_options {
    struct model_request request;
    bool with_offload;
};

static const struct opt own_options[] = {
    {.name = "with-offload",
     .type = OPT_FLAG,
     .offset = offsetof(struct plan_options, with_offload),
     .help = "show CPU and NVMe offload also when something fits without",
     .group = "Plan",
     .given_offset = SIZE_MAX},
    {.name = NULL},
};
static const struct opt *const tables[] = {recipe_options, own_options, model_output_options, NULL};
static const char *const examples[] = {
    "shardplan plan llama-3-8b dgx-h100",
    "shardplan plan llama-3-70b dgx-a100 --with-offload --recompute full",
    "shardplan plan llama-2-7b 8xA100-80GB --strategy zero3 --micro-batch 4 --json -",
    NULL,
};

const struct opt_command plan_command_options = {
    .name = "plan",
    .summary = "does it fit, how fast is it, what holds it back",
    .positional = "MODEL CLUSTER",
    .positional_help = model_cluster_help,
    .tables = tables,
    .examples = examples,
    .notes =
        "Exit status 0: some plan fits; 1: none does. Memory is each class's own maximum on one "
        "GPU; `peak` is the largest sum over forward, loss, backward and step. `tight` means the "
        "allocator's upper estimate exceeds the card.",
};

static enum plan_offload offload_wanted(const struct plan_options *o) {
    const struct recipe_given *g = &o->request.recipe.given;
    if (o->with_offload)
        return PLAN_OFFLOAD_ALWAYS;
    if (g->offload_optimizer || g->offload_param || o->request.recipe.config)
        return PLAN_OFFLOAD_NEVER;
    return PLAN_OFFLOAD_IF_NEEDED;
}

// Where nothing asked for can run there is no plan to answer with: the reasons, each once.
static bool refuse_all(struct cli *cli, const struct plan_set *s) {
    const char *text = NULL;
    for (size_t i = 0; i < s->plan_count; i++) {
        const char *why = s->plans[i].reason;
        if (why == NULL)
            return true;
        if (text == NULL)
            text = why;
        else if (strstr(text, why) == NULL)
            text = arena_printf(cli->arena, "%s; %s", text, why);
    }
    return text == NULL || err_set(&cli->err, ERR_USAGE, "%s", text);
}

static bool evaluate(struct cli *cli, const struct plan_options *o, struct plan_set *s,
                     struct recipe_list *list) {
    struct model *m = arena_alloc(cli->arena, sizeof *m);
    struct cluster *c = arena_alloc(cli->arena, sizeof *c);
    if (!cli_load(cli, &o->request.recipe, m, c) ||
        !recipe_request_expand(&o->request.recipe, m, cli->arena, list, &cli->err))
        return false;
    struct plan_request q = {.model = m,
                             .cluster = c,
                             .recipes = list->items,
                             .recipe_count = list->count,
                             .offload = offload_wanted(o)};
    return plan_all(&q, cli->arena, s, &cli->err) && refuse_all(cli, s);
}

static int run(struct cli *cli, int argc, char **argv) {
    struct plan_options o = {0};
    struct plan_set s;
    struct recipe_list list = {0};
    if (!cli_parse(cli, &plan_command_options, argc, argv, &o))
        return cli->status;
    if (!cli_expect(cli, &plan_command_options, 2) || !evaluate(cli, &o, &s, &list) ||
        !cli_measured(cli, &o.request.output, &s.measured))
        return cli_fail(cli);
    if (!o.request.output.quiet)
        cli_warn(cli, &list.warnings);
    if (cli_prints_table(&o.request.output))
        emit_plan_table(&s, cli->arena, stdout);
    const struct recipe_origins *origins = list.count ? &list.origins[0] : NULL;
    if (!cli_result(cli, &o.request.output,
                    emit_plan_json(&s, cli->command_line, origins, cli->arena)))
        return cli_fail(cli);
    for (size_t i = 0; i < s.plan_count; i++)
        if (s.plans[i].fits)
            return EXIT_YES;
    return EXIT_NO;
}

const struct command plan_command = {.options = &plan_command_options, .run = run};
