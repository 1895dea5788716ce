// SPDX-License-Identifier: Apache-2.0
#include "describe/safetensors.h"

#include "base/json.h"
#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HEADER_MAX_BYTES (100 * UNITS_MIB)
#define SHARDS_MAX 4096

static const struct {
    const char *name;
    uint64_t bits;
} types[] = {
    {"BOOL", 8},    {"U8", 8},   {"I8", 8},      {"F8_E4M3", 8}, {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},    {"U32", 32}, {"F32", 32},    {"I64", 64},    {"U64", 64},
    {"F64", 64},    {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

// A cursor over the header; the tree of a hostile header would be far larger than its text.
struct scan {
    const char *start, *p, *end, *file;
    uint64_t data_bytes;
    struct arena *a;
    struct err *e;
};

static bool scan_fail(const struct scan *s, const char *what) {
    return err_set(s->e, ERR_INPUT, "%s: header byte %td: %s", s->file, s->p - s->start, what);
}

static void skip_space(struct scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static bool peek(struct scan *s, char c) {
    skip_space(s);
    return s->p < s->end && *s->p == c;
}

static bool take(struct scan *s, char c) {
    char what[] = "expected 'x'";
    if (peek(s, c)) {
        s->p++;
        return true;
    }
    what[strlen(what) - 2] = c;
    return scan_fail(s, what);
}

// Raw bytes between the quotes; escapes stay as written.
static bool scan_string(struct scan *s, const char **text, size_t *bytes) {
    if (!take(s, '"'))
        return false;
    const char *from = s->p;
    for (; s->p < s->end && *s->p != '"'; s->p++) {
        if ((unsigned char)*s->p < 0x20)
            return scan_fail(s, "control character in a string");
        if (*s->p == '\\' && ++s->p == s->end)
            break;
    }
    if (s->p == s->end)
        return scan_fail(s, "unfinished string");
    *text = from;
    *bytes = (size_t)(s->p++ - from);
    return true;
}

static bool scan_u64(struct scan *s, uint64_t *out) {
    uint64_t v = 0;
    skip_space(s);
    if (s->p == s->end || !isdigit((unsigned char)*s->p))
        return scan_fail(s, "expected a whole number");
    for (; s->p < s->end && isdigit((unsigned char)*s->p); s->p++) {
        uint64_t digit = (uint64_t)(*s->p - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return scan_fail(s, "the number does not fit 64 bits");
        v = v * 10 + digit;
    }
    *out = v;
    return true;
}

// "[1, 2]" of at most `max` numbers.
static bool scan_numbers(struct scan *s, uint64_t *out, uint32_t max, uint32_t *count) {
    uint32_t n = 0;
    if (!take(s, '['))
        return false;
    while (!peek(s, ']')) {
        if (n == max)
            return scan_fail(s, "too many numbers");
        if ((n > 0 && !take(s, ',')) || !scan_u64(s, &out[n]))
            return false;
        n++;
    }
    s->p++;
    *count = n;
    return true;
}

// "__metadata__" is a map of strings.
static bool skip_metadata(struct scan *s) {
    const char *text;
    size_t bytes;
    if (!take(s, '{'))
        return false;
    for (bool first = true; !peek(s, '}'); first = false)
        if ((!first && !take(s, ',')) || !scan_string(s, &text, &bytes) || !take(s, ':') ||
            !scan_string(s, &text, &bytes))
            return false;
    s->p++;
    return true;
}

static bool is_text(const char *text, size_t bytes, const char *wanted) {
    return bytes == strlen(wanted) && !memcmp(text, wanted, bytes);
}

static bool scan_type(struct scan *s, struct safetensors_tensor *t) {
    const char *text;
    size_t bytes;
    if (!scan_string(s, &text, &bytes))
        return false;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (is_text(text, bytes, types[i].name))
            t->dtype = types[i].name;
    return t->dtype || scan_fail(s, "unknown dtype");
}

static bool scan_offsets(struct scan *s, struct safetensors_tensor *t) {
    uint64_t offsets[2];
    uint32_t n = 0;
    if (!scan_numbers(s, offsets, 2, &n))
        return false;
    if (n != 2 || offsets[0] > offsets[1] || offsets[1] > s->data_bytes)
        return scan_fail(s, "data_offsets are not inside the file");
    t->begin_bytes = offsets[0];
    t->end_bytes = offsets[1];
    return true;
}

enum { HAVE_DTYPE = 1, HAVE_SHAPE = 2, HAVE_OFFSETS = 4, HAVE_ALL = 7 };

static bool scan_member(struct scan *s, struct safetensors_tensor *t, unsigned *have) {
    const char *key;
    size_t bytes;
    unsigned bit = 0;
    bool ok = false;
    if (!scan_string(s, &key, &bytes) || !take(s, ':'))
        return false;
    if (is_text(key, bytes, "dtype")) {
        bit = HAVE_DTYPE;
        ok = scan_type(s, t);
    } else if (is_text(key, bytes, "shape")) {
        bit = HAVE_SHAPE;
        ok = scan_numbers(s, t->shape, SAFETENSORS_RANK_MAX, &t->rank);
    } else if (is_text(key, bytes, "data_offsets")) {
        bit = HAVE_OFFSETS;
        ok = scan_offsets(s, t);
    } else {
        return scan_fail(s, "unknown member of a tensor");
    }
    if (ok && (*have & bit))
        return scan_fail(s, "member given twice");
    *have |= bit;
    return ok;
}

static uint64_t type_bits(const char *dtype) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (!strcmp(types[i].name, dtype))
            return types[i].bits;
    return 0;
}

// The product of a shape times its type must fill the offsets exactly.
static bool check_size(const struct scan *s, const struct safetensors_tensor *t) {
    uint64_t bits = type_bits(t->dtype);
    struct err overflow = {0};
    for (uint32_t i = 0; i < t->rank; i++)
        if (!units_mul(bits, t->shape[i], &bits, &overflow))
            return scan_fail(s, "the shape overflows 64 bits");
    if (bits % 8 || bits / 8 != t->end_bytes - t->begin_bytes)
        return scan_fail(s, "shape and dtype do not fill data_offsets");
    return true;
}

static bool scan_tensor(struct scan *s, struct safetensors_tensor *t) {
    unsigned have = 0;
    if (!take(s, '{'))
        return false;
    for (bool first = true; !peek(s, '}'); first = false)
        if ((!first && !take(s, ',')) || !scan_member(s, t, &have))
            return false;
    s->p++;
    if (have != HAVE_ALL)
        return scan_fail(s, "a tensor needs dtype, shape and data_offsets");
    return check_size(s, t);
}

// Walks the whole header; stores into `tensors` unless NULL (the counting pass).
static bool scan_header(struct scan *s, struct safetensors_tensor *tensors, size_t *count) {
    size_t n = 0;
    if (!take(s, '{'))
        return false;
    for (bool first = true; !peek(s, '}'); first = false) {
        const char *name;
        size_t bytes;
        struct safetensors_tensor t = {0};
        if ((!first && !take(s, ',')) || !scan_string(s, &name, &bytes) || !take(s, ':'))
            return false;
        if (is_text(name, bytes, "__metadata__")) {
            if (!skip_metadata(s))
                return false;
            continue;
        }
        if (!scan_tensor(s, &t))
            return false;
        if (tensors) {
            t.name = arena_printf(s->a, "%.*s", (int)bytes, name);
            tensors[n] = t;
        }
        n++;
    }
    s->p++;
    skip_space(s);
    if (s->p != s->end)
        return scan_fail(s, "text after the header's end");
    *count = n;
    return true;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct safetensors_tensor *)a)->name,
                  ((const struct safetensors_tensor *)b)->name);
}

static int by_offset(const void *a, const void *b) {
    const struct safetensors_tensor *x = a, *y = b;
    if (x->begin_bytes != y->begin_bytes)
        return x->begin_bytes < y->begin_bytes ? -1 : 1;
    return (x->end_bytes > y->end_bytes) - (x->end_bytes < y->end_bytes);
}

static bool sort_tensors(struct safetensors_tensor *t, size_t count, const char *file,
                         struct err *e) {
    if (count == 0)
        return true;
    qsort(t, count, sizeof *t, by_offset);
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (t[i].begin_bytes != at)
            return err_set(e, ERR_INPUT, "%s: tensor \"%.80s\" overlaps another or leaves a hole",
                           file, t[i].name);
        at = t[i].end_bytes;
    }
    qsort(t, count, sizeof *t, by_name);
    for (size_t i = 1; i < count; i++)
        if (!strcmp(t[i - 1].name, t[i].name))
            return err_set(e, ERR_INPUT, "%s: tensor \"%.80s\" stands twice", file, t[i].name);
    return true;
}

bool safetensors_parse(const struct safetensors_header *h, struct arena *a, struct safetensors *out,
                       struct err *e) {
    struct scan s = {h->text, h->text, h->text + h->bytes, h->file, h->data_bytes, a, e};
    size_t count = 0;
    if (!scan_header(&s, NULL, &count))
        return false;
    struct safetensors_tensor *tensors = arena_array(a, count + 1, sizeof *tensors);
    s.p = s.start;
    if (!scan_header(&s, tensors, &count) || !sort_tensors(tensors, count, h->file, e))
        return false;
    *out = (struct safetensors){tensors, count, 1, h->data_bytes};
    return true;
}

// The header's text, malloc'd; its length is checked against the file before anything is allocated.
static char *read_header(FILE *f, uint64_t file_bytes, struct safetensors_header *h,
                         struct err *e) {
    unsigned char length[8];
    uint64_t bytes = 0;
    if (file_bytes < sizeof length || fread(length, 1, sizeof length, f) != sizeof length) {
        err_set(e, ERR_INPUT, "%s: too short for a safetensors file", h->file);
        return NULL;
    }
    for (size_t i = 0; i < sizeof length; i++)
        bytes |= (uint64_t)length[i] << (8 * i);
    if (bytes > file_bytes - sizeof length || bytes > HEADER_MAX_BYTES || bytes < 2) {
        err_set(e, ERR_INPUT,
                "%s: a header of %" PRIu64 " bytes in a file of %" PRIu64 " is impossible", h->file,
                bytes, file_bytes);
        return NULL;
    }
    char *text = malloc(bytes);
    if (!text || fread(text, 1, bytes, f) != bytes) {
        err_set(e, ERR_INPUT, "%s: cannot read the header", h->file);
        free(text);
        return NULL;
    }
    h->text = text;
    h->bytes = bytes;
    h->data_bytes = file_bytes - sizeof length - bytes;
    return text;
}

bool safetensors_read(const char *path, struct arena *a, struct safetensors *out, struct err *e) {
    struct stat st;
    struct safetensors_header h = {.file = path};
    FILE *f = fopen(path, "rb");
    if (!f)
        return err_set(e, ERR_INPUT, "%s: %s", path, strerror(errno));
    char *text = NULL;
    bool ok = fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode);
    if (!ok)
        err_set(e, ERR_INPUT, "%s: not a regular file", path);
    else
        text = read_header(f, (uint64_t)st.st_size, &h, e);
    ok = text && safetensors_parse(&h, a, out, e);
    free(text);
    fclose(f);
    return ok;
}

struct shards {
    const char **names;
    size_t count;
};

// The distinct files of "weight_map"; names that leave the folder are refused.
static bool list_shards(struct json_node map, struct arena *a, struct shards *out, struct err *e) {
    out->names = arena_array(a, SHARDS_MAX, sizeof *out->names);
    for (size_t i = 0; i < json_size(map); i++) {
        struct json_node n = json_at(map, i);
        if (!json_is_string(n))
            return json_fail(n, e, "expected a file name");
        const char *name = n.item->valuestring;
        if (strchr(name, '/') || !*name || name[0] == '.')
            return json_fail(n, e, "a shard is a file of the same folder");
        size_t k = 0;
        while (k < out->count && strcmp(out->names[k], name) != 0)
            k++;
        if (k < out->count)
            continue;
        if (out->count == SHARDS_MAX)
            return json_fail(n, e, "more than %d shards", SHARDS_MAX);
        out->names[out->count++] = arena_strdup(a, name);
    }
    return true;
}

static bool read_shards(const char *folder, const struct shards *shards, struct arena *a,
                        struct safetensors *out, struct err *e) {
    struct safetensors *parts = arena_array(a, shards->count + 1, sizeof *parts);
    struct safetensors all = {.files = shards->count};
    for (size_t i = 0; i < shards->count; i++) {
        if (!safetensors_read(arena_printf(a, "%s/%s", folder, shards->names[i]), a, &parts[i], e))
            return false;
        all.count += parts[i].count;
        all.data_bytes += parts[i].data_bytes;
    }
    struct safetensors_tensor *tensors = arena_array(a, all.count + 1, sizeof *tensors);
    size_t n = 0;
    for (size_t i = 0; i < shards->count; i++)
        for (size_t k = 0; k < parts[i].count; k++)
            tensors[n++] = parts[i].tensors[k];
    if (n > 0)
        qsort(tensors, n, sizeof *tensors, by_name);
    for (size_t i = 1; i < n; i++)
        if (!strcmp(tensors[i - 1].name, tensors[i].name))
            return err_set(e, ERR_INPUT, "%s: tensor \"%.80s\" stands in two shards", folder,
                           tensors[i].name);
    all.tensors = tensors;
    *out = all;
    return true;
}

static bool check_map(struct json_node map, const struct safetensors *s, struct err *e) {
    for (size_t i = 0; i < json_size(map); i++) {
        struct safetensors_tensor key = {.name = json_key(json_at(map, i))};
        if (s->count == 0 || !bsearch(&key, s->tensors, s->count, sizeof *s->tensors, by_name))
            return json_fail(json_at(map, i), e, "no shard holds this tensor");
    }
    if (s->count != json_size(map))
        return json_fail(map, e, "names %zu tensors, the shards hold %zu", json_size(map),
                         s->count);
    return true;
}

static bool read_index(const char *folder, const char *path, struct arena *a,
                       struct safetensors *out, struct err *e) {
    struct json_doc *doc = json_read_file(path, e);
    if (!doc)
        return false;
    struct json_node map;
    struct shards shards = {0};
    bool ok = json_find(json_root(doc), "weight_map", &map) && json_is_object(map);
    if (!ok)
        json_fail(json_root(doc), e, "\"weight_map\" is missing");
    struct safetensors all;
    ok = ok && list_shards(map, a, &shards, e) && read_shards(folder, &shards, a, &all, e) &&
         check_map(map, &all, e);
    json_destroy(doc);
    if (ok)
        *out = all;
    return ok;
}

bool safetensors_read_folder(const char *folder, struct arena *a, struct safetensors *out,
                             bool *found, struct err *e) {
    struct stat st;
    const char *single = arena_printf(a, "%s/model.safetensors", folder);
    const char *index = arena_printf(a, "%s/model.safetensors.index.json", folder);
    bool has_single = stat(single, &st) == 0, has_index = stat(index, &st) == 0;
    bool ok = true;
    if (has_single)
        ok = safetensors_read(single, a, out, e);
    else if (has_index)
        ok = read_index(folder, index, a, out, e);
    if (ok)
        *found = has_single || has_index;
    return ok;
}
