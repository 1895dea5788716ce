// SPDX-License-Identifier: Apache-2.0
#include "judge/explain.h"

#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 8192
#define TEXT_SHOWN 240  // characters of a line kept
#define TRACE_LINES 120 // a phase named further above says nothing about this line
#define EVENTS_MAX 200

const char *const explain_kind_names[EXPLAIN_KIND_COUNT] = {
    [EXPLAIN_OOM] = "gpu_out_of_memory",
    [EXPLAIN_HOST_KILLED] = "host_out_of_memory",
    [EXPLAIN_MEMORY_USAGE] = "memory_usage",
    [EXPLAIN_CACHE_FLUSH] = "cache_flush",
    [EXPLAIN_SWAP_BUFFERS] = "swap_buffers",
    [EXPLAIN_NCCL] = "nccl",
    [EXPLAIN_TIMEOUT] = "collective_timeout",
    [EXPLAIN_ESTIMATE] = "deepspeed_estimate",
    [EXPLAIN_SETTING] = "setting",
};

struct reader {
    const struct explain_request *q;
    struct arena *a;
    struct explain_result *out;
    size_t line;
    const char *phase; // last one a trace named
    size_t phase_line;
    char title[LINE_MAX_BYTES]; // of a see_memory_usage triple
};

// ---- events -------------------------------------------------------------------------------------

static struct explain_event *add(struct reader *x, enum explain_kind kind, const char *line) {
    struct explain_result *r = x->out;
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 16;
        struct explain_event *items = arena_array(x->a, capacity, sizeof *items);
        if (r->count)
            memcpy(items, r->events, r->count * sizeof *items);
        r->events = items;
        r->capacity = capacity;
    }
    struct explain_event *ev = &r->events[r->count++];
    *ev = (struct explain_event){.kind = kind, .line = x->line, .count = 1};
    ev->asked_bytes = ev->total_bytes = ev->free_bytes = NAN;
    ev->allocated_bytes = ev->reserved_bytes = NAN;
    ev->text = arena_printf(x->a, "%.*s", TEXT_SHOWN, line);
    return ev;
}

// Ranks say the same thing many times over.
static bool repeats(struct reader *x, enum explain_kind kind, double asked, const char *meaning) {
    for (size_t i = 0; i < x->out->count; i++) {
        struct explain_event *ev = &x->out->events[i];
        bool same =
            ev->kind == kind && (isnan(asked) ? isnan(ev->asked_bytes) : ev->asked_bytes == asked);
        if (same && (meaning == NULL || strcmp(ev->meaning, meaning) == 0)) {
            ev->count++;
            return true;
        }
    }
    return x->out->count >= EVENTS_MAX;
}

static const char *gib(struct reader *x, double bytes) {
    char buf[32];
    bool large = bytes >= (double)UNITS_GIB;
    return arena_strdup(x->a, large ? units_format_gib(buf, sizeof buf, bytes)
                                    : units_format_bytes(buf, sizeof buf, bytes));
}

// "79.17 GiB" after `mark`; *unit_bytes is the worth of the last printed digit.
static double size_after(const char *line, const char *mark, double *unit_bytes) {
    const char *at = strstr(line, mark);
    char *end = NULL;
    if (at == NULL)
        return NAN;
    at += strlen(mark);
    double value = strtod(at, &end), unit = 1;
    if (end == at || !isfinite(value) || value < 0)
        return NAN;
    const char *dot = memchr(at, '.', (size_t)(end - at));
    int decimals = dot ? (int)(end - dot - 1) : 0;
    end += strspn(end, " ");
    if (strncmp(end, "GiB", 3) == 0 || strncmp(end, "GB", 2) == 0)
        unit = (double)UNITS_GIB; // PyTorch and DeepSpeed print binary units under both names
    else if (strncmp(end, "MiB", 3) == 0 || strncmp(end, "MB", 2) == 0)
        unit = (double)UNITS_MIB;
    else if (strncmp(end, "KiB", 3) == 0 || strncmp(end, "KB", 2) == 0)
        unit = (double)UNITS_KIB;
    if (unit_bytes)
        *unit_bytes = unit * pow(10, -decimals);
    return value * unit;
}

// ---- phases of a Python trace -------------------------------------------------------------------

static const char *phase_of(const char *line) {
    static const struct {
        const char *words, *phase;
    } rows[] = {
        {"cross_entropy", "loss"},
        {"logits.float()", "loss"},
        {"optimizer.step(", "step"},
        {"_multi_tensor_adam", "step"},
        {"_optimizer_step", "step"},
        {"_take_model_step", "step"},
        {"initialize_optimizer_states", "init"},
        {"_create_fp32_partitions", "init"},
        {"_configure_zero_optimizer", "init"},
        {"deepspeed.initialize", "init"},
        {"FullyShardedDataParallel(", "init"},
        {"save_pretrained", "save"},
        {"save_checkpoint", "save"},
        {"get_state_dict", "save"},
        {"state_dict()", "save"},
        {"from_pretrained", "load"},
        {"load_state_dict", "load"},
        {"zero.Init", "load"},
        {"load_checkpoint", "resume"},
        {".backward(", "backward"},
        {"_engine_run_backward", "backward"},
        {"in forward", "forward"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strstr(line, rows[i].words) != NULL)
            return rows[i].phase;
    return NULL;
}

// ---- one reader per kind of line ----------------------------------------------------------------

static const char *fragmentation(struct reader *x, const struct explain_event *ev) {
    double idle = ev->reserved_bytes - ev->allocated_bytes;
    if (!(idle > ev->asked_bytes))
        return "";
    return arena_printf(x->a, " %s is reserved but unused, more than was asked for: fragmentation.",
                        gib(x, idle));
}

static void say_oom(struct reader *x, struct explain_event *ev) {
    const struct explain_cause *c = ev->causes;
    const char *phase = ev->phase ? ev->phase : ev->cause_count ? c->phase : "an unknown phase";
    const char *idle = fragmentation(x, ev), *asked = gib(x, ev->asked_bytes);
    bool small = ev->asked_bytes < 0.02 * ev->total_bytes;
    if (ev->cause_count > 0) {
        ev->meaning = arena_printf(
            x->a, "%s was asked for in %s: %s.%s%s", asked, phase, c->what,
            small ? " The card was full already: what fills it matters more." : "", idle);
        ev->advice = c->advice;
    } else {
        ev->meaning = arena_printf(x->a,
                                   "%s was asked for in %s; no allocation of this model and recipe "
                                   "has that size.%s",
                                   asked, phase, idle);
        ev->advice = small ? "the card was full already: what fills it is in `shardplan plan`; the "
                             "last request is small"
                           : "give --config, --seq and --micro-batch as they were in the run";
    }
    if (*idle)
        ev->advice = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
}

static bool read_oom(struct reader *x, const char *line) {
    double digit = 0, ignored = 0;
    if (strstr(line, "out of memory. Tried to allocate ") == NULL)
        return false;
    double asked = size_after(line, "Tried to allocate ", &digit);
    if (isnan(asked))
        return false;
    if (repeats(x, EXPLAIN_OOM, asked, NULL))
        return true;
    struct explain_event *ev = add(x, EXPLAIN_OOM, line);
    ev->asked_bytes = asked;
    if (x->phase && x->line - x->phase_line <= TRACE_LINES)
        ev->phase = x->phase;
    const char *newer = strstr(line, "has a total capac");
    if (newer != NULL) {
        ev->allocated_bytes = size_after(line, "Of the allocated memory ", &ignored);
        ev->reserved_bytes =
            ev->allocated_bytes + size_after(line, "allocated by PyTorch, and ", &ignored);
        const char *size = strstr(newer, " of ");
        ev->total_bytes = size ? size_after(size, " of ", &ignored) : NAN;
        ev->free_bytes = size_after(line, "of which ", &ignored);
    } else { // "(GPU 2; 79.17 GiB total capacity; 76.68 GiB already allocated; ..."
        const char *at = strstr(line, "(GPU ");
        at = at ? strchr(at, ';') : NULL;
        ev->total_bytes = at ? size_after(at, "; ", &ignored) : NAN;
        at = at ? strchr(at + 1, ';') : NULL;
        ev->allocated_bytes = at ? size_after(at, "; ", &ignored) : NAN;
        at = at ? strchr(at + 1, ';') : NULL;
        ev->free_bytes = at ? size_after(at, "; ", &ignored) : NAN;
        at = at ? strchr(at + 1, ';') : NULL;
        ev->reserved_bytes = at ? size_after(at, "; ", &ignored) : NAN;
    }
    ev->cause_count =
        explain_sizes(x->q, asked, 0.51 * digit, x->a, ev->causes, EXPLAIN_CAUSES_MAX);
    say_oom(x, ev);
    return true;
}

static double host_need(struct reader *x) {
    struct memory m;
    struct err ignored = {0};
    if (x->q->recipe == NULL || x->q->cluster == NULL ||
        !memory_estimate(x->q->model, x->q->cluster, x->q->recipe, &m, &ignored))
        return NAN;
    return (double)m.host_bytes;
}

static bool read_killed(struct reader *x, const char *line) {
    static const char *const words[] = {
        "return code = -9", "exitcode: -9", "exitcode  : -9", "exit code -9",
        "SIGKILL",          "oom-kill:",    "Signal 9 ",      "Out of memory: Killed process"};
    bool found = false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        found |= strstr(line, words[i]) != NULL;
    if (!found)
        return false;
    if (repeats(x, EXPLAIN_HOST_KILLED, NAN, NULL))
        return true;
    double need = host_need(x), have = x->q->cluster ? x->q->cluster->host_memory_bytes.value : NAN;
    struct explain_event *ev = add(x, EXPLAIN_HOST_KILLED, line);
    double model = 2 * (double)x->q->model->parameters;
    if (need > 0)
        ev->meaning =
            arena_printf(x->a,
                         "the kernel killed the process: host memory ran out. This recipe "
                         "needs %s per node; the node has %s.",
                         gib(x, need), gib(x, have));
    else
        ev->meaning =
            arena_printf(x->a,
                         "the kernel killed the process: host memory ran out. One 16-bit "
                         "copy of the model is %s, and every rank loads one unless told "
                         "otherwise; full optimizer and parameter offload needs about %s.",
                         gib(x, model), gib(x, 10 * model));
    ev->advice = "pin_memory false, less offload or NVMe, efficient loading, more nodes; give "
                 "--config and --cluster for the exact need";
    return true;
}

static bool read_usage(struct reader *x, const char *line) {
    double digit = 0, ignored = 0;
    const char *cpu = strstr(line, "CPU Virtual Memory:");
    if (strstr(line, "see_memory_usage]") && strstr(line, " MA ") == NULL && cpu == NULL) {
        const char *title = strstr(line, "see_memory_usage] ");
        snprintf(x->title, sizeof x->title, "%s", title ? title + 18 : "");
        return true;
    }
    if (cpu != NULL) {
        const char *percent = strstr(cpu, "percent = ");
        double used = percent ? strtod(percent + 10, NULL) : 0;
        if (used < 90 || repeats(x, EXPLAIN_MEMORY_USAGE, NAN, NULL))
            return true;
        struct explain_event *ev = add(x, EXPLAIN_MEMORY_USAGE, line);
        ev->meaning = arena_printf(x->a, "host memory is %.1f %% full%s%s", used,
                                   x->title[0] ? ": " : "", x->title);
        ev->advice = "the next allocation on the host can end the run with exit -9";
        return true;
    }
    if (strstr(line, " MA ") == NULL || strstr(line, "Max_MA ") == NULL)
        return false;
    double peak = size_after(line, "Max_MA ", &digit), cached = size_after(line, " CA ", &digit);
    if (repeats(x, EXPLAIN_MEMORY_USAGE, cached, NULL))
        return true;
    struct explain_event *ev = add(x, EXPLAIN_MEMORY_USAGE, line);
    ev->asked_bytes = cached;
    ev->allocated_bytes = size_after(line, " MA ", &ignored);
    ev->reserved_bytes = cached;
    ev->cause_count = explain_copies(x->q, cached, 4 * digit, x->a, ev->causes);
    if (ev->cause_count == 0)
        ev->cause_count = explain_copies(x->q, peak, 4 * digit, x->a, ev->causes);
    ev->meaning = arena_printf(
        x->a, "%s: peak %s, reserved %s%s%s", x->title[0] ? x->title : "usage", gib(x, peak),
        gib(x, cached), ev->cause_count ? ": " : "", ev->cause_count ? ev->causes[0].what : "");
    ev->advice = ev->cause_count ? ev->causes[0].advice : NULL;
    return true;
}

static bool read_flush(struct reader *x, const char *line) {
    if (strstr(line, "allocator cache flushes since last step") == NULL)
        return false;
    if (repeats(x, EXPLAIN_CACHE_FLUSH, NAN, NULL))
        return true;
    struct explain_event *ev = add(x, EXPLAIN_CACHE_FLUSH, line);
    ev->meaning =
        "GPU memory was so full that the allocator emptied its cache and asked the driver "
        "again: every flush stalls the GPU.";
    ev->advice =
        "a smaller micro-batch, or expandable_segments; get_accelerator().empty_cache() on "
        "all ranks at the same time keeps them in step";
    return true;
}

static bool read_swap(struct reader *x, const char *line) {
    if (strstr(line, "ran out of swap buffers") == NULL)
        return false;
    if (repeats(x, EXPLAIN_SWAP_BUFFERS, NAN, NULL))
        return true;
    struct explain_event *ev = add(x, EXPLAIN_SWAP_BUFFERS, line);
    const struct recipe *r = x->q->recipe;
    int need = 12;
    if (r != NULL)
        need = r->pipeline_read && r->pipeline_write   ? 12
               : r->pipeline_read || r->pipeline_write ? 8
                                                       : 4;
    ev->meaning = arena_printf(
        x->a,
        "the NVMe optimizer swapper needs more buffers than "
        "offload_optimizer.buffer_count%s: Adam takes 4, 8 with one of "
        "pipeline_read and pipeline_write, 12 with both.",
        r ? arena_printf(x->a, " %llu", (unsigned long long)r->nvme_buffer_count_optimizer)
          : " has");
    ev->advice = arena_printf(x->a, "offload_optimizer.buffer_count %d", need);
    return true;
}

static bool read_nccl(struct reader *x, const char *line) {
    static const struct {
        const char *words, *meaning, *advice;
    } rows[] = {
        {"via NET/Socket", "ranks talk over TCP sockets: InfiniBand or RoCE is not used",
         "check NCCL_IB_DISABLE, the driver (ibstat) and the network plugin"},
        {"NCCL_P2P_DISABLE set by environment to 1",
         "peer-to-peer is off: GPUs of a node talk through host memory", "unset NCCL_P2P_DISABLE"},
        {"NCCL_IB_DISABLE set by environment to 1", "InfiniBand and RoCE are off",
         "unset NCCL_IB_DISABLE"},
        {"No IB device found", "no InfiniBand device was found: nodes talk over sockets",
         "install the verbs driver, or name the device with NCCL_IB_HCA"},
        {"via SHM/", "GPUs of this node talk through shared memory: no peer access between them",
         "NVLink or P2P would be faster; GeForce cards have no P2P"},
        {"GDR 0", "GPUDirect RDMA is off: network traffic is copied through host memory",
         "load nvidia-peermem, or use DMA-BUF"},
    };
    if (strstr(line, "NCCL INFO") == NULL)
        return false;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strstr(line, rows[i].words) == NULL)
            continue;
        if (repeats(x, EXPLAIN_NCCL, NAN, rows[i].meaning))
            return true;
        struct explain_event *ev = add(x, EXPLAIN_NCCL, line);
        ev->meaning = rows[i].meaning;
        ev->advice = rows[i].advice;
    }
    return true;
}

static bool read_timeout(struct reader *x, const char *line) {
    if (strstr(line, "Watchdog caught collective operation timeout") == NULL)
        return false;
    if (repeats(x, EXPLAIN_TIMEOUT, NAN, NULL))
        return true;
    struct explain_event *ev = add(x, EXPLAIN_TIMEOUT, line);
    ev->meaning = "a collective waited until the watchdog gave up: one rank never came to it. The "
                  "first error of another rank, further up or in its own log, is the cause.";
    ev->advice = "look for an out-of-memory or exit -9 of another rank; a mixture of experts under "
                 "ZeRO-3 needs leaf modules";
    return true;
}

static bool read_estimate(struct reader *x, const char *line) {
    const char *bar = strchr(line, '|');
    double ignored = 0;
    if (bar == NULL || strstr(line, "offload_optimizer=") == NULL)
        return false;
    double cpu = size_after(line, "", &ignored), gpu = size_after(bar, "|", &ignored);
    if (isnan(cpu) || isnan(gpu) || repeats(x, EXPLAIN_ESTIMATE, gpu, NULL))
        return !isnan(cpu) && !isnan(gpu);
    struct explain_event *ev = add(x, EXPLAIN_ESTIMATE, line);
    ev->asked_bytes = gpu;
    ev->meaning =
        arena_printf(x->a,
                     "DeepSpeed's estimator: %s per GPU counts states only: no gradient "
                     "buckets, activations, logits or context; frozen parameters count as "
                     "trained.",
                     gib(x, gpu));
    ev->advice = "compare with `shardplan plan` for the same recipe";
    return true;
}

static bool read_setting(struct reader *x, const char *line) {
    static const char *const words[] = {"Reduce bucket size ", "Prefetch bucket size ",
                                        "Total persistent parameters: "};
    double h = (double)x->q->model->hidden;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *at = strstr(line, words[i]);
        if (at == NULL)
            continue;
        double value = strtod(at + strlen(words[i]), NULL),
               expected[] = {h * h, floor(0.9 * h * h), 0};
        const char *meaning =
            arena_printf(x->a, "%.*s %.0f elements = %s in 16 bit%s", (int)strlen(words[i]) - 1,
                         words[i], value, gib(x, 2 * value),
                         expected[i] > 0 && value == expected[i]
                             ? i ? ", which is \"auto\": 0.9 x hidden x hidden"
                                 : ", which is \"auto\": hidden x hidden"
                             : "");
        if (!repeats(x, EXPLAIN_SETTING, NAN, meaning))
            add(x, EXPLAIN_SETTING, line)->meaning = meaning;
        return true;
    }
    return false;
}

// ---- the file -----------------------------------------------------------------------------------

typedef bool line_reader(struct reader *x, const char *line);

static void read_line(struct reader *x, const char *line) {
    static line_reader *const readers[] = {read_oom,     read_killed,   read_usage,
                                           read_flush,   read_swap,     read_nccl,
                                           read_timeout, read_estimate, read_setting};
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++)
        if (readers[i](x, line))
            return;
    const char *phase = phase_of(line);
    if (phase != NULL) {
        x->phase = phase;
        x->phase_line = x->line;
    }
}

static const struct explain_event *stopper(const struct explain_result *r) {
    static const enum explain_kind fatal[] = {EXPLAIN_OOM, EXPLAIN_SWAP_BUFFERS,
                                              EXPLAIN_HOST_KILLED, EXPLAIN_TIMEOUT};
    for (size_t k = 0; k < sizeof fatal / sizeof fatal[0]; k++)
        for (size_t i = 0; i < r->count; i++)
            if (r->events[i].kind == fatal[k])
                return &r->events[i];
    return NULL;
}

bool explain_log(const struct explain_request *q, struct arena *a, struct explain_result *out,
                 struct err *e) {
    struct explain_result result = {0};
    struct reader *x = arena_alloc(a, sizeof *x);
    char line[LINE_MAX_BYTES];
    FILE *f = fopen(q->path, "r");
    if (f == NULL)
        return err_set(e, ERR_INPUT, "%s: %s", q->path, strerror(errno));
    *x = (struct reader){.q = q, .a = a, .out = &result};
    while (fgets(line, sizeof line, f) != NULL) {
        size_t n = strlen(line);
        x->line++;
        while (n > 0 && strchr("\r\n", line[n - 1]))
            line[--n] = '\0';
        read_line(x, line);
    }
    bool failed = ferror(f) != 0;
    fclose(f);
    if (failed)
        return err_set(e, ERR_INPUT, "%s: %s", q->path, strerror(errno));
    *out = result;
    out->first = stopper(out);
    return true;
}
