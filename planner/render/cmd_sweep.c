// SPDX-License-Identifier: Apache-2.0
#include "render/cmd.h"

#include "base/units.h"
#include "plan/plan_inputs.h"
#include "plan/sweep.h"
#include "render/emit_sweep.h"
#include "render/sweep_ranges.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct sweep_options {
    struct model_request request;
    struct opt_texts ranges;
    const char *space, *csv;
    uint64_t top, threads;
    int objective;
    bool pareto, exhaustive;
};

static const char *const objectives[] = {"tokens", "cost", "headroom", NULL};
#define AT(field) offsetof(struct sweep_options, field)
static const struct opt own_options[] = {
    {.name = "range",
     .letter = 'r',
     .type = OPT_TEXTS,
     .offset = AT(ranges),
     .argument = "NAME=V,V,...",
     .given_offset = SIZE_MAX,
     .help =
         "sweep NAME over these values: nodes, shard-group, tp, cp, pp, ep, offload, precision, "
         "micro-batch, recompute, loss, reduce-bucket, prefetch-bucket, max-live; --tp 1,2,4 "
         "(cp, pp, ep) is short for --range tp=1,2,4",
     .group = "Sweep"},
    {.name = "space",
     .type = OPT_STRING,
     .offset = AT(space),
     .argument = "FILE",
     .given_offset = SIZE_MAX,
     .help = "ranges from a JSON file (the `space` object of a sweep result)",
     .group = "Sweep"},
    {.name = "top",
     .type = OPT_COUNT,
     .offset = AT(top),
     .argument = "K",
     .min = 1,
     .max = 10000,
     .fallback = "10",
     .given_offset = SIZE_MAX,
     .help = "how many plans to keep",
     .group = "Sweep"},
    {.name = "objective",
     .type = OPT_CHOICE,
     .offset = AT(objective),
     .choices = objectives,
     .fallback = "tokens",
     .given_offset = SIZE_MAX,
     .argument = "AIM",
     .help = "what is best: tokens per second, cost per token, or memory headroom",
     .group = "Sweep"},
    {.name = "pareto",
     .type = OPT_FLAG,
     .offset = AT(pareto),
     .given_offset = SIZE_MAX,
     .help = "also the front of step time, peak memory, cost and GPUs",
     .group = "Sweep"},
    {.name = "csv",
     .type = OPT_STRING,
     .offset = AT(csv),
     .argument = "FILE",
     .help = "write the plans as CSV",
     .group = "Sweep",
     .given_offset = SIZE_MAX},
    {.name = "threads",
     .type = OPT_COUNT,
     .offset = AT(threads),
     .argument = "N",
     .max = 1024,
     .fallback = "0",
     .given_offset = SIZE_MAX,
     .help = "worker threads; 0 uses every core",
     .group = "Sweep"},
    {.name = "exhaustive",
     .type = OPT_FLAG,
     .offset = AT(exhaustive),
     .given_offset = SIZE_MAX,
     .help = "simulate every point that may fit, to check the pruning",
     .group = "Sweep"},
    {.name = NULL},
};
static const struct opt *const tables[] = {recipe_options, own_options, model_output_options, NULL};
static const char *const examples[] = {
    "shardplan sweep llama-2-7b dgx-h100",
    "shardplan sweep llama-3-8b dgx-h100 --strategy zero3,fsdp2 --range micro-batch=1,2,4 "
    "--range precision=bf16-mixed --global-batch 512",
    "shardplan sweep llama-3.2-1b dgx-a100 --strategy zero2,fsdp2 --range micro-batch=2,4 "
    "--range loss=torch --range precision=bf16-mixed --pareto --csv sweep.csv",
    "shardplan sweep llama-2-13b dgx-h100 --strategy fsdp2 --range nodes=1,2,4 --range "
    "micro-batch=1,2 "
    "--range loss=torch --objective cost --tokens 1e9",
    "shardplan sweep llama-3.1-70b dgx-h100 --nodes 4 --strategy zero1,fsdp2 --tp 1,2,4,8 --pp 1,2 "
    "--range micro-batch=1,2 --range loss=torch --range precision=bf16-mixed",
    NULL,
};
const struct opt_command sweep_command_options = {
    .name = "sweep",
    .summary = "search strategies, batch, recompute, offload and buckets for the best plans",
    .positional = "MODEL CLUSTER",
    .positional_help = model_cluster_help,
    .tables = tables,
    .examples = examples,
    .notes =
        "Every point trains the same global batch (--global-batch; default: the multiple of the "
        "GPUs "
        "nearest to 2^20 tokens), so a giant batch can't win. Exit status 1 when nothing fits.",
};

// Ctrl-C is held back and looked for between blocks, so that what is done is kept.
static void hold_interrupts(void) {
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGINT);
    sigprocmask(SIG_BLOCK, &s, NULL);
}

static bool interrupted(void) {
    sigset_t s;
    return sigpending(&s) == 0 && sigismember(&s, SIGINT) == 1;
}

struct progress {
    struct timespec start;
};

static double elapsed_s(const struct timespec *start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) +
           (double)(now.tv_nsec - start->tv_nsec) * UNITS_NANO;
}

static void show_progress(void *context, uint64_t done, uint64_t total) {
    const struct progress *p = context;
    double s = elapsed_s(&p->start);
    double eta = done ? s * (double)(total - done) / (double)done : 0;
    fprintf(stderr, "\r%3.0f %% of %" PRIu64 " candidates, at most %.0f s left ",
            100.0 * (double)done / (double)(total ? total : 1), total, eta);
    if (done == total)
        fprintf(stderr, "\r%60s\r", "");
}

// The strategies of a sweep that names none: all that behave differently.
static const char *const default_strategies[] = {
    "ddp",  "zero1",         "zero2",           "zero3", "fsdp1",  "fsdp2",
    "hsdp", "fsdp1-grad-op", "fsdp2-noreshard", "mics",  "zero++",
};

static void fill_strategies(struct recipe_request *q, struct arena *a) {
    size_t count = sizeof default_strategies / sizeof default_strategies[0];
    if (q->strategies.count || q->config)
        return;
    q->strategies.items = arena_array(a, count, sizeof *q->strategies.items);
    for (size_t i = 0; i < count; i++)
        q->strategies.items[i] = default_strategies[i];
    q->strategies.count = count;
}

static uint64_t default_batch(const struct cluster *c, uint64_t seq) {
    uint64_t sequences = UNITS_MIB / (seq ? seq : 1);
    uint64_t per_gpu = 1;
    while (per_gpu * 2 * c->gpus <= sequences)
        per_gpu *= 2;
    return per_gpu * c->gpus;
}

static bool prepare(struct cli *cli, struct sweep_options *o, struct sweep_request *q,
                    struct recipe_list *list) {
    struct model *m = arena_alloc(cli->arena, sizeof *m);
    struct cluster *c = arena_alloc(cli->arena, sizeof *c);
    struct recipe_request request = o->request.recipe;
    fill_strategies(&request, cli->arena);
    uint64_t global_batch = request.global_batch;
    request.global_batch = 0;
    request.given.global_batch = false;
    if (!cli_load(cli, &request, m, c) ||
        !recipe_request_expand(&request, m, cli->arena, list, &cli->err))
        return false;
    struct recipe probe = list->items[0];
    if (!recipe_resolve(&probe, m, c, &cli->err))
        return false;
    for (size_t i = 0; i < list->count; i++)
        list->items[i].seq = probe.seq;
    q->basis = (struct sweep_basis){.model = m,
                                    .cluster = c,
                                    .recipes = list->items,
                                    .recipe_count = list->count,
                                    .global_batch =
                                        global_batch ? global_batch : default_batch(c, probe.seq)};
    return sweep_ranges_parse(&o->ranges, &q->space, &cli->err) &&
           (!o->space || sweep_ranges_read(o->space, &q->space, &cli->err));
}

// "--tp 1,2,4" as "--range tp=1,2,4": the option itself takes one value.
static char **ranges_spelled_out(struct arena *a, int *argc, char **argv) {
    static const char *const splits[] = {"tp", "cp", "pp", "ep"};
    char **out = arena_array(a, 2 * (size_t)*argc + 1, sizeof *out);
    int n = 0;
    for (int i = 0; i < *argc; i++) {
        const char *word = argv[i], *split = NULL, *values = NULL;
        for (size_t k = 0; k < sizeof splits / sizeof *splits; k++)
            if (strncmp(word, "--", 2) == 0 && strncmp(word + 2, splits[k], 2) == 0 &&
                (word[4] == '\0' || word[4] == '='))
                split = splits[k];
        if (split)
            values = word[4] == '=' ? word + 5 : i + 1 < *argc ? argv[i + 1] : NULL;
        if (!values || !strchr(values, ',')) {
            out[n++] = argv[i];
            continue;
        }
        i += word[4] != '=';
        out[n++] = arena_strdup(a, "--range");
        out[n++] = arena_printf(a, "%s=%s", split, values);
    }
    *argc = n;
    return out;
}

// The best plan as a set of its own: the sweep's answer rests on what this plan rests on.
static bool describe_best(struct cli *cli, const struct sweep_request *q,
                          const struct sweep_result *r, struct plan_set *s) {
    const struct sweep_plan *best = &r->plans[0];
    struct cluster *c = arena_alloc(cli->arena, sizeof *c);
    *c = *q->basis.cluster;
    if (c->nodes != best->nodes && !cluster_resize(c, best->nodes, best->gpus, &cli->err))
        return false;
    *s = (struct plan_set){.model = q->basis.model, .cluster = c, .plan_count = 1};
    s->plans = arena_alloc(cli->arena, sizeof *s->plans);
    *s->plans = best->plan;
    struct plan_workspace *w = plan_workspace_create();
    bool ok = plan_inputs(s, w, cli->arena, &cli->err);
    plan_workspace_destroy(w);
    return ok;
}

// Sure fits; where there is none, what may fit.
static bool search(struct cli *cli, struct sweep_request *q, struct sweep_result *r) {
    q->sure = true;
    if (!sweep_run(q, cli->arena, r, &cli->err))
        return false;
    if (r->plan_count > 0 || r->interrupted)
        return true;
    q->sure = false;
    return sweep_run(q, cli->arena, r, &cli->err);
}

static int run(struct cli *cli, int argc, char **argv) {
    struct sweep_options o = {0};
    argv = ranges_spelled_out(cli->arena, &argc, argv);
    struct recipe_list list = {0};
    struct sweep_request q = {.stop = interrupted};
    struct sweep_result r;
    struct plan_set best;
    struct progress progress;
    if (!cli_parse(cli, &sweep_command_options, argc, argv, &o))
        return cli->status;
    if (!cli_expect(cli, &sweep_command_options, 2) || !prepare(cli, &o, &q, &list))
        return cli_fail(cli);
    q.objective = (enum sweep_objective)o.objective;
    q.top = o.top;
    q.pareto = o.pareto;
    q.exhaustive = o.exhaustive;
    q.threads = (int)o.threads;
    if (!o.request.output.quiet && isatty(STDERR_FILENO)) {
        q.progress = show_progress;
        q.progress_context = &progress;
    }
    hold_interrupts();
    clock_gettime(CLOCK_MONOTONIC, &progress.start);
    struct sweep_plan *strategies;
    size_t strategy_count;
    if (!search(cli, &q, &r) ||
        !sweep_each_strategy(&q, &r, cli->arena, &strategies, &strategy_count, &cli->err))
        return cli_fail(cli);
    struct emit_sweep_context x = {.request = &q,
                                   .command = cli->command_line,
                                   .elapsed_s = elapsed_s(&progress.start),
                                   .tokens = o.request.recipe.tokens,
                                   .strategies = strategies,
                                   .strategy_count = strategy_count,
                                   .origins = list.count ? &list.origins[0] : NULL};
    if (r.plan_count && (!describe_best(cli, &q, &r, &best) ||
                         !cli_measured(cli, &o.request.output, &best.measured)))
        return cli_fail(cli);
    x.best = r.plan_count ? &best : NULL;
    if (cli_prints_table(&o.request.output))
        emit_sweep_table(&r, &x, cli->arena, stdout);
    if (o.csv) {
        char *text = emit_sweep_csv(&r, cli->arena);
        bool ok = text && json_write_text_file(o.csv, text, strlen(text), &cli->err);
        free(text);
        if (!ok)
            return cli_fail(cli);
    }
    if (!cli_result(cli, &o.request.output, emit_sweep_json(&r, &x, cli->arena)))
        return cli_fail(cli);
    if (r.interrupted)
        return EXIT_INTERRUPTED;
    return r.plan_count ? EXIT_YES : EXIT_NO;
}

const struct command sweep_command = {.options = &sweep_command_options, .run = run};
