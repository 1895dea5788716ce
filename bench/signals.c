// SPDX-License-Identifier: Apache-2.0
#include "bench/signals.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
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
    s->interrupted = false;
    s->fd = -1;
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return err_set(e, ERR_RESOURCE, "sigprocmask: %s", strerror(errno));
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0)
        return err_set(e, ERR_RESOURCE, "signalfd: %s", strerror(errno));
    return true;
}

void signals_finish(struct signals *s) {
    if (s != NULL && s->fd >= 0)
        close(s->fd);
}

bool signals_interrupted(struct signals *s) {
    struct signalfd_siginfo info;
    while (read(s->fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        s->interrupted = true;
    return s->interrupted;
}

static off_t size_of(const char *path) {
    struct stat st;
    return path != NULL && stat(path, &st) == 0 ? st.st_size : 0;
}

bool signals_wait_child(struct signals *s, struct child_wait *w, struct err *e) {
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
