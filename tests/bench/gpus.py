# SPDX-License-Identifier: Apache-2.0
"""NCCL and cuBLASLt on virtual GPUs, one case per run: gpus.py SHARDBENCH SHARDPLAN NVML NAME.
SHARDBENCH is linked against the doubles of tests/fakegpu, NVML is their libnvidia-ml.so.1."""
import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

BENCH, PLAN, NVML = sys.argv[1:4]
FAST = ["--force", "--budget", "1ms", "-n", "2", "--max-iterations", "20"]


def start(arguments, gpus, faults="", **more):
    env = dict(os.environ, ASAN_OPTIONS="detect_leaks=0", FAKEGPU_DEVICES=str(gpus),
               FAKEGPU_FAULTS=faults, **more)
    return subprocess.run([BENCH] + arguments[:1] + FAST + arguments[1:], capture_output=True,
                          text=True, timeout=100, env=env)


def results(arguments, gpus, faults="", status=0, **more):
    done = start(arguments + ["--json", "-"], gpus, faults, **more)
    assert done.returncode == status, (done.returncode, done.stderr)
    return json.loads(done.stdout)["results"], done.stderr


def fails(arguments, gpus, faults, words, status=4, limit_s=20, **more):
    before = time.time()
    done = start(arguments, gpus, faults, **more)
    assert done.returncode == status, (done.returncode, done.stderr)
    assert words in done.stderr, done.stderr
    assert time.time() - before < limit_s
    return done


MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256,
         "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
         "torch_dtype": "bfloat16", "hidden_act": "silu"}
SWEEP = ["nccl", "-b", "60KiB", "-e", "60KiB"]
ALL = ["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "send_recv"]


def factor(kind, n):
    if kind == "all_reduce":
        return 2 * (n - 1) / n
    return (n - 1) / n if kind in ("all_gather", "reduce_scatter", "all_to_all") else 1


def collectives():
    for gpus in range(1, 9):
        rows, _ = results(SWEEP + ["--op", ",".join(ALL), "-d", "bf16,fp32", "--place", "both"], gpus)
        # the neighbours' exchange and the broadcast have no place of their own
        assert len(rows) == 2 * (4 * 2 + 2), len(rows)
        for r in rows:
            assert r["backend"] == "nccl" and r["errors"] == 0 and r["ranks"] == gpus, r
            bus = r["algbw_bytes_per_s"] * factor(r["kind"], gpus)
            assert abs(r["busbw_bytes_per_s"] - bus) <= 1e-6 * bus, r
            assert r["software"].startswith("NCCL "), r
            if r["kind"] in ALL[:3]:
                assert r["protocol"] == "ring/ll", r
    rows, _ = results(SWEEP + ["--op", "all_to_all,all_reduce", "-d", "fp16,int8"], 4)
    assert len(rows) == 4 and all(r["errors"] == 0 for r in rows)


def forced():
    rows, _ = results(SWEEP, 2, NCCL_DEBUG="WARN", NCCL_ALGO="NVLS", NCCL_PROTO="Simple")
    assert all(r["protocol"] == "nvls/simple" for r in rows)
    rows, _ = results(SWEEP, 2, NCCL_DEBUG="WARN")
    assert all(r.get("protocol") is None and "NCCL_DEBUG" in r["note"] for r in rows)


def ranks():
    rows, _ = results(SWEEP + ["--ranks", "3", "-d", "bf16,fp32"], 3)
    assert len(rows) == 6 and all(r["errors"] == 0 and r["ranks"] == 3 for r in rows), rows
    fails(SWEEP + ["--ranks", "3"], 2, "", "one GPU per rank")


def chosen():
    """Several GPUs are taken before ranks on the host; one has nobody to exchange with."""
    rows, _ = results(["collectives"] + SWEEP[1:], 2)
    assert {r["backend"] for r in rows} == {"nccl"}
    fails(["collectives", "--backend", "nccl"], 0, "", "no usable GPU")
    fails(SWEEP, 0, "", "no usable GPU")
    fails(SWEEP + ["--devices", "4"], 2, "", "4 GPUs wanted, 2 here")


def tournament():
    """The slow one is named in the first run, and nobody else, however busy this machine is."""
    def named(faults):
        _, notes = results(["nccl", "-b", "64KiB", "-e", "64KiB", "--op", "all_gather", "--pairs",
                            "--leave-one-out", "-n", "5"], 4, faults, FAKENCCL_RATE="4e6")
        return [line for line in notes.splitlines() if "slow" in line]
    for faults, words in (("", "no slow link or node"),
                          ("nccl_slow:2:3", "rank 2 is slow with every partner"),
                          ("nccl_link:1:3", "link between ranks 1 and 3")):
        lines = named(faults)
        assert len(lines) == 1 and words in lines[0], (faults, lines)


def error():
    done = fails(SWEEP, 3, "nccl_error:1:4", "injected: connection closed by peer")
    assert "all_gather on GPU 1" in done.stderr, done.stderr


def error_of_a_rank():
    fails(SWEEP + ["--ranks", "3"], 3, "nccl_error:1:4", "injected: connection closed by peer")


def kept():
    """What was finished before a fault stays in the file."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "r.jsonl")
        fails(["nccl", "-b", "60KiB", "-e", "600KiB", "-f", "1.06", "--op", "all_gather", "--out", out],
              6, "nccl_error:0:150", "injected")
        lines = open(out).read().splitlines()
        assert 2 <= len(lines) < 41 and all(json.loads(line) for line in lines), lines


def hang():
    fails(SWEEP + ["--timeout", "1s"], 3, "nccl_hang:2:5", "all_gather did not finish within 1 s")


def interrupted():
    """A signal ends a run whose GPU hangs, its table is printed and its finished points are kept; of ranks too."""
    for arguments, faults in ([[], "nccl_hang:2:90"], [["--ranks", "2"], "nccl_hang:1:90"]):
        for number in (signal.SIGTERM, signal.SIGINT):
            with tempfile.TemporaryDirectory() as folder:
                out = os.path.join(folder, "r.jsonl")
                env = dict(os.environ, ASAN_OPTIONS="detect_leaks=0", FAKEGPU_DEVICES="3", FAKEGPU_FAULTS=faults)
                process = subprocess.Popen([BENCH] + SWEEP + FAST + arguments + ["-d", "bf16,fp16,fp32", "--out", out],
                                           env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                lines, seen, limit = 0, -1, time.time() + 60
                while (lines < 2 or lines != seen) and time.time() < limit:  # until nothing moves any more
                    seen = lines
                    time.sleep(1)
                    lines = len(open(out).read().splitlines()) if os.path.exists(out) else 0
                assert process.poll() is None, process.communicate()
                before = time.time()
                process.send_signal(number)
                text, err = process.communicate(timeout=60)
                assert process.returncode == 130, (process.returncode, err)
                assert time.time() - before < 5, time.time() - before
                assert "interrupted" in err and text.count("nccl") == lines - 1 >= 1, (lines, text, err)


def hung_stream():
    fails(SWEEP + ["--timeout", "1s"], 3, "hang:1:40", "did not finish within 1 s")


def hung_start():
    fails(SWEEP + ["--timeout", "1s"], 3, "nccl_init_hang:1:1", "ncclCommInitRankConfig: silent for 1 s")


def failed_start():
    fails(SWEEP, 3, "nccl_init:1:2", "GPU 1: unhandled system error")


def failed_kernel():
    fails(SWEEP, 2, "async:1:40", "unspecified launch failure")


def out_of_memory():
    rows, notes = results(["nccl", "-b", "60KiB", "-e", "3840KiB", "-f", "64", "--op", "all_reduce"], 2,
                          FAKEGPU_MEMORY="1000000")
    assert len(rows) == 1 and "no GPU memory" in notes, notes


def slow_gpu():
    rows, _ = results(SWEEP, 2, "slow:1:3")
    assert len(rows) == 3 and all(r["errors"] == 0 for r in rows)


def wrong():
    rows, notes = results(SWEEP + ["--op", "all_gather"], 2, "nccl_wrong:1:1", status=1)
    assert rows[0]["errors"] == 1 and "arrived wrong" in notes, notes


def duplicate():
    fails(SWEEP + ["--ranks", "2"], 1, "", "one GPU per rank")


def confirm(document, arguments, gpus):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.json")
        with open(path, "w") as f:
            json.dump(document, f)
        done = start(["confirm", path, "--json", "-"] + arguments, gpus,
                     LD_LIBRARY_PATH=os.path.dirname(NVML))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def transfer(kind, payload, group="world", size=4):
    return {"phase": "step", "kind": kind, "what": "x", "dtype": "bf16", "group": group,
            "group_size": size, "count": 2, "payload_bytes": payload, "sent_bytes": 0,
            "link": "intra_node"}


def plan(*transfers):
    return {"schema": "shardplan.plan/1", "model": {"name": "m", "parameters": 2**20},
            "plans": [{"strategy": "s", "volume": {"transfers": list(transfers)}}]}


def planned_bytes():
    """NVLink's counters see what the plan says: 3 : 2 between ZeRO-3 and DDP, groups included."""
    psi = 2 * 2**20
    zero3 = confirm(plan(transfer("all_gather", psi), transfer("all_gather", psi),
                         transfer("reduce_scatter", psi)), [], 4)
    ddp = confirm(plan(transfer("all_reduce", psi)), [], 4)
    for document in (zero3, ddp):
        assert document["ranks"] == 4 and document["scale"] == 1
        for t in document["transfers"]:
            assert t["backend"] == "nccl" and t["errors"] == 0, t
            assert abs(t["ratio_bytes"] - 1) < 0.002, t
    ratio = zero3["totals"]["measured_bytes"] / ddp["totals"]["measured_bytes"]
    assert abs(ratio - 1.5) < 0.01, ratio
    groups = confirm(plan(transfer("reduce_scatter", psi, "shard", 2),
                          transfer("all_reduce", psi, "replica", 2)), [], 4)
    assert all(abs(t["ratio_bytes"] - 1) < 0.002 for t in groups["transfers"]), groups
    uncounted = confirm(plan(transfer("all_reduce", psi)), ["--ranks", "4", "--backend", "mpi"], 4)
    assert uncounted["transfers"][0]["backend"] == "mpi"


def graph():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.json")
        subprocess.run([PLAN, "simulate", "gpt2", "4xA100-80GB", "--strategy", "zero3", "--seq", "128",
                        "--graph", path], check=True, capture_output=True, timeout=100)
        with open(path) as f:
            step = json.load(f)
        kept = [t for t in step["tasks"] if t["kind"] == "collective"]
        step["tasks"] = [dict(t, id=i, deps=[]) for i, t in enumerate(kept)]
        with open(path, "w") as f:
            json.dump(step, f)
        done = start(["graph", path, "--json", "-", "--scale-bytes", "64KiB"], 4)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        moved = [t for t in document["transfers"] if t["backend"] == "nccl"]
        assert {"all_gather", "reduce_scatter"} <= {t["kind"] for t in moved}, moved
        assert all(t["status"] == "measured" and t["errors"] == 0 for t in moved)
        assert document["ranks"] == 4
        done = start(["graph", path], 2)
        assert done.returncode == 4 and "here are 2" in done.stderr, done.stderr


def messages():
    """The message list of a graph runs as it is: each kind, type and size, as often as the step sends it."""
    with tempfile.TemporaryDirectory() as folder:
        model, path = os.path.join(folder, "config.json"), os.path.join(folder, "step.json")
        with open(model, "w") as f:
            json.dump(MODEL, f)
        for strategy in ("zero3", "fsdp2", "ddp"):
            subprocess.run([PLAN, "simulate", model, "dgx-a100", "--gpus", "4", "--strategy", strategy, "--seq", "32",
                            "--graph", path], check=True, capture_output=True, timeout=100)
            with open(path) as f:
                tasks = [t for t in json.load(f)["tasks"] if t["kind"] == "collective"]
            least = 16  # an element for each rank
            wanted = collections.Counter((t["collective"], t["dtype"], max(t["bytes"], least)) for t in tasks)
            done = start(["graph", path, "--json", "-"], 4)
            assert done.returncode == 0, done.stderr
            sent = collections.Counter()
            for t in json.loads(done.stdout)["transfers"]:
                if t["backend"] == "nccl":
                    assert t["errors"] == 0 and t["status"] == "measured", t
                    sent[t["kind"], t["dtype"], t["run_payload_bytes"]] += t["count"]
            assert sent == wanted, (strategy, sent, wanted)


def gemm():
    rows, _ = results(["gemm", "--shape", "64x48x32,96x96x96", "-d", "bf16,fp16,fp32,tf32,fp8"], 1)
    assert len(rows) == 10, len(rows)
    for r in rows:
        assert r["backend"] == "gemm" and r["errors"] == 0 and r["software"].startswith("cuBLASLt "), r
        flop = 2 * r["m"] * r["n"] * r["k"] / r["median_s"]
        assert abs(r["flop_per_s"] / flop - 1) < 1e-6, r
    # deep enough for sums that a rounding in between would spoil
    rows, _ = results(["gemm", "--shape", "4x4x262144", "-d", "bf16"], 1)
    assert [r["errors"] for r in rows] == [0], rows


def gemm_left_out():
    """A type or shape that the GPU has no algorithm for is named and passed over."""
    rows, notes = results(["gemm", "--shape", "24x24x24", "-d", "bf16,fp8"], 1)
    assert [r["dtype"] for r in rows] == ["bf16"] and "no algorithm for fp8 24x24x24" in notes, notes
    cuda_fp8 = 28
    rows, notes = results(["gemm", "--shape", "32x32x32", "-d", "bf16,fp8"], 1,
                          f"gemm_unsupported:{cuda_fp8}:1")
    assert len(rows) == 1 and "no algorithm for fp8" in notes, notes
    rows, notes = results(["gemm", "--shape", "64x64x64,4096x4096x64", "-d", "bf16"], 1,
                          FAKEGPU_MEMORY="34000000")
    assert len(rows) == 1 and "no GPU memory for the matrices" in notes, notes


def gemm_faults():
    shape = ["gemm", "--shape", "64x48x32", "-d", "bf16"]
    rows, _ = results(shape, 1, "gemm_wrong:0:1", status=1)
    assert rows[0]["errors"] > 0, rows
    fails(shape + ["--timeout", "1s"], 1, "hang:0:30", "did not finish within 1 s")
    fails(shape + ["--timeout", "1s"], 1, "hang:0:290", "did not finish within 1 s")
    fails(shape, 1, "async:0:30", "unspecified launch failure")
    fails(shape + ["--backend", "gemm"], 0, "", "no usable GPU")


def gemm_graph():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.json")
        shapes = [{"m": 64, "n": 32, "k": 48, "count": 3, "dtype": "bf16"},
                  {"m": 64, "n": 32, "k": 48, "count": 1, "dtype": "bf16"},
                  {"m": 32, "n": 64, "k": 48, "count": 1, "dtype": "fp16"}]
        subprocess.run([PLAN, "simulate", "gpt2", "1xA100-80GB", "--strategy", "ddp", "--seq", "64",
                        "--graph", path], check=True, capture_output=True, timeout=100)
        with open(path) as f:
            step = json.load(f)
        products = [t for t in step["tasks"] if t.get("shapes")]
        assert products, "a step has products"
        step["tasks"] = [dict(products[0], id=0, deps=[], shapes=shapes)]
        with open(path, "w") as f:
            json.dump(step, f)
        rows, _ = results(["gemm", path], 1)
        assert [(r["m"], r["dtype"]) for r in rows] == [(64, "bf16"), (32, "fp16")], rows
        done = start(["graph", path, "--ranks", "1", "--json", "-"], 1)
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)["transfers"]
        assert [(t["backend"], t["count"]) for t in rows] == [("gemm", 4), ("gemm", 1)], rows


globals()[sys.argv[4]]()
print("ok")
