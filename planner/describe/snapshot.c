// SPDX-License-Identifier: Apache-2.0
// The form: pytorch torch/cuda/memory.py (_snapshot), torch/csrc/cuda/memory_snapshot.cpp.
#include "describe/snapshot.h"

#include "base/units.h"
#include "describe/snapshot_private.h"
#include "describe/tool_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool snapshot_sniff(const char *head) {
    return strstr(head, "\"segments\"") || strstr(head, "\"device_traces\"");
}

static bool add(const struct json_stream *s, struct snapshot_items *list,
                const struct snapshot_event *x, struct err *e) {
    if (list->count == SNAPSHOT_ITEMS_MAX)
        return json_stream_fail(s, e,
                                "more than %d events; record fewer: "
                                "torch.cuda.memory._record_memory_history(max_entries=1000000)",
                                SNAPSHOT_ITEMS_MAX);
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 1024;
        struct snapshot_event *more = realloc(list->items, capacity * sizeof *more);
        if (more == NULL)
            return err_set(e, ERR_RESOURCE, "%s: out of memory", json_stream_name(s));
        list->items = more;
        list->capacity = capacity;
    }
    list->items[list->count++] = *x;
    return true;
}

// The next key of an object, or *done at its end; then the first token of its value.
static bool next_member(struct json_stream *s, char *key, size_t size, enum json_token *value,
                        bool *done, struct err *e) {
    enum json_token t;
    if (!json_stream_next(s, &t, e))
        return false;
    *done = t == JSON_TOKEN_OBJECT_END;
    if (*done)
        return true;
    snprintf(key, size, "%s", json_stream_text(s));
    return json_stream_next(s, value, e);
}

static bool read_frame(struct json_stream *s, enum snapshot_class *out, struct err *e) {
    char key[32], file[512] = "", function[512] = "";
    enum json_token t = JSON_TOKEN_NULL;
    for (bool done = false;;) {
        if (!next_member(s, key, sizeof key, &t, &done, e))
            return false;
        if (done)
            break;
        if (t == JSON_TOKEN_STRING && strcmp(key, "filename") == 0)
            snprintf(file, sizeof file, "%.511s", json_stream_text(s));
        else if (t == JSON_TOKEN_STRING && strcmp(key, "name") == 0)
            snprintf(function, sizeof function, "%.511s", json_stream_text(s));
        else if (!json_stream_skip(s, t, e))
            return false;
    }
    if (*out == SNAPSHOT_UNKNOWN)
        *out = snapshot_frame_class(file, function);
    return true;
}

static bool read_frames(struct json_stream *s, enum snapshot_class *out, struct err *e) {
    for (enum json_token t;;) {
        if (!json_stream_next(s, &t, e))
            return false;
        if (t == JSON_TOKEN_ARRAY_END)
            return true;
        if (t == JSON_TOKEN_OBJECT ? !read_frame(s, out, e) : !json_stream_skip(s, t, e))
            return false;
    }
}

// ---- history ------------------------------------------------------------------------------------

static enum snapshot_action action_of(const char *word) {
    static const struct {
        const char *word;
        enum snapshot_action action;
    } words[] = {{"alloc", ACTION_ALLOC},
                 {"free_requested", ACTION_FREE},
                 {"free_completed", ACTION_COMPLETED},
                 {"segment_alloc", ACTION_RESERVE},
                 {"segment_map", ACTION_RESERVE},
                 {"segment_free", ACTION_RELEASE},
                 {"segment_unmap", ACTION_RELEASE},
                 {"oom", ACTION_OOM}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i].word) == 0)
            return words[i].action;
    return ACTION_OTHER;
}

static bool bad_size(const struct json_stream *s, const char *what, struct err *e) {
    return json_stream_fail(s, e, "%s is no number of bytes", what);
}

// The allocator counts a block as allocated until its free is requested; a side stream that still
// uses it delays only the completion (c10/cuda/CUDACachingAllocator.cpp, free).
static void forget_completed(struct snapshot_log *log) {
    log->has_requests = true;
    for (size_t i = 0; i < log->history.count; i++)
        if (log->history.items[i].action == ACTION_FREE)
            log->history.items[i].action = ACTION_COMPLETED;
}

static bool read_event(struct json_stream *s, struct snapshot_log *log, uint8_t device,
                       struct err *e) {
    struct snapshot_event x = {.action = ACTION_OTHER, .device = device, .default_stream = true};
    enum snapshot_class class = SNAPSHOT_UNKNOWN;
    enum json_token t = JSON_TOKEN_NULL;
    char key[32];
    double time_us = NAN;
    bool has_size = false;
    uint64_t v;
    for (bool done = false;;) {
        if (!next_member(s, key, sizeof key, &t, &done, e))
            return false;
        if (done)
            break;
        if (t == JSON_TOKEN_STRING && strcmp(key, "action") == 0)
            x.action = (uint8_t)action_of(json_stream_text(s));
        else if (t == JSON_TOKEN_NUMBER && strcmp(key, "size") == 0)
            has_size = json_stream_u64(s, &x.bytes);
        else if (t == JSON_TOKEN_NUMBER && strcmp(key, "addr") == 0)
            json_stream_u64(s, &x.address);
        else if (t == JSON_TOKEN_NUMBER && strcmp(key, "stream") == 0)
            x.default_stream = !json_stream_u64(s, &v) || v == 0;
        else if (t == JSON_TOKEN_NUMBER && strcmp(key, "time_us") == 0)
            time_us = json_stream_number(s);
        else if (t == JSON_TOKEN_ARRAY && strcmp(key, "frames") == 0) {
            if (!read_frames(s, &class, e))
                return false;
        } else if (!json_stream_skip(s, t, e))
            return false;
    }
    if (x.action == ACTION_FREE && !log->has_requests)
        forget_completed(log);
    if (x.action == ACTION_COMPLETED && !log->has_requests)
        x.action = ACTION_FREE;
    if (x.action >= ACTION_COMPLETED)
        return true;
    if (x.action != ACTION_OOM && (!has_size || x.bytes > INT64_MAX))
        return bad_size(s, "the size of an event", e);
    if (!log->has_origin && isfinite(time_us)) {
        log->origin_us = time_us;
        log->has_origin = true;
    }
    x.time_s = (float)((time_us - log->origin_us) / UNITS_MEGA);
    x.class = (uint8_t) class;
    return add(s, &log->history, &x, e);
}

static bool read_traces(struct json_stream *s, struct snapshot_log *log, struct err *e) {
    enum json_token t;
    for (unsigned device = 0;; device++) {
        if (!json_stream_next(s, &t, e))
            return false;
        if (t == JSON_TOKEN_ARRAY_END)
            return true;
        if (t != JSON_TOKEN_ARRAY)
            return json_stream_fail(s, e, "device_traces[%u] is no array", device);
        if (device == SNAPSHOT_DEVICES_MAX)
            return json_stream_fail(s, e, "more than %d devices", SNAPSHOT_DEVICES_MAX);
        for (;;) {
            if (!json_stream_next(s, &t, e))
                return false;
            if (t == JSON_TOKEN_ARRAY_END)
                break;
            if (t != JSON_TOKEN_OBJECT)
                return json_stream_fail(s, e, "an event of device_traces is no object");
            if (!read_event(s, log, (uint8_t)device, e))
                return false;
        }
    }
}

// ---- segments and their live blocks -------------------------------------------------------------

static bool read_block(struct json_stream *s, uint64_t address, struct snapshot_event *out,
                       bool *live, uint64_t *size, struct err *e) {
    struct snapshot_event x = {.address = address, .action = ACTION_ALLOC};
    enum snapshot_class class = SNAPSHOT_UNKNOWN;
    enum json_token t = JSON_TOKEN_NULL;
    uint64_t requested = UINT64_MAX;
    char key[32];
    *size = UINT64_MAX;
    for (bool done = false;;) {
        if (!next_member(s, key, sizeof key, &t, &done, e))
            return false;
        if (done)
            break;
        if (t == JSON_TOKEN_STRING && strcmp(key, "state") == 0)
            *live = strcmp(json_stream_text(s), "active_allocated") == 0;
        else if (t == JSON_TOKEN_NUMBER && strcmp(key, "size") == 0)
            json_stream_u64(s, size);
        else if (t == JSON_TOKEN_NUMBER && strcmp(key, "requested_size") == 0)
            json_stream_u64(s, &requested);
        else if (t == JSON_TOKEN_NUMBER && strcmp(key, "address") == 0)
            json_stream_u64(s, &x.address);
        else if (t == JSON_TOKEN_ARRAY && strcmp(key, "frames") == 0) {
            if (!read_frames(s, &class, e))
                return false;
        } else if (!json_stream_skip(s, t, e))
            return false;
    }
    if (*size > INT64_MAX || (requested != UINT64_MAX && requested > INT64_MAX))
        return bad_size(s, "the size of a block", e);
    x.bytes = requested != UINT64_MAX ? requested : *size;
    x.class = (uint8_t) class;
    *out = x;
    return true;
}

struct segment {
    uint64_t address, total, device, stream;
    size_t first_block;
};

// Addresses of blocks follow from the segment's when they are not given (torch before 2.1).
static bool read_blocks(struct json_stream *s, struct snapshot_log *log, struct segment *g,
                        struct err *e) {
    uint64_t offset = 0;
    for (enum json_token t;;) {
        struct snapshot_event x;
        uint64_t size;
        bool live = false;
        if (!json_stream_next(s, &t, e))
            return false;
        if (t == JSON_TOKEN_ARRAY_END)
            return true;
        if (t != JSON_TOKEN_OBJECT)
            return json_stream_fail(s, e, "a block of a segment is no object");
        if (!read_block(s, g->address + offset, &x, &live, &size, e))
            return false;
        offset += size;
        if (live && !add(s, &log->blocks, &x, e))
            return false;
    }
}

static bool read_segment(struct json_stream *s, struct snapshot_log *log, struct err *e) {
    struct segment g = {.first_block = log->blocks.count};
    enum json_token t = JSON_TOKEN_NULL;
    char key[32];
    bool has_total = false;
    for (bool done = false;;) {
        if (!next_member(s, key, sizeof key, &t, &done, e))
            return false;
        if (done)
            break;
        if (t == JSON_TOKEN_NUMBER && strcmp(key, "address") == 0)
            json_stream_u64(s, &g.address);
        else if (t == JSON_TOKEN_NUMBER && strcmp(key, "total_size") == 0)
            has_total = json_stream_u64(s, &g.total);
        else if (t == JSON_TOKEN_NUMBER && strcmp(key, "device") == 0)
            json_stream_u64(s, &g.device);
        else if (t == JSON_TOKEN_NUMBER && strcmp(key, "stream") == 0)
            json_stream_u64(s, &g.stream);
        else if (t == JSON_TOKEN_ARRAY && strcmp(key, "blocks") == 0) {
            if (!read_blocks(s, log, &g, e))
                return false;
        } else if (!json_stream_skip(s, t, e))
            return false;
    }
    if (!has_total || g.total > INT64_MAX)
        return bad_size(s, "total_size of a segment", e);
    if (g.device >= SNAPSHOT_DEVICES_MAX)
        return json_stream_fail(s, e, "device %llu of a segment", (unsigned long long)g.device);
    log->reserved_bytes[g.device] += g.total;
    for (size_t i = g.first_block; i < log->blocks.count; i++) {
        log->blocks.items[i].device = (uint8_t)g.device;
        log->blocks.items[i].default_stream = g.stream == 0;
    }
    return true;
}

static bool read_segments(struct json_stream *s, struct snapshot_log *log, struct err *e) {
    for (enum json_token t;;) {
        if (!json_stream_next(s, &t, e))
            return false;
        if (t == JSON_TOKEN_ARRAY_END)
            return true;
        if (t != JSON_TOKEN_OBJECT)
            return json_stream_fail(s, e, "an element of segments is no object");
        if (!read_segment(s, log, e))
            return false;
    }
}

// ---- the file -----------------------------------------------------------------------------------

static bool read_top(struct json_stream *s, struct snapshot_log *log, struct err *e) {
    enum json_token t = JSON_TOKEN_NULL;
    char key[64];
    if (!json_stream_next(s, &t, e))
        return false;
    if (t == JSON_TOKEN_ARRAY) { // torch.cuda.memory_snapshot(): segments alone
        log->has_segments = true;
        return read_segments(s, log, e) && json_stream_next(s, &t, e);
    }
    if (t != JSON_TOKEN_OBJECT)
        return json_stream_fail(s, e, "expected an object with segments");
    for (bool done = false;;) {
        bool ok;
        if (!next_member(s, key, sizeof key, &t, &done, e))
            return false;
        if (done)
            break;
        if (t == JSON_TOKEN_ARRAY && strcmp(key, "segments") == 0) {
            log->has_segments = true;
            ok = read_segments(s, log, e);
        } else if (t == JSON_TOKEN_ARRAY && strcmp(key, "device_traces") == 0) {
            log->has_traces = true;
            ok = read_traces(s, log, e);
        } else {
            ok = json_stream_skip(s, t, e);
        }
        if (!ok)
            return false;
    }
    if (!log->has_segments)
        return json_stream_fail(s, e, "no segments: not a memory snapshot");
    return json_stream_next(s, &t, e);
}

struct target {
    struct arena *a;
    struct warnings *w;
    struct snapshot *out;
};

static bool read_snapshot(struct json_stream *s, void *context, struct err *e) {
    const struct target *to = context;
    struct snapshot_log log = {0};
    bool ok =
        read_top(s, &log, e) && snapshot_sum(&log, json_stream_name(s), to->a, to->w, to->out, e);
    free(log.history.items);
    free(log.blocks.items);
    return ok;
}

bool snapshot_parse(const char *text, size_t bytes, const char *name, struct arena *a,
                    struct warnings *w, struct snapshot *out, struct err *e) {
    struct target to = {a, w, out};
    const struct tool_json_text t = {text, name, bytes};
    return tool_json_parse(&t, read_snapshot, &to, e);
}

bool snapshot_read(const char *path, struct arena *a, struct warnings *w, struct snapshot *out,
                   struct err *e) {
    struct target to = {a, w, out};
    return tool_json_read(path, read_snapshot, &to, e);
}
