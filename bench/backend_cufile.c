// SPDX-License-Identifier: Apache-2.0
#include "bench/backend_cufile.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/clock.h"
#include "bench/gpu_lane.h"
#include "bench/io.h"
#include "bench/scratch.h"
#include "bench/team.h"
#include "kernels/gpu.h"

// cufile.h's, of which only this is used (cuFile API reference, 1.x).
struct cufile_error {
    int file, cuda;
};
struct cufile_descriptor {
    int type; // 1: a file descriptor
    union {
        int fd;
        void *handle;
    } handle;
    const void *operations;
};
struct cufile_library {
    void *at;
    struct cufile_error (*driver_open)(void);
    struct cufile_error (*driver_close)(void);
    struct cufile_error (*handle_register)(void **handle, struct cufile_descriptor *d);
    void (*handle_deregister)(void *handle);
    struct cufile_error (*buffer_register)(const void *at, size_t bytes, int flags);
    struct cufile_error (*buffer_deregister)(const void *at);
    ssize_t (*read)(void *handle, void *at, size_t bytes, off_t in_file, off_t in_buffer);
    ssize_t (*write)(void *handle, const void *at, size_t bytes, off_t in_file, off_t in_buffer);
};

struct reader { // a thread with one block of GPU memory and its own part of the file
    char *block;
    bool registered;
    uint64_t first, blocks, next;
    double *ends_s;
    struct err error;
};

struct cufile_state {
    struct backend_config config;
    struct cufile_library library;
    const struct bench_point *point;
    struct scratch file;
    void *handle;
    struct team *team;
    struct reader *readers;
    size_t reader_count;
    uint64_t per_turn; // blocks per reader and iteration
    size_t count;      // iterations of this batch
    bool write;
    uint64_t *wrong;
};

static bool find_symbols(struct cufile_library *l, struct err *e) {
    const struct {
        const char *name;
        void *to;
    } symbols[] = {
        {"cuFileDriverOpen", &l->driver_open},
        {"cuFileDriverClose_v2", &l->driver_close},
        {"cuFileHandleRegister", &l->handle_register},
        {"cuFileHandleDeregister", &l->handle_deregister},
        {"cuFileBufRegister", &l->buffer_register},
        {"cuFileBufDeregister", &l->buffer_deregister},
        {"cuFileRead", &l->read},
        {"cuFileWrite", &l->write},
    };
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *found = dlsym(l->at, symbols[i].name);
        if (found == NULL)
            return err_set(e, ERR_RESOURCE, "libcufile.so.0 has no %s", symbols[i].name);
        memcpy(symbols[i].to, &found, sizeof(found));
    }
    return true;
}

static bool cufile_ok(struct cufile_error r, const char *what, struct err *e) {
    return r.file == 0 ||
           err_set(e, ERR_RESOURCE, "%s: cuFile error %d (CUDA %d)", what, r.file, r.cuda);
}

static void cufile_close(void *state) {
    struct cufile_state *s = state;
    if (s == NULL)
        return;
    if (s->handle != NULL)
        s->library.handle_deregister(s->handle);
    scratch_close(&s->file);
    if (s->library.driver_close != NULL)
        s->library.driver_close();
    if (s->library.at != NULL)
        dlclose(s->library.at);
    free(s);
}

static bool cufile_open(const struct backend_config *c, void **state, struct err *e) {
    int devices;
    if (!gpu_lane_devices(&devices, e))
        return false;
    struct cufile_state *s = calloc(1, sizeof(*s));
    if (s == NULL)
        abort();
    s->config = *c;
    s->file.fd = -1;
    s->library.at = dlopen("libcufile.so.0", RTLD_NOW | RTLD_LOCAL);
    if (s->library.at == NULL) {
        err_set(e, ERR_RESOURCE, "GPUDirect Storage: %s", dlerror());
        goto fail;
    }
    if (!find_symbols(&s->library, e)) {
        s->library.driver_close = NULL;
        goto fail;
    }
    if (!cufile_ok(s->library.driver_open(), "cuFileDriverOpen", e)) {
        s->library.driver_close = NULL;
        goto fail;
    }
    *state = s;
    return true;
fail:
    cufile_close(s);
    return false;
}

static void cufile_release(void *state) {
    struct cufile_state *s = state;
    team_destroy(s->team);
    s->team = NULL;
    for (size_t i = 0; i < s->reader_count; i++) {
        if (s->readers[i].registered)
            s->library.buffer_deregister(s->readers[i].block);
        cudaFree(s->readers[i].block);
    }
    cudaFree(s->wrong);
    free(s->readers);
    s->wrong = NULL;
    s->readers = NULL;
    s->reader_count = 0;
}

static bool ensure_file(struct cufile_state *s, uint64_t grain, struct err *e) {
    if (s->handle != NULL && s->file.bytes >= grain)
        return true;
    if (s->handle != NULL)
        s->library.handle_deregister(s->handle);
    s->handle = NULL;
    scratch_close(&s->file);
    struct scratch_request r = {
        .folder = s->config.folder, .max_bytes = s->config.max_bytes, .grain_bytes = grain};
    if (!scratch_open(&r, &s->file, e))
        return false;
    if (!s->file.direct)
        return err_set(e, ERR_RESOURCE, "GPUDirect Storage wants O_DIRECT, which %s refuses",
                       s->file.where);
    struct cufile_descriptor d = {.type = 1, .handle.fd = s->file.fd};
    return cufile_ok(s->library.handle_register(&s->handle, &d), "cuFileHandleRegister", e);
}

static bool cufile_prepare(void *state, const struct bench_point *p, struct err *e) {
    struct cufile_state *s = state;
    uint64_t flight = p->jobs * p->queue_depth;
    s->point = p;
    s->write = strcmp(p->direction, "write") == 0;
    if (!s->write && strcmp(p->direction, "read") != 0)
        return err_set(e, ERR_RESOURCE, "GPUDirect Storage is measured by read and write only");
    if (!ensure_file(s, flight * p->block_bytes, e) ||
        !gpu_lane_ok(cudaSetDevice(0), "cudaSetDevice", e) ||
        !gpu_lane_ok(cudaMalloc((void **)&s->wrong, sizeof(*s->wrong)), "cudaMalloc", e))
        return false;
    s->per_turn = p->payload_bytes / p->block_bytes / flight;
    s->readers = calloc(flight, sizeof(*s->readers));
    if (s->readers == NULL)
        abort();
    for (s->reader_count = 0; s->reader_count < flight; s->reader_count++) {
        struct reader *r = &s->readers[s->reader_count];
        r->blocks = s->file.bytes / p->block_bytes / flight;
        r->first = s->reader_count * r->blocks;
        if (!gpu_lane_ok(cudaMalloc((void **)&r->block, p->block_bytes), "cudaMalloc", e))
            return false;
        r->registered = s->library.buffer_register(r->block, p->block_bytes, 0).file == 0;
    }
    s->team = team_create(flight);
    return true;
}

static bool transfer(const struct cufile_state *s, struct reader *r, bool write, uint64_t block) {
    size_t bytes = s->point->block_bytes;
    off_t at = (off_t)((r->first + block % r->blocks) * bytes);
    ssize_t n = write ? s->library.write(s->handle, r->block, bytes, at, 0)
                      : s->library.read(s->handle, r->block, bytes, at, 0);
    int result = n == -1 ? -errno : (int)n; // below -1: an error of cuFile's own
    if (n < -1)
        return err_set(&r->error, ERR_RESOURCE, "%s: cuFile error %d",
                       write ? "cuFileWrite" : "cuFileRead", (int)-n);
    return result == (int)bytes || io_failed(write, result, bytes, &r->error);
}

static void stream(void *context, size_t member, size_t size) {
    struct cufile_state *s = context;
    struct reader *r = &s->readers[member];
    (void)size;
    cudaSetDevice(0);
    for (size_t turn = 0; turn < s->count; turn++) {
        for (uint64_t i = 0; i < s->per_turn; i++)
            if (!transfer(s, r, s->write, r->next++))
                return;
        r->ends_s[turn] = clock_now_s();
    }
}

static bool run_readers(struct cufile_state *s, team_work *work, struct err *e) {
    for (size_t i = 0; i < s->reader_count; i++)
        err_clear(&s->readers[i].error);
    team_run(s->team, work, s);
    for (size_t i = 0; i < s->reader_count; i++)
        if (s->readers[i].error.kind != ERR_NONE)
            return err_set(e, s->readers[i].error.kind, "%s", s->readers[i].error.text);
    return true;
}

static bool cufile_sample(void *state, size_t count, double *samples_s, struct err *e) {
    struct cufile_state *s = state;
    double *ends = calloc(s->reader_count * count, sizeof(*ends));
    if (ends == NULL)
        abort();
    for (size_t i = 0; i < s->reader_count; i++)
        s->readers[i].ends_s = ends + i * count;
    s->count = count;
    double before = clock_now_s();
    bool ok = run_readers(s, stream, e);
    for (size_t i = 0; ok && i < count; i++) {
        double end = before;
        for (size_t k = 0; k < s->reader_count; k++)
            end = fmax(end, s->readers[k].ends_s[i]);
        samples_s[i] = end - before;
        before = end;
    }
    free(ends);
    return ok;
}

static void write_once(void *context, size_t member, size_t size) {
    struct cufile_state *s = context;
    (void)size;
    cudaSetDevice(0);
    transfer(s, &s->readers[member], true, 1);
}

static void read_once(void *context, size_t member, size_t size) {
    struct cufile_state *s = context;
    (void)size;
    cudaSetDevice(0);
    transfer(s, &s->readers[member], false, 1);
}

// Fills, or counts in, every reader's block.
static bool each_block(struct cufile_state *s, uint64_t seed, bool check, struct err *e) {
    cudaError_t r = cudaSuccess;
    for (size_t i = 0; r == cudaSuccess && i < s->reader_count; i++) {
        struct gpu_array a = {.pattern = {.type = PATTERN_INT8,
                                          .seed = seed,
                                          .rank = (uint32_t)i,
                                          .ranks = (uint32_t)s->reader_count},
                              .at = s->readers[i].block,
                              .count = s->point->block_bytes};
        r = (cudaError_t)(check ? gpu_pattern_wrong(&a, s->wrong, NULL)
                                : gpu_pattern_fill(&a, NULL));
    }
    return gpu_lane_ok(r, "checking", e) && gpu_lane_ok(cudaStreamSynchronize(NULL), "checking", e);
}

static bool cufile_verify(void *state, uint64_t seed, uint64_t *wrong, struct err *e) {
    struct cufile_state *s = state;
    cudaSetDevice(0);
    if (!each_block(s, seed, false, e) || !run_readers(s, write_once, e))
        return false;
    for (size_t i = 0; i < s->reader_count; i++)
        cudaMemset(s->readers[i].block, 0xFF, s->point->block_bytes);
    cudaMemset(s->wrong, 0, sizeof(*s->wrong));
    return gpu_lane_ok(cudaStreamSynchronize(NULL), "clearing", e) &&
           run_readers(s, read_once, e) && each_block(s, seed, true, e) &&
           gpu_lane_ok(cudaMemcpy(wrong, s->wrong, sizeof(*wrong), cudaMemcpyDeviceToHost),
                       "cudaMemcpy", e);
}

static void cufile_describe(void *state, struct measure_result *r) {
    (void)state;
    r->dtype = NULL;
    r->ranks = r->nodes = 0;
    r->scope = NULL;
    r->software = "cuFile";
    r->protocol = "gds";
    r->note = "between the file and GPU 0; cuFile may go through host memory where its driver "
              "nvidia-fs is missing";
}

const struct backend backend_cufile = {
    .name = "cufile",
    .summary = "storage to and from GPU memory by GPUDirect Storage",
    .open = cufile_open,
    .close = cufile_close,
    .prepare = cufile_prepare,
    .release = cufile_release,
    .sample = cufile_sample,
    .verify = cufile_verify,
    .describe = cufile_describe,
};
