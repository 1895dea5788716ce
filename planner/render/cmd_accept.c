// SPDX-License-Identifier: Apache-2.0
#include "render/cmd.h"

#include "describe/import.h"
#include "judge/verdict.h"
#include "render/emit_accept.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct accept_options {
    struct output_request output;
    const char *cluster, *plan, *junit, *save, *remeasure;
    struct opt_texts baseline, topology;
    bool allow_waived;
};

#define AT(field) offsetof(struct accept_options, field)
#define ROW(n, t, f, a, h)                                                                         \
    {                                                                                              \
        .name = n, .type = t, .offset = AT(f), .argument = a, .help = h, .group = "Acceptance",    \
        .given_offset = SIZE_MAX                                                                   \
    }
static const struct opt own_options[] = {
    ROW("cluster", OPT_STRING, cluster, "CLUSTER",
        "what the cluster should be: catalog name, file, or COUNTxGPU"),
    ROW("plan", OPT_STRING, plan, "PLAN.json", "a plan result: will that job run here as planned?"),
    ROW("baseline", OPT_TEXTS, baseline, "FILE",
        "measurements of the healthy cluster to compare with"),
    ROW("topology", OPT_TEXTS, topology, "FILE",
        "nvidia-smi topo -m, topo -p2p or NCCL's topology XML of a node"),
    ROW("remeasure", OPT_STRING, remeasure, "COMMAND",
        "bench command to run again, up to three times, where a point is just below its limit"),
    ROW("save-baseline", OPT_STRING, save, "FILE",
        "on PASS, write these measurements as the next baseline"),
    ROW("junit", OPT_STRING, junit, "FILE", "also write JUnit XML"),
    ROW("allow-waived", OPT_FLAG, allow_waived, NULL,
        "WAIVED and NODATA checks do not spoil a pass"),
    {.name = NULL},
};
static const struct opt *const tables[] = {own_options, output_options_at_zero, NULL};
static const char *const help[] = {"MEASUREMENT: what bench or catalog import wrote", NULL};
static const char *const examples[] = {
    "shardplan bench nvme --pattern read --max-bytes 64MiB --out healthy.jsonl",
    "shardplan bench nvme --pattern read --max-bytes 64MiB --out today.jsonl",
    "shardplan accept today.jsonl --cluster dgx-h100 --baseline healthy.jsonl --junit accept.xml",
    "shardplan accept --topology tests/fixtures/import/topo_03_8xA100_NV12.txt --cluster dgx-a100",
    NULL};
const struct opt_command accept_command_options = {
    .name = "accept",
    .summary = "pass or fail a cluster against its topology, its baseline and a plan",
    .positional = "MEASUREMENT...",
    .positional_help = help,
    .tables = tables,
    .examples = examples,
    .notes =
        "Exit status 0: PASS; 1: FAIL; 4: a required check is WAIVED or has no data (unless "
        "--allow-waived). No data never passes. Without --remeasure a point just below its limit "
        "fails at once.",
};

static bool read_plan(struct cli *cli, const char *path, struct verdict_request *q) {
    struct json_doc *d = json_read_file(path, &cli->err);
    struct json_node plans, recommendation, plan, host, volume, nvme;
    uint64_t index = 0;
    double sent = 0, nvme_bytes = 0;
    bool ok = false;
    if (!d)
        return false;
    struct json_node root = json_root(d);
    if (!json_find(root, "plans", &plans) || !json_find(root, "recommendation", &recommendation)) {
        json_fail(root, &cli->err, "no plan result (plans[], recommendation)");
        goto fail;
    }
    if (!json_get_u64(recommendation, "plan_index", true, &index, &cli->err))
        goto fail;
    if (index >= json_size(plans)) {
        json_fail(plans, &cli->err, "no plan %llu", (unsigned long long)index);
        goto fail;
    }
    plan = json_at(plans, index);
    if (!json_find(plan, "host", &host) || !json_find(plan, "volume", &volume) ||
        !json_find(plan, "nvme", &nvme) || !json_is_object(host)) {
        json_fail(plan, &cli->err, "the recommended plan cannot run: nothing to accept");
        goto fail;
    }
    ok = json_get_u64(host, "bytes_per_node", true, &q->host_needed_bytes, &cli->err) &&
         json_get_double(volume, "sent_bytes_per_gpu", true, &sent, &cli->err) &&
         json_get_double(nvme, "bytes_per_node", true, &nvme_bytes, &cli->err);
    q->needs_collectives = sent > 0;
    q->needs_nvme = nvme_bytes > 0;
fail:
    json_destroy(d);
    return ok;
}

static bool read_all(struct cli *cli, const struct opt_texts *paths,
                     const struct measurement **out) {
    struct measurement *m = arena_array(cli->arena, paths->count + 1, sizeof *m);
    for (size_t i = 0; i < paths->count; i++)
        if (!measure_read(paths->items[i], cli->arena, &m[i], &cli->err))
            return false;
    *out = m;
    return true;
}

static bool read_topology(struct cli *cli, const struct opt_texts *paths,
                          struct verdict_request *q) {
    struct topology *t = arena_array(cli->arena, paths->count + 1, sizeof *t);
    struct warnings w = {0};
    for (size_t i = 0; i < paths->count; i++) {
        struct import_source s = {.warnings = &w};
        enum import_kind kind;
        if (!import_open(paths->items[i], cli->arena, &s, &cli->err) ||
            !import_sniff(&s, &kind, &cli->err) || !import_topology(&s, kind, &t[i], &cli->err))
            return false;
    }
    cli_warn(cli, &w);
    q->topologies = t;
    q->topology_count = paths->count;
    return true;
}

// One more measurement, by the user's own command with an output file added.
static bool measure_again(struct cli *cli, const char *command, struct verdict_request *q) {
    char path[] = "/tmp/shardplan-again-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0)
        return err_set(&cli->err, ERR_RESOURCE, "%s: %s", path, strerror(errno));
    close(fd);
    fflush(NULL);
    int status = system(arena_printf(cli->arena, "%s --quiet --out %s", command, path));
    struct measurement *all = arena_array(cli->arena, q->measurement_count + 1, sizeof *all);
    memcpy(all, q->measurements, q->measurement_count * sizeof *all);
    bool ok = status == 0 ? measure_read(path, cli->arena, &all[q->measurement_count], &cli->err)
                          : err_set(&cli->err, ERR_RESOURCE, "--remeasure: the command failed");
    unlink(path);
    if (!ok)
        return false;
    q->measurements = all;
    q->measurement_count++;
    return true;
}

static bool judge(struct cli *cli, const struct accept_options *o, struct cluster *c,
                  struct verdict_request *q, struct verdict *v) {
    if ((cli->rest.count == 0 && o->topology.count == 0) || !o->cluster)
        return err_set(&cli->err, ERR_USAGE,
                       "accept takes MEASUREMENT... or --topology FILE, and --cluster CLUSTER");
    if (!cluster_load(o->cluster, cli->arena, c, &cli->err) ||
        !read_all(cli, &cli->rest, &q->measurements) ||
        !read_all(cli, &o->baseline, &q->baselines) || (o->plan && !read_plan(cli, o->plan, q)) ||
        !read_topology(cli, &o->topology, q))
        return false;
    q->cluster = c;
    q->measurement_count = cli->rest.count;
    q->baseline_count = o->baseline.count;
    if (!verdict_judge(q, cli->arena, v, &cli->err))
        return false;
    for (int i = 0; o->remeasure && i < VERDICT_RETRIES && verdict_wants_retry(v); i++)
        if (!measure_again(cli, o->remeasure, q) || !verdict_judge(q, cli->arena, v, &cli->err))
            return false;
    return true;
}

static bool write_junit(struct cli *cli, const char *path, const struct verdict *v) {
    char *text = emit_accept_junit(v);
    bool ok = text && json_write_text_file(path, text, strlen(text), &cli->err);
    free(text);
    return ok;
}

static bool save_baseline(struct cli *cli, const struct accept_options *o,
                          const struct verdict_request *q, const struct verdict *v) {
    size_t count = 0, n = 0;
    if (!o->save || v->overall != VERDICT_PASS || q->measurement_count == 0)
        return true;
    struct measurement all = q->measurements[0];
    for (size_t i = 0; i < q->measurement_count; i++)
        count += q->measurements[i].count;
    all.results = arena_array(cli->arena, count + 1, sizeof *all.results);
    for (size_t i = 0; i < q->measurement_count; i++)
        for (size_t k = 0; k < q->measurements[i].count; k++)
            all.results[n++] = q->measurements[i].results[k];
    all.count = n;
    cJSON *root = measure_to_json(&all);
    bool ok = json_write_file(o->save, root, &cli->err);
    cJSON_Delete(root);
    return ok;
}

static int status_of(const struct verdict *v, bool allow_waived) {
    if (v->overall == VERDICT_FAIL)
        return EXIT_NO;
    if (v->overall == VERDICT_PASS || (allow_waived && v->by_status[VERDICT_PASS] > 0))
        return EXIT_YES;
    return EXIT_MISSING;
}

static int run(struct cli *cli, int argc, char **argv) {
    struct accept_options o = {0};
    struct cluster *c = arena_alloc(cli->arena, sizeof *c);
    struct verdict_request q = {0};
    struct verdict v;
    if (!cli_parse(cli, &accept_command_options, argc, argv, &o))
        return cli->status;
    if (!judge(cli, &o, c, &q, &v))
        return cli_fail(cli);
    if (cli_prints_table(&o.output))
        emit_accept_table(&v, c, stdout);
    if ((o.junit && !write_junit(cli, o.junit, &v)) || !save_baseline(cli, &o, &q, &v) ||
        !cli_result(cli, &o.output, emit_accept_json(&v, cli->command_line, c)))
        return cli_fail(cli);
    return status_of(&v, o.allow_waived);
}

const struct command accept_command = {.options = &accept_command_options, .run = run};
