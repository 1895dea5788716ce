// SPDX-License-Identifier: Apache-2.0
// nvbandwidth --json and fio --output-format=json.
#include "base/units.h"
#include "describe/import.h"
#include "describe/import_lines.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void left_out(const struct import_source *s, struct json_node n, const char *text) {
    warnings_add(s->warnings, s->arena, WARNING_LEFT_OUT,
                 arena_printf(s->arena, "%s:%d %s", s->name, json_line(n), n.path), text);
}

static const char *direction_of(const char *test) {
    if (strstr(test, "bidirectional"))
        return "bidirectional";
    if (strncmp(test, "host_to_device", 14) == 0 || strncmp(test, "host_to_all", 11) == 0)
        return "h2d";
    if (strncmp(test, "device_to_host", 14) == 0 || strncmp(test, "all_to_host", 11) == 0)
        return "d2h";
    return strncmp(test, "device_local", 12) == 0 ? "d2d" : "p2p";
}

static bool cell_value(struct json_node n, double *out) {
    if (json_is_number(n)) {
        *out = n.item->valuedouble;
        return true;
    }
    return json_is_string(n) && import_double(n.item->valuestring, out);
}

static void take_matrix(const struct import_source *s, const char *test, struct json_node matrix,
                        struct measurement *m) {
    for (size_t i = 0; i < json_size(matrix); i++) {
        struct json_node row = json_at(matrix, i);
        for (size_t k = 0; json_is_array(row) && k < json_size(row); k++) {
            double giga;
            if (!cell_value(json_at(row, k), &giga) || !(giga > 0))
                continue; // "N/A" on the diagonal
            struct measure_result *r = measure_append(m, s->arena);
            r->kind = "copy";
            r->backend = "cuda";
            r->scope = "intra_node";
            r->direction = direction_of(test);
            r->algorithm = strstr(test, "_sm") ? "sm" : "copy_engine";
            r->concurrent = strncmp(test, "all_to", 6) == 0 || strstr(test, "_to_all") != NULL;
            r->group = json_size(matrix) > 1 ? arena_printf(s->arena, "%zu,%zu", i, k)
                                             : arena_printf(s->arena, "%zu", k);
            r->algbw_bytes_per_s = r->busbw_bytes_per_s = giga * UNITS_GIGA;
            r->note = arena_printf(s->arena, "nvbandwidth %s", test);
        }
    }
}

static bool take_test(const struct import_source *s, struct json_node test, struct measurement *m,
                      struct err *e) {
    const char *name = NULL, *status = "Passed";
    struct json_node matrix;
    if (!json_get_string(test, "name", true, &name, e) ||
        !json_get_string(test, "status", false, &status, e))
        return false;
    if (strcmp(status, "Passed") != 0) {
        left_out(s, test, arena_printf(s->arena, "%s was %s, not measured", name, status));
        return true;
    }
    if (strstr(name, "latency"))
        return true;
    if (!json_find(test, "bandwidth_matrix", &matrix) || !json_is_array(matrix)) {
        left_out(s, test, arena_printf(s->arena, "%s has no bandwidth_matrix", name));
        return true;
    }
    take_matrix(s, arena_strdup(s->arena, name), matrix, m);
    return true;
}

bool import_nvbandwidth(const struct import_source *s, struct measurement *out, struct err *e) {
    struct measurement m = {0};
    struct json_doc *d = json_read_text(s->text, s->bytes, s->name, e);
    struct json_node root, tests;
    bool ok = false;
    if (!d)
        return false;
    if (!json_find(json_root(d), "nvbandwidth", &root) || !json_find(root, "testcases", &tests) ||
        !json_is_array(tests)) {
        json_fail(json_root(d), e, "no nvbandwidth.testcases[]");
        goto fail;
    }
    const char *driver = NULL;
    if (!json_get_string(root, "Driver Version", false, &driver, e))
        goto fail;
    m.host.driver = arena_strdup(s->arena, driver);
    for (size_t i = 0; i < json_size(tests); i++)
        if (!take_test(s, json_at(tests, i), &m, e))
            goto fail;
    ok = m.count > 0 || json_fail(tests, e, "no bandwidth of a test that passed");
    if (ok)
        *out = m;
fail:
    json_destroy(d);
    return ok;
}

// fio takes options from the job, else from the global section.
static const char *fio_option(struct json_node root, struct json_node job, const char *key,
                              struct arena *a) {
    struct json_node options, n;
    if (json_find(job, "job options", &options) && json_find(options, key, &n) && json_is_string(n))
        return arena_strdup(a, n.item->valuestring);
    if (json_find(root, "global options", &options) && json_find(options, key, &n) &&
        json_is_string(n))
        return arena_strdup(a, n.item->valuestring);
    return NULL;
}

static uint64_t fio_bytes(const char *text) {
    uint64_t bytes = 0;
    struct err ignored = {0};
    char unit[64];
    if (!text)
        return 0;
    size_t n = strlen(text);
    // fio's "1M" and "4k" are binary.
    if (n > 0 && n < sizeof unit - 2 && strchr("kKmMgG", text[n - 1])) {
        memcpy(unit, text, n);
        unit[n - 1] = text[n - 1] == 'k' ? 'K' : text[n - 1];
        memcpy(unit + n, "iB", 3);
        text = unit;
    }
    return units_parse_bytes(text, &bytes, &ignored) ? bytes : 0;
}

static uint64_t fio_count(const char *text) {
    uint64_t n = 0;
    return text && import_u64(text, &n) ? n : 0;
}

static bool take_direction(const struct import_source *s, struct json_node root,
                           struct json_node job, const char *direction, struct measurement *m,
                           struct err *e) {
    struct json_node side, clat;
    double bytes = 0, rate = 0, ios = 0, mean_ns = 0;
    if (!json_find(job, direction, &side) || !json_is_object(side))
        return true;
    if (!json_get_double(side, "io_bytes", false, &bytes, e) ||
        !json_get_double(side, "bw_bytes", false, &rate, e) ||
        !json_get_double(side, "total_ios", false, &ios, e))
        return false;
    if (!(bytes > 0) || !(rate > 0))
        return true;
    if (json_find(side, "clat_ns", &clat) && !json_get_double(clat, "mean", false, &mean_ns, e))
        return false;
    struct measure_result *r = measure_append(m, s->arena);
    r->kind = "nvme";
    r->backend = fio_option(root, job, "ioengine", s->arena);
    if (!r->backend)
        r->backend = "fio";
    r->direction = direction;
    r->block_bytes = fio_bytes(fio_option(root, job, "bs", s->arena));
    r->queue_depth = fio_count(fio_option(root, job, "iodepth", s->arena));
    r->jobs = fio_count(fio_option(root, job, "numjobs", s->arena));
    r->iterations = (uint64_t)ios;
    r->payload_bytes = (uint64_t)bytes;
    r->algbw_bytes_per_s = r->busbw_bytes_per_s = rate;
    if (mean_ns > 0)
        r->median_s = mean_ns * UNITS_NANO;
    r->software = "fio";
    r->note = "fio; the time is the mean completion latency of one request";
    return true;
}

bool import_fio(const struct import_source *s, struct measurement *out, struct err *e) {
    struct measurement m = {0};
    struct json_doc *d = json_read_text(s->text, s->bytes, s->name, e);
    struct json_node jobs;
    bool ok = false;
    if (!d)
        return false;
    if (!json_find(json_root(d), "jobs", &jobs) || !json_is_array(jobs)) {
        json_fail(json_root(d), e, "no jobs[] as fio writes it");
        goto fail;
    }
    for (size_t i = 0; i < json_size(jobs); i++) {
        struct json_node job = json_at(jobs, i);
        double error = 0;
        if (!json_get_double(job, "error", false, &error, e))
            goto fail;
        if (error != 0) {
            left_out(s, job, "the job ended with an error");
            continue;
        }
        if (!take_direction(s, json_root(d), job, "read", &m, e) ||
            !take_direction(s, json_root(d), job, "write", &m, e))
            goto fail;
    }
    ok = m.count > 0 || json_fail(jobs, e, "no job moved bytes without an error");
    if (ok)
        *out = m;
fail:
    json_destroy(d);
    return ok;
}
