// SPDX-License-Identifier: Apache-2.0
#include "judge/advise_ways.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

const char *const advise_way_names[WAY_KIND_COUNT] = {
    [WAY_AS_IS] = "as is",     [WAY_KNOBS] = "change knobs",
    [WAY_OFFLOAD] = "offload", [WAY_BANDWIDTH] = "more bandwidth",
    [WAY_GPUS] = "more GPUs",
};

static const double ports_gbit_per_s[] = {100, 200, 400, 800};
#define PORTS (sizeof ports_gbit_per_s / sizeof ports_gbit_per_s[0])

struct builder {
    const struct advise_request *q;
    struct arena *a;
    struct advice *v;
    uint64_t global_batch;
    bool sure; // no tight plans
};

static uint64_t fixed_batch(const struct advise_request *q) {
    const struct recipe *r = &q->recipes[0];
    uint64_t unit = q->cluster->gpus * 4; // so that four times the nodes still divide it
    uint64_t asked = q->global_batch;
    if (!asked)
        asked = r->grad_accum * r->micro_batch * q->cluster->gpus;
    uint64_t tokens = UNITS_MIB / (r->seq ? r->seq : 4096);
    if (!q->global_batch && asked < tokens)
        asked = tokens;
    return asked < unit ? unit : units_ceil_to(asked, q->global_batch ? 1 : unit);
}

static const char *needs_text(const struct plan *p, const struct cluster *c, struct arena *a) {
    const struct recipe *r = &p->recipe;
    const char *text =
        arena_printf(a, "%s, micro-batch %llu x %llu, recompute %s, loss %s", plan_title(p, a),
                     (unsigned long long)r->micro_batch, (unsigned long long)r->grad_accum,
                     recompute_names[r->recompute], loss_names[r->loss]);
    if (r->offload_optimizer == OFFLOAD_NONE && r->offload_param == OFFLOAD_NONE)
        return text;
    char host[32], pcie[32];
    units_format_bytes(host, sizeof host, (double)p->memory.host_bytes);
    units_format_rate(pcie, sizeof pcie, c->gpu.pcie_h2d_bytes_per_s.value);
    text = arena_printf(a, "%s; it takes %s of host memory per node, %.0f cores, PCIe at %s", text,
                        host, c->cpu_cores.value, pcie);
    if (p->memory.nvme_bytes) {
        char nvme[32], rate[32];
        units_format_bytes(nvme, sizeof nvme, (double)p->memory.nvme_bytes);
        units_format_rate(rate, sizeof rate, c->nvme_read_bytes_per_s.value);
        text = arena_printf(a, "%s, %s of NVMe per node read at %s", text, nvme, rate);
    }
    return text;
}

static void finish_way(struct builder *b, struct advise_way *w, double tokens_per_s) {
    double tokens = b->q->tokens > 0 ? b->q->tokens : UNITS_GIGA;
    w->tokens_per_s = tokens_per_s;
    w->days = tokens / tokens_per_s / UNITS_DAY_S;
    w->usd_per_billion_tokens = w->cluster.usd_per_gpu_hour.value * (double)w->cluster.gpus /
                                UNITS_HOUR_S * UNITS_GIGA / tokens_per_s;
    w->sentence = needs_text(&w->plan, &w->cluster, b->a);
}

static void one(struct sweep_values *v, uint64_t value) {
    v->items[0] = value;
    v->count = 1;
}

// Buckets stay at the framework's defaults: they move little and would multiply the space.
static void small_space(const struct recipe *r, const struct cluster *c, struct sweep_space *s) {
    static const uint64_t micro[] = {1, 2, 4, 8, 16, 32};
    static const uint64_t modes[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE_OP, RECOMPUTE_FULL};
    memset(s, 0, sizeof *s);
    memcpy(s->micro_batch.items, micro, sizeof micro);
    s->micro_batch.count = sizeof micro / sizeof micro[0];
    memcpy(s->recompute.items, modes, sizeof modes);
    s->recompute.count = sizeof modes / sizeof modes[0];
    one(&s->nodes, c->nodes);
    one(&s->shard_group, c->gpus_per_node);
    one(&s->precision, r->precision);
    s->loss.items[0] = r->loss;
    s->loss.items[1] = LOSS_CHUNKED;
    s->loss.count = r->loss == LOSS_CHUNKED ? 1 : 2;
    one(&s->reduce_bucket, r->reduce_bucket_elements);
    one(&s->prefetch_bucket, r->prefetch_bucket_elements);
    one(&s->max_live, r->max_live_elements);
}

static bool best_by_sweep(struct builder *b, struct advise_way *w, const uint64_t *offloads,
                          size_t count, struct err *e) {
    struct sweep_request s = {.top = 1, .threads = 1, .sure = b->sure};
    struct sweep_result r;
    struct err none = {0};
    s.basis = (struct sweep_basis){.model = b->q->model,
                                   .cluster = &w->cluster,
                                   .recipes = b->q->recipes,
                                   .recipe_count = b->q->recipe_count,
                                   .global_batch = b->global_batch};
    small_space(&b->q->recipes[0], &w->cluster, &s.space);
    memcpy(s.space.offload.items, offloads, count * sizeof *offloads);
    s.space.offload.count = count;
    if (!sweep_run(&s, b->a, &r, &none)) {
        if (none.kind != ERR_INPUT) // an empty space is an answer: this way does not exist
            return err_set(e, none.kind, "%s", none.text);
        return true;
    }
    w->possible = r.plan_count > 0;
    if (w->possible) {
        w->plan = r.plans[0].plan;
        finish_way(b, w, r.plans[0].tokens_per_s);
    }
    return true;
}

static struct advise_way *add_way(struct builder *b, enum advise_way_kind kind, const char *title) {
    if (b->v->way_count == ADVISE_WAYS_MAX)
        return NULL;
    struct advise_way *w = &b->v->ways[b->v->way_count++];
    *w = (struct advise_way){.kind = kind, .title = title, .cluster = *b->q->cluster};
    w->tokens_per_s = w->days = w->usd_per_billion_tokens = NAN;
    return w;
}

static void add_as_is(struct builder *b) {
    struct advise_way *w = add_way(b, WAY_AS_IS, "as asked");
    for (size_t i = 0; i < b->q->recipe_count; i++) {
        const struct plan *p = &b->v->plans.plans[i];
        if (!p->fits || p->reason || !isfinite(p->time.step_s))
            continue;
        bool surer = w->possible && advise_is_tight(w) && p->memory.fits_state == FITS_YES;
        bool tighter = w->possible && !advise_is_tight(w) && p->memory.fits_state != FITS_YES;
        bool slower =
            w->possible && w->plan.time.tokens_per_s_per_gpu >= p->time.tokens_per_s_per_gpu;
        if (tighter || (slower && !surer)) // a sure fit beats a faster "perhaps"
            continue;
        w->possible = true;
        w->plan = *p;
    }
    if (w->possible)
        finish_way(b, w, w->plan.time.tokens_per_s_per_gpu * (double)w->cluster.gpus);
}

// HSDP among the strategies that were asked for, on the hardware at hand.
static bool find_hsdp(const struct builder *all, struct err *e) {
    static const uint64_t no_offload[] = {0};
    struct advise_request q = *all->q;
    struct builder b = *all;
    struct advise_way *w = &b.v->hsdp;
    *w = (struct advise_way){.kind = WAY_KNOBS, .title = "HSDP", .cluster = *q.cluster};
    b.q = &q;
    q.recipe_count = 1;
    for (size_t i = 0; i < all->q->recipe_count && q.cluster->nodes > 1; i++) {
        q.recipes = &all->q->recipes[i];
        if (q.recipes->strategy == STRATEGY_HSDP)
            return best_by_sweep(&b, w, no_offload, 1, e);
    }
    return true;
}

static void set_port(struct cluster *c, double gbit_per_s) {
    double bytes_per_s = gbit_per_s * UNITS_GIGA / 8;
    c->nic_bytes_per_s = figure_known(bytes_per_s, PROVENANCE_ASSUMED, "what-if of advise");
    c->nics_per_node = c->gpus_per_node;
    c->other_network = true;
}

static bool add_bandwidth(struct builder *b, struct err *e) {
    static const uint64_t no_offload[] = {0};
    double now = break_even_bandwidth(b->q->cluster, BREAK_INTER);
    if (b->q->cluster->nodes < 2)
        return true;
    for (size_t i = 0; i < PORTS; i++) {
        if (ports_gbit_per_s[i] * UNITS_GIGA / 8 <= now * 1.01)
            continue;
        struct advise_way *w =
            add_way(b, WAY_BANDWIDTH, arena_printf(b->a, "%.0f Gb/s per GPU", ports_gbit_per_s[i]));
        if (!w)
            return true;
        set_port(&w->cluster, ports_gbit_per_s[i]);
        if (!best_by_sweep(b, w, no_offload, 1, e))
            return false;
    }
    return true;
}

static bool add_nodes(struct builder *b, uint64_t factor, double gbit_per_s, struct err *e) {
    static const uint64_t no_offload[] = {0};
    uint64_t nodes = b->q->cluster->nodes * factor;
    const char *title = gbit_per_s > 0
                            ? arena_printf(b->a, "%llu nodes, %.0f Gb/s per GPU",
                                           (unsigned long long)nodes, gbit_per_s)
                            : arena_printf(b->a, "%llu nodes", (unsigned long long)nodes);
    struct advise_way *w = add_way(b, WAY_GPUS, title);
    if (!w)
        return true;
    if (!cluster_resize(&w->cluster, nodes, nodes * w->cluster.gpus_per_node, e))
        return false;
    if (gbit_per_s > 0)
        set_port(&w->cluster, gbit_per_s);
    return best_by_sweep(b, w, no_offload, 1, e);
}

// A single node has no network yet: ask what each port would give. Otherwise keep the one at hand.
static bool add_gpus(struct builder *b, struct err *e) {
    if (b->q->cluster->nodes > 1)
        return add_nodes(b, 2, 0, e) && add_nodes(b, 4, 0, e);
    for (uint64_t factor = 2; factor <= 4; factor *= 2)
        for (size_t i = 0; i < 3; i++)
            if (!add_nodes(b, factor, ports_gbit_per_s[i], e))
                return false;
    return true;
}

// Two and four times the nodes may still be too few: go on doubling until something fits.
static bool add_enough_gpus(struct builder *b, struct err *e) {
    for (size_t i = 0; i < b->v->way_count; i++)
        if (b->v->ways[i].possible)
            return true;
    for (uint64_t factor = 8; factor <= 64; factor *= 2) {
        if (!add_nodes(b, factor, 0, e))
            return false;
        if (b->v->ways[b->v->way_count - 1].possible)
            return true;
    }
    return true;
}

// What 8 GiB more on every card would save, per GiB.
static bool find_gib_worth(struct builder *b, const struct advise_way *here, struct err *e) {
    static const uint64_t no_offload[] = {0};
    const double more_gib = 8;
    struct advise_way w = *here;
    struct gpu *g = &w.cluster.gpu;
    if (!here->possible)
        return true;
    double bytes = gpu_visible_bytes(g).value + more_gib * (double)UNITS_GIB;
    g->memory_torch_bytes = figure_known(bytes, PROVENANCE_ASSUMED, "what-if of advise");
    if (!best_by_sweep(b, &w, no_offload, 1, e))
        return false;
    double tokens = (double)b->global_batch * (double)here->plan.recipe.seq;
    b->v->gib_worth_s = (tokens / here->tokens_per_s - tokens / w.tokens_per_s) / more_gib;
    return true;
}

bool advise_is_tight(const struct advise_way *w) {
    return w->possible && w->plan.memory.fits_state == FITS_TIGHT;
}

bool advise_safe(const struct advise_request *q, const struct advise_way *best, struct arena *a,
                 struct advise_way *safe, struct err *e) {
    static const uint64_t none[] = {0}, any[] = {1, 2, 3, 4, 5};
    struct builder b = {.q = q, .a = a, .global_batch = fixed_batch(q), .sure = true};
    struct advise_way w = *best;
    w.possible = false;
    if (advise_is_tight(best) &&
        (!best_by_sweep(&b, &w, none, 1, e) || (!w.possible && !best_by_sweep(&b, &w, any, 5, e))))
        return false;
    *safe = w;
    return true;
}

bool advise_ways(const struct advise_request *q, struct arena *a, struct advice *v, struct err *e) {
    static const uint64_t none[] = {0}, cpu[] = {1, 2}, nvme[] = {3, 4, 5};
    struct builder b = {.q = q, .a = a, .v = v, .global_batch = fixed_batch(q)};
    add_as_is(&b);
    struct advise_way *knobs = add_way(&b, WAY_KNOBS, "same hardware");
    if (!best_by_sweep(&b, knobs, none, 1, e) || !find_gib_worth(&b, knobs, e) || !find_hsdp(&b, e))
        return false;
    if (!best_by_sweep(&b, add_way(&b, WAY_OFFLOAD, "CPU offload"), cpu, 2, e) ||
        !best_by_sweep(&b, add_way(&b, WAY_OFFLOAD, "NVMe offload"), nvme, 3, e))
        return false;
    return add_bandwidth(&b, e) && add_gpus(&b, e) && add_enough_gpus(&b, e);
}
