// SPDX-License-Identifier: Apache-2.0
#include "describe/profile.h"

#include <ctype.h>
#include <string.h>

const char *const profile_class_names[PROFILE_CLASS_COUNT] = {
    "gemm",       "attention",  "norm",      "loss",     "optimizer",  "elementwise",
    "other",      "copy_d2d",   "copy_h2d",  "copy_d2h", "all_gather", "reduce_scatter",
    "all_reduce", "all_to_all", "broadcast", "reduce",   "send_recv",  "other_comm"};

bool profile_is_compute(enum profile_class c) {
    return c < PROFILE_COPY_H2D;
}

bool profile_is_comm(enum profile_class c) {
    return c >= PROFILE_ALL_GATHER;
}

struct pattern {
    const char *part; // lower case
    enum profile_class class;
};

static bool match(const struct pattern *list, const char *name, enum profile_class *out) {
    for (; list->part; list++)
        if (strstr(name, list->part)) {
            *out = list->class;
            return true;
        }
    return false;
}

// Lower case, without '_' and '-', so that AllGather and _allgather_base are alike.
static void fold(const char *from, char *to, size_t size, bool keep) {
    size_t n = 0;
    for (; *from && n + 1 < size; from++)
        if (keep || (*from != '_' && *from != '-'))
            to[n++] = (char)tolower((unsigned char)*from);
    to[n] = '\0';
}

static const struct pattern collectives[] = {
    {"allgather", PROFILE_ALL_GATHER}, {"reducescatter", PROFILE_REDUCE_SCATTER},
    {"allreduce", PROFILE_ALL_REDUCE}, {"alltoall", PROFILE_ALL_TO_ALL},
    {"broadcast", PROFILE_BROADCAST},  {"sendrecv", PROFILE_SEND_RECV},
    {"reduce", PROFILE_REDUCE},        {NULL, PROFILE_OTHER_COMM}};

// In this order: a fused kernel's name may hold several words.
static const struct pattern kernels[] = {{"flash", PROFILE_ATTENTION},
                                         {"fmha", PROFILE_ATTENTION},
                                         {"attention", PROFILE_ATTENTION},
                                         {"sdpa", PROFILE_ATTENTION},
                                         {"gemm", PROFILE_GEMM},
                                         {"nvjet", PROFILE_GEMM},
                                         {"xmma", PROFILE_GEMM},
                                         {"cutlass", PROFILE_GEMM},
                                         {"cublas", PROFILE_GEMM},
                                         {"splitk", PROFILE_GEMM},
                                         {"matmul", PROFILE_GEMM},
                                         {"triton_mm", PROFILE_GEMM},
                                         {"triton_tem_", PROFILE_GEMM},
                                         {"gemv", PROFILE_GEMM},
                                         {"adam", PROFILE_OPTIMIZER},
                                         {"multi_tensor_apply", PROFILE_OPTIMIZER},
                                         {"lion", PROFILE_OPTIMIZER},
                                         {"nll_loss", PROFILE_LOSS},
                                         {"cross_entropy", PROFILE_LOSS},
                                         {"softmax", PROFILE_LOSS},
                                         {"layer_norm", PROFILE_NORM},
                                         {"layernorm", PROFILE_NORM},
                                         {"rms_norm", PROFILE_NORM},
                                         {"rmsnorm", PROFILE_NORM},
                                         {"gammabeta", PROFILE_NORM},
                                         {"rsqrt", PROFILE_NORM},
                                         {"_norm", PROFILE_NORM},
                                         {"elementwise", PROFILE_ELEMENTWISE},
                                         {"triton_", PROFILE_ELEMENTWISE},
                                         {"at::native", PROFILE_ELEMENTWISE},
                                         {"embedding", PROFILE_ELEMENTWISE},
                                         {"copy", PROFILE_ELEMENTWISE},
                                         {"silu", PROFILE_ELEMENTWISE},
                                         {"swiglu", PROFILE_ELEMENTWISE},
                                         {"rotary", PROFILE_ELEMENTWISE},
                                         {NULL, PROFILE_OTHER}};

enum profile_class profile_kernel_class(const char *kernel, const char *collective) {
    enum profile_class out;
    char name[1024];
    fold(kernel, name, sizeof name, true);
    if (strstr(name, "nccl") == NULL)
        return match(kernels, name, &out) ? out : PROFILE_OTHER;
    if (collective) { // an all-to-all runs as ncclDevKernel_SendRecv
        fold(collective, name, sizeof name, false);
        if (match(collectives, name, &out))
            return out;
    }
    fold(kernel, name, sizeof name, false);
    return match(collectives, name, &out) ? out : PROFILE_OTHER_COMM;
}
