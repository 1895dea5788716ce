// SPDX-License-Identifier: Apache-2.0
#include "cost/compute.h"

#include "base/units.h"
#include "describe/gpu_kernels.h"

#include <math.h>

#define CPU_ADAM_BYTES 28.0    // read gradient, weight, two states; write weight and states
#define CPU_ADAM_BOUND_S 0.3   // per 1e9 parameters and node, cores bound, 64 or more of them
#define CPU_ADAM_UNBOUND_S 0.7 // otherwise
// Where the bound figure was measured: two EPYC 7742, 16 channels of DDR4-3200 (409.6e9), of which
// STREAM reaches 79 % as on the catalog's measured host.
#define CPU_ADAM_HOST_BYTES_PER_S (324.0 * UNITS_GIGA)
#define CPU_ADAM_CORES 64.0
#define TORCH_CPU_ADAM_S 4.8 // torch.optim.AdamW on the CPU, same unit

// HBM bytes per element of one update: docs/method.md §compute.
static double update_bytes(const struct recipe *r) {
    const double state = fmax(1.0, dtype_bytes(r->state_dtype));
    const double weight = fmax(1.0, dtype_bytes(r->has_master ? r->master_dtype : r->param_dtype));
    const double grad = fmax(1.0, dtype_bytes(r->grad_dtype));
    switch (r->optimizer) {
    case OPTIMIZER_NONE:
        return 0.0;
    case OPTIMIZER_SGD:
        return grad + 2 * weight;
    case OPTIMIZER_ADAMW8BIT:
        return grad + 2 * weight + 4.0;
    case OPTIMIZER_ADAFACTOR:
        return 2 * grad + 4 * weight + 8.0;
    case OPTIMIZER_MUON:
        return grad + 2 * weight + 2 * state + 20.0;
    default:
        break;
    }
    const bool one_kernel =
        r->optimizer_fused || recipe_is_deepspeed(r) || r->stack == STACK_MEGATRON;
    if (one_kernel) {
        return grad + 2 * weight + 4 * state;
    }
    // foreach: decay, lerp, square, root, divide, epsilon and step are passes of their own.
    return 2 * grad + 4 * weight + 14 * state;
}

// Casting between the 16-bit copies and the fp32 master around the update.
static double cast_bytes(const struct recipe *r) {
    if (!r->has_master) {
        return 0.0;
    }
    const double weight = dtype_bytes(r->param_dtype), grad = dtype_bytes(r->grad_dtype);
    const double master = dtype_bytes(r->master_dtype);
    return (weight + master) + (grad < master ? grad + master : 0.0);
}

double compute_optimizer_s(const struct cluster *c, const struct recipe *r, double elements) {
    const double bytes = elements * (update_bytes(r) + cast_bytes(r));
    return compute_memory_bound_s(&c->gpu, r->stack, bytes);
}

// With cores enough to bind, the update is a stream through memory: a host with faster DRAM than
// the measured one is faster in proportion. docs/method.md §compute.
static struct figure deepspeed_prior(const struct cluster *c, double giga) {
    const bool enough = figure_is_known(c->cpu_cores) && c->cpu_cores.value >= CPU_ADAM_CORES;
    if (!enough) {
        return figure_assumed(CPU_ADAM_UNBOUND_S * giga, 0.12 * giga, 0.9 * giga,
                              "0.7 s per 1e9 parameters and node without bound cores");
    }
    const bool dram = figure_is_known(c->host_dram_bytes_per_s);
    const double scale = dram ? CPU_ADAM_HOST_BYTES_PER_S / c->host_dram_bytes_per_s.value : 1.0;
    return figure_assumed(CPU_ADAM_BOUND_S * scale * giga, 0.12 * giga, 0.9 * giga,
                          "0.3 s per 1e9 parameters and node with bound cores on a dual EPYC 7742,"
                          " in proportion to the host's DRAM rate where it is known");
}

struct figure compute_cpu_adam_s(const struct cluster *c, const struct recipe *r, double elements) {
    const double giga = elements / UNITS_GIGA;
    struct figure f = c->cpu_adam_by_software[r->adam_software];
    if (!figure_is_known(f) || !(f.value > 0)) {
        f = c->cpu_adam_s_per_param;
    }
    if (figure_is_known(f) && f.value > 0) {
        f.value *= elements;
        f.low *= elements;
        f.high *= elements;
    } else if (r->adam_software == ADAM_TORCH) {
        f = figure_assumed(TORCH_CPU_ADAM_S * giga, 2.4 * giga, 7.0 * giga,
                           "torch CPU Adam, zero-offload measurements");
    } else {
        f = deepspeed_prior(c, giga);
    }
    // No software is faster than the memory: 28 bytes per parameter at the STREAM rate.
    if (figure_is_known(c->host_dram_bytes_per_s)) {
        const double floor_s = elements * CPU_ADAM_BYTES / c->host_dram_bytes_per_s.value;
        f.value = fmax(f.value, floor_s);
        f.low = fmax(fmin(f.low, f.value), fmin(floor_s, f.value));
        f.high = fmax(f.high, f.value);
    }
    return f;
}
