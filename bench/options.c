// SPDX-License-Identifier: Apache-2.0
#include "bench/options.h"

#define AT(field) .offset = offsetof(struct options, field)
#define UNSEEN .given_offset = SIZE_MAX

const struct opt options_common[] = {
    {"out", 'o', OPT_STRING, AT(out), .argument = "FILE.jsonl", UNSEEN,
     .help = "Write a header line, then a line per result as it finishes."},
    {"json", 0, OPT_STRING, AT(json), .argument = "FILE|-", UNSEEN,
     .help = "Write all results as one document; - writes it alone to standard output."},
    {"report", 0, OPT_STRING, AT(report), .argument = "DIR", UNSEEN,
     .help = "Render the results as a page in DIR."},
    {"resume", 0, OPT_FLAG, AT(resume), UNSEEN,
     .help = "Keep what --out already holds and measure only the rest."},
    {"force", 0, OPT_FLAG, AT(force), UNSEEN,
     .help = "Measure even with a build made without optimisation."},
    {"quiet", 'q', OPT_FLAG, AT(quiet), UNSEEN, .help = "No table and no progress."},
    {"no-verify", 0, OPT_FLAG, AT(no_verify), UNSEEN,
     .help = "Do not check the contents of what was transferred."},
    {"budget", 0, OPT_SECONDS, AT(budget_s), .argument = "TIME", .fallback = "1s", UNSEEN,
     .help = "Longest timed part of one point once it has its least iterations."},
    {"target", 0, OPT_DOUBLE, AT(target), .argument = "FRACTION", .fallback = "0.02", .min = 0,
     .max = 1, UNSEEN,
     .help = "Stop a point when its median is known this well (95 %, half width)."},
    {"min-iterations", 'n', OPT_COUNT, AT(min_iterations), .argument = "N", .fallback = "10",
     .min = 1, .max = 5000, UNSEEN, .help = "Least iterations of a point."},
    {"max-iterations", 0, OPT_COUNT, AT(max_iterations), .argument = "N", .fallback = "5000",
     .min = 1, .max = 1000000, UNSEEN, .help = "Most iterations of a point."},
    {"timeout", 0, OPT_SECONDS, AT(timeout_s), .argument = "TIME", .fallback = "120s", UNSEEN,
     .help = "A run whose ranks finish nothing for this long is ended."},
    {"within", 0, OPT_SECONDS, AT(within_s), .argument = "TIME", .fallback = "0s", UNSEEN,
     .help = "Begin nothing after this long, and end what runs; 0 = no limit (all: 45 s)."},
    {"seed", 0, OPT_COUNT, AT(seed), .argument = "N", .fallback = "1", UNSEEN,
     .help = "Seed of the verified contents."},
    {"fault", 0, OPT_STRING, AT(fault), .argument = "NAME", UNSEEN,
     .help = "Test hook: make a backend fail in a named way."},
    {.name = NULL},
};

static const char *const algorithms[] = {"both", "library", "ring", NULL};
static const char *const waits[] = {"poll", "nap", NULL};
static const char *const places[] = {"out", "in", "both", NULL};

const struct opt options_collectives[] = {
    {"backend", 0, OPT_STRING, AT(backend), .argument = "NAME", .group = "Collectives", UNSEEN,
     .help = "nccl, mpi or null; by default nccl where GPUs are, else mpi."},
    {"op", 0, OPT_TEXTS, AT(operations), .argument = "NAME,...", .group = "Collectives",
     .fallback = "all_gather,reduce_scatter,all_reduce", UNSEEN,
     .help = "Collectives to run, also all_to_all, broadcast and send_recv."},
    {"dtype", 'd', OPT_TEXTS, AT(dtypes), .argument = "NAME,...", .group = "Collectives",
     .fallback = "bf16", UNSEEN, .help = "bf16, fp16, fp32 or int8."},
    {"algorithm", 0, OPT_CHOICE, AT(algorithm), .choices = algorithms, .fallback = "both",
     .group = "Collectives", UNSEEN, .help = "The library's collectives, the explicit ring, both."},
    {"wait", 0, OPT_CHOICE, AT(wait), .choices = waits, .fallback = "poll", .group = "Collectives",
     UNSEEN,
     .help = "The ring's waiting: poll, as MPI does, or nap, as rehearse does beside other work; "
             "then the CPU time is measured too."},
    {"place", 0, OPT_CHOICE, AT(place), .choices = places, .fallback = "out",
     .group = "Collectives", UNSEEN, .help = "Out of place, in place, or both."},
    {"begin", 'b', OPT_BYTES, AT(begin_bytes), .argument = "BYTES", .fallback = "8KiB",
     .group = "Collectives", .given_offset = offsetof(struct options, begin_given),
     .help = "Smallest payload: the total (gathered) array."},
    {"end", 'e', OPT_BYTES, AT(end_bytes), .argument = "BYTES", .fallback = "32MiB",
     .group = "Collectives", .given_offset = offsetof(struct options, end_given),
     .help = "Largest payload."},
    {"factor", 'f', OPT_DOUBLE, AT(factor), .argument = "X", .fallback = "4", .min = 1.01,
     .max = 1024, .group = "Collectives", UNSEEN,
     .help = "Next payload is this many times larger."},
    {"step", 'i', OPT_BYTES, AT(step_bytes), .argument = "BYTES", .group = "Collectives", UNSEEN,
     .help = "Next payload is this much larger, instead of --factor."},
    {"ranks", 0, OPT_COUNT, AT(ranks), .argument = "N", .group = "Collectives", .max = 4096,
     .min = 0, UNSEEN, .fallback = "0",
     .help = "Ranks to start on this machine when no launcher did; 0 = one per processor."},
    {"devices", 0, OPT_COUNT, AT(devices), .argument = "N", .group = "Collectives", UNSEEN,
     .fallback = "0", .help = "GPUs to use; 0 = all."},
    {"pairs", 0, OPT_FLAG, AT(pairs), .group = "Collectives", UNSEEN,
     .help = "Also a tournament of all pairs of ranks, and name the slow ones."},
    {"leave-one-out", 0, OPT_FLAG, AT(leave_one_out), .group = "Collectives", UNSEEN,
     .help = "Also the first collective without each node in turn, and name the slow one."},
    {.name = NULL},
};

const struct opt options_copy[] = {
    {"backend", 0, OPT_STRING, AT(backend), .argument = "NAME", .group = "Copies", UNSEEN,
     .help = "cuda or host; by default cuda where GPUs are, else host."},
    {"direction", 0, OPT_TEXTS, AT(directions), .argument = "NAME,...", .group = "Copies", UNSEEN,
     .help = "h2d, d2h, bidirectional, d2d, p2p on GPUs; h2h in host memory."},
    {"bytes", 'b', OPT_BYTES, AT(bytes), .argument = "BYTES", .fallback = "256MiB",
     .group = "Copies", .min = 1, .max = 0x1p50, UNSEEN, .help = "Bytes of one copy."},
    {"threads", 't', OPT_COUNT, AT(threads), .argument = "N", .group = "Copies", UNSEEN,
     .fallback = "0", .help = "Threads of host copies; 0 = 1, and one per processor."},
    {"devices", 0, OPT_COUNT, AT(devices), .argument = "N", .group = "Copies", UNSEEN,
     .fallback = "0", .help = "GPUs to use; 0 = all."},
    {.name = NULL},
};

const struct opt options_cuda[] = {
    {"direction", 0, OPT_TEXTS, AT(directions), .argument = "NAME,...", .group = "GPUs",
     .fallback = "h2d,d2h,bidirectional,d2d,p2p", UNSEEN,
     .help = "Copies: h2d, d2h, bidirectional, d2d (within a GPU), p2p (between them), none."},
    {"kernel", 0, OPT_TEXTS, AT(variants), .argument = "NAME,...", .group = "GPUs",
     .fallback = "memory,adam,cast,quantize,dequantize,fill,verify", UNSEEN,
     .help = "Kernels: memory (copy and triad), adam, cast, quantize, dequantize, fill, verify, "
             "none."},
    {"bytes", 'b', OPT_BYTES, AT(bytes), .argument = "BYTES", .fallback = "256MiB", .group = "GPUs",
     .min = 8192, .max = 0x1p50, UNSEEN,
     .help = "Bytes of one copy, and of an fp32 array of a kernel."},
    {"devices", 0, OPT_COUNT, AT(devices), .argument = "N", .group = "GPUs", UNSEEN,
     .fallback = "0", .help = "GPUs to use; 0 = all."},
    {.name = NULL},
};

const struct opt options_adam[] = {
    {"variant", 0, OPT_TEXTS, AT(variants), .argument = "NAME,...", .group = "Adam", UNSEEN,
     .help = "reference, scalar, avx2, avx512; by default the best this processor runs."},
    {"dtype", 'd', OPT_TEXTS, AT(dtypes), .argument = "NAME,...", .group = "Adam",
     .fallback = "fp32,bf16", UNSEEN,
     .help = "Gradients: fp32, or bf16 with a bf16 copy of the new parameters."},
    {"parameters", 0, OPT_COUNT, AT(parameters), .argument = "N", .group = "Adam", .fallback = "0",
     UNSEEN, .help = "Parameters; 0 = four times what the last-level cache holds."},
    {"threads", 't', OPT_COUNT, AT(threads), .argument = "N", .group = "Adam", UNSEEN,
     .fallback = "0", .help = "Threads, pinned; 0 = one per processor."},
    {.name = NULL},
};

const struct opt options_gemm[] = {
    {"backend", 0, OPT_STRING, AT(backend), .argument = "NAME", .group = "GEMM", UNSEEN,
     .help = "gemm (cuBLASLt) or host; by default gemm where GPUs are, else host."},
    {"shape", 0, OPT_TEXTS, AT(shapes), .argument = "MxNxK,...", .group = "GEMM", UNSEEN,
     .help = "Products to run; by default squares, or those of GRAPH.json."},
    {"dtype", 'd', OPT_TEXTS, AT(dtypes), .argument = "NAME,...", .group = "GEMM", UNSEEN,
     .help =
         "Types; by default bf16, fp16, fp32 and fp8 on GPUs (a graph's own), fp32 on the host."},
    {"threads", 't', OPT_COUNT, AT(threads), .argument = "N", .group = "GEMM", UNSEEN,
     .fallback = "0", .help = "Threads on the host; 0 = one per processor."},
    {"devices", 0, OPT_COUNT, AT(devices), .argument = "N", .group = "GEMM", UNSEEN,
     .fallback = "0", .help = "GPUs to use; 0 = all."},
    {.name = NULL},
};

const struct opt options_nvme[] = {
    {"folder", 0, OPT_STRING, AT(folder), .argument = "DIR", .fallback = ".", .group = "NVMe",
     UNSEEN, .help = "Where the test file goes; it is gone after any exit."},
    {"pattern", 0, OPT_TEXTS, AT(patterns), .argument = "NAME,...", .group = "NVMe",
     .fallback = "read,write,mixed,swap,swap_pipelined", UNSEEN,
     .help = "read, write, mixed, swap (16 bytes read and written per parameter), swap_pipelined."},
    {"block", 'b', OPT_TEXTS, AT(blocks), .argument = "BYTES,...", .group = "NVMe",
     .fallback = "1MiB", UNSEEN, .help = "Block sizes, multiples of 4 KiB."},
    {"depth", 0, OPT_TEXTS, AT(depths), .argument = "N,...", .group = "NVMe", .fallback = "16",
     UNSEEN, .help = "Requests in flight per job."},
    {"jobs", 'j', OPT_TEXTS, AT(jobs), .argument = "N,...", .group = "NVMe", .fallback = "1",
     UNSEEN, .help = "Threads, each with its own part of the file."},
    {"max-bytes", 0, OPT_BYTES, AT(max_bytes), .argument = "BYTES", .fallback = "1GiB",
     .group = "NVMe", UNSEEN,
     .help = "Largest test file; also at most a quarter of the free space."},
    {"settle", 0, OPT_SECONDS, AT(settle_s), .argument = "TIME", .fallback = "5s", .group = "NVMe",
     .given_offset = offsetof(struct options, settle_given),
     .help = "Of a point that runs twice this long, report the mean rate after it, without the "
             "first burst; when given, points run that long."},
    {"no-uring", 0, OPT_FLAG, AT(no_uring), .group = "NVMe", UNSEEN,
     .help = "Threads with pread and pwrite, as where the kernel refuses io_uring."},
    {.name = NULL},
};

const struct opt options_all[] = {
    {"folder", 0, OPT_STRING, AT(folder), .argument = "DIR", .fallback = ".", .group = "All",
     UNSEEN, .help = "Where the storage test file goes; it is gone after any exit."},
    {"max-bytes", 0, OPT_BYTES, AT(max_bytes), .argument = "BYTES", .fallback = "256MiB",
     .group = "All", UNSEEN,
     .help = "Largest storage test file; also at most a quarter of the free space."},
    {"ranks", 0, OPT_COUNT, AT(ranks), .argument = "N", .group = "All", .max = 4096, UNSEEN,
     .fallback = "0", .help = "MPI ranks to start where no GPU is; 0 = one per processor."},
    {.name = NULL},
};

const struct opt options_confirm[] = {
    {"plan-index", 0, OPT_COUNT, AT(plan_index), .argument = "N", .fallback = "0", .group = "Plan",
     .given_offset = offsetof(struct options, plan_given),
     .help = "Which of the document's plans; by default the recommended one."},
    {.name = NULL},
};

const struct opt options_graph[] = {
    {"scale-bytes", 0, OPT_BYTES, AT(scale_bytes), .argument = "BYTES", .fallback = "16MiB",
     .group = "Transfers", .min = 64, .max = 0x1p50,
     .given_offset = offsetof(struct options, scale_given),
     .help = "Largest payload of one call, 1 GiB between GPUs unless given; all payloads are "
             "scaled down by one factor."},
    {"backend", 0, OPT_STRING, AT(backend), .argument = "NAME", .group = "Transfers", UNSEEN,
     .help = "Collectives by nccl or mpi; by default nccl where several GPUs are, else mpi."},
    {"devices", 0, OPT_COUNT, AT(devices), .argument = "N", .group = "Transfers", UNSEEN,
     .fallback = "0", .help = "GPUs to use; 0 = all."},
    {"ranks", 0, OPT_COUNT, AT(ranks), .argument = "N", .group = "Transfers", .max = 4096, UNSEEN,
     .fallback = "0", .help = "Ranks to start here when no launcher did; 0 = one per processor."},
    {"folder", 0, OPT_STRING, AT(folder), .argument = "DIR", .fallback = ".", .group = "Transfers",
     UNSEEN, .help = "Where storage transfers go; the file is gone after any exit."},
    {"max-bytes", 0, OPT_BYTES, AT(max_bytes), .argument = "BYTES", .fallback = "256MiB",
     .group = "Transfers", UNSEEN, .help = "Largest storage test file."},
    {.name = NULL},
};

const struct opt options_rehearse[] = {
    {"backend", 0, OPT_STRING, AT(backend), .argument = "NAME", .group = "Rehearsal", UNSEEN,
     .help = "gpu (a GPU per rank) or mpi (this machine's cores); by default gpu where this "
             "process sees several GPUs."},
    {"ranks", 0, OPT_COUNT, AT(ranks), .argument = "N", .group = "Rehearsal", .max = 4096, UNSEEN,
     .fallback = "0", .help = "Ranks to start here when no launcher did; 0 = one per processor."},
    {"devices", 0, OPT_COUNT, AT(devices), .argument = "N", .group = "Rehearsal", UNSEEN,
     .fallback = "0", .help = "GPUs to use; 0 = all."},
    {"shrink", 0, OPT_DOUBLE, AT(shrink), .argument = "X", .fallback = "1", .min = 1e-9, .max = 1,
     .group = "Rehearsal", UNSEEN, .help = "Factor on all bytes and durations."},
    {"folder", 0, OPT_STRING, AT(folder), .argument = "DIR", .fallback = ".", .group = "Rehearsal",
     UNSEEN, .help = "Where storage tasks go; the file is gone after any exit."},
    {"trace", 0, OPT_STRING, AT(trace), .argument = "FILE", .group = "Rehearsal", UNSEEN,
     .help = "The median step as it ran beside the simulated one, for Perfetto."},
    {.name = NULL},
};
