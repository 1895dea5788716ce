// SPDX-License-Identifier: Apache-2.0
#include "render/catalog_import.h"

#include "base/units.h"
#include "describe/import.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_topology(enum import_kind k) {
    return k == IMPORT_TOPO_MATRIX || k == IMPORT_TOPO_P2P || k == IMPORT_NCCL_TOPOLOGY;
}

static void join(struct measurement *all, const struct measurement *more, struct arena *a) {
    struct measure_result *both = arena_array(a, all->count + more->count, sizeof *both);
    if (all->count)
        memcpy(both, all->results, all->count * sizeof *both);
    memcpy(both + all->count, more->results, more->count * sizeof *both);
    if (!all->host.gpu)
        all->host = more->host;
    all->results = both;
    all->count += more->count;
}

static void print_result(const struct measure_result *r) {
    char size[32] = "-", time[32] = "-", rate[32] = "-";
    if (r->payload_bytes)
        units_format_bytes(size, sizeof size, (double)r->payload_bytes);
    if (isfinite(r->median_s))
        units_format_seconds(time, sizeof time, r->median_s);
    if (isfinite(r->busbw_bytes_per_s))
        units_format_rate(rate, sizeof rate, r->busbw_bytes_per_s);
    printf("  %-14s %-13s %5" PRIu64 " %-9s %10s %10s %12s%s\n", r->kind,
           r->direction  ? r->direction
           : r->in_place ? "in-place"
                         : "out-of-place",
           r->ranks, r->group ? r->group : "all", size, time, rate,
           r->errors ? "  WRONG RESULTS" : "");
}

static void print_measurement(const struct measurement *m) {
    printf("  %-14s %-13s %5s %-9s %10s %10s %12s\n", "kind", "direction", "ranks", "group",
           "payload", "time", "busbw");
    for (size_t i = 0; i < m->count; i++)
        print_result(&m->results[i]);
}

static void print_topology(const struct topology *t, struct arena *a) {
    printf("%zu GPUs, %zu NICs%s\n", t->gpus, t->count - t->gpus,
           t->complete ? "" : " (incomplete: see the warnings)");
    for (size_t i = 0; i < t->count; i++) {
        printf("  %-8s", t->devices[i].name);
        for (size_t k = 0; k < t->count; k++)
            printf(" %-5s", i == k && t->p2p && i < t->gpus ? "X"
                            : t->p2p && i < t->gpus && k < t->gpus
                                ? t->p2p[i * t->gpus + k]
                                : topology_cell_text(topology_between(t, i, k), a));
        if (t->devices[i].numa >= 0)
            printf("  NUMA %" PRId64, t->devices[i].numa);
        putchar('\n');
    }
}

static bool open_all(struct cli *cli, const struct import_request *q, struct warnings *w,
                     struct import_source *sources, enum import_kind *kinds) {
    size_t count = cli->rest.count - 1;
    for (size_t i = 0; i < count; i++) {
        sources[i] = (struct import_source){.op = q->op, .warnings = w};
        if (!import_open(cli->rest.items[1 + i], cli->arena, &sources[i], &cli->err) ||
            !import_sniff(&sources[i], &kinds[i], &cli->err))
            return false;
        if (is_topology(kinds[i]) && count > 1)
            return err_set(&cli->err, ERR_USAGE, "%s describes a topology: import it alone",
                           sources[i].name);
    }
    return true;
}

static bool finish(struct cli *cli, const struct import_request *q, cJSON *root) {
    struct output_request o = q->output;
    if (q->out)
        o.json = q->out;
    if (!cJSON_HasObjectItem(root, "command"))
        json_add_string(root, "command", cli->command_line);
    return cli_result(cli, &o, root);
}

bool catalog_import(struct cli *cli, const struct import_request *q) {
    struct warnings w = {0};
    if (cli->rest.count < 2)
        return err_set(&cli->err, ERR_USAGE, "catalog import takes at least one FILE");
    enum import_profile_kind profile = catalog_import_sniff(cli->rest.items[1]);
    if (profile != IMPORT_PROFILE_NONE)
        return catalog_import_profile(cli, q, profile);
    size_t count = cli->rest.count - 1;
    struct import_source *sources = arena_array(cli->arena, count, sizeof *sources);
    enum import_kind *kinds = arena_array(cli->arena, count, sizeof *kinds);
    struct measurement all = {0};
    struct topology t = {0};
    bool table = !q->output.json || strcmp(q->output.json, "-") != 0;
    bool ok = open_all(cli, q, &w, sources, kinds);
    for (size_t i = 0; ok && i < count; i++) {
        struct measurement m;
        if (is_topology(kinds[i])) {
            ok = import_topology(&sources[i], kinds[i], &t, &cli->err);
        } else if ((ok = import_measurement(&sources[i], kinds[i], &m, &cli->err))) {
            join(&all, &m, cli->arena);
        }
        if (ok && table)
            printf("%s: %s\n", sources[i].name, import_kind_names[kinds[i]]);
    }
    cli_warn(cli, &w);
    if (!ok)
        return false;
    if (table && t.count)
        print_topology(&t, cli->arena);
    else if (table)
        print_measurement(&all);
    all.build.command = cli->command_line;
    return finish(cli, q, t.count ? topology_to_json(&t, cli->arena) : measure_to_json(&all));
}
