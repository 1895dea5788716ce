// SPDX-License-Identifier: Apache-2.0
// Private to plan/step*: what the builders of the strategies share. A builder adds tasks in the
// order in which the framework's Python thread issues them; docs/method.md §step.
#pragma once

#include "base/arena.h"
#include "cost/collective.h"
#include "cost/compute.h"
#include "cost/volume.h"
#include "plan/sim.h"
#include "plan/step.h"
#include "plan/step_task.h"

struct step_unit_class {
    const struct model_unit *unit;
    struct unit_cost forward, backward;
    double elements, trainable;        // of one instance on this rank (tensor-parallel share);
                                       // FSDP's padding included
    double gather_bytes, stored_bytes; // of the whole instance: as gathered, as its shards keep it
    double experts;                    // of them, routed experts under expert parallelism
    double kept_bytes, backward_bytes; // activations across forward; more while in backward
    double tensor_bytes;               // payload of one tensor-parallel exchange
    double persistent;                 // elements ZeRO-3 keeps gathered
};

struct step_unit {
    uint32_t class, group, layer; // layer: index within its run
};

// Units whose parameters travel together.
struct step_group {
    double elements, trainable;
    double experts; // of them, routed experts under expert parallelism
    double gather_bytes, stored_bytes;
    uint32_t first, last; // units
    bool root;
};

struct step_sizes { // bytes per element
    double param, gather, grad, reduce;
};

struct step_link_rates { // per rank; INFINITY where a what-if says so
    double h2d_bytes_per_s, d2h_bytes_per_s, pcie_both_bytes_per_s;
    double dram_bytes_per_s;
    double nvme_read_bytes_per_s, nvme_write_bytes_per_s;
    double nvme_read_load, nvme_write_load; // of the drives at that rate: 1, or less behind DRAM
    double hbm_bytes_per_s;
};

#define STEP_MICRO_MARKS 2
#define STEP_REMEMBERED_LOG2 6
#define STEP_REMEMBERED (1u << STEP_REMEMBERED_LOG2)
struct step_kernel_time { // one remembered memory-bound kernel
    double bytes, seconds;
    uint32_t demand_set; // of the engine; 0 = not asked for yet, or none
};
struct step_estimate { // one remembered collective; size 0 = empty
    enum collective collective;
    uint64_t size, stride;
    double payload_bytes;
    struct collective_time time;
    // Of its tasks, once one was added; demand_set 0 = none was.
    uint32_t demand_set;
    float low, high;
    bool spans_nodes, latency_bound;
};

struct step_builder {
    const struct model *model;
    const struct cluster *cluster;
    const struct recipe *recipe;
    struct step_scale scale;
    bool memory; // track activations and gathered parameters
    bool quick;  // no interval wanted
    struct arena *arena;
    struct sim *sim;
    struct step_meta *meta; // per task
    uint32_t meta_capacity;
    struct step_unit_class *classes;
    uint32_t class_count;
    struct step_unit *units; // instances in forward order
    uint32_t unit_count;
    struct step_group *groups; // in order of first use in forward
    uint32_t group_count;
    struct step_sizes sizes;
    struct step_link_rates rates;
    double elements, trainable; // whole model on this rank's tensor- and pipeline-parallel share
    double experts;             // of them, under expert parallelism
    double padding;             // ZeRO: trainable elements stored by all ranks per element, else 1
    uint64_t shard, replicas, ranks_per_node;
    struct step_estimate estimates[STEP_REMEMBERED]; // by hash of what they depend on
    struct step_kernel_time kernels[STEP_REMEMBERED];
    double nic_bytes_per_s, nvlink_bytes_per_s; // largest rate any collective asks
    enum step_phase phase;
    uint32_t last[STEP_STREAM_COUNT];             // last task of each stream or SIM_NONE
    uint32_t wait[STEP_STREAM_COUNT][STEP_WAITS]; // stream waits to put on its next task
    uint32_t wait_count[STEP_STREAM_COUNT];
    double steady_bytes;            // allocated between steps, where the memory curve starts
    double persistent;              // elements ZeRO-3 keeps gathered
    double host_cores;              // of this rank, where the cluster's "GPU" is its host; else 0
    double claim_bytes, free_bytes; // for the next task
    double kept_grad_bytes;         // gradients held until the optimizer is done
    double step_transient_bytes;    // the optimizer's own working memory
    uint32_t micro_end[STEP_MICRO_MARKS]; // tasks built when the first micro-steps were done
    uint32_t micro_count;
    uint32_t activation_copy;                     // last one to the host
    uint32_t last_backward, before_last_backward; // compute tasks
    double hook_s;                                // host time to add to the next task issued
};

// A task before it is added. Zero-initialised fields mean "no".
struct step_task {
    enum step_op op;
    enum step_stream stream;
    uint32_t unit;
    double seconds, bytes, issue_s;
    double low, high; // relative interval; 0 = 1
    uint32_t deps[4];
    uint32_t dep_count;
    struct sim_demand demands[SIM_DEMANDS_MAX];
    uint32_t demand_count;
    bool host_blocking, issue_overlaps;
    double cores; // that it keeps busy where the "GPU" is the host; 0 = one
    enum collective collective;
    enum dtype dtype;
    enum transfer_group group;
    uint64_t group_size;
    bool spans_nodes, latency_bound;
};

bool step_builder_init(struct step_builder *b, const struct step_request *q, struct arena *a,
                       struct err *e);
// The whole step, ready to run.
bool step_build(const struct step_request *q, struct arena *a, struct step_builder *b,
                struct err *e);
uint32_t step_add(struct step_builder *b, const struct step_task *t);
// A micro-step has been built up to its last backward.
void step_micro_done(struct step_builder *b);
// The next task of `stream` also waits for `task` (SIM_NONE: nothing). At most STEP_WAITS are held.
void step_stream_wait(struct step_builder *b, enum step_stream stream, uint32_t task);

// The next task also takes these bytes at its start, or frees them at its end. Only the memory
// curve sees them: without want_timeline nothing is tracked.
void step_claim(struct step_builder *b, double bytes);
void step_release(struct step_builder *b, double bytes);
// Gradients that stay until the optimizer is done; counted once however often they are added to.
void step_keep_gradients(struct step_builder *b, double bytes, double at_most);

// One compute task of a unit in the current phase, with its tensor-parallel exchange.
uint32_t step_compute(struct step_builder *b, uint32_t unit, bool backward);
// A memory-bound kernel.
uint32_t step_kernel(struct step_builder *b, enum step_op op, enum step_stream stream,
                     uint32_t unit, double bytes);
struct step_collective {
    enum step_op op;
    enum step_stream stream;
    enum collective collective;
    enum transfer_group group;
    enum dtype dtype;
    uint64_t size, stride; // ranks of the group, and their distance
    double payload_bytes;  // full buffer
    uint32_t unit, dep;    // dep: SIM_NONE for none
    uint32_t repeat;       // so many calls of it, one after the other; 0 = 1
    bool host_blocking;
};
uint32_t step_collective(struct step_builder *b, const struct step_collective *c);
bool step_collective_spans(const struct step_builder *b, uint64_t size, uint64_t stride);
extern const double step_network_channels; // over the network, of those a collective holds inside
struct step_copy {
    enum step_op op;
    enum step_stream stream;
    bool to_device, host_blocking;
    double bytes, slower;      // slower: times the pinned copy's duration; 0 = 1
    uint32_t unit, dep, count; // count: separate DMAs
};
uint32_t step_copy(struct step_builder *b, const struct step_copy *c);
// The interval of a task whose time is bytes over this rate.
void step_spread(struct step_task *t, struct figure rate);
const struct collective_time *step_estimate(struct step_builder *b,
                                            const struct step_collective *c);
// Work of the Python thread and its helpers on the host's cores; the thread waits for it.
uint32_t step_host(struct step_builder *b, enum step_op op, double seconds, double dram_bytes,
                   uint32_t dep);
enum dtype step_dtype_of(double bytes); // the 16- or 32-bit float of that size

// Activation offload, around a unit's compute task; nothing unless the recipe asks for it.
void step_activation_out(struct step_builder *b, uint32_t unit, uint32_t compute);
void step_activation_in(struct step_builder *b, uint32_t unit);

// The strategies: micro-steps up to the end of the last backward.
void step_build_fsdp2(struct step_builder *b);
void step_build_fsdp1(struct step_builder *b);
void step_build_ddp(struct step_builder *b);
void step_build_zero12(struct step_builder *b);
bool step_build_zero3(struct step_builder *b, struct err *e);
// Read or write by the NVMe swapper; `wait`: the host waits for its end.
uint32_t step_swap(struct step_builder *b, bool read, double bytes, uint32_t dep, bool wait);
// Share of this rank's parameters beyond what max_in_cpu keeps in host memory.
double step_nvme_share(const struct step_builder *b);
// CPU Adam over `elements` of this rank while every rank of the node steps its own; `wait`: in the
// training process, else in SuperOffload's.
uint32_t step_adam(struct step_builder *b, double elements, uint32_t dep, bool wait);
// SuperOffload steps sub-groups during backward: only without clipping.
bool step_adam_in_backward(const struct recipe *r);
// This rank's share of so much, `experts` of it shared by fewer ranks.
double step_share(const struct step_builder *b, double all, double experts);
// Trainable elements this rank's optimizer holds.
double step_held_elements(const struct step_builder *b);
// Clipping, optimizer on GPU or host, updated parameters.
void step_build_optimizer(struct step_builder *b);
