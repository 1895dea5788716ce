// SPDX-License-Identifier: Apache-2.0
#include "bench/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct sink {
    struct arena *arena;
    const char *path;
    int fd;
    struct measurement all;
    size_t room;
    const char **keys;
};

static void keep(struct sink *s, const struct measure_result *r) {
    if (s->all.count == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        struct measure_result *results = arena_array(s->arena, room, sizeof(*results));
        const char **keys = arena_array(s->arena, room, sizeof(*keys));
        if (s->all.count > 0) {
            memcpy(results, s->all.results, s->all.count * sizeof(*results));
            memcpy(keys, s->keys, s->all.count * sizeof(*keys));
        }
        s->all.results = results;
        s->keys = keys;
        s->room = room;
    }
    s->all.results[s->all.count] = *r;
    s->keys[s->all.count++] = measure_key(r, s->arena);
}

static bool write_all(struct sink *s, const char *text, struct err *e) {
    size_t left = strlen(text);
    while (left > 0) {
        ssize_t n = write(s->fd, text, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(e, ERR_RESOURCE, "%s: %s", s->path, strerror(errno));
        text += n;
        left -= (size_t)n;
    }
    return true;
}

// Ends the file after its last newline, so that new lines do not continue a torn one.
static bool cut_torn_line(struct sink *s, struct err *e) {
    struct stat st;
    if (fstat(s->fd, &st) != 0)
        return err_set(e, ERR_RESOURCE, "%s: %s", s->path, strerror(errno));
    off_t end = st.st_size;
    char c = '\n';
    while (end > 0 && pread(s->fd, &c, 1, end - 1) == 1 && c != '\n')
        end--;
    if (end < st.st_size && ftruncate(s->fd, end) != 0)
        return err_set(e, ERR_RESOURCE, "%s: %s", s->path, strerror(errno));
    return true;
}

static bool load(struct sink *s, size_t skip, struct err *e) {
    struct measurement m;
    if (!measure_read(s->path, s->arena, &m, e))
        return false;
    for (size_t i = skip; i < m.count; i++)
        keep(s, &m.results[i]);
    return true;
}

static bool resume(struct sink *s, struct err *e) {
    return load(s, 0, e) && cut_torn_line(s, e);
}

struct sink *sink_create(const char *path, enum sink_mode mode, const struct measure_host *host,
                         const struct measure_build *build, struct arena *a, struct err *e) {
    struct sink *s = calloc(1, sizeof(*s));
    if (s == NULL)
        abort();
    s->arena = a;
    s->path = path;
    s->fd = -1;
    s->all.host = *host;
    s->all.build = *build;
    if (path == NULL)
        return s;
    bool exists = access(path, F_OK) == 0;
    if (mode == SINK_RESUME && !exists)
        mode = SINK_FRESH;
    int flags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | (mode == SINK_FRESH ? O_TRUNC : 0);
    s->fd = open(path, flags, 0666);
    if (s->fd < 0) {
        err_set(e, ERR_RESOURCE, "%s: %s", path, strerror(errno));
        goto fail;
    }
    if (mode == SINK_RESUME && !resume(s, e))
        goto fail;
    if (mode == SINK_APPEND && !load(s, 0, e))
        goto fail;
    if (mode == SINK_FRESH) {
        char *line = measure_header_line(host, build);
        bool ok = write_all(s, line, e);
        free(line);
        if (!ok)
            goto fail;
    }
    return s;
fail:
    sink_destroy(s);
    return NULL;
}

const char *sink_path(const struct sink *s) {
    return s->path;
}

void sink_destroy(struct sink *s) {
    if (s == NULL)
        return;
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}

bool sink_has(const struct sink *s, const struct measure_result *point) {
    const char *key = measure_key(point, s->arena);
    for (size_t i = 0; i < s->all.count; i++)
        if (strcmp(s->keys[i], key) == 0)
            return true;
    return false;
}

bool sink_add(struct sink *s, const struct measure_result *r, struct err *e) {
    keep(s, r);
    if (s->fd < 0)
        return true;
    char *line = measure_result_line(r);
    bool ok = write_all(s, line, e);
    free(line);
    return ok;
}

bool sink_reload(struct sink *s, struct err *e) {
    return s->path == NULL || load(s, s->all.count, e);
}

const struct measurement *sink_results(const struct sink *s) {
    return &s->all;
}
