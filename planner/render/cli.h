// SPDX-License-Identifier: Apache-2.0
// What every command shares: output options, loading MODEL and CLUSTER, messages, results.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/opt.h"
#include "describe/cluster.h"
#include "describe/measured.h"
#include "describe/model.h"
#include "describe/recipe_options.h"

#include <stdbool.h>

// Exit statuses, DESIGN §5.
enum {
    EXIT_YES = 0,
    EXIT_NO = 1,
    EXIT_USAGE = 2,
    EXIT_INPUT = 3,
    EXIT_MISSING = 4,
    EXIT_INTERRUPTED = 130,
};

struct output_request {
    const char *json, *report;
    bool quiet;
    bool stdout_taken; // set by a command whose own output goes there: nothing else may
};
// For option structs that start with an output_request.
extern const struct opt output_options_at_zero[];

// A command's own options struct may begin with this: recipe options at offset 0, output after.
struct model_request {
    struct recipe_request recipe;
    struct output_request output;
};
extern const struct opt model_output_options[]; // --json, --report, --quiet of a model_request

struct cli {
    struct arena *arena;
    struct err err;
    const char *command_line; // as typed, for the result's `command`
    struct opt_texts rest;    // positionals, filled by cli_parse
    int status;               // when cli_parse says to stop
};

struct command {
    const struct opt_command *options;
    int (*run)(struct cli *cli, int argc, char **argv); // returns the exit status
};
extern const struct command *const commands[]; // NULL-terminated, in the order of help

// Parse into `target`; positionals land in cli->rest. False = stop with cli->status: help was asked
// for and printed, or the error was.
bool cli_parse(struct cli *cli, const struct opt_command *c, int argc, char **argv, void *target);
// Exactly `count` positionals, else a usage error naming what is missing.
bool cli_expect(struct cli *cli, const struct opt_command *c, size_t count);
// MODEL and CLUSTER of the first two positionals, with the request's overrides of the cluster
// applied.
bool cli_load(struct cli *cli, const struct recipe_request *q, struct model *m, struct cluster *c);
void cli_warn(const struct cli *cli, const struct warnings *w);
// Prints "shardplan: <text>" and returns the exit status of cli->err.
int cli_fail(const struct cli *cli);
// Write the JSON where asked and run the report where asked. Frees root. False = cli->err is set.
bool cli_result(struct cli *cli, const struct output_request *o, cJSON *root);
// The measured runs that results name the nearest of; NULL where no JSON and no report is asked
// for.
bool cli_measured(struct cli *cli, const struct output_request *o,
                  const struct measured_table **out);
// True when the human table goes to stdout (--json - takes stdout for itself).
bool cli_prints_table(const struct output_request *o);

// Start `program` (beside us, ../bench, ../reports, libexecdir, PATH), wait, pass its status on.
int cli_spawn(struct cli *cli, const char *program, char *const *argv);
