// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/io.h"

// One thread per slot: as many requests in flight as io_uring would have.
struct pool {
    struct io_setup setup;
    pthread_t *threads;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct io_request *waiting; // ring buffers of `slots` entries
    size_t waiting_first, waiting_count;
    struct finished {
        uint32_t slot;
        bool write;
        int result;
    } * finished;
    size_t finished_count;
    bool over;
};

bool io_failed(bool write, int result, uint64_t wanted, struct err *e) {
    const char *what = write ? "write" : "read";
    if (result < 0)
        return err_set(e, ERR_RESOURCE, "%s: %s", what, strerror(-result));
    return err_set(e, ERR_RESOURCE, "%s: %d bytes of %llu", what, result,
                   (unsigned long long)wanted);
}

static int transfer(const struct pool *p, const struct io_request *r) {
    char *at = p->setup.buffer + r->slot * p->setup.block_bytes;
    ssize_t n;
    do {
        n = r->write ? pwrite(p->setup.fd, at, p->setup.block_bytes, (off_t)r->offset)
                     : pread(p->setup.fd, at, p->setup.block_bytes, (off_t)r->offset);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : (int)n;
}

static void *serve(void *context) {
    struct pool *p = context;
    pthread_mutex_lock(&p->lock);
    while (!p->over) {
        if (p->waiting_count == 0) {
            pthread_cond_wait(&p->work, &p->lock);
            continue;
        }
        struct io_request r = p->waiting[p->waiting_first];
        p->waiting_first = (p->waiting_first + 1) % p->setup.slots;
        p->waiting_count--;
        pthread_mutex_unlock(&p->lock);
        int result = transfer(p, &r);
        pthread_mutex_lock(&p->lock);
        p->finished[p->finished_count++] = (struct finished){r.slot, r.write, result};
        pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static bool pool_open(const struct io_setup *setup, void **state, const char **note,
                      struct err *e) {
    struct pool *p = calloc(1, sizeof(*p));
    if (p == NULL)
        abort();
    p->setup = *setup;
    p->threads = calloc(setup->slots, sizeof(*p->threads));
    p->waiting = calloc(setup->slots, sizeof(*p->waiting));
    p->finished = calloc(setup->slots, sizeof(*p->finished));
    if (p->threads == NULL || p->waiting == NULL || p->finished == NULL)
        abort();
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    (void)e;
    for (uint32_t i = 0; i < setup->slots; i++)
        if (pthread_create(&p->threads[i], NULL, serve, p) != 0)
            abort();
    *note = "threads with pread and pwrite, not io_uring";
    *state = p;
    return true;
}

static void pool_close(void *state) {
    struct pool *p = state;
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->lock);
    p->over = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->setup.slots; i++)
        pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
    free(p->threads);
    free(p->waiting);
    free(p->finished);
    free(p);
}

static bool pool_push(void *state, const struct io_request *r, struct err *e) {
    struct pool *p = state;
    (void)e;
    pthread_mutex_lock(&p->lock);
    p->waiting[(p->waiting_first + p->waiting_count++) % p->setup.slots] = *r;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    return true;
}

static bool pool_wait(void *state, uint32_t *slots, size_t room, size_t *count, struct err *e) {
    struct pool *p = state;
    bool ok = true;
    pthread_mutex_lock(&p->lock);
    while (p->finished_count == 0)
        pthread_cond_wait(&p->done, &p->lock);
    *count = 0;
    while (ok && p->finished_count > 0 && *count < room) {
        struct finished f = p->finished[--p->finished_count];
        slots[(*count)++] = f.slot;
        if (f.result < 0 || (uint64_t)f.result != p->setup.block_bytes)
            ok = io_failed(f.write, f.result, p->setup.block_bytes, e);
    }
    pthread_mutex_unlock(&p->lock);
    return ok;
}

const struct io_engine io_pool_engine = {
    .name = "pread",
    .open = pool_open,
    .close = pool_close,
    .push = pool_push,
    .wait = pool_wait,
};
