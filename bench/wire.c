// SPDX-License-Identifier: Apache-2.0
#include "bench/wire.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

#define PORTS_FOLDER "/sys/class/infiniband"
#define PORT_UNIT_BYTES 4

// NVML's ABI, from its public manual: nvmlFieldValue_t and field 138, KiB of data sent over NVLink;
// scope UINT_MAX is the sum over a GPU's links.
#define NVML_NVLINK_DATA_SENT 138
#define NVML_ALL_LINKS UINT_MAX
struct nvml_field {
    unsigned field, scope;
    long long timestamp, latency;
    int type, status;
    union {
        double d;
        unsigned long long u;
    } value;
};

static bool load(struct wire *w) {
    int (*start)(void) = NULL;
    w->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (w->library == NULL)
        return false;
    *(void **)&start = dlsym(w->library, "nvmlInit_v2");
    *(void **)&w->shut_down = dlsym(w->library, "nvmlShutdown");
    *(void **)&w->read_fields = dlsym(w->library, "nvmlDeviceGetFieldValues");
    if (start != NULL && w->shut_down != NULL && w->read_fields != NULL && start() == 0)
        return true;
    dlclose(w->library);
    w->library = NULL;
    return false;
}

static bool read_gpu(const struct wire *w, size_t i, double *bytes) {
    struct nvml_field f = {.field = NVML_NVLINK_DATA_SENT, .scope = NVML_ALL_LINKS};
    if (w->read_fields(w->gpus[i], 1, &f) != 0 || f.status != 0)
        return false;
    *bytes = (double)f.value.u * UNITS_KIB;
    return true;
}

static void find_gpus(struct wire *w, const char *const *pci_ids, size_t count) {
    int (*find)(const char *, void **) = NULL;
    *(void **)&find = dlsym(w->library, "nvmlDeviceGetHandleByPciBusId_v2");
    for (size_t i = 0; find != NULL && i < count && i < WIRE_GPUS_MAX; i++)
        if (find(pci_ids[i], &w->gpus[w->gpu_count]) == 0)
            w->gpu_count++;
}

void wire_open(struct wire *w, const char *const *pci_ids, size_t count, bool ports) {
    double bytes;
    *w = (struct wire){.library = NULL};
    if (!load(w))
        snprintf(w->reason, sizeof(w->reason), "no NVLink counters: libnvidia-ml.so.1 is not here");
    else
        find_gpus(w, pci_ids, count);
    if (w->library != NULL && (w->gpu_count < count || !read_gpu(w, 0, &bytes))) {
        w->gpu_count = 0;
        snprintf(w->reason, sizeof(w->reason), "no NVLink counters: NVML reads none of these GPUs");
    }
    if (ports && wire_ports_sent_bytes(PORTS_FOLDER, &bytes))
        snprintf(w->ports_folder, sizeof(w->ports_folder), "%s", PORTS_FOLDER);
}

void wire_close(struct wire *w) {
    if (w->library == NULL)
        return;
    w->shut_down();
    dlclose(w->library);
    w->library = NULL;
}

bool wire_sent_bytes(const struct wire *w, double *bytes) {
    double sum = 0, one;
    if (w->gpu_count == 0 && w->ports_folder[0] == '\0')
        return false;
    for (size_t i = 0; i < w->gpu_count; i++) {
        if (!read_gpu(w, i, &one))
            return false;
        sum += one;
    }
    if (w->ports_folder[0] != '\0') {
        if (!wire_ports_sent_bytes(w->ports_folder, &one))
            return false;
        sum += one;
    }
    *bytes = sum;
    return true;
}

static bool read_counter(const char *path, double *value) {
    char text[32] = "";
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return false;
    bool ok = fgets(text, sizeof(text), f) != NULL;
    fclose(f);
    if (ok)
        *value = (double)strtoull(text, NULL, 10);
    return ok;
}

// Adds what the ports in `folder` (a device's "ports") have sent.
static bool add_ports(const char *folder, double *bytes) {
    char path[PATH_MAX];
    bool any = false;
    double units;
    DIR *d = opendir(folder);
    for (struct dirent *f; d != NULL && (f = readdir(d)) != NULL;) {
        if (f->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%.2048s/%s/counters/port_xmit_data", folder, f->d_name);
        if (!read_counter(path, &units))
            continue;
        *bytes += units * PORT_UNIT_BYTES;
        any = true;
    }
    if (d != NULL)
        closedir(d);
    return any;
}

bool wire_ports_sent_bytes(const char *folder, double *bytes) {
    char path[PATH_MAX];
    bool any = false;
    double sum = 0;
    DIR *d = opendir(folder);
    for (struct dirent *f; d != NULL && (f = readdir(d)) != NULL;) {
        if (f->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%.2048s/%s/ports", folder, f->d_name);
        any |= add_ports(path, &sum);
    }
    if (d != NULL)
        closedir(d);
    if (any)
        *bytes = sum;
    return any;
}
