// SPDX-License-Identifier: Apache-2.0
#include "describe/snapshot_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Addresses to positions in the history; open addressing, entries are never removed.
struct places {
    uint64_t *keys;
    uint32_t *values; // position + 1; 0 = not live
    size_t mask;
};

static size_t slot(const struct places *p, uint64_t key) {
    size_t i = (size_t)((key >> 8) * 0x9e3779b97f4a7c15ULL >> 20) & p->mask;
    while (p->keys[i] != 0 && p->keys[i] != key + 1)
        i = (i + 1) & p->mask;
    p->keys[i] = key + 1;
    return i;
}

static bool places_init(struct places *p, size_t items) {
    size_t size = 16;
    while (size < 2 * items + 2)
        size *= 2;
    p->mask = size - 1;
    p->keys = calloc(size, sizeof *p->keys);
    p->values = calloc(size, sizeof *p->values);
    return p->keys && p->values;
}

struct tally {
    const struct snapshot_log *log;
    uint8_t device;
    int64_t now[SNAPSHOT_CLASS_COUNT], start[SNAPSHOT_CLASS_COUNT], framed, start_framed;
    struct places places;
    uint8_t *classes; // of each event of the history, settled
};

static enum snapshot_class settled(const struct snapshot_event *x, bool kept) {
    if (x->class != SNAPSHOT_UNKNOWN)
        return (enum snapshot_class)x->class;
    if (kept)
        return SNAPSHOT_KEPT;
    return x->default_stream ? SNAPSHOT_UNKNOWN : SNAPSHOT_SIDE_STREAM;
}

static void start_with(struct tally *t, enum snapshot_class class, uint64_t bytes, bool framed) {
    t->start[class] += (int64_t)bytes;
    t->start_framed += framed ? (int64_t)bytes : 0;
}

// What was alive before the history: freed in it without being allocated in it, or still there.
static void find_start(struct tally *t) {
    const struct snapshot_items *h = &t->log->history;
    for (size_t i = 0; i < h->count; i++) {
        const struct snapshot_event *x = &h->items[i];
        if (x->device != t->device || x->action > ACTION_FREE)
            continue;
        size_t at = slot(&t->places, x->address);
        t->classes[i] = (uint8_t)settled(x, false);
        if (x->action == ACTION_ALLOC) {
            t->places.values[at] = (uint32_t)i + 1;
        } else if (t->places.values[at]) {
            t->classes[i] = t->classes[t->places.values[at] - 1];
            t->places.values[at] = 0;
        } else {
            t->classes[i] = SNAPSHOT_UNKNOWN; // the stack of a free says nothing
            start_with(t, SNAPSHOT_UNKNOWN, x->bytes, false);
        }
    }
    for (size_t i = 0; i < t->log->blocks.count; i++) {
        const struct snapshot_event *x = &t->log->blocks.items[i];
        if (x->device == t->device && t->places.values[slot(&t->places, x->address)] == 0)
            start_with(t, settled(x, h->count > 0), x->bytes, x->class != SNAPSHOT_UNKNOWN);
    }
}

static int64_t total(const int64_t *bytes) {
    int64_t sum = 0;
    for (size_t i = 0; i < SNAPSHOT_CLASS_COUNT; i++)
        sum += bytes[i];
    return sum;
}

static void note_peak(const struct tally *t, double at_s, struct snapshot *out) {
    int64_t sum = total(t->now);
    for (size_t i = 0; i < SNAPSHOT_CLASS_COUNT; i++)
        if (t->now[i] > (int64_t)out->own_peak_bytes[i])
            out->own_peak_bytes[i] = (uint64_t)t->now[i];
    if (sum <= (int64_t)out->allocated_peak_bytes)
        return;
    out->allocated_peak_bytes = (uint64_t)sum;
    out->peak_framed_bytes = (uint64_t)t->framed;
    out->peak_at_s = at_s;
    for (size_t i = 0; i < SNAPSHOT_CLASS_COUNT; i++)
        out->peak_bytes[i] = (uint64_t)t->now[i];
}

static void replay(struct tally *t, struct snapshot *out) {
    const struct snapshot_items *h = &t->log->history;
    memcpy(t->now, t->start, sizeof t->now);
    t->framed = t->start_framed;
    out->peak_at_s = NAN;
    out->allocated_start_bytes = (uint64_t)total(t->now);
    note_peak(t, h->count ? 0 : NAN, out);
    memset(t->places.values, 0, (t->places.mask + 1) * sizeof *t->places.values);
    for (size_t i = 0; i < h->count; i++) {
        const struct snapshot_event *x = &h->items[i];
        if (x->device != t->device || x->action > ACTION_FREE)
            continue;
        size_t at = slot(&t->places, x->address);
        bool alloc = x->action == ACTION_ALLOC, known = t->places.values[at] != 0;
        const struct snapshot_event *from = known ? &h->items[t->places.values[at] - 1] : x;
        int64_t bytes = (int64_t)(alloc ? x->bytes : from->bytes);
        bool framed =
            alloc ? x->class != SNAPSHOT_UNKNOWN : known && from->class != SNAPSHOT_UNKNOWN;
        t->now[t->classes[i]] += alloc ? bytes : -bytes;
        t->framed += !framed ? 0 : alloc ? bytes : -bytes;
        t->places.values[at] = alloc ? (uint32_t)i + 1 : 0;
        out->allocations += alloc;
        if (alloc)
            note_peak(t, x->time_s, out);
    }
    out->allocated_end_bytes = (uint64_t)total(t->now);
}

static void reserved(const struct tally *t, struct snapshot *out) {
    const struct snapshot_items *h = &t->log->history;
    int64_t change = 0, most = 0;
    for (size_t i = 0; i < h->count; i++) {
        const struct snapshot_event *x = &h->items[i];
        if (x->device != t->device)
            continue;
        out->ooms += x->action == ACTION_OOM;
        if (x->action == ACTION_RESERVE)
            change += (int64_t)x->bytes;
        if (x->action == ACTION_RELEASE)
            change -= (int64_t)x->bytes;
        most = change > most ? change : most;
    }
    out->reserved_end_bytes = t->log->reserved_bytes[t->device];
    int64_t peak = (int64_t)out->reserved_end_bytes - change + most;
    out->reserved_peak_bytes = peak > 0 ? (uint64_t)peak : out->reserved_end_bytes;
}

static bool check_sizes(const struct snapshot_log *log, const char *name, struct err *e) {
    double bytes = 0; // sums stay far from 2^63
    for (size_t i = 0; i < log->history.count; i++)
        bytes += (double)log->history.items[i].bytes;
    for (size_t i = 0; i < log->blocks.count; i++)
        bytes += (double)log->blocks.items[i].bytes;
    for (size_t i = 0; i < SNAPSHOT_DEVICES_MAX; i++)
        bytes += (double)log->reserved_bytes[i];
    return bytes < (double)(INT64_MAX / 4) ||
           err_set(e, ERR_INPUT, "%s: its sizes sum up to more than 2^61 bytes", name);
}

static void warn(const struct snapshot *s, struct arena *a, struct warnings *w) {
    if (!s->has_history)
        warnings_add(w, a, WARNING_ASSUMED, s->name,
                     "no history (torch.cuda.memory._record_memory_history() was not on): what is "
                     "allocated now stands for the peak");
    if (s->devices > 1)
        warnings_add(w, a, WARNING_LEFT_OUT, s->name,
                     arena_printf(a,
                                  "%" PRIu64 " devices hold memory; device %" PRIu64
                                  ", which holds most, is reported",
                                  s->devices, s->device));
}

bool snapshot_sum(const struct snapshot_log *log, const char *name, struct arena *a,
                  struct warnings *w, struct snapshot *out, struct err *e) {
    struct snapshot s = {.name = arena_strdup(a, name), .events = log->history.count};
    struct tally *t = arena_alloc(a, sizeof *t);
    bool ok = false;
    if (!check_sizes(log, name, e))
        return false;
    *t = (struct tally){.log = log};
    for (size_t i = 0; i < SNAPSHOT_DEVICES_MAX; i++) {
        s.devices += log->reserved_bytes[i] > 0;
        if (log->reserved_bytes[i] > log->reserved_bytes[t->device])
            t->device = (uint8_t)i;
    }
    if (s.devices == 0 && log->history.count == 0)
        return err_set(e, ERR_INPUT, "%s: no segment and no history: nothing was allocated", name);
    s.device = t->device;
    s.has_history = log->history.count > 0;
    t->classes = calloc(log->history.count + 1, 1);
    if (t->classes && places_init(&t->places, log->history.count + log->blocks.count)) {
        find_start(t);
        replay(t, &s);
        reserved(t, &s);
        warn(&s, a, w);
        *out = s;
        ok = true;
    } else {
        err_set(e, ERR_RESOURCE, "%s: out of memory", name);
    }
    free(t->classes);
    free(t->places.keys);
    free(t->places.values);
    return ok;
}
