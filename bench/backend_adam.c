// SPDX-License-Identifier: Apache-2.0
#include "bench/backend_adam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"
#include "bench/clock.h"
#include "bench/pages.h"
#include "bench/team.h"
#include "kernels/adam.h"
#include "kernels/half.h"
#include "kernels/pattern.h"

#define GRAIN 4096      // elements: slices start on pages
#define CHECKED 65536   // elements compared with the reference
#define CEILING_TURNS 9 // of each loop, before and after the step

enum loop { LOOP_STEP, LOOP_RMW, LOOP_TRIAD };

struct adam_state {
    size_t threads;
    struct team *team;
    const struct adam_variant *variant;
    const struct bench_point *point;
    struct adam_arrays arrays;
    struct adam_hyper hyper;
    float *base; // all arrays, one after another
    size_t bytes, parameters;
    uint64_t seed;
    enum loop loop;
    double ceiling_bytes_per_s;
};

static bool adam_open(const struct backend_config *c, void **state, struct err *e) {
    (void)e;
    struct adam_state *s = calloc(1, sizeof(*s));
    if (s == NULL)
        abort();
    s->threads = c->threads;
    s->hyper = adam_hyper_at((struct adam_settings){1e-3, 0.9, 0.999, 1e-8, 0.01}, 10);
    *state = s;
    return true;
}

static void adam_release(void *state) {
    struct adam_state *s = state;
    team_destroy(s->team);
    s->team = NULL;
    pages_unmap(s->base, s->bytes);
    s->base = NULL;
}

static void adam_close(void *state) {
    free(state);
}

static bool is_bf16(const struct adam_state *s) {
    return s->point->dtype == DTYPE_BF16;
}

static void fill_slice(void *context, size_t member, size_t size) {
    struct adam_state *s = context;
    struct team_part part = team_slice(s->parameters, GRAIN, member, size);
    size_t first = part.first, count = part.count;
    for (size_t i = first; i < first + count; i++) {
        uint32_t h = pattern_hash(s->seed, 0, i);
        float g = (float)(h & 0xFFFF) / 65536.0f - 0.5f;
        s->arrays.parameters[i] = (float)(h >> 16) / 65536.0f - 0.5f;
        s->arrays.first[i] = 0.125f * g;
        s->arrays.second[i] = g * g;
        if (is_bf16(s)) {
            ((uint16_t *)s->arrays.gradients_bf16)[i] = half_to_bf16(g);
            s->arrays.copy_bf16[i] = 0;
        } else {
            ((float *)s->arrays.gradients)[i] = g;
        }
    }
}

static void loop_slice(void *context, size_t member, size_t size) {
    struct adam_state *s = context;
    struct team_part part = team_slice(s->parameters, GRAIN, member, size);
    size_t first = part.first, count = part.count;
    if (s->loop == LOOP_STEP)
        s->variant->step(&s->arrays, &s->hyper, first, count);
    else if (s->loop == LOOP_RMW)
        s->variant->rmw(&s->arrays, first, count);
    else
        s->variant->triad(s->arrays.parameters + first, s->arrays.first + first,
                          s->arrays.second + first, 3.0f, count);
}

// Real traffic of one iteration: STREAM counts 24 of triad's 32 bytes (4/3 with the line that is
// read before it is written). In fp32 here, so half of that.
static double loop_bytes(const struct adam_state *s, enum loop loop) {
    double each = loop == LOOP_TRIAD ? 4 * 4 : adam_bytes_per_parameter(is_bf16(s), is_bf16(s));
    return each * (double)s->parameters;
}

// The median, as for the step itself: the best of a noisy machine would be another quantity.
static double usual_rate(struct adam_state *s, enum loop loop) {
    double turns_s[CEILING_TURNS];
    for (int i = 0; i < CEILING_TURNS; i++) {
        double before = clock_now_s();
        s->loop = loop;
        team_run(s->team, loop_slice, s);
        turns_s[i] = clock_now_s() - before;
    }
    return loop_bytes(s, loop) / stats_median(turns_s, CEILING_TURNS);
}

static void raise_ceiling(struct adam_state *s) {
    enum loop loop = s->loop;
    double rmw = usual_rate(s, LOOP_RMW), triad = usual_rate(s, LOOP_TRIAD);
    s->ceiling_bytes_per_s = fmax(s->ceiling_bytes_per_s, fmax(rmw, triad));
    s->loop = loop;
}

static bool choose(struct adam_state *s, const struct bench_point *p, struct err *e) {
    bool memory = strcmp(p->kind, "memory") == 0;
    s->variant = memory ? adam_best() : adam_find(p->algorithm);
    s->loop = !memory ? LOOP_STEP : strcmp(p->algorithm, "triad") == 0 ? LOOP_TRIAD : LOOP_RMW;
    if (s->variant == NULL)
        return err_set(e, ERR_RESOURCE, "this processor does not run %s", p->algorithm);
    if (p->dtype != DTYPE_FP32 && p->dtype != DTYPE_BF16)
        return err_set(e, ERR_RESOURCE, "CPU Adam takes fp32 or bf16 gradients, not %s",
                       dtype_name(p->dtype));
    return true;
}

static bool adam_prepare(void *state, const struct bench_point *p, struct err *e) {
    struct adam_state *s = state;
    s->point = p;
    s->parameters = p->n;
    s->ceiling_bytes_per_s = 0;
    if (!choose(s, p, e))
        return false;
    // Four fp32 arrays, or three and two of bf16: the same size.
    size_t padded = (s->parameters + GRAIN - 1) / GRAIN * GRAIN;
    s->bytes = 4 * sizeof(float) * padded;
    s->base = pages_map(s->bytes);
    if (s->base == NULL)
        return err_set(e, ERR_RESOURCE, "no memory for %zu bytes", s->bytes);
    float *last = s->base + 3 * padded;
    s->arrays = (struct adam_arrays){.parameters = s->base,
                                     .first = s->base + padded,
                                     .second = s->base + 2 * padded,
                                     .gradients = is_bf16(s) ? NULL : last,
                                     .gradients_bf16 = is_bf16(s) ? (uint16_t *)last : NULL,
                                     .copy_bf16 = is_bf16(s) ? (uint16_t *)last + padded : NULL};
    s->team = team_create(p->threads ? p->threads : s->threads);
    s->seed = 0;
    team_run(s->team, fill_slice, s); // each thread touches its own pages first
    if (s->loop == LOOP_STEP)
        raise_ceiling(s);
    team_run(s->team, fill_slice, s);
    return true;
}

static bool turn(void *context, struct err *e) {
    struct adam_state *s = context;
    (void)e;
    team_run(s->team, loop_slice, s);
    return true;
}

static bool adam_sample(void *state, size_t count, double *samples_s, struct err *e) {
    return clock_time(turn, state, count, samples_s, e);
}

// Fresh contents, one step, and the first elements against the scalar reference.
static bool adam_verify(void *state, uint64_t seed, uint64_t *wrong, struct err *e) {
    struct adam_state *s = state;
    *wrong = 0;
    if (s->loop != LOOP_STEP || strcmp(s->variant->name, "scalar") == 0)
        return true; // nothing defined to compare with, to the bit
    size_t n = s->parameters < CHECKED ? s->parameters : CHECKED;
    float *copy = malloc(4 * n * sizeof(*copy));
    if (copy == NULL)
        return err_set(e, ERR_RESOURCE, "no memory to verify");
    s->seed = seed;
    team_run(s->team, fill_slice, s);
    struct adam_arrays want = s->arrays;
    want.parameters = memcpy(copy, s->arrays.parameters, n * sizeof(float));
    want.first = memcpy(copy + n, s->arrays.first, n * sizeof(float));
    want.second = memcpy(copy + 2 * n, s->arrays.second, n * sizeof(float));
    want.copy_bf16 = is_bf16(s) ? (uint16_t *)(copy + 3 * n) : NULL;
    adam_variants[0].step(&want, &s->hyper, 0, n);
    team_run(s->team, loop_slice, s);
    for (size_t i = 0; i < n; i++)
        *wrong += memcmp(&want.parameters[i], &s->arrays.parameters[i], sizeof(float)) != 0 ||
                  memcmp(&want.first[i], &s->arrays.first[i], sizeof(float)) != 0 ||
                  memcmp(&want.second[i], &s->arrays.second[i], sizeof(float)) != 0 ||
                  (is_bf16(s) && want.copy_bf16[i] != s->arrays.copy_bf16[i]);
    free(copy);
    return true;
}

static void adam_describe(void *state, struct measure_result *r) {
    struct adam_state *s = state;
    r->software = "shardbench";
    r->ranks = 0;
    r->nodes = 0;
    r->scope = NULL;
    if (r->iterations == 0)
        return;
    r->threads = team_size(s->team);
    if (s->loop != LOOP_STEP)
        return;
    raise_ceiling(s);
    r->ceiling_bytes_per_s = s->ceiling_bytes_per_s;
}

const struct backend backend_adam = {
    .name = "adam",
    .summary = "the optimizer step on the CPU, beside what its memory can do",
    .open = adam_open,
    .close = adam_close,
    .prepare = adam_prepare,
    .release = adam_release,
    .sample = adam_sample,
    .verify = adam_verify,
    .describe = adam_describe,
};
