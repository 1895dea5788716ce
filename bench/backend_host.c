// SPDX-License-Identifier: Apache-2.0
#include "bench/backend_host.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/clock.h"
#include "bench/pages.h"
#include "bench/team.h"
#include "kernels/gemm.h"
#include "kernels/pattern.h"

#define GRAIN 4096
#define CHECKED_ROWS 8

struct host_state {
    size_t threads;
    struct team *team;
    const struct bench_point *point;
    bool product; // gemm, else copy
    char *from, *to;
    size_t bytes;
    struct gemm gemm;
    float *operands, *panels;
    size_t operand_bytes, panel_bytes;
    struct pattern pattern;
};

static bool host_open(const struct backend_config *c, void **state, struct err *e) {
    (void)e;
    struct host_state *s = calloc(1, sizeof(*s));
    if (s == NULL)
        abort();
    s->threads = c->threads;
    *state = s;
    return true;
}

static void host_close(void *state) {
    free(state);
}

static void host_release(void *state) {
    struct host_state *s = state;
    team_destroy(s->team);
    pages_unmap(s->from, s->bytes);
    pages_unmap(s->to, s->bytes);
    pages_unmap(s->operands, s->operand_bytes);
    pages_unmap(s->panels, s->panel_bytes);
    s->team = NULL;
    s->from = s->to = NULL;
    s->operands = s->panels = NULL;
}

static void touch_slice(void *context, size_t member, size_t size) {
    struct host_state *s = context;
    struct team_part part = team_slice(s->bytes, GRAIN, member, size);
    size_t first = part.first, count = part.count;
    pattern_fill(&s->pattern, s->from + first, first, count);
    memset(s->to + first, 0, count);
}

static void copy_slice(void *context, size_t member, size_t size) {
    struct host_state *s = context;
    struct team_part part = team_slice(s->bytes, GRAIN, member, size);
    size_t first = part.first, count = part.count;
    memcpy(s->to + first, s->from + first, count);
}

static void product_slice(void *context, size_t member, size_t size) {
    struct host_state *s = context;
    struct team_part part = team_slice(s->gemm.m, 6, member, size);
    size_t first = part.first, count = part.count;
    gemm_rows(&s->gemm, first, count, s->panels + member * gemm_panel_floats(s->gemm.k));
}

static void fill_operands(struct host_state *s, uint64_t seed) {
    size_t a = s->gemm.m * s->gemm.k, b = s->gemm.k * s->gemm.n;
    for (size_t i = 0; i < a + b; i++)
        s->operands[i] = (float)(pattern_hash(seed, 0, i) & 0xFFFF) / 32768.0f - 1.0f;
}

static bool prepare_product(struct host_state *s, struct err *e) {
    const struct bench_point *p = s->point;
    s->gemm.m = p->m;
    s->gemm.n = p->n;
    s->gemm.k = p->k;
    s->operand_bytes = sizeof(float) * (p->m * p->k + p->k * p->n + p->m * p->n);
    s->panel_bytes = sizeof(float) * gemm_panel_floats(p->k) * team_size(s->team);
    s->operands = pages_map(s->operand_bytes);
    s->panels = pages_map(s->panel_bytes);
    if (s->operands == NULL || s->panels == NULL)
        return err_set(e, ERR_RESOURCE, "no memory for %zu bytes", s->operand_bytes);
    s->gemm.a = s->operands;
    s->gemm.b = s->operands + p->m * p->k;
    s->gemm.c = s->operands + p->m * p->k + p->k * p->n;
    fill_operands(s, 0);
    return true;
}

static bool host_prepare(void *state, const struct bench_point *p, struct err *e) {
    struct host_state *s = state;
    s->point = p;
    s->product = strcmp(p->kind, "gemm") == 0;
    s->team = team_create(p->threads ? p->threads : s->threads);
    if (s->product && p->dtype != DTYPE_FP32)
        return err_set(e, ERR_RESOURCE, "the host multiplies fp32 only");
    if (s->product)
        return prepare_product(s, e);
    s->bytes = p->payload_bytes;
    s->from = pages_map(s->bytes);
    s->to = pages_map(s->bytes);
    if (s->from == NULL || s->to == NULL)
        return err_set(e, ERR_RESOURCE, "no memory for two arrays of %zu bytes", s->bytes);
    s->pattern = (struct pattern){.type = PATTERN_INT8, .seed = 0, .ranks = 1};
    team_run(s->team, touch_slice, s);
    return true;
}

static bool turn(void *context, struct err *e) {
    struct host_state *s = context;
    (void)e;
    team_run(s->team, s->product ? product_slice : copy_slice, s);
    return true;
}

static bool host_sample(void *state, size_t count, double *samples_s, struct err *e) {
    return clock_time(turn, state, count, samples_s, e);
}

// Some rows against sums in double; the bound is that of k rounded additions.
static uint64_t wrong_products(const struct host_state *s) {
    const struct gemm *g = &s->gemm;
    uint64_t wrong = 0;
    for (size_t r = 0; r < CHECKED_ROWS; r++) {
        size_t i = r * (g->m - 1) / (CHECKED_ROWS - 1);
        for (size_t j = 0; j < g->n; j++) {
            double sum = 0, size = 0;
            for (size_t p = 0; p < g->k; p++) {
                double x = (double)g->a[i * g->k + p] * (double)g->b[p * g->n + j];
                sum += x;
                size += fabs(x);
            }
            double off = fabs((double)g->c[i * g->n + j] - sum);
            wrong += !(off <= (double)g->k * 0x1p-24 * size);
        }
    }
    return wrong;
}

static bool host_verify(void *state, uint64_t seed, uint64_t *wrong, struct err *e) {
    struct host_state *s = state;
    if (s->product) {
        fill_operands(s, seed);
        memset(s->gemm.c, 0xFF, sizeof(float) * s->gemm.m * s->gemm.n);
        turn(s, e);
        *wrong = wrong_products(s);
        return true;
    }
    s->pattern.seed = seed;
    team_run(s->team, touch_slice, s);
    turn(s, e);
    *wrong = pattern_wrong(&s->pattern, s->to, 0, s->bytes);
    return true;
}

static void host_describe(void *state, struct measure_result *r) {
    struct host_state *s = state;
    r->software = "shardbench";
    r->ranks = 0;
    r->nodes = 0;
    r->scope = NULL;
    if (strcmp(r->kind, "copy") == 0)
        r->dtype = NULL;
    if (r->iterations > 0)
        r->threads = team_size(s->team);
}

const struct backend backend_host = {
    .name = "host",
    .summary = "copies and matrix products in host memory",
    .open = host_open,
    .close = host_close,
    .prepare = host_prepare,
    .release = host_release,
    .sample = host_sample,
    .verify = host_verify,
    .describe = host_describe,
};
