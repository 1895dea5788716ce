// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl_comms.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "bench/groups.h"

#define FINALIZE_LIMIT_S 10

static const char *last_error(ncclComm_t comm) {
    const char *text = ncclGetLastError(comm);
    return text != NULL ? text : "";
}

static bool fail(const struct nccl_member *m, ncclResult_t r, const char *what, struct err *e) {
    const char *text = last_error(m != NULL ? m->comm : NULL);
    const char *between = text[0] != '\0' ? ": " : "";
    if (m == NULL)
        return err_set(e, ERR_RESOURCE, "NCCL %s: %s%s%s", what, ncclGetErrorString(r), between,
                       text);
    return err_set(e, ERR_RESOURCE, "NCCL %s on GPU %llu: %s%s%s", what,
                   (unsigned long long)m->number, ncclGetErrorString(r), between, text);
}

bool nccl_comms_ok(const struct nccl_comms *c, ncclResult_t r, const char *what, struct err *e) {
    if (r == ncclSuccess || r == ncclInProgress)
        return true;
    // The communicator that failed knows more than the call.
    return nccl_comms_healthy(c, what, e) ? fail(NULL, r, what, e) : false;
}

// *busy: some communicator has not finished its last call. Of several failures the one that is not
// another's consequence is told.
static bool look(const struct nccl_comms *c, const char *what, bool *busy, struct err *e) {
    const struct nccl_member *failed = NULL;
    ncclResult_t worst = ncclSuccess;
    *busy = false;
    for (size_t i = 0; i < c->count; i++) {
        ncclResult_t r, state = ncclSuccess;
        if (c->members[i].comm == NULL)
            continue;
        r = ncclCommGetAsyncError(c->members[i].comm, &state);
        state = r != ncclSuccess ? r : state;
        if (state == ncclInProgress)
            *busy = true;
        else if (state != ncclSuccess && (failed == NULL || worst == ncclRemoteError)) {
            failed = &c->members[i];
            worst = state;
        }
    }
    return failed == NULL || fail(failed, worst, what, e);
}

bool nccl_comms_healthy(const struct nccl_comms *c, const char *what, struct err *e) {
    bool busy;
    return look(c, what, &busy, e);
}

static bool settle_within(struct nccl_comms *c, const char *what, struct patience p,
                          struct err *e) {
    struct patience_wait left = patience_begin(p);
    for (;;) {
        bool busy;
        if (!look(c, what, &busy, e))
            return false;
        if (!busy)
            return true;
        if (!patience_nap(&left, e))
            return err_set(e, ERR_RESOURCE, "NCCL %s: silent for %g s", what, p.limit_s);
    }
}

bool nccl_comms_settle(struct nccl_comms *c, const char *what, struct err *e) {
    return settle_within(c, what, c->patience, e);
}

static void forget(struct nccl_comms *c) {
    for (size_t i = 0; i < c->count; i++)
        c->members[i].comm = NULL;
    c->made = false;
}

void nccl_comms_abort(struct nccl_comms *c) {
    for (size_t i = 0; i < c->count; i++)
        if (c->members[i].comm != NULL)
            ncclCommAbort(c->members[i].comm);
    forget(c);
}

static bool finalize(struct nccl_comms *c, struct err *e) {
    bool ok = nccl_comms_ok(c, ncclGroupStart(), "ncclGroupStart", e);
    for (size_t i = 0; i < c->count; i++)
        if (ok && c->members[i].comm != NULL)
            ok = nccl_comms_ok(c, ncclCommFinalize(c->members[i].comm), "ncclCommFinalize", e);
    ok = nccl_comms_ok(c, ncclGroupEnd(), "ncclGroupEnd", e) && ok;
    struct patience p = {.limit_s = FINALIZE_LIMIT_S, .signals = c->patience.signals};
    return ok && settle_within(c, "ncclCommFinalize", p, e);
}

void nccl_comms_destroy(struct nccl_comms *c) {
    struct err ignored = {0};
    if (!c->made)
        return;
    if (!finalize(c, &ignored)) {
        nccl_comms_abort(c);
        return;
    }
    for (size_t i = 0; i < c->count; i++)
        if (c->members[i].comm != NULL)
            ncclCommDestroy(c->members[i].comm);
    forget(c);
}

// A pair exchanges over everybody's communicator: making one per pair would take longer than the
// exchange.
static struct bench_point grouping(const struct bench_point *p) {
    return (struct bench_point){.group_size = p->paired ? 0 : p->group_size,
                                .group_stride = p->paired ? 0 : p->group_stride,
                                .left_out = p->paired ? 0 : p->left_out};
}

static bool same_groups(const struct bench_point *a, const struct bench_point *b) {
    return a->group_size == b->group_size && a->group_stride == b->group_stride &&
           a->left_out == b->left_out;
}

struct making {
    ncclUniqueId *ids; // of the group whose first member has this number
    uint32_t *list;    // scratch: a group's members
};

// Every process makes the ids of the groups that start with one of its GPUs.
static bool exchange_ids(struct nccl_comms *c, struct making *m, struct err *e) {
    ncclUniqueId *mine = calloc(c->count, sizeof(*mine));
    bool ok = true;
    if (mine == NULL)
        abort();
    for (size_t i = 0; i < c->count; i++) {
        uint64_t number = c->members[i].number, group = groups_of(&c->made_for, c->all, number);
        if (group == GROUPS_NONE || groups_list(&c->made_for, c->all, group, m->list) == 0 ||
            m->list[0] != number)
            continue;
        ok = nccl_comms_ok(c, ncclGetUniqueId(&mine[i]), "ncclGetUniqueId", e) && ok;
    }
    c->ranks->gather(mine, c->count * sizeof(*mine), m->ids); // also after a failure: others wait
    free(mine);
    return ok;
}

static int place_in(const uint32_t *list, uint32_t n, uint64_t number) {
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == number)
            return (int)i;
    return -1;
}

static bool join(struct nccl_comms *c, struct making *m, struct nccl_member *who, struct err *e) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    uint64_t group = groups_of(&c->made_for, c->all, who->number);
    who->rank = -1;
    who->size = 0;
    if (group == GROUPS_NONE)
        return true;
    uint32_t n = groups_list(&c->made_for, c->all, group, m->list);
    config.blocking = 0;
    who->rank = place_in(m->list, n, who->number);
    who->size = (int)n;
    cudaSetDevice(who->device);
    return nccl_comms_ok(
        c, ncclCommInitRankConfig(&who->comm, who->size, m->ids[m->list[0]], who->rank, &config),
        "ncclCommInitRankConfig", e);
}

static bool join_all(struct nccl_comms *c, struct making *m, struct err *e) {
    if (!nccl_comms_ok(c, ncclGroupStart(), "ncclGroupStart", e))
        return false;
    bool ok = true;
    for (size_t i = 0; ok && i < c->count; i++)
        ok = join(c, m, &c->members[i], e);
    ok = nccl_comms_ok(c, ncclGroupEnd(), "ncclCommInitRankConfig", e) && ok;
    return ok && nccl_comms_settle(c, "ncclCommInitRankConfig", e);
}

bool nccl_comms_make(struct nccl_comms *c, const struct bench_point *p, struct err *e) {
    struct bench_point wanted = grouping(p);
    if (c->made && same_groups(&wanted, &c->made_for))
        return true;
    nccl_comms_destroy(c);
    c->made_for = wanted;
    struct making m = {.ids = calloc(c->all, sizeof(*m.ids)),
                       .list = calloc(c->all, sizeof(*m.list))};
    if (m.ids == NULL || m.list == NULL)
        abort();
    bool ok = exchange_ids(c, &m, e) && join_all(c, &m, e);
    free(m.ids);
    free(m.list);
    c->made = ok;
    if (!ok)
        nccl_comms_abort(c);
    return ok;
}
