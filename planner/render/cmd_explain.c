// SPDX-License-Identifier: Apache-2.0
#include "render/cmd.h"

#include "judge/explain.h"
#include "render/emit_check.h"

#include <stdio.h>

struct explain_options {
    struct model_request request; // first: the recipe options' offsets count from it
    const char *model, *cluster;
};

#define OWN(field, option, what, text)                                                             \
    {                                                                                              \
        .name = option, .type = OPT_STRING, .offset = offsetof(struct explain_options, field),     \
        .argument = what, .help = text, .group = "Explain", .given_offset = SIZE_MAX               \
    }
static const struct opt own_options[] = {
    OWN(model, "model", "MODEL", "what was trained"),
    OWN(cluster, "cluster", "CLUSTER", "where; without it usual group sizes are tried"),
    {.name = NULL},
};
static const char *const help[] = {"LOG: the output of a run that stopped", NULL};
static const struct opt *const tables[] = {recipe_options, own_options, model_output_options, NULL};
static const char *const examples[] = {
    "shardplan explain tests/fixtures/deepspeed_log_lines.txt --model llama-2-7b",
    NULL,
};
const struct opt_command explain_command_options = {
    .name = "explain",
    .summary = "read a run's log: which allocation failed, in which phase, what to change",
    .positional = "LOG",
    .positional_help = help,
    .tables = tables,
    .examples = examples,
    .notes = "With --config or --strategy, and the sequence and micro-batch of the run, sizes are "
             "those of that recipe; without a cluster it is taken to run on 8 GPUs. Exit status 0: "
             "nothing in the log stopped a run, 1: something did.",
};

// One recipe when the user describes it; otherwise the frameworks' defaults are tried.
static bool describe(struct cli *cli, const struct explain_options *o, const struct model *m,
                     struct cluster *c, struct explain_request *q) {
    const struct recipe_request *want = &o->request.recipe;
    bool given = want->config || want->strategies.count == 1;
    struct recipe_list list;
    if (o->cluster != NULL || given || want->given.gpus) {
        if (!cluster_load(o->cluster ? o->cluster : "8xA100-80GB", cli->arena, c, &cli->err) ||
            !recipe_apply_cluster(want, c, &cli->err))
            return false;
        q->cluster = c;
    }
    if (!given)
        return true;
    if (!recipe_request_expand(want, m, cli->arena, &list, &cli->err))
        return false;
    if (list.count != 1)
        return err_set(&cli->err, ERR_USAGE, "explain takes one recipe: give one --strategy");
    cli_warn(cli, &list.warnings);
    if (!recipe_resolve(&list.items[0], m, c, &cli->err))
        return false;
    q->recipe = &list.items[0];
    return true;
}

static int run(struct cli *cli, int argc, char **argv) {
    struct explain_options o = {0};
    struct explain_result r;
    struct model m;
    struct cluster c;
    if (!cli_parse(cli, &explain_command_options, argc, argv, &o))
        return cli->status;
    if (o.model == NULL)
        err_set(&cli->err, ERR_USAGE, "explain needs --model");
    if (!cli_expect(cli, &explain_command_options, 1) || o.model == NULL ||
        !model_load(o.model, cli->arena, &m, &cli->err))
        return cli_fail(cli);
    struct explain_request q = {.path = cli->rest.items[0], .model = &m};
    if (!describe(cli, &o, &m, &c, &q) || !explain_log(&q, cli->arena, &r, &cli->err))
        return cli_fail(cli);
    if (cli_prints_table(&o.request.output))
        emit_explain_table(&r, stdout);
    if (!cli_result(cli, &o.request.output, emit_explain_json(&q, &r, cli->command_line)))
        return cli_fail(cli);
    return r.first ? EXIT_NO : EXIT_YES;
}

const struct command explain_command = {.options = &explain_command_options, .run = run};
