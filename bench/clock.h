// SPDX-License-Identifier: Apache-2.0
// The one clock of every measurement, and the timed loop that host backends share.
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

double clock_now_s(void);         // monotonic
double clock_thread_cpu_s(void);  // CPU time of this thread
double clock_process_cpu_s(void); // CPU time of this process

// Calls `body` `count` times back to back; one clock read per iteration.
typedef bool clock_body(void *context, struct err *e);
bool clock_time(clock_body *body, void *context, size_t count, double *samples_s, struct err *e);
