// SPDX-License-Identifier: Apache-2.0
#include "describe/measured.h"
#include "render/cmd.h"
#include "render/emit_validate.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct validate_options {
    struct output_request output; // first: output_options_at_zero
    const char *collectives;
    bool rows, max_given;
    double max_mape;
};

static const struct opt validate_options[] = {
    {.name = "collectives",
     .type = OPT_STRING,
     .offset = offsetof(struct validate_options, collectives),
     .argument = "FILE",
     .given_offset = SIZE_MAX,
     .help = "Score collective times against measured bus bandwidths (hardware.json's form) "
             "instead of runs."},
    {.name = "rows",
     .type = OPT_FLAG,
     .offset = offsetof(struct validate_options, rows),
     .given_offset = SIZE_MAX,
     .help = "List every row with its error, and unscored ones with their reason."},
    {.name = "max-mape",
     .type = OPT_DOUBLE,
     .offset = offsetof(struct validate_options, max_mape),
     .argument = "X",
     .given_offset = offsetof(struct validate_options, max_given),
     .help = "Exit 1 when the mean absolute error exceeds this fraction, such as 0.05."},
    {.name = NULL},
};

static const struct opt *const validate_tables[] = {validate_options, output_options_at_zero, NULL};
static const char *const validate_help[] = {
    "RUNS.json  measured training runs, an array of rows with model, GPU, recipe and measurement; "
    "the public ones that come with shardplan unless given",
    NULL};
static const char *const validate_examples[] = {
    "shardplan validate",
    "shardplan validate tests/fixtures/validation/runs.json --rows",
    "shardplan validate --collectives tests/fixtures/validation/collectives.json",
    NULL,
};
static const struct opt_command validate_opt = {
    .name = "validate",
    .summary = "compare predictions with measured runs or collectives",
    .positional = "[RUNS.json]",
    .positional_help = validate_help,
    .tables = validate_tables,
    .examples = validate_examples,
    .notes = "Rows are scored by the rules of docs/validation.md; a row that lacks its score block "
             "gets it by "
             "the same rules. Step time of the data_parallel group decides --max-mape.",
};

static bool judge(struct cli *cli, const struct validate_options *o, const char *input,
                  struct validate_result *r) {
    if (o->collectives != NULL) {
        return cli_expect(cli, &validate_opt, 0) &&
               validate_collectives(input, cli->arena, r, &cli->err);
    }
    return (cli->rest.count == 0 || cli_expect(cli, &validate_opt, 1)) &&
           validate_runs(input, cli->arena, r, &cli->err);
}

static int run_validate(struct cli *cli, int argc, char **argv) {
    struct validate_options o = {0};
    struct validate_result r;
    if (!cli_parse(cli, &validate_opt, argc, argv, &o)) {
        return cli->status;
    }
    const char *input = o.collectives != NULL ? o.collectives
                        : cli->rest.count > 0 ? cli->rest.items[0]
                                              : measured_runs_path(cli->arena);
    if (!judge(cli, &o, input, &r)) {
        return cli_fail(cli);
    }
    if (cli_prints_table(&o.output)) {
        if (o.collectives == NULL && cli->rest.count == 0)
            fputs("The public runs that come with shardplan\n\n", stdout);
        emit_validate_table(&r, o.rows, stdout);
    }
    if (!cli_result(cli, &o.output, emit_validate_json(&r, cli->command_line, input))) {
        return cli_fail(cli);
    }
    const struct validate_score *s = o.collectives != NULL ? &r.collectives : &r.step_time;
    if (s->n == 0) {
        return EXIT_MISSING;
    }
    return o.max_given && s->mape > o.max_mape ? EXIT_NO : EXIT_YES;
}

const struct command validate_command = {.options = &validate_opt, .run = run_validate};
