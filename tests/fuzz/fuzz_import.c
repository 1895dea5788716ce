// SPDX-License-Identifier: Apache-2.0
// `catalog import` on arbitrary text: recognised or refused with a reason; what is imported can be
// written, and measurements read back as our own.
#include "base/arena.h"
#include "describe/import.h"
#include "describe/measure.h"
#include "describe/topology.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void refused(const struct err *e) {
    if (e->kind == ERR_NONE || e->text[0] == '\0')
        abort();
}

static void measured(const struct import_source *s, enum import_kind kind) {
    struct measurement m, again;
    struct err e = {0};
    if (!import_measurement(s, kind, &m, &e)) {
        refused(&e);
        return;
    }
    cJSON *root = measure_to_json(&m);
    char *text = cJSON_PrintUnformatted(root);
    if (m.count == 0 || !measure_parse(text, strlen(text), "again", s->arena, &again, &e) ||
        again.count != m.count) {
        fprintf(stderr, "%s\n%s\n", e.text, text);
        abort();
    }
    cJSON_free(text);
    cJSON_Delete(root);
}

static void described(const struct import_source *s, enum import_kind kind) {
    struct topology t;
    struct err e = {0};
    if (!import_topology(s, kind, &t, &e)) {
        refused(&e);
        return;
    }
    if (t.gpus > t.count || t.gpus == 0)
        abort();
    for (size_t i = 0; i < t.count * t.count; i++)
        if (t.cells[i].path >= PATH_COUNT)
            abort();
    cJSON_Delete(topology_to_json(&t, s->arena));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *a = arena_create();
    struct warnings w = {0};
    struct err e = {0};
    char *text = arena_alloc(a, size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    import_clean(text, size); // as import_open does
    struct import_source s = {"fuzz", text, size, NULL, a, &w};
    enum import_kind kind;
    if (!import_sniff(&s, &kind, &e))
        refused(&e);
    else if (kind == IMPORT_TOPO_MATRIX || kind == IMPORT_TOPO_P2P || kind == IMPORT_NCCL_TOPOLOGY)
        described(&s, kind);
    else
        measured(&s, kind);
    arena_destroy(a);
    return 0;
}
