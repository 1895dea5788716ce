// SPDX-License-Identifier: Apache-2.0
#include "render/cmd.h"

#include "judge/compare.h"
#include "judge/jitter.h"
#include "plan/step.h"
#include "render/emit_simulate.h"

#include <stdio.h>

struct simulate_options {
    struct model_request request;
    const char *trace, *graph, *compare_trace, *compare_memory;
    double jitter, straggler_rate, straggler_slowdown;
    uint64_t seed, draws;
    bool jitter_given, stragglers_given;
};

#define AT(field) offsetof(struct simulate_options, field)
static const struct opt own_options[] = {
    {.name = "trace",
     .type = OPT_STRING,
     .offset = AT(trace),
     .argument = "FILE",
     .help = "write the step as a Chrome/Perfetto trace",
     .group = "Simulate",
     .given_offset = SIZE_MAX},
    {.name = "graph",
     .type = OPT_STRING,
     .offset = AT(graph),
     .argument = "FILE",
     .help = "write the step's tasks as shardplan.graph/1, for bench and rehearse",
     .group = "Simulate",
     .given_offset = SIZE_MAX},
    {.name = "compare-trace",
     .type = OPT_STRING,
     .offset = AT(compare_trace),
     .argument = "FILE",
     .help = "a PyTorch profiler trace of this step (Kineto JSON): predicted beside measured",
     .group = "Simulate",
     .given_offset = SIZE_MAX},
    {.name = "compare-memory",
     .type = OPT_STRING,
     .offset = AT(compare_memory),
     .argument = "FILE",
     .help = "a PyTorch memory snapshot of this step (JSON): peak by class beside the predicted",
     .group = "Simulate",
     .given_offset = SIZE_MAX},
    {.name = "jitter",
     .type = OPT_DOUBLE,
     .offset = AT(jitter),
     .argument = "SD",
     .min = 0,
     .max = 0.99,
     .fallback = "0.02",
     .help = "also draw steps in which every rank's kernels vary by this relative deviation",
     .group = "Simulate",
     .given_offset = AT(jitter_given)},
    {.name = "straggler-rate",
     .type = OPT_DOUBLE,
     .offset = AT(straggler_rate),
     .argument = "P",
     .min = 0,
     .max = 0.99,
     .fallback = "0",
     .help = "chance that a rank is slow for a whole step",
     .group = "Simulate",
     .given_offset = AT(stragglers_given)},
    {.name = "straggler-slowdown",
     .type = OPT_DOUBLE,
     .offset = AT(straggler_slowdown),
     .argument = "X",
     .min = 1,
     .max = 1000,
     .fallback = "1.2",
     .help = "how many times as long a slow rank's kernels take",
     .group = "Simulate",
     .given_offset = SIZE_MAX},
    {.name = "draws",
     .type = OPT_COUNT,
     .offset = AT(draws),
     .argument = "N",
     .min = 1,
     .max = 1000000,
     .fallback = "200",
     .help = "steps drawn for --jitter and --straggler-rate",
     .group = "Simulate",
     .given_offset = SIZE_MAX},
    {.name = "seed",
     .type = OPT_COUNT,
     .offset = AT(seed),
     .argument = "N",
     .fallback = "1",
     .help = "seed of the draws; the same seed gives the same numbers",
     .group = "Simulate",
     .given_offset = SIZE_MAX},
    {.name = NULL},
};
static const struct opt *const tables[] = {recipe_options, own_options, model_output_options, NULL};
static const char *const examples[] = {
    "shardplan simulate llama-3-8b dgx-h100 --strategy fsdp2",
    "shardplan simulate llama-2-7b dgx-a100 --strategy zero3 --offload-optimizer cpu",
    "shardplan simulate llama-3-8b dgx-h100 --nodes 4 --jitter 0.03 --json -",
    NULL,
};

static const struct opt_command simulate_command_options = {
    .name = "simulate",
    .summary = "run one optimizer step: where its time goes, task by task",
    .positional = "MODEL CLUSTER",
    .positional_help = model_cluster_help,
    .tables = tables,
    .examples = examples,
    .notes =
        "One strategy is simulated: fsdp2 unless --strategy or --config names another. All ranks "
        "are alike, so one rank's step stands for all of them. --compare-trace takes what "
        "torch.profiler's export_chrome_trace wrote with CPU and CUDA activities and prof.step() "
        "after every step; --compare-memory what torch.cuda.memory._snapshot() returned, as JSON.",
};

// The one recipe asked for, resolved.
static bool one_recipe(struct cli *cli, struct simulate_options *o, struct emit_simulation *s,
                       struct recipe_list *list) {
    struct recipe_request *q = &o->request.recipe;
    struct model *m = arena_alloc(cli->arena, sizeof *m);
    struct cluster *c = arena_alloc(cli->arena, sizeof *c);
    if (q->strategies.count == 0 && q->config == NULL) {
        q->strategies.items = arena_array(cli->arena, 1, sizeof *q->strategies.items);
        q->strategies.items[0] = strategy_names[STRATEGY_FSDP2];
        q->strategies.count = 1;
    }
    if (!cli_load(cli, q, m, c) || !recipe_request_expand(q, m, cli->arena, list, &cli->err))
        return false;
    if (list->count != 1)
        return err_set(&cli->err, ERR_USAGE, "simulate runs one strategy; %zu were given: name one",
                       list->count);
    s->model = m;
    s->cluster = c;
    s->recipe = &list->items[0];
    return recipe_resolve(&list->items[0], m, c, &cli->err);
}

static bool draw_jitter(struct cli *cli, const struct simulate_options *o,
                        const struct step_request *q, struct emit_simulation *s) {
    if (!o->jitter_given && !o->stragglers_given)
        return true;
    struct jitter_request *j = arena_alloc(cli->arena, sizeof *j);
    struct jitter_result *r = arena_alloc(cli->arena, sizeof *r);
    *j = (struct jitter_request){.step = *q,
                                 .draws = o->draws,
                                 .seed = o->seed,
                                 .relative_sd = o->jitter,
                                 .straggler_rate = o->straggler_rate,
                                 .straggler_slowdown = o->straggler_slowdown};
    j->step.want_timeline = false;
    s->jitter = j;
    s->jittered = r;
    return jitter_estimate(j, cli->arena, r, &cli->err);
}

static bool write_files(struct cli *cli, const struct simulate_options *o,
                        const struct step_request *q, const struct emit_simulation *s) {
    if (o->trace) {
        cJSON *trace = emit_trace_json(s);
        bool ok = json_write_file(o->trace, trace, &cli->err);
        cJSON_Delete(trace);
        if (!ok)
            return false;
    }
    struct graph g;
    if (o->graph)
        return step_graph(q, cli->arena, &g, &cli->err) && graph_write(o->graph, &g, &cli->err);
    return true;
}

static bool compare_trace(struct cli *cli, const struct simulate_options *o,
                          const struct step_request *q, struct warnings *w,
                          struct emit_simulation *s) {
    if (o->compare_trace == NULL)
        return true;
    struct profile *p = arena_alloc(cli->arena, sizeof *p);
    struct comparison *c = arena_alloc(cli->arena, sizeof *c);
    if (!profile_read(o->compare_trace, cli->arena, w, p, &cli->err) ||
        !compare_profile(q, s->time, s->timeline, p, cli->arena, c, &cli->err))
        return false;
    s->profile = p;
    s->profile_rows = c;
    return true;
}

static bool compare_memory(struct cli *cli, const struct simulate_options *o,
                           const struct step_request *q, struct warnings *w,
                           struct emit_simulation *s) {
    if (o->compare_memory == NULL)
        return true;
    struct snapshot *p = arena_alloc(cli->arena, sizeof *p);
    struct comparison *c = arena_alloc(cli->arena, sizeof *c);
    struct memory m;
    if (!snapshot_read(o->compare_memory, cli->arena, w, p, &cli->err) ||
        !memory_estimate(q->model, q->cluster, q->recipe, &m, &cli->err))
        return false;
    compare_snapshot(&m, p, cli->arena, c);
    s->snapshot = p;
    s->snapshot_rows = c;
    return true;
}

static int run(struct cli *cli, int argc, char **argv) {
    struct simulate_options o = {0};
    struct recipe_list list = {0};
    struct step_time time;
    struct step_timeline timeline;
    struct memory memory;
    struct emit_simulation s = {
        .time = &time, .timeline = &timeline, .memory = &memory, .command = cli->command_line};
    if (!cli_parse(cli, &simulate_command_options, argc, argv, &o))
        return cli->status;
    if (!cli_expect(cli, &simulate_command_options, 2) || !one_recipe(cli, &o, &s, &list))
        return cli_fail(cli);
    struct step_request q = {
        .model = s.model, .cluster = s.cluster, .recipe = s.recipe, .want_timeline = true};
    if (!step_simulate(&q, cli->arena, &time, &timeline, &cli->err) ||
        !memory_estimate(s.model, s.cluster, s.recipe, &memory, &cli->err) ||
        !draw_jitter(cli, &o, &q, &s) || !compare_trace(cli, &o, &q, &list.warnings, &s) ||
        !compare_memory(cli, &o, &q, &list.warnings, &s) ||
        !cli_measured(cli, &o.request.output, &s.measured) || !write_files(cli, &o, &q, &s))
        return cli_fail(cli);
    if (!o.request.output.quiet)
        cli_warn(cli, &list.warnings);
    if (cli_prints_table(&o.request.output))
        emit_simulate_table(&s, cli->arena, stdout);
    if (!cli_result(cli, &o.request.output, emit_simulate_json(&s, cli->arena)))
        return cli_fail(cli);
    return EXIT_YES;
}

const struct command simulate_command = {.options = &simulate_command_options, .run = run};
