// SPDX-License-Identifier: Apache-2.0
#include "describe/import.h"

#include "base/json_scan.h"
#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *const import_kind_names[IMPORT_KIND_COUNT] = {
    [IMPORT_NCCL_TESTS] = "nccl-tests",
    [IMPORT_TOPO_MATRIX] = "nvidia-smi topo -m",
    [IMPORT_TOPO_P2P] = "nvidia-smi topo -p2p",
    [IMPORT_NCCL_TOPOLOGY] = "NCCL topology XML",
    [IMPORT_NVBANDWIDTH] = "nvbandwidth JSON",
    [IMPORT_FIO] = "fio JSON",
    [IMPORT_P2P_BANDWIDTH] = "p2pBandwidthLatencyTest",
    [IMPORT_GDSIO] = "gdsio",
};

#define FILE_MAX_BYTES (64 * UNITS_MIB)

void import_clean(char *text, size_t bytes) {
    for (size_t i = 0; i < bytes;) {
        size_t n = json_scan_utf8((const unsigned char *)text + i, bytes - i);
        if (text[i] == '\0')
            text[i] = ' ';
        else if (n == 0)
            text[i] = '?';
        i += n ? n : 1;
    }
}

bool import_open(const char *path, struct arena *a, struct import_source *s, struct err *e) {
    FILE *f = fopen(path, "rb");
    if (!f)
        return err_set(e, ERR_INPUT, "%s: %s", path, strerror(errno));
    size_t capacity = 1 << 16, n = 0;
    char *text = arena_alloc(a, capacity + 1);
    for (;;) {
        n += fread(text + n, 1, capacity - n, f);
        if (n < capacity)
            break;
        if (capacity >= FILE_MAX_BYTES) {
            fclose(f);
            return err_set(e, ERR_INPUT, "%s: larger than 64 MiB", path);
        }
        char *more = arena_alloc(a, 2 * capacity + 1);
        memcpy(more, text, n);
        text = more;
        capacity *= 2;
    }
    bool ok = !ferror(f);
    fclose(f);
    if (!ok)
        return err_set(e, ERR_INPUT, "%s: %s", path, strerror(errno));
    import_clean(text, n);
    text[n] = '\0';
    s->name = arena_strdup(a, path);
    s->text = text;
    s->bytes = n;
    s->arena = a;
    return true;
}

static bool has(const struct import_source *s, const char *word) {
    return strstr(s->text, word) != NULL;
}

bool import_sniff(const struct import_source *s, enum import_kind *out, struct err *e) {
    const char *p = s->text + strspn(s->text, " \t\r\n");
    if (*p == '{') {
        if (has(s, "\"nvbandwidth\""))
            *out = IMPORT_NVBANDWIDTH;
        else if (has(s, "\"fio version\""))
            *out = IMPORT_FIO;
        else if (has(s, "\"results\"") && has(s, "\"redop\""))
            *out = IMPORT_NCCL_TESTS;
        else
            return err_set(e, ERR_INPUT, "%s: JSON, but not of nvbandwidth, fio or nccl-tests",
                           s->name);
        return true;
    }
    if (*p == '<' && has(s, "<system"))
        *out = IMPORT_NCCL_TOPOLOGY;
    else if (has(s, "IoType:") && has(s, "Throughput:"))
        *out = IMPORT_GDSIO;
    else if (has(s, "Bandwidth") && has(s, "D\\D"))
        *out = IMPORT_P2P_BANDWIDTH;
    else if (has(s, "GPU0") &&
             (has(s, "CPU Affinity") || has(s, "NUMA Affinity") || has(s, "NV") || has(s, "PIX")) &&
             !has(s, "= Chipset not supported"))
        *out = IMPORT_TOPO_MATRIX;
    else if (has(s, "GPU0"))
        *out = IMPORT_TOPO_P2P;
    else if (has(s, "algbw") || has(s, "# Avg bus bandwidth") || has(s, "float") ||
             has(s, "bfloat16"))
        *out = IMPORT_NCCL_TESTS;
    else
        return err_set(e, ERR_INPUT,
                       "%s: not recognised; known are nccl-tests (text, JSON), nvidia-smi topo -m "
                       "and -p2p, NCCL "
                       "topology XML, nvbandwidth JSON, fio JSON, p2pBandwidthLatencyTest, gdsio",
                       s->name);
    return true;
}

bool import_measurement(const struct import_source *s, enum import_kind kind,
                        struct measurement *out, struct err *e) {
    switch (kind) {
    case IMPORT_NCCL_TESTS:
        return import_nccl_tests(s, out, e);
    case IMPORT_NVBANDWIDTH:
        return import_nvbandwidth(s, out, e);
    case IMPORT_FIO:
        return import_fio(s, out, e);
    case IMPORT_P2P_BANDWIDTH:
        return import_p2p_bandwidth(s, out, e);
    case IMPORT_GDSIO:
        return import_gdsio(s, out, e);
    default:
        return err_set(e, ERR_INPUT, "%s: %s describes a topology; it measures nothing", s->name,
                       import_kind_names[kind]);
    }
}

bool import_topology(const struct import_source *s, enum import_kind kind, struct topology *out,
                     struct err *e) {
    switch (kind) {
    case IMPORT_TOPO_MATRIX:
        return import_topo_matrix(s, out, e);
    case IMPORT_TOPO_P2P:
        return import_topo_p2p(s, out, e);
    case IMPORT_NCCL_TOPOLOGY:
        return import_nccl_topology(s, out, e);
    default:
        return err_set(e, ERR_INPUT, "%s: %s measures; it describes no topology", s->name,
                       import_kind_names[kind]);
    }
}
