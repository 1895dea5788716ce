// SPDX-License-Identifier: Apache-2.0
// shardbench: the only file that prints results and exits.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/build.h"
#include "base/json.h"
#include "bench/clock.h"
#include "bench/commands.h"
#include "bench/inventory.h"
#include "bench/launch.h"
#include "bench/report.h"
#include "bench/table.h"

struct command {
    struct opt_command opt;
    bool (*run)(struct run *r, const struct opt_texts *rest, struct err *e);
    bool (*check)(struct run *r, struct err *e); // words, before anything starts; NULL: none
    bool (*result)(struct run *r, const struct opt_texts *rest, cJSON **out, struct err *e);
    void (*print)(FILE *out, const cJSON *result); // both NULL: the measurements are the result
    bool threads;                                  // several of a rank's threads call MPI
    bool wants_ranks; // runs as MPI ranks, started by itself if nobody did
    bool takes_gpus;  // instead of ranks, where this process sees several
};

static const struct opt *const collectives_tables[] = {options_collectives, options_common, NULL};
static const char *const collectives_examples[] = {
    "shardbench collectives -b 1MiB -e 1MiB --ranks 2 --within 20s",
    "shardbench collectives --op all_gather -d fp32 --ranks 2 -e 1MiB --pairs --out ranks.jsonl",
    NULL};

static const char *const nccl_examples[] = {
    "shardbench nccl -b 1MiB -e 1GiB --pairs",
    "shardbench nccl --op all_reduce -b 1GiB -e 1GiB --leave-one-out --out nccl.jsonl", NULL};

#define LOCAL(name)                                                                                \
    static const struct opt *const name##_tables[] = {options_##name, options_common, NULL}
LOCAL(copy);
LOCAL(cuda);
LOCAL(adam);
LOCAL(gemm);
LOCAL(nvme);
LOCAL(all);
LOCAL(graph);
LOCAL(rehearse);
static const char *const rehearse_examples[] = {
    "shardplan simulate gpt2 2xA100-80GB --strategy ddp --seq 128 --graph step.json",
    "shardbench rehearse step.json --ranks 2 --shrink 0.01 --trace rehearsed.json", NULL};
static const struct opt *const confirm_tables[] = {options_confirm, options_graph, options_common,
                                                   NULL};
static const char *const graph_examples[] = {
    "shardplan simulate gpt2 2xA100-80GB --strategy ddp --seq 128 --graph step.json",
    "shardbench graph step.json --ranks 2 --scale-bytes 1MiB --within 10s", NULL};
static const char *const copy_examples[] = {
    "shardbench copy --bytes 16MiB", "shardbench copy --direction h2d,d2h --json copies.json",
    NULL};
static const char *const cuda_examples[] = {"shardbench cuda --bytes 1GiB --out cuda.jsonl", NULL};
static const char *const adam_examples[] = {
    "shardbench adam --variant scalar,reference --parameters 1000000",
    "shardbench adam --threads 1 --dtype bf16 --out adam.jsonl", NULL};
static const char *const gemm_examples[] = {
    "shardbench gemm --shape 256x256x256",
    "shardplan simulate gpt2 2xA100-80GB --strategy ddp --seq 128 --graph step.json",
    "shardbench gemm step.json --within 5s", NULL};

static const char *const nvme_examples[] = {
    "shardbench nvme --folder . --max-bytes 64MiB",
    "shardbench nvme --pattern read --block 128KiB,1MiB --depth 4,16 --out disk.jsonl", NULL};

static const char *const all_examples[] = {
    "shardbench all --within 20s --out all.jsonl",
    "shardplan fit all.jsonl --cluster 8xA100-80GB -o fitted.json", NULL};

static const char *const confirm_examples[] = {
    "shardplan plan gpt2 2xA100-80GB --strategy zero2 --json plan.json",
    "shardbench confirm plan.json --ranks 2 --scale-bytes 1MiB --json confirm.json", NULL};

static const struct command commands[] = {
    {.opt = {.name = "all",
             .summary = "Everything this machine has, within a minute",
             .positional = "",
             .tables = all_tables,
             .examples = all_examples},
     .run = command_all},
    {.opt = {.name = "collectives",
             .summary = "All-gather, reduce-scatter, all-reduce and others between ranks",
             .positional = "",
             .tables = collectives_tables,
             .examples = collectives_examples},
     .run = command_collectives,
     .check = command_collectives_check,
     .wants_ranks = true,
     .takes_gpus = true},
    {.opt = {.name = "nccl",
             .summary = "The same between GPUs, by NCCL: all of this process, or one per rank",
             .positional = "",
             .tables = collectives_tables,
             .examples = nccl_examples},
     .run = command_collectives,
     .check = command_collectives_check,
     .wants_ranks = true},
    {.opt = {.name = "copy",
             .summary = "Copies between host and GPU memory, or within host memory",
             .positional = "",
             .tables = copy_tables,
             .examples = copy_examples},
     .run = command_copy},
    {.opt = {.name = "cuda",
             .summary = "GPUs: copies to, from, within and between them, and their kernels",
             .positional = "",
             .tables = cuda_tables,
             .examples = cuda_examples},
     .run = command_cuda},
    {.opt = {.name = "adam",
             .summary = "The optimizer step on the CPU, beside what its memory can do",
             .positional = "",
             .tables = adam_tables,
             .examples = adam_examples},
     .run = command_adam},
    {.opt = {.name = "gemm",
             .summary = "Matrix products: squares, given shapes, or those of a simulated step",
             .positional = "[GRAPH.json]",
             .tables = gemm_tables,
             .examples = gemm_examples},
     .run = command_gemm},
    {.opt = {.name = "nvme",
             .summary = "Storage: reads, writes and the swap of optimizer states",
             .positional = "",
             .tables = nvme_tables,
             .examples = nvme_examples},
     .run = command_nvme},
    {.opt = {.name = "confirm",
             .summary = "A plan's own transfers for real: planned, measured, ratio",
             .positional = "PLAN.json",
             .tables = confirm_tables,
             .examples = confirm_examples},
     .run = command_confirm,
     .check = command_backend_check,
     .result = command_confirm_result,
     .print = table_print_confirm,
     .wants_ranks = true,
     .takes_gpus = true},
    {.opt = {.name = "rehearse",
             .summary = "A simulated step on this machine: its tasks on threads, with its order",
             .positional = "GRAPH.json",
             .tables = rehearse_tables,
             .examples = rehearse_examples},
     .run = command_rehearse,
     .result = command_rehearse_result,
     .print = table_print_rehearse,
     .wants_ranks = true,
     .takes_gpus = true,
     .threads = true},
    {.opt = {.name = "graph",
             .summary = "The messages and products of a simulated step, one by one",
             .positional = "GRAPH.json",
             .tables = graph_tables,
             .examples = graph_examples},
     .run = command_confirm,
     .check = command_backend_check,
     .result = command_confirm_result,
     .print = table_print_confirm,
     .wants_ranks = true,
     .takes_gpus = true},
};
#define INTERRUPTED 130
#define INTERRUPT_GRACE_S 1.5
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_usage(FILE *out) {
    fprintf(out, "Usage: shardbench COMMAND [options]\n\n");
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-12s %s\n", commands[i].opt.name, commands[i].opt.summary);
    fprintf(out, "\nshardbench COMMAND --help lists the command's options.\nBackends here:");
    for (size_t i = 0; backend_registry[i] != NULL; i++)
        fprintf(out, " %s", backend_registry[i]->name);
    fprintf(out, "\n\nExamples:\n");
    for (size_t i = 0; all_examples[i] != NULL; i++)
        fprintf(out, "  %s\n", all_examples[i]);
}

static const struct command *find_command(const char *name) {
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].opt.name, name) == 0)
            return &commands[i];
    return NULL;
}

// Hidden: the build's man page and completions come from the option tables.
static int generate(const char *what) {
    const struct opt_command *all[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++)
        all[i] = &commands[i].opt;
    const struct opt_program p = {
        "shardbench", "measure what a step of sharded training consists of", all, COMMANDS};
    return opt_generate(&p, what, stdout) ? 0 : 2;
}

static int fail(const struct err *e) {
    fprintf(stderr, "shardbench: %s\n", e->text);
    return err_exit_status(e);
}

// The results file: --out, what the parent process told us, or memory with a path.
static const char *out_path(const struct options *o, struct arena *a) {
    if (launch_is_child())
        return getenv("SHARDBENCH_CHILD");
    if (o->out != NULL)
        return o->out;
    int fd = memfd_create("shardbench", 0);
    return fd < 0 ? NULL : arena_printf(a, "/proc/%ld/fd/%d", (long)getpid(), fd);
}

static bool open_sink(struct run *r, struct err *e) {
    struct measure_host host;
    struct measure_build build;
    if (r->ranks->rank != 0)
        return true;
    inventory_host(r->arena, &host);
    inventory_build(r->arena, &build);
    build.command = r->command_line;
    enum sink_mode mode = launch_is_child()    ? SINK_APPEND
                          : r->options->resume ? SINK_RESUME
                                               : SINK_FRESH;
    r->sink = sink_create(out_path(r->options, r->arena), mode, &host, &build, r->arena, e);
    return r->sink != NULL;
}

// The ranks do the work and append; this process only waits and then reads what they wrote.
static bool delegate(struct run *r, char **argv, int *status, struct err *e) {
    struct launch l = {
        .argv = (const char *const *)argv,
        .out = sink_path(r->sink),
        .ranks = r->options->ranks,
        .timeout_s = r->options->timeout_s,
    };
    if (geteuid() == 0 && !r->options->quiet)
        fprintf(stderr, "shardbench: started as root, so the ranks run as root too "
                        "(mpirun --allow-run-as-root)\n");
    bool ok = launch_ranks(&l, r->signals, r->arena, status, e);
    struct err ignored = {0};
    return sink_reload(r->sink, ok ? e : &ignored) && ok;
}

static bool make_result(struct run *r, const struct command *c, const struct opt_texts *rest,
                        cJSON **out, struct err *e) {
    if (c->result != NULL)
        return c->result(r, rest, out, e);
    *out = measure_to_json(sink_results(r->sink));
    return true;
}

static bool write_results(struct run *r, const struct command *c, const struct opt_texts *rest,
                          struct err *e) {
    const struct options *o = r->options;
    const struct measurement *m = sink_results(r->sink);
    bool json_only = o->json != NULL && strcmp(o->json, "-") == 0;
    cJSON *root = NULL;
    if (!make_result(r, c, rest, &root, e))
        return false;
    if (!o->quiet && !json_only && m->count > 0) {
        if (c->print != NULL)
            c->print(stdout, root);
        else
            table_print(stdout, m);
    }
    bool ok = o->json == NULL || json_write_file(o->json, root, e);
    if (ok && o->report != NULL)
        ok = report_make(o->report, o->json, root, r->arena, e);
    cJSON_Delete(root);
    return ok;
}

static uint64_t wrong_elements(const struct measurement *m) {
    uint64_t wrong = 0;
    for (size_t i = 0; i < m->count; i++)
        wrong += m->results[i].errors;
    return wrong;
}

// Prints what there is, whatever happened; the first problem decides the status.
static int finish(struct run *r, const struct command *c, const struct opt_texts *rest, int status,
                  struct err *e) {
    if (r->ranks->rank != 0)
        return e->kind ? err_exit_status(e) : status;
    if (r->sink == NULL)
        return fail(e);
    bool child = launch_is_child();
    struct err writing = {0};
    if (!child && e->kind != ERR_USAGE && e->kind != ERR_INPUT &&
        !write_results(r, c, rest, &writing))
        err_set(e, writing.kind, "%s", writing.text);
    for (size_t i = 0; i < r->notes.count; i++)
        fprintf(stderr, "shardbench: %s\n", r->notes.items[i]);
    if (e->kind != ERR_NONE)
        return fail(e);
    uint64_t wrong = wrong_elements(sink_results(r->sink));
    if (wrong > 0 && !child)
        fprintf(stderr, "shardbench: %llu elements arrived wrong\n", (unsigned long long)wrong);
    return status == 0 && wrong > 0 ? 1 : status;
}

// Better said once, by this process, than by every rank and its launcher.
static bool inputs_are_right(struct run *r, const struct command *c, const struct opt_texts *rest,
                             struct err *e) {
    cJSON *nothing = NULL;
    if (c->result == NULL)
        return true;
    bool ok = c->result(r, rest, &nothing, e);
    cJSON_Delete(nothing);
    return ok;
}

static int argument_count(char **argv) {
    int n = 0;
    while (argv[n] != NULL)
        n++;
    return n;
}

// This process is not enough: ranks have to be started.
static bool starts_ranks(struct run *r, const struct command *c) {
    const struct options *o = r->options;
    if (!c->wants_ranks || ranks_launched() || o->ranks == 1)
        return false;
    if (o->backend != NULL)
        return strcmp(o->backend, "mpi") == 0 ||
               (o->ranks > 1 &&
                (strcmp(o->backend, "nccl") == 0 || strcmp(o->backend, "gpu") == 0));
    return o->ranks > 1 || !c->takes_gpus || !command_has_gpus(r);
}

// What hangs is in a driver and can't be called back. Results are in --out, a line each.
static void leave_late(void) {
    static const char text[] = "shardbench: interrupted; a device did not answer, so only the "
                               "results in --out are kept\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof(text) - 1);
    (void)ignored;
    _exit(INTERRUPTED);
}

static void run_here_or_by_ranks(struct run *r, const struct command *c,
                                 const struct opt_texts *rest, char **argv, int *status,
                                 struct err *e) {
    if (c->check != NULL && !c->check(r, e))
        return;
    int strangers = ranks_strangers();
    if (c->wants_ranks && r->options->ranks == 0 && strangers > 1) {
        err_set(e, ERR_RESOURCE,
                "srun started %d tasks that know nothing of each other: use srun --mpi=pmix (srun "
                "--mpi=list shows what there is) or mpirun; with --ranks N each measures by itself",
                strangers);
        return;
    }
    bool alone = starts_ranks(r, c);
    if (alone)
        r->rank_count = launch_rank_count(r->options->ranks);
    double missing = open_sink(r, e) ? 0 : 1;
    r->ranks->largest(&missing, 1);
    if (missing > 0)
        err_set(e, ERR_RESOURCE, "rank 0 could not open its output");
    else if (alone && inputs_are_right(r, c, rest, e))
        delegate(r, argv, status, e);
    if (!alone && e->kind == ERR_NONE) {
        signals_guard(r->signals, INTERRUPT_GRACE_S, leave_late);
        c->run(r, rest, e);
        signals_unguard(r->signals);
    }
}

static int run_command(const struct command *c, const struct options *o,
                       const struct opt_texts *rest, char **argv, struct arena *a) {
    struct err e = {0};
    struct signals signals = {.fd = -1};
    struct run r = {.options = o, .arena = a, .signals = &signals};
    r.command_line =
        opt_command_line("shardbench", argument_count(argv), (const char *const *)argv, a);
    int status = 0;
    if (!signals_init(&signals, &e) || !ranks_open(c->threads, &r.ranks, &e))
        return fail(&e);
    r.progress = !o->quiet && r.ranks->rank == 0 && isatty(STDERR_FILENO) ? stderr : NULL;
    r.deadline_s = o->within_s > 0 ? clock_now_s() + o->within_s : 0;
    r.rank_count = (uint64_t)r.ranks->count;
    run_here_or_by_ranks(&r, c, rest, argv, &status, &e);
    status = finish(&r, c, rest, status, &e);
    sink_destroy(r.sink);
    signals_finish(&signals);
    ranks_close(r.ranks);
    return status;
}

// Results that did not reach their reader are none: a full disk shows here at the latest.
static int written(int status) {
    bool lost = fflush(stdout) != 0;
    if (!lost && !ferror(stdout))
        return status;
    fprintf(stderr, "shardbench: standard output: %s\n", lost ? strerror(errno) : "write failed");
    return status == 0 || status == 1 ? 4 : status;
}

static int start(int argc, char **argv) {
    struct err e = {0};
    struct options o = {0};
    struct opt_texts rest = {0};
    bool help = false;
    int status;
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage(argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("shardbench %s (%s)\n", build_version(), build_commit());
        return 0;
    }
    if (strcmp(argv[1], "--generate") == 0 && argc == 3)
        return generate(argv[2]);
    const struct command *c = find_command(argv[1]);
    if (c == NULL) {
        fprintf(stderr, "shardbench: no command \"%s\"\n", argv[1]);
        print_usage(stderr);
        return 2;
    }
    struct arena *a = arena_create();
    if (!opt_parse(&c->opt, argc - 1, argv + 1, &o, a, &rest, &help, &e)) {
        status = fail(&e);
    } else if (help) {
        opt_help(&c->opt, "shardbench", stdout);
        status = 0;
    } else if (!inventory_optimised() && !o.force) {
        fprintf(stderr, "shardbench: this build is not optimised, its numbers would mislead; "
                        "build with -Dbuildtype=release, or use --force\n");
        status = 2;
    } else {
        o.from_graph = strcmp(c->opt.name, "graph") == 0;
        if (strcmp(c->opt.name, "nccl") == 0)
            o.backend = "nccl";
        status = run_command(c, &o, &rest, argv, a);
    }
    arena_destroy(a);
    return status;
}

int main(int argc, char **argv) {
    int status = written(start(argc, argv));
    if (status == INTERRUPTED)
        _exit(status); // the exit handlers of a driver whose device hangs would hang too
    return status;
}
