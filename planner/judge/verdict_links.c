// SPDX-License-Identifier: Apache-2.0
#include "judge/verdict_private.h"

#include "base/stats.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A link this far below what its ends reach elsewhere is named, and an end this far below the
// median end.
static const double peer_share = 0.80;
// A link this far below its data sheet is slow whatever its peers do.
static const double sheet_share = 0.70;
// Without the slow rank the others are faster than without anybody else.
static const double left_out_share = 0.80;
#define ENDS_MAX 4096
#define LEAST_PEERS 3

static const char text_swap[] =
    "swap the cable or port; compare link speed, width and NUMA placement with its peers";

static bool is_pair(const struct measure_result *r, uint64_t *a, uint64_t *b) {
    unsigned long long x, y;
    if (!r->group || sscanf(r->group, "%llu,%llu", &x, &y) != 2 || x >= ENDS_MAX || y >= ENDS_MAX ||
        x == y)
        return false;
    *a = x;
    *b = y;
    return true;
}

static bool is_left_out(const struct measure_result *r, uint64_t *out) {
    unsigned long long x;
    if (!r->group || sscanf(r->group, "all but %llu", &x) != 1 || x >= ENDS_MAX)
        return false;
    *out = x;
    return true;
}

static bool measures_links(const struct measure_result *r) {
    return strcmp(r->kind, "copy") == 0 || strcmp(r->kind, "send_recv") == 0;
}

bool verdict_is_link(const struct measure_result *r) {
    uint64_t rank;
    return r->group && (measures_links(r) || is_left_out(r, &rank));
}

static bool like(const struct measure_result *x, const struct measure_result *y) {
    bool direction = x->direction == y->direction ||
                     (x->direction && y->direction && strcmp(x->direction, y->direction) == 0);
    return strcmp(x->kind, y->kind) == 0 && direction && x->payload_bytes == y->payload_bytes &&
           x->concurrent == y->concurrent;
}

static bool usable(const struct measure_result *r) {
    return r->errors == 0 && r->group && measures_links(r) && r->algbw_bytes_per_s > 0;
}

// The better of repeats: other load slows a link, nothing speeds it up.
static double best_of(const struct judge *j, const struct measure_result *r) {
    double best = 0;
    for (size_t i = 0; i < j->measured_count; i++) {
        const struct measure_result *x = j->measured[i].result;
        if (usable(x) && like(x, r) && strcmp(x->group, r->group) == 0)
            best = fmax(best, x->algbw_bytes_per_s);
    }
    return best;
}

static bool first_of_group(const struct judge *j, size_t at) {
    const struct measure_result *r = j->measured[at].result;
    for (size_t i = 0; i < at; i++) {
        const struct measure_result *x = j->measured[i].result;
        if (usable(x) && like(x, r) && strcmp(x->group, r->group) == 0)
            return false;
    }
    return true;
}

static bool first_of_kind(const struct judge *j, size_t at) {
    for (size_t i = 0; i < at; i++)
        if (usable(j->measured[i].result) && like(j->measured[i].result, j->measured[at].result))
            return false;
    return true;
}

// What each end reaches with its best partner; 0: not measured. Returns how many ends.
static size_t best_ends(const struct judge *j, const struct measure_result *r, double *best) {
    size_t n = 0;
    uint64_t a, b;
    memset(best, 0, ENDS_MAX * sizeof *best);
    for (size_t i = 0; i < j->measured_count; i++) {
        const struct measure_result *x = j->measured[i].result;
        if (!usable(x) || !like(x, r) || !is_pair(x, &a, &b))
            continue;
        n += (best[a] <= 0) + (best[b] <= 0);
        best[a] = fmax(best[a], x->algbw_bytes_per_s);
        best[b] = fmax(best[b], x->algbw_bytes_per_s);
    }
    return n;
}

static double median_end(const double *best, double *scratch) {
    size_t n = 0;
    for (size_t i = 0; i < ENDS_MAX; i++)
        if (best[i] > 0)
            scratch[n++] = best[i];
    return n >= LEAST_PEERS ? stats_median(scratch, n) : NAN;
}

// ---- pairs whose link a tool's matrix names -----------------------------------------------------

static const struct topology *matrix(const struct judge *j) {
    for (size_t i = 0; i < j->q->topology_count; i++)
        if (j->q->topologies[i].cells && !j->q->topologies[i].p2p)
            return &j->q->topologies[i];
    return NULL;
}

// The link between the two of a result; PATH_UNKNOWN without a matrix, and between nodes.
static struct topology_cell link_of(const struct judge *j, const struct measure_result *r) {
    const struct topology *t = matrix(j);
    uint64_t a, b;
    if (!t || r->nodes > 1 || !is_pair(r, &a, &b) || a >= t->gpus || b >= t->gpus)
        return (struct topology_cell){.path = PATH_UNKNOWN};
    return topology_between(t, a, b);
}

// Bridges beside slots: what an end reaches over one says nothing about the other.
static bool mixed(const struct judge *j) {
    const struct topology *t = matrix(j);
    for (size_t x = 0; t && x < t->gpus; x++)
        for (size_t y = x + 1; y < t->gpus; y++)
            if (topology_between(t, x, y).path != topology_between(t, 0, 1).path)
                return true;
    return false;
}

bool verdict_measured_over(const struct judge *j, enum topology_path path) {
    for (size_t i = 0; i < j->measured_count; i++)
        if (usable(j->measured[i].result) && link_of(j, j->measured[i].result).path == path)
            return true;
    return false;
}

// The median pair over the same kind of link; NAN with fewer than three.
static double median_alike(const struct judge *j, const struct measure_result *r) {
    double *rates = arena_array(j->a, j->measured_count + 1, sizeof *rates);
    struct topology_cell cell = link_of(j, r);
    size_t n = 0;
    for (size_t i = 0; i < j->measured_count; i++) {
        const struct measure_result *x = j->measured[i].result;
        if (usable(x) && like(x, r) && first_of_group(j, i) && link_of(j, x).path == cell.path &&
            link_of(j, x).links == cell.links)
            rates[n++] = best_of(j, x);
    }
    return n >= LEAST_PEERS ? stats_median(rates, n) : NAN;
}

// What the data sheet promises a copy over it, one way; NAN: nothing that may judge.
static double promised(const struct judge *j, const struct measure_result *r) {
    const struct gpu *g = &j->q->cluster->gpu;
    struct topology_cell cell = link_of(j, r);
    struct figure f = cell.path == PATH_NVLINK ? g->nvlink_bytes_per_s : g->pcie_h2d_bytes_per_s;
    if (strcmp(r->kind, "copy") != 0 || !r->direction || strcmp(r->direction, "p2p") != 0 ||
        r->concurrent || !figure_is_known(f) || f.provenance == PROVENANCE_ASSUMED)
        return NAN;
    if (cell.path == PATH_NVLINK)
        return g->nvlink_count ? f.value * (double)cell.links / (double)g->nvlink_count : NAN;
    return cell.path <= PATH_PXB ? f.value : NAN; // else host bridges and sockets decide
}

static double median_peer(const struct judge *j, const struct measure_result *r) {
    double *rates = arena_array(j->a, j->measured_count + 1, sizeof *rates);
    size_t n = 0;
    for (size_t i = 0; i < j->measured_count; i++)
        if (usable(j->measured[i].result) && like(j->measured[i].result, r))
            rates[n++] = j->measured[i].result->algbw_bytes_per_s;
    return n >= LEAST_PEERS ? stats_median(rates, n) : NAN;
}

static const char *title(struct judge *j, const struct measure_result *r) {
    return arena_printf(j->a, "%s%s%s%s%s", r->kind, r->direction ? " " : "",
                        r->direction ? r->direction : "", r->payload_bytes ? " " : "",
                        r->payload_bytes ? verdict_size_text(j, r->payload_bytes) : "");
}

// Ends that are slow with every partner: their links are not to blame.
static void judge_ends(struct judge *j, const struct measure_result *r, const double *best,
                       double median) {
    for (uint64_t i = 0; isfinite(median) && i < ENDS_MAX; i++) {
        if (!(best[i] > 0) || best[i] >= peer_share * median)
            continue;
        struct verdict_check *c = verdict_add(
            j, arena_printf(j->a, "%s, rank %" PRIu64 " with every partner", title(j, r), i));
        c->measured_bytes_per_s = best[i];
        c->limit_bytes_per_s = peer_share * median;
        verdict_decide(j, c, text_swap);
        c->culprit = arena_printf(j->a, "rank %" PRIu64, i);
    }
}

static void judge_alike(struct judge *j, const struct measure_result *r) {
    const char *link = topology_cell_text(link_of(j, r), j->a);
    double peers = median_alike(j, r), sheet = promised(j, r);
    struct verdict_check *c =
        verdict_add(j, arena_printf(j->a, "%s between %s over %s", title(j, r), r->group, link));
    c->measured_bytes_per_s = best_of(j, r);
    c->model_bytes_per_s = sheet;
    if (!isfinite(peers) && !isfinite(sheet)) {
        c->required = false;
        c->reason = arena_printf(j->a, "fewer than three pairs over %s, and no rate of it", link);
        c->next_step = "measure every pair";
        return;
    }
    c->limit_bytes_per_s = fmax(peer_share * peers, sheet_share * sheet);
    verdict_decide(j, c, text_swap);
    if (c->status == VERDICT_FAIL)
        c->culprit = arena_printf(j->a, "pair %s", r->group);
}

static void judge_link(struct judge *j, const struct measure_result *r, const double *best) {
    uint64_t a = 0, b = 0;
    bool pair = is_pair(r, &a, &b);
    double expected = pair ? fmin(best[a], best[b]) : median_peer(j, r);
    struct verdict_check *c =
        verdict_add(j, arena_printf(j->a, "%s between %s", title(j, r), r->group));
    c->measured_bytes_per_s = best_of(j, r);
    if (!isfinite(pair ? median_peer(j, r) : expected)) {
        c->required = false;
        c->reason = "fewer than three peers to compare with";
        c->next_step = "measure every pair";
        return;
    }
    c->limit_bytes_per_s = peer_share * expected;
    verdict_decide(j, c, text_swap);
    if (c->status == VERDICT_FAIL)
        c->culprit = arena_printf(j->a, pair ? "pair %s" : "device %s", r->group);
}

// The fastest of the runs without `rank`; of all other all-but-one runs. A slow link makes two of
// them fast, without either of its ends; only a slow rank makes one of them stand out.
static double best_left_out(const struct judge *j, uint64_t rank, bool others, size_t *runs) {
    double best = 0;
    uint64_t other;
    *runs = 0;
    for (size_t i = 0; i < j->measured_count; i++) {
        const struct measure_result *r = j->measured[i].result;
        if (!is_left_out(r, &other) || (other == rank) == others || r->errors)
            continue;
        best = fmax(best, r->busbw_bytes_per_s);
        ++*runs;
    }
    return best;
}

static bool first_left_out(const struct judge *j, size_t at, uint64_t rank) {
    uint64_t other;
    for (size_t i = 0; i < at; i++)
        if (is_left_out(j->measured[i].result, &other) && other == rank &&
            !j->measured[i].result->errors)
            return false;
    return true;
}

static void judge_left_out(struct judge *j, const struct measure_result *r, uint64_t rank) {
    size_t runs, others;
    double without = best_left_out(j, rank, false, &runs);
    double usual = best_left_out(j, rank, true, &others);
    if (others + 1 < LEAST_PEERS)
        return;
    struct verdict_check *c =
        verdict_add(j, arena_printf(j->a, "%s of all but rank %" PRIu64, title(j, r), rank));
    c->measured_bytes_per_s = without;
    c->status = VERDICT_PASS;
    if (usual >= left_out_share * without)
        return;
    verdict_fail(c, arena_printf(j->a, "rank %" PRIu64, rank),
                 "the others are faster without it than without anybody else", text_swap);
}

// ---- both ways of one slot ----------------------------------------------------------------------

// One way this much slower than the other, against what the GPU's own figures say.
static const double symmetry_share = 0.70;

static bool same(const char *x, const char *y) {
    return x == y || (x && y && strcmp(x, y) == 0);
}

static bool is_copy(const struct measure_result *r, const char *direction) {
    return strcmp(r->kind, "copy") == 0 && same(r->direction, direction) && !r->concurrent &&
           r->errors == 0 && r->numa == 0 && r->algbw_bytes_per_s > 0 &&
           !same(r->algorithm, "pageable");
}

static const struct measure_result *other_way(const struct judge *j,
                                              const struct measure_result *up) {
    for (size_t i = 0; i < j->measured_count; i++) {
        const struct measure_result *r = j->measured[i].result;
        if (is_copy(r, "d2h") && same(r->group, up->group) && same(r->algorithm, up->algorithm) &&
            r->payload_bytes == up->payload_bytes)
            return r;
    }
    return NULL;
}

static void judge_symmetry(struct judge *j, const struct measure_result *up) {
    const struct measure_result *down = other_way(j, up);
    const struct gpu *g = &j->q->cluster->gpu;
    struct figure h2d = g->pcie_h2d_bytes_per_s, d2h = g->pcie_d2h_bytes_per_s;
    if (!down)
        return;
    double expected = h2d.value > 0 && d2h.value > 0 ? h2d.value / d2h.value : 1;
    double ratio = up->algbw_bytes_per_s / down->algbw_bytes_per_s / expected;
    const char *device = up->group ? arena_printf(j->a, "device %s", up->group) : "device";
    struct verdict_check *c = verdict_add(j, arena_printf(j->a, "copies of %s both ways", device));
    c->measured_bytes_per_s = fmin(up->algbw_bytes_per_s, down->algbw_bytes_per_s);
    c->status = VERDICT_PASS;
    if (ratio >= symmetry_share && 1 / ratio >= symmetry_share)
        return;
    verdict_fail(c, device,
                 arena_printf(j->a,
                              "copies %s the host reach %.0f %% of what the other way promises",
                              ratio < 1 ? "from" : "to", 100 * fmin(ratio, 1 / ratio)),
                 "look for a lane that retrains or a busy switch uplink; compare the slot's "
                 "counters with its peers'");
}

// More ranks than a node has processors: whose turn it was is measured, not the links.
static bool is_crowded(const struct measure_result *r) {
    return r->oversubscribed && r->nodes <= 1;
}

static void waive_crowded(struct judge *j) {
    struct verdict_check *c = verdict_add(j, "links between ranks");
    c->status = VERDICT_WAIVED;
    c->reason = "more ranks than processors";
    c->next_step = "run one rank per device";
}

void verdict_links(struct judge *j) {
    bool crowded = false;
    double *best = arena_array(j->a, ENDS_MAX, sizeof *best);
    double *scratch = arena_array(j->a, ENDS_MAX, sizeof *scratch);
    uint64_t rank;
    for (size_t i = 0; i < j->measured_count; i++) {
        const struct measure_result *r = j->measured[i].result;
        if (is_copy(r, "h2d"))
            judge_symmetry(j, r);
        if (is_crowded(r) && (usable(r) || is_left_out(r, &rank))) {
            if (!crowded)
                waive_crowded(j);
            crowded = true;
            continue;
        }
        if (r->errors == 0 && is_left_out(r, &rank)) {
            if (first_left_out(j, i, rank))
                judge_left_out(j, r, rank);
            continue;
        }
        if (!usable(r) || !first_of_group(j, i))
            continue;
        if (link_of(j, r).path < PATH_UNKNOWN && mixed(j)) {
            judge_alike(j, r);
            continue;
        }
        best_ends(j, r, best);
        if (first_of_kind(j, i))
            judge_ends(j, r, best, median_end(best, scratch));
        judge_link(j, r, best);
    }
}
