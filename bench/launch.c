// SPDX-License-Identifier: Apache-2.0
#include "bench/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/inventory.h"

#define CHILD_MARK "SHARDBENCH_CHILD"

bool launch_is_child(void) {
    return getenv(CHILD_MARK) != NULL;
}

// Settings of Open MPI; MPICH ignores them. Set in the child only.
static void set_environment(const struct launch *l, bool crowded) {
    setenv(CHILD_MARK, l->out, 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
    if (crowded) {
        setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
        setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
    }
}

static void exec_ranks(const struct launch *l, uint64_t ranks, struct arena *a) {
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[length > 0 ? length : 0] = '\0';
    size_t n = 0;
    while (l->argv[n] != NULL)
        n++;
    const char **argv = arena_array(a, n + 5, sizeof(*argv));
    size_t at = 0;
    argv[at++] = "mpirun";
    argv[at++] = "-n";
    argv[at++] = arena_printf(a, "%llu", (unsigned long long)ranks);
    argv[at++] = self;
    for (size_t i = 1; i < n; i++)
        argv[at++] = l->argv[i];
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    set_environment(l, ranks > (uint64_t)inventory_processors());
    execvp("mpirun", (char *const *)argv);
    fprintf(stderr, "mpirun: %s\n", strerror(errno));
    _exit(127);
}

uint64_t launch_rank_count(uint64_t asked) {
    uint64_t ranks = asked ? asked : (uint64_t)inventory_processors();
    return ranks < 2 ? 2 : ranks;
}

bool launch_ranks(const struct launch *l, struct signals *s, struct arena *a, int *status,
                  struct err *e) {
    uint64_t ranks = launch_rank_count(l->ranks);
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        return err_set(e, ERR_RESOURCE, "fork: %s", strerror(errno));
    if (pid == 0)
        exec_ranks(l, ranks, a);
    setpgid(pid, pid); // whichever of the two comes first
    struct child_wait w = {.pid = pid, .timeout_s = l->timeout_s, .watched = l->out};
    if (!signals_wait_child(s, &w, e))
        return false;
    if (s->interrupted)
        return err_set(e, ERR_INTERRUPTED, "interrupted; finished results are kept");
    if (w.timed_out)
        return err_set(e, ERR_RESOURCE,
                       "the ranks finished nothing for %.0f s and were ended; finished results "
                       "are kept",
                       l->timeout_s);
    int code = WIFEXITED(w.status) ? WEXITSTATUS(w.status) : 128 + WTERMSIG(w.status);
    if (code == 127)
        return err_set(e, ERR_RESOURCE, "mpirun could not be started: install Open MPI or MPICH");
    if (code == 130)
        return err_set(e, ERR_INTERRUPTED, "interrupted; finished results are kept");
    if (code > 4)
        return err_set(e, ERR_RESOURCE,
                       "a rank died (mpirun ended with status %d); finished results are kept",
                       code);
    *status = code;
    return true;
}
