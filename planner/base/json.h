// SPDX-License-Identifier: Apache-2.0
// Strict JSON reading with paths and line numbers in every error, and a writer that keeps 64-bit
// integers exact, turns NaN into null and never leaves a partial file under its final name.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/kinds.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json_doc; // owns the text and the tree

// A place in a document. Copy freely; valid while the document lives (its path is in the doc).
struct json_node {
    const struct json_doc *doc;
    const cJSON *item;
    const char *path; // "$.zero_optimization.stage"
};

// Reads and parses; refuses duplicate keys, trailing text, depth > 64, files over 64 MiB (1 GiB for
// measurement files by json_read_large). NULL on error ("file:line: ...").
struct json_doc *json_read_file(const char *path, struct err *e);
struct json_doc *json_read_large(const char *path, struct err *e);
struct json_doc *json_read_text(const char *text, size_t bytes, const char *name, struct err *e);
void json_destroy(struct json_doc *d); // NULL is fine
struct json_node json_root(const struct json_doc *d);

bool json_is_object(struct json_node n);
bool json_is_array(struct json_node n);
bool json_is_string(struct json_node n);
bool json_is_number(struct json_node n);
bool json_is_null(struct json_node n);
size_t json_size(struct json_node n); // members or elements
struct json_node json_at(struct json_node n, size_t index);
const char *json_key(struct json_node n); // member name or NULL
bool json_find(struct json_node object, const char *key,
               struct json_node *out); // false if absent; case-sensitive

// Typed getters. `required` false: an absent or null member leaves *out untouched and succeeds.
bool json_get_string(struct json_node o, const char *key, bool required, const char **out,
                     struct err *e);
bool json_get_u64(struct json_node o, const char *key, bool required, uint64_t *out, struct err *e);
bool json_get_double(struct json_node o, const char *key, bool required, double *out,
                     struct err *e);
bool json_get_bool(struct json_node o, const char *key, bool required, bool *out, struct err *e);
bool json_get_figure(struct json_node o, const char *key, bool required, struct arena *a,
                     struct figure *out,
                     struct err *e); // {value, provenance, source, low?, high?, note?}
bool json_as_u64(struct json_node n, uint64_t *out, struct err *e);
bool json_as_double(struct json_node n, double *out, struct err *e);

// Every member must be in `keys`; else ERR_INPUT with the nearest name. Keys starting with "_"
// pass.
bool json_check_keys(struct json_node object, const char *const *keys, size_t count, struct err *e);

// Set ERR_INPUT "file:line $.path: <text>". Returns false.
bool json_fail(struct json_node n, struct err *e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int json_line(struct json_node n); // 1-based line of the node, found by re-scan

// Building: plain cJSON objects plus these exact adders. NAN and infinity are written as null.
void json_add_u64(cJSON *o, const char *key, uint64_t v);
void json_add_double(cJSON *o, const char *key, double v);      // 9 significant digits
void json_add_string(cJSON *o, const char *key, const char *v); // NULL becomes null
void json_add_bool(cJSON *o, const char *key, bool v);
void json_add_null(cJSON *o, const char *key);
void json_add_figure(cJSON *o, const char *key, struct figure f);
cJSON *json_add_object(cJSON *o, const char *key);
cJSON *json_add_array(cJSON *o, const char *key);
cJSON *json_append_object(cJSON *array);

// path "-" writes to stdout. Otherwise a temporary file beside it, fsync, rename.
bool json_write_file(const char *path, const cJSON *root, struct err *e);
bool json_write_text_file(const char *path, const char *text, size_t bytes,
                          struct err *e); // same rule, any text
char *json_to_text(const cJSON *root);    // malloc'd, two-space indent, newline at end
