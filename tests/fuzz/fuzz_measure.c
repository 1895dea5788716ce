// SPDX-License-Identifier: Apache-2.0
// Measurements on arbitrary bytes, as one document or as lines: refused with a reason, or what was
// read is written as lines and as a document, and both read back alike.
#include "base/arena.h"
#include "describe/measure.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(const struct measurement *m, const char *text, struct arena *a) {
    struct measurement again;
    struct err e = {0};
    if (!measure_parse(text, strlen(text), "again", a, &again, &e)) {
        fprintf(stderr, "%s\n%s\n", e.text, text);
        abort();
    }
    if (again.count != m->count)
        abort();
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(measure_key(&m->results[i], a), measure_key(&again.results[i], a)) != 0)
            abort();
}

static void read_back(const struct measurement *m, struct arena *a) {
    cJSON *root = measure_to_json(m);
    char *text = cJSON_PrintUnformatted(root);
    same(m, text, a);
    cJSON_free(text);
    cJSON_Delete(root);
    char *lines = measure_header_line(&m->host, &m->build);
    for (size_t i = 0; i < m->count; i++) {
        char *line = measure_result_line(&m->results[i]);
        lines = realloc(lines, strlen(lines) + strlen(line) + 1);
        if (!lines)
            abort();
        strcat(lines, line);
        free(line);
    }
    same(m, lines, a);
    free(lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *a = arena_create();
    struct measurement m;
    struct err e = {0};
    if (measure_parse((const char *)data, size, "fuzz", a, &m, &e))
        read_back(&m, a);
    else if (e.kind == ERR_NONE || e.text[0] == '\0')
        abort();
    arena_destroy(a);
    return 0;
}
