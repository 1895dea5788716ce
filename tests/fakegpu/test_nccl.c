// SPDX-License-Identifier: Apache-2.0
// NCCL's double compares what the ranks of a communicator ask for, and reads the memory it is
// given.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fakegpu.h"
#include "nccl_private.h"

#define RANKS 2
#define COUNT 1000

struct pair {
    ncclComm_t comms[RANKS];
    cudaStream_t streams[RANKS];
    void *send[RANKS], *receive[RANKS];
};

static void open_pair(struct pair *p) {
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    ncclGroupStart();
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(cudaSetDevice(i), cudaSuccess);
        cudaStreamCreateWithFlags(&p->streams[i], cudaStreamNonBlocking);
        cudaMalloc(&p->send[i], COUNT * sizeof(float));
        cudaMalloc(&p->receive[i], COUNT * sizeof(float));
        cudaMemset(p->send[i], 0, COUNT * sizeof(float));
        ncclCommInitRankConfig(&p->comms[i], RANKS, id, i, &config);
    }
    ncclGroupEnd();
}

// What the communicators end in; the first failure that is not another's consequence.
static ncclResult_t outcome(const struct pair *p, const char **text) {
    for (int looks = 0; looks < 5000; looks++) {
        bool idle = true;
        for (int i = 0; i < RANKS; i++) {
            ncclResult_t r;
            assert_int_equal(ncclCommGetAsyncError(p->comms[i], &r), ncclSuccess);
            if (r != ncclSuccess && r != ncclInProgress && r != ncclRemoteError) {
                *text = ncclGetLastError(p->comms[i]);
                return r;
            }
            idle &= r == ncclSuccess && cudaStreamQuery(p->streams[i]) == cudaSuccess;
        }
        if (idle)
            return ncclSuccess;
        fakegpu_sleep(1e-3);
    }
    return ncclInternalError;
}

static void close_pair(struct pair *p) {
    for (int i = 0; i < RANKS; i++)
        ncclCommAbort(p->comms[i]); // freeing waits for the work of both
    for (int i = 0; i < RANKS; i++) {
        cudaStreamDestroy(p->streams[i]);
        cudaFree(p->send[i]);
        cudaFree(p->receive[i]);
    }
}

typedef ncclResult_t ask(const struct pair *p, int rank);

static void expect(ask *what, ncclResult_t wanted, const char *words) {
    struct pair p;
    const char *text = "";
    open_pair(&p);
    assert_int_equal(outcome(&p, &text), ncclSuccess);
    ncclGroupStart();
    for (int i = 0; i < RANKS; i++) {
        cudaSetDevice(i);
        what(&p, i);
    }
    ncclResult_t ended = ncclGroupEnd();
    ncclResult_t r = ended == ncclInProgress ? outcome(&p, &text) : ended;
    if (ended != ncclInProgress && ended != ncclSuccess)
        text = ncclGetLastError(NULL);
    assert_int_equal(r, wanted);
    if (strstr(text, words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, text);
    close_pair(&p);
}

static ncclResult_t reduce(const struct pair *p, int i, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation) {
    return ncclAllReduce(p->send[i], p->receive[i], count, type, operation, p->comms[i],
                         p->streams[i]);
}

static ncclResult_t same(const struct pair *p, int i) {
    return reduce(p, i, COUNT, ncclFloat32, ncclSum);
}

static ncclResult_t other_count(const struct pair *p, int i) {
    return reduce(p, i, COUNT - (size_t)i, ncclFloat32, ncclSum);
}

static ncclResult_t other_type(const struct pair *p, int i) {
    return reduce(p, i, COUNT, i == 0 ? ncclFloat32 : ncclInt32, ncclSum);
}

static ncclResult_t other_operation(const struct pair *p, int i) {
    return reduce(p, i, COUNT, ncclFloat32, i == 0 ? ncclSum : ncclMax);
}

static ncclResult_t other_order(const struct pair *p, int i) {
    for (int turn = 0; turn < 2; turn++)
        if (turn == i)
            reduce(p, i, COUNT / 2, ncclFloat32, ncclSum);
        else
            ncclAllGather(p->send[i], p->receive[i], COUNT / 2, ncclFloat32, p->comms[i],
                          p->streams[i]);
    return ncclSuccess;
}

static ncclResult_t too_much(const struct pair *p, int i) {
    return reduce(p, i, 2 * COUNT, ncclFloat32, ncclSum);
}

static ncclResult_t other_stream(const struct pair *p, int i) {
    return ncclAllReduce(p->send[i], p->receive[i], COUNT, ncclFloat32, ncclSum, p->comms[i],
                         p->streams[1 - i]);
}

static void compares(void **state) {
    (void)state;
    expect(same, ncclSuccess, "");
    expect(other_count, ncclInvalidUsage, "mismatch");
    expect(other_type, ncclInvalidUsage, "mismatch");
    expect(other_operation, ncclInvalidUsage, "mismatch");
    expect(other_order, ncclInvalidUsage, "mismatch");
}

static void looks_at_memory(void **state) {
    (void)state;
    expect(too_much, ncclInvalidArgument, "outside GPU");
    expect(other_stream, ncclInvalidUsage, "the stream is of GPU");
}

int main(void) {
    setenv("FAKEGPU_DEVICES", "2", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compares),
        cmocka_unit_test(looks_at_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
