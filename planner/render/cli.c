// SPDX-License-Identifier: Apache-2.0
#include "render/cli.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define OUTPUT_OPTIONS(target, prefix)                                                             \
    {.name = "json",                                                                               \
     .type = OPT_STRING,                                                                           \
     .offset = offsetof(target, prefix json),                                                      \
     .argument = "FILE",                                                                           \
     .help = "write the result as JSON; - writes JSON alone to stdout",                            \
     .group = "Output",                                                                            \
     .given_offset = SIZE_MAX},                                                                    \
        {.name = "report",                                                                         \
         .type = OPT_STRING,                                                                       \
         .offset = offsetof(target, prefix report),                                                \
         .argument = "DIR",                                                                        \
         .help = "also write an HTML page with plots to DIR",                                      \
         .group = "Output",                                                                        \
         .given_offset = SIZE_MAX},                                                                \
        {.name = "quiet",                                                                          \
         .letter = 'q',                                                                            \
         .type = OPT_FLAG,                                                                         \
         .offset = offsetof(target, prefix quiet),                                                 \
         .help = "no warnings and no progress",                                                    \
         .group = "Output",                                                                        \
         .given_offset = SIZE_MAX},                                                                \
    {                                                                                              \
        .name = NULL                                                                               \
    }

const struct opt model_output_options[] = {OUTPUT_OPTIONS(struct model_request, output.)};
const struct opt output_options_at_zero[] = {OUTPUT_OPTIONS(struct output_request, )};

static bool is_quiet(int argc, char *const *argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--quiet") == 0 || strcmp(argv[i], "-q") == 0)
            return true;
    return false;
}

static void warn_of_thousands(const struct opt_command *c, int argc, char *const *argv) {
    int i = opt_loose_count(c, argc, argv, 1);
    for (; i < argc && !is_quiet(argc, argv); i = opt_loose_count(c, argc, argv, i + 1))
        fprintf(stderr, "shardplan: warning: %s%s%s: k is 1000 in a count; for 1024 write Ki\n",
                argv[i][0] == '-' ? "" : argv[i - 1], argv[i][0] == '-' ? "" : " ", argv[i]);
}

bool cli_parse(struct cli *cli, const struct opt_command *c, int argc, char **argv, void *target) {
    bool help = false;
    if (!opt_parse(c, argc, argv, target, cli->arena, &cli->rest, &help, &cli->err)) {
        cli->status = cli_fail(cli);
        return false;
    }
    if (help) {
        opt_help(c, "shardplan", stdout);
        cli->status = EXIT_YES;
        return false;
    }
    warn_of_thousands(c, argc, argv);
    return true;
}

bool cli_expect(struct cli *cli, const struct opt_command *c, size_t count) {
    if (cli->rest.count == count)
        return true;
    return err_set(&cli->err, ERR_USAGE, "%s takes %s (%zu given); see shardplan %s --help",
                   c->name, c->positional, cli->rest.count, c->name);
}

bool cli_load(struct cli *cli, const struct recipe_request *q, struct model *m, struct cluster *c) {
    return model_load(cli->rest.items[0], cli->arena, m, &cli->err) &&
           cluster_load(cli->rest.items[1], cli->arena, c, &cli->err) &&
           recipe_apply_cluster(q, c, &cli->err);
}

void cli_warn(const struct cli *cli, const struct warnings *w) {
    (void)cli;
    for (size_t i = 0; i < w->count; i++)
        fprintf(stderr, "shardplan: warning: %s: %s\n", w->items[i].path, w->items[i].text);
}

int cli_fail(const struct cli *cli) {
    fprintf(stderr, "shardplan: %s\n", cli->err.text);
    return err_exit_status(&cli->err);
}

const char *const model_cluster_help[] = {
    "MODEL: a catalog name, a config.json, a folder holding one, or a size such as 7B",
    "CLUSTER: a catalog name, a cluster file, or nodes such as 8xA100-80GB "
    "or 4x8xH100",
    NULL,
};

bool cli_prints_table(const struct output_request *o) {
    return !o->stdout_taken && (!o->json || strcmp(o->json, "-") != 0);
}

// The report reads a file: the one the user asked for, else one beside the page.
static bool run_report(struct cli *cli, const struct output_request *o, const cJSON *root) {
    const char *path = o->json;
    if (!path || strcmp(path, "-") == 0) {
        path = arena_printf(cli->arena, "%s/result.json", o->report);
        if (mkdir(o->report, 0777) != 0 && errno != EEXIST)
            return err_set(&cli->err, ERR_RESOURCE, "%s: %s", o->report, strerror(errno));
        if (!json_write_file(path, root, &cli->err))
            return false;
    }
    const char *words[] = {"shardreport", path, "-o", o->report, "--quiet"};
    char *argv[sizeof words / sizeof words[0] + 1] = {0};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        argv[i] = arena_strdup(cli->arena, words[i]);
    int status = cli_spawn(cli, "shardreport", argv);
    if (status != 0)
        return err_set(&cli->err, ERR_RESOURCE,
                       "the report could not be written (shardreport: status %d)", status);
    if (cli_prints_table(o))
        printf("Report: %s/index.html\n", o->report);
    return true;
}

bool cli_result(struct cli *cli, const struct output_request *o, cJSON *root) {
    bool ok = true;
    fflush(stdout);
    if (o->json) {
        ok = json_write_file(o->json, root, &cli->err);
        if (ok && cli_prints_table(o))
            printf("JSON: %s\n", o->json);
    }
    if (ok && o->report)
        ok = run_report(cli, o, root);
    cJSON_Delete(root);
    return ok;
}

bool cli_measured(struct cli *cli, const struct output_request *o,
                  const struct measured_table **out) {
    struct measured_table *t = arena_alloc(cli->arena, sizeof *t);
    *out = NULL;
    if (o->json == NULL && o->report == NULL)
        return true;
    if (!measured_load(cli->arena, t, &cli->err))
        return false;
    *out = t;
    return true;
}
