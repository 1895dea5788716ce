// SPDX-License-Identifier: Apache-2.0
#include "bench/backend_nvme.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "bench/bench_features.h"
#include "bench/clock.h"
#include "bench/io.h"
#include "bench/pages.h"
#include "bench/scratch.h"
#include "bench/team.h"
#include "kernels/pattern.h"

enum flow { FLOW_READ, FLOW_WRITE, FLOW_MIXED, FLOW_SWAP, FLOW_SWAP_PIPELINED, FLOW_COUNT };
static const char *const flow_names[FLOW_COUNT] = {"read", "write", "mixed", "swap",
                                                   "swap_pipelined"};

// One thread with its own part of the file and its own queue.
struct job {
    struct nvme_state *state;
    void *engine;
    char *buffer;
    uint64_t first, bytes; // its part of the file
    uint64_t position;     // block that comes next
    double cpu_s;          // of its thread, in this batch
    double *ends_s;        // when each iteration of this batch was complete
    struct err error;
};

struct nvme_state {
    struct backend_config config;
    const struct bench_point *point;
    struct scratch file;
    const struct io_engine *engine;
    const char *note;
    enum flow flow;
    struct team *team;
    struct job *jobs;
    size_t opened;
    uint32_t slots;    // per job
    uint64_t per_turn; // blocks per job and iteration
    size_t count;      // iterations of this batch
    bool checking;
    uint64_t seed, wrong;
    uint64_t writes_left; // before the "write-eio" hook strikes
    double cpu_s, ios;
};

static bool nvme_open(const struct backend_config *c, void **state, struct err *e) {
    struct nvme_state *s = calloc(1, sizeof(*s));
    (void)e;
    if (s == NULL)
        abort();
    s->config = *c;
    s->file.fd = -1;
    s->writes_left = UINT64_MAX;
    if (c->fault != NULL && strcmp(c->fault, "write-eio") == 0)
        s->writes_left = 100;
    *state = s;
    return true;
}

static void nvme_release(void *state) {
    struct nvme_state *s = state;
    team_destroy(s->team);
    for (size_t i = 0; s->jobs != NULL && i < s->point->jobs; i++) {
        if (i < s->opened)
            s->engine->close(s->jobs[i].engine);
        pages_unmap(s->jobs[i].buffer, s->slots * s->point->block_bytes);
    }
    free(s->jobs);
    s->team = NULL;
    s->jobs = NULL;
    s->opened = 0;
}

static void nvme_close(void *state) {
    struct nvme_state *s = state;
    if (s == NULL)
        return;
    scratch_close(&s->file);
    free(s);
}

uint64_t backend_nvme_payload(const char *pattern, uint64_t block_bytes, uint64_t depth,
                              uint64_t jobs) {
    uint64_t tile = block_bytes * depth * jobs;
    uint64_t tiles = strncmp(pattern, "swap", 4) == 0 ? 16 : 8; // swaps read and write each
    uint64_t least = units_ceil_div(16 * UNITS_MIB, tile);
    return tile * (tiles > least ? tiles : units_ceil_to(least, 2));
}

static bool ensure_file(struct nvme_state *s, struct err *e) {
    const struct bench_point *p = s->point;
    uint64_t tile = p->block_bytes * p->queue_depth * p->jobs;
    bool hook = s->config.fault != NULL && strcmp(s->config.fault, "nospace") == 0;
    if (s->file.fd >= 0 && s->file.bytes >= 2 * tile)
        return true;
    scratch_close(&s->file);
    struct scratch_request r = {
        .folder = s->config.folder,
        .max_bytes = s->config.max_bytes,
        .grain_bytes = 2 * tile,
        .ignore_free_space = hook,
    };
    return scratch_open(&r, &s->file, e);
}

static bool open_engines(struct nvme_state *s, struct err *e) {
    for (s->opened = 0; s->opened < s->point->jobs; s->opened++) {
        struct job *j = &s->jobs[s->opened];
        struct io_setup setup = {.fd = s->file.fd,
                                 .buffer = j->buffer,
                                 .block_bytes = s->point->block_bytes,
                                 .slots = s->slots};
        if (!s->engine->open(&setup, &j->engine, &s->note, e))
            return false;
    }
    return true;
}

// io_uring, or what works where it is refused.
static bool choose_engine(struct nvme_state *s, struct err *e) {
    s->note = NULL;
#if BENCH_HAVE_URING
    struct err why = {0};
    bool refused = s->config.fault != NULL && strcmp(s->config.fault, "no-uring") == 0;
    s->engine = &io_uring_engine;
    if (!refused && open_engines(s, &why))
        return true;
    for (size_t i = 0; i < s->opened; i++)
        s->engine->close(s->jobs[i].engine);
#endif
    s->engine = &io_pool_engine;
    return open_engines(s, e);
}

static bool make_jobs(struct nvme_state *s, struct err *e) {
    const struct bench_point *p = s->point;
    s->jobs = calloc(p->jobs, sizeof(*s->jobs));
    if (s->jobs == NULL)
        abort();
    uint64_t tile = p->block_bytes * p->queue_depth;
    for (size_t i = 0; i < p->jobs; i++) {
        struct job *j = &s->jobs[i];
        j->state = s;
        j->bytes = s->file.bytes / p->jobs / (2 * tile) * (2 * tile);
        j->first = i * j->bytes;
        j->buffer = pages_map(s->slots * p->block_bytes);
        if (j->buffer == NULL)
            return err_set(e, ERR_RESOURCE, "no memory for buffers");
        memset(j->buffer, 0x5A, s->slots * p->block_bytes);
    }
    return true;
}

static bool nvme_prepare(void *state, const struct bench_point *p, struct err *e) {
    struct nvme_state *s = state;
    s->point = p;
    s->cpu_s = s->ios = 0;
    s->flow = FLOW_COUNT;
    for (int f = 0; f < FLOW_COUNT; f++)
        if (strcmp(flow_names[f], p->direction) == 0)
            s->flow = (enum flow)f;
    if (s->flow == FLOW_COUNT)
        return err_set(e, ERR_RESOURCE, "no storage pattern \"%s\"", p->direction);
    s->slots = (uint32_t)p->queue_depth * (s->flow == FLOW_SWAP_PIPELINED ? 2 : 1);
    s->per_turn = p->payload_bytes / p->block_bytes / p->jobs;
    if (!ensure_file(s, e) || !make_jobs(s, e) || !choose_engine(s, e))
        return false;
    s->team = team_create(p->jobs);
    return true;
}

static bool push(struct job *j, bool write, uint32_t slot, uint64_t block) {
    struct nvme_state *s = j->state;
    uint64_t offset = j->first + block * s->point->block_bytes % j->bytes;
    struct io_request r = {.write = write, .slot = slot, .offset = offset};
    if (write && s->writes_left != UINT64_MAX && s->writes_left-- == 0)
        return err_set(&j->error, ERR_RESOURCE, "write: Input/output error (test hook)");
    return s->engine->push(j->engine, &r, &j->error);
}

// Waits for `count` requests.
static bool drain(struct job *j, size_t count) {
    uint32_t slots[64];
    while (count > 0) {
        size_t got;
        if (!j->state->engine->wait(j->engine, slots, 64, &got, &j->error))
            return false;
        count -= got;
    }
    return true;
}

// A queue that stays full over all iterations of the batch.
static bool stream(struct job *j) {
    struct nvme_state *s = j->state;
    uint64_t total = s->per_turn * s->count, issued = 0, done = 0;
    uint32_t slots[64];
    size_t got = 0;
    for (uint32_t slot = 0; slot < s->slots && issued < total; slot++, issued++) {
        bool write = s->flow == FLOW_WRITE || (s->flow == FLOW_MIXED && issued % 2);
        if (!push(j, write, slot, j->position++))
            return false;
    }
    while (done < total) {
        if (!s->engine->wait(j->engine, slots, 64, &got, &j->error))
            return false;
        for (size_t i = 0; i < got; i++) {
            if (++done % s->per_turn == 0)
                j->ends_s[done / s->per_turn - 1] = clock_now_s();
            if (issued == total)
                continue;
            bool write = s->flow == FLOW_WRITE || (s->flow == FLOW_MIXED && issued % 2);
            issued++;
            if (!push(j, write, slots[i], j->position++))
                return false;
        }
    }
    return true;
}

static bool push_tile(struct job *j, bool write, uint32_t first_slot, uint64_t tile) {
    uint64_t depth = j->state->point->queue_depth;
    for (uint32_t i = 0; i < depth; i++)
        if (!push(j, write, first_slot + i, tile * depth + i))
            return false;
    return true;
}

// A tile is read, changed in memory by whoever owns it, and written back to its place; pipelined,
// the next tile is read meanwhile into the other half of the buffer.
static bool swap(struct job *j) {
    struct nvme_state *s = j->state;
    uint64_t depth = s->point->queue_depth, tiles = s->per_turn / depth / 2;
    bool overlap = s->flow == FLOW_SWAP_PIPELINED;
    for (size_t turn = 0; turn < s->count; turn++) {
        if (!push_tile(j, false, 0, 0) || !drain(j, depth))
            return false;
        for (uint64_t t = 0; t < tiles; t++) {
            bool more = t + 1 < tiles;
            uint32_t half = overlap ? (uint32_t)(t % 2 * depth) : 0;
            uint32_t other = overlap ? (uint32_t)((t + 1) % 2 * depth) : 0;
            if (!push_tile(j, true, half, t))
                return false;
            if (!overlap && !drain(j, depth))
                return false;
            if (more && !push_tile(j, false, other, t + 1))
                return false;
            if (!drain(j, depth * ((overlap ? 1 : 0) + (more ? 1 : 0))))
                return false;
        }
        j->ends_s[turn] = clock_now_s();
    }
    return true;
}

// Every block of one tile: written with fresh contents, forgotten, read back, compared.
static bool check(struct job *j) {
    struct nvme_state *s = j->state;
    uint64_t depth = s->point->queue_depth, words = s->point->block_bytes / sizeof(uint32_t);
    uint32_t *all = (uint32_t *)j->buffer, rank = (uint32_t)(j - s->jobs);
    for (uint64_t i = 0; i < depth * words; i++)
        all[i] = pattern_hash(s->seed, rank, i);
    if (!push_tile(j, true, 0, 1) || !drain(j, depth))
        return false;
    memset(j->buffer, 0xFF, depth * s->point->block_bytes);
    if (!push_tile(j, false, 0, 1) || !drain(j, depth))
        return false;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < depth * words; i++)
        wrong += all[i] != pattern_hash(s->seed, rank, i);
    __atomic_fetch_add(&s->wrong, wrong, __ATOMIC_RELAXED);
    return true;
}

static void run_job(void *context, size_t member, size_t size) {
    struct nvme_state *s = context;
    struct job *j = &s->jobs[member];
    double cpu_s = clock_thread_cpu_s();
    (void)size;
    if (s->checking)
        check(j);
    else if (s->flow >= FLOW_SWAP)
        swap(j);
    else
        stream(j);
    j->cpu_s = clock_thread_cpu_s() - cpu_s;
}

static bool run_jobs(struct nvme_state *s, struct err *e) {
    for (size_t i = 0; i < s->point->jobs; i++)
        err_clear(&s->jobs[i].error);
    team_run(s->team, run_job, s);
    for (size_t i = 0; i < s->point->jobs; i++)
        if (s->jobs[i].error.kind != ERR_NONE)
            return err_set(e, s->jobs[i].error.kind, "%s", s->jobs[i].error.text);
    return true;
}

// What fio counts: the threads that submit and reap, not the kernel's workers behind io_uring. With
// the pool the other threads of this process do that work.
static double batch_cpu_s(const struct nvme_state *s, double process_s) {
    double sum_s = 0;
    for (size_t i = 0; i < s->point->jobs; i++)
        sum_s += s->jobs[i].cpu_s;
    return s->engine == &io_pool_engine ? process_s : sum_s;
}

static bool nvme_sample(void *state, size_t count, double *samples_s, struct err *e) {
    struct nvme_state *s = state;
    size_t jobs = s->point->jobs;
    double *ends = calloc(jobs * count, sizeof(*ends));
    if (ends == NULL)
        abort();
    for (size_t i = 0; i < jobs; i++)
        s->jobs[i].ends_s = ends + i * count;
    s->count = count;
    s->checking = false;
    double cpu_s = clock_process_cpu_s(), before = clock_now_s();
    bool ok = run_jobs(s, e);
    s->cpu_s += batch_cpu_s(s, clock_process_cpu_s() - cpu_s);
    s->ios += (double)(s->per_turn * jobs * count);
    for (size_t i = 0; ok && i < count; i++) {
        double end = before;
        for (size_t k = 0; k < jobs; k++)
            end = fmax(end, s->jobs[k].ends_s[i]);
        samples_s[i] = end - before;
        before = end;
    }
    free(ends);
    return ok;
}

static bool nvme_verify(void *state, uint64_t seed, uint64_t *wrong, struct err *e) {
    struct nvme_state *s = state;
    s->seed = seed;
    s->wrong = 0;
    s->checking = true;
    if (!run_jobs(s, e))
        return false;
    *wrong = s->wrong;
    return true;
}

static void nvme_describe(void *state, struct measure_result *r) {
    struct nvme_state *s = state;
    r->dtype = NULL;
    r->ranks = r->nodes = 0;
    r->scope = NULL;
    r->software = "shardbench";
    if (r->iterations == 0)
        return;
    r->protocol = s->engine->name;
    r->note = s->note ? s->note : s->file.direct ? NULL : "through the page cache";
    r->cpu_s_per_io = s->cpu_s / s->ios;
}

const struct backend backend_nvme = {
    .name = "nvme",
    .summary = "storage: io_uring with O_DIRECT and registered buffers",
    .open = nvme_open,
    .close = nvme_close,
    .prepare = nvme_prepare,
    .release = nvme_release,
    .sample = nvme_sample,
    .verify = nvme_verify,
    .describe = nvme_describe,
};
