// SPDX-License-Identifier: Apache-2.0
// A backend that moves nothing: what remains of its measurements is the harness itself. With the
// test hook "null-wrong" it reports mismatches, with "null-hang" it stops answering.
#include "bench/backend_null.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/clock.h"

struct null_state {
    const char *fault;
    uint64_t turns;
};

static bool null_open(const struct backend_config *c, void **state, struct err *e) {
    (void)e;
    struct null_state *s = calloc(1, sizeof(*s));
    if (s == NULL)
        abort();
    s->fault = c->fault ? c->fault : "";
    *state = s;
    return true;
}

static void null_close(void *state) {
    free(state);
}

static bool null_prepare(void *state, const struct bench_point *p, struct err *e) {
    struct null_state *s = state;
    (void)p;
    if (strcmp(s->fault, "null-short") == 0)
        return err_set(e, ERR_RESOURCE, "no memory for %llu bytes",
                       (unsigned long long)p->payload_bytes);
    return true;
}

static void null_release(void *state) {
    (void)state;
}

static bool turn(void *context, struct err *e) {
    struct null_state *s = context;
    (void)e;
    s->turns++;
    return true;
}

static bool null_sample(void *state, size_t count, double *samples_s, struct err *e) {
    struct null_state *s = state;
    while (strcmp(s->fault, "null-hang") == 0)
        pause();
    return clock_time(turn, s, count, samples_s, e);
}

static bool null_verify(void *state, uint64_t seed, uint64_t *wrong, struct err *e) {
    struct null_state *s = state;
    (void)e;
    *wrong = strcmp(s->fault, "null-wrong") == 0 ? 1 + seed % 2 : 0;
    return true;
}

static void null_describe(void *state, struct measure_result *r) {
    (void)state;
    r->note = "moves nothing: the harness alone";
}

const struct backend backend_null = {
    .name = "null",
    .summary = "moves nothing; measures the harness",
    .open = null_open,
    .close = null_close,
    .prepare = null_prepare,
    .release = null_release,
    .sample = null_sample,
    .verify = null_verify,
    .describe = null_describe,
};
