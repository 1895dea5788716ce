// SPDX-License-Identifier: Apache-2.0
#include "describe/graph.h"

#include <string.h>

bool graph_group_is_strided(const struct graph_group *g) {
    return strcmp(g->kind, "replica") == 0 || strcmp(g->kind, "pipeline") == 0;
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

const char *const graph_kind_names[GRAPH_KIND_COUNT] = {
    "gemm",       "elementwise", "collective", "copy",  "nvme_read",
    "nvme_write", "adam",        "host",       "alloc", "free"};
static const char *const device_names[] = {"gpu", "cpu", "nvme"};

// ---- writing ------------------------------------------------------------------------------------

static uint64_t work(const struct graph_shape *s) {
    return s->m * s->n * s->k * s->count;
}

// m, n, k: the shape that does most of the work; shapes: all of them.
static void add_shapes(cJSON *o, const struct graph_task *t) {
    if (t->shape_count == 0)
        return;
    const struct graph_shape *largest = &t->shapes[0];
    for (size_t i = 1; i < t->shape_count; i++)
        if (work(&t->shapes[i]) > work(largest))
            largest = &t->shapes[i];
    json_add_u64(o, "m", largest->m);
    json_add_u64(o, "n", largest->n);
    json_add_u64(o, "k", largest->k);
    cJSON *list = json_add_array(o, "shapes");
    for (size_t i = 0; i < t->shape_count; i++) {
        cJSON *s = json_append_object(list);
        json_add_u64(s, "m", t->shapes[i].m);
        json_add_u64(s, "n", t->shapes[i].n);
        json_add_u64(s, "k", t->shapes[i].k);
        json_add_u64(s, "count", t->shapes[i].count);
        json_add_string(s, "dtype", dtype_name(t->shapes[i].dtype));
    }
}

static void add_task(cJSON *list, const struct graph_task *t, bool simulated) {
    cJSON *o = json_append_object(list);
    json_add_u64(o, "id", t->id);
    json_add_string(o, "kind", graph_kind_names[t->kind]);
    json_add_u64(o, "stream", t->stream);
    cJSON *deps = json_add_array(o, "deps");
    for (size_t i = 0; i < t->dep_count; i++)
        cJSON_AddItemToArray(deps, cJSON_CreateNumber(t->deps[i]));
    json_add_string(o, "phase", t->phase);
    if (t->unit)
        json_add_string(o, "unit", t->unit);
    add_shapes(o, t);
    if (t->flop > 0)
        json_add_double(o, "flop", t->flop);
    json_add_double(o, "bytes", t->bytes);
    if (t->kind != GRAPH_HOST && t->kind != GRAPH_ALLOC && t->kind != GRAPH_FREE)
        json_add_string(o, "dtype", dtype_name(t->dtype));
    if (t->kind == GRAPH_COLLECTIVE) {
        json_add_u64(o, "group", (uint64_t)t->group);
        json_add_string(o, "collective", collective_name(t->collective));
    }
    if (t->direction)
        json_add_string(o, "direction", t->direction);
    if (t->buffer != GRAPH_NO_BUFFER)
        json_add_u64(o, "buffer", t->buffer);
    json_add_bool(o, "host_blocking", t->host_blocking);
    json_add_double(o, "issue_s", t->issue_s);
    json_add_double(o, "duration_s", t->duration_s);
    if (simulated) {
        json_add_double(o, "start_s", t->start_s);
        json_add_double(o, "end_s", t->end_s);
    }
}

cJSON *graph_to_json(const struct graph *g) {
    cJSON *root = cJSON_CreateObject();
    json_add_string(root, "schema", GRAPH_SCHEMA);
    json_add_u64(root, "ranks", g->ranks);
    if (g->step_s > 0)
        json_add_double(root, "step_s", g->step_s);
    cJSON *groups = json_add_array(root, "groups");
    for (size_t i = 0; i < g->group_count; i++) {
        cJSON *o = json_append_object(groups);
        json_add_u64(o, "id", i);
        json_add_string(o, "kind", g->groups[i].kind);
        json_add_u64(o, "size", g->groups[i].size);
    }
    cJSON *buffers = json_add_array(root, "buffers");
    for (size_t i = 0; i < g->buffer_count; i++) {
        cJSON *o = json_append_object(buffers);
        json_add_u64(o, "id", i);
        json_add_string(o, "name", g->buffers[i].name);
        json_add_u64(o, "bytes", g->buffers[i].bytes);
        json_add_string(o, "device", device_names[g->buffers[i].device]);
    }
    cJSON *streams = json_add_array(root, "streams");
    for (size_t i = 0; i < g->stream_count; i++)
        cJSON_AddItemToArray(streams, cJSON_CreateString(g->streams[i]));
    cJSON *tasks = json_add_array(root, "tasks");
    for (size_t i = 0; i < g->task_count; i++)
        add_task(tasks, &g->tasks[i], g->step_s > 0);
    return root;
}

bool graph_write(const char *path, const struct graph *g, struct err *e) {
    cJSON *root = graph_to_json(g);
    bool ok = json_write_file(path, root, e);
    cJSON_Delete(root);
    return ok;
}

// ---- reading ------------------------------------------------------------------------------------

static bool read_text(struct json_node o, const char *key, bool required, struct arena *a,
                      const char **out, struct err *e) {
    const char *text = NULL;
    if (!json_get_string(o, key, required, &text, e))
        return false;
    *out = arena_strdup(a, text);
    return true;
}

static bool read_name(struct json_node o, const char *key, const char *const *names, size_t count,
                      int *out, struct err *e) {
    const char *text = NULL;
    if (!json_get_string(o, key, true, &text, e))
        return false;
    *out = kinds_find(names, count, text);
    if (*out >= 0)
        return true;
    const char *near = kinds_nearest(names, count, text);
    return json_fail(o, e, "unknown %s \"%s\"%s%s", key, text, near ? "; nearest: " : "",
                     near ? near : "");
}

static bool read_dtype(struct json_node o, enum dtype *out, struct err *e) {
    const char *text = NULL;
    if (!json_get_string(o, "dtype", false, &text, e))
        return false;
    if (text != NULL && !dtype_find(text, out))
        return json_fail(o, e, "unknown dtype \"%s\"", text);
    return true;
}

static bool read_index(struct json_node o, const char *key, size_t limit, uint64_t *out,
                       struct err *e) {
    if (!json_get_u64(o, key, true, out, e))
        return false;
    if (*out >= limit)
        return json_fail(o, e, "%s %llu is out of range: there are %zu", key,
                         (unsigned long long)*out, limit);
    return true;
}

// The list under `key`, which every graph has.
static bool find_list(struct json_node root, const char *key, struct json_node *out,
                      struct err *e) {
    if (!json_find(root, key, out) || !json_is_array(*out))
        return json_fail(root, e, "expected a list \"%s\"", key);
    return true;
}

static bool check_id(struct json_node o, size_t index, struct err *e) {
    uint64_t id = 0;
    if (!json_get_u64(o, "id", true, &id, e))
        return false;
    if (id != index)
        return json_fail(o, e, "id %llu must equal its position %zu", (unsigned long long)id,
                         index);
    return true;
}

static bool read_groups(struct json_node root, struct arena *a, struct graph *g, struct err *e) {
    static const char *const keys[] = {"id", "kind", "size"};
    struct json_node list;
    if (!find_list(root, "groups", &list, e))
        return false;
    struct graph_group *groups = arena_array(a, json_size(list) + 1, sizeof *groups);
    g->groups = groups;
    for (; g->group_count < json_size(list); g->group_count++) {
        struct json_node o = json_at(list, g->group_count);
        struct graph_group *to = &groups[g->group_count];
        if (!json_is_object(o))
            return json_fail(o, e, "expected an object");
        if (!json_check_keys(o, keys, COUNT(keys), e) || !check_id(o, g->group_count, e) ||
            !read_text(o, "kind", true, a, &to->kind, e) ||
            !json_get_u64(o, "size", true, &to->size, e))
            return false;
        if (to->size == 0 || to->size > g->ranks)
            return json_fail(o, e, "a group of %llu among %llu ranks", (unsigned long long)to->size,
                             (unsigned long long)g->ranks);
    }
    return true;
}

static bool read_buffers(struct json_node root, struct arena *a, struct graph *g, struct err *e) {
    static const char *const keys[] = {"id", "name", "bytes", "device"};
    struct json_node list;
    if (!find_list(root, "buffers", &list, e))
        return false;
    struct graph_buffer *buffers = arena_array(a, json_size(list) + 1, sizeof *buffers);
    g->buffers = buffers;
    for (; g->buffer_count < json_size(list); g->buffer_count++) {
        struct json_node o = json_at(list, g->buffer_count);
        struct graph_buffer *to = &buffers[g->buffer_count];
        int device = 0;
        if (!json_is_object(o))
            return json_fail(o, e, "expected an object");
        if (!json_check_keys(o, keys, COUNT(keys), e) || !check_id(o, g->buffer_count, e) ||
            !read_text(o, "name", false, a, &to->name, e) ||
            !json_get_u64(o, "bytes", true, &to->bytes, e) ||
            !read_name(o, "device", device_names, COUNT(device_names), &device, e))
            return false;
        to->device = (enum device)device;
    }
    return true;
}

static bool read_streams(struct json_node root, struct arena *a, struct graph *g, struct err *e) {
    struct json_node list;
    if (!find_list(root, "streams", &list, e))
        return false;
    const char **streams = arena_array(a, json_size(list) + 1, sizeof *streams);
    for (size_t i = 0; i < json_size(list); i++) {
        struct json_node s = json_at(list, i);
        if (!json_is_string(s))
            return json_fail(s, e, "expected a stream's name");
        streams[i] = arena_strdup(a, s.item->valuestring);
    }
    g->streams = streams;
    g->stream_count = json_size(list);
    return true;
}

static bool read_deps(struct json_node o, struct arena *a, struct graph_task *t, struct err *e) {
    struct json_node list;
    if (!find_list(o, "deps", &list, e))
        return false;
    uint32_t *deps = arena_array(a, json_size(list) + 1, sizeof *deps);
    t->deps = deps;
    for (; t->dep_count < json_size(list); t->dep_count++) {
        uint64_t dep = 0;
        struct json_node d = json_at(list, t->dep_count);
        if (!json_as_u64(d, &dep, e))
            return false;
        if (dep >= t->id)
            return json_fail(d, e, "task %u depends on %llu, which is not before it", t->id,
                             (unsigned long long)dep);
        deps[t->dep_count] = (uint32_t)dep;
    }
    return true;
}

static bool read_shapes(struct json_node o, struct arena *a, struct graph_task *t, struct err *e) {
    static const char *const keys[] = {"m", "n", "k", "count", "dtype"};
    struct json_node list;
    if (!json_find(o, "shapes", &list) || json_is_null(list))
        return true;
    if (!json_is_array(list))
        return json_fail(list, e, "expected a list of shapes");
    struct graph_shape *shapes = arena_array(a, json_size(list) + 1, sizeof *shapes);
    t->shapes = shapes;
    for (; t->shape_count < json_size(list); t->shape_count++) {
        struct json_node s = json_at(list, t->shape_count);
        struct graph_shape *to = &shapes[t->shape_count];
        to->count = 1;
        if (!json_is_object(s))
            return json_fail(s, e, "expected an object");
        if (!json_check_keys(s, keys, COUNT(keys), e) || !json_get_u64(s, "m", true, &to->m, e) ||
            !json_get_u64(s, "n", true, &to->n, e) || !json_get_u64(s, "k", true, &to->k, e) ||
            !json_get_u64(s, "count", false, &to->count, e) || !read_dtype(s, &to->dtype, e))
            return false;
    }
    return true;
}

static bool read_place(struct json_node o, const struct graph *g, struct graph_task *t,
                       struct err *e) {
    uint64_t at = 0;
    if (!read_index(o, "stream", g->stream_count, &at, e))
        return false;
    t->stream = (uint32_t)at;
    if (t->kind == GRAPH_COLLECTIVE) {
        const char *name = NULL;
        if (!read_index(o, "group", g->group_count, &at, e) ||
            !json_get_string(o, "collective", true, &name, e))
            return false;
        t->group = (int64_t)at;
        if (!collective_find(name, &t->collective))
            return json_fail(o, e, "unknown collective \"%s\"", name);
    }
    if (t->kind == GRAPH_ALLOC || t->kind == GRAPH_FREE) {
        if (!read_index(o, "buffer", g->buffer_count, &at, e))
            return false;
        t->buffer = (uint32_t)at;
    }
    return true;
}

static bool check_task(struct json_node o, const struct graph_task *t, struct err *e) {
    if (t->kind == GRAPH_COPY && (t->direction == NULL || (strcmp(t->direction, "h2d") != 0 &&
                                                           strcmp(t->direction, "d2h") != 0)))
        return json_fail(o, e, "a copy needs \"direction\": h2d or d2h");
    if (!(t->bytes >= 0) || !(t->flop >= 0) || !(t->issue_s >= 0) || !(t->duration_s >= 0))
        return json_fail(o, e, "bytes, flop, issue_s and duration_s cannot be negative");
    return true;
}

static bool read_task(struct json_node o, struct arena *a, const struct graph *g,
                      struct graph_task *t, struct err *e) {
    static const char *const keys[] = {
        "id",     "kind",       "stream",    "deps",          "phase",      "unit",
        "m",      "n",          "k",         "flop",          "bytes",      "dtype",
        "group",  "collective", "direction", "host_blocking", "duration_s", "issue_s",
        "buffer", "shapes",     "start_s",   "end_s"};
    int kind = 0;
    uint64_t shape[3];
    if (!json_is_object(o))
        return json_fail(o, e, "expected an object");
    if (!json_check_keys(o, keys, COUNT(keys), e) || !check_id(o, t->id, e) ||
        !read_name(o, "kind", graph_kind_names, GRAPH_KIND_COUNT, &kind, e))
        return false;
    t->kind = (enum graph_kind)kind;
    t->group = -1;
    t->buffer = GRAPH_NO_BUFFER;
    return read_place(o, g, t, e) && read_deps(o, a, t, e) &&
           read_text(o, "phase", true, a, &t->phase, e) &&
           read_text(o, "unit", false, a, &t->unit, e) &&
           read_text(o, "direction", false, a, &t->direction, e) && read_shapes(o, a, t, e) &&
           json_get_u64(o, "m", false, &shape[0], e) && json_get_u64(o, "n", false, &shape[1], e) &&
           json_get_u64(o, "k", false, &shape[2], e) && read_dtype(o, &t->dtype, e) &&
           json_get_double(o, "flop", false, &t->flop, e) &&
           json_get_double(o, "bytes", true, &t->bytes, e) &&
           json_get_bool(o, "host_blocking", false, &t->host_blocking, e) &&
           json_get_double(o, "issue_s", false, &t->issue_s, e) &&
           json_get_double(o, "duration_s", true, &t->duration_s, e) &&
           json_get_double(o, "start_s", false, &t->start_s, e) &&
           json_get_double(o, "end_s", false, &t->end_s, e) && check_task(o, t, e);
}

bool graph_read_node(struct json_node root, struct arena *a, struct graph *out, struct err *e) {
    static const char *const keys[] = {"schema",  "ranks", "groups",  "buffers",
                                       "streams", "tasks", "command", "step_s"};
    struct graph g = {0};
    struct json_node list;
    const char *schema = NULL;
    if (!json_is_object(root))
        return json_fail(root, e, "expected an object of schema " GRAPH_SCHEMA);
    if (!json_get_string(root, "schema", true, &schema, e))
        return false;
    if (strcmp(schema, GRAPH_SCHEMA) != 0)
        return json_fail(root, e,
                         "schema is \"%s\", expected \"" GRAPH_SCHEMA
                         "\", which `shardplan simulate --graph FILE` writes",
                         schema);
    if (!json_check_keys(root, keys, COUNT(keys), e) ||
        !json_get_u64(root, "ranks", true, &g.ranks, e) ||
        !json_get_double(root, "step_s", false, &g.step_s, e))
        return false;
    if (g.ranks == 0)
        return json_fail(root, e, "ranks must be at least 1");
    if (!read_groups(root, a, &g, e) || !read_buffers(root, a, &g, e) ||
        !read_streams(root, a, &g, e) || !find_list(root, "tasks", &list, e))
        return false;
    struct graph_task *tasks = arena_array(a, json_size(list) + 1, sizeof *tasks);
    g.tasks = tasks;
    for (size_t n = json_size(list); g.task_count < n; g.task_count++) {
        struct json_node at = json_at(list, g.task_count);
        tasks[g.task_count].id = (uint32_t)g.task_count;
        if (!read_task(at, a, &g, &tasks[g.task_count], e))
            return false;
    }
    *out = g;
    return true;
}

bool graph_read(const char *path, struct arena *a, struct graph *out, struct err *e) {
    struct json_doc *d = json_read_file(path, e);
    if (d == NULL)
        return false;
    bool ok = graph_read_node(json_root(d), a, out, e);
    json_destroy(d);
    return ok;
}
