// SPDX-License-Identifier: Apache-2.0
#include "render/cmd.h"

#include "judge/advise.h"
#include "render/emit_advise.h"

#include <stdio.h>

static const struct opt *const tables[] = {recipe_options, model_output_options, NULL};
static const char *const examples[] = {
    "shardplan advise llama-3-70b dgx-a100",
    "shardplan advise llama-2-13b dgx-a100 --nodes 2 --net 100Gb/s --tokens 1e9",
    NULL,
};
const struct opt_command advise_command_options = {
    .name = "advise",
    .summary = "offload, more bandwidth or more GPUs: what to do, and what each is worth",
    .positional = "MODEL CLUSTER",
    .positional_help = model_cluster_help,
    .tables = tables,
    .examples = examples,
    .notes =
        "Every way trains the same global batch. --tokens sets the length that `days` and cost "
        "refer to (default 1e9). Exit status 0: some way fits on this hardware; 1: none does.",
};

static bool prepare(struct cli *cli, const struct model_request *o, struct advise_request *q,
                    struct recipe_list *list) {
    struct model *m = arena_alloc(cli->arena, sizeof *m);
    struct cluster *c = arena_alloc(cli->arena, sizeof *c);
    if (!cli_load(cli, &o->recipe, m, c) ||
        !recipe_request_expand(&o->recipe, m, cli->arena, list, &cli->err))
        return false;
    struct recipe probe = list->items[0];
    if (!recipe_resolve(&probe, m, c, &cli->err))
        return false;
    for (size_t i = 0; i < list->count; i++)
        list->items[i].seq = probe.seq;
    *q = (struct advise_request){.model = m,
                                 .cluster = c,
                                 .recipes = list->items,
                                 .recipe_count = list->count,
                                 .global_batch = o->recipe.global_batch,
                                 .tokens = o->recipe.tokens};
    return true;
}

static int run(struct cli *cli, int argc, char **argv) {
    struct model_request o = {0};
    struct recipe_list list = {0};
    struct advise_request q;
    struct advice *v = arena_alloc(cli->arena, sizeof *v);
    if (!cli_parse(cli, &advise_command_options, argc, argv, &o))
        return cli->status;
    if (!cli_expect(cli, &advise_command_options, 2) || !prepare(cli, &o, &q, &list) ||
        !advise(&q, cli->arena, v, &cli->err) || !cli_measured(cli, &o.output, &v->plans.measured))
        return cli_fail(cli);
    if (!o.output.quiet)
        cli_warn(cli, &list.warnings);
    if (cli_prints_table(&o.output))
        emit_advise_table(v, &q, cli->arena, stdout);
    const struct recipe_origins *origins = list.count ? &list.origins[0] : NULL;
    if (!cli_result(cli, &o.output,
                    emit_advise_json(v, &q, cli->command_line, origins, cli->arena)))
        return cli_fail(cli);
    for (size_t i = 0; i < v->way_count; i++)
        if (v->ways[i].possible && v->ways[i].kind <= WAY_OFFLOAD)
            return EXIT_YES;
    for (size_t i = 0; i < v->plans.plan_count; i++) // it fits, though how fast is unknown
        if (v->plans.plans[i].fits && !v->plans.plans[i].reason)
            return EXIT_YES;
    return EXIT_NO;
}

const struct command advise_command = {.options = &advise_command_options, .run = run};
