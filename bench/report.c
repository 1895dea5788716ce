// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include "config.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"

#define PROGRAM "shardreport"

// Installed beside us or in libexecdir; in a build tree next door; else whatever PATH has.
static const char *find_program(struct arena *a) {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL)
        *slash = '\0';
    const char *places[] = {arena_printf(a, "%s/" PROGRAM, self),
                            arena_printf(a, "%s/../reports/" PROGRAM, self),
                            SHARDPLAN_LIBEXECDIR "/" PROGRAM};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (access(places[i], X_OK) == 0)
            return places[i];
    return PROGRAM;
}

// Signals are blocked here, for signalfd; the child takes them as usual.
static void exec_report(const char *program, const char *const *argv) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(program, (char *const *)argv);
    _exit(127);
}

static bool run(const char *dir, const char *path, struct arena *a, struct err *e) {
    const char *argv[] = {PROGRAM, path, "-o", dir, "--quiet", NULL};
    const char *program = find_program(a);
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        return err_set(e, ERR_RESOURCE, "fork: %s", strerror(errno));
    if (pid == 0)
        exec_report(program, argv);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_set(e, ERR_RESOURCE, "waitpid: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return err_set(e, ERR_RESOURCE, PROGRAM " is not installed beside shardbench or in PATH");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(e, ERR_RESOURCE, "the report could not be written (" PROGRAM ": status %d)",
                       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return true;
}

bool report_make(const char *dir, const char *written, const cJSON *root, struct arena *a,
                 struct err *e) {
    if (written != NULL && strcmp(written, "-") != 0)
        return run(dir, written, a, e);
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return err_set(e, ERR_RESOURCE, "%s: %s", dir, strerror(errno));
    const char *path = arena_printf(a, "%s/result.json", dir);
    return json_write_file(path, root, e) && run(dir, path, a, e);
}
