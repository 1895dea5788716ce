// SPDX-License-Identifier: Apache-2.0
#include "render/cmd.h"

#include "judge/check.h"
#include "render/emit_check.h"

#include <stdio.h>
#include <string.h>

struct check_options {
    struct model_request request; // first: the recipe options' offsets count from it
    const char *model, *cluster, *environment, *fix;
};

#define OWN(field, option, what, text)                                                             \
    {                                                                                              \
        .name = option, .type = OPT_STRING, .offset = offsetof(struct check_options, field),       \
        .argument = what, .help = text, .group = "Check", .given_offset = SIZE_MAX                 \
    }
static const struct opt own_options[] = {
    OWN(model, "model", "MODEL", "what is trained"),
    OWN(cluster, "cluster", "CLUSTER", "where"),
    OWN(environment, "env", "FILE", "a launch script or NAME=VALUE lines to check as well"),
    OWN(fix, "fix", "FILE", "write the corrected configuration; - is stdout"),
    {.name = NULL},
};
static const char *const help[] = {
    "CONFIG: a DeepSpeed JSON, accelerate YAML, fully_shard JSON or torchtitan TOML file",
    NULL,
};
static const struct opt *const tables[] = {recipe_options, own_options, model_output_options, NULL};
static const char *const examples[] = {
    "shardplan check models/recipes/deepspeed-zero3-cpu-offload.json --model llama-3-8b --cluster "
    "dgx-h100",
    NULL,
};
const struct opt_command check_command_options = {
    .name = "check",
    .summary = "find the silent traps of a configuration, what they cost, and the fix",
    .positional = "CONFIG",
    .positional_help = help,
    .tables = tables,
    .examples = examples,
    .notes = "Exit status 0: no finding of severity error; 1: at least one.",
};

static bool check(struct cli *cli, const struct check_options *o, const struct check_request *q,
                  struct check_result *r) {
    const char *text = NULL;
    size_t applied = 0;
    if (!check_config(q, cli->arena, r, &cli->err))
        return false;
    if (o->fix == NULL)
        return true;
    if (!check_fix(q, r, cli->arena, &text, &applied, &cli->err) ||
        !json_write_text_file(o->fix, text, strlen(text), &cli->err))
        return false;
    if (!o->request.output.quiet)
        fprintf(stderr, "shardplan: %zu of %zu findings fixed in %s\n", applied, r->count, o->fix);
    return true;
}

static bool load(struct cli *cli, const struct check_options *o, struct model *m,
                 struct cluster *c) {
    if (o->model == NULL || o->cluster == NULL)
        return err_set(&cli->err, ERR_USAGE, "check needs --model and --cluster");
    if (o->request.recipe.config != NULL)
        return err_set(&cli->err, ERR_USAGE, "check reads its argument, not --config");
    return model_load(o->model, cli->arena, m, &cli->err) &&
           cluster_load(o->cluster, cli->arena, c, &cli->err) &&
           recipe_apply_cluster(&o->request.recipe, c, &cli->err);
}

static int run(struct cli *cli, int argc, char **argv) {
    struct check_options o = {0};
    struct check_result r;
    struct model m;
    struct cluster c;
    if (!cli_parse(cli, &check_command_options, argc, argv, &o))
        return cli->status;
    if (!cli_expect(cli, &check_command_options, 1) || !load(cli, &o, &m, &c))
        return cli_fail(cli);
    struct check_request q = {.path = cli->rest.items[0],
                              .environment = o.environment,
                              .options = &o.request.recipe,
                              .model = &m,
                              .cluster = &c};
    if (!check(cli, &o, &q, &r))
        return cli_fail(cli);
    bool table = cli_prints_table(&o.request.output) && !(o.fix && strcmp(o.fix, "-") == 0);
    if (table)
        emit_check_table(&r, stdout);
    if (!cli_result(cli, &o.request.output, emit_check_json(&q, &r, cli->command_line)))
        return cli_fail(cli);
    return check_errors(&r) ? EXIT_NO : EXIT_YES;
}

const struct command check_command = {.options = &check_command_options, .run = run};
