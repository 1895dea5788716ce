// SPDX-License-Identifier: Apache-2.0
#include "bench/signals.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/units.h"
#include "bench/clock.h"

bool signals_init(struct signals *s, struct err *e) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    *s = (struct signals){.fd = -1, .seen = -1, .stop = -1};
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return err_set(e, ERR_RESOURCE, "sigprocmask: %s", strerror(errno));
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0)
        return err_set(e, ERR_RESOURCE, "signalfd: %s", strerror(errno));
    s->seen = eventfd(0, EFD_CLOEXEC);
    s->stop = eventfd(0, EFD_CLOEXEC);
    if (s->seen < 0 || s->stop < 0) {
        signals_finish(s);
        return err_set(e, ERR_RESOURCE, "eventfd: %s", strerror(errno));
    }
    return true;
}

void signals_finish(struct signals *s) {
    if (s == NULL)
        return;
    int *all[] = {&s->fd, &s->seen, &s->stop};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (*all[i] >= 0)
            close(*all[i]);
        *all[i] = -1;
    }
}

static void raise_event(int fd) {
    const uint64_t one = 1;
    if (write(fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
        abort(); // an eventfd of ours takes far more than we write
}

bool signals_interrupted(struct signals *s) {
    struct signalfd_siginfo info;
    while (read(s->fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        s->interrupted = true;
        raise_event(s->seen);
    }
    return s->interrupted;
}

static bool readable(int fd, double wait_s) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, (int)(wait_s / UNITS_MILLI)) > 0;
}

static void *guard(void *context) {
    struct signals *s = context;
    struct pollfd any[] = {{.fd = s->fd, .events = POLLIN},
                           {.fd = s->seen, .events = POLLIN},
                           {.fd = s->stop, .events = POLLIN}};
    while (poll(any, 3, -1) < 0 && errno == EINTR)
        continue;
    if (any[2].revents == 0 && signals_interrupted(s) && !readable(s->stop, s->grace_s))
        s->late();
    return NULL;
}

void signals_guard(struct signals *s, double grace_s, void (*late)(void)) {
    s->grace_s = grace_s;
    s->late = late;
    s->guarded = pthread_create(&s->guard, NULL, guard, s) == 0;
}

void signals_unguard(struct signals *s) {
    uint64_t count;
    if (!s->guarded)
        return;
    raise_event(s->stop);
    pthread_join(s->guard, NULL);
    s->guarded = false;
    if (read(s->stop, &count, sizeof(count)) != (ssize_t)sizeof(count))
        abort();
}

static off_t size_of(const char *path) {
    struct stat st;
    return path != NULL && stat(path, &st) == 0 ? st.st_size : 0;
}

static bool wait_child(struct signals *s, struct child_wait *w, struct err *e) {
    const double grace_s = 3, poll_s = 0.02;
    double deadline = clock_now_s() + w->timeout_s;
    off_t size = size_of(w->watched);
    bool told = false;
    w->timed_out = false;
    for (;;) {
        pid_t got = waitpid(w->pid, &w->status, WNOHANG);
        if (got == w->pid)
            return true;
        if (got < 0 && errno != EINTR)
            return err_set(e, ERR_RESOURCE, "waitpid: %s", strerror(errno));
        if (!told && size_of(w->watched) != size) {
            size = size_of(w->watched);
            deadline = clock_now_s() + w->timeout_s;
        }
        bool late = clock_now_s() > deadline;
        if (!told && (signals_interrupted(s) || late)) {
            w->timed_out = late && !s->interrupted;
            kill(-w->pid, SIGTERM);
            told = true;
            deadline = clock_now_s() + grace_s;
        } else if (told && late) {
            kill(-w->pid, SIGKILL);
        }
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        poll(&p, 1, (int)(poll_s / UNITS_MILLI));
    }
}

// A child that is slow to end is no driver that hangs.
bool signals_wait_child(struct signals *s, struct child_wait *w, struct err *e) {
    bool guarded = s->guarded;
    signals_unguard(s);
    bool ok = wait_child(s, w, e);
    if (guarded)
        signals_guard(s, s->grace_s, s->late);
    return ok;
}
