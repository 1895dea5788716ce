// SPDX-License-Identifier: Apache-2.0
// Everything this machine has, within a minute, with no choices to make.
#include <string.h>

#include "base/units.h"
#include "bench/clock.h"
#include "bench/commands.h"
#include "bench/launch.h"

// A backend or device that is not here is a note, not an error.
static bool or_waive(struct run *r, const char *what, bool ok, struct err *why, struct err *e) {
    if (ok)
        return true;
    if (why->kind != ERR_RESOURCE)
        return err_set(e, why->kind, "%s", why->text);
    run_note(r, "%s waived: %s", what, why->text);
    return true;
}

// Every part may take its weight's share of what is left of this, whatever those before it took.
#define ALL_WITHIN_S 45
#define LAUNCH_S 5 // mpirun's own start and end on a busy machine
#define WEIGHT_COLLECTIVES 4
#define WEIGHT_NVME 3
#define WEIGHT_OTHER 1

struct shares {
    double end_s;  // of clock_now_s
    double weight; // of the parts that are left
};

static double take_share(struct shares *s, double weight) {
    double left_s = s->end_s - clock_now_s(), mine_s = left_s * weight / s->weight;
    s->weight -= weight;
    return mine_s > 1 ? mine_s : 1;
}

typedef bool part(struct run *r, const struct opt_texts *rest, struct err *e);

struct part_of_all {
    const char *what;
    part *run;
    const struct options *options;
    double weight;
};

static bool run_part(struct run *r, const struct part_of_all *p, struct shares *s, struct err *e) {
    const struct options *before = r->options;
    struct opt_texts none = {0};
    struct err why = {0};
    r->options = p->options;
    r->deadline_s = clock_now_s() + take_share(s, p->weight);
    bool ok = p->run(r, &none, &why);
    r->options = before;
    return or_waive(r, p->what, ok, &why, e);
}

// The words of a comma-separated list.
static struct opt_texts words(const struct run *r, const char *list) {
    char *copy = arena_strdup(r->arena, list), *rest = copy;
    struct opt_texts out = {.items = arena_array(r->arena, strlen(list) + 1, sizeof(*out.items))};
    for (char *word; (word = strsep(&rest, ",")) != NULL;)
        out.items[out.count++] = word;
    return out;
}

static struct options short_options(struct run *r) {
    struct options o = *r->options;
    o.budget_s = o.budget_s < 0.3 ? o.budget_s : 0.3;
    o.min_iterations = 5;
    // Checking what was copied takes the host ten times as long as copying.
    o.bytes = (command_usable(r, "cuda") ? 256 : 64) * UNITS_MIB;
    o.operations = words(r, "all_gather,reduce_scatter,all_reduce");
    o.dtypes = words(r, "bf16");
    o.patterns = words(r, "read,write,swap_pipelined");
    o.blocks = words(r, "1MiB");
    o.depths = words(r, "16");
    o.jobs = words(r, "1");
    o.begin_bytes = 64 * UNITS_KIB;
    o.end_bytes = 16 * UNITS_MIB;
    o.factor = 16;
    return o;
}

// MPI ranks are processes of their own, which append to the same file.
static bool run_ranks(struct run *r, double share_s, struct err *e) {
    const char *share = arena_printf(r->arena, "%.0fs", share_s < 1 ? 1 : share_s);
    const char *const argv[] = {
        "shardbench", "collectives", "--backend", "mpi",     "-d",       "bf16",     "-b",
        "64KiB",      "-e",          "16MiB",     "-f",      "16",       "--budget", "0.3s",
        "-n",         "5",           "--quiet",   "--force", "--within", share,      NULL};
    struct launch l = {.argv = argv,
                       .out = sink_path(r->sink),
                       .ranks = r->options->ranks,
                       .timeout_s = share_s + LAUNCH_S};
    int status = 0;
    if (l.out == NULL || backend_find("mpi") == NULL)
        return err_set(e, ERR_RESOURCE, "no MPI in this build");
    bool ok = launch_ranks(&l, r->signals, r->arena, &status, e);
    struct err ignored = {0};
    if (!sink_reload(r->sink, ok ? e : &ignored) || !ok)
        return false;
    if (status > 1)
        return err_set(e, ERR_RESOURCE, "the ranks ended with status %d", status);
    return true;
}

static bool run_collectives(struct run *r, const struct options *o, struct shares *s,
                            struct err *e) {
    struct part_of_all p = {"collectives", command_collectives, o, WEIGHT_COLLECTIVES};
    struct err why = {0};
    if (command_has_gpus(r))
        return run_part(r, &p, s, e);
    double share_s = take_share(s, p.weight);
    return or_waive(r, p.what, run_ranks(r, share_s, &why), &why, e);
}

bool command_all(struct run *r, const struct opt_texts *rest, struct err *e) {
    (void)rest;
    struct options o = short_options(r), copies = o, products = o, adam = o;
    copies.dtypes = products.dtypes = (struct opt_texts){0};
    adam.dtypes = words(r, "fp32,bf16");
    const struct part_of_all parts[] = {{"copies", command_copy, &copies, WEIGHT_OTHER},
                                        {"adam", command_adam, &adam, WEIGHT_OTHER},
                                        {"gemm", command_gemm, &products, WEIGHT_OTHER},
                                        {"nvme", command_nvme, &o, WEIGHT_NVME}};
    double within_s = o.within_s > 0 ? o.within_s : ALL_WITHIN_S;
    struct shares s = {.end_s = clock_now_s() + within_s,
                       .weight = WEIGHT_COLLECTIVES + 3 * WEIGHT_OTHER + WEIGHT_NVME};
    bool ok = run_collectives(r, &o, &s, e);
    for (size_t i = 0; ok && i < sizeof(parts) / sizeof(parts[0]); i++)
        ok = run_part(r, &parts[i], &s, e);
    return ok;
}
