// SPDX-License-Identifier: Apache-2.0
// Published series of collectives: every point is predicted by a fit of the others of its series.
// fit_public FILE [LIMIT]: FILE has "measured_collectives"; exit 1 above the limit of the median.
#include "base/json.h"
#include "base/stats.h"
#include "base/units.h"
#include "judge/series.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POINTS_MAX 64
#define SERIES_MAX 128
#define LEAST_POINTS 5 // left out one by one, four remain

struct series {
    char name[256];
    struct series_point points[POINTS_MAX];
    size_t count;
};

static double number_of(struct json_node o, const char *key) {
    struct json_node n;
    double v = NAN;
    return json_find(o, key, &n) && json_is_number(n) && json_as_double(n, &v, NULL) ? v : NAN;
}

static const char *text_of(struct json_node o, const char *key) {
    struct json_node n;
    return json_find(o, key, &n) && json_is_string(n) ? n.item->valuestring : "";
}

static void add(struct json_node o, struct series *all, size_t *count) {
    char name[256];
    enum collective k;
    double ranks = number_of(o, "gpus"), payload = number_of(o, "message_bytes");
    double busbw = number_of(o, "busbw_GBps") * UNITS_GIGA;
    size_t i = 0;
    if (!collective_find(text_of(o, "what"), &k) || !(ranks >= 2) || !(payload > 0) || !(busbw > 0))
        return;
    snprintf(name, sizeof name, "%s %s %.0fx%.0f %.80s", text_of(o, "what"), text_of(o, "cluster"),
             number_of(o, "nodes"), ranks, text_of(o, "source"));
    while (i < *count && strcmp(all[i].name, name) != 0)
        i++;
    if (i == SERIES_MAX || all[i].count == POINTS_MAX)
        return;
    *count += i == *count;
    snprintf(all[i].name, sizeof all[i].name, "%s", name);
    double sent = collective_sent_bytes(k, payload, (uint64_t)ranks);
    double seconds = payload * collective_bus_factor(k, (uint64_t)ranks) / busbw;
    all[i].points[all[i].count++] = (struct series_point){sent, payload, seconds};
}

// Relative errors of points that the fit did not see; ends are extrapolated.
static size_t leave_out(const struct series *s, double *errors) {
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++) {
        struct arena *a = arena_create();
        struct series_point rest[POINTS_MAX];
        struct series_fit f;
        struct err e = {0};
        size_t kept = 0;
        for (size_t k = 0; k < s->count; k++)
            if (s->points[k].payload_bytes != s->points[i].payload_bytes)
                rest[kept++] = s->points[k];
        const struct series_point *p = &s->points[i];
        if (series_fit(rest, kept, a, &f, &e))
            errors[n++] =
                fabs(series_fit_seconds(&f, p->payload_bytes, p->sent_bytes) / p->seconds - 1);
        arena_destroy(a);
    }
    return n;
}

static int judge(const struct series *all, size_t count, double limit) {
    double *errors = calloc(count + 1, POINTS_MAX * sizeof *errors);
    size_t n = 0, used = 0;
    if (errors == NULL)
        abort();
    for (size_t i = 0; i < count; i++) {
        if (all[i].count < LEAST_POINTS)
            continue;
        size_t more = leave_out(&all[i], errors + n);
        double *own = errors + n, copy[POINTS_MAX];
        memcpy(copy, own, more * sizeof *copy);
        printf("%5.1f %% median of %2zu  %s\n", 100 * stats_median(copy, more), more, all[i].name);
        n += more;
        used++;
    }
    double median = n ? stats_median(errors, n) : NAN;
    printf("%zu points of %zu series left out one by one: median error %.1f %%\n", n, used,
           100 * median);
    free(errors);
    return median <= limit ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv) {
    struct series *all = calloc(SERIES_MAX, sizeof *all);
    struct err e = {0};
    struct json_node list;
    size_t count = 0;
    struct json_doc *doc = argc > 1 ? json_read_file(argv[1], &e) : NULL;
    if (all == NULL || doc == NULL || !json_find(json_root(doc), "measured_collectives", &list)) {
        fprintf(stderr, "no measured_collectives: %s\n", e.text);
        return EXIT_FAILURE;
    }
    for (size_t i = 0; i < json_size(list); i++)
        add(json_at(list, i), all, &count);
    int status = judge(all, count, argc > 2 ? strtod(argv[2], NULL) : INFINITY);
    json_destroy(doc);
    free(all);
    return status;
}
