// SPDX-License-Identifier: Apache-2.0
#include "cost/zero3.h"

#include "cost/order.h"

#include <string.h>

#define MLP_RANK 4 // of cost/order.h

enum hook { HOOK_PRE_FORWARD, HOOK_POST_FORWARD, HOOK_PRE_BACKWARD, HOOK_POST_BACKWARD };

struct module {
    uint32_t first, count; // its direct parameters
    uint32_t unit;         // instance that holds it, UINT32_MAX for the root
    uint64_t numel;
};

struct event {
    enum hook hook;
    uint32_t module;
};

struct parameter {
    uint64_t numel;
    uint32_t module, size; // size: index into the traffic's; ZERO3_SIZES_MAX = not listed
    int64_t gather;        // number of the gather that brought it last; -1 = none
    int64_t recent;        // last trace step at which the queue held it; -1 = none yet
    bool persistent, available;
};

// Positions of one unit class in forward order: how its modules nest.
enum visit_kind { VISIT_OPEN, VISIT_LEAF, VISIT_CLOSE };
struct visit {
    enum visit_kind kind;
    uint32_t module; // relative to the unit instance's first module
};

struct shape { // modules of one unit class
    struct visit *visits;
    uint32_t visit_count, module_count;
    uint32_t *tensor_module; // module of each tensor, relative
};

struct trace {
    const struct model *model;
    struct arena *arena;
    struct module *modules;
    struct parameter *parameters;
    struct event *events;
    uint32_t *order;        // module of every pre-hook, in trace order
    uint64_t *order_before; // elements of the modules before this position
    uint32_t *next_use;     // next position in `order` with the same module, or order_count
    uint32_t module_count, parameter_count, event_count, order_count;
    // Queue of (parameter, step) pairs walks `order`; a cursor replaces the deque.
    uint32_t cursor_step, cursor_parameter;
    uint64_t live;
    const struct zero3_watch *watch; // or NULL
};

static size_t container_length(const char *module) {
    const char *dot = strrchr(module, '.');
    return dot ? (size_t)(dot - module) : 0;
}

static bool same_container(const char *a, const char *b) {
    size_t n = container_length(a);
    return n == container_length(b) && strncmp(a, b, n) == 0;
}

// First tensor of every directly owning module, in execution order. Returns the count.
static uint32_t order_modules(const struct model_unit *u, struct arena *a, uint32_t **out) {
    uint32_t *first = arena_array(a, u->tensor_count + 1, sizeof *first);
    uint32_t count = 0;
    for (int rank = 0; rank < ORDER_RANKS; rank++)
        for (size_t i = 0; i < u->tensor_count; i++) {
            const char *name = u->tensors[i].module;
            if (u->kind == UNIT_BLOCK ? order_rank(name) != rank : rank != 0)
                continue;
            bool seen = false;
            for (uint32_t j = 0; j < count && !seen; j++)
                seen = strcmp(u->tensors[first[j]].module, name) == 0;
            if (!seen)
                first[count++] = (uint32_t)i;
        }
    *out = first;
    return count;
}

static void visit_add(struct shape *s, enum visit_kind kind, uint32_t module) {
    s->visits[s->visit_count++] = (struct visit){kind, module};
}

// A block is a module of its own (0 parameters) around containers (0 parameters) around leaves.
static struct shape shape_of(const struct model_unit *u, bool activations, struct arena *a) {
    struct shape s = {0};
    uint32_t *first;
    uint32_t count = order_modules(u, a, &first);
    s.visits = arena_array(a, 4 * (size_t)count + 5, sizeof *s.visits);
    s.tensor_module = arena_array(a, u->tensor_count + 1, sizeof *s.tensor_module);
    bool block = u->kind == UNIT_BLOCK;
    if (block)
        visit_add(&s, VISIT_OPEN, s.module_count++);
    uint32_t container = 0;
    for (uint32_t i = 0; i < count; i++) {
        const char *name = u->tensors[first[i]].module;
        bool nested = block && container_length(name) > 0;
        if (nested && (i == 0 || !same_container(name, u->tensors[first[i - 1]].module))) {
            container = s.module_count++;
            visit_add(&s, VISIT_OPEN, container);
        }
        visit_add(&s, VISIT_LEAF, s.module_count);
        for (size_t t = 0; t < u->tensor_count; t++)
            if (strcmp(u->tensors[t].module, name) == 0)
                s.tensor_module[t] = s.module_count;
        s.module_count++;
        if (activations && block && order_rank(name) == MLP_RANK) { // act_fn has hooks of its own
            visit_add(&s, VISIT_LEAF, s.module_count++);
            activations = false;
        }
        if (nested && (i + 1 == count || !same_container(name, u->tensors[first[i + 1]].module)))
            visit_add(&s, VISIT_CLOSE, container);
    }
    if (block)
        visit_add(&s, VISIT_CLOSE, 0);
    return s;
}

static void add_parameters(struct trace *t, const struct model_unit *u, const struct shape *s,
                           uint32_t unit) {
    for (uint32_t k = 0; k < s->module_count; k++) {
        struct module *owner = &t->modules[t->module_count];
        owner->first = t->parameter_count;
        owner->unit = unit;
        for (size_t i = 0; i < u->tensor_count; i++) {
            if (s->tensor_module[i] != k)
                continue;
            for (uint64_t copy = 0; copy < u->tensors[i].count; copy++) {
                struct parameter *p = &t->parameters[t->parameter_count++];
                *p = (struct parameter){.numel = tensor_numel(&u->tensors[i]),
                                        .module = t->module_count,
                                        .gather = -1,
                                        .recent = -1};
                owner->numel += p->numel;
                owner->count++;
            }
        }
        t->module_count++;
    }
}

static void emit(struct trace *t, enum hook hook, uint32_t module) {
    t->events[t->event_count++] = (struct event){hook, module};
    if (hook == HOOK_PRE_FORWARD || hook == HOOK_PRE_BACKWARD)
        t->order[t->order_count++] = module;
}

static void emit_forward(struct trace *t, const struct shape *s, uint32_t base) {
    for (uint32_t i = 0; i < s->visit_count; i++) {
        const struct visit *v = &s->visits[i];
        if (v->kind != VISIT_CLOSE)
            emit(t, HOOK_PRE_FORWARD, base + v->module);
        if (v->kind != VISIT_OPEN)
            emit(t, HOOK_POST_FORWARD, base + v->module);
    }
}

static void emit_backward(struct trace *t, const struct shape *s, uint32_t base) {
    for (uint32_t i = s->visit_count; i-- > 0;) {
        const struct visit *v = &s->visits[i];
        if (v->kind != VISIT_OPEN)
            emit(t, HOOK_PRE_BACKWARD, base + v->module);
        if (v->kind != VISIT_CLOSE)
            emit(t, HOOK_POST_BACKWARD, base + v->module);
    }
}

static bool recomputes(const struct recipe *r, const struct model_unit *u, uint64_t layer) {
    if (u->kind != UNIT_BLOCK)
        return false;
    if (r->recompute == RECOMPUTE_EVERY_N)
        return r->recompute_every > 0 && layer % r->recompute_every == 0;
    return r->recompute == RECOMPUTE_FULL;
}

struct instance {
    const struct model_unit *unit;
    const struct shape *shape;
    uint32_t base;
    uint64_t layer;
};

// Allocates everything and lays out modules and parameters. Returns the unit instances in order.
static struct instance *layout(struct trace *t, uint64_t *instance_count) {
    const struct model *m = t->model;
    struct shape *shapes = arena_array(t->arena, m->unit_count, sizeof *shapes);
    uint64_t modules = 3, parameters = 0, visits = 8;
    for (size_t i = 0; i < m->unit_count; i++) {
        const struct model_unit *u = &m->units[i];
        shapes[i] = shape_of(u, m->architecture != NULL && !u->moe, t->arena);
        modules += u->repeat * shapes[i].module_count;
        visits += u->repeat * shapes[i].visit_count;
        for (size_t k = 0; k < u->tensor_count; k++)
            parameters += u->repeat * u->tensors[k].count;
    }
    t->modules = arena_array(t->arena, modules, sizeof *t->modules);
    t->parameters = arena_array(t->arena, parameters + 1, sizeof *t->parameters);
    t->events = arena_array(t->arena, 6 * visits, sizeof *t->events);
    t->order = arena_array(t->arena, 6 * visits, sizeof *t->order);
    *instance_count = model_instances(m);
    struct instance *all = arena_array(t->arena, *instance_count + 1, sizeof *all);
    t->modules[0].unit = UINT32_MAX;
    t->module_count = 1; // module 0 is the root, without parameters
    uint64_t at = 0, layer = 0;
    for (size_t i = 0; i < m->unit_count; i++)
        for (uint64_t k = 0; k < m->units[i].repeat; k++) {
            bool block = m->units[i].kind == UNIT_BLOCK;
            all[at++] = (struct instance){&m->units[i], &shapes[i], t->module_count, layer};
            layer += block;
            add_parameters(t, &m->units[i], &shapes[i], (uint32_t)at - 1);
        }
    return all;
}

// The module that owns the token table, which a tied head uses again; 0 when there is none.
static uint32_t embedding_module(const struct trace *t, const struct instance *all) {
    const struct model_unit *u = all[0].unit;
    for (size_t i = 0; t->model->unit_count > 0 && i < u->tensor_count; i++)
        if (u->tensors[i].role == TENSOR_EMBEDDING)
            return all[0].base + all[0].shape->tensor_module[i];
    return 0;
}

static void emit_tied_head(struct trace *t, enum hook pre, uint32_t module) {
    if (module == 0)
        return;
    emit(t, pre, module);
    emit(t, pre == HOOK_PRE_FORWARD ? HOOK_POST_FORWARD : HOOK_POST_BACKWARD, module);
}

// Parameterless modules of a Hugging Face model that have hooks too: the base model inside the
// root, and the rotary embedding, whose outputs need no gradient. 0 where a model has neither.
struct wrapper {
    uint32_t base, rotary;
};

static struct wrapper wrap(struct trace *t) {
    struct wrapper w = {0, 0};
    if (t->model->architecture == NULL)
        return w;
    t->modules[t->module_count].unit = t->modules[t->module_count + 1].unit = UINT32_MAX;
    w.base = t->module_count++;
    if (!t->model->learned_positions)
        w.rotary = t->module_count++;
    return w;
}

static void emit_if(struct trace *t, enum hook hook, uint32_t module) {
    if (module != 0)
        emit(t, hook, module);
}

static void record_forward(struct trace *t, const struct instance *all, uint64_t count,
                           const struct wrapper *w, uint32_t tied) {
    uint32_t open = w->base;
    emit(t, HOOK_PRE_FORWARD, 0);
    emit_if(t, HOOK_PRE_FORWARD, w->base);
    for (uint64_t i = 0; i < count; i++) {
        if (all[i].unit->kind == UNIT_HEAD) {
            emit_if(t, HOOK_POST_FORWARD, open);
            open = 0;
        }
        emit_forward(t, all[i].shape, all[i].base);
        if (i == 0) {
            emit_if(t, HOOK_PRE_FORWARD, w->rotary);
            emit_if(t, HOOK_POST_FORWARD, w->rotary);
        }
    }
    emit_if(t, HOOK_POST_FORWARD, open);
    emit_tied_head(t, HOOK_PRE_FORWARD, tied);
    emit(t, HOOK_POST_FORWARD, 0);
}

static void record_backward(struct trace *t, const struct recipe *r, const struct instance *all,
                            uint64_t count, const struct wrapper *w) {
    uint32_t open = 0;
    for (uint64_t i = count; i-- > 0;) {
        if (all[i].unit->kind != UNIT_HEAD && open == 0) {
            emit_if(t, HOOK_PRE_BACKWARD, w->base);
            open = 1;
        }
        if (recomputes(r, all[i].unit, all[i].layer))
            emit_forward(t, all[i].shape, all[i].base);
        emit_backward(t, all[i].shape, all[i].base);
    }
    emit_if(t, HOOK_POST_BACKWARD, w->base);
    emit(t, HOOK_POST_BACKWARD, 0);
}

static void record(struct trace *t, const struct recipe *r) {
    uint64_t count;
    const struct instance *all = layout(t, &count);
    struct wrapper w = wrap(t);
    uint32_t tied = t->model->tied_embeddings ? embedding_module(t, all) : 0;
    record_forward(t, all, count, &w, tied);
    emit(t, HOOK_PRE_BACKWARD, 0);
    emit_tied_head(t, HOOK_PRE_BACKWARD, tied);
    record_backward(t, r, all, count, &w);
    t->order_before = arena_array(t->arena, t->order_count + 1, sizeof *t->order_before);
    t->next_use = arena_array(t->arena, t->order_count + 1, sizeof *t->next_use);
    uint32_t *last = arena_array(t->arena, t->module_count, sizeof *last);
    for (uint32_t i = 0; i < t->module_count; i++)
        last[i] = t->order_count;
    for (uint32_t i = 0; i < t->order_count; i++)
        t->order_before[i + 1] = t->order_before[i] + t->modules[t->order[i]].numel;
    for (uint32_t i = t->order_count; i-- > 0;) {
        t->next_use[i] = last[t->order[i]];
        last[t->order[i]] = i;
    }
}

static void mark_persistent(struct trace *t, const struct recipe *r, struct zero3_traffic *out) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < t->parameter_count; i++) {
        struct parameter *p = &t->parameters[i];
        if (p->numel > r->persistence_elements || total + p->numel > r->model_persistence_elements)
            continue;
        p->persistent = p->available = true;
        total += p->numel;
        out->persistent_parameters++;
    }
    out->persistent_elements = total;
}

static uint32_t size_of(struct zero3_traffic *out, uint64_t numel) {
    uint32_t k = 0;
    while (k < out->size_count && out->sizes[k].numel != numel)
        k++;
    if (k == out->size_count && k < ZERO3_SIZES_MAX)
        out->sizes[out->size_count++].numel = numel;
    return k;
}

// A model has a dozen sizes; beyond the list parameters count without padding.
static void list_sizes(struct trace *t, struct zero3_traffic *out) {
    for (uint32_t i = 0; i < t->parameter_count; i++) {
        struct parameter *p = &t->parameters[i];
        p->size = size_of(out, p->numel);
        if (p->persistent && p->size < ZERO3_SIZES_MAX)
            out->sizes[p->size].persistent++;
    }
}

static void count_size(struct zero3_traffic *out, const struct parameter *p, bool backward) {
    if (p->size >= ZERO3_SIZES_MAX)
        return;
    struct zero3_size *s = &out->sizes[p->size];
    *(backward ? &s->backward : &s->forward) += 1;
}

struct zero3_padding zero3_padding(const struct zero3_traffic *t, uint64_t ranks) {
    struct zero3_padding out = {0};
    for (uint32_t k = 0; k < t->size_count && ranks > 1; k++) {
        const struct zero3_size *s = &t->sizes[k];
        double extra = (double)((ranks - s->numel % ranks) % ranks);
        out.forward += extra * s->forward;
        out.backward += extra * s->backward;
        out.persistent += extra * s->persistent;
    }
    return out;
}

struct zero3_adapters zero3_adapters(const struct model *m, const struct recipe *r,
                                     const struct zero3_traffic *t) {
    struct zero3_adapters out = {0};
    if (r->lora_rank == 0)
        return out;
    struct recipe_adapters all = recipe_adapters(r, m, UINT64_MAX);
    struct recipe_adapters kept = recipe_adapters(r, m, r->persistence_elements);
    if (t->persistent_elements + kept.elements > r->model_persistence_elements)
        kept = (struct recipe_adapters){0};
    out.persistent_parameters = (double)kept.count;
    out.persistent_elements = (double)kept.elements;
    if (m->parameters > t->persistent_elements)
        out.per_element = (double)(all.elements - kept.elements) /
                          (double)(m->parameters - t->persistent_elements);
    return out;
}

// Next (parameter, step) of the recorded trace, or NULL at its end.
static struct parameter *queue_pop(struct trace *t, uint32_t *step) {
    while (t->cursor_step < t->order_count) {
        const struct module *m = &t->modules[t->order[t->cursor_step]];
        if (t->cursor_parameter < m->count) {
            *step = t->cursor_step;
            return &t->parameters[m->first + t->cursor_parameter++];
        }
        t->cursor_step++;
        t->cursor_parameter = 0;
    }
    return NULL;
}

static void count_gather(struct trace *t, struct zero3_traffic *out, uint64_t elements,
                         bool backward) {
    if (elements == 0)
        return;
    t->live += elements;
    out->calls++;
    out->forward_calls += !backward;
    *(backward ? &out->backward_elements : &out->forward_elements) += elements;
    if (elements > out->largest_handle_elements)
        out->largest_handle_elements = elements;
}

static uint64_t demand_fetch(struct trace *t, const struct module *m, struct zero3_traffic *out,
                             bool backward) {
    uint64_t need = 0;
    for (uint32_t i = m->first; i < m->first + m->count; i++)
        if (!t->parameters[i].available) {
            t->parameters[i].available = true;
            t->parameters[i].gather = (int64_t)out->calls;
            count_size(out, &t->parameters[i], backward);
            need += t->parameters[i].numel;
        }
    count_gather(t, out, need, backward);
    return need;
}

// Parameters of this module that the prefetcher has not passed yet leave the queue now.
static void discard_own(struct trace *t, const struct module *m, int64_t now) {
    uint32_t fresh = 0, step;
    for (uint32_t i = m->first; i < m->first + m->count; i++)
        fresh += t->parameters[i].recent < now;
    while (fresh > 0) {
        struct parameter *p = queue_pop(t, &step);
        if (!p)
            return;
        p->recent = step;
        fresh--;
    }
}

static uint64_t prefetch(struct trace *t, const struct recipe *r, struct zero3_traffic *out,
                         bool backward) {
    int64_t room = (int64_t)r->max_live_elements - (int64_t)t->live;
    // Sequential gathers take one parameter at a time: DeepSpeed sets the quota to 1.
    int64_t limit = r->allgather_sequential ? 1 : (int64_t)r->prefetch_bucket_elements;
    if (room < limit)
        limit = room;
    int64_t taken = 0;
    uint32_t step;
    while (taken < limit) {
        struct parameter *p = queue_pop(t, &step);
        if (!p)
            break;
        if ((int64_t)step > p->recent)
            p->recent = step;
        if (!p->available) {
            p->available = true;
            p->gather = (int64_t)out->calls;
            count_size(out, p, backward);
            taken += (int64_t)p->numel;
        }
    }
    count_gather(t, out, (uint64_t)taken, backward);
    return (uint64_t)taken;
}

// `now` is the trace position after this module's pre-hook; `next` its next use there.
static void release(struct trace *t, const struct module *m, uint32_t now, uint32_t next,
                    uint64_t max_reuse) {
    bool reused = next < t->order_count && t->order_before[next] - t->order_before[now] < max_reuse;
    if (reused)
        return;
    for (uint32_t i = m->first; i < m->first + m->count; i++) {
        struct parameter *p = &t->parameters[i];
        if (p->persistent || !p->available || p->recent > (int64_t)now)
            continue;
        p->available = false;
        t->live -= p->numel;
    }
}

static uint32_t use_after(const struct trace *t, uint32_t module, uint32_t now, uint32_t *latest) {
    uint32_t at = latest[module];
    while (at < now)
        at = t->next_use[at];
    latest[module] = at;
    return at;
}

static void report(const struct trace *t, const struct module *m, struct zero3_hook *h) {
    h->unit = m->unit;
    h->live_elements = t->live;
    h->newest_gather = -1;
    for (uint32_t i = m->first; i < m->first + m->count; i++)
        if (t->parameters[i].gather > h->newest_gather)
            h->newest_gather = t->parameters[i].gather;
    t->watch->hook(t->watch->context, h);
}

static void replay(struct trace *t, const struct recipe *r, struct zero3_traffic *out) {
    uint32_t *latest = arena_array(t->arena, t->module_count, sizeof *latest);
    for (uint32_t i = t->order_count; i-- > 0;)
        latest[t->order[i]] = i;
    uint32_t now = 0;
    bool backward = false;
    for (uint32_t i = 0; i < t->event_count; i++) {
        const struct event *v = &t->events[i];
        const struct module *m = &t->modules[v->module];
        if (v->hook == HOOK_PRE_FORWARD || v->hook == HOOK_PRE_BACKWARD) {
            backward = backward || v->hook == HOOK_PRE_BACKWARD;
            struct zero3_hook h = {.backward = backward};
            h.demand_elements = demand_fetch(t, m, out, backward);
            discard_own(t, m, now);
            h.prefetch_elements = prefetch(t, r, out, backward);
            if (t->watch)
                report(t, m, &h);
            now++;
            if (t->live > out->peak_live_elements)
                out->peak_live_elements = t->live;
            if (!backward && t->live > out->forward_peak_elements)
                out->forward_peak_elements = t->live;
        } else {
            release(t, m, now, use_after(t, v->module, now, latest), r->max_reuse_elements);
        }
    }
}

bool zero3_observe(const struct model *m, const struct recipe *r, struct arena *scratch,
                   const struct zero3_watch *watch, struct zero3_traffic *out, struct err *e) {
    struct trace t = {.model = m, .arena = scratch, .watch = watch};
    struct zero3_traffic result = {0};
    if (m->unit_count == 0)
        return err_set(e, ERR_INPUT, "%s: the model has no parameters to gather",
                       m->name ? m->name : "model");
    record(&t, r);
    mark_persistent(&t, r, &result);
    list_sizes(&t, &result);
    for (uint32_t i = 0; i < t.parameter_count; i++)
        if (t.parameters[i].numel > result.largest_parameter_elements)
            result.largest_parameter_elements = t.parameters[i].numel;
    replay(&t, r, &result);
    *out = result;
    return true;
}

struct hook_list {
    struct arena *arena;
    struct zero3_hook *hooks;
    uint32_t count, capacity;
};

static void list_hook(void *context, const struct zero3_hook *h) {
    struct hook_list *l = context;
    if (l->count == l->capacity) {
        l->capacity = l->capacity ? 2 * l->capacity : 1024;
        struct zero3_hook *bigger = arena_array_raw(l->arena, l->capacity, sizeof *bigger);
        if (l->count > 0)
            memcpy(bigger, l->hooks, l->count * sizeof *bigger);
        l->hooks = bigger;
    }
    l->hooks[l->count++] = *h;
}

bool zero3_record(const struct model *m, const struct recipe *r, struct arena *a,
                  struct arena *scratch, struct zero3_traffic *out, struct err *e) {
    struct hook_list list = {.arena = scratch};
    struct zero3_watch watch = {.hook = list_hook, .context = &list};
    if (!zero3_observe(m, r, scratch, &watch, out, e))
        return false;
    struct zero3_hook *hooks = arena_array_raw(a, list.count + 1, sizeof *hooks);
    if (list.count > 0)
        memcpy(hooks, list.hooks, list.count * sizeof *hooks);
    out->hooks = hooks;
    out->hook_count = list.count;
    return true;
}

bool zero3_lookup(const struct model *m, const struct recipe *r, struct arena *scratch,
                  struct zero3_traffic *out, struct err *e) {
    if (r->zero3 == NULL)
        return zero3_simulate(m, r, scratch, out, e);
    *out = *r->zero3;
    return true;
}

bool zero3_simulate(const struct model *m, const struct recipe *r, struct arena *scratch,
                    struct zero3_traffic *out, struct err *e) {
    return zero3_observe(m, r, scratch, NULL, out, e);
}
