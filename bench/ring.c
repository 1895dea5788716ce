// SPDX-License-Identifier: Apache-2.0
#include "bench/ring.h"

#include <string.h>
#include <time.h>

#include "kernels/reduce.h"

// Small enough that a received segment is still in cache when it is added.
#define SEGMENT_BYTES (256 * UNITS_KIB)
#define MESSAGE_BYTES UNITS_GIB // an int holds its length
#define WINDOW 32

struct step {
    const char *send; // chunk to pass on
    char *receive;    // where the neighbour's chunk lands
    char *sum;        // NULL: only receive; else sum += addend after each segment
    const char *addend;
};

static int wrap(const struct ring *r, int index) {
    return ((index % r->count) + r->count) % r->count;
}

static size_t chunk_bytes(const struct ring *r) {
    return r->chunk * pattern_bytes(r->type);
}

size_t ring_scratch_bytes(const struct ring *r) {
    return 3 * chunk_bytes(r);
}

static size_t segment_size(size_t total, size_t at, size_t segment) {
    return total - at < segment ? total - at : segment;
}

// A waiting thread that looks without pause takes a core from whatever else runs there.
static void finish(const struct ring *r, MPI_Request *q) {
    const struct timespec nap = {.tv_nsec = (long)(r->nap_s / UNITS_NANO)};
    int done = 0;
    if (!(r->nap_s > 0))
        MPI_Wait(q, MPI_STATUS_IGNORE);
    while (r->nap_s > 0 && !done) {
        MPI_Test(q, &done, MPI_STATUS_IGNORE);
        if (!done)
            nanosleep(&nap, NULL);
    }
}

// Sends one chunk to the right while one arrives from the left, at most WINDOW segments in flight
// each way, adding each segment as it lands.
static void exchange(const struct ring *r, struct step s) {
    MPI_Request in[WINDOW], out[WINDOW];
    size_t total = chunk_bytes(r), elt = pattern_bytes(r->type);
    size_t usual = s.sum != NULL ? SEGMENT_BYTES : MESSAGE_BYTES;
    size_t segment = r->segment_bytes > 0 ? r->segment_bytes : usual;
    size_t segments = units_ceil_div(total, segment);
    size_t window = segments < WINDOW ? segments : WINDOW;
    int right = wrap(r, r->rank + 1), left = wrap(r, r->rank - 1);
    for (size_t k = 0; k < segments + window; k++) {
        size_t slot = k % window, at = k * segment;
        if (k >= window) {
            finish(r, &in[slot]);
            finish(r, &out[slot]);
        }
        if (k < segments) {
            int bytes = (int)segment_size(total, at, segment);
            // The segment that just left this slot is added below, while this one travels.
            MPI_Irecv(s.receive + at, bytes, MPI_BYTE, left, 0, r->comm, &in[slot]);
            MPI_Isend(s.send + at, bytes, MPI_BYTE, right, 0, r->comm, &out[slot]);
            if (r->sent_bytes != NULL)
                *r->sent_bytes += (uint64_t)bytes;
        }
        if (s.sum != NULL && k >= window) {
            at = (k - window) * segment;
            reduce_sum(r->type, s.sum + at, s.addend + at, segment_size(total, at, segment) / elt);
        }
    }
}

void ring_shift(const struct ring *r, const void *from, void *to) {
    exchange(r, (struct step){.send = from, .receive = to});
}

void ring_all_gather(const struct ring *r, const void *from, void *to) {
    size_t bytes = chunk_bytes(r);
    char *all = to;
    if (from != NULL)
        memcpy(all + (size_t)r->rank * bytes, from, bytes);
    for (int s = 0; s < r->count - 1; s++)
        exchange(r, (struct step){
                        .send = all + (size_t)wrap(r, r->rank - s) * bytes,
                        .receive = all + (size_t)wrap(r, r->rank - s - 1) * bytes,
                    });
}

// A partial sum of chunk c starts at rank c + 1 and ends, complete, at rank c.
void ring_reduce_scatter(const struct ring *r, const void *from, void *to) {
    size_t bytes = chunk_bytes(r);
    const char *mine = from;
    if (r->count == 1) {
        memmove(to, from, bytes);
        return;
    }
    const char *send = mine + (size_t)wrap(r, r->rank - 1) * bytes;
    for (int s = 0; s < r->count - 1; s++) {
        bool last = s == r->count - 2;
        char *landing = last ? to : r->scratch + (size_t)(s % 2) * bytes;
        exchange(r, (struct step){
                        .send = send,
                        .receive = landing,
                        .sum = landing,
                        .addend = mine + (size_t)wrap(r, r->rank - s - 2) * bytes,
                    });
        send = landing;
    }
}

void ring_all_reduce(const struct ring *r, const void *from, void *to) {
    size_t bytes = chunk_bytes(r);
    char *own = (char *)to + (size_t)r->rank * bytes;
    if (from != to || r->count == 1) {
        ring_reduce_scatter(r, from, own);
    } else {
        // The own chunk is an addend of the last step, so the sum lands elsewhere first.
        char *landing = r->scratch + 2 * bytes;
        ring_reduce_scatter(r, from, landing);
        memcpy(own, landing, bytes);
    }
    ring_all_gather(r, NULL, to);
}
