// SPDX-License-Identifier: Apache-2.0
// p2pBandwidthLatencyTest matrices and gdsio lines.
#include "base/units.h"
#include "describe/import.h"
#include "describe/import_lines.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// One copied payload per figure is not stated by these tools: rates stand alone, times are unknown.
static void set_rate(struct measure_result *x, double bytes_per_s, const char *note) {
    x->algbw_bytes_per_s = x->busbw_bytes_per_s = bytes_per_s;
    x->note = note;
}

struct p2p_section {
    const char *title;
    bool bidirectional, enabled, bandwidth;
};

static bool section_of(const struct import_line *l, struct p2p_section *out) {
    if (!strstr(l->text, "Matrix"))
        return false;
    *out = (struct p2p_section){.title = l->text,
                                .bandwidth = strstr(l->text, "GB/s") != NULL,
                                .bidirectional = strstr(l->text, "Bidirectional") != NULL,
                                .enabled = strstr(l->text, "P2P=Enabled") != NULL};
    return true;
}

static bool p2p_row(const struct import_source *s, const struct import_line *l,
                    const struct p2p_section *x, size_t columns, struct measurement *out) {
    uint64_t from;
    if (l->word_count < 2 || !import_u64(l->words[0], &from))
        return false;
    if (l->word_count != 1 + columns) {
        warnings_add(s->warnings, s->arena, WARNING_LEFT_OUT,
                     arena_printf(s->arena, "%s:%d", s->name, l->number),
                     arena_printf(s->arena, "row %" PRIu64 " has %zu of %zu cells; left out", from,
                                  l->word_count - 1, columns));
        return true;
    }
    for (size_t to = 0; to < columns; to++) {
        double giga;
        if (to == from || !import_double(l->words[1 + to], &giga) || !(giga > 0))
            continue;
        struct measure_result *r = measure_append(out, s->arena);
        r->kind = "copy";
        r->backend = "cuda";
        r->scope = "intra_node";
        r->direction = x->bidirectional ? "bidirectional" : "p2p";
        r->algorithm = x->enabled ? "p2p" : "staged";
        r->group = arena_printf(s->arena, "%" PRIu64 ",%zu", from, to);
        r->ranks = 2;
        set_rate(r, giga * UNITS_GIGA, x->title);
    }
    return true;
}

bool import_p2p_bandwidth(const struct import_source *s, struct measurement *out, struct err *e) {
    struct import_lines lines;
    struct measurement m = {0};
    struct p2p_section section = {0};
    size_t columns = 0;
    import_split(s->text, s->bytes, s->arena, &lines);
    for (size_t i = 0; i < lines.count; i++) {
        const struct import_line *l = &lines.items[i];
        if (section_of(l, &section))
            columns = 0;
        else if (l->word_count > 1 && strcmp(l->words[0], "D\\D") == 0)
            columns = l->word_count - 1;
        else if (section.bandwidth && columns)
            p2p_row(s, l, &section, columns, &m);
    }
    if (m.count == 0)
        return err_set(e, ERR_INPUT, "%s: no bandwidth matrix with a whole row in %zu lines",
                       s->name, lines.count);
    *out = m;
    return true;
}

// "Key: value" pairs; a key may hold a slash or unit in its value.
static const char *value_after(const struct import_line *l, const char *key) {
    for (size_t i = 0; i + 1 < l->word_count; i++)
        if (strcmp(l->words[i], key) == 0)
            return l->words[i + 1];
    return NULL;
}

static double number_of(const char *text) {
    const double limit =
        UNITS_GIGA * UNITS_MEGA; // far beyond any rate, count or size that gdsio prints
    double v = text ? strtod(text, NULL) : NAN;
    return fabs(v) < limit ? v : NAN;
}

static bool gdsio_line(const struct import_source *s, const struct import_line *l,
                       struct measurement *out) {
    const char *type = value_after(l, "IoType:"), *transfer = value_after(l, "XferType:");
    double rate = number_of(value_after(l, "Throughput:"));
    double latency_us = number_of(value_after(l, "Avg_Latency:"));
    double ops = number_of(value_after(l, "ops:")), block = number_of(value_after(l, "IOSize:"));
    if (!type || !transfer || !(rate > 0))
        return false;
    struct measure_result *r = measure_append(out, s->arena);
    r->kind = "nvme";
    r->backend = strncmp(transfer, "GPU", 3) == 0 ? "cufile" : "pread";
    r->direction = strstr(type, "WRITE") ? "write" : "read";
    r->threads = (uint64_t)fmax(0, number_of(value_after(l, "Threads:")));
    r->block_bytes = block > 0 ? (uint64_t)(block * (double)UNITS_KIB) : 0;
    r->iterations = ops > 0 ? (uint64_t)ops : 0;
    if (latency_us > 0)
        r->median_s = latency_us * UNITS_MICRO; // gdsio prints the mean only
    set_rate(r, rate * (double)UNITS_GIB,
             arena_printf(s->arena, "gdsio %s; the time is a mean", transfer));
    return true;
}

bool import_gdsio(const struct import_source *s, struct measurement *out, struct err *e) {
    struct import_lines lines;
    struct measurement m = {0};
    import_split(s->text, s->bytes, s->arena, &lines);
    for (size_t i = 0; i < lines.count; i++) {
        const struct import_line *l = &lines.items[i];
        if (strstr(l->text, "IoType:") && !gdsio_line(s, l, &m))
            warnings_add(s->warnings, s->arena, WARNING_LEFT_OUT,
                         arena_printf(s->arena, "%s:%d", s->name, l->number),
                         "a gdsio line without type, transfer or throughput; left out");
    }
    if (m.count == 0)
        return err_set(e, ERR_INPUT, "%s: no whole gdsio line in %zu lines", s->name, lines.count);
    *out = m;
    return true;
}
