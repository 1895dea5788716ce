// SPDX-License-Identifier: Apache-2.0
#include "cost/collective.h"

#include "cost/collective_fabric.h"

#include <math.h>
#include <string.h>

const char *const time_basis_names[TIME_BASIS_COUNT] = {
    [TIME_PRIOR] = "prior", [TIME_FITTED] = "fitted", [TIME_EXTRAPOLATED] = "extrapolated"};

// What one call looks like: `busbw` carries `sent` bytes of every rank.
struct shape {
    enum collective kind;
    uint64_t ranks, nodes, ranks_per_node, steps;
    double payload_bytes, sent_bytes;
};

struct candidate {
    double latency_s, transfer_s;
    double rate_low, rate_high; // bounds of the bandwidth, as shares of its value
    double latency_low, latency_high;
    const char *algorithm;
};

static double total_s(const struct candidate *k) {
    return k->latency_s + k->transfer_s;
}

static void keep_faster(struct candidate *best, const struct candidate *k) {
    if (!isfinite(total_s(best)) || total_s(k) < total_s(best)) {
        *best = *k;
    }
}

static bool is_chain(enum collective k) {
    return k == COLLECTIVE_BROADCAST || k == COLLECTIVE_REDUCE;
}

static struct shape shape_of(enum collective kind, const struct group_layout *g,
                             double payload_bytes) {
    struct shape s = {.kind = kind, .ranks = g->size, .payload_bytes = payload_bytes};
    s.ranks_per_node =
        g->ranks_per_node == 0 || g->ranks_per_node > g->size ? g->size : g->ranks_per_node;
    s.nodes = (s.ranks + s.ranks_per_node - 1) / s.ranks_per_node;
    s.steps =
        kind == COLLECTIVE_SEND_RECV ? 1 : (kind == COLLECTIVE_ALL_REDUCE ? 2 : 1) * (s.ranks - 1);
    s.sent_bytes = collective_sent_bytes(kind, payload_bytes, s.ranks);
    return s;
}

// Messages of few chunks do not fill the pipeline: 1 + (half / payload)^exponent.
static double saturation(double half_bytes, double exponent, double payload_bytes) {
    return payload_bytes > 0 ? 1.0 + pow(half_bytes / payload_bytes, exponent) : 1.0;
}

static double inverse(double share, double floor) {
    return 1.0 / fmax(share, floor);
}

static struct candidate candidate_of(const struct shape *s, double latency_s, struct figure busbw,
                                     double saturated, const char *algorithm) {
    return (struct candidate){
        .latency_s = latency_s,
        .transfer_s = busbw.value > 0 ? s->sent_bytes / busbw.value * saturated : NAN,
        .rate_low = fmin(0.9, busbw.low / busbw.value),
        .rate_high = fmax(1.08, busbw.high / busbw.value),
        .latency_low = 0.7,
        .latency_high = 1.5,
        .algorithm = algorithm,
    };
}

static struct candidate inside_node(const struct cluster *c, const struct shape *s) {
    const struct collective_constants *k = &collective_constants;
    const struct figure busbw = collective_intra_busbw(c, s->ranks);
    const double step_s = collective_fabric(c->intra_fabric)->ring_step_s.value;
    const double half = k->intra_half_bytes * busbw.value / k->intra_half_rate_bytes_per_s;
    const double sat = saturation(half, k->intra_exponent, s->payload_bytes);
    struct candidate best =
        candidate_of(s, k->base_s + (double)s->steps * step_s, busbw, sat, "ring");
    struct candidate ll = candidate_of(s, k->base_s + (double)s->steps * k->ll_step_s, busbw,
                                       1.0 / k->ll_fraction, "ring-ll");
    keep_faster(&best, &ll);
    const struct figure nvls = collective_nvls_busbw(c, s->ranks);
    if (s->kind == COLLECTIVE_ALL_REDUCE && figure_is_known(nvls)) {
        struct candidate in_switch = candidate_of(s, k->nvls_s, nvls, sat, "nvls");
        keep_faster(&best, &in_switch);
    }
    return best;
}

// Bandwidth one group gets out of a node: its share of the NICs, what its own ranks' NICs carry
// when it has few ranks there, and never more than the links inside the node that feed them.
static struct figure across_busbw(const struct cluster *c, const struct shape *s,
                                  const struct group_layout *g) {
    struct figure node = collective_node_bytes_per_s(c);
    if (!figure_is_known(node)) {
        return node;
    }
    const double groups = g->concurrent_groups > 1 ? (double)g->concurrent_groups : 1.0;
    const double nics = (double)c->nics_per_node;
    const double gpus = c->gpus_per_node > 0 ? (double)c->gpus_per_node : 1.0;
    const double reach = fmin(1.0, (double)s->ranks_per_node * fmax(1.0 / nics, 1.0 / gpus));
    const double share = fmin(1.0 / groups, reach);
    node.value *= share;
    node.low *= share;
    node.high *= share;
    if (s->ranks_per_node > 1) {
        const struct figure intra = collective_intra_busbw(c, s->ranks_per_node);
        if (figure_is_known(intra)) {
            node.value = fmin(node.value, intra.value);
            node.low = fmin(node.low, intra.low);
            node.high = fmin(node.high, intra.high);
        }
    }
    return node;
}

static struct candidate across_nodes(const struct cluster *c, const struct shape *s,
                                     const struct group_layout *g) {
    const struct collective_constants *k = &collective_constants;
    const struct fabric_constants *inter = collective_fabric(c->inter_fabric);
    const struct fabric_constants *intra = collective_fabric(c->intra_fabric);
    struct figure busbw = across_busbw(c, s, g);
    if (!figure_is_known(busbw)) {
        return (struct candidate){.latency_s = NAN, .transfer_s = NAN, .algorithm = "ring"};
    }
    const double nodes = (double)s->nodes;
    const double half = k->inter_half_bytes * pow(nodes / 2.0, k->inter_half_growth);
    const double sat = saturation(half, k->inter_exponent, s->payload_bytes);
    const double wire_steps = s->kind == COLLECTIVE_SEND_RECV    ? 1.0
                              : s->kind == COLLECTIVE_ALL_REDUCE ? 2.0 * nodes
                                                                 : nodes;
    const double local_steps = fmax(0.0, (double)s->steps - wire_steps);
    struct candidate best = candidate_of(s,
                                         k->base_s + local_steps * intra->ring_step_s.value +
                                             wire_steps * inter->ring_step_s.value,
                                         busbw, sat, "ring");
    if (s->kind == COLLECTIVE_ALL_REDUCE) {
        struct figure tree = busbw;
        const double gain = s->nodes == 2 && s->ranks_per_node > 1 ? k->two_node_gain : 1.0;
        tree.value *= gain;
        tree.low *= gain;
        tree.high *= gain;
        struct candidate t = candidate_of(
            s, k->base_s + 2.0 * log2(nodes) * inter->tree_level_s.value, tree, sat, "tree");
        keep_faster(&best, &t);
    }
    return best;
}

// Every rank sends S/n to each other rank: what stays inside the node and what leaves it overlap.
static struct candidate all_to_all(const struct cluster *c, const struct shape *s,
                                   const struct group_layout *g) {
    const struct collective_constants *k = &collective_constants;
    const double n = (double)s->ranks, local = (double)s->ranks_per_node;
    const double per_peer = s->payload_bytes / n;
    const struct figure inside = collective_intra_busbw(c, s->ranks_per_node);
    struct candidate best =
        candidate_of(s, k->base_s, inside, 1.0 / k->all_to_all_fraction, "pairwise");
    best.latency_s += collective_fabric(c->intra_fabric)->ring_step_s.value;
    const double inside_s =
        local > 1 ? per_peer * (local - 1.0) / (inside.value * k->all_to_all_fraction) : 0.0;
    best.transfer_s = inside_s;
    if (s->nodes > 1) {
        const struct figure wire = across_busbw(c, s, g);
        const double outside_s =
            per_peer * (n - local) * local / (wire.value * k->all_to_all_fraction);
        best.latency_s += collective_fabric(c->inter_fabric)->ring_step_s.value;
        best.transfer_s = fmax(inside_s, outside_s);
        best.rate_low = fmin(0.75, wire.low / wire.value);
        best.rate_high = fmax(1.2, wire.high / wire.value);
    }
    return best;
}

static struct candidate prior(const struct cluster *c, const struct shape *s,
                              const struct group_layout *g) {
    if (s->kind == COLLECTIVE_ALL_TO_ALL) {
        return all_to_all(c, s, g);
    }
    struct candidate k = s->nodes > 1 ? across_nodes(c, s, g) : inside_node(c, s);
    if (is_chain(s->kind)) {
        k.algorithm = "chain";
    }
    return k;
}

static double fit_seconds(const struct cluster_fit *f, double payload_bytes, double *latency_s) {
    const double half = figure_is_known(f->half_bytes) ? f->half_bytes.value : 0.0;
    const double sent = collective_sent_bytes(f->collective, payload_bytes, f->ranks);
    *latency_s = f->latency_s.value;
    return f->latency_s.value +
           sent / f->busbw_bytes_per_s.value * (1.0 + sqrt(half / fmax(payload_bytes, 1.0)));
}

// How far a payload lies outside what was measured, in powers of e; 0 inside.
static double out_of_range(const struct cluster_fit *f, double payload_bytes) {
    if (f->min_payload_bytes > 0 && payload_bytes < f->min_payload_bytes) {
        return log(f->min_payload_bytes / payload_bytes);
    }
    if (f->max_payload_bytes > 0 && payload_bytes > f->max_payload_bytes) {
        return log(payload_bytes / f->max_payload_bytes);
    }
    return 0.0;
}

// Beyond four times the measured sizes a fit is not asked: the law keeps its shape there and takes
// the ratio of fit to law at the edge of what was measured.
#define FIT_REACH 4.0

static double edge_payload(const struct cluster_fit *f, double payload_bytes) {
    const double low = f->min_payload_bytes > 0 ? f->min_payload_bytes / FIT_REACH : 0.0;
    const double high = f->max_payload_bytes > 0 ? f->max_payload_bytes * FIT_REACH : INFINITY;
    return fmin(fmax(payload_bytes, low), high);
}

// The measured set of this collective nearest to the group: same ranks first, then nearest size.
static const struct cluster_fit *fit_for(const struct cluster *c, const struct shape *s,
                                         bool *exact) {
    const struct cluster_fit *best = NULL;
    double distance = INFINITY;
    for (size_t i = 0; i < c->fit_count; i++) {
        const struct cluster_fit *f = &c->fits[i];
        if (f->collective != s->kind || f->ranks < 2 || f->nodes == 0 ||
            (c->other_network && f->nodes > 1)) {
            continue;
        }
        const bool both_inside = (f->nodes > 1) == (s->nodes > 1);
        const double ranks = fabs(log((double)f->ranks / (double)s->ranks)) +
                             fabs(log((double)f->nodes / (double)s->nodes));
        // Of the pieces of one group, the one whose sizes are nearest.
        const double d = ranks + 1e-6 * out_of_range(f, s->payload_bytes);
        if (both_inside && d < distance) {
            distance = d;
            best = f;
            *exact = ranks == 0.0;
        }
    }
    return best;
}

// Half-width of a fitted time: its parameters' intervals, at least the scatter of a good fabric.
static double fit_width(const struct cluster_fit *f) {
    const double b = f->busbw_bytes_per_s.high / f->busbw_bytes_per_s.value - 1.0;
    const double l = f->latency_s.high / f->latency_s.value - 1.0;
    return fmin(0.25, fmax(0.03, fmax(b, 0.5 * l)));
}

static void apply_fit(const struct cluster *c, const struct shape *s, const struct group_layout *g,
                      struct collective_time *out) {
    bool exact = false;
    const struct cluster_fit *f = fit_for(c, s, &exact);
    if (f == NULL) {
        return;
    }
    double latency_s = 0.0;
    const double at = fit_seconds(f, s->payload_bytes, &latency_s);
    const double edge = edge_payload(f, s->payload_bytes);
    const bool reached = !(edge > s->payload_bytes) && !(edge < s->payload_bytes);
    if (exact && reached && g->concurrent_groups <= 1) {
        const bool inside = out_of_range(f, s->payload_bytes) <= 0.0;
        const double width = inside ? fit_width(f) : 0.25;
        *out = (struct collective_time){.seconds = at,
                                        .low_s = at * (1 - width),
                                        .high_s = at * (1 + width),
                                        .latency_s = latency_s,
                                        .transfer_s = at - latency_s,
                                        .basis = inside ? TIME_FITTED : TIME_EXTRAPOLATED,
                                        .algorithm = "fitted",
                                        .cores = f->cores,
                                        .wire_bytes_per_s = s->sent_bytes / at};
        return;
    }
    // Another size of group was measured: keep the law's shape and this machine's ratio to it.
    const struct group_layout measured = {
        .size = f->ranks, .ranks_per_node = f->ranks / f->nodes, .concurrent_groups = 1};
    const struct shape ms = shape_of(s->kind, &measured, edge);
    const struct candidate law = prior(c, &ms, &measured);
    const double ratio = fit_seconds(f, edge, &latency_s) / total_s(&law);
    if (!isfinite(ratio)) {
        return;
    }
    out->seconds *= ratio;
    out->low_s *= ratio;
    out->high_s *= ratio;
    out->latency_s *= ratio;
    out->transfer_s *= ratio;
    out->wire_bytes_per_s /= ratio;
    out->cores = f->cores;
    out->basis = TIME_EXTRAPOLATED;
}

void collective_estimate(const struct cluster *c, enum collective k, const struct group_layout *g,
                         double payload_bytes, struct collective_time *out) {
    *out = (struct collective_time){.basis = TIME_PRIOR, .algorithm = "ring"};
    if (g->size < 2 || payload_bytes <= 0) {
        return;
    }
    const struct shape s = shape_of(k, g, payload_bytes);
    const struct candidate best = prior(c, &s, g);
    out->latency_s = best.latency_s;
    out->transfer_s = best.transfer_s;
    out->seconds = total_s(&best);
    out->low_s = best.latency_s * best.latency_low + best.transfer_s / best.rate_high;
    out->high_s =
        best.latency_s * best.latency_high + best.transfer_s * inverse(best.rate_low, 0.05);
    out->algorithm = best.algorithm;
    out->wire_bytes_per_s = s.sent_bytes / out->seconds;
    apply_fit(c, &s, g, out);
}
