// SPDX-License-Identifier: Apache-2.0
// nccl-tests: text of every age and the -J JSON. docs/formats.md §import.
#include "describe/import.h"

#include "base/kinds.h"
#include "base/units.h"
#include "describe/import_lines.h"
#include "describe/import_nccl_infer.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

struct reader {
    const struct import_source *s;
    struct import_nccl_facts facts;
    struct measure_result *results;
    size_t count, capacity;
    size_t zero_rows, cut_rows;
    const char *hosts[1024];
};

static void warn(const struct reader *r, int line, const char *text) {
    warnings_add(r->s->warnings, r->s->arena, WARNING_LEFT_OUT,
                 arena_printf(r->s->arena, "%s:%d", r->s->name, line), text);
}

static struct measure_result *add(struct reader *r) {
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 64;
        struct measure_result *more = arena_array(r->s->arena, capacity, sizeof *more);
        if (r->count)
            memcpy(more, r->results, r->count * sizeof *more);
        r->results = more;
        r->capacity = capacity;
    }
    struct measure_result *x = &r->results[r->count++];
    measure_result_init(x);
    return x;
}

// "#  Rank  3 Group  0 Pid 123 on nodeA device  3 [0000:0c:00] NVIDIA H100"
static void take_rank(struct reader *r, const struct import_line *l) {
    struct import_nccl_facts *f = &r->facts;
    f->rank_lines++;
    for (size_t i = 1; i + 1 < l->word_count; i++) {
        if (strcmp(l->words[i], "on") == 0) {
            const char *host = l->words[i + 1];
            size_t k = 0;
            while (k < f->hosts && strcmp(r->hosts[k], host) != 0)
                k++;
            if (k == f->hosts && f->hosts < sizeof r->hosts / sizeof r->hosts[0])
                r->hosts[f->hosts++] = host;
        }
    }
    const char *bracket = strchr(l->text, ']');
    if (bracket && strchr(l->text, '[') && !f->gpu) {
        while (*++bracket == ' ')
            ;
        f->gpu = bracket;
    }
}

static void take_comment(struct reader *r, const struct import_line *l) {
    static const char title[] = "Collective test starting:";
    const char *p = strstr(l->text, title);
    if (p) {
        p += sizeof title - 1;
        while (*p == ' ')
            p++;
        r->facts.title = p;
    }
    if (l->word_count > 2 && strcmp(l->words[1], "Rank") == 0)
        take_rank(r, l);
    if (strstr(l->text, "nccl-tests version") || strstr(l->text, "NCCL version"))
        r->facts.software = l->text[0] == '#' ? l->text + 2 : l->text;
    if (strstr(l->text, "Out of bounds values") && strstr(l->text, "FAILED"))
        warn(r, l->number, "nccl-tests itself reports wrong results (FAILED)");
}

static bool is_row(const struct import_line *l) {
    uint64_t size, count;
    return l->word_count >= 4 && import_u64(l->words[0], &size) &&
           import_u64(l->words[1], &count) && isalpha((unsigned char)l->words[2][0]);
}

struct row {
    uint64_t size, count;
    const char *type, *redop;
    int64_t root;          // -1 also when absent
    const char *values[8]; // time, algbw, busbw, wrong; twice
    size_t value_count;
    int line;
};

// redop and root came later than the first versions; a row of four or eight values has neither.
static bool split_row(const struct import_line *l, struct row *out) {
    struct row x = {.type = l->words[2], .root = -1, .line = l->number};
    size_t i = 3;
    import_u64(l->words[0], &x.size);
    import_u64(l->words[1], &x.count);
    if (i < l->word_count && isalpha((unsigned char)l->words[i][0]) &&
        strcmp(l->words[i], "N/A") != 0)
        x.redop = l->words[i++];
    size_t left = l->word_count - i;
    if (left % 4 == 1) {
        double root;
        if (!import_double(l->words[i++], &root))
            return false;
        x.root = (int64_t)root;
        left--;
    }
    if (left != 4 && left != 8)
        return false;
    for (; i < l->word_count; i++)
        x.values[x.value_count++] = l->words[i];
    *out = x;
    return true;
}

static const char *dtype_text(const char *type) {
    enum dtype t;
    return dtype_find(type, &t) ? dtype_name(t) : type;
}

static bool take_values(struct reader *r, const struct row *row, bool in_place) {
    const char *const *v = row->values + (in_place ? 4 : 0);
    double time_us, algbw, busbw, wrong = 0;
    if (!import_double(v[0], &time_us) || !import_double(v[1], &algbw) ||
        !import_double(v[2], &busbw) || !(time_us > 0))
        return false;
    // With checks off, "N/A" stands under both and tells nothing.
    if (in_place && strcmp(v[3], "N/A") == 0 && strcmp(row->values[3], "N/A") != 0)
        r->facts.in_place_unchecked = true;
    if (strcmp(v[3], "N/A") != 0 && !import_double(v[3], &wrong))
        return false;
    struct measure_result *x = add(r);
    x->backend = "nccl";
    x->dtype = dtype_text(row->type);
    x->payload_bytes = row->size;
    x->in_place = in_place;
    x->iterations = 1;
    x->median_s = time_us * UNITS_MICRO;
    x->algbw_bytes_per_s = (double)row->size / x->median_s;
    x->errors = wrong >= 1 ? (uint64_t)wrong : 0;
    import_nccl_observe(&r->facts, &(struct import_nccl_row){.size = row->size,
                                                             .count = row->count,
                                                             .type = row->type,
                                                             .redop = row->redop,
                                                             .root = row->root,
                                                             .algbw = algbw,
                                                             .busbw = busbw});
    return true;
}

static void take_row(struct reader *r, const struct import_line *l) {
    struct row row;
    if (!split_row(l, &row)) {
        r->cut_rows++;
        warn(r, l->number, "a row of the table is cut off; it is left out");
        return;
    }
    if (row.size == 0) {
        r->zero_rows++;
        return;
    }
    bool ok = take_values(r, &row, false);
    if (row.value_count == 8)
        ok = take_values(r, &row, true) && ok;
    if (!ok)
        warn(r, l->number, "a value of this row is not a number; it is left out");
}

static bool read_text(struct reader *r, struct err *e) {
    struct import_lines lines;
    import_split(r->s->text, r->s->bytes, r->s->arena, &lines);
    for (size_t i = 0; i < lines.count; i++) {
        const struct import_line *l = &lines.items[i];
        const char *p = l->text;
        while (*p == ' ' || *p == '\t')
            p++;
        if (*p == '#' || strncmp(p, "NCCL version", 12) == 0)
            take_comment(r, l);
        else if (is_row(l))
            take_row(r, l);
    }
    if (r->zero_rows)
        warn(r, 1,
             arena_printf(r->s->arena, "%zu rows of size 0 carry no bandwidth; left out",
                          r->zero_rows));
    if (r->count == 0)
        return err_set(
            e, ERR_INPUT,
            "%s: no complete row of an nccl-tests table in %zu lines (%zu cut off, %zu of size 0)",
            r->s->name, lines.count, r->cut_rows, r->zero_rows);
    return true;
}

static bool read_body(struct reader *r, struct json_node row, bool in_place, struct err *e) {
    struct json_node body;
    double time_us = 0, algbw = 0, busbw = 0, wrong = 0;
    uint64_t size = 0, count = 0;
    const char *type = "float", *redop = NULL, *root = NULL;
    if (!json_find(row, in_place ? "in_place" : "out_of_place", &body) || !json_is_object(body))
        return true;
    if (!json_get_u64(row, "size", true, &size, e) ||
        !json_get_u64(row, "count", true, &count, e) ||
        !json_get_string(row, "type", true, &type, e) ||
        !json_get_string(row, "redop", false, &redop, e) ||
        !json_get_string(row, "root", false, &root, e) ||
        !json_get_double(body, "time", true, &time_us, e) ||
        !json_get_double(body, "alg_bw", true, &algbw, e) ||
        !json_get_double(body, "bus_bw", true, &busbw, e))
        return false;
    struct json_node n;
    if (json_find(body, "nwrong", &n) && json_is_number(n) && !json_as_double(n, &wrong, e))
        return false;
    if (size == 0) {
        r->zero_rows++;
        return true;
    }
    if (!(time_us > 0))
        return json_fail(body, e, "time must be positive");
    struct measure_result *x = add(r);
    x->backend = "nccl";
    x->dtype = dtype_text(arena_strdup(r->s->arena, type)); // the document goes
    x->payload_bytes = size;
    x->in_place = in_place;
    x->iterations = 1;
    x->median_s = time_us * UNITS_MICRO;
    x->algbw_bytes_per_s = (double)size / x->median_s;
    x->errors = wrong >= 1 ? (uint64_t)wrong : 0;
    double root_value = -1;
    if (root)
        import_double(root + strspn(root, " "), &root_value);
    import_nccl_observe(&r->facts,
                        &(struct import_nccl_row){.size = size,
                                                  .count = count,
                                                  .type = arena_strdup(r->s->arena, type),
                                                  .redop = arena_strdup(r->s->arena, redop),
                                                  .root = (int64_t)root_value,
                                                  .algbw = algbw,
                                                  .busbw = busbw});
    return true;
}

static bool read_json(struct reader *r, struct err *e) {
    struct json_doc *d = json_read_text(r->s->text, r->s->bytes, r->s->name, e);
    struct json_node rows;
    bool ok = false;
    if (!d)
        return false;
    if (!json_find(json_root(d), "results", &rows) || !json_is_array(rows)) {
        json_fail(json_root(d), e, "no results[] as nccl-tests writes it");
        goto fail;
    }
    for (size_t i = 0; i < json_size(rows); i++)
        if (!read_body(r, json_at(rows, i), false, e) || !read_body(r, json_at(rows, i), true, e))
            goto fail;
    ok = r->count > 0 || json_fail(rows, e, "no row with a size above 0");
fail:
    json_destroy(d);
    return ok;
}

bool import_nccl_tests(const struct import_source *s, struct measurement *out, struct err *e) {
    struct reader r = {.s = s};
    struct import_nccl_verdict v;
    const char *p = s->text + strspn(s->text, " \t\r\n");
    if (!(*p == '{' ? read_json(&r, e) : read_text(&r, e)) ||
        !import_nccl_infer(&r.facts, s, &v, e))
        return false;
    for (size_t i = 0; i < r.count; i++) {
        struct measure_result *x = &r.results[i];
        x->kind = collective_name(v.collective);
        x->ranks = v.ranks;
        x->nodes = r.facts.hosts;
        x->scope = r.facts.hosts > 1 ? "inter_node" : r.facts.hosts == 1 ? "intra_node" : NULL;
        x->software = r.facts.software;
        x->min_s = x->max_s = x->median_s;
        if (v.ranks > 1)
            x->busbw_bytes_per_s =
                x->algbw_bytes_per_s * collective_bus_factor(v.collective, v.ranks);
    }
    *out = (struct measurement){.results = r.results, .count = r.count};
    out->host.gpu = r.facts.gpu;
    out->host.gpus = r.facts.rank_lines;
    return true;
}
