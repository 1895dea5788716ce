// SPDX-License-Identifier: Apache-2.0
#include "bench/inventory.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/build.h"
#include "base/units.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

// First line of `path` without its newline, or "" when unreadable.
static void first_line(const char *path, char *line, size_t size) {
    FILE *f = fopen(path, "r");
    line[0] = '\0';
    if (f == NULL)
        return;
    if (fgets(line, (int)size, f) == NULL)
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    fclose(f);
}

// Value of the first "key ... : value" or "key=value" line of a file; NULL if absent.
static const char *lookup(struct arena *a, const char *path, const char *key, char separator) {
    char line[512];
    const char *value = NULL;
    FILE *f = fopen(path, "r");
    while (f != NULL && value == NULL && fgets(line, sizeof(line), f) != NULL) {
        char *at = strchr(line, separator);
        if (strncmp(line, key, strlen(key)) != 0 || at == NULL)
            continue;
        at += 1 + strspn(at + 1, " \t\"");
        at[strcspn(at, "\"\n")] = '\0';
        value = arena_strdup(a, at);
    }
    if (f != NULL)
        fclose(f);
    return value;
}

static uint64_t count_entries(const char *folder, const char *prefix) {
    uint64_t n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *x = d ? readdir(d) : NULL; x != NULL; x = readdir(d))
        n += strncmp(x->d_name, prefix, strlen(prefix)) == 0 &&
             strspn(x->d_name + strlen(prefix), "0123456789") > 0;
    if (d != NULL)
        closedir(d);
    return n;
}

static const char *networks(struct arena *a) {
    const char *list = NULL;
    DIR *d = opendir("/sys/class/net");
    for (struct dirent *x = d ? readdir(d) : NULL; x != NULL; x = readdir(d)) {
        char path[300], speed[64];
        if (x->d_name[0] == '.' || strcmp(x->d_name, "lo") == 0)
            continue;
        snprintf(path, sizeof(path), "/sys/class/net/%s/speed", x->d_name);
        first_line(path, speed, sizeof(speed));
        double mbits = strtod(speed, NULL);
        char rate[32] = "speed unknown";
        if (mbits > 0)
            units_format_net(rate, sizeof(rate), mbits * UNITS_MEGA / 8);
        list = arena_printf(a, "%s%s%s %s", list ? list : "", list ? ", " : "", x->d_name, rate);
    }
    if (d != NULL)
        closedir(d);
    return list;
}

static void gpus(struct arena *a, struct measure_host *h) {
    DIR *d = opendir("/proc/driver/nvidia/gpus");
    for (struct dirent *x = d ? readdir(d) : NULL; x != NULL; x = readdir(d)) {
        char path[400];
        if (x->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%s/information", x->d_name);
        if (h->gpu == NULL)
            h->gpu = lookup(a, path, "Model", ':');
        h->gpus++;
    }
    if (d != NULL)
        closedir(d);
    char line[256];
    first_line("/proc/driver/nvidia/version", line, sizeof(line));
    if (line[0] != '\0')
        h->driver = arena_strdup(a, line);
}

void inventory_host(struct arena *a, struct measure_host *out) {
    struct measure_host h = {0};
    struct utsname u;
    if (uname(&u) == 0) {
        h.name = arena_strdup(a, u.nodename);
        h.kernel = arena_strdup(a, u.release);
    }
    h.os = lookup(a, "/etc/os-release", "PRETTY_NAME", '=');
    h.cpu = lookup(a, "/proc/cpuinfo", "model name", ':');
    h.cpus = (uint64_t)inventory_processors();
    h.numa_nodes = count_entries("/sys/devices/system/node", "node");
    h.memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE);
    h.network = networks(a);
    gpus(a, &h);
    *out = h;
}

void inventory_build(struct arena *a, struct measure_build *out) {
    (void)a;
    out->type = build_type();
    out->flags = build_flags();
    out->commit = build_commit();
}

bool inventory_optimised(void) {
#if defined(__OPTIMIZE__) && !defined(SANITIZED)
    return true;
#else
    return false;
#endif
}

int inventory_processors(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

uint64_t inventory_last_level_cache_bytes(void) {
    uint64_t largest = UNITS_MIB;
    for (int i = 0; i < 8; i++) {
        char path[128], line[64];
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        first_line(path, line, sizeof(line));
        uint64_t kib = strtoull(line, NULL, 10);
        if (kib * UNITS_KIB > largest)
            largest = kib * UNITS_KIB;
    }
    return largest;
}

uint64_t inventory_network_sent_bytes(void) {
    uint64_t sum = 0;
    DIR *d = opendir("/sys/class/net");
    for (struct dirent *x = d ? readdir(d) : NULL; x != NULL; x = readdir(d)) {
        char path[320], line[64];
        if (x->d_name[0] == '.' || strcmp(x->d_name, "lo") == 0)
            continue;
        snprintf(path, sizeof(path), "/sys/class/net/%s/statistics/tx_bytes", x->d_name);
        first_line(path, line, sizeof(line));
        sum += strtoull(line, NULL, 10);
    }
    if (d != NULL)
        closedir(d);
    return sum;
}

bool inventory_has_rdma(void) {
    DIR *d = opendir("/sys/class/infiniband");
    bool found = false;
    for (struct dirent *x = d ? readdir(d) : NULL; x != NULL; x = readdir(d))
        found |= x->d_name[0] != '.';
    if (d != NULL)
        closedir(d);
    return found;
}
