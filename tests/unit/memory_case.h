// SPDX-License-Identifier: Apache-2.0
// Builders shared by the memory and volume tests.
#pragma once

#include "base/units.h"
#include "cost/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const double GB = 1e9;
static const double GIB = 1024.0 * 1024 * 1024;

// A model that is one weight matrix of `parameters` elements (a multiple of 1000).
static inline struct model bulk_model(double parameters, struct arena *a) {
    struct tensor *t = arena_array(a, 1, sizeof *t);
    struct model_unit *u = arena_array(a, 1, sizeof *u);
    *t = (struct tensor){.name = "weight",
                         .module = "mlp.up_proj",
                         .role = TENSOR_LINEAR,
                         .rows = (uint64_t)(parameters / 1000),
                         .cols = 1000,
                         .count = 1};
    *u = (struct model_unit){.kind = UNIT_BLOCK,
                             .name = "layers",
                             .repeat = 1,
                             .tensors = t,
                             .tensor_count = 1,
                             .parameters = (uint64_t)parameters};
    return (struct model){.name = "bulk",
                          .architecture = "llama",
                          .layers = 1,
                          .hidden = 1000,
                          .ffn = 1000,
                          .heads = 1,
                          .kv_heads = 1,
                          .head_dim = 1000,
                          .vocab = 1000,
                          .block_norms = 2,
                          .units = u,
                          .unit_count = 1,
                          .parameters = (uint64_t)parameters,
                          .matmul_parameters = (uint64_t)parameters};
}

static inline struct cluster plain_cluster(uint64_t gpus, uint64_t gpus_per_node, double gpu_bytes,
                                           double host_bytes) {
    struct cluster c = {.name = "test", .gpus = gpus, .gpus_per_node = gpus_per_node};
    struct figure unknown = figure_unknown();
    c.nodes = (gpus + gpus_per_node - 1) / gpus_per_node;
    c.gpu.name = "test";
    c.gpu.memory_torch_bytes = figure_known(gpu_bytes, PROVENANCE_SPEC, "test");
    c.gpu.memory_smi_bytes = c.gpu.memory_nominal_bytes = c.gpu.memory_torch_bytes;
    c.gpu.context_bytes = c.gpu.nccl_first_bytes = c.gpu.nccl_next_bytes = unknown;
    c.nvme_capacity_bytes = unknown;
    c.host_memory_bytes =
        host_bytes > 0 ? figure_known(host_bytes, PROVENANCE_SPEC, "test") : unknown;
    for (int i = 0; i < DTYPE_COUNT; i++)
        c.gpu.peak_flop_per_s[i] = figure_known(1e15, PROVENANCE_SPEC, "test");
    return c;
}

static inline struct recipe short_recipe(enum strategy s, enum precision p) {
    struct recipe r;
    recipe_defaults(s, &r);
    r.precision = p;
    r.seq = 1;
    return r;
}

static inline struct memory estimate(const struct model *m, const struct cluster *c,
                                     struct recipe *r) {
    struct memory out = {0};
    struct err e = {0};
    r->global_batch = 0; // derived anew for this cluster
    if (!recipe_resolve(r, m, c, &e) || !memory_estimate(m, c, r, &out, &e))
        fail_msg("%s", e.text);
    return out;
}

static inline void near(double value, double expected, double tolerance, const char *what) {
    if (fabs(value - expected) > tolerance * fabs(expected))
        fail_msg("%s: %.8g, expected %.8g", what, value, expected);
}

static inline void within(double value, double expected, double absolute, const char *what) {
    if (fabs(value - expected) > absolute)
        fail_msg("%s: %.8g, expected %.8g +- %.3g", what, value, expected, absolute);
}
