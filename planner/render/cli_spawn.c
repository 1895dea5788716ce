// SPDX-License-Identifier: Apache-2.0
#include "render/cli.h"

#include "config.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char *own_folder(struct arena *a) {
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return NULL;
    path[n] = '\0';
    return arena_strdup(a, dirname(path));
}

// Where the other programs live: installed beside us or in libexecdir; in a build tree next door.
static const char *find_program(struct arena *a, const char *program) {
    const char *own = own_folder(a);
    const char *places[4] = {0};
    size_t count = 0;
    if (own) {
        places[count++] = arena_printf(a, "%s/%s", own, program);
        places[count++] = arena_printf(a, "%s/../../bench/%s", own, program);
        places[count++] = arena_printf(a, "%s/../../reports/%s", own, program);
    }
    places[count++] = arena_printf(a, "%s/%s", SHARDPLAN_LIBEXECDIR, program);
    for (size_t i = 0; i < count; i++)
        if (access(places[i], X_OK) == 0)
            return places[i];
    return program; // PATH
}

static int wait_for(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return EXIT_MISSING;
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGINT ? EXIT_INTERRUPTED : 128 + WTERMSIG(status);
    return WEXITSTATUS(status);
}

// Ctrl-C reaches the child through the terminal; we outlive it to pass its status on.
int cli_spawn(struct cli *cli, const char *program, char *const *argv) {
    const char *path = find_program(cli->arena, program);
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    pid_t pid;
    sigaction(SIGINT, &ignore, &before);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGINT);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    int failed = posix_spawnp(&pid, path, NULL, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    int status = EXIT_MISSING;
    if (failed)
        fprintf(stderr, "shardplan: %s is not installed beside shardplan or in PATH: %s\n", program,
                strerror(failed));
    else
        status = wait_for(pid);
    sigaction(SIGINT, &before, NULL);
    return status;
}
