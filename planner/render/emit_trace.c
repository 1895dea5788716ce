// SPDX-License-Identifier: Apache-2.0
// The trace event format Chrome and Perfetto read: times in microseconds, one thread per stream.
#include "render/emit_simulate.h"

#include "base/units.h"

#include <string.h>

enum { PROCESS = 1 };

static cJSON *event(cJSON *list, const char *kind, const char *name, size_t thread) {
    cJSON *o = json_append_object(list);
    json_add_string(o, "ph", kind);
    json_add_string(o, "name", name);
    json_add_u64(o, "pid", PROCESS);
    json_add_u64(o, "tid", thread);
    return o;
}

static size_t thread_of(const struct step_timeline *t, const char *stream) {
    for (size_t i = 0; i < t->stream_count; i++)
        if (strcmp(t->streams[i].name, stream) == 0)
            return i + 1;
    return 0;
}

static void add_names(cJSON *list, const struct emit_simulation *s) {
    cJSON *o = event(list, "M", "process_name", 0);
    json_add_string(json_add_object(o, "args"), "name", s->command);
    for (size_t i = 0; i < s->timeline->stream_count; i++) {
        o = event(list, "M", "thread_name", i + 1);
        json_add_string(json_add_object(o, "args"), "name", s->timeline->streams[i].name);
        o = event(list, "M", "thread_sort_index", i + 1);
        json_add_u64(json_add_object(o, "args"), "sort_index", i + 1);
    }
}

cJSON *emit_trace_json(const struct emit_simulation *s) {
    const struct step_timeline *t = s->timeline;
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "displayTimeUnit", "ms");
    cJSON *list = json_add_array(root, "traceEvents");
    add_names(list, s);
    for (size_t i = 0; i < t->task_count; i++) {
        const struct step_timeline_task *k = &t->tasks[i];
        cJSON *o = event(list, "X", k->name, thread_of(t, k->stream));
        json_add_double(o, "ts", k->start_s / UNITS_MICRO);
        json_add_double(o, "dur", (k->end_s - k->start_s) / UNITS_MICRO);
        json_add_string(o, "cat", k->phase);
        cJSON *args = json_add_object(o, "args");
        json_add_u64(args, "id", i);
        json_add_bool(args, "exposed", k->exposed);
    }
    for (size_t i = 0; i < t->memory_count; i++) {
        cJSON *o = event(list, "C", "allocated", 0);
        json_add_double(o, "ts", t->memory[i].time_s / UNITS_MICRO);
        json_add_double(json_add_object(o, "args"), "bytes", t->memory[i].allocated_bytes);
    }
    return root;
}
