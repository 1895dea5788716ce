// SPDX-License-Identifier: Apache-2.0
#include "bench/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/stats.h"
#include "base/units.h"

#define ALIGN_BYTES 4096

static int open_beneath(int folder, const char *name, uint64_t flags) {
    struct open_how how = {
        .flags = flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW,
        .mode = flags & (O_CREAT | O_TMPFILE) ? 0600 : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
    };
    long fd = syscall(SYS_openat2, folder, name, &how, sizeof(how));
    if (fd < 0 && errno == ENOSYS)
        fd = openat(folder, name, (int)how.flags, (mode_t)how.mode);
    return (int)fd;
}

// A file system without O_TMPFILE gets a name that nobody can have prepared, removed at once.
static int open_named(int folder, uint64_t flags) {
    char name[64];
    snprintf(name, sizeof(name), ".shardbench-%ld", (long)getpid());
    int fd = open_beneath(folder, name, flags | O_CREAT | O_EXCL);
    if (fd >= 0)
        unlinkat(folder, name, 0);
    return fd;
}

static int open_unnamed(int folder, uint64_t flags) {
    int fd = open_beneath(folder, ".", flags | O_TMPFILE);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT))
        fd = open_named(folder, flags);
    return fd;
}

static bool choose_size(int folder, const struct scratch_request *r, uint64_t *bytes,
                        struct err *e) {
    struct statvfs v;
    char size[32];
    if (fstatvfs(folder, &v) != 0)
        return err_set(e, ERR_RESOURCE, "%s: %s", r->folder, strerror(errno));
    uint64_t room = (uint64_t)v.f_bavail * v.f_frsize / 4;
    uint64_t limit = r->ignore_free_space || r->max_bytes < room ? r->max_bytes : room;
    *bytes = limit / r->grain_bytes * r->grain_bytes;
    if (*bytes > 0)
        return true;
    units_format_bytes(size, sizeof(size), (double)r->grain_bytes);
    return err_set(e, ERR_RESOURCE,
                   "%s: needs a file of %s, but --max-bytes and a quarter of the free space allow "
                   "less",
                   r->folder, size);
}

// Contents, because holes and zeros are not read from the device; different in every block,
// because a device may store equal blocks once.
static bool fill(struct scratch *s, const char *folder, struct err *e) {
    const size_t piece = 4 * UNITS_MIB;
    bool ok = true;
    void *buffer;
    if (posix_memalign(&buffer, ALIGN_BYTES, piece) != 0)
        return err_set(e, ERR_RESOURCE, "no memory for %zu bytes", piece);
    uint64_t *words = buffer;
    for (size_t i = 0; i < piece / sizeof(*words); i++)
        words[i] = stats_random_u64(1, 0, i);
    for (uint64_t at = 0; ok && at < s->bytes;) {
        size_t n = s->bytes - at < piece ? (size_t)(s->bytes - at) : piece;
        for (size_t i = 0; i < n; i += ALIGN_BYTES)
            words[i / sizeof(*words)] = at + i;
        ssize_t done = pwrite(s->fd, buffer, n, (off_t)at);
        if (done < 0 && errno != EINTR)
            ok = err_set(e, ERR_RESOURCE, "%s: %s", folder, strerror(errno));
        at += done > 0 ? (uint64_t)done : 0;
    }
    if (ok && fsync(s->fd) != 0)
        ok = err_set(e, ERR_RESOURCE, "%s: %s", folder, strerror(errno));
    free(buffer);
    return ok;
}

static void describe(struct scratch *s, const char *folder) {
    struct stat st;
    if (fstat(s->fd, &st) == 0)
        snprintf(s->where, sizeof(s->where), "%.100s on device %u:%u%s", folder, major(st.st_dev),
                 minor(st.st_dev), s->direct ? "" : ", through the page cache");
}

bool scratch_open(const struct scratch_request *r, struct scratch *out, struct err *e) {
    struct scratch s = {.fd = -1, .direct = true};
    int folder = open(r->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return err_set(e, ERR_RESOURCE, "%s: %s", r->folder, strerror(errno));
    if (!choose_size(folder, r, &s.bytes, e))
        goto fail;
    s.fd = open_unnamed(folder, O_DIRECT);
    if (s.fd < 0 && errno == EINVAL) {
        s.direct = false;
        s.fd = open_unnamed(folder, 0);
    }
    if (s.fd < 0) {
        err_set(e, ERR_RESOURCE, "%s: %s", r->folder, strerror(errno));
        goto fail;
    }
    if (!fill(&s, r->folder, e))
        goto fail;
    describe(&s, r->folder);
    close(folder);
    *out = s;
    return true;
fail:
    close(folder);
    scratch_close(&s);
    return false;
}

void scratch_close(struct scratch *s) {
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}
