// SPDX-License-Identifier: Apache-2.0
#include "judge/validate.h"

#include "base/json.h"
#include "base/kinds.h"
#include "base/units.h"
#include "cost/collective.h"
#include "judge/validate_stats.h"

#include <math.h>
#include <string.h>

static const char *text_of(struct json_node o, const char *key, struct arena *a) {
    struct json_node n;
    return json_find(o, key, &n) && json_is_string(n) ? arena_strdup(a, n.item->valuestring) : NULL;
}

static double number_of(struct json_node o, const char *key) {
    struct json_node n;
    double v = NAN;
    return json_find(o, key, &n) && json_is_number(n) && json_as_double(n, &v, NULL) ? v : NAN;
}

// A point says nothing about the hardware when its own reporter called it slow or replaced it
// later.
static const char *excluded(const char *note) {
    static const char *const words[] = {"reported as slow", "early sample"};
    for (size_t i = 0; note != NULL && i < sizeof words / sizeof words[0]; i++) {
        if (strstr(note, words[i]) != NULL) {
            return "slow by its own report";
        }
    }
    return NULL;
}

// The name as it stands, then without its remark in brackets, then "8xGPU" at its start.
static bool load_cluster(const char *name, struct arena *a, struct cluster *c) {
    struct err e = {0};
    if (cluster_load(name, a, c, &e)) {
        return true;
    }
    const char *open = strstr(name, " (");
    e = (struct err){0};
    if (open != NULL && cluster_load(arena_printf(a, "%.*s", (int)(open - name), name), a, c, &e)) {
        return true;
    }
    const char *space = strchr(name, ' ');
    e = (struct err){0};
    return space != NULL &&
           cluster_load(arena_printf(a, "%.*s", (int)(space - name), name), a, c, &e);
}

static const char *size_name(double bytes) {
    return bytes >= 16.0 * (double)UNITS_MIB ? "16MiB+"
           : bytes >= (double)UNITS_MIB      ? "1-16MiB"
                                             : "below-1MiB";
}

struct measured {
    const char *what, *cluster, *note;
    double nodes, gpus, bytes, busbw;
};

// Tables count the trays of a rack whose GPUs share one NVLink domain; to NCCL the domain is the
// node.
static uint64_t ranks_per_node(const struct cluster *c, const struct measured *m) {
    const uint64_t n = (uint64_t)m->gpus, per_tray = n / (uint64_t)m->nodes;
    const uint64_t largest_server = 16;
    if (c->gpus_per_node > largest_server) {
        return n < c->gpus_per_node ? n : c->gpus_per_node;
    }
    return per_tray > 0 ? per_tray : 1;
}

static void compare(const struct measured *m, struct validate_point *p, struct arena *a) {
    enum collective kind;
    struct cluster c;
    struct err e = {0};
    const char *slow = excluded(m->note);
    if (m->what == NULL || !collective_find(m->what, &kind)) {
        p->reason = "not a collective the planner knows";
    } else if (!(m->bytes > 0)) {
        p->reason = "message size not stated";
    } else if (!(m->gpus >= 2) || !(m->nodes >= 1)) {
        p->reason = "number of GPUs not stated";
    } else if (!load_cluster(m->cluster, a, &c)) {
        p->reason = "cluster not in the catalog";
    } else if (slow != NULL) {
        p->reason = slow;
    } else if (!cluster_resize(&c, (uint64_t)m->nodes, 0, &e)) {
        p->reason = arena_strdup(a, e.text);
    } else {
        const uint64_t n = (uint64_t)m->gpus;
        const struct group_layout g = {n, ranks_per_node(&c, m), 1};
        struct collective_time t;
        collective_estimate(&c, kind, &g, m->bytes, &t);
        const double factor = m->bytes * collective_bus_factor(kind, n);
        p->predicted = factor / t.seconds;
        p->low = factor / t.high_s;
        p->high = factor / t.low_s;
        p->ape = fabs(p->predicted - p->measured) / p->measured;
        p->scored = isfinite(p->ape);
        p->reason = p->scored ? NULL : "no bandwidth known for this fabric";
        const bool reduces = kind == COLLECTIVE_ALL_REDUCE;
        p->group = arena_printf(a, "%s %s", reduces ? "all_reduce" : "all_gather+reduce_scatter",
                                size_name(m->bytes));
    }
}

static struct validate_point point_of(struct json_node o, struct arena *a) {
    const struct measured m = {
        .what = text_of(o, "what", a),
        .cluster = text_of(o, "cluster", a),
        .note = text_of(o, "note", a),
        .nodes = number_of(o, "nodes"),
        .gpus = number_of(o, "gpus"),
        .bytes = number_of(o, "message_bytes"),
        .busbw = number_of(o, "busbw_GBps") * UNITS_GIGA,
    };
    const char *cluster = m.cluster != NULL ? m.cluster : "not stated",
               *source = text_of(o, "source", a);
    struct validate_point p = {
        .id = arena_printf(a, "%s %s x%.0f %.0f B", m.what != NULL ? m.what : "?", cluster, m.gpus,
                           m.bytes),
        .source = source != NULL ? source : "not stated",
        .group = "unscored",
        .part = cluster,
        .metric = METRIC_BUSBW,
        .measured = m.busbw,
        .predicted = NAN,
        .low = NAN,
        .high = NAN,
        .ape = NAN,
        .exposed_fraction = NAN,
    };
    if (m.busbw > 0 && m.cluster != NULL) {
        compare(&m, &p, a);
    } else {
        p.reason = "bandwidth or cluster not stated";
    }
    return p;
}

bool validate_collectives(const char *path, struct arena *a, struct validate_result *out,
                          struct err *e) {
    struct json_doc *doc = json_read_file(path, e);
    bool ok = false;
    if (doc == NULL) {
        return false;
    }
    const struct json_node root = json_root(doc);
    struct json_node list = root;
    if (!json_is_array(root) &&
        !(json_is_object(root) && json_find(root, "measured_collectives", &list) &&
          json_is_array(list))) {
        json_fail(root, e, "expected \"measured_collectives\"");
        goto fail;
    }
    struct validate_result r = {0};
    r.points = arena_array(a, json_size(list) + 1, sizeof *r.points);
    for (size_t i = 0; i < json_size(list); i++) {
        const struct json_node o = json_at(list, i);
        if (!json_is_object(o)) {
            json_fail(o, e, "a measurement must be an object");
            goto fail;
        }
        r.points[r.point_count++] = point_of(o, a);
        r.unscored_collectives += !r.points[r.point_count - 1].scored;
    }
    validate_stats_collectives(&r, a);
    *out = r;
    ok = true;
fail:
    json_destroy(doc);
    return ok;
}
