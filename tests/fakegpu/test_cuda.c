// SPDX-License-Identifier: Apache-2.0
// The double keeps the runtime's promises: order, events, memory, peers, faults. Each case runs in
// a process of its own because the environment is read once.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fakegpu.h"
#include "kernels/gpu.h"
#include "kernels/quantize.h"

#define N 100000

// Runs `body` with "NAME=VALUE" settings, NULL-terminated.
static void in_child(void (*body)(void), const char *const *settings) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        for (size_t i = 0; settings[i] != NULL; i++)
            putenv((char *)(uintptr_t)settings[i]);
        body();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

static void check(bool ok, const char *what, int line) {
    if (ok)
        return;
    fprintf(stderr, "line %d: %s\n", line, what);
    _exit(1);
}
#define CHECK(condition) check(condition, #condition, __LINE__)
#define OK(call) check((call) == cudaSuccess, #call, __LINE__)

static void later(void *context) {
    fakegpu_sleep(0.05);
    **(int **)context = 7;
}

static void order_across_streams(void) {
    cudaStream_t a, b;
    cudaEvent_t start, middle, end;
    float ms = 0;
    int host = 0, *to = &host, seen = 0, *device;
    OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    OK(cudaEventCreate(&start));
    OK(cudaEventCreate(&middle));
    OK(cudaEventCreate(&end));
    OK(cudaMalloc((void **)&device, sizeof(int)));
    OK(cudaEventRecord(start, a));
    OK(fakegpu_enqueue(a, later, &to, sizeof(to)));
    OK(cudaMemcpyAsync(device, &host, sizeof(host), cudaMemcpyHostToDevice, a));
    OK(cudaEventRecord(middle, a));
    OK(cudaStreamWaitEvent(b, middle, 0));
    OK(cudaMemcpyAsync(&seen, device, sizeof(seen), cudaMemcpyDeviceToHost, b));
    OK(cudaEventRecord(end, b));
    OK(cudaEventSynchronize(end));
    CHECK(seen == 7);
    OK(cudaEventElapsedTime(&ms, start, end));
    CHECK(ms >= 45);
    OK(cudaFree(device));
    OK(cudaEventDestroy(start));
    OK(cudaEventDestroy(middle));
    OK(cudaEventDestroy(end));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
}

static void memory_ends(void) {
    void *a, *b;
    size_t left, total;
    OK(cudaMalloc(&a, 600000));
    CHECK(cudaMalloc(&b, 600000) == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    OK(cudaMemGetInfo(&left, &total));
    CHECK(left == 400000 && total == 1000000);
    OK(cudaSetDevice(1)); // has its own
    OK(cudaMalloc(&b, 600000));
    CHECK(cudaMemcpy(a, b, 600001, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(a, &left, sizeof(left), cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(cudaFreeHost(a) == cudaErrorInvalidValue);
    OK(cudaFree(a));
    CHECK(cudaFree(a) == cudaErrorInvalidValue);
}

static void peers_ask_first(void) {
    float *mine, *theirs;
    OK(cudaMalloc((void **)&mine, 4 * N));
    OK(cudaSetDevice(1));
    OK(cudaMalloc((void **)&theirs, 4 * N));
    OK(cudaSetDevice(0));
    OK(cudaDeviceEnablePeerAccess(1, 0));
    CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled);
    OK((cudaError_t)gpu_copy(mine, theirs, N, NULL));
    OK(cudaStreamSynchronize(NULL));
    OK(cudaDeviceDisablePeerAccess(1));
    OK((cudaError_t)gpu_copy(mine, theirs, N, NULL));
    CHECK(cudaStreamSynchronize(NULL) == cudaErrorIllegalAddress);
    CHECK(cudaFree(mine) == cudaErrorIllegalAddress); // sticky
}

static void nth_call_fails(void) {
    char *at;
    OK(cudaMalloc((void **)&at, 16));
    OK(cudaMemset(at, 1, 16));
    CHECK(cudaMemset(at, 1, 16) == cudaErrorLaunchFailure);
    OK(cudaMemset(at, 1, 16)); // only that call
}

static void nth_work_fails(void) {
    char *at;
    OK(cudaMalloc((void **)&at, 16));
    OK(cudaMemsetAsync(at, 1, 16, NULL));
    OK(cudaStreamSynchronize(NULL));
    OK(cudaMemsetAsync(at, 1, 16, NULL));
    CHECK(cudaStreamSynchronize(NULL) == cudaErrorLaunchFailure);
    CHECK(cudaMalloc((void **)&at, 16) == cudaErrorLaunchFailure);
}

static void work_hangs(void) {
    cudaStream_t s;
    char *at;
    OK(cudaStreamCreate(&s));
    OK(cudaMalloc((void **)&at, 16));
    OK(cudaMemsetAsync(at, 1, 16, s));
    fakegpu_sleep(0.1);
    CHECK(cudaStreamQuery(s) == cudaErrorNotReady);
}

static void copies_spoil(void) {
    char in[64] = {0}, out[64], *at;
    OK(cudaMalloc((void **)&at, sizeof(in)));
    for (int turn = 1; turn <= 2; turn++) {
        OK(cudaMemcpy(at, in, sizeof(in), cudaMemcpyHostToDevice));
        OK(cudaMemcpy(out, at, sizeof(in), cudaMemcpyDeviceToHost));
        CHECK((memcmp(in, out, sizeof(in)) == 0) == (turn == 1));
    }
}

static void no_driver(void) {
    int count = -1;
    CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
}

static void kernels_verify(void) {
    struct gpu_array a = {.pattern = {.type = PATTERN_BF16, .seed = 3, .rank = 1, .ranks = 4},
                          .first = 5,
                          .count = N};
    uint64_t *wrong, count = 1;
    uint16_t *host = malloc(2 * N);
    OK(cudaMalloc(&a.at, 2 * N));
    OK(cudaMalloc((void **)&wrong, sizeof(*wrong)));
    OK(cudaMemset(wrong, 0, sizeof(*wrong)));
    OK((cudaError_t)gpu_pattern_fill(&a, NULL));
    OK((cudaError_t)gpu_pattern_wrong(&a, wrong, NULL));
    OK(cudaMemcpy(&count, wrong, sizeof(count), cudaMemcpyDeviceToHost));
    CHECK(count == 0);
    OK(cudaMemcpy(host, a.at, 2 * N, cudaMemcpyDeviceToHost));
    CHECK(pattern_wrong(&a.pattern, host, 5, N) == 0);
    host[17]++;
    OK(cudaMemcpy(a.at, host, 2 * N, cudaMemcpyHostToDevice));
    OK((cudaError_t)gpu_pattern_wrong(&a, wrong, NULL));
    OK(cudaMemcpy(&count, wrong, sizeof(count), cudaMemcpyDeviceToHost));
    CHECK(count == 1);
    free(host);
}

static void keeps_promises(void **state) {
    const struct {
        void (*body)(void);
        const char *settings[4];
    } cases[] = {
        {order_across_streams, {NULL}},
        {memory_ends, {"FAKEGPU_DEVICES=2", "FAKEGPU_MEMORY=1000000", NULL}},
        {peers_ask_first, {"FAKEGPU_DEVICES=2", NULL}},
        {nth_call_fails, {"FAKEGPU_FAULTS=error:cudaMemsetAsync:2", NULL}},
        {nth_work_fails, {"FAKEGPU_FAULTS=hang:1:1,async:0:2", NULL}},
        {work_hangs, {"FAKEGPU_FAULTS=hang:0:1", NULL}},
        {copies_spoil, {"FAKEGPU_FAULTS=wrong:0:2", NULL}},
        {no_driver, {"FAKEGPU_DEVICES=0", NULL}},
        {kernels_verify, {NULL}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        in_child(cases[i].body, cases[i].settings);
}

// Worked by hand: the largest magnitude 2 maps to 128, clamped to 127; 2 / 128 a step.
static void quantises(void **state) {
    (void)state;
    float factor = quantize_factor(2, 8);
    assert_true(factor == 64);
    assert_int_equal(quantize_code(2, factor, 8), 127);
    assert_int_equal(quantize_code(-2, factor, 8), -128);
    assert_int_equal(quantize_code(0.5f, factor, 8), 32);
    assert_int_equal(quantize_code(1.5f / 64, factor, 8), 2); // to even
    assert_int_equal(quantize_code(1, quantize_factor(2, 4), 4), 4);
    assert_int_equal(quantize_code(2, quantize_factor(2, 4), 4), 7);
    const uint8_t packed[] = {0x8F, 0x70};
    assert_int_equal(quantize_read(packed, 0, 4), -1);
    assert_int_equal(quantize_read(packed, 1, 4), -8);
    assert_int_equal(quantize_read(packed, 2, 4), 0);
    assert_int_equal(quantize_read(packed, 3, 4), 7);
    assert_int_equal(quantize_read(packed, 1, 8), 0x70);
    assert_true(quantize_factor(0, 8) == 1);
    assert_true(quantize_back(32, 1 / factor) == 0.5f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_promises),
        cmocka_unit_test(quantises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
