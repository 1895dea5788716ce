// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM arrive by signalfd and are looked at between batches and while waiting for
// devices: no handler runs. Any thread may look.
#pragma once

#include "base/err.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

struct signals {
    int fd, seen; // seen: an eventfd, readable once somebody has looked and found one
    atomic_bool interrupted;
    // of signals_guard
    bool guarded;
    pthread_t guard;
    int stop;
    double grace_s;
    void (*late)(void);
};

bool signals_init(struct signals *s, struct err *e); // blocks both in this and later threads
void signals_finish(struct signals *s);
bool signals_interrupted(struct signals *s); // true for ever after the first one

// Calls `late` on a thread of its own if the program is still between guard and unguard so long
// after an interrupt: a call into a driver that hangs comes back to nobody. One at a time.
void signals_guard(struct signals *s, double grace_s, void (*late)(void));
void signals_unguard(struct signals *s);

// A child that leads its own process group.
struct child_wait {
    pid_t pid;
    double timeout_s;    // longest time without growth of `watched`
    const char *watched; // a file; NULL: timeout_s is for the whole run
    int status;          // out: what waitpid gave
    bool timed_out;      // out
};

// On an interrupt or a timeout the group is told to end, and killed if it does not.
bool signals_wait_child(struct signals *s, struct child_wait *w, struct err *e);
