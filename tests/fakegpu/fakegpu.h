// SPDX-License-Identifier: Apache-2.0
// Virtual GPUs for tests: the used part of the CUDA runtime over host memory and threads, compiled
// against the real cuda_runtime_api.h. What the doubles of the other libraries need is here.
//
// Environment, read once per process:
//   FAKEGPU_DEVICES=N      virtual GPUs, 1 to 8; 0 = no driver (cudaErrorInsufficientDriver);
//   unset: 1 FAKEGPU_MEMORY=BYTES   of each GPU; unset: 4 GiB. What exceeds it is
//   cudaErrorMemoryAllocation FAKEGPU_PEERS=0        no GPU reaches another one's memory; unset:
//   all do FAKEGPU_REPORT=1       allocations, streams and events left at exit are counted on
//   stderr FAKEGPU_FAULTS=LIST    comma-separated:
//     error:CALL:N         the Nth call of CALL ("cudaMemcpyAsync") returns cudaErrorLaunchFailure
//     stuck:CALL:N         the Nth call of CALL never returns
//     async:DEVICE:N       the Nth work of DEVICE fails: a sticky error that later calls return
//     hang:DEVICE:N        the Nth work of DEVICE never ends
//     slow:DEVICE:FACTOR   every work of DEVICE takes FACTOR times as long
//     wrong:DEVICE:N       the Nth copy that writes to DEVICE flips one bit
// N counts from 1. The other doubles read further forms from the same list by fakegpu_fault.
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKEGPU_DEVICES_MAX 8

// Runs on the stream's thread, in order. `context` is the stream's own copy.
typedef void fakegpu_work(void *context);
// Queues `work` with a copy of `bytes` at `context` (at most 256).
cudaError_t fakegpu_enqueue(cudaStream_t stream, fakegpu_work *work, const void *context,
                            size_t bytes);
int fakegpu_stream_device(cudaStream_t stream);

// The current device of this thread.
int fakegpu_device(void);

// True when [at, at + bytes) lies in one allocation that work on `device` may touch: its own, a
// peer's after cudaDeviceEnablePeerAccess, or pinned host memory.
bool fakegpu_reachable(int device, const void *at, size_t bytes);
// The device that owns an address; -1: pinned host memory, -2: memory that CUDA does not know.
int fakegpu_owner(const void *at);

// Marks the process's context as broken, as a failed kernel does: later calls return `error`.
void fakegpu_break(cudaError_t error);
cudaError_t fakegpu_broken(void); // cudaSuccess while all is well

// To be called first in every function of a double. The error that its caller must return:
// an injected one or the sticky one.
cudaError_t fakegpu_enter(const char *call);

// The two numbers of the fault "NAME:FIRST:SECOND" whose FIRST is `first`; -1 matches any.
// False when the list has none.
bool fakegpu_fault(const char *name, long first, double *second);
// Waits for ever: what a hung stream does.
void fakegpu_hang(void) __attribute__((noreturn));
double fakegpu_now_s(void);
void fakegpu_sleep(double s);
