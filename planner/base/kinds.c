// SPDX-License-Identifier: Apache-2.0
#include "base/kinds.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

struct alias {
    const char *name;
    int value;
};

static const char *const dtype_names[DTYPE_COUNT] = {
    [DTYPE_FP32] = "fp32", [DTYPE_TF32] = "tf32", [DTYPE_BF16] = "bf16", [DTYPE_FP16] = "fp16",
    [DTYPE_FP8] = "fp8",   [DTYPE_INT8] = "int8", [DTYPE_INT4] = "int4",
};

// PyTorch's, Hugging Face's and safetensors' spellings, without separators.
static const struct alias dtype_aliases[] = {
    {"float32", DTYPE_FP32},   {"float", DTYPE_FP32},     {"f32", DTYPE_FP32},
    {"single", DTYPE_FP32},    {"bfloat16", DTYPE_BF16},  {"bfloat", DTYPE_BF16},
    {"float16", DTYPE_FP16},   {"half", DTYPE_FP16},      {"f16", DTYPE_FP16},
    {"float8", DTYPE_FP8},     {"f8", DTYPE_FP8},         {"float8e4m3fn", DTYPE_FP8},
    {"float8e4m3", DTYPE_FP8}, {"float8e5m2", DTYPE_FP8}, {"f8e4m3", DTYPE_FP8},
    {"f8e5m2", DTYPE_FP8},     {"e4m3", DTYPE_FP8},       {"e5m2", DTYPE_FP8},
    {"i8", DTYPE_INT8},        {"i4", DTYPE_INT4},
};

static const char *const collective_names[COLLECTIVE_COUNT] = {
    [COLLECTIVE_ALL_GATHER] = "all_gather", [COLLECTIVE_REDUCE_SCATTER] = "reduce_scatter",
    [COLLECTIVE_ALL_REDUCE] = "all_reduce", [COLLECTIVE_ALL_TO_ALL] = "all_to_all",
    [COLLECTIVE_BROADCAST] = "broadcast",   [COLLECTIVE_REDUCE] = "reduce",
    [COLLECTIVE_SEND_RECV] = "send_recv",
};

static const char *const link_names[LINK_COUNT] = {
    [LINK_INTRA_NODE] = "intra_node",
    [LINK_INTER_NODE] = "inter_node",
    [LINK_PCIE] = "pcie",
    [LINK_NVME] = "nvme",
    [LINK_HOST_DRAM] = "host_dram",
    [LINK_HBM] = "hbm",
};

static const char *const provenance_names[PROVENANCE_COUNT] = {
    [PROVENANCE_ASSUMED] = "assumed",
    [PROVENANCE_SPEC] = "spec",
    [PROVENANCE_MEASURED] = "measured",
    [PROVENANCE_FITTED] = "fitted",
};

static const char *const device_names[DEVICE_COUNT] = {
    [DEVICE_GPU] = "gpu",
    [DEVICE_CPU] = "cpu",
    [DEVICE_NVME] = "nvme",
};

static const char *name_in(const char *const *names, size_t count, size_t index) {
    return index < count ? names[index] : "unknown";
}

const char *dtype_name(enum dtype t) {
    return name_in(dtype_names, DTYPE_COUNT, (size_t)t);
}

const char *collective_name(enum collective c) {
    return name_in(collective_names, COLLECTIVE_COUNT, (size_t)c);
}

const char *link_name(enum link l) {
    return name_in(link_names, LINK_COUNT, (size_t)l);
}

const char *provenance_name(enum provenance p) {
    return name_in(provenance_names, PROVENANCE_COUNT, (size_t)p);
}

const char *device_name(enum device d) {
    return name_in(device_names, DEVICE_COUNT, (size_t)d);
}

uint64_t dtype_bits(enum dtype t) {
    switch (t) {
    case DTYPE_FP32:
    case DTYPE_TF32:
        return 32;
    case DTYPE_BF16:
    case DTYPE_FP16:
        return 16;
    case DTYPE_FP8:
    case DTYPE_INT8:
        return 8;
    case DTYPE_INT4:
        return 4;
    case DTYPE_COUNT:
        break;
    }
    return 0;
}

double dtype_bytes(enum dtype t) {
    return (double)dtype_bits(t) / 8;
}

int kinds_find(const char *const *names, size_t count, const char *name) {
    for (size_t i = 0; name && i < count; i++)
        if (strcasecmp(names[i], name) == 0)
            return (int)i;
    return -1;
}

// Letters and digits only, lower case, without PyTorch's prefix. False when it does not fit.
static bool normalise(const char *name, char *out, size_t size) {
    size_t used = 0;
    if (!name)
        return false;
    if (strncasecmp(name, "torch.", 6) == 0)
        name += 6;
    for (; *name; name++) {
        if (strchr("-_ ", *name))
            continue;
        if (used + 1 >= size)
            return false;
        out[used++] = (char)tolower((unsigned char)*name);
    }
    out[used] = '\0';
    return used > 0;
}

bool dtype_find(const char *name, enum dtype *out) {
    char plain[32];
    if (!normalise(name, plain, sizeof plain))
        return false;
    int i = kinds_find(dtype_names, DTYPE_COUNT, plain);
    for (size_t a = 0; i < 0 && a < sizeof dtype_aliases / sizeof *dtype_aliases; a++)
        if (strcmp(dtype_aliases[a].name, plain) == 0)
            i = dtype_aliases[a].value;
    if (i < 0)
        return false;
    *out = (enum dtype)i;
    return true;
}

bool collective_find(const char *name, enum collective *out) {
    char plain[32], known[32];
    if (!normalise(name, plain, sizeof plain))
        return false;
    for (int i = 0; i < COLLECTIVE_COUNT; i++) {
        if (normalise(collective_names[i], known, sizeof known) && strcmp(known, plain) == 0) {
            *out = (enum collective)i;
            return true;
        }
    }
    return false;
}

double collective_sent_bytes(enum collective c, double payload_bytes, uint64_t n) {
    return n > 1 ? payload_bytes * collective_bus_factor(c, n) : 0;
}

double collective_bus_factor(enum collective c, uint64_t n) {
    double share = n > 1 ? (double)(n - 1) / (double)n : 0;
    switch (c) {
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_ALL_TO_ALL:
        return share;
    case COLLECTIVE_ALL_REDUCE:
        return 2 * share;
    case COLLECTIVE_BROADCAST:
    case COLLECTIVE_REDUCE:
    case COLLECTIVE_SEND_RECV:
    case COLLECTIVE_COUNT:
        break;
    }
    return 1;
}

enum { NEAREST_MAX = 96 };

static bool same_letter(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static int min_int(int a, int b) {
    return a < b ? a : b;
}

// Optimal string alignment: insert, delete, replace, swap two neighbours.
static int edit_distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    int rows[3][NEAREST_MAX + 1];
    int *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_length; j++)
        last[j] = before[j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            int replace = last[j - 1] + !same_letter(a[i - 1], b[j - 1]);
            row[j] = min_int(replace, min_int(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]))
                row[j] = min_int(row[j], before[j - 2] + 1);
        }
        int *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[b_length];
}

const char *kinds_nearest(const char *const *names, size_t count, const char *name) {
    size_t length = name ? strlen(name) : 0;
    if (length == 0 || length > NEAREST_MAX)
        return NULL;
    const char *nearest = NULL, *longer = NULL;
    int best = length < 5 ? 1 : length < 9 ? 2 : (int)length / 3;
    for (size_t i = 0; i < count; i++) {
        size_t known = strlen(names[i]);
        if (known > NEAREST_MAX)
            continue;
        if (!longer && length >= 3 && strncasecmp(names[i], name, length) == 0)
            longer = names[i];
        int distance = edit_distance(name, length, names[i], known);
        if (distance > best || (size_t)distance >= known)
            continue;
        if (!nearest || distance < best)
            nearest = names[i];
        best = distance;
    }
    return nearest ? nearest : longer;
}

struct figure figure_known(double value, enum provenance p, const char *source) {
    return (struct figure){value, value, value, p, source};
}

struct figure figure_assumed(double value, double low, double high, const char *basis) {
    return (struct figure){value, low, high, PROVENANCE_ASSUMED, basis};
}

struct figure figure_unknown(void) {
    return (struct figure){NAN, NAN, NAN, PROVENANCE_ASSUMED, NULL};
}

bool figure_is_known(struct figure f) {
    return !isnan(f.value);
}
