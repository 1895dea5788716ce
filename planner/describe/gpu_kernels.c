// SPDX-License-Identifier: Apache-2.0
#include "describe/gpu_kernels.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

const char *const kernel_constant_names[KERNEL_CONSTANT_COUNT] = {
    [KERNEL_GEMM_FRACTION] = "gemm_fraction",
    [KERNEL_GEMM_BACKWARD_RATIO] = "gemm_backward_ratio",
    [KERNEL_GEMM_FP8_RATIO] = "gemm_fp8_ratio",
    [KERNEL_GEMM_HALF_K] = "gemm_half_k",
    [KERNEL_GEMM_HALF_TILES] = "gemm_half_tiles",
    [KERNEL_ATTENTION_FORWARD_FRACTION] = "attention_forward_fraction",
    [KERNEL_ATTENTION_BACKWARD_FRACTION] = "attention_backward_fraction",
    [KERNEL_ATTENTION_OLD_FORWARD_RATIO] = "attention_old_forward_ratio",
    [KERNEL_ATTENTION_OLD_BACKWARD_RATIO] = "attention_old_backward_ratio",
    [KERNEL_HBM_FRACTION] = "hbm_fraction",
    [KERNEL_LAUNCH_S] = "launch_s",
    [KERNEL_ISSUE_S] = "issue_s",
    [KERNEL_UNIT_HOST_S] = "unit_host_s",
    [KERNEL_STEP_HOST_S] = "step_host_s",
    [KERNEL_OVERLAP_LOSS] = "overlap_loss",
};

const char *const kernel_stack_keys[STACK_COUNT] = {
    [STACK_EAGER] = "eager", [STACK_COMPILED] = "compiled", [STACK_MEGATRON] = "megatron"};

enum generation { GEN_VOLTA, GEN_AMPERE, GEN_HOPPER, GEN_BLACKWELL, GEN_OTHER, GEN_COUNT };

// What a part without figures of its own inherits: the fitted values of its generation's parts,
// rounded, and used with a wide interval. docs/method.md §gemm.
static const double defaults[GEN_COUNT][KERNEL_CONSTANT_COUNT] = {
    [GEN_VOLTA] = {0.55, 0.91, 1.0, 64, 16, 0.30, 0.25, 1.0, 1.0, 0.76, 4e-6, 2e-5, 5e-4, 1e-2,
                   0.2},
    [GEN_AMPERE] = {0.84, 0.91, 1.0, 64, 22, 0.57, 0.42, 0.85, 0.65, 0.80, 4e-6, 6e-6, 1e-4, 1e-2,
                    0.2},
    [GEN_HOPPER] = {0.67, 0.91, 0.95, 64, 27, 0.42, 0.33, 0.75, 0.5, 0.80, 4e-6, 6e-6, 1e-4, 1e-2,
                    0.4},
    [GEN_BLACKWELL] = {0.68, 0.91, 0.95, 64, 30, 0.50, 0.42, 0.7, 0.5, 0.80, 4e-6, 6e-6, 1e-4, 1e-2,
                       0.4},
    [GEN_OTHER] = {0.55, 0.91, 0.9, 64, 27, 0.35, 0.25, 0.8, 0.6, 0.78, 4e-6, 8e-6, 2e-4, 1e-2,
                   0.3},
};

static enum generation generation_of(const struct gpu *g) {
    static const struct {
        const char *sm;
        enum generation generation;
    } table[] = {{"sm_70", GEN_VOLTA},      {"sm_75", GEN_VOLTA},      {"sm_80", GEN_AMPERE},
                 {"sm_86", GEN_AMPERE},     {"sm_89", GEN_AMPERE},     {"sm_90", GEN_HOPPER},
                 {"sm_100", GEN_BLACKWELL}, {"sm_103", GEN_BLACKWELL}, {"sm_120", GEN_BLACKWELL}};
    for (size_t i = 0; g->sm != NULL && i < sizeof table / sizeof table[0]; i++) {
        if (strncmp(g->sm, table[i].sm, strlen(table[i].sm)) == 0) {
            return table[i].generation;
        }
    }
    return GEN_OTHER;
}

// Host and system constants do not change with the kernels' author.
static bool is_shared(enum kernel_constant k) {
    return k == KERNEL_HBM_FRACTION || k == KERNEL_STEP_HOST_S || k == KERNEL_OVERLAP_LOSS ||
           k == KERNEL_LAUNCH_S || k == KERNEL_UNIT_HOST_S || k == KERNEL_ISSUE_S;
}

// A catalog constant is never zero, so an all-zero struct gpu (a test's) counts as unknown too.
static bool is_set(struct figure f) {
    return figure_is_known(f) && f.source != NULL;
}

void gpu_kernels_clear(struct gpu_kernels out[STACK_COUNT]) {
    for (int s = 0; s < STACK_COUNT; s++) {
        for (int k = 0; k < GPU_KERNEL_CONSTANTS; k++) {
            out[s].constants[k] = figure_unknown();
        }
    }
}

static bool read_stack(struct json_node stack, struct arena *a, struct gpu_kernels *out,
                       struct err *e) {
    if (!json_check_keys(stack, kernel_constant_names, KERNEL_CONSTANT_COUNT, e)) {
        return false;
    }
    for (int k = 0; k < KERNEL_CONSTANT_COUNT; k++) {
        struct figure f = figure_unknown();
        if (!json_get_figure(stack, kernel_constant_names[k], false, a, &f, e)) {
            return false;
        }
        if (figure_is_known(f) && f.value <= 0) {
            return json_fail(stack, e, "%s must be positive", kernel_constant_names[k]);
        }
        out->constants[k] = f;
    }
    return true;
}

bool gpu_kernels_read(struct json_node kernels, struct arena *a,
                      struct gpu_kernels out[STACK_COUNT], struct err *e) {
    struct gpu_kernels read[STACK_COUNT];
    gpu_kernels_clear(read);
    if (!json_check_keys(kernels, kernel_stack_keys, STACK_COUNT, e)) {
        return false;
    }
    for (int s = 0; s < STACK_COUNT; s++) {
        struct json_node stack;
        if (json_find(kernels, kernel_stack_keys[s], &stack) && !json_is_null(stack) &&
            !read_stack(stack, a, &read[s], e)) {
            return false;
        }
    }
    memcpy(out, read, sizeof read);
    return true;
}

static bool is_fraction(enum kernel_constant k) {
    return k == KERNEL_GEMM_FRACTION || k == KERNEL_HBM_FRACTION ||
           k == KERNEL_ATTENTION_FORWARD_FRACTION || k == KERNEL_ATTENTION_BACKWARD_FRACTION;
}

// The slow and the fast end around a value that is not this GPU's and stack's own; no share of a
// peak is above the whole of it.
static struct figure widened(struct figure f, double low, double high, enum kernel_constant k) {
    f.low = f.value * low;
    f.high = is_fraction(k) ? fmin(f.value * high, 1.0) : f.value * high;
    f.provenance = PROVENANCE_ASSUMED;
    return f;
}

struct figure gpu_kernel(const struct gpu *g, enum kernel_stack s, enum kernel_constant k) {
    if (is_set(g->kernels[s].constants[k])) {
        return g->kernels[s].constants[k];
    }
    // Megatron's and the compiler's matmuls are the same library's; a measured eager constant of
    // this very GPU says more about it than its generation does, but wider.
    struct figure eager = g->kernels[STACK_EAGER].constants[k];
    if (is_set(eager)) {
        return is_shared(k) ? eager : widened(eager, 0.8, 1.3, k);
    }
    const double v = defaults[generation_of(g)][k];
    return widened(figure_assumed(v, v, v, "default of the GPU's generation"), 0.75, 1.5, k);
}
