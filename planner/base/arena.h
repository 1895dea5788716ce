// SPDX-License-Identifier: Apache-2.0
// Bump allocator: everything one request describes lives in its arena and dies with it.
#pragma once

#include <stdarg.h>
#include <stddef.h>

struct arena;

struct arena *arena_create(void);
void arena_destroy(struct arena *a); // NULL is fine
void arena_reset(struct arena *a);   // keeps its blocks for reuse

// Zeroed memory, aligned for any type. Aborts with the size when memory is exhausted.
void *arena_alloc(struct arena *a, size_t bytes);
void *arena_array(struct arena *a, size_t count, size_t element_bytes); // overflow-checked
// The same without zeroes, for what is written before it is read.
void *arena_array_raw(struct arena *a, size_t count, size_t element_bytes);
char *arena_strdup(struct arena *a, const char *s); // NULL in, NULL out
char *arena_printf(struct arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
size_t arena_used_bytes(const struct arena *a);
