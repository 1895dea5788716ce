// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

#include "bench/io.h"

#define REAP 64 // completions taken at once

struct uring {
    struct io_setup setup;
    struct io_uring ring;
    bool fixed; // buffers are registered
};

static bool uring_open(const struct io_setup *setup, void **state, const char **note,
                       struct err *e) {
    struct uring *u = calloc(1, sizeof(*u));
    if (u == NULL)
        abort();
    u->setup = *setup;
    int status = io_uring_queue_init(setup->slots, &u->ring, 0);
    if (status < 0) {
        free(u);
        return err_set(e, ERR_RESOURCE, "io_uring: %s", strerror(-status));
    }
    struct iovec all = {setup->buffer, setup->slots * setup->block_bytes};
    u->fixed = io_uring_register_buffers(&u->ring, &all, 1) == 0;
    if (!u->fixed)
        *note = "buffers not registered: raise the locked-memory limit (ulimit -l)";
    if (io_uring_register_files(&u->ring, &setup->fd, 1) != 0) {
        status = errno;
        io_uring_queue_exit(&u->ring);
        free(u);
        return err_set(e, ERR_RESOURCE, "io_uring files: %s", strerror(status));
    }
    *state = u;
    return true;
}

static void uring_close(void *state) {
    struct uring *u = state;
    if (u == NULL)
        return;
    io_uring_queue_exit(&u->ring);
    free(u);
}

static bool uring_push(void *state, const struct io_request *r, struct err *e) {
    struct uring *u = state;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (sqe == NULL)
        return err_set(e, ERR_RESOURCE, "io_uring: its queue is full");
    char *at = u->setup.buffer + r->slot * u->setup.block_bytes;
    unsigned bytes = (unsigned)u->setup.block_bytes;
    if (u->fixed && r->write)
        io_uring_prep_write_fixed(sqe, 0, at, bytes, r->offset, 0);
    else if (u->fixed)
        io_uring_prep_read_fixed(sqe, 0, at, bytes, r->offset, 0);
    else if (r->write)
        io_uring_prep_write(sqe, 0, at, bytes, r->offset);
    else
        io_uring_prep_read(sqe, 0, at, bytes, r->offset);
    sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, (uint64_t)r->slot << 1 | r->write);
    return true;
}

static bool uring_wait(void *state, uint32_t *slots, size_t room, size_t *count, struct err *e) {
    struct uring *u = state;
    struct io_uring_cqe *cqes[REAP];
    int status;
    do
        status = io_uring_submit_and_wait(&u->ring, 1);
    while (status == -EINTR);
    if (status < 0)
        return err_set(e, ERR_RESOURCE, "io_uring: %s", strerror(-status));
    unsigned got = io_uring_peek_batch_cqe(&u->ring, cqes, room < REAP ? (unsigned)room : REAP);
    bool ok = true;
    for (unsigned i = 0; i < got; i++) {
        uint64_t data = cqes[i]->user_data;
        slots[i] = (uint32_t)(data >> 1);
        if (ok && (cqes[i]->res < 0 || (uint64_t)cqes[i]->res != u->setup.block_bytes))
            ok = io_failed(data & 1, cqes[i]->res, u->setup.block_bytes, e);
    }
    io_uring_cq_advance(&u->ring, got);
    *count = got;
    return ok;
}

const struct io_engine io_uring_engine = {
    .name = "io_uring",
    .open = uring_open,
    .close = uring_close,
    .push = uring_push,
    .wait = uring_wait,
};
