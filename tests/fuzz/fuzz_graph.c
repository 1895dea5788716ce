// SPDX-License-Identifier: Apache-2.0
// A graph file on arbitrary bytes: refused with a reason, or every index is in range and what was
// read is written and read back alike.
#include "base/arena.h"
#include "base/json.h"
#include "describe/graph.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_task(const struct graph *g, size_t i) {
    const struct graph_task *t = &g->tasks[i];
    bool buffer = t->buffer == GRAPH_NO_BUFFER || t->buffer < g->buffer_count;
    if (t->id != i || t->stream >= g->stream_count || !buffer)
        abort();
    if (t->group < -1 || t->group >= (int64_t)g->group_count)
        abort();
    for (size_t k = 0; k < t->dep_count; k++)
        if (t->deps[k] >= i)
            abort();
}

static void read_back(const struct graph *g, struct arena *a) {
    struct err e = {0};
    struct graph again;
    cJSON *root = graph_to_json(g);
    char *text = cJSON_PrintUnformatted(root);
    struct json_doc *doc = json_read_text(text, strlen(text), "again", &e);
    if (!doc || !graph_read_node(json_root(doc), a, &again, &e) ||
        again.task_count != g->task_count || again.buffer_count != g->buffer_count)
        abort();
    json_destroy(doc);
    cJSON_free(text);
    cJSON_Delete(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err e = {0};
    struct json_doc *doc = json_read_text((const char *)data, size, "fuzz", &e);
    if (!doc)
        return 0; // fuzz_json's business
    struct arena *a = arena_create();
    struct graph g;
    if (graph_read_node(json_root(doc), a, &g, &e)) {
        for (size_t i = 0; i < g.task_count; i++)
            check_task(&g, i);
        read_back(&g, a);
    } else if (e.kind == ERR_NONE || e.text[0] == '\0') {
        abort();
    }
    json_destroy(doc);
    arena_destroy(a);
    return 0;
}
