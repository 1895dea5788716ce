// SPDX-License-Identifier: Apache-2.0
#include "render/cmd.h"

#include "judge/calibrate.h"
#include "render/emit_fit.h"

#include <stdio.h>
#include <string.h>

struct fit_options {
    struct output_request output;
    const char *cluster, *out, *runs;
};

#define AT(field) offsetof(struct fit_options, field)
static const struct opt own_options[] = {
    {.name = "cluster",
     .letter = 'c',
     .type = OPT_STRING,
     .offset = AT(cluster),
     .argument = "CLUSTER",
     .help = "the cluster that was measured: catalog name, file, or COUNTxGPU",
     .group = "Fit",
     .given_offset = SIZE_MAX},
    {.name = "out",
     .letter = 'o',
     .type = OPT_STRING,
     .offset = AT(out),
     .argument = "CLUSTER.json",
     .help = "where the fitted cluster goes",
     .group = "Fit",
     .given_offset = SIZE_MAX},
    {.name = "runs",
     .type = OPT_STRING,
     .offset = AT(runs),
     .argument = "RUNS.json",
     .help = "training runs, in the form that validate takes: fits the GPU's and host's constants",
     .group = "Fit",
     .given_offset = SIZE_MAX},
    {.name = NULL},
};
static const struct opt *const tables[] = {own_options, output_options_at_zero, NULL};
static const char *const help[] = {"MEASUREMENT: what bench or catalog import wrote", NULL};
static const char *const examples[] = {
    "shardplan fit --runs tests/fixtures/validation/runs.json --cluster dgx-a100 -o ours.json",
    NULL};
const struct opt_command fit_command_options = {
    .name = "fit",
    .summary = "turn measurements into a cluster's own coefficients",
    .positional = "MEASUREMENT...",
    .positional_help = help,
    .tables = tables,
    .examples = examples,
    .notes =
        "Collectives get latency, bandwidth and saturation per rank count, matrix products and GPU "
        "memory the constants of their laws, with standard errors; copies, NVMe, host memory and "
        "CPU Adam their best measured setting, CPU Adam only for the software that ran. --runs "
        "moves the GPU's and host's constants, within what the catalog believes, to training runs; "
        "they are kept only where runs that were left out are predicted better than before. The "
        "figures of the new cluster file are `fitted`; plan and simulate use them and narrow their "
        "intervals. A fit is not asked beyond four times the measured sizes.",
};

static bool read_all(struct cli *cli, struct measurement **out) {
    *out = arena_array(cli->arena, cli->rest.count + 1, sizeof **out);
    for (size_t i = 0; i < cli->rest.count; i++)
        if (!measure_read(cli->rest.items[i], cli->arena, &(*out)[i], &cli->err))
            return false;
    return true;
}

// Ranks on a node's processors say nothing of its GPUs' links, for whose rate a plan would take
// theirs: out they go, unless the processors are what trains.
static void leave_processors(struct cli *cli, bool quiet, struct measurement *m, const char *path) {
    struct warnings list = {0};
    size_t kept = 0;
    for (size_t i = 0; i < m->count; i++) {
        const struct measure_result *r = &m->results[i];
        if (!(r->ranks > 1 && r->nodes == 1 && r->backend && strcmp(r->backend, "mpi") == 0))
            m->results[kept++] = *r;
    }
    if (kept < m->count)
        warnings_add(&list, cli->arena, WARNING_LEFT_OUT, path,
                     arena_printf(cli->arena,
                                  "%zu collectives within a node are left out: they were timed "
                                  "between processors (mpi), not between GPUs (nccl)",
                                  m->count - kept));
    m->count = kept;
    if (!quiet)
        cli_warn(cli, &list);
}

static bool fit(struct cli *cli, const struct fit_options *o, struct calibration *out) {
    struct cluster *c = arena_alloc(cli->arena, sizeof *c);
    struct measurement *m;
    if ((cli->rest.count == 0 && !o->runs) || !o->cluster || !o->out)
        return err_set(&cli->err, ERR_USAGE,
                       "fit takes MEASUREMENT... or --runs RUNS.json, --cluster CLUSTER and -o "
                       "CLUSTER.json");
    if (!cluster_load(o->cluster, cli->arena, c, &cli->err) || !read_all(cli, &m))
        return false;
    bool trains_on_gpus = !c->gpu.vendor || strcmp(c->gpu.vendor, "host") != 0;
    for (size_t i = 0; i < cli->rest.count && trains_on_gpus; i++)
        leave_processors(cli, o->output.quiet, &m[i], cli->rest.items[i]);
    return calibrate(c, m, cli->rest.count, cli->arena, out, &cli->err) &&
           (!o->runs || calibrate_runs(o->runs, cli->arena, out, &cli->err)) &&
           cluster_write(o->out, &out->cluster, &cli->err);
}

static int run(struct cli *cli, int argc, char **argv) {
    struct fit_options o = {0};
    struct calibration c;
    if (!cli_parse(cli, &fit_command_options, argc, argv, &o))
        return cli->status;
    if (!fit(cli, &o, &c))
        return cli_fail(cli);
    if (cli_prints_table(&o.output)) {
        emit_fit_table(&c, cli->arena, stdout);
        printf("\nCluster: %s\n", o.out);
    }
    return cli_result(cli, &o.output, emit_fit_json(&c, cli->command_line, cli->arena))
               ? EXIT_YES
               : cli_fail(cli);
}

const struct command fit_command = {.options = &fit_command_options, .run = run};
