// SPDX-License-Identifier: Apache-2.0
// Kineto's format: pytorch/kineto libkineto/src/output_json.cpp.
#include "describe/profile.h"

#include "describe/profile_private.h"
#include "describe/tool_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS_MAX = 4 << 20 };

struct event {
    char phase, name[1024], category[64], collective[64], dtype[32];
    double ts_us, dur_us, in_elements, out_elements;
    uint64_t device, stream;
    bool has_device, has_stream;
};

bool profile_sniff(const char *head) {
    return strstr(head, "\"traceEvents\"") || strstr(head, "\"deviceProperties\"") ||
           strstr(head, "\"schemaVersion\"") || (head[0] == '[' && strstr(head, "\"ph\""));
}

// ---- one event ----------------------------------------------------------------------------------

static void keep(const struct json_stream *s, char *to, size_t size) {
    snprintf(to, size, "%s", json_stream_text(s));
}

static void take_text(const struct json_stream *s, const char *key, bool args, struct event *x) {
    if (args && strcmp(key, "Collective name") == 0)
        keep(s, x->collective, sizeof x->collective);
    else if (args && strcmp(key, "dtype") == 0)
        keep(s, x->dtype, sizeof x->dtype);
    else if (args)
        return;
    else if (strcmp(key, "ph") == 0)
        x->phase = json_stream_text(s)[0];
    else if (strcmp(key, "cat") == 0)
        keep(s, x->category, sizeof x->category);
    else if (strcmp(key, "name") == 0)
        keep(s, x->name, sizeof x->name);
}

static void take_number(const struct json_stream *s, const char *key, bool args, struct event *x) {
    double v = json_stream_number(s);
    if (args && strcmp(key, "device") == 0)
        x->has_device = json_stream_u64(s, &x->device);
    else if (args && strcmp(key, "stream") == 0)
        x->has_stream = json_stream_u64(s, &x->stream);
    else if (args && strcmp(key, "In msg nelems") == 0)
        x->in_elements = v;
    else if (args && strcmp(key, "Out msg nelems") == 0)
        x->out_elements = v;
    else if (!args && strcmp(key, "ts") == 0)
        x->ts_us = v;
    else if (!args && strcmp(key, "dur") == 0)
        x->dur_us = v;
}

// Members up to the closing brace, which has not been read.
static bool read_members(struct json_stream *s, struct event *x, bool args, struct err *e) {
    char key[64];
    for (enum json_token t;;) {
        if (!json_stream_next(s, &t, e))
            return false;
        if (t == JSON_TOKEN_OBJECT_END)
            return true;
        keep(s, key, sizeof key);
        if (!json_stream_next(s, &t, e))
            return false;
        if (t == JSON_TOKEN_STRING)
            take_text(s, key, args, x);
        else if (t == JSON_TOKEN_NUMBER)
            take_number(s, key, args, x);
        else if (t == JSON_TOKEN_OBJECT && !args && strcmp(key, "args") == 0) {
            if (!read_members(s, x, true, e))
                return false;
        } else if (!json_stream_skip(s, t, e))
            return false;
    }
}

// ---- what an event means ------------------------------------------------------------------------

static double element_bytes(const char *dtype) {
    static const struct {
        const char *name;
        double bytes;
    } types[] = {{"BFloat16", 2}, {"Half", 2},  {"Float", 4},         {"Double", 8},
                 {"Byte", 1},     {"Char", 1},  {"Int", 4},           {"Long", 8},
                 {"Bool", 1},     {"Short", 2}, {"Float8_e4m3fn", 1}, {"Float8_e5m2", 1}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(dtype, types[i].name) == 0)
            return types[i].bytes;
    return NAN;
}

// The full buffer: the larger of what goes in and what comes out (record_param_comms).
static double payload_bytes(const struct event *x) {
    return fmax(x->in_elements, x->out_elements) * element_bytes(x->dtype);
}

// False: not something that ran on a GPU.
static bool classify(const struct event *x, enum profile_class *out) {
    bool copy = strcmp(x->category, "gpu_memcpy") == 0 || strcmp(x->category, "Memcpy") == 0;
    bool set = strcmp(x->category, "gpu_memset") == 0 || strcmp(x->category, "Memset") == 0;
    if (copy)
        *out = strstr(x->name, "HtoD")   ? PROFILE_COPY_H2D
               : strstr(x->name, "DtoH") ? PROFILE_COPY_D2H
                                         : PROFILE_COPY_D2D;
    else if (set)
        *out = PROFILE_COPY_D2D;
    else if (strcmp(x->category, "kernel") == 0 || strcmp(x->category, "Kernel") == 0)
        *out = profile_kernel_class(x->name, x->collective[0] ? x->collective : NULL);
    else
        return false;
    return true;
}

static bool add_edges(struct profile_log *log, const struct event *x, enum profile_class class,
                      uint16_t stream) {
    if (log->edge_count + 2 > log->edge_capacity) {
        size_t capacity = log->edge_capacity ? 2 * log->edge_capacity : 4096;
        struct profile_edge *more = realloc(log->edges, capacity * sizeof *more);
        if (more == NULL)
            return false;
        log->edges = more;
        log->edge_capacity = capacity;
    }
    if (!log->has_origin) {
        log->origin_us = x->ts_us;
        log->has_origin = true;
    }
    double at = x->ts_us - log->origin_us;
    float bytes = profile_is_comm(class) ? (float)payload_bytes(x) : 0;
    log->edges[log->edge_count++] = (struct profile_edge){at, bytes, stream, (uint8_t) class, 1};
    log->edges[log->edge_count++] =
        (struct profile_edge){at + x->dur_us, 0, stream, (uint8_t) class, -1};
    return true;
}

// Streams beyond the table share its last place.
static uint16_t stream_index(struct profile_log *log, uint64_t number) {
    for (size_t i = 0; i < log->stream_count; i++)
        if (log->streams[i] == number)
            return (uint16_t)i;
    if (log->stream_count == PROFILE_STREAMS_MAX)
        return PROFILE_STREAMS_MAX - 1;
    log->streams[log->stream_count] = number;
    return (uint16_t)log->stream_count++;
}

static bool take_kernel(const struct json_stream *s, struct profile_log *log, const struct event *x,
                        enum profile_class class, struct err *e) {
    if (!(x->ts_us >= 0) || !(x->dur_us >= 0) || !isfinite(x->ts_us + x->dur_us))
        return json_stream_fail(s, e, "'%.80s' has no time (ts and dur, microseconds)", x->name);
    if (!log->has_device) {
        log->device = x->device;
        log->has_device = true;
    }
    if (x->device != log->device) {
        log->other_devices++;
        return true;
    }
    if (log->edge_count >= 2 * (size_t)KERNELS_MAX)
        return json_stream_fail(s, e, "more than %d kernels; profile fewer steps", KERNELS_MAX);
    return add_edges(log, x, class, stream_index(log, x->stream)) ||
           err_set(e, ERR_RESOURCE, "%s: out of memory", json_stream_name(s));
}

// "ProfilerStep#12": one per stream on the GPU, one per thread on the CPU.
static bool take_step(const struct json_stream *s, struct profile_log *log, const struct event *x,
                      struct err *e) {
    unsigned long long number;
    bool gpu = strcmp(x->category, "gpu_user_annotation") == 0;
    if (sscanf(x->name, "ProfilerStep#%llu", &number) != 1)
        return true;
    if (!(x->ts_us >= 0) || !(x->dur_us >= 0) || !isfinite(x->ts_us + x->dur_us))
        return json_stream_fail(s, e, "%.80s has no time (ts and dur, microseconds)", x->name);
    struct profile_window *list = gpu ? log->gpu : log->cpu;
    size_t *count = gpu ? &log->gpu_count : &log->cpu_count;
    for (size_t i = 0; i < *count; i++)
        if (list[i].number == number) {
            list[i].start_us = fmin(list[i].start_us, x->ts_us);
            list[i].end_us = fmax(list[i].end_us, x->ts_us + x->dur_us);
            return true;
        }
    if (*count == PROFILE_STEPS_MAX)
        return json_stream_fail(s, e, "more than %d steps", PROFILE_STEPS_MAX);
    list[(*count)++] = (struct profile_window){number, x->ts_us, x->ts_us + x->dur_us};
    return true;
}

static bool take_event(const struct json_stream *s, struct profile_log *log, const struct event *x,
                       struct err *e) {
    enum profile_class class;
    log->events++;
    if (x->phase != 'X')
        return true;
    if (classify(x, &class))
        return take_kernel(s, log, x, class, e);
    if (strstr(x->category, "user_annotation") || strcmp(x->category, "Operator") == 0 ||
        strcmp(x->category, "cpu_op") == 0)
        return take_step(s, log, x, e);
    return true;
}

// ---- the file -----------------------------------------------------------------------------------

static bool read_events(struct json_stream *s, struct profile_log *log, struct err *e) {
    for (enum json_token t;;) {
        if (!json_stream_next(s, &t, e))
            return false;
        if (t == JSON_TOKEN_ARRAY_END)
            return true;
        if (t != JSON_TOKEN_OBJECT)
            return json_stream_fail(s, e, "traceEvents[%llu] is no object",
                                    (unsigned long long)log->events);
        struct event x = {.ts_us = NAN, .dur_us = NAN, .in_elements = NAN, .out_elements = NAN};
        if (!read_members(s, &x, false, e) || !take_event(s, log, &x, e))
            return false;
    }
}

// deviceProperties[].name and distributedInfo{rank,world_size}, at any depth below the member.
static bool read_facts(struct json_stream *s, bool device, struct profile_log *log, struct err *e) {
    char key[64] = "";
    uint64_t v;
    int depth = 1;
    for (enum json_token t; depth > 0;) {
        if (!json_stream_next(s, &t, e))
            return false;
        if (t == JSON_TOKEN_OBJECT || t == JSON_TOKEN_ARRAY)
            depth++;
        else if (t == JSON_TOKEN_OBJECT_END || t == JSON_TOKEN_ARRAY_END)
            depth--;
        else if (t == JSON_TOKEN_KEY)
            keep(s, key, sizeof key);
        else if (t == JSON_TOKEN_STRING && device && strcmp(key, "name") == 0 && !log->gpu_name[0])
            keep(s, log->gpu_name, sizeof log->gpu_name);
        else if (t == JSON_TOKEN_NUMBER && !device && depth == 1 && json_stream_u64(s, &v)) {
            if (strcmp(key, "rank") == 0 && v <= INT32_MAX)
                log->rank = (int64_t)v;
            if (strcmp(key, "world_size") == 0)
                log->world = v;
        }
    }
    return true;
}

static bool read_top(struct json_stream *s, struct profile_log *log, struct err *e) {
    bool events = false;
    char key[64];
    for (enum json_token t;;) {
        if (!json_stream_next(s, &t, e))
            return false;
        if (t == JSON_TOKEN_OBJECT_END)
            break;
        keep(s, key, sizeof key);
        if (!json_stream_next(s, &t, e))
            return false;
        bool open = t == JSON_TOKEN_ARRAY || t == JSON_TOKEN_OBJECT, ok;
        if (strcmp(key, "traceEvents") == 0) {
            if (t != JSON_TOKEN_ARRAY)
                return json_stream_fail(s, e, "traceEvents is no array");
            events = true;
            ok = read_events(s, log, e);
        } else if (open && strcmp(key, "deviceProperties") == 0) {
            ok = read_facts(s, true, log, e);
        } else if (open && strcmp(key, "distributedInfo") == 0) {
            ok = read_facts(s, false, log, e);
        } else {
            ok = json_stream_skip(s, t, e);
        }
        if (!ok)
            return false;
    }
    if (!events)
        return json_stream_fail(s, e, "no traceEvents: not a profiler trace");
    enum json_token t;
    return json_stream_next(s, &t, e);
}

struct target {
    struct arena *a;
    struct warnings *w;
    struct profile *out;
};

static bool read_trace(struct json_stream *s, void *context, struct err *e) {
    const struct target *to = context;
    enum json_token t;
    struct profile_log *log = calloc(1, sizeof *log);
    if (log == NULL)
        return err_set(e, ERR_RESOURCE, "%s: out of memory", json_stream_name(s));
    log->rank = -1;
    bool ok = json_stream_next(s, &t, e);
    if (ok && t == JSON_TOKEN_ARRAY) // export_chrome_trace before Kineto, and Chrome's short form
        ok = read_events(s, log, e) && json_stream_next(s, &t, e);
    else if (ok && t == JSON_TOKEN_OBJECT)
        ok = read_top(s, log, e);
    else if (ok)
        ok = json_stream_fail(s, e, "expected an object with traceEvents");
    for (size_t i = 0; i < log->gpu_count; i++) {
        log->gpu[i].start_us -= log->origin_us;
        log->gpu[i].end_us -= log->origin_us;
    }
    for (size_t i = 0; i < log->cpu_count; i++) {
        log->cpu[i].start_us -= log->origin_us;
        log->cpu[i].end_us -= log->origin_us;
    }
    ok = ok && profile_sum(log, json_stream_name(s), to->a, to->w, to->out, e);
    free(log->edges);
    free(log);
    return ok;
}

bool profile_parse(const char *text, size_t bytes, const char *name, struct arena *a,
                   struct warnings *w, struct profile *out, struct err *e) {
    struct target to = {a, w, out};
    const struct tool_json_text t = {text, name, bytes};
    return tool_json_parse(&t, read_trace, &to, e);
}

bool profile_read(const char *path, struct arena *a, struct warnings *w, struct profile *out,
                  struct err *e) {
    struct target to = {a, w, out};
    return tool_json_read(path, read_trace, &to, e);
}
