// SPDX-License-Identifier: Apache-2.0
// Members of a struct that are figures, by name and place: read, cleared and written alike for GPUs
// and clusters.
#pragma once

#include "base/arena.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>

struct figure_field {
    const char *key;
    size_t offset; // of a struct figure
};
struct figure_table {
    const struct figure_field *fields;
    size_t count;
};

void figures_clear(const struct figure_table *t, void *object); // all unknown
// Absent members stay as they are. A known figure must be above zero.
bool figures_read(const struct figure_table *t, struct json_node n, struct arena *a, void *object,
                  struct err *e);
void figures_write(const struct figure_table *t, cJSON *o, const void *object);
bool figures_read_one(struct json_node o, const char *key, struct arena *a, struct figure *f,
                      struct err *e);
// A text member, copied; absent or null leaves *out.
bool figures_read_text(struct json_node n, const char *key, struct arena *a, const char **out,
                       struct err *e);
