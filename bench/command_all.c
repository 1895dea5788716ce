// SPDX-License-Identifier: Apache-2.0
// Everything this machine has, within a minute, with no choices to make.
#include <string.h>

#include "base/units.h"
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

typedef bool part(struct run *r, const struct opt_texts *rest, struct err *e);

static bool run_part(struct run *r, const char *what, part *run, const struct options *o,
                     struct err *e) {
    const struct options *before = r->options;
    struct opt_texts none = {0};
    struct err why = {0};
    r->options = o;
    bool ok = run(r, &none, &why);
    r->options = before;
    return or_waive(r, what, ok, &why, e);
}

// The words of a comma-separated list.
static struct opt_texts words(const struct run *r, const char *list) {
    char *copy = arena_strdup(r->arena, list), *rest = copy;
    struct opt_texts out = {.items = arena_array(r->arena, strlen(list) + 1, sizeof(*out.items))};
    for (char *word; (word = strsep(&rest, ",")) != NULL;)
        out.items[out.count++] = word;
    return out;
}

static struct options short_options(const struct run *r) {
    struct options o = *r->options;
    o.budget_s = o.budget_s < 0.3 ? o.budget_s : 0.3;
    o.min_iterations = 5;
    o.bytes = 256 * UNITS_MIB;
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
static bool run_ranks(struct run *r, struct err *e) {
    static const char *const argv[] = {
        "shardbench", "collectives", "--backend", "mpi",     "-d",        "bf16",     "-b",
        "64KiB",      "-e",          "16MiB",     "-f",      "16",        "--budget", "0.3s",
        "-n",         "5",           "--quiet",   "--force", "--timeout", "20s",      NULL};
    struct launch l = {
        .argv = argv, .out = sink_path(r->sink), .ranks = r->options->ranks, .timeout_s = 25};
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

static bool run_collectives(struct run *r, const struct options *o, struct err *e) {
    static const char *const gpus[] = {"nccl", NULL};
    struct err why = {0};
    if (command_backend(r, gpus, &why) != NULL)
        return run_part(r, "collectives", command_collectives, o, e);
    err_clear(&why);
    return or_waive(r, "collectives", run_ranks(r, &why), &why, e);
}

bool command_all(struct run *r, const struct opt_texts *rest, struct err *e) {
    (void)rest;
    struct options o = short_options(r), copies = o, products = o, adam = o;
    copies.dtypes = products.dtypes = (struct opt_texts){0};
    adam.dtypes = words(r, "fp32,bf16");
    return run_collectives(r, &o, e) && run_part(r, "copies", command_copy, &copies, e) &&
           run_part(r, "adam", command_adam, &adam, e) &&
           run_part(r, "gemm", command_gemm, &products, e) &&
           run_part(r, "nvme", command_nvme, &o, e);
}
