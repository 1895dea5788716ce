# SPDX-License-Identifier: Apache-2.0
"""Result files made by the programs themselves, for the tests of the report.

    commands.make(FOLDER, SHARDPLAN, SHARDBENCH, SHARDBENCH_FAKEGPU) -> names of FOLDER/NAME.json

Every command that writes a result is among them; measurements only with SHARDBENCH, of MPI where it is
installed, of GPUs with the program that is linked with their double.
"""

import json
import os
import random
import shutil
import subprocess
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
IMPORTS = os.path.join(ROOT, "tests", "fixtures", "import")
VALIDATION = os.path.join(ROOT, "tests", "fixtures", "validation")
MIB = 1 << 20
FAST = ["--force", "--quiet", "--budget", "2ms", "-n", "3", "--max-iterations", "20"]
SMALL_MODEL = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 352,
             "num_attention_heads": 4, "vocab_size": 512}


class Maker:
    def __init__(self, folder, shardplan, shardbench, fakegpu):
        self.folder, self.shardplan, self.shardbench = folder, shardplan, shardbench
        self.fakegpu = fakegpu
        self.names = []

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, document):
        with open(self.path(name), "w", encoding="utf-8") as f:
            json.dump(document, f)
        return self.path(name)

    def run(self, name, program, words, **env):
        """NAME.json from the command, which may answer no (1) or that something is missing (4)."""
        where = {k: v for k, v in os.environ.items() if not k.startswith("FAKE")}
        where.update(env, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                     ASAN_OPTIONS="detect_leaks=0")
        out = self.path(name + ".json")
        began = time.time()
        done = subprocess.run([program, *words, "--json", out], cwd=self.folder, env=where, text=True,
                              capture_output=True, timeout=120)
        if done.returncode not in (0, 1, 4) or not os.path.exists(out):
            raise RuntimeError(f"{name}: {words}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        self.names.append(name)
        if os.environ.get("REPORT_TIMES"):
            print(f"{name}: {time.time() - began:.1f} s")
        return out

    def plan(self, name, *words):
        return self.run(name, self.shardplan, words)

    def bench(self, name, *words):
        return self.run(name, self.shardbench, [*words, *FAST])

    def gpu(self, name, *words, devices=2, **faults):
        env = {"FAKE" + k.upper(): v for k, v in faults.items()}
        return self.run(name, self.fakegpu, [*words, *FAST], FAKEGPU_DEVICES=str(devices),
                        CUDA_VISIBLE_DEVICES="", **env)


def predictions(m):
    m.plan("plan", "plan", "llama-3-8b", "dgx-h100", "--nodes", "2", "--tokens", "1e9")
    m.plan("plan-nothing-fits", "plan", "llama-3-70b", "8xA100-40GB", "--strategy", "ddp,zero1")
    m.plan("simulate", "simulate", "llama-3-8b", "dgx-h100", "--nodes", "2", "--strategy", "fsdp2",
           "--graph", "graph.graph")
    m.plan("simulate-offload", "simulate", "llama-3.2-1b", "dgx-a100", "--strategy", "zero3",
           "--offload-optimizer", "nvme", "--jitter", "0.03")
    m.plan("simulate-compared", "simulate", "llama-3.2-1b", "dgx-a100", "--strategy", "fsdp2",
           "--compare-trace", os.path.join(IMPORTS, "kineto_2steps.json"),
           "--compare-memory", os.path.join(IMPORTS, "memory_snapshot.json"))
    m.plan("advise", "advise", "llama-3.2-1b", "dgx-a100", "--nodes", "2")
    m.plan("sweep", "sweep", "llama-3.2-1b", "dgx-a100", "--strategy", "fsdp2", "--range",
           "precision=bf16-mixed")


def judgements(m):
    m.plan("validate", "validate", os.path.join(VALIDATION, "runs.json"), "--rows")
    m.plan("validate-collectives", "validate", "--collectives",
           os.path.join(VALIDATION, "collectives.json"), "--rows")
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
              "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_sise": 5e8,
                                    "offload_optimizer": {"device": "nvme", "nvme_path": "/data",
                                                          "buffer_count": 2}}}
    m.plan("check", "check", m.write("ds.config", config), "--model", "llama-2-7b", "--cluster",
           "dgx-a100")
    m.plan("explain", "explain", os.path.join(ROOT, "tests/fixtures/deepspeed_log_lines.txt"),
           "--model", "llama-2-7b")
    m.plan("emit", "emit", "deepspeed", "llama-3-8b", "dgx-h100")
    m.plan("catalog-list", "catalog", "list")
    m.plan("catalog-model", "catalog", "show", "llama-3-8b")
    m.plan("catalog-gpu", "catalog", "show", "h100-sxm5-80gb")
    m.plan("topology", "catalog", "import", os.path.join(IMPORTS, "topo_05_4xRTX6000Ada_4nic_NODE_SYS.txt"))
    m.plan("profile", "catalog", "import", os.path.join(IMPORTS, "kineto_2steps.json"))
    m.plan("snapshot", "catalog", "import", os.path.join(IMPORTS, "memory_snapshot.json"))
    m.plan("imported", "catalog", "import", os.path.join(IMPORTS, "nccl_09_all_reduce_16xH100_GOOD.txt"))


def measured(rng, kind, seconds, **more):
    """A result as bench writes it, of invented seconds."""
    seconds *= 1 + rng.gauss(0, 0.01)
    n, payload = more["ranks"], more["payload_bytes"]
    factor = {"all_reduce": 2 * (n - 1) / n, "send_recv": 1}.get(kind, (n - 1) / n)
    return {"kind": kind, "backend": "nccl", "median_s": seconds, "min_s": seconds, "max_s": 1.2 * seconds,
            "p05_s": 0.97 * seconds, "p95_s": 1.1 * seconds, "iterations": 20, "errors": 0, "dtype": "bf16",
            "algbw_bytes_per_s": payload / seconds, "busbw_bytes_per_s": payload / seconds * factor, **more}


def machines(nodes, slow=None, seed=1):
    """Measurements of that many 8-GPU nodes; every exchange of node `slow` at a quarter of the rate."""
    rng = random.Random(seed)
    rows = []
    for kind in ("all_gather", "reduce_scatter"):
        for e in range(16, 34):
            payload = 1 << e
            rows.append(measured(rng, kind, 40e-6 + payload * 7 / 8 / 3.2e11, payload_bytes=payload, ranks=8,
                                 nodes=1, scope="intra_node"))
            n = 8 * nodes
            rate = 4.2e10 * 8 / (4 if slow is not None else 1)
            rows.append(measured(rng, kind, 90e-6 + payload * (n - 1) / n / rate, payload_bytes=payload, ranks=n,
                                 nodes=nodes, scope="inter_node"))
    for a in range(nodes):
        for b in range(a + 1, nodes):
            rate = 4.4e10 / (4 if slow in (a, b) else 1)
            rows.append(measured(rng, "send_recv", 64 * MIB / rate, payload_bytes=64 * MIB, ranks=2, nodes=2,
                                 group=f"{a},{b}", scope="inter_node"))
    rows.append({"kind": "nvme", "backend": "nvme", "direction": "read", "median_s": 1e-3, "errors": 0,
                 "algbw_bytes_per_s": 2.1e10})
    return {"schema": "shardplan.measurement/1", "host": {"name": "node00", "gpus": 8},
            "build": {"type": "release"}, "results": rows}


def verdicts(m):
    healthy = m.write("healthy.measured", machines(4))
    slow = m.write("slow.measured", machines(4, slow=2, seed=2))
    m.plan("fit", "fit", healthy, "--cluster", "dgx-h100", "-o", "fitted.cluster")
    m.plan("accept", "accept", healthy, "--cluster", "dgx-h100", "--allow-waived")
    m.plan("accept-slow-node", "accept", slow, "--cluster", "dgx-h100", "--baseline", healthy)
    shutil.copy(slow, m.path("measurement-slow-node.json"))
    shutil.copy(m.path("fitted.cluster"), m.path("cluster.json"))
    m.names += ["measurement-slow-node", "cluster"]


def benches(m):
    m.bench("bench-adam", "adam", "--parameters", "1000000")
    m.bench("bench-gemm", "gemm", "--shape", "64x64x64,128x256x64")
    m.bench("bench-copy", "copy", "--bytes", "1MiB")
    m.bench("bench-nvme", "nvme", "--folder", m.folder, "--max-bytes", "32MiB")
    m.bench("bench-null", "collectives", "--backend", "null")
    if shutil.which("mpirun") is None:
        return
    m.bench("bench-mpi", "collectives", "--ranks", "2", "-b", "4KiB", "-e", "1MiB")
    m.plan("confirm", "confirm", "llama-3.2-1b", "dgx-a100", "--strategy", "zero3", "--gpus", "2", "--ranks",
           "2", "--scale-bytes", "64KiB", "--force", "--quiet")
    m.plan("confirm-offload", "confirm", "llama-3.2-1b", "dgx-a100", "--strategy", "zero2", "--gpus", "2",
           "--ranks", "2", "--offload-optimizer", "cpu", "--scale-bytes", "64KiB", "--force", "--quiet")
    model = m.write("small.model", SMALL_MODEL)
    m.plan("simulate-small", "simulate", model, "dgx-a100", "--gpus", "2", "--strategy", "fsdp2", "--seq", "128",
           "--graph", "small.graph")
    m.bench("rehearse", "rehearse", m.path("small.graph"), "--ranks", "2", "--shrink", "0.1")


def gpus(m):
    m.gpu("bench-cuda", "cuda", "--bytes", "64KiB")
    m.gpu("bench-nccl", "nccl", "-b", "16KiB", "-e", "1MiB", "--pairs", "--leave-one-out", devices=4)
    m.gpu("bench-slow-gpu", "nccl", "-b", "60KiB", "-e", "60KiB", "--op", "all_gather", "--pairs",
          "--leave-one-out", devices=4, nccl_rate="4e6", gpu_faults="nccl_slow:2:8")
    if os.path.exists(m.path("small.graph")):
        m.gpu("rehearse-gpu", "rehearse", m.path("small.graph"), "--shrink", "0.01")


def make(folder, shardplan, shardbench=None, fakegpu=None):
    os.makedirs(folder, exist_ok=True)
    programs = [os.path.abspath(p) if p else None for p in (shardplan, shardbench, fakegpu)]
    m = Maker(folder, *programs)
    for part in (predictions, judgements, verdicts):
        part(m)
    if m.shardbench:
        benches(m)
    if m.fakegpu:
        gpus(m)
    return m.names
