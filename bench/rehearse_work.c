// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "bench/bench_features.h"
#include "bench/clock.h"
#include "bench/io.h"
#include "bench/pages.h"
#include "bench/rehearse_private.h"

#define UNIT_TURNS 1000

bool rehearse_has(const struct graph *g, uint32_t stream, enum graph_kind kind) {
    for (size_t i = 0; i < g->task_count; i++)
        if (g->tasks[i].kind == kind && (stream == REHEARSE_ANY || g->tasks[i].stream == stream))
            return true;
    return false;
}

bool rehearse_open_file(const struct rehearse_setup *s, struct scratch *file, struct err *e) {
    struct scratch_request q = {
        .folder = s->folder, .max_bytes = REHEARSE_STORAGE_BYTES, .grain_bytes = 4 * UNITS_MIB};
    if (!rehearse_has(s->graph, REHEARSE_ANY, GRAPH_NVME_READ) &&
        !rehearse_has(s->graph, REHEARSE_ANY, GRAPH_NVME_WRITE))
        return true;
    return scratch_open(&q, file, e);
}

// A chain of dependent additions: its time is the core's, whatever the memory does.
void rehearse_spin(double units) {
    volatile double sum = 0;
    for (double u = 0; u < units; u++) {
        double x = sum;
        for (int i = 0; i < UNIT_TURNS; i++) {
            x += 1.0;
            __asm__ volatile("" : "+x"(x)); // keeps the chain
        }
        sum = x;
    }
}

// The best of several: what the core does when nobody disturbs it.
double rehearse_calibrate(void) {
    const double units = 2000;
    double best_s = INFINITY;
    for (int i = 0; i < 9; i++) {
        double before = clock_now_s();
        rehearse_spin(units);
        best_s = fmin(best_s, clock_now_s() - before);
    }
    return units / best_s;
}

#define ADAM_ELEMENTS (4 * UNITS_MIB)

bool rehearse_adam_open(struct rehearse_lane *lane, struct err *e) {
    size_t n = ADAM_ELEMENTS;
    lane->adam_base = pages_map(4 * n * sizeof(float));
    if (lane->adam_base == NULL)
        return err_set(e, ERR_RESOURCE, "no memory for the optimizer's arrays");
    lane->adam_elements = n;
    for (size_t i = 0; i < 4 * n; i++)
        lane->adam_base[i] = 0.5f;
    lane->adam = (struct adam_arrays){.parameters = lane->adam_base,
                                      .first = lane->adam_base + n,
                                      .second = lane->adam_base + 2 * n,
                                      .gradients = lane->adam_base + 3 * n};
    return true;
}

void rehearse_adam_close(struct rehearse_lane *lane) {
    pages_unmap(lane->adam_base, 4 * lane->adam_elements * sizeof(float));
    lane->adam_base = NULL;
}

#define BLOCK_BYTES UNITS_MIB
#define DEPTH 16

bool rehearse_storage_open(struct rehearse_lane *lane, const struct scratch *file, struct err *e) {
    lane->blocks = pages_map(DEPTH * BLOCK_BYTES);
    if (lane->blocks == NULL)
        return err_set(e, ERR_RESOURCE, "no memory for storage blocks");
    memset(lane->blocks, 0x5A, DEPTH * BLOCK_BYTES);
    const struct io_setup setup = {
        .fd = file->fd, .buffer = lane->blocks, .block_bytes = BLOCK_BYTES, .slots = DEPTH};
    const char *note = NULL;
#if BENCH_HAVE_URING
    struct err why = {0};
    lane->io = &io_uring_engine;
    if (lane->io->open(&setup, &lane->io_state, &note, &why))
        return true;
#endif
    lane->io = &io_pool_engine;
    if (lane->io->open(&setup, &lane->io_state, &note, e))
        return true;
    lane->io = NULL;
    return false;
}

void rehearse_storage_close(struct rehearse_lane *lane) {
    if (lane->io != NULL)
        lane->io->close(lane->io_state);
    pages_unmap(lane->blocks, DEPTH * BLOCK_BYTES);
}

// As the swapper: a queue of requests of one direction until everything is through.
static bool storage(const struct graph_task *t, struct rehearse_lane *lane,
                    const struct rehearse_work *w, struct err *e) {
    uint64_t blocks = (uint64_t)fmax(1, round(t->bytes * w->shrink / BLOCK_BYTES));
    uint64_t issued = 0, done = 0, in_file = w->file.bytes / BLOCK_BYTES;
    uint32_t slots[DEPTH];
    size_t got = 0;
    for (uint32_t i = 0; i < DEPTH; i++)
        slots[i] = i;
    for (got = DEPTH; done < blocks; done += got) {
        for (size_t i = 0; i < got && issued < blocks; i++, issued++) {
            struct io_request r = {.write = t->kind == GRAPH_NVME_WRITE,
                                   .slot = slots[i],
                                   .offset = lane->block++ % in_file * BLOCK_BYTES};
            if (!lane->io->push(lane->io_state, &r, e))
                return false;
        }
        if (!lane->io->wait(lane->io_state, slots, DEPTH, &got, e))
            return false;
    }
    return true;
}

struct adam_share {
    const struct rehearse_lane *lane;
    const struct adam_hyper *hyper;
    size_t first, count;
};

static void *adam_run(void *context) {
    struct adam_share *s = context;
    adam_best()->step(&s->lane->adam, s->hyper, s->first, s->count);
    return NULL;
}

// The rank's cores share each pass over the arrays.
static void adam_pass(struct rehearse_lane *lane, const struct adam_hyper *h, size_t n, int cores) {
    struct adam_share shares[REHEARSE_CORES_MAX];
    pthread_t threads[REHEARSE_CORES_MAX];
    size_t each = units_ceil_to(units_ceil_div(n, (uint64_t)cores), 1024), at = 0;
    int started = 0;
    for (; started < cores && at < n; started++, at += each) {
        shares[started] = (struct adam_share){lane, h, at, at + each < n ? each : n - at};
        if (started > 0 && pthread_create(&threads[started], NULL, adam_run, &shares[started]) != 0)
            abort();
    }
    adam_run(&shares[0]);
    for (int i = 1; i < started; i++)
        pthread_join(threads[i], NULL);
}

static void optimizer(const struct graph_task *t, struct rehearse_lane *lane,
                      const struct rehearse_work *w) {
    struct adam_hyper h = adam_hyper_at((struct adam_settings){1e-3, 0.9, 0.999, 1e-8, 0.01}, 10);
    double left = t->bytes * w->shrink; // its bytes are elements
    while (left > 0) {
        size_t n = left < (double)lane->adam_elements ? (size_t)ceil(left) : lane->adam_elements;
        adam_pass(lane, &h, n, w->cores);
        left -= (double)n;
    }
}

bool rehearse_do(const struct graph_task *t, struct rehearse_lane *lane,
                 const struct rehearse_work *w, struct err *e) {
    switch (t->kind) {
    case GRAPH_COPY:
        memcpy(lane->to, lane->from, (size_t)(t->bytes * w->shrink));
        return true;
    case GRAPH_NVME_READ:
    case GRAPH_NVME_WRITE:
        return storage(t, lane, w, e);
    case GRAPH_ADAM:
        optimizer(t, lane, w);
        return true;
    case GRAPH_ALLOC:
    case GRAPH_FREE:
        return true; // its memory is the lanes': a host has no allocator to imitate
    default:
        rehearse_spin(t->duration_s * w->shrink * w->units_per_s);
        return true;
    }
}
