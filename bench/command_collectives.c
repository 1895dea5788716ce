// SPDX-License-Identifier: Apache-2.0
#include "bench/commands.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "bench/backend_null.h"
#include "bench/tournament.h"
#include "bench/words.h"

// Multiples of this many bytes per rank divide evenly into every type's elements.
#define GRAIN_BYTES 4

static bool not_built(const struct run *r, const char *name, struct err *e) {
    const char *here[32] = {NULL};
    for (size_t n = 0; n < 31 && backend_registry[n] != NULL; n++)
        here[n] = backend_registry[n]->name;
    return err_set(e, ERR_RESOURCE, "this build has no backend \"%s\"; it has %s", name,
                   words_join(here, r->arena));
}

// The backend that was asked for must be one of the command's, and in this build.
static bool check_backend(const struct run *r, const char *const *names, struct err *e) {
    const char *asked = r->options->backend, *known[8] = {NULL};
    size_t n = 0;
    if (asked == NULL)
        return true;
    for (; n < 6 && names[n] != NULL; n++)
        known[n] = names[n];
    known[n] = backend_null.name;
    return words_check("--backend", asked, known, e) &&
           (backend_find(asked) != NULL || not_built(r, asked, e));
}

const struct backend *command_backend(struct run *r, const char *const *names, struct err *e) {
    const char *only[] = {r->options->backend, NULL};
    struct backend_config config = run_config(r);
    struct err why = {0};
    if (!check_backend(r, names, e))
        return NULL;
    if (r->options->backend != NULL)
        names = only;
    for (size_t i = 0; names[i] != NULL; i++) {
        const struct backend *b = backend_find(names[i]);
        void *state = NULL;
        if (b == NULL)
            continue;
        err_clear(&why);
        if (!b->open(&config, &state, &why))
            continue;
        uint64_t peers = b->peers != NULL ? b->peers(state) : r->rank_count;
        bool lonely = b->peers != NULL && peers < 2 && names != only;
        b->close(state);
        if (lonely) {
            err_set(&why, ERR_RESOURCE, "one GPU has nobody to exchange with");
            continue;
        }
        r->rank_count = peers;
        return b;
    }
    if (why.kind != ERR_NONE)
        err_set(e, why.kind, "%s", why.text);
    else
        not_built(r, names[0], e);
    return NULL;
}

bool command_usable(struct run *r, const char *name) {
    const struct backend *b = backend_find(name);
    struct backend_config config = run_config(r);
    struct err ignored = {0};
    void *state = NULL;
    if (b == NULL || !b->open(&config, &state, &ignored))
        return false;
    b->close(state);
    return true;
}

bool command_has_gpus(struct run *r) {
    static const char *const names[] = {"nccl", NULL};
    struct err ignored = {0};
    uint64_t ranks = r->rank_count;
    bool found = command_backend(r, names, &ignored) != NULL;
    r->rank_count = found ? r->rank_count : ranks;
    return found;
}

static uint64_t rounded(uint64_t bytes, uint64_t ranks) {
    uint64_t grain = GRAIN_BYTES * ranks;
    return bytes < grain ? grain : bytes / grain * grain;
}

// Adds one collective and type over all payloads, algorithms and places.
static void add_sweep(struct run *r, struct point_list *list, enum collective c, enum dtype d) {
    const struct options *o = r->options;
    bool ring = c <= COLLECTIVE_ALL_REDUCE;
    bool may_be_in_place = c != COLLECTIVE_SEND_RECV && c != COLLECTIVE_BROADCAST;
    for (double size = (double)o->begin_bytes; size <= (double)o->end_bytes;
         size = o->step_bytes > 0 ? size + (double)o->step_bytes : size * o->factor) {
        for (int a = ALGORITHM_LIBRARY; a <= ALGORITHM_RING; a++) {
            for (int place = PLACE_OUT; place <= PLACE_IN; place++) {
                if ((o->algorithm != ALGORITHM_BOTH && o->algorithm != a) ||
                    (o->place != PLACE_BOTH && o->place != place) ||
                    (a == ALGORITHM_RING && !ring) || (place == PLACE_IN && !may_be_in_place))
                    continue;
                struct bench_point p = {
                    .kind = collective_name(c),
                    .collective = c,
                    .algorithm = a == ALGORITHM_RING ? "ring" : "library",
                    .dtype = d,
                    .in_place = place == PLACE_IN,
                    .payload_bytes = rounded((uint64_t)size, r->rank_count),
                };
                run_add_point(r, list, &p);
            }
        }
    }
}

static const char *const operations[COLLECTIVE_COUNT + 1] = {
    "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "reduce", "send_recv"};
static const char *const types[] = {"bf16", "fp16", "fp32", "int8", NULL};

static bool add_points(struct run *r, struct point_list *list, struct err *e) {
    const struct options *o = r->options;
    if (o->begin_bytes == 0 || o->end_bytes < o->begin_bytes)
        return err_set(e, ERR_USAGE, "--end must not be below --begin, and --begin above 0");
    for (size_t i = 0; i < o->operations.count; i++) {
        for (size_t j = 0; j < o->dtypes.count; j++) {
            enum collective c;
            enum dtype d;
            if (!collective_find(o->operations.items[i], &c))
                return words_refuse("--op", o->operations.items[i], operations, e);
            if (!dtype_find(o->dtypes.items[j], &d) ||
                !words_check("--dtype", dtype_name(d), types, NULL))
                return words_refuse("--dtype", o->dtypes.items[j], types, e);
            add_sweep(r, list, c, d);
        }
    }
    return true;
}

// The NCCL backend has one algorithm choice: its own.
static void only_library(struct point_list *list) {
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].algorithm, "library") == 0)
            list->items[kept++] = list->items[i];
    list->count = kept;
}

// GPUs first; without a usable one, host memory.
static const char *const backends[] = {"nccl", "mpi", NULL};

bool command_backend_check(struct run *r, struct err *e) {
    return check_backend(r, backends, e);
}

bool command_collectives_check(struct run *r, struct err *e) {
    struct point_list list = {0};
    return check_backend(r, backends, e) && add_points(r, &list, e);
}

bool command_collectives(struct run *r, const struct opt_texts *rest, struct err *e) {
    struct point_list list = {0};
    (void)rest;
    const struct backend *b = command_backend(r, backends, e);
    if (b == NULL || !add_points(r, &list, e))
        return false;
    if (strcmp(b->name, "nccl") == 0)
        only_library(&list);
    if (r->options->pairs)
        tournament_add_pairs(r, &list);
    if (r->options->leave_one_out)
        tournament_add_leave_one_out(r, &list);
    if (!run_points(r, b, &list, e))
        return false;
    if (!r->options->pairs && !r->options->leave_one_out)
        return true;
    if (!tournament_look_again(r, b, e))
        return false;
    if (r->ranks->rank == 0)
        tournament_judge(r);
    return true;
}
