// SPDX-License-Identifier: Apache-2.0
// Copies: one lane per direction and GPU, all of them started together in every iteration.
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "bench/clock.h"
#include "bench/cuda_job.h"
#include "bench/numa.h"
#include "bench/pages.h"
#include "kernels/gpu.h"

#define SLOTS (GPU_LANE_BATCH + 1) // iterations queued at once, with the one that leads in
#define PCI_ID_BYTES 32

enum way { WAY_H2D, WAY_D2H, WAY_D2D, WAY_P2P };

struct lane_copy {
    enum way way;
    int device, peer;
    char *host; // H2D, D2H
    char *near; // in `device`
    char *far;  // D2D: in `device`; P2P: in `peer`
    uint64_t *wrong;
    cudaEvent_t begin[SLOTS], end[SLOTS]; // where lanes wait for each other
};

struct copies {
    struct lane_copy *lanes;
    size_t count;
    size_t bytes;                   // of each lane
    bool pinned, staged, one_timed; // one_timed: of several lanes, one's own time counts
    int numa;                       // of the host buffers; -1: not chosen
    cudaEvent_t together[SLOTS];
    size_t slot;
    uint64_t seed;
};

static void add_lane(struct copies *c, enum way way, int device, int peer) {
    c->lanes[c->count++] = (struct lane_copy){.way = way, .device = device, .peer = peer};
}

static bool add_ways(struct cuda_state *s, struct copies *c, int device, struct err *e) {
    const struct bench_point *p = s->point;
    const char *d = p->direction;
    bool both = strcmp(d, "bidirectional") == 0;
    if (both || strcmp(d, "h2d") == 0)
        add_lane(c, WAY_H2D, device, device);
    if (both || strcmp(d, "d2h") == 0)
        add_lane(c, WAY_D2H, device, device);
    if (strcmp(d, "d2d") == 0)
        add_lane(c, WAY_D2D, device, device);
    if (strcmp(d, "p2p") == 0)
        add_lane(c, WAY_P2P, device, p->paired ? (int)p->second : (device + 1) % s->devices);
    if (c->count == 0)
        return err_set(e, ERR_USAGE, "GPUs do not copy \"%s\"", d);
    if (strcmp(d, "p2p") == 0 && s->devices < 2)
        return err_set(e, ERR_RESOURCE, "copies between GPUs need two");
    return true;
}

static bool list_lanes(struct cuda_state *s, struct copies *c, struct err *e) {
    const struct bench_point *p = s->point;
    int last = p->concurrent ? s->devices : (int)p->first + 1;
    c->lanes = calloc(2 * (size_t)s->devices, sizeof(*c->lanes));
    if (c->lanes == NULL)
        abort();
    for (int d = p->concurrent ? 0 : (int)p->first; d < last; d++)
        if (!add_ways(s, c, d, e))
            return false;
    c->one_timed = p->concurrent && p->timed > 0; // then the payload is that lane's
    if (c->one_timed && (p->timed > c->count || c->count != (size_t)s->devices))
        return err_set(e, ERR_USAGE, "\"%s\" has no lane of its own for each GPU", p->direction);
    c->bytes = p->payload_bytes / (c->one_timed ? 1 : c->count);
    if (c->bytes == 0)
        return err_set(e, ERR_RESOURCE, "less than a byte for each of %zu copies", c->count);
    return true;
}

// Without peer access the driver goes through host memory; that is measured, and said.
static void reach_peer(struct copies *c, const struct lane_copy *l) {
    int can = 0;
    cudaDeviceCanAccessPeer(&can, l->device, l->peer);
    if (can)
        cudaDeviceEnablePeerAccess(l->peer, 0);
    cudaGetLastError(); // enabled before is no error
    c->staged |= !can;
}

static int node_of(const struct bench_point *p, const struct lane_copy *l) {
    char id[PCI_ID_BYTES] = "";
    if (p->numa > 0)
        return (int)p->numa - 1;
    cudaDeviceGetPCIBusId(id, sizeof(id), l->device);
    return numa_of_pci(id);
}

static bool alloc_host(struct copies *c, const struct bench_point *p, struct lane_copy *l,
                       struct err *e) {
    int node = node_of(p, l);
    struct numa_before before;
    bool chosen = numa_prefer(node, &before);
    c->numa = chosen ? node : -1;
    if (p->numa > 0 && !chosen)
        return err_set(e, ERR_RESOURCE, "host memory of node %d cannot be chosen", node);
    cudaError_t r = cudaSuccess;
    if (c->pinned)
        r = cudaHostAlloc((void **)&l->host, c->bytes, cudaHostAllocPortable);
    else
        l->host = pages_map(c->bytes);
    bool ok = r == cudaSuccess && l->host != NULL;
    if (ok)
        memset(l->host, 0, c->bytes); // pages come now, from that node
    if (chosen)
        numa_release(&before);
    if (!ok)
        l->host = NULL;
    return ok || err_set(e, ERR_RESOURCE, "no %zu bytes of %s host memory", c->bytes,
                         c->pinned ? "pinned" : "pageable");
}

static bool alloc_lane(struct cuda_state *s, struct copies *c, struct lane_copy *l, struct err *e) {
    bool host = l->way == WAY_H2D || l->way == WAY_D2H;
    cudaSetDevice(l->device);
    for (size_t i = 0; i < SLOTS; i++)
        if (!gpu_lane_ok(cudaEventCreate(&l->begin[i]), "cudaEventCreate", e) ||
            !gpu_lane_ok(cudaEventCreate(&l->end[i]), "cudaEventCreate", e))
            return false;
    if (!cuda_job_alloc(&l->near, c->bytes, e) ||
        !cuda_job_alloc(&l->wrong, sizeof(*l->wrong), e) ||
        (host && !alloc_host(c, s->point, l, e)))
        return false;
    if (host)
        return true;
    if (l->way == WAY_P2P)
        reach_peer(c, l);
    cudaSetDevice(l->way == WAY_P2P ? l->peer : l->device);
    return cuda_job_alloc(&l->far, c->bytes, e);
}

static bool copies_prepare(struct cuda_state *s, struct err *e) {
    struct copies *c = calloc(1, sizeof(*c));
    int *devices = calloc(2 * (size_t)s->devices, sizeof(*devices));
    if (c == NULL || devices == NULL)
        abort();
    s->own = c;
    c->numa = -1;
    c->pinned = s->point->algorithm == NULL || strcmp(s->point->algorithm, "pageable") != 0;
    bool ok = list_lanes(s, c, e);
    for (size_t i = 0; i < c->count; i++)
        devices[i] = c->lanes[i].device;
    ok = ok && cuda_job_lanes(s, devices, c->count, e);
    free(devices);
    for (size_t i = 0; ok && i < c->count; i++)
        ok = alloc_lane(s, c, &c->lanes[i], e);
    cudaSetDevice(ok ? c->lanes[0].device : 0);
    for (size_t i = 0; ok && i < SLOTS; i++)
        ok = gpu_lane_ok(cudaEventCreateWithFlags(&c->together[i], cudaEventDisableTiming),
                         "cudaEventCreateWithFlags", e);
    return ok;
}

static void drop_event(cudaEvent_t event) {
    if (event != NULL)
        cudaEventDestroy(event);
}

static void copies_release(struct cuda_state *s) {
    struct copies *c = s->own;
    if (c == NULL)
        return;
    for (size_t k = 0; k < c->count; k++) {
        struct lane_copy *l = &c->lanes[k];
        for (size_t i = 0; i < SLOTS; i++) {
            drop_event(l->begin[i]);
            drop_event(l->end[i]);
        }
        cudaSetDevice(l->device);
        cudaFree(l->near);
        cudaFree(l->wrong);
        cudaFree(l->far);
        if (c->pinned)
            cudaFreeHost(l->host);
        else
            pages_unmap(l->host, c->bytes);
    }
    for (size_t i = 0; i < SLOTS; i++)
        drop_event(c->together[i]);
    free(c->lanes);
    free(c);
    s->own = NULL;
}

static cudaError_t queue_copy(const struct copies *c, const struct lane_copy *l, cudaStream_t to) {
    switch (l->way) {
    case WAY_H2D:
        return cudaMemcpyAsync(l->near, l->host, c->bytes, cudaMemcpyHostToDevice, to);
    case WAY_D2H:
        return cudaMemcpyAsync(l->host, l->near, c->bytes, cudaMemcpyDeviceToHost, to);
    case WAY_D2D:
        return cudaMemcpyAsync(l->far, l->near, c->bytes, cudaMemcpyDeviceToDevice, to);
    default:
        return cudaMemcpyPeerAsync(l->far, l->peer, l->near, l->device, c->bytes, to);
    }
}

// Nobody starts the next copy before everybody has finished this one.
static cudaError_t join_lanes(struct cuda_state *s, struct copies *c) {
    cudaStream_t first = s->lanes[0].stream;
    cudaError_t r = cudaSuccess;
    for (size_t k = 1; r == cudaSuccess && k < c->count; k++)
        r = cudaStreamWaitEvent(first, c->lanes[k].end[c->slot], 0);
    if (r == cudaSuccess)
        r = cudaEventRecord(c->together[c->slot], first);
    for (size_t k = 1; r == cudaSuccess && k < c->count; k++)
        r = cudaStreamWaitEvent(s->lanes[k].stream, c->together[c->slot], 0);
    return r;
}

static bool launch_copies(void *context, struct err *e) {
    struct cuda_state *s = context;
    struct copies *c = s->own;
    cudaError_t r = cudaSuccess;
    bool several = c->count > 1;
    for (size_t k = 0; r == cudaSuccess && k < c->count; k++) {
        struct lane_copy *l = &c->lanes[k];
        cudaStream_t to = s->lanes[k].stream;
        if (several)
            r = cudaEventRecord(l->begin[c->slot], to);
        if (r == cudaSuccess)
            r = queue_copy(c, l, to);
        if (r == cudaSuccess && several)
            r = cudaEventRecord(l->end[c->slot], to);
    }
    if (r == cudaSuccess && several)
        r = join_lanes(s, c);
    c->slot = (c->slot + 1) % SLOTS;
    return gpu_lane_ok(r, s->point->direction, e);
}

// The host takes part in pageable copies: a stream held at a gate would hold it too.
static bool sample_by_clock(struct cuda_state *s, size_t count, double *samples_s, struct err *e) {
    for (size_t i = 0; i < count; i++) {
        double before = clock_now_s();
        if (!cuda_job_once(s, "pageable copy", launch_copies, e))
            return false;
        samples_s[i] = clock_now_s() - before;
    }
    return true;
}

static bool read_lane(const struct lane_copy *l, size_t lead, size_t count, double *samples_s,
                      struct err *e) {
    for (size_t i = 0; i < count; i++) {
        float ms;
        if (!gpu_lane_ok(cudaEventElapsedTime(&ms, l->begin[lead + i], l->end[lead + i]),
                         "cudaEventElapsedTime", e))
            return false;
        samples_s[i] = (double)ms * UNITS_MILLI;
    }
    return true;
}

static bool copies_sample(struct cuda_state *s, size_t count, double *samples_s, struct err *e) {
    struct copies *c = s->own;
    if (!c->pinned)
        return sample_by_clock(s, count, samples_s, e);
    for (size_t done = 0; done < count;) {
        size_t n = count - done < GPU_LANE_BATCH ? count - done : GPU_LANE_BATCH;
        c->slot = 0;
        if (!cuda_job_time(s, launch_copies, n, samples_s + done, e))
            return false;
        if (c->one_timed && c->count > 1 &&
            !read_lane(&c->lanes[s->point->timed - 1], gpu_lane_iterations(n) - n, n,
                       samples_s + done, e))
            return false;
        done += n;
    }
    return true;
}

// ---- verification -------------------------------------------------------------------------------

static struct gpu_array contents(const struct copies *c, size_t lane, void *at) {
    return (struct gpu_array){.pattern = {.type = PATTERN_INT8,
                                          .seed = c->seed,
                                          .rank = (uint32_t)lane,
                                          .ranks = (uint32_t)c->count},
                              .at = at,
                              .count = c->bytes};
}

// Fills the source and clears the destination.
static bool launch_fill(void *context, struct err *e) {
    struct cuda_state *s = context;
    struct copies *c = s->own;
    for (size_t k = 0; k < c->count; k++) {
        struct lane_copy *l = &c->lanes[k];
        cudaStream_t to = s->lanes[k].stream;
        struct gpu_array a = contents(c, k, l->near);
        cudaSetDevice(l->device);
        cudaError_t r = (cudaError_t)gpu_pattern_fill(&a, to);
        if (r == cudaSuccess && l->way == WAY_H2D) {
            r = cudaMemcpyAsync(l->host, l->near, c->bytes, cudaMemcpyDeviceToHost, to);
            if (r == cudaSuccess)
                r = cudaMemsetAsync(l->near, 0xFF, c->bytes, to);
        } else if (r == cudaSuccess && l->way == WAY_D2H) {
            memset(l->host, 0xFF, c->bytes);
        } else if (r == cudaSuccess && l->way == WAY_D2D) {
            r = cudaMemsetAsync(l->far, 0xFF, c->bytes, to);
        }
        if (r == cudaSuccess)
            r = cudaMemsetAsync(l->wrong, 0, sizeof(*l->wrong), to);
        if (!gpu_lane_ok(r, "filling", e))
            return false;
    }
    return true;
}

// Brings what arrived where the lane's GPU can look at it, and counts.
static bool launch_check(void *context, struct err *e) {
    struct cuda_state *s = context;
    struct copies *c = s->own;
    for (size_t k = 0; k < c->count; k++) {
        struct lane_copy *l = &c->lanes[k];
        cudaStream_t to = s->lanes[k].stream;
        cudaError_t r = cudaSuccess;
        cudaSetDevice(l->device);
        if (l->way == WAY_D2H || l->way == WAY_P2P)
            r = cudaMemsetAsync(l->near, 0xFF, c->bytes, to);
        if (r == cudaSuccess && l->way == WAY_D2H)
            r = cudaMemcpyAsync(l->near, l->host, c->bytes, cudaMemcpyHostToDevice, to);
        if (r == cudaSuccess && l->way == WAY_P2P)
            r = cudaMemcpyPeerAsync(l->near, l->device, l->far, l->peer, c->bytes, to);
        struct gpu_array a = contents(c, k, l->way == WAY_D2D ? l->far : l->near);
        if (r == cudaSuccess)
            r = (cudaError_t)gpu_pattern_wrong(&a, l->wrong, to);
        if (!gpu_lane_ok(r, "checking", e))
            return false;
    }
    return true;
}

static bool copies_verify(struct cuda_state *s, uint64_t seed, uint64_t *wrong, struct err *e) {
    struct copies *c = s->own;
    c->seed = seed;
    c->slot = 0;
    if (!cuda_job_once(s, "filling", launch_fill, e) ||
        !cuda_job_once(s, s->point->direction, launch_copies, e) ||
        !cuda_job_once(s, "checking", launch_check, e))
        return false;
    *wrong = 0;
    for (size_t k = 0; k < c->count; k++) {
        uint64_t n = 0;
        cudaSetDevice(c->lanes[k].device);
        if (!gpu_lane_ok(cudaMemcpy(&n, c->lanes[k].wrong, sizeof(n), cudaMemcpyDeviceToHost),
                         "cudaMemcpy", e))
            return false;
        *wrong += n;
    }
    return true;
}

static void copies_describe(struct cuda_state *s, struct measure_result *r) {
    const struct copies *c = s->own;
    if (c->staged)
        r->note = "no peer access: through host memory";
    else if (c->numa >= 0 && s->point->numa == 0 && !s->point->concurrent)
        r->note = arena_printf(s->arena, "host memory of node %d, the GPU's own", c->numa);
}

const struct cuda_job cuda_copies = {
    .prepare = copies_prepare,
    .release = copies_release,
    .sample = copies_sample,
    .verify = copies_verify,
    .describe = copies_describe,
};
