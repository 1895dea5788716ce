// SPDX-License-Identifier: Apache-2.0
#include "render/cmd.h"

#include "base/kinds.h"
#include "base/units.h"
#include "describe/catalog.h"
#include "render/catalog_import.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const help[] = {
    "list [models|gpus|clusters]: names, and other names they answer to",
    "show [models|gpus|clusters] NAME: the file, with the source of every figure",
    "import FILE...: nccl-tests, nvidia-smi topo, NCCL XML, nvbandwidth, fio, "
    "p2pBandwidthLatencyTest, gdsio, PyTorch profiler trace, PyTorch memory snapshot (JSON)",
    NULL,
};
static const struct opt import_options[] = {
    {.name = "op",
     .type = OPT_STRING,
     .offset = offsetof(struct import_request, op),
     .argument = "COLLECTIVE",
     .help = "the collective of an nccl-tests table that does not say",
     .group = "Import",
     .given_offset = SIZE_MAX},
    {.name = "out",
     .letter = 'o',
     .type = OPT_STRING,
     .offset = offsetof(struct import_request, out),
     .argument = "FILE",
     .help = "where the measurement or topology goes",
     .group = "Import",
     .given_offset = SIZE_MAX},
    {.name = NULL},
};
static const struct opt *const tables[] = {import_options, output_options_at_zero, NULL};
static const char *const examples[] = {
    "shardplan catalog list models",
    "shardplan catalog show gpus h100-sxm5-80gb",
    NULL,
};
const struct opt_command catalog_command_options = {
    .name = "catalog",
    .summary = "the models, GPUs and clusters that come with shardplan",
    .positional = "list|show|import [models|gpus|clusters] [NAME|FILE...]",
    .positional_help = help,
    .tables = tables,
    .examples = examples,
};

static bool kind_of(const char *word, enum catalog_kind *out) {
    int i = kinds_find(catalog_kind_names, CATALOG_KIND_COUNT, word);
    if (i >= 0)
        *out = (enum catalog_kind)i;
    return i >= 0;
}

static bool list_model(struct cli *cli, const struct catalog_entry *x) {
    struct model m;
    char count[32];
    if (!model_load(x->name, cli->arena, &m, &cli->err))
        return false;
    printf("  %-24s %10s parameters", x->name,
           units_format_count(count, sizeof count, (double)m.parameters));
    return true;
}

static bool list_kind(struct cli *cli, enum catalog_kind kind) {
    struct catalog_entry *entries;
    size_t count;
    if (!catalog_list(kind, cli->arena, &entries, &count, &cli->err))
        return false;
    printf("%s (%zu)\n", catalog_kind_names[kind], count);
    for (size_t i = 0; i < count; i++) {
        if (kind == CATALOG_MODELS) {
            if (!list_model(cli, &entries[i]))
                return false;
        } else {
            printf("  %-24s", entries[i].name);
        }
        for (size_t k = 0; k < entries[i].alias_count && k < 4; k++)
            printf("%s%s", k ? ", " : "  also: ", entries[i].aliases[k]);
        printf("%s\n", entries[i].alias_count > 4 ? ", ..." : "");
    }
    return true;
}

static bool list(struct cli *cli) {
    enum catalog_kind kind;
    if (cli->rest.count > 1) {
        if (!kind_of(cli->rest.items[1], &kind))
            return err_set(&cli->err, ERR_USAGE,
                           "catalog list: '%s' is not models, gpus or clusters",
                           cli->rest.items[1]);
        return list_kind(cli, kind);
    }
    for (size_t i = 0; i < CATALOG_KIND_COUNT; i++)
        if (!list_kind(cli, (enum catalog_kind)i))
            return false;
    return true;
}

static bool copy_file(const char *path, struct err *e) {
    char block[16384];
    size_t n;
    FILE *in = fopen(path, "r");
    if (!in)
        return err_set(e, ERR_INPUT, "%s: cannot be read", path);
    while ((n = fread(block, 1, sizeof block, in)) > 0)
        fwrite(block, 1, n, stdout);
    fclose(in);
    return true;
}

static bool show(struct cli *cli) {
    enum catalog_kind kind;
    const char *path;
    if (cli->rest.count == 3) {
        if (!kind_of(cli->rest.items[1], &kind))
            return err_set(&cli->err, ERR_USAGE,
                           "catalog show: '%s' is not models, gpus or clusters",
                           cli->rest.items[1]);
        return catalog_find(kind, cli->rest.items[2], cli->arena, &path, &cli->err) &&
               copy_file(path, &cli->err);
    }
    if (cli->rest.count != 2)
        return err_set(&cli->err, ERR_USAGE, "catalog show takes [models|gpus|clusters] NAME");
    for (size_t i = 0; i < CATALOG_KIND_COUNT; i++) {
        struct err ignored = {0};
        if (catalog_find((enum catalog_kind)i, cli->rest.items[1], cli->arena, &path, &ignored))
            return copy_file(path, &cli->err);
    }
    return err_set(&cli->err, ERR_INPUT, "'%s' is in no catalog; see shardplan catalog list",
                   cli->rest.items[1]);
}

// `import clusters FILE` reads like list and show; what the files hold says more than the word.
static void drop_kind(struct opt_texts *rest) {
    enum catalog_kind kind;
    if (rest->count < 3 || !kind_of(rest->items[1], &kind) || access(rest->items[1], F_OK) == 0)
        return;
    for (size_t i = 2; i < rest->count; i++)
        rest->items[i - 1] = rest->items[i];
    rest->count--;
}

static int run(struct cli *cli, int argc, char **argv) {
    struct import_request o = {0};
    if (!cli_parse(cli, &catalog_command_options, argc, argv, &o))
        return cli->status;
    const char *verb = cli->rest.count ? cli->rest.items[0] : "list";
    enum catalog_kind kind;
    bool ok = false;
    if (strcmp(verb, "list") == 0)
        ok = list(cli);
    else if (kind_of(verb, &kind))
        ok = list_kind(cli, kind);
    else if (strcmp(verb, "show") == 0)
        ok = show(cli);
    else if (strcmp(verb, "import") == 0) {
        drop_kind(&cli->rest);
        ok = catalog_import(cli, &o);
    } else
        err_set(&cli->err, ERR_USAGE,
                "catalog takes list, show, import, models, gpus or clusters; see shardplan catalog "
                "--help");
    return ok ? EXIT_YES : cli_fail(cli);
}

const struct command catalog_command = {.options = &catalog_command_options, .run = run};
