// SPDX-License-Identifier: Apache-2.0
// Traps around the configuration: number of processes, environment variables, core binding.
#include "describe/import_text.h"
#include "judge/check_rules.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void rule_processes(struct check *k) {
    const struct config_facts *f = &k->out->facts;
    uint64_t gpus = k->c->gpus, nodes = k->c->nodes;
    const char *path = arena_printf(k->a, "%s num_processes", k->q->path);
    if (f->processes == 1 && gpus > 1) {
        check_add(k,
                  (struct finding){
                      .id = "replicated-launch",
                      .severity = SEVERITY_ERROR,
                      .path = path,
                      .text = arena_printf(k->a,
                                           "one process for %llu GPUs: nothing is sharded, and "
                                           "a job started per GPU trains %llu whole copies",
                                           (unsigned long long)gpus, (unsigned long long)gpus),
                      .fix = arena_printf(k->a, "num_processes %llu", (unsigned long long)gpus),
                      .edits = {check_set(k, "processes",
                                          arena_printf(k->a, "%llu", (unsigned long long)gpus))}});
        return;
    }
    if ((f->processes && f->processes != gpus) || (f->machines && f->machines != nodes))
        check_add(k,
                  (struct finding){
                      .id = "launch-size",
                      .severity = SEVERITY_WARNING,
                      .path = path,
                      .text = arena_printf(k->a,
                                           "the file starts %llu processes on %llu machines, "
                                           "the cluster has %llu GPUs on %llu nodes",
                                           (unsigned long long)f->processes,
                                           (unsigned long long)f->machines,
                                           (unsigned long long)gpus, (unsigned long long)nodes),
                      .fix = "num_processes counts all GPUs of all machines",
                      .edits = {check_set(k, "processes",
                                          arena_printf(k->a, "%llu", (unsigned long long)gpus)),
                                check_set(k, "machines",
                                          arena_printf(k->a, "%llu", (unsigned long long)nodes))}});
}

struct trap {
    const char *name, *value; // value NULL: any but empty and 0
    enum severity severity;
    bool nodes_only; // matters between nodes only
    const char *text, *fix;
};

static const struct trap traps[] = {
    {"NCCL_P2P_DISABLE", "1", SEVERITY_ERROR, false,
     "peer-to-peer is off: GPUs of a node talk through host memory instead of NVLink or PCIe",
     "unset NCCL_P2P_DISABLE"},
    {"NCCL_IB_DISABLE", "1", SEVERITY_ERROR, true,
     "InfiniBand and RoCE are off: nodes talk over TCP sockets", "unset NCCL_IB_DISABLE"},
    {"NCCL_SHM_DISABLE", "1", SEVERITY_WARNING, false,
     "shared memory is off: GPUs without peer access talk through the network stack",
     "unset NCCL_SHM_DISABLE"},
    {"NCCL_NVLS_ENABLE", "0", SEVERITY_INFO, false, "in-switch reduction is off",
     "unset NCCL_NVLS_ENABLE"},
    {"NCCL_SOCKET_IFNAME", "lo", SEVERITY_ERROR, true,
     "NCCL is bound to the loopback interface: nodes can't reach each other",
     "name the network's interface"},
    {"NCCL_NET_GDR_LEVEL", "0", SEVERITY_WARNING, true,
     "GPUDirect RDMA is off: network traffic is copied through host memory",
     "unset NCCL_NET_GDR_LEVEL"},
    {"CUDA_LAUNCH_BLOCKING", "1", SEVERITY_ERROR, false,
     "every kernel launch waits for the kernel: nothing overlaps", "unset CUDA_LAUNCH_BLOCKING"},
    {"NCCL_BLOCKING_WAIT", "1", SEVERITY_WARNING, false,
     "the host waits for every collective: nothing overlaps", "unset it"},
    {"TORCH_NCCL_BLOCKING_WAIT", "1", SEVERITY_WARNING, false,
     "the host waits for every collective: nothing overlaps", "unset it"},
    {"TORCH_DISTRIBUTED_DEBUG", "DETAIL", SEVERITY_WARNING, false,
     "every collective is checked across ranks before it starts", "unset TORCH_DISTRIBUTED_DEBUG"},
    {"CUDA_DEVICE_MAX_CONNECTIONS", "1", SEVERITY_INFO, false,
     "one hardware queue: meant for tensor parallelism, it serialises FSDP's streams", "unset it"},
    {"ACCELERATE_USE_FSDP", "false", SEVERITY_WARNING, false,
     "accelerate's FSDP is switched off whatever the file says", "unset ACCELERATE_USE_FSDP"},
};

// "export NAME=value", "NAME=value", "-x NAME=value", quotes allowed. NULL when absent.
static const char *environment_value(const char *text, const char *name, unsigned *line,
                                     struct arena *a) {
    size_t n = strlen(name);
    const char *found = NULL;
    unsigned at_line = 1;
    for (const char *at = text; *at; at++) {
        at_line += *at == '\n';
        bool start = at == text || strchr(" \t\n\"';", at[-1]) != NULL;
        if (!start || strncmp(at, name, n) != 0 || at[n] != '=')
            continue;
        const char *value = at + n + 1;
        value += *value == '"' || *value == '\'';
        found = arena_printf(a, "%.*s", (int)strcspn(value, " \t\r\n\"';&\\"), value);
        *line = at_line; // the last one counts, as in a shell
    }
    return found;
}

static bool trapped(const struct trap *t, const char *value, const struct check *k) {
    if (value == NULL || *value == '\0' || (t->nodes_only && k->c->nodes < 2))
        return false;
    return strcasecmp(value, t->value) == 0;
}

static void rule_environment(struct check *k) {
    size_t bytes = 0;
    struct err ignored = {0};
    unsigned line = 0;
    if (k->q->environment == NULL)
        return;
    const char *text = import_text_read(k->q->environment, k->a, &bytes, &ignored);
    if (text == NULL) {
        check_add(k, (struct finding){.id = "environment",
                                      .severity = SEVERITY_WARNING,
                                      .path = k->q->environment,
                                      .text = arena_strdup(k->a, ignored.text)});
        return;
    }
    for (size_t i = 0; i < sizeof traps / sizeof traps[0]; i++) {
        const struct trap *t = &traps[i];
        const char *value = environment_value(text, t->name, &line, k->a);
        if (trapped(t, value, k))
            check_add(k, (struct finding){.id = "environment",
                                          .severity = t->severity,
                                          .path = arena_printf(k->a, "%s:%u %s", k->q->environment,
                                                               line, t->name),
                                          .text = t->text,
                                          .fix = t->fix});
    }
    const char *threads = environment_value(text, "OMP_NUM_THREADS", &line, k->a);
    bool offload = k->out->recipe.offload_optimizer != OFFLOAD_NONE;
    double cores = k->c->cpu_cores.value / (double)check_node_ranks(k);
    if (offload && threads && strtod(threads, NULL) < 0.25 * cores)
        check_add(k,
                  (struct finding){
                      .id = "cpu-threads",
                      .severity = SEVERITY_WARNING,
                      .path = arena_printf(k->a, "%s:%u OMP_NUM_THREADS", k->q->environment, line),
                      .text = arena_printf(k->a,
                                           "CPU Adam gets %s threads per rank; the node has "
                                           "%.0f cores per rank",
                                           threads, cores),
                      .fix = arena_printf(k->a, "OMP_NUM_THREADS=%.0f", cores)});
}

static void rule_core_binding(struct check *k) {
    const struct recipe *r = &k->out->recipe;
    double cores = k->c->cpu_cores.value / (double)check_node_ranks(k);
    if (r->offload_optimizer == OFFLOAD_NONE || check_node_ranks(k) < 2)
        return;
    const char *threads =
        arena_printf(k->a, "OMP_NUM_THREADS=%.0f (cores per rank), with numactl", cores);
    check_add(k, (struct finding){.id = "bind-cores",
                                  .severity = SEVERITY_INFO,
                                  .path = "recipe.offload_optimizer",
                                  .text = "ranks of a node share its cores for the CPU optimizer",
                                  .fix = recipe_is_deepspeed(r)
                                             ? "launch with `deepspeed --bind_cores_to_rank`"
                                             : threads});
}

// GeForce and workstation cards of these generations have no peer access over PCIe.
static void rule_peer_access(struct check *k) {
    static const char *const cards[] = {"RTX 4090", "RTX 5090", "RTX 6000 Ada"};
    bool without = false;
    for (size_t i = 0; i < sizeof cards / sizeof cards[0]; i++)
        without |= k->c->gpu.name && strstr(k->c->gpu.name, cards[i]) != NULL;
    if (!without || k->c->intra_fabric != FABRIC_PCIE || check_node_ranks(k) < 2 ||
        (k->c->name && strstr(k->c->name, "p2p")))
        return;
    check_add(k, (struct finding){.id = "no-peer-access",
                                  .severity = SEVERITY_INFO,
                                  .path = k->c->name,
                                  .text = arena_printf(k->a,
                                                       "%s has no peer access: collectives are "
                                                       "staged through host memory",
                                                       k->c->gpu.name),
                                  .fix = "strategies that send less: ddp or zero1 with "
                                         "accumulation, LoRA"});
}

check_rule *const check_rules_launch[] = {rule_processes, rule_environment, rule_core_binding,
                                          rule_peer_access, NULL};
