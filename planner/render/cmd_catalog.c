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

struct listing {
    struct cli *cli;
    cJSON *root; // of the result; NULL when none is asked for
    bool table;
};

static void list_json(cJSON *list, const struct catalog_entry *x, uint64_t parameters) {
    cJSON *o = json_append_object(list);
    json_add_string(o, "name", x->name);
    cJSON *aliases = json_add_array(o, "aliases");
    for (size_t k = 0; k < x->alias_count; k++)
        cJSON_AddItemToArray(aliases, cJSON_CreateString(x->aliases[k]));
    if (parameters)
        json_add_u64(o, "parameters", parameters);
}

static void list_line(const struct catalog_entry *x, uint64_t parameters) {
    char count[32];
    printf("  %-24s", x->name);
    if (parameters)
        printf(" %10s parameters", units_format_count(count, sizeof count, (double)parameters));
    for (size_t k = 0; k < x->alias_count && k < 4; k++)
        printf("%s%s", k ? ", " : "  also: ", x->aliases[k]);
    printf("%s\n", x->alias_count > 4 ? ", ..." : "");
}

static bool list_kind(const struct listing *l, enum catalog_kind kind) {
    struct cli *cli = l->cli;
    struct catalog_entry *entries;
    size_t count;
    if (!catalog_list(kind, cli->arena, &entries, &count, &cli->err))
        return false;
    if (l->table)
        printf("%s (%zu)\n", catalog_kind_names[kind], count);
    cJSON *list = l->root ? json_add_array(l->root, catalog_kind_names[kind]) : NULL;
    for (size_t i = 0; i < count; i++) {
        struct model m = {.parameters = 0};
        if (kind == CATALOG_MODELS && !model_load(entries[i].name, cli->arena, &m, &cli->err))
            return false;
        if (l->table)
            list_line(&entries[i], m.parameters);
        if (list)
            list_json(list, &entries[i], m.parameters);
    }
    return true;
}

static bool list(const struct listing *l) {
    struct cli *cli = l->cli;
    enum catalog_kind kind;
    if (cli->rest.count == 1 && kind_of(cli->rest.items[0], &kind))
        return list_kind(l, kind);
    if (cli->rest.count > 1) {
        if (!kind_of(cli->rest.items[1], &kind))
            return err_set(&cli->err, ERR_USAGE,
                           "catalog list: '%s' is not models, gpus or clusters",
                           cli->rest.items[1]);
        return list_kind(l, kind);
    }
    for (size_t i = 0; i < CATALOG_KIND_COUNT; i++)
        if (!list_kind(l, (enum catalog_kind)i))
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

static bool show_entry(const struct listing *l, enum catalog_kind kind, const char *path) {
    struct err *e = &l->cli->err;
    if (l->root) {
        struct json_doc *d = json_read_file(path, e);
        if (!d)
            return false;
        json_add_string(l->root, "kind", catalog_kind_names[kind]);
        cJSON_AddItemToObject(l->root, "entry", cJSON_Duplicate(json_root(d).item, true));
        json_destroy(d);
    }
    return !l->table || copy_file(path, e);
}

static bool show(const struct listing *l) {
    struct cli *cli = l->cli;
    enum catalog_kind kind;
    const char *path;
    if (cli->rest.count == 3) {
        if (!kind_of(cli->rest.items[1], &kind))
            return err_set(&cli->err, ERR_USAGE,
                           "catalog show: '%s' is not models, gpus or clusters",
                           cli->rest.items[1]);
        return catalog_find(kind, cli->rest.items[2], cli->arena, &path, &cli->err) &&
               show_entry(l, kind, path);
    }
    if (cli->rest.count != 2)
        return err_set(&cli->err, ERR_USAGE, "catalog show takes [models|gpus|clusters] NAME");
    for (size_t i = 0; i < CATALOG_KIND_COUNT; i++) {
        struct err ignored = {0};
        if (catalog_find((enum catalog_kind)i, cli->rest.items[1], cli->arena, &path, &ignored))
            return show_entry(l, (enum catalog_kind)i, path);
    }
    return err_set(&cli->err, ERR_INPUT, "'%s' is in no catalog; see shardplan catalog list",
                   cli->rest.items[1]);
}

// list and show, with their result where one is asked for.
static bool look(struct cli *cli, const struct output_request *o, bool whole) {
    struct listing l = {.cli = cli, .table = cli_prints_table(o)};
    if (o->json || o->report) {
        l.root = cJSON_CreateObject();
        json_add_string(l.root, "schema", "shardplan.catalog/1");
        json_add_string(l.root, "command", cli->command_line);
    }
    if (whole ? list(&l) : show(&l))
        return !l.root || cli_result(cli, o, l.root);
    cJSON_Delete(l.root);
    return false;
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
    bool whole = strcmp(verb, "list") == 0 || kind_of(verb, &kind); // `catalog gpus` lists too
    if (whole || strcmp(verb, "show") == 0)
        ok = look(cli, &o.output, whole);
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
