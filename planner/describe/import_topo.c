// SPDX-License-Identifier: Apache-2.0
// nvidia-smi topo -m and -p2p: matrices in text, with colours, tabs, wraps and cuts as people post.
#include "describe/import.h"
#include "describe/import_lines.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void left_out(const struct import_source *s, int line, const char *text) {
    warnings_add(s->warnings, s->arena, WARNING_LEFT_OUT,
                 arena_printf(s->arena, "%s:%d", s->name, line), text);
}

static bool digits_after(const char *w, const char *prefix) {
    size_t n = strlen(prefix);
    if (strncmp(w, prefix, n) != 0 || !w[n])
        return false;
    return w[n + strspn(w + n, "0123456789")] == '\0';
}

static bool is_gpu(const char *w) {
    return digits_after(w, "GPU");
}

static bool is_nic(const char *w) {
    return digits_after(w, "NIC") || strncmp(w, "mlx", 3) == 0 || strncmp(w, "bnxt", 4) == 0 ||
           strncmp(w, "rdmap", 5) == 0 || strncmp(w, "efa_", 4) == 0 || strncmp(w, "ib_", 3) == 0;
}

static bool is_device(const char *w) {
    return is_gpu(w) || is_nic(w);
}

static bool parse_cell(const char *w, struct topology_cell *out) {
    struct topology_cell c = {0};
    if (strcmp(w, "X") == 0) {
        c.path = PATH_SELF;
    } else if (digits_after(w, "NV")) {
        c.path = PATH_NVLINK;
        c.links = strtoull(w + 2, NULL, 10);
    } else {
        int path = PATH_PIX;
        while (path <= PATH_SYS && strcmp(w, topology_path_names[path]) != 0)
            path++;
        if (path > PATH_SYS)
            return false;
        c.path = (enum topology_path)path;
    }
    *out = c;
    return true;
}

static const struct import_line *find_header(const struct import_lines *lines, size_t *index) {
    for (size_t i = 0; i < lines->count; i++) {
        const struct import_line *l = &lines->items[i];
        bool all = l->word_count > 0 && is_device(l->words[0]);
        if (all &&
            (l->word_count == 1 || is_device(l->words[1]) || strcmp(l->words[1], "CPU") == 0)) {
            // A data row of a one-GPU host starts with GPU0 too, but its second word is a cell.
            *index = i;
            return l;
        }
    }
    return NULL;
}

static void read_header(const struct import_line *l, struct topology *t, struct arena *a) {
    size_t n = 0;
    while (n < l->word_count && is_device(l->words[n]))
        n++;
    t->devices = arena_array(a, n + 1, sizeof *t->devices);
    t->cells = arena_array(a, n * n + 1, sizeof *t->cells);
    t->count = n;
    for (size_t i = 0; i < n; i++) {
        t->devices[i] = (struct topology_device){
            .name = l->words[i], .nic = !is_gpu(l->words[i]), .numa = -1, .nic_bytes_per_s = NAN};
        t->gpus += is_gpu(l->words[i]);
    }
    for (size_t i = 0; i < n * n; i++)
        t->cells[i].path = PATH_UNKNOWN;
}

static void read_affinity(struct topology_device *d, const struct import_line *l, size_t first) {
    uint64_t numa;
    if (first < l->word_count && isdigit((unsigned char)l->words[first][0]))
        d->cpu_affinity = l->words[first++];
    if (first < l->word_count && import_u64(l->words[first], &numa))
        d->numa = (int64_t)numa;
}

static int row_of(const struct topology *t, const char *name) {
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->devices[i].name, name) == 0)
            return (int)i;
    return -1;
}

// A row is taken whole or not at all: a cell that merged with its neighbour shifts the rest.
static bool read_row(const struct import_source *s, const struct import_line *l, struct topology *t,
                     bool *seen) {
    int row = row_of(t, l->words[0]);
    struct topology_cell cells[IMPORT_WORDS_MAX];
    if (l->word_count < 1 + t->count) {
        left_out(s, l->number,
                 arena_printf(s->arena, "row %s is cut off: %zu of %zu cells", l->words[0],
                              l->word_count - 1, t->count));
        return false;
    }
    for (size_t i = 0; i < t->count; i++)
        if (!parse_cell(l->words[1 + i], &cells[i])) {
            left_out(s, l->number,
                     arena_printf(s->arena, "row %s: '%s' is no connection (merged columns?)",
                                  l->words[0], l->words[1 + i]));
            return false;
        }
    if (cells[row].path != PATH_SELF) {
        left_out(
            s, l->number,
            arena_printf(s->arena, "row %s has no X under itself (shifted columns?)", l->words[0]));
        return false;
    }
    memcpy(t->cells + (size_t)row * t->count, cells, t->count * sizeof *cells);
    read_affinity(&t->devices[row], l, 1 + t->count);
    seen[row] = true;
    return true;
}

static void check_symmetry(const struct import_source *s, struct topology *t) {
    for (size_t i = 0; i < t->count; i++)
        for (size_t k = 0; k < i; k++) {
            struct topology_cell *x = &t->cells[i * t->count + k], *y = &t->cells[k * t->count + i];
            if (x->path == PATH_UNKNOWN)
                *x = *y; // the row that was cut is known from its column
            else if (y->path == PATH_UNKNOWN)
                *y = *x;
            else if (x->path != y->path || x->links != y->links)
                left_out(s, 1,
                         arena_printf(s->arena, "%s-%s and %s-%s disagree", t->devices[i].name,
                                      t->devices[k].name, t->devices[k].name, t->devices[i].name));
        }
}

bool import_topo_matrix(const struct import_source *s, struct topology *out, struct err *e) {
    struct import_lines lines;
    struct topology t = {.complete = true};
    bool seen[IMPORT_WORDS_MAX] = {0};
    size_t start, rows = 0;
    import_split(s->text, s->bytes, s->arena, &lines);
    const struct import_line *header = find_header(&lines, &start);
    if (!header)
        return err_set(e, ERR_INPUT, "%s: no header row of GPU and NIC columns in %zu lines",
                       s->name, lines.count);
    read_header(header, &t, s->arena);
    if (t.gpus == 0)
        return err_set(e, ERR_INPUT, "%s:%d: the header row names no GPU", s->name, header->number);
    for (size_t i = start + 1; i < lines.count; i++) {
        const struct import_line *l = &lines.items[i];
        if (l->word_count == 0 || row_of(&t, l->words[0]) < 0 ||
            (l->word_count > 1 && l->words[1][0] == ':'))
            continue;
        if (read_row(s, l, &t, seen))
            rows++;
        else
            t.complete = false;
    }
    if (rows == 0)
        return err_set(e, ERR_INPUT, "%s:%d: no whole row follows the header", s->name,
                       header->number);
    for (size_t i = 0; i < t.count; i++)
        if (!seen[i]) {
            t.complete = false;
            left_out(s, header->number,
                     arena_printf(s->arena, "row %s is missing or cut off", t.devices[i].name));
        }
    check_symmetry(s, &t);
    *out = t;
    return true;
}

static bool is_status(const char *w) {
    static const char *const known[] = {"X", "OK", "CNS", "GNS", "TNS", "NS", "DR", "U"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(w, known[i]) == 0)
            return true;
    return false;
}

static bool read_status_row(const struct import_source *s, const struct import_line *l,
                            struct topology *t, struct err *e) {
    int row = row_of(t, l->words[0]);
    if (l->word_count != 1 + t->gpus)
        return err_set(e, ERR_INPUT, "%s:%d: row %s has %zu cells, not %zu", s->name, l->number,
                       l->words[0], l->word_count - 1, t->gpus);
    for (size_t k = 0; k < t->gpus; k++) {
        if (!is_status(l->words[1 + k]))
            return err_set(e, ERR_INPUT, "%s:%d: '%s' is no peer status", s->name, l->number,
                           l->words[1 + k]);
        t->p2p[(size_t)row * t->gpus + k] = l->words[1 + k];
    }
    return true;
}

bool import_topo_p2p(const struct import_source *s, struct topology *out, struct err *e) {
    struct import_lines lines;
    struct topology t = {.complete = true};
    size_t start, rows = 0;
    import_split(s->text, s->bytes, s->arena, &lines);
    const struct import_line *header = find_header(&lines, &start);
    if (!header)
        return err_set(e, ERR_INPUT, "%s: no header row of GPU columns in %zu lines", s->name,
                       lines.count);
    read_header(header, &t, s->arena);
    if (t.gpus == 0 || t.gpus != t.count)
        return err_set(e, ERR_INPUT, "%s:%d: the header row of a peer matrix names GPUs alone",
                       s->name, header->number);
    t.p2p = arena_array(s->arena, t.gpus * t.gpus + 1, sizeof *t.p2p);
    for (size_t i = start + 1; i < lines.count; i++) {
        const struct import_line *l = &lines.items[i];
        if (l->word_count < 2 || row_of(&t, l->words[0]) < 0)
            continue;
        if (!read_status_row(s, l, &t, e))
            return false;
        rows++;
    }
    if (rows != t.gpus)
        return err_set(e, ERR_INPUT, "%s: %zu of %zu rows of the peer matrix", s->name, rows,
                       t.gpus);
    *out = t;
    return true;
}
