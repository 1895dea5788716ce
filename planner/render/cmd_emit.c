// SPDX-License-Identifier: Apache-2.0
#include "render/cmd.h"

#include "base/kinds.h"
#include "render/emit_config.h"
#include "render/emit_plan.h"

#include <stdio.h>
#include <string.h>

struct emit_options {
    struct model_request request; // first: the recipe options' offsets count from it
    const char *out;
};

static const struct opt own_options[] = {
    {.name = "out",
     .letter = 'o',
     .type = OPT_STRING,
     .offset = offsetof(struct emit_options, out),
     .argument = "FILE",
     .fallback = "-",
     .help = "where the configuration goes; - is stdout",
     .group = "Output",
     .given_offset = SIZE_MAX},
    {.name = NULL},
};
static const char *const help[] = {
    "deepspeed (JSON), accelerate (YAML), fsdp2 (fully_shard's arguments, JSON) or "
    "torchtitan "
    "(TOML)",
    "MODEL: a catalog name, a config.json, a folder holding one, or a size such as 7B",
    "CLUSTER: a catalog name, a cluster file, or nodes such as 8xA100-80GB or 4x8xH100",
    NULL,
};
static const struct opt *const tables[] = {recipe_options, own_options, model_output_options, NULL};
static const char *const examples[] = {
    "shardplan emit deepspeed llama-3-8b dgx-h100 --strategy zero3 --recompute full",
    "shardplan emit accelerate llama-3-8b dgx-h100 --strategy fsdp2 -o fsdp.yaml",
    NULL,
};
const struct opt_command emit_command_options = {
    .name = "emit",
    .summary = "write a recipe as a framework's configuration",
    .positional = "deepspeed|accelerate|fsdp2|torchtitan MODEL CLUSTER",
    .positional_help = help,
    .tables = tables,
    .examples = examples,
    .notes = "Without --strategy: zero3 for deepspeed, fsdp2 for the others. Reading the file back "
             "with --config gives the same recipe; what the format has no key for stands beside "
             "it.",
};

static bool kind_of(struct cli *cli, const char *word, enum config_kind *out) {
    int i = kinds_find(config_kind_names, CONFIG_KIND_COUNT, word);
    if (i < 0)
        return err_set(&cli->err, ERR_USAGE,
                       "emit: '%s' is not deepspeed, accelerate, fsdp2 or torchtitan", word);
    *out = (enum config_kind)i;
    return true;
}

static bool one_recipe(struct cli *cli, struct emit_options *o, enum config_kind kind,
                       const struct model *m, struct recipe *out) {
    struct recipe_list list;
    if (o->request.recipe.strategies.count == 0 && o->request.recipe.config == NULL) {
        const char **fallback = arena_array(cli->arena, 1, sizeof *fallback);
        fallback[0] = kind == CONFIG_DEEPSPEED ? "zero3" : "fsdp2";
        o->request.recipe.strategies = (struct opt_texts){fallback, 1};
    }
    if (!recipe_request_expand(&o->request.recipe, m, cli->arena, &list, &cli->err))
        return false;
    if (list.count != 1)
        return err_set(&cli->err, ERR_USAGE, "emit writes one recipe: give one --strategy");
    if (!o->request.output.quiet)
        cli_warn(cli, &list.warnings);
    *out = list.items[0];
    return true;
}

// Only torchtitan's file has words for model parallelism.
static bool can_say(const struct recipe *r, enum config_kind kind, struct err *e) {
    if (r->tp * r->cp * r->pp * r->ep == 1 || kind == CONFIG_TORCHTITAN)
        return true;
    return err_set(e, ERR_USAGE,
                   "emit: this configuration has no words for --tp, --cp, --pp or --ep; the "
                   "torchtitan form has");
}

static cJSON *result(const struct cli *cli, const struct emit_config *q, const char *file,
                     const char *text) {
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", "shardplan.emit/1");
    json_add_string(root, "command", cli->command_line);
    json_add_string(root, "kind", config_kind_names[q->kind]);
    json_add_string(root, "file", file);
    emit_model_cluster(root, q->model, q->cluster, q->recipe);
    json_add_string(root, "strategy", strategy_names[q->recipe->strategy]);
    json_add_string(root, "text", text);
    emit_recipe(root, "recipe", q->recipe);
    return root;
}

// Standard output belongs to the JSON where that is asked for there, else to the configuration.
static bool write_out(struct cli *cli, struct emit_options *o, const struct emit_config *q,
                      const char *text) {
    struct output_request *output = &o->request.output;
    bool to_stdout = strcmp(o->out, "-") == 0;
    bool json_there = output->json && strcmp(output->json, "-") == 0;
    if (!(to_stdout && json_there) && !json_write_text_file(o->out, text, strlen(text), &cli->err))
        return false;
    if (!output->json && !output->report)
        return true;
    output->stdout_taken = to_stdout;
    return cli_result(cli, output, result(cli, q, to_stdout ? NULL : o->out, text));
}

static bool emit(struct cli *cli, struct emit_options *o) {
    struct emit_config q = {.arena = cli->arena};
    struct model m;
    struct cluster c;
    struct recipe r;
    const char *text = NULL;
    if (!kind_of(cli, cli->rest.items[0], &q.kind))
        return false;
    cli->rest.items++; // cli_load takes the first two
    cli->rest.count--;
    if (!cli_load(cli, &o->request.recipe, &m, &c) || !one_recipe(cli, o, q.kind, &m, &r) ||
        !recipe_resolve(&r, &m, &c, &cli->err) || !can_say(&r, q.kind, &cli->err))
        return false;
    q.model = &m;
    q.cluster = &c;
    q.recipe = &r;
    return emit_config_text(&q, &text, &cli->err) && write_out(cli, o, &q, text);
}

static int run(struct cli *cli, int argc, char **argv) {
    struct emit_options o = {0};
    if (!cli_parse(cli, &emit_command_options, argc, argv, &o))
        return cli->status;
    if (!cli_expect(cli, &emit_command_options, 3) || !emit(cli, &o))
        return cli_fail(cli);
    return EXIT_YES;
}

const struct command emit_command = {.options = &emit_command_options, .run = run};
