// SPDX-License-Identifier: Apache-2.0
// What a task is on a GPU.
#include <math.h>
#include <string.h>

#include "bench/gpu_lane.h"
#include "bench/rehearse_gpu_private.h"
#include "kernels/gpu.h"

bool rehearse_gpu_is_host(const struct graph *g, const struct graph_task *t) {
    switch (t->kind) {
    case GRAPH_ADAM:
    case GRAPH_NVME_READ:
    case GRAPH_NVME_WRITE:
    case GRAPH_HOST:
        return true;
    case GRAPH_ALLOC:
    case GRAPH_FREE:
        return t->buffer == GRAPH_NO_BUFFER || g->buffers[t->buffer].device != DEVICE_GPU;
    default:
        return false;
    }
}

// Memory traffic of so many bytes, read and written.
static cudaError_t move(const struct gpu_track *k, const struct gpu_stream *s, double bytes) {
    const double each = 2 * sizeof(float);
    cudaError_t r = cudaSuccess;
    uint64_t room = k->bytes / sizeof(float), left = (uint64_t)(bytes / each);
    while (r == cudaSuccess && left > 0) {
        uint64_t n = left < room ? left : room;
        r = (cudaError_t)gpu_copy((float *)(void *)s->to, (const float *)(const void *)s->from, n,
                                  s->stream);
        left -= n;
    }
    return r;
}

// Its products and the memory traffic of its other kernels. What cuBLASLt does not do becomes
// traffic of the predicted duration, by the one thing this GPU was timed at.
static bool compute(struct gpu_rehearsal *r, const struct graph_task *t, const struct gpu_stream *s,
                    struct err *e) {
    double bytes = t->bytes * r->setup.shrink, left = 0;
    if (t->shape_count > 0 && !products_queue(s->products, t, &left, e))
        return false;
    if (left > 0) {
        bytes = fmax(bytes, left * t->duration_s * r->setup.shrink * r->copy_bytes_per_s);
        pthread_mutex_lock(&r->lock);
        r->stands_in = true;
        pthread_mutex_unlock(&r->lock);
    }
    return gpu_lane_ok(move(&r->tracks[t->stream], s, bytes), graph_kind_names[t->kind], e);
}

static cudaError_t copy(const struct gpu_rehearsal *r, const struct graph_task *t,
                        const struct gpu_stream *s) {
    size_t bytes = (size_t)(t->bytes * r->setup.shrink);
    bool up = strcmp(t->direction, "h2d") == 0;
    if (bytes == 0)
        return cudaSuccess;
    return up ? cudaMemcpyAsync(s->to, s->host, bytes, cudaMemcpyHostToDevice, s->stream)
              : cudaMemcpyAsync(s->host, s->from, bytes, cudaMemcpyDeviceToHost, s->stream);
}

static cudaError_t allocate(struct gpu_rehearsal *r, const struct graph_task *t, size_t gpu) {
    void **at = &r->buffers[t->buffer * r->gpus + gpu];
    cudaStream_t stream = r->tracks[t->stream].gpus[gpu].stream;
    size_t bytes = (size_t)((double)r->setup.graph->buffers[t->buffer].bytes * r->setup.shrink);
    cudaError_t error = cudaSuccess;
    if (t->kind == GRAPH_FREE) {
        if (*at != NULL)
            error = cudaFreeAsync(*at, stream);
        *at = NULL;
    } else if (*at == NULL && bytes > 0) {
        error = cudaMallocAsync(at, bytes, stream);
    }
    return error;
}

bool rehearse_gpu_queue(struct gpu_rehearsal *r, const struct graph_task *t, size_t gpu,
                        struct err *e) {
    const struct gpu_stream *s = &r->tracks[t->stream].gpus[gpu];
    cudaError_t error;
    switch (t->kind) {
    case GRAPH_COPY:
        error = copy(r, t, s);
        break;
    case GRAPH_ALLOC:
    case GRAPH_FREE:
        error = allocate(r, t, gpu);
        break;
    default:
        return compute(r, t, s, e);
    }
    return gpu_lane_ok(error, graph_kind_names[t->kind], e);
}

// ---- collectives --------------------------------------------------------------------------------

struct element {
    ncclDataType_t type;
    size_t bytes;
};

static struct element element_of(enum dtype d) {
    switch (d) {
    case DTYPE_FP32:
    case DTYPE_TF32:
        return (struct element){ncclFloat32, 4};
    case DTYPE_BF16:
        return (struct element){ncclBfloat16, 2};
    case DTYPE_FP16:
        return (struct element){ncclFloat16, 2};
    default: // narrower types travel as bytes
        return (struct element){ncclInt8, 1};
    }
}

// Collectives of which each rank has a part of its own; the others take any number of elements.
static bool divides(enum collective c) {
    return c != COLLECTIVE_ALL_REDUCE && c != COLLECTIVE_BROADCAST && c != COLLECTIVE_REDUCE &&
           c != COLLECTIVE_SEND_RECV;
}

// Elements of one rank's part, rounded up as a framework pads.
uint64_t rehearse_gpu_chunk(const struct gpu_rehearsal *r, const struct graph_task *t) {
    uint64_t n = divides(t->collective) ? r->setup.graph->groups[t->group].size : 1;
    uint64_t bytes = (uint64_t)(t->bytes * r->setup.shrink), each = element_of(t->dtype).bytes * n;
    uint64_t chunk = (bytes + each - 1) / each;
    return chunk > 0 ? chunk : 1;
}

static ncclResult_t ring_step(const struct gpu_stream *s, const struct nccl_member *m,
                              uint64_t chunk, struct element d) {
    ncclResult_t r = ncclSend(s->from, chunk, d.type, (m->rank + 1) % m->size, m->comm, s->stream);
    if (r != ncclSuccess && r != ncclInProgress)
        return r;
    return ncclRecv(s->to, chunk, d.type, (m->rank + m->size - 1) % m->size, m->comm, s->stream);
}

static ncclResult_t all_to_all(const struct gpu_stream *s, const struct nccl_member *m,
                               uint64_t chunk, struct element d) {
    ncclResult_t r = ncclSuccess;
    for (int q = 0; q < m->size && (r == ncclSuccess || r == ncclInProgress); q++) {
        size_t at = (size_t)q * chunk * d.bytes;
        r = ncclSend(s->from + at, chunk, d.type, q, m->comm, s->stream);
        if (r == ncclSuccess || r == ncclInProgress)
            r = ncclRecv(s->to + at, chunk, d.type, q, m->comm, s->stream);
    }
    return r;
}

static ncclResult_t operate(const struct graph_task *t, const struct gpu_stream *s,
                            const struct nccl_member *m, uint64_t chunk) {
    struct element d = element_of(t->dtype);
    switch (t->collective) {
    case COLLECTIVE_ALL_GATHER:
        return ncclAllGather(s->from, s->to, chunk, d.type, m->comm, s->stream);
    case COLLECTIVE_REDUCE_SCATTER:
        return ncclReduceScatter(s->from, s->to, chunk, d.type, ncclSum, m->comm, s->stream);
    case COLLECTIVE_ALL_REDUCE:
        return ncclAllReduce(s->from, s->to, chunk, d.type, ncclSum, m->comm, s->stream);
    case COLLECTIVE_BROADCAST:
        return ncclBroadcast(s->from, s->to, chunk, d.type, 0, m->comm, s->stream);
    case COLLECTIVE_REDUCE:
        return ncclReduce(s->from, s->to, chunk, d.type, ncclSum, 0, m->comm, s->stream);
    case COLLECTIVE_ALL_TO_ALL:
        return all_to_all(s, m, chunk, d);
    default:
        return ring_step(s, m, chunk, d);
    }
}

static bool alone(const struct gpu_rehearsal *r, const struct graph_task *t) {
    return t->group < 0 || r->setup.graph->groups[t->group].size < 2;
}

bool rehearse_gpu_collective(struct gpu_rehearsal *r, const struct graph_task *t, struct err *e) {
    struct gpu_track *k = &r->tracks[t->stream];
    const char *what = collective_name(t->collective);
    if (alone(r, t))
        return true;
    struct nccl_comms *c = &k->comms[t->group];
    uint64_t chunk = rehearse_gpu_chunk(r, t);
    bool ok = nccl_comms_ok(c, ncclGroupStart(), "ncclGroupStart", e);
    for (size_t i = 0; ok && i < r->gpus; i++) {
        cudaSetDevice(c->members[i].device);
        ok = nccl_comms_ok(c, operate(t, &k->gpus[i], &c->members[i], chunk), what, e);
    }
    ok = nccl_comms_ok(c, ncclGroupEnd(), what, e) && ok;
    return ok && nccl_comms_settle(c, what, e);
}

static struct rehearse_sent *entry_of(struct gpu_rehearsal *r, const struct rehearse_sent *like) {
    for (size_t i = 0; i < r->sent_count; i++) {
        struct rehearse_sent *s = &r->sent[i];
        if (s->rank == like->rank && s->collective == like->collective && s->dtype == like->dtype &&
            s->group == like->group)
            return s;
    }
    if (r->sent_count == r->sent_room) {
        size_t room = r->sent_room ? 2 * r->sent_room : 32;
        struct rehearse_sent *list = arena_array(r->arena, room, sizeof(*list));
        if (r->sent_count > 0)
            memcpy(list, r->sent, r->sent_count * sizeof(*list));
        r->sent = list;
        r->sent_room = room;
    }
    r->sent[r->sent_count] = *like;
    return &r->sent[r->sent_count++];
}

// With the lock held: what was given to NCCL, as it was given.
void rehearse_gpu_count_sent(struct gpu_rehearsal *r, const struct graph_task *t) {
    if (alone(r, t))
        return;
    const struct graph_group *g = &r->setup.graph->groups[t->group];
    size_t first = 0;
    while (strcmp(r->setup.graph->groups[first].kind, g->kind) != 0)
        first++;
    double payload = (double)(rehearse_gpu_chunk(r, t) * element_of(t->dtype).bytes *
                              (divides(t->collective) ? g->size : 1));
    for (size_t i = 0; i < r->gpus; i++) {
        struct rehearse_sent like = {.rank = r->tracks[t->stream].comms[t->group].members[i].number,
                                     .group = first,
                                     .collective = t->collective,
                                     .dtype = t->dtype};
        struct rehearse_sent *s = entry_of(r, &like);
        s->calls++;
        s->payload_bytes += payload;
        s->sent_bytes += collective_sent_bytes(t->collective, payload, g->size);
    }
}
