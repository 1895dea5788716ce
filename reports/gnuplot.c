// SPDX-License-Identifier: Apache-2.0
#include "gnuplot.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE 4
#define PATIENCE_S 60

extern char **environ;

struct job {
    struct plot *plot;
    pid_t pid; // 0: none
    time_t started_s;
};

struct place { // the folder of the plots
    const char *dir;
    struct arena *arena;
};

static const char *path_of(const struct place *at, const struct plot *p, const char *suffix) {
    return arena_printf(at->arena, "%s/%s%s", at->dir, p->name, suffix);
}

static bool write_inputs(struct plot *p, const struct place *at, struct err *e) {
    char *script = plot_script(p);
    bool good = json_write_text_file(path_of(at, p, ".gp"), script, strlen(script), e);
    free(script);
    return good && json_write_text_file(path_of(at, p, ".dat"), p->data_text, p->data_bytes, e);
}

// An old picture must not pass for a new one.
static void remove_outputs(const struct plot *p, const struct place *at) {
    static const char *const suffixes[] = {".svg", "-narrow.svg", ".png"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        unlink(path_of(at, p, suffixes[i]));
}

// ---- plots of an earlier run in the same folder -------------------------------------------------

// Names that this program wrote, one a line: nothing else in the folder is its to remove.
#define MANIFEST ".shardreport"

static bool is_name(const char *name) {
    return *name && name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-")] == '\0';
}

static bool is_drawn(const struct plot_set *s, const char *name) {
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->plots[i]->name, name) == 0)
            return true;
    return false;
}

static void remove_stale(const struct plot_set *s, const struct place *at) {
    static const char *const inputs[] = {".gp", ".dat"};
    char *line = NULL;
    size_t size = 0;
    FILE *f = fopen(arena_printf(at->arena, "%s/" MANIFEST, at->dir), "r");
    if (!f)
        return;
    while (getline(&line, &size, f) > 0) {
        line[strcspn(line, "\n")] = '\0';
        if (!is_name(line) || is_drawn(s, line))
            continue;
        const struct plot old = {.name = line};
        remove_outputs(&old, at);
        for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
            unlink(path_of(at, &old, inputs[i]));
    }
    free(line);
    fclose(f);
}

static bool write_manifest(const struct plot_set *s, const struct place *at, struct err *e) {
    char *names = arena_strdup(at->arena, "");
    for (size_t i = 0; i < s->count; i++)
        if (!s->plots[i]->trouble)
            names = arena_printf(at->arena, "%s%s\n", names, s->plots[i]->name);
    return json_write_text_file(arena_printf(at->arena, "%s/" MANIFEST, at->dir), names,
                                strlen(names), e);
}

// ---- running gnuplot ----------------------------------------------------------------------------

static bool start(struct job *j, const struct place *at, const char *program) {
    posix_spawn_file_actions_t actions;
    char *script = arena_printf(at->arena, "%s.gp", j->plot->name);
    char *arguments[] = {(char *)program, (char *)"-d", script, NULL};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, at->dir);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    int rc = posix_spawnp(&j->pid, program, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    j->started_s = time(NULL);
    if (rc != 0)
        j->pid = 0;
    return rc == 0;
}

static char *read_text(const char *path) {
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;
    if (!f)
        return NULL;
    ssize_t n = getdelim(&text, &size, '\0', f);
    fclose(f);
    if (n < 0) {
        free(text);
        return NULL;
    }
    return text;
}

static bool is_whole(const char *svg) {
    return svg && strstr(svg, "</svg>");
}

// The PNG comes last in a script: a gnuplot that cannot write PNG still gives the page its
// pictures.
static void collect(struct plot *p, const struct place *at, int status) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        p->trouble = "gnuplot was not found (install gnuplot-nox)";
        return;
    }
    p->wide_svg = read_text(path_of(at, p, ".svg"));
    p->narrow_svg = read_text(path_of(at, p, "-narrow.svg"));
    if (!is_whole(p->wide_svg) || !is_whole(p->narrow_svg))
        p->trouble = "gnuplot failed; run the script in plots/ to see why";
}

// Wait for any running job; kill one that has run out of patience.
static void reap(struct job *jobs, const struct place *at) {
    for (;;) {
        for (size_t i = 0; i < AT_ONCE; i++) {
            int status;
            if (jobs[i].pid == 0)
                continue;
            if (waitpid(jobs[i].pid, &status, WNOHANG) == jobs[i].pid) {
                collect(jobs[i].plot, at, status);
                jobs[i].pid = 0;
                return;
            }
            if (time(NULL) - jobs[i].started_s > PATIENCE_S)
                kill(jobs[i].pid, SIGKILL);
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static bool any_running(const struct job *jobs) {
    for (size_t i = 0; i < AT_ONCE; i++)
        if (jobs[i].pid != 0)
            return true;
    return false;
}

static struct job *free_slot(struct job *jobs, const struct place *at) {
    for (;;) {
        for (size_t i = 0; i < AT_ONCE; i++)
            if (jobs[i].pid == 0)
                return &jobs[i];
        reap(jobs, at);
    }
}

bool gnuplot_draw(struct plot_set *s, const char *dir, const char *program, struct err *e) {
    struct job jobs[AT_ONCE] = {0};
    const struct place at = {arena_printf(s->arena, "%s/plots", dir), s->arena};
    for (size_t i = 0; i < s->count; i++)
        plot_close(s->plots[i]);
    remove_stale(s, &at);
    if (!write_manifest(s, &at, e))
        return false;
    for (size_t i = 0; i < s->count; i++) {
        struct plot *p = s->plots[i];
        if (p->trouble)
            continue;
        if (!write_inputs(p, &at, e))
            goto fail;
        remove_outputs(p, &at);
        if (!program) {
            p->trouble = "gnuplot was switched off";
            continue;
        }
        struct job *j = free_slot(jobs, &at);
        j->plot = p;
        if (!start(j, &at, program))
            p->trouble = "gnuplot was not found (install gnuplot-nox)";
    }
    while (any_running(jobs))
        reap(jobs, &at);
    return true;
fail:
    while (any_running(jobs))
        reap(jobs, &at);
    return false;
}
