// SPDX-License-Identifier: Apache-2.0
#include "bench/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"

#define CELL 40

// The columns of one row, formatted.
struct row {
    char what[CELL], how[CELL], shape[CELL], count[CELL], median[CELL], spread[CELL];
    char algbw[CELL], busbw[CELL], ceiling[CELL], errors[CELL];
};

static void join(char *cell, const char *const *parts, size_t count) {
    size_t used = 0;
    cell[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        if (parts[i] == NULL || parts[i][0] == '\0' || used >= CELL)
            continue;
        used += (size_t)snprintf(cell + used, CELL - used, "%s%s", used ? " " : "", parts[i]);
    }
}

static void format_shape(const struct measure_result *r, char *cell) {
    char size[32] = "", block[32] = "";
    if (r->k > 0) {
        snprintf(cell, CELL, "%llux%llux%llu", (unsigned long long)r->m, (unsigned long long)r->n,
                 (unsigned long long)r->k);
        return;
    }
    units_format_bytes(size, sizeof(size), (double)r->payload_bytes);
    if (r->block_bytes > 0) {
        units_format_bytes(block, sizeof(block), (double)r->block_bytes);
        snprintf(cell, CELL, "%s x%llu x%llu", block, (unsigned long long)r->queue_depth,
                 (unsigned long long)r->jobs);
    } else {
        snprintf(cell, CELL, "%s", size);
    }
}

static void format_rate(double bytes_per_s, char *cell) {
    if (isfinite(bytes_per_s))
        snprintf(cell, CELL, "%.4g", bytes_per_s / UNITS_GIGA);
    else
        snprintf(cell, CELL, "-");
}

static void format_row(const struct measure_result *r, struct row *row) {
    char low[32], high[32];
    const char *what[] = {r->kind, r->direction, r->group};
    const char *how[] = {r->backend, r->algorithm, r->dtype, r->in_place ? "in-place" : NULL,
                         r->concurrent ? "all" : NULL};
    join(row->what, what, 3);
    join(row->how, how, 5);
    format_shape(r, row->shape);
    snprintf(row->count, CELL, "%llu%s",
             (unsigned long long)(r->ranks > 1     ? r->ranks
                                  : r->threads > 0 ? r->threads
                                                   : 1),
             r->oversubscribed ? "!" : "");
    units_format_seconds(row->median, CELL, r->median_s);
    snprintf(row->spread, CELL, "[%s, %s]", units_format_seconds(low, sizeof(low), r->p05_s),
             units_format_seconds(high, sizeof(high), r->p95_s));
    format_rate(r->algbw_bytes_per_s, row->algbw);
    if (isfinite(r->flop_per_s))
        snprintf(row->busbw, CELL, "%.4g TF", r->flop_per_s / UNITS_TERA);
    else
        format_rate(r->busbw_bytes_per_s, row->busbw);
    if (isfinite(r->ceiling_bytes_per_s))
        snprintf(row->ceiling, CELL, "%.0f%%", 100 * r->algbw_bytes_per_s / r->ceiling_bytes_per_s);
    else
        snprintf(row->ceiling, CELL, "-");
    snprintf(row->errors, CELL, "%llu", (unsigned long long)r->errors);
}

static void print_row(FILE *out, const struct row *r) {
    fprintf(out, "%-24s %-26s %18s %6s %10s %-22s %9s %9s %8s %5s\n", r->what, r->how, r->shape,
            r->count, r->median, r->spread, r->algbw, r->busbw, r->ceiling, r->errors);
}

void table_print(FILE *out, const struct measurement *m) {
    static const struct row names = {"what",       "how",   "size",  "ranks",   "median",
                                     "[p05, p95]", "algbw", "busbw", "ceiling", "wrong"};
    static const struct row units = {"", "", "", "threads", "", "", "GB/s", "GB/s", "reached", ""};
    bool crowded = false, unsure = false;
    print_row(out, &names);
    print_row(out, &units);
    for (size_t i = 0; i < m->count; i++) {
        struct row row;
        format_row(&m->results[i], &row);
        print_row(out, &row);
        crowded |= m->results[i].oversubscribed;
        unsure |= !m->results[i].confident;
    }
    if (crowded)
        fprintf(out, "! more ranks than processors: not what the machine can do\n");
    if (unsure)
        fprintf(out, "some medians did not settle within --budget; the spread says how far off\n");
}
