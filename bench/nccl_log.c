// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl_log.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/units.h"

// In NCCL's order: older releases print the index (NVIDIA/nccl src/include/nccl_common.h).
#define ALGORITHMS 7
#define PROTOCOLS 3
#define CHOICES(name)                                                                              \
    { name "/ll", name "/ll128", name "/simple" }
static const char *const names[ALGORITHMS] = {
    "tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"};
static const char *const protocols[PROTOCOLS] = {"ll", "ll128", "simple"};
static const char *const choices[ALGORITHMS][PROTOCOLS] = {CHOICES("tree"),
                                                           CHOICES("ring"),
                                                           CHOICES("collnet_direct"),
                                                           CHOICES("collnet_chain"),
                                                           CHOICES("nvls"),
                                                           CHOICES("nvls_tree"),
                                                           CHOICES("pat")};

// "NVLS_TREE" and "nvlstree" are one name.
static bool same(const char *a, const char *b) {
    for (; *a != '\0' || *b != '\0'; a++, b++) {
        while (*a == '_')
            a++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return false;
        if (*a == '\0')
            return true;
    }
    return true;
}

static int index_of(const char *const *list, int count, const char *word) {
    if (isdigit((unsigned char)word[0])) {
        int i = atoi(word);
        return i < count ? i : -1;
    }
    for (int i = 0; i < count; i++)
        if (same(word, list[i]))
            return i;
    return -1;
}

static const char *choice_of(const char *algorithm, const char *protocol) {
    int a = index_of(names, ALGORITHMS, algorithm), p = index_of(protocols, PROTOCOLS, protocol);
    return a < 0 || p < 0 ? NULL : choices[a][p];
}

const char *nccl_log_parse(const char *text) {
    const char *found = NULL;
    char algorithm[24], protocol[24];
    for (const char *at = text; (at = strstr(at, "-> Algo ")) != NULL; at++) {
        if (sscanf(at, "-> Algo %23[A-Za-z0-9_] proto %23[A-Za-z0-9_]", algorithm, protocol) != 2)
            continue;
        const char *choice = choice_of(algorithm, protocol);
        found = choice != NULL ? choice : found;
    }
    return found;
}

#define FOLDER "/proc/self/fd/"

// NCCL reads its environment once in a process and keeps writing to the file it found there, so a
// second log of the process is the first one, from its present end.
static int earlier(void) {
    const char *path = getenv("NCCL_DEBUG_FILE");
    if (path == NULL || strncmp(path, FOLDER, strlen(FOLDER)) != 0)
        return -1;
    int fd = atoi(path + strlen(FOLDER));
    return fcntl(fd, F_GETFD) < 0 ? -1 : fd; // a parent's is not open here
}

static int fresh(void) {
    char path[64];
    int fd = memfd_create("nccl", MFD_CLOEXEC);
    if (fd < 0)
        return fd;
    snprintf(path, sizeof(path), FOLDER "%d", fd);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "TUNING", 1);
    setenv("NCCL_DEBUG_FILE", path, 1);
    return fd;
}

void nccl_log_open(struct nccl_log *l) {
    const char *file = getenv("NCCL_DEBUG_FILE");
    bool ours = file != NULL && strncmp(file, FOLDER, strlen(FOLDER)) == 0;
    *l = (struct nccl_log){.fd = earlier(), .reason = "NCCL's log names no algorithm"};
    if (l->fd < 0 && (ours || getenv("NCCL_DEBUG") == NULL))
        l->fd = fresh();
    else if (l->fd < 0)
        l->reason = "NCCL_DEBUG is set, so NCCL's output goes elsewhere";
    if (l->fd >= 0)
        l->read = lseek(l->fd, 0, SEEK_END);
}

static const char *forced(void) {
    const char *algorithm = getenv("NCCL_ALGO"), *protocol = getenv("NCCL_PROTO");
    return algorithm != NULL && protocol != NULL ? choice_of(algorithm, protocol) : NULL;
}

const char *nccl_log_choice(struct nccl_log *l) {
    const char *found = NULL;
    const off_t tail = 64 * UNITS_KIB;
    off_t end = l->fd >= 0 ? lseek(l->fd, 0, SEEK_END) : 0;
    if (end > l->read) {
        // The newest lines are enough.
        off_t from = end - l->read > tail ? end - tail : l->read;
        char *text = calloc(1, (size_t)(end - from) + 1);
        if (text == NULL)
            abort();
        if (pread(l->fd, text, (size_t)(end - from), from) > 0)
            found = nccl_log_parse(text);
        free(text);
        l->read = end;
    }
    return found != NULL ? found : forced();
}
