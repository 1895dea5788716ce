// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 16 };

struct block {
    struct block *next;
    size_t capacity, used;
    alignas(max_align_t) unsigned char data[];
};

struct arena {
    struct block *first, *current;
};

static _Noreturn void die(size_t bytes) {
    fprintf(stderr, "out of memory: %zu bytes\n", bytes);
    abort();
}

static struct block *block_create(size_t capacity) {
    if (capacity > SIZE_MAX - sizeof(struct block))
        die(capacity);
    struct block *b = malloc(sizeof *b + capacity);
    if (!b)
        die(capacity);
    b->next = NULL;
    b->capacity = capacity;
    b->used = 0;
    return b;
}

struct arena *arena_create(void) {
    struct arena *a = malloc(sizeof *a);
    if (!a)
        die(sizeof *a);
    a->first = a->current = block_create(BLOCK_BYTES);
    return a;
}

void arena_destroy(struct arena *a) {
    if (!a)
        return;
    for (struct block *b = a->first, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
}

void arena_reset(struct arena *a) {
    for (struct block *b = a->first; b; b = b->next)
        b->used = 0;
    a->current = a->first;
}

// Blocks after `current` are empty ones kept by a reset; one too small is passed over.
static struct block *block_with_room(struct arena *a, size_t bytes) {
    struct block *b = a->current;
    while (b->capacity - b->used < bytes && b->next)
        b = b->next;
    if (b->capacity - b->used < bytes) {
        b->next = block_create(bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES);
        b = b->next;
    }
    return a->current = b;
}

static void *take(struct arena *a, size_t bytes) {
    const size_t align = alignof(max_align_t);
    if (bytes > SIZE_MAX - align)
        die(bytes);
    size_t rounded = bytes ? (bytes + align - 1) / align * align : align;
    struct block *b = block_with_room(a, rounded);
    void *p = b->data + b->used;
    b->used += rounded;
    return p;
}

static size_t size_of(size_t count, size_t element_bytes) {
    size_t bytes;
    if (__builtin_mul_overflow(count, element_bytes, &bytes))
        die(SIZE_MAX);
    return bytes;
}

void *arena_alloc(struct arena *a, size_t bytes) {
    return memset(take(a, bytes), 0, bytes);
}

void *arena_array(struct arena *a, size_t count, size_t element_bytes) {
    return arena_alloc(a, size_of(count, element_bytes));
}

void *arena_array_raw(struct arena *a, size_t count, size_t element_bytes) {
    return take(a, size_of(count, element_bytes));
}

char *arena_strdup(struct arena *a, const char *s) {
    if (!s)
        return NULL;
    size_t bytes = strlen(s) + 1;
    return memcpy(arena_alloc(a, bytes), s, bytes);
}

char *arena_printf(struct arena *a, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    size_t bytes = length < 0 ? 1 : (size_t)length + 1;
    char *s = arena_alloc(a, bytes);
    if (length >= 0)
        vsnprintf(s, bytes, format, again);
    va_end(again);
    return s;
}

size_t arena_used_bytes(const struct arena *a) {
    size_t used = 0;
    for (const struct block *b = a->first; b; b = b->next)
        used += b->used;
    return used;
}
