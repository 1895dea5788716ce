// SPDX-License-Identifier: Apache-2.0
#include "describe/import_nccl_infer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// Printed with two decimals: below this the ratio of two bandwidths says little.
static const double precise = 1.0; // GB/s
static const double tolerance = 0.02;

void import_nccl_observe(struct import_nccl_facts *f, const struct import_nccl_row *row) {
    if (!f->any || row->busbw > f->best.busbw)
        f->best = *row;
    f->any = true;
}

static uint64_t element_bytes(const char *type) {
    enum dtype t;
    if (dtype_find(type, &t))
        return (uint64_t)dtype_bytes(t);
    if (strstr(type, "64") || strcmp(type, "double") == 0)
        return 8;
    return strstr(type, "8") ? 1 : 4;
}

// Ranks by which the count column divides the payload: gathers and scatters print the share of one
// rank. 0 = it does not divide.
static uint64_t ranks_by_count(const struct import_nccl_row *r) {
    uint64_t bytes = r->count * element_bytes(r->type);
    return bytes && r->size % bytes == 0 ? r->size / bytes : 0;
}

// Ranks by the bus factor (n-1)/n, or 2(n-1)/n.
static uint64_t ranks_by_ratio(enum collective k, double ratio) {
    double share = k == COLLECTIVE_ALL_REDUCE ? ratio / 2 : ratio;
    if (!(share > 0) || share >= 1)
        return 0;
    return (uint64_t)llround(1 / (1 - share));
}

static bool by_name(const char *text, enum collective *out) {
    static const struct {
        const char *part;
        enum collective collective;
    } names[] = {
        {"all_gather", COLLECTIVE_ALL_GATHER},         {"allgather", COLLECTIVE_ALL_GATHER},
        {"reduce_scatter", COLLECTIVE_REDUCE_SCATTER}, {"reducescatter", COLLECTIVE_REDUCE_SCATTER},
        {"all_reduce", COLLECTIVE_ALL_REDUCE},         {"allreduce", COLLECTIVE_ALL_REDUCE},
        {"alltoall", COLLECTIVE_ALL_TO_ALL},           {"all_to_all", COLLECTIVE_ALL_TO_ALL},
        {"broadcast", COLLECTIVE_BROADCAST},           {"sendrecv", COLLECTIVE_SEND_RECV},
        {"send_recv", COLLECTIVE_SEND_RECV},           {"reduce_perf", COLLECTIVE_REDUCE},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (text && strstr(text, names[i].part)) {
            *out = names[i].collective;
            return true;
        }
    return false;
}

// From the columns alone: the reduction, who divides the count, and the bus factor.
static bool by_columns(const struct import_nccl_facts *f, enum collective *out, bool *certain) {
    const struct import_nccl_row *r = &f->best;
    bool reduces = r->redop && strcmp(r->redop, "none") != 0;
    bool ratio_known = r->busbw >= precise && r->algbw >= precise;
    double ratio = ratio_known ? r->busbw / r->algbw : NAN;
    bool unit = ratio_known && fabs(ratio - 1) < tolerance;
    uint64_t shares = ranks_by_count(r);
    *certain = true;
    if (reduces && r->root >= 0)
        *out = COLLECTIVE_REDUCE;
    else if (reduces)
        *out = shares > 1 ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_REDUCE;
    else if (ratio_known && ratio > 1 + tolerance)
        *out = COLLECTIVE_ALL_REDUCE; // only it has a factor above 1
    else if (unit || r->root >= 0)
        *out = COLLECTIVE_BROADCAST, *certain = r->root >= 0;
    else if (f->in_place_unchecked)
        *out = COLLECTIVE_ALL_TO_ALL;
    else if (shares > 1)
        *out = COLLECTIVE_ALL_GATHER, *certain = false; // all-to-all prints the same columns
    else
        return false;
    return true;
}

static void note(const struct import_source *s, const char *text) {
    warnings_add(s->warnings, s->arena, WARNING_LEFT_OUT, s->name, text);
}

static bool choose(const struct import_nccl_facts *f, const struct import_source *s,
                   enum collective *out, struct err *e) {
    enum collective named = COLLECTIVE_COUNT, seen = COLLECTIVE_COUNT;
    bool certain = false, has_columns = by_columns(f, &seen, &certain);
    bool has_name = by_name(f->title, &named) || by_name(s->name, &named);
    if (s->op) {
        if (!collective_find(s->op, &named))
            return err_set(e, ERR_USAGE, "--op %s is no collective", s->op);
        has_name = true;
    }
    if (!has_name && !has_columns)
        return err_set(e, ERR_INPUT,
                       "%s: the columns do not tell which collective this is; give --op", s->name);
    *out = has_name ? named : seen;
    if (has_name && has_columns && certain && named != seen)
        note(s, arena_printf(s->arena, "named %s, but its columns are those of %s",
                             collective_name(named), collective_name(seen)));
    if (!has_name && !certain)
        note(s, arena_printf(s->arena, "taken as %s: its columns allow another; --op says which",
                             collective_name(seen)));
    return true;
}

static bool has_factor(enum collective k) {
    return k == COLLECTIVE_ALL_GATHER || k == COLLECTIVE_REDUCE_SCATTER ||
           k == COLLECTIVE_ALL_TO_ALL || k == COLLECTIVE_ALL_REDUCE;
}

bool import_nccl_infer(const struct import_nccl_facts *f, const struct import_source *s,
                       struct import_nccl_verdict *out, struct err *e) {
    struct import_nccl_verdict v = {0};
    const struct import_nccl_row *r = &f->best;
    if (!choose(f, s, &v.collective, e))
        return false;
    uint64_t shares = v.collective == COLLECTIVE_ALL_REDUCE ? 0 : ranks_by_count(r), ratio = 0;
    if (has_factor(v.collective) && r->busbw >= precise && r->algbw >= precise)
        ratio = ranks_by_ratio(v.collective, r->busbw / r->algbw);
    v.ranks = f->rank_lines > 1 ? f->rank_lines : shares > 1 ? shares : ratio;
    // Rank lines are cut more often than rows: the columns win when both columns agree.
    if (f->rank_lines && shares > 1 && shares != f->rank_lines) {
        note(s,
             arena_printf(s->arena, "%zu rank lines, but the count column says %" PRIu64 " ranks",
                          f->rank_lines, shares));
        v.ranks = shares;
    }
    if (f->rank_lines > 1 && shares <= 1 && ratio > 1 && ratio != f->rank_lines &&
        fabs((double)ratio - (double)f->rank_lines) > 0.1 * (double)ratio) {
        note(s, arena_printf(s->arena, "%zu rank lines, but busbw/algbw says %" PRIu64 " ranks",
                             f->rank_lines, ratio));
        v.ranks = ratio;
    }
    *out = v;
    return true;
}
