// SPDX-License-Identifier: Apache-2.0
// plan -> run its own transfers for real -> compare -> does the recommendation still stand?
#include "render/cmd.h"

#include "cost/collective.h"
#include "plan/plan.h"
#include "render/emit_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct confirm_options {
    struct model_request request;
    const char *ranks, *scale_bytes, *folder;
    bool force;
};

#define OWN(field)                                                                                 \
    .type = OPT_STRING, .offset = offsetof(struct confirm_options, field), .group = "Confirm",     \
    .given_offset = SIZE_MAX
static const struct opt own_options[] = {
    {.name = "ranks", OWN(ranks), .argument = "N", .help = "MPI ranks to start on this machine"},
    {.name = "scale-bytes",
     OWN(scale_bytes),
     .argument = "BYTES",
     .help = "largest payload of one call; all are scaled down by one factor"},
    {.name = "folder", OWN(folder), .argument = "DIR", .help = "where storage transfers go"},
    {.name = "force",
     .type = OPT_FLAG,
     .offset = offsetof(struct confirm_options, force),
     .group = "Confirm",
     .given_offset = SIZE_MAX,
     .help = "measure although shardbench was built without optimisation"},
    {.name = NULL},
};
static const struct opt *const tables[] = {recipe_options, own_options, model_output_options, NULL};
static const char *const examples[] = {
    "shardplan confirm 7B dgx-h100 --strategy zero2",
    "shardplan confirm gpt2 2xA100-80GB --strategy zero3 --json confirm.json --report confirmed",
    NULL};
static const struct opt_command confirm_options = {
    .name = "confirm",
    .summary = "plan, run the plan's transfers here, compare, advise again",
    .positional = "MODEL CLUSTER",
    .positional_help = model_cluster_help,
    .tables = tables,
    .examples = examples,
    .notes =
        "Exit status 0: the bytes are as planned and the recommendation was not overturned; 1: "
        "one of them is not so; 4: nothing here can run the transfers.",
};

// What a confirmation carries from plan to verdict.
struct confirmation {
    struct plan_request request;
    struct plan_set plans;
    struct recipe_list recipes;
};

static bool make_plans(struct cli *cli, const struct confirm_options *o, struct confirmation *v) {
    struct model *m = arena_alloc(cli->arena, sizeof *m);
    struct cluster *c = arena_alloc(cli->arena, sizeof *c);
    if (!cli_load(cli, &o->request.recipe, m, c) ||
        !recipe_request_expand(&o->request.recipe, m, cli->arena, &v->recipes, &cli->err))
        return false;
    v->request = (struct plan_request){.model = m,
                                       .cluster = c,
                                       .recipes = v->recipes.items,
                                       .recipe_count = v->recipes.count,
                                       .offload = PLAN_OFFLOAD_IF_NEEDED};
    return plan_all(&v->request, cli->arena, &v->plans, &cli->err);
}

static double transfer_s(const struct cluster *c, const struct transfer *t) {
    double each = t->payload_bytes / (double)t->count;
    if (t->kind == TRANSFER_H2D)
        return t->payload_bytes / c->gpu.pcie_h2d_bytes_per_s.value;
    if (t->kind == TRANSFER_D2H)
        return t->payload_bytes / c->gpu.pcie_d2h_bytes_per_s.value;
    if (t->kind != TRANSFER_COLLECTIVE)
        return NAN;
    bool replica = t->group == GROUP_REPLICA && c->nodes > 1;
    uint64_t local = t->group_size < c->gpus_per_node ? t->group_size : c->gpus_per_node;
    struct group_layout g = {.size = t->group_size,
                             .ranks_per_node = replica ? 1 : local,
                             .concurrent_groups = replica ? c->gpus_per_node : 1};
    struct collective_time out;
    collective_estimate(c, t->collective, &g, each, &out);
    return out.seconds * (double)t->count;
}

// The plan's document with the seconds of each transfer beside its bytes.
static cJSON *plan_document(struct cli *cli, const struct confirmation *v) {
    const struct recipe_origins *origins = v->recipes.count ? &v->recipes.origins[0] : NULL;
    cJSON *root = emit_plan_json(&v->plans, cli->command_line, origins, cli->arena);
    size_t index = v->plans.recommendation.plan_index;
    const struct volume *volume = &v->plans.plans[index].volume;
    cJSON *plan = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "plans"), (int)index);
    cJSON *list = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(plan, "volume"),
                                                   "transfers");
    for (size_t i = 0; i < volume->transfer_count; i++)
        json_add_double(cJSON_GetArrayItem(list, (int)i), "planned_s",
                        transfer_s(v->plans.cluster, &volume->transfers[i]));
    return root;
}

static int run_bench(struct cli *cli, const struct confirm_options *o, const char *plan,
                     const char *result) {
    const char *pairs[][2] = {{"--json", result},
                              {"--ranks", o->ranks},
                              {"--scale-bytes", o->scale_bytes},
                              {"--folder", o->folder}};
    char **argv = arena_array(cli->arena, 16, sizeof *argv);
    size_t n = 0;
    argv[n++] = arena_strdup(cli->arena, "shardbench");
    argv[n++] = arena_strdup(cli->arena, "confirm");
    argv[n++] = arena_strdup(cli->arena, plan);
    for (size_t i = 0; i < 4; i++) {
        if (!pairs[i][1])
            continue;
        argv[n++] = arena_strdup(cli->arena, pairs[i][0]);
        argv[n++] = arena_strdup(cli->arena, pairs[i][1]);
    }
    if (!cli_prints_table(&o->request.output))
        argv[n++] = arena_strdup(cli->arena, "--quiet");
    if (o->force)
        argv[n++] = arena_strdup(cli->arena, "--force");
    fflush(stdout);
    return cli_spawn(cli, "shardbench", argv);
}

struct measured {
    double ratio_bytes, ratio_s;
    uint64_t ranks;
};

static bool read_result(struct cli *cli, const char *path, struct measured *m, cJSON **root) {
    struct json_doc *d = json_read_file(path, &cli->err);
    struct json_node totals;
    m->ratio_bytes = m->ratio_s = NAN;
    bool ok = d && json_get_u64(json_root(d), "ranks", true, &m->ranks, &cli->err);
    if (ok && json_find(json_root(d), "totals", &totals))
        ok = json_get_double(totals, "ratio_bytes", false, &m->ratio_bytes, &cli->err) &&
             json_get_double(totals, "ratio_s", false, &m->ratio_s, &cli->err);
    if (ok)
        *root = cJSON_Duplicate(json_root(d).item, true);
    json_destroy(d);
    return ok;
}

static void slow_down(struct figure *f, double factor) {
    f->value /= factor;
    f->low /= factor;
    f->high /= factor;
    f->provenance = PROVENANCE_FITTED;
    f->source = "shardplan confirm";
}

// The same question on a cluster whose links are as much slower as the transfers were.
static bool plan_again(struct cli *cli, struct confirmation *v, double factor, bool *same) {
    struct cluster *c = arena_alloc(cli->arena, sizeof *c);
    struct plan_request q = v->request;
    struct plan_set again;
    *c = *v->request.cluster;
    q.cluster = c;
    if (c->nodes > 1) {
        slow_down(&c->nic_bytes_per_s, factor);
    } else {
        slow_down(&c->gpu.nvlink_busbw_bytes_per_s, factor);
        slow_down(&c->gpu.nvls_busbw_bytes_per_s, factor);
        slow_down(&c->gpu.nvlink_bytes_per_s, factor);
    }
    if (!plan_all(&q, cli->arena, &again, &cli->err))
        return false;
    const struct recommendation *a = &v->plans.recommendation, *b = &again.recommendation;
    *same = a->choice == b->choice && v->plans.plans[a->plan_index].recipe.strategy ==
                                          again.plans[b->plan_index].recipe.strategy;
    return true;
}

// Adds refit_factor, stands and reason. *answer is the exit status.
static bool judge(struct cli *cli, struct confirmation *v, const struct measured *m, cJSON *root,
                  int *answer) {
    const struct cluster *c = v->plans.cluster;
    bool bytes = !(fabs(m->ratio_bytes - 1) > 0.07), same = false; // a plan may send nothing
    bool here = m->ranks == c->gpus && isfinite(m->ratio_s);
    const char *reason =
        arena_printf(cli->arena,
                     "%llu ranks here for %llu GPUs: the bytes are confirmed or not, the times are "
                     "not this cluster's",
                     (unsigned long long)m->ranks, (unsigned long long)c->gpus);
    if (here && !plan_again(cli, v, m->ratio_s, &same))
        return false;
    if (here)
        reason =
            arena_printf(cli->arena,
                         "with links that take %.3g times as long, as measured on these ranks, "
                         "the recommendation is %s",
                         m->ratio_s, same ? "the same" : "another");
    json_add_double(root, "refit_factor", here ? m->ratio_s : NAN);
    if (here)
        json_add_bool(root, "stands", same);
    else
        json_add_null(root, "stands");
    json_add_string(root, "reason", reason);
    json_add_bool(root, "bytes_as_planned", bytes);
    *answer = bytes && (same || !here) ? EXIT_YES : EXIT_NO;
    return true;
}

static void print_verdict(const struct confirmation *v, const cJSON *root) {
    const struct recommendation *r = &v->plans.recommendation;
    const cJSON *stands = cJSON_GetObjectItemCaseSensitive(root, "stands");
    printf("\nRecommendation (%s): %s\n  %s: %s\n", choice_names[r->choice], r->reason,
           cJSON_IsBool(stands) ? (cJSON_IsTrue(stands) ? "stands" : "falls") : "not judged",
           cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "reason")));
}

static int confirm(struct cli *cli, const struct confirm_options *o, struct confirmation *v,
                   const char *folder) {
    const char *plan = arena_printf(cli->arena, "%s/plan.json", folder);
    const char *result = arena_printf(cli->arena, "%s/confirm.json", folder);
    cJSON *document = plan_document(cli, v), *root = NULL;
    struct measured m;
    bool ok = json_write_file(plan, document, &cli->err);
    cJSON_Delete(document);
    int status = ok ? run_bench(cli, o, plan, result) : 0;
    if (ok && status == EXIT_YES)
        ok = read_result(cli, result, &m, &root) && judge(cli, v, &m, root, &status);
    if (root) // the bench was given files that are gone by now
        cJSON_ReplaceItemInObjectCaseSensitive(root, "command",
                                               cJSON_CreateString(cli->command_line));
    unlink(plan);
    unlink(result);
    if (!ok)
        return cli_fail(cli);
    if (!root)
        return status;
    if (cli_prints_table(&o->request.output))
        print_verdict(v, root);
    return cli_result(cli, &o->request.output, root) ? status : cli_fail(cli);
}

static int run(struct cli *cli, int argc, char **argv) {
    struct confirm_options o = {0};
    struct confirmation v = {0};
    char folder[] = "/tmp/shardplan-confirm-XXXXXX";
    if (!cli_parse(cli, &confirm_options, argc, argv, &o))
        return cli->status;
    if (!cli_expect(cli, &confirm_options, 2) || !make_plans(cli, &o, &v))
        return cli_fail(cli);
    if (v.plans.plan_count == 0 || !mkdtemp(folder)) {
        err_set(&cli->err, ERR_RESOURCE, "no plan, or no folder for it in /tmp");
        return cli_fail(cli);
    }
    int status = confirm(cli, &o, &v, folder);
    rmdir(folder);
    return status;
}

const struct command confirm_command = {.options = &confirm_options, .run = run};
