// SPDX-License-Identifier: Apache-2.0
#include "bench/slice.h"

#include <sched.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

// The first version of the kernel's struct sched_attr; libc has none.
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

void slice_make_short(void) {
    const struct attributes a = {.size = sizeof(a),
                                 .policy = SCHED_OTHER,
                                 .nice = getpriority(PRIO_PROCESS, 0),
                                 .runtime_ns = 100000};
    prctl(PR_SET_TIMERSLACK, 1000UL);
    syscall(SYS_sched_setattr, 0, &a, 0); // refused: the usual turns
}
