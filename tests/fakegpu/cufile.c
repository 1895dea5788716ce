// SPDX-License-Identifier: Apache-2.0
// libcufile.so.0 on virtual GPUs: their memory is the host's, so a read is a read. With
// FAKEGPU_CUFILE=closed its driver is missing; with "eio" the 20th transfer fails.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct error {
    int file, cuda;
};
struct descriptor {
    int type;
    union {
        int fd;
        void *handle;
    } handle;
    const void *operations;
};

static int transfers;

static int is(const char *value) {
    const char *text = getenv("FAKEGPU_CUFILE");
    return text != NULL && strcmp(text, value) == 0;
}

struct error cuFileDriverOpen(void);
struct error cuFileDriverClose_v2(void);
struct error cuFileHandleRegister(void **handle, struct descriptor *d);
void cuFileHandleDeregister(void *handle);
struct error cuFileBufRegister(const void *at, size_t bytes, int flags);
struct error cuFileBufDeregister(const void *at);
ssize_t cuFileRead(void *handle, void *at, size_t bytes, off_t in_file, off_t in_buffer);
ssize_t cuFileWrite(void *handle, const void *at, size_t bytes, off_t in_file, off_t in_buffer);

struct error cuFileDriverOpen(void) {
    return (struct error){is("closed") ? 5001 : 0, 0};
}

struct error cuFileDriverClose_v2(void) {
    return (struct error){0, 0};
}

struct error cuFileHandleRegister(void **handle, struct descriptor *d) {
    int *copy = malloc(sizeof(*copy));
    if (copy == NULL || d->type != 1)
        abort();
    *copy = d->handle.fd;
    *handle = copy;
    return (struct error){0, 0};
}

void cuFileHandleDeregister(void *handle) {
    free(handle);
}

struct error cuFileBufRegister(const void *at, size_t bytes, int flags) {
    (void)at, (void)bytes, (void)flags;
    return (struct error){0, 0};
}

struct error cuFileBufDeregister(const void *at) {
    (void)at;
    return (struct error){0, 0};
}

static int fails(void) {
    errno = EIO;
    return is("eio") && __atomic_add_fetch(&transfers, 1, __ATOMIC_RELAXED) == 20;
}

ssize_t cuFileRead(void *handle, void *at, size_t bytes, off_t in_file, off_t in_buffer) {
    return fails() ? -1 : pread(*(int *)handle, (char *)at + in_buffer, bytes, in_file);
}

ssize_t cuFileWrite(void *handle, const void *at, size_t bytes, off_t in_file, off_t in_buffer) {
    return fails() ? -1 : pwrite(*(int *)handle, (const char *)at + in_buffer, bytes, in_file);
}
