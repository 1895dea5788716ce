// SPDX-License-Identifier: Apache-2.0
// Commands that belong to the other two programs: their words are passed on, and their status back.
#include "render/cmd.h"

static const char *const no_help[] = {NULL};
static const struct opt *const no_tables[] = {NULL};

static int pass_on(struct cli *cli, const char *program, bool keep_name, int argc, char **argv) {
    char **out = arena_array(cli->arena, (size_t)argc + 2, sizeof *out);
    int n = 0;
    out[n++] = arena_strdup(cli->arena, program);
    for (int i = keep_name ? 0 : 1; i < argc; i++)
        out[n++] = argv[i];
    return cli_spawn(cli, program, out);
}

static int run_bench(struct cli *cli, int argc, char **argv) {
    return pass_on(cli, "shardbench", false, argc, argv);
}

static int run_rehearse(struct cli *cli, int argc, char **argv) {
    return pass_on(cli, "shardbench", true, argc, argv);
}

static int run_report(struct cli *cli, int argc, char **argv) {
    return pass_on(cli, "shardreport", false, argc, argv);
}

static const char *const bench_examples[] = {
    "shardplan bench all --within 20s --out all.jsonl",
    "shardplan bench collectives -b 1MiB -e 1MiB --ranks 2 --within 20s",
    "shardplan bench nvme --folder . --max-bytes 64MiB",
    NULL,
};
static const struct opt_command bench_options = {
    .name = "bench",
    .summary = "measure this machine: collectives, copies, NVMe, CPU Adam, GEMM",
    .positional = "all|collectives|nccl|copy|cuda|nvme|adam|gemm|graph FILE",
    .positional_help = no_help,
    .tables = no_tables,
    .examples = bench_examples,
    .notes = "Every word goes to shardbench; `shardplan bench --help` shows its options.",
};
const struct command bench_command = {.options = &bench_options, .run = run_bench};

static const char *const rehearse_examples[] = {
    "shardplan simulate gpt2 2xA100-80GB --strategy ddp --seq 128 --graph step.json",
    "shardplan rehearse step.json --ranks 2 --shrink 0.01",
    NULL,
};
static const struct opt_command rehearse_options = {
    .name = "rehearse",
    .summary = "run a simulated step's task graph on this machine and compare",
    .positional = "GRAPH.json",
    .positional_help = no_help,
    .tables = no_tables,
    .examples = rehearse_examples,
};
const struct command rehearse_command = {.options = &rehearse_options, .run = run_rehearse};

static const char *const report_examples[] = {
    "shardplan plan llama-3-8b dgx-h100 --json plan.json",
    "shardplan report plan.json -o report",
    NULL,
};
static const struct opt_command report_options = {
    .name = "report",
    .summary = "one self-contained HTML page with plots from result files",
    .positional = "RESULT.json... -o DIR",
    .positional_help = no_help,
    .tables = no_tables,
    .examples = report_examples,
};
const struct command report_command = {.options = &report_options, .run = run_report};
