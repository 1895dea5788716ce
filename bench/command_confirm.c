// SPDX-License-Identifier: Apache-2.0
// A plan's own transfers, run for real: planned beside measured, in bytes and in seconds.
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/units.h"
#include "bench/commands.h"
#include "bench/messages.h"

// Sums over the transfers that ran; collectives only for bytes, everything for seconds.
struct confirm_totals {
    double scale;
    uint64_t members; // of a collective of everybody
    double planned_bytes, measured_bytes, payload_bytes, wire_bytes;
    double planned_s, measured_s;
};

// On the host a product may take this much; a GPU has no limit.
#define HOST_FLOP 2e10

// Between GPUs there is no reason to stay as small as in host memory.
#define GPU_PAYLOAD_BYTES UNITS_GIB

// The ranks to be started, if any, decide as this process does: a GPU for each or none.
static bool on_gpus(struct run *r) {
    const struct options *o = r->options;
    uint64_t ranks = r->rank_count;
    if (o->backend != NULL && strcmp(o->backend, "nccl") != 0)
        return false;
    bool found = command_has_gpus(r), starting = r->ranks->count == 1 && o->ranks > 1;
    if (starting) {
        found = found && r->rank_count >= ranks;
        r->rank_count = ranks;
    }
    return found;
}

typedef bool reader(const struct messages_request *q, struct arena *a, struct messages *out,
                    struct err *e);

static bool read_messages(struct run *r, const struct opt_texts *rest, struct messages *m,
                          struct err *e) {
    const struct options *o = r->options;
    if (rest->count != 1)
        return err_set(e, ERR_USAGE, "%s takes one file", o->from_graph ? "graph" : "confirm");
    bool nccl = on_gpus(r), processes = r->ranks->count > 1 || o->ranks > 1;
    uint64_t gpus = nccl || r->rank_count == 1 ? command_gpus(r) : 0;
    struct messages_request q = {.path = rest->items[0],
                                 .plan_index = o->plan_given ? o->plan_index : UINT64_MAX,
                                 .ranks = r->rank_count,
                                 .limit_bytes =
                                     nccl && !o->scale_given ? GPU_PAYLOAD_BYTES : o->scale_bytes,
                                 .nccl = nccl,
                                 .gpus = gpus > 1 && processes ? 1 : gpus,
                                 .gpu = gpus > 0 ? (uint64_t)r->ranks->local_rank % gpus : 0,
                                 .gemm = command_usable(r, "gemm"),
                                 .limit_flop = HOST_FLOP};
    reader *read = o->from_graph ? messages_read_graph : messages_read;
    return read(&q, r->arena, m, e);
}

static const char *const backends[] = {"nccl", "mpi", "cuda", "host", "nvme", "adam", "gemm"};

bool command_confirm(struct run *r, const struct opt_texts *rest, struct err *e) {
    struct messages m;
    if (!read_messages(r, rest, &m, e))
        return false;
    for (size_t b = 0; b < sizeof(backends) / sizeof(backends[0]); b++) {
        struct point_list list = {0};
        for (size_t i = 0; i < m.count; i++)
            if (m.items[i].backend != NULL && strcmp(m.items[i].backend, backends[b]) == 0)
                run_add_point(r, &list, &m.items[i].point);
        if (list.count == 0)
            continue;
        const struct backend *found = backend_find(backends[b]);
        if (found == NULL)
            return err_set(e, ERR_RESOURCE, "this build has no backend \"%s\"", backends[b]);
        if (!run_points(r, found, &list, e))
            return false;
    }
    return true;
}

static bool is_collective(const struct message *m) {
    return strcmp(m->backend, "mpi") == 0 || strcmp(m->backend, "nccl") == 0;
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

// The newest result of this message's point, or NULL.
static const struct measure_result *find_result(const struct measurement *all,
                                                const struct message *m, uint64_t ranks) {
    const struct bench_point *p = &m->point;
    uint64_t n = p->group_size ? p->group_size : ranks;
    for (size_t i = all->count; m->backend != NULL && i-- > 0;) {
        const struct measure_result *r = &all->results[i];
        bool collective = is_collective(m);
        if (same_text(r->backend, m->backend) && same_text(r->kind, p->kind) &&
            same_text(r->algorithm, p->algorithm) && same_text(r->direction, p->direction) &&
            r->payload_bytes == p->payload_bytes && r->m == p->m && r->n == p->n && r->k == p->k &&
            (!collective || (r->ranks == n && same_text(r->dtype, dtype_name(p->dtype)))))
            return r;
    }
    return NULL;
}

// Of one rank: as handed to the transport, or where that is not known (NCCL) its mean share of what
// the counters saw.
static double sent_in_all(const struct message *m, const struct measure_result *r,
                          uint64_t members) {
    if (!is_collective(m))
        return m->point.m > 0 ? NAN : (double)r->payload_bytes * (double)m->count;
    double on_wire = r->wire_bytes / (double)r->iterations / (double)members;
    return (isfinite(r->sent_bytes) ? r->sent_bytes : on_wire) * (double)m->count;
}

static void emit_measured(cJSON *o, const struct message *m, const struct measure_result *r,
                          struct confirm_totals *t) {
    double sent = sent_in_all(m, r, t->members), seconds = r->median_s * (double)m->count;
    bool product = strcmp(m->kind, "gemm") == 0; // the only one that is not scaled
    double planned_s = m->planned_s * (product ? 1 : t->scale);
    double wire = r->wire_bytes / (double)r->iterations * (double)m->count;
    json_add_double(o, "measured_bytes", sent);
    json_add_double(o, "ratio_bytes", sent / m->run_planned_bytes);
    json_add_double(o, "wire_bytes", wire);
    json_add_double(o, "planned_s", planned_s);
    json_add_double(o, "measured_s", seconds);
    json_add_double(o, "ratio_s", seconds / planned_s);
    json_add_double(o, "busbw_bytes_per_s", r->busbw_bytes_per_s);
    json_add_u64(o, "errors", r->errors);
    t->measured_s += seconds;
    t->planned_s += planned_s;
    if (!is_collective(m))
        return;
    t->payload_bytes += (double)m->point.payload_bytes * (double)m->count *
                        (m->point.collective == COLLECTIVE_ALL_REDUCE ? 2 : 1);
    if (!isfinite(sent))
        return;
    t->planned_bytes += m->run_planned_bytes;
    t->measured_bytes += sent;
    if (isfinite(wire))
        t->wire_bytes += wire;
}

static void emit_message(cJSON *list, const struct message *m, const struct measure_result *r,
                         struct confirm_totals *t) {
    cJSON *o = json_append_object(list);
    json_add_string(o, "phase", m->phase);
    json_add_string(o, "kind", m->kind);
    json_add_string(o, "what", m->what);
    json_add_string(o, "dtype", m->dtype);
    json_add_string(o, "group", m->group);
    json_add_string(o, "link", m->link);
    json_add_u64(o, "group_size", m->group_size);
    json_add_u64(o, "count", m->count);
    json_add_double(o, "planned_bytes", m->sent_bytes);
    json_add_string(o, "backend", m->backend);
    json_add_u64(o, "run_payload_bytes", m->point.payload_bytes);
    json_add_double(o, "run_planned_bytes", m->run_planned_bytes > 0 ? m->run_planned_bytes : NAN);
    json_add_string(o, "status", r != NULL ? "measured" : "waived");
    json_add_string(o, "reason", m->reason != NULL ? m->reason : r != NULL ? r->note : NULL);
    if (r != NULL)
        emit_measured(o, m, r, t);
}

static void emit_totals(cJSON *root, const struct messages *m, const struct confirm_totals *t) {
    cJSON *o = json_add_object(root, "totals");
    double parameters_bytes = m->parameters * m->scale;
    bool counted = t->measured_bytes > 0;
    json_add_double(o, "planned_bytes", t->planned_bytes);
    json_add_double(o, "measured_bytes", counted ? t->measured_bytes : NAN);
    json_add_double(o, "ratio_bytes", t->measured_bytes / t->planned_bytes);
    json_add_double(o, "wire_bytes", t->wire_bytes > 0 ? t->wire_bytes : NAN);
    json_add_double(o, "payload_bytes_per_parameter", t->payload_bytes / parameters_bytes);
    json_add_double(o, "planned_s", t->planned_s);
    json_add_double(o, "measured_s", t->measured_s);
    json_add_double(o, "ratio_s", t->measured_s / t->planned_s);
}

static uint64_t nodes_of(const struct measurement *all) {
    uint64_t nodes = 1;
    for (size_t i = 0; i < all->count; i++)
        if (all->results[i].nodes > nodes)
            nodes = all->results[i].nodes;
    return nodes;
}

bool command_confirm_result(struct run *r, const struct opt_texts *rest, cJSON **out,
                            struct err *e) {
    struct messages m;
    if (!read_messages(r, rest, &m, e))
        return false;
    const struct measurement *all = sink_results(r->sink);
    struct confirm_totals t = {.scale = m.scale, .members = r->rank_count};
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", "shardplan.confirm/1");
    json_add_string(root, "command", r->command_line);
    json_add_string(root, "model", m.model);
    json_add_string(root, "cluster", m.cluster);
    json_add_string(root, "strategy", m.strategy);
    json_add_u64(root, "plan_index", m.plan_index);
    json_add_u64(root, "ranks", r->rank_count);
    json_add_u64(root, "nodes", nodes_of(all));
    json_add_double(root, "scale", m.scale);
    cJSON *list = json_add_array(root, "transfers");
    for (size_t i = 0; i < m.count; i++)
        emit_message(list, &m.items[i], find_result(all, &m.items[i], r->rank_count), &t);
    emit_totals(root, &m, &t);
    *out = root;
    return true;
}
