# SPDX-License-Identifier: Apache-2.0
"""The CUDA backend on virtual GPUs (tests/fakegpu): cuda.py SHARDBENCH-FAKEGPU SHARDBENCH NAME."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

FAKE, REAL = map(os.path.abspath, sys.argv[1:3])
SHORT = ["--force", "--budget", "0.02s", "-n", "3", "--bytes", "64KiB"]
KERNELS = 12  # points of one GPU


def run(arguments, status=0, program=None, **settings):
    env = {k: v for k, v in os.environ.items() if not k.startswith("FAKEGPU_")}
    env.update({"FAKEGPU_" + k.upper(): str(v) for k, v in settings.items()})
    env["CUDA_VISIBLE_DEVICES"] = ""  # for the real runtime: this is no test of this machine
    env["ASAN_OPTIONS"] = "detect_leaks=0"  # what hangs is left behind
    start = time.time()
    done = subprocess.run([program or FAKE, "cuda"] + arguments + SHORT, env=env, text=True,
                          capture_output=True, timeout=100)
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done, time.time() - start


def results(arguments, status=0, **settings):
    done, _ = run(arguments + ["--json", "-"], status, **settings)
    return json.loads(done.stdout)["results"]


def only(rows, **want):
    found = [r for r in rows if all(r.get(k) == v for k, v in want.items())]
    assert found, (want, rows)
    return found


def every_point(_):
    """1 to 8 GPUs: each alone, all at once, every pair; nothing arrives wrong, nothing is left."""
    for n in (1, 3, 8):
        done, _ = run(["--json", "-"], devices=n, report=1)
        assert "0 allocations, 0 streams, 0 events left" in done.stderr, done.stderr
        rows = json.loads(done.stdout)["results"]
        assert all(r["errors"] == 0 and r["backend"] == "cuda" for r in rows)
        assert len([r for r in rows if r.get("direction") == "p2p"]) == n * (n - 1) + (n > 1)
        for direction in ("h2d", "d2h"):
            one = only(rows, direction=direction, algorithm="pinned", concurrent=False)
            assert len(one) == n
            if n > 1:
                together = only(rows, direction=direction, concurrent=True)
                (all_at_once,) = [r for r in together if "group" not in r]
                assert all_at_once["payload_bytes"] == n * 65536 and all_at_once["ranks"] == n
                assert sorted(r["group"] for r in together if "group" in r) == [
                    f"gpu {i}" for i in range(n)]
        only(rows, direction="h2d", algorithm="pageable")
        assert len([r for r in rows if r["kind"] != "copy"]) == KERNELS + 2 * (n - 1)
        (triad,) = only(rows, kind="memory", algorithm="triad")[:1]
        assert triad["payload_bytes"] == 12 * 16384


def interrupted(folder):
    """A signal ends a run within seconds, also one inside a call that never returns; what was finished is kept."""
    for number in (signal.SIGTERM, signal.SIGINT):
        out = os.path.join(folder, f"{number}.jsonl")
        env = dict(os.environ, FAKEGPU_FAULTS="stuck:gpu_adam:1", ASAN_OPTIONS="detect_leaks=0")
        process = subprocess.Popen([FAKE, "cuda", "--direction", "h2d", "--out", out] + SHORT, env=env, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        lines, limit = [], time.time() + 60
        while len(lines) < 5 and time.time() < limit:  # two copies, triad and copy
            time.sleep(0.2)
            lines = open(out).read().splitlines() if os.path.exists(out) else []
        time.sleep(0.5)
        assert process.poll() is None, process.communicate()
        before = time.time()
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130 and "interrupted" in err, (process.returncode, err)
        assert time.time() - before < 4, time.time() - before
        assert len([json.loads(line) for line in open(out).read().splitlines()]) == 5


def no_driver(_):
    for program in (FAKE, REAL):
        done, _ = run([], 4, program, devices=0)
        assert "no usable GPU" in done.stderr, done.stderr


def call_fails(folder):
    """Finished points are kept."""
    out = os.path.join(folder, "r.jsonl")
    done, _ = run(["--direction", "h2d", "--out", out], 4, faults="error:gpu_adam:1")
    assert "adam: unspecified launch failure" in done.stderr, done.stderr
    kinds = [json.loads(line)["kind"] for line in open(out).read().splitlines()[1:]]
    assert kinds == ["copy", "copy", "memory", "memory"], kinds
    run(["--direction", "h2d", "--out", out, "--resume"])
    lines = open(out).read().splitlines()
    assert len(lines) == 1 + 2 + KERNELS
    run(["--direction", "h2d", "--out", out, "--resume"])
    assert open(out).read().splitlines() == lines


def work_fails(_):
    done, _ = run(["--devices", "2"], 4, devices=2, faults="async:1:30")
    assert "unspecified launch failure" in done.stderr, done.stderr


def hang(_):
    done, took = run(["--timeout", "1s"], 4, faults="hang:0:30")
    assert "did not finish within 1 s" in done.stderr, done.stderr
    assert took < 30, took


def out_of_memory(_):
    """What does not fit is left out and said; the rest is measured."""
    done, _ = run(["--json", "-"], memory=150000)
    rows = json.loads(done.stdout)["results"]
    assert len(only(rows, kind="copy")) == 6
    assert not [r for r in rows if r["kind"] == "adam"]
    assert "adam of 458752 bytes left out: cudaMalloc" in done.stderr, done.stderr
    run([], 4, memory=1000)


def wrong_contents(_):
    rows = results(["--direction", "h2d", "--kernel", "none"], 1, faults="wrong:0:1")
    assert rows[0]["errors"] == 1 and rows[0]["algorithm"] == "pinned"
    assert rows[1]["errors"] == 0


def slow_device(_):
    rows = results(["--direction", "h2d", "--kernel", "memory"], devices=3, faults="slow:1:40")
    for want in ({"direction": "h2d", "concurrent": True}, {"algorithm": "triad"}):
        rate = {r["group"]: r["algbw_bytes_per_s"] for r in only(rows, **want) if "group" in r}
        assert max(rate, key=rate.get) != "gpu 1" and min(rate, key=rate.get) == "gpu 1", rate


def no_peers(_):
    rows = results(["--direction", "p2p", "--kernel", "none"], devices=2, peers=0)
    assert all(r["note"] == "no peer access: through host memory" for r in rows)


def storage(folder, status, **settings):
    """`nvme` with GPU memory at the other end; the folder must be empty afterwards."""
    env = dict(os.environ, ASAN_OPTIONS="detect_leaks=0")
    env.update({"FAKEGPU_" + k.upper(): str(v) for k, v in settings.items() if k != "path"})
    if "path" in settings:
        env["LD_LIBRARY_PATH"] = settings["path"]
    done = subprocess.run([FAKE, "nvme", "--folder", folder, "--max-bytes", "32MiB", "--pattern", "read,write",
                           "--block", "64KiB", "--depth", "4", "--json", "-"] + SHORT[:-2], env=env, text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert os.listdir(folder) == []
    return json.loads(done.stdout)["results"], done.stderr


def cufile(folder):
    path = os.path.dirname(FAKE)
    rows, _ = storage(folder, 0, path=path)
    direct = only(rows, backend="cufile")
    assert [r["direction"] for r in direct] == ["read", "write"]
    assert all(r["errors"] == 0 and r["protocol"] == "gds" for r in direct)
    for settings, why in (({}, "cufile waived: GPUDirect Storage: libcufile.so.0"),
                          ({"devices": 0}, "cufile waived: no usable GPU"),
                          ({"path": path, "cufile": "closed"}, "cuFileDriverOpen: cuFile error 5001"),
                          ({"path": path, "cufile": "eio"}, "Input/output error")):
        rows, said = storage(folder, 0, **settings)
        assert why in said, said
        assert len(rows) == 2 and all(r["backend"] == "nvme" for r in rows)


MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256,
         "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
         "torch_dtype": "bfloat16", "hidden_act": "silu"}


def plan(folder, gpus, *recipe):
    """A small model's plan and the graph of its step."""
    model, graph, planned = (os.path.join(folder, n) for n in ("config.json", "graph.json", "plan.json"))
    with open(model, "w") as f:
        json.dump(MODEL, f)
    for command, more in (("plan", ["--json", planned]), ("simulate", ["--graph", graph])):
        subprocess.run([os.environ["SHARDPLAN_PROGRAM"], command, model, "dgx-a100", "--gpus", str(gpus), "--seq",
                        "32", "--quiet", *recipe, *more], check=True, capture_output=True)
    return graph, planned


def bench(command, path, status=0, **settings):
    env = dict(os.environ, ASAN_OPTIONS="detect_leaks=0")
    env.update({"FAKEGPU_" + k.upper(): str(v) for k, v in settings.items()})
    done = subprocess.run([FAKE, command[0], path, *command[1:], "--force", "--json", "-"], env=env, text=True,
                          capture_output=True, timeout=100, cwd=os.path.dirname(path))
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout) if status == 0 else done.stderr


def as_planned(out, planned, gpus):
    transfers = json.load(open(planned))["plans"][0]["volume"]["transfers"]
    for rank in range(gpus):
        for key in {(t["kind"], t["dtype"]) for t in transfers}:
            for what in ("payload_bytes", "sent_bytes"):
                want = sum(t[what] for t in transfers if (t["kind"], t["dtype"]) == key)
                got = sum(c[what] for c in out["collectives"]
                          if c["rank"] == rank and (c["kind"], c["dtype"]) == key)
                assert got == want, (rank, key, what, got, want)
    assert {(c["kind"], c["dtype"]) for c in out["collectives"]} == {(t["kind"], t["dtype"]) for t in transfers}
    assert out["ranks"] == gpus and out["step"]["measured_s"] > 0 and len(out["tasks"]) > 20


def rehearse(folder):
    """On 4 GPUs every rank hands NCCL exactly the bytes of the plan, for each kind and type."""
    for recipe in (["ddp"], ["zero2"], ["zero3"], ["fsdp1"], ["fsdp2"], ["hsdp", "--shard-group", "2"]):
        graph, planned = plan(folder, 4, "--strategy", *recipe)
        as_planned(bench(["rehearse"], graph, devices=4), planned, 4)


def rehearse_ranks(folder):
    """The same with a process for each GPU; a rank that fails ends the others."""
    for gpus, recipe in ((2, ["fsdp2"]), (2, ["zero2"]), (4, ["hsdp", "--shard-group", "2"])):
        graph, planned = plan(folder, gpus, "--strategy", *recipe)
        out = bench(["rehearse", "--backend", "gpu", "--ranks", str(gpus)], graph, devices=gpus)
        as_planned(out, planned, gpus)
    graph, _ = plan(folder, 2, "--strategy", "fsdp2")
    gpu = ["rehearse", "--backend", "gpu", "--ranks"]
    start = time.time()
    assert "for each of the 2 ranks" in bench(gpu + ["2"], graph, 4, devices=1)
    assert "launch failure" in bench(gpu + ["2"], graph, 4, devices=2, faults="async:1:60")
    assert "is a graph of 2 ranks and here are 3" in bench(gpu + ["3"], graph, 4, devices=3)
    assert time.time() - start < 30


def rehearse_offload(folder):
    """One GPU with the optimizer on the host and on storage; nothing is left on either."""
    for where in ("cpu", "nvme"):
        graph, _ = plan(folder, 1, "--strategy", "zero3", "--offload-optimizer", where)
        kinds = {t["kind"] for t in json.load(open(graph))["tasks"]}
        assert {"adam", "copy"} <= kinds and ("nvme_read" in kinds) == (where == "nvme"), kinds
        out = bench(["rehearse", "--backend", "gpu"], graph, report=1)
        assert all(t["measured_s"] >= 0 for t in out["tasks"])
    assert sorted(os.listdir(folder)) == ["config.json", "graph.json", "plan.json"]
    graph, _ = plan(folder, 1, "--strategy", "zero3")
    said = subprocess.run([FAKE, "rehearse", graph, "--backend", "gpu", "--force", "--quiet"], text=True, check=True,
                          env=dict(os.environ, FAKEGPU_NO_CUBLASLT="1", ASAN_OPTIONS="detect_leaks=0"),
                          capture_output=True, timeout=100).stderr
    assert "stands in for matrix products" in said, said


def rehearse_fails(folder):
    graph, _ = plan(folder, 2, "--strategy", "fsdp2")
    assert "launch failure" in bench(["rehearse"], graph, 4, devices=2, faults="async:1:60")
    assert "out of memory" in bench(["rehearse"], graph, 4, devices=2, memory=1000000)
    assert "no usable GPU" in bench(["rehearse", "--backend", "gpu"], graph, 4, devices=0)
    assert "3" in bench(["rehearse"], graph, 4, devices=3)


def rehearse_interrupted(folder):
    """A signal ends rehearsals whose GPU, peer or driver hangs, of one process and of ranks."""
    graph, _ = plan(folder, 2, "--strategy", "fsdp2")
    for fault, ranks in (("nccl_hang:1:5", "2"), ("nccl_hang:1:5", "0"), ("stuck:cudaMallocAsync:9", "0")):
        env = dict(os.environ, FAKEGPU_DEVICES="2", FAKEGPU_FAULTS=fault, ASAN_OPTIONS="detect_leaks=0")
        process = subprocess.Popen([FAKE, "rehearse", graph, "--backend", "gpu", "--ranks", ranks, "--force"], env=env,
                                   text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(4)  # longer than a rehearsal that does not hang
        assert process.poll() is None, process.communicate()
        before = time.time()
        process.terminate()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130 and "interrupted" in err, (process.returncode, err)
        assert time.time() - before < 6, time.time() - before


def confirm(folder):
    """A plan's copies run between the host and GPUs, all of them at once."""
    _, planned = plan(folder, 2, "--strategy", "zero3", "--offload-optimizer", "cpu")
    out = bench(["confirm", "--budget", "0.02s", "-n", "3"], planned, devices=2)
    rows = [t for t in out["transfers"] if t["kind"] in ("h2d", "d2h")]
    assert rows and all(t["backend"] == "cuda" and t["ratio_bytes"] == 1 and t["errors"] == 0 for t in rows), rows


def usage(_):
    run(["--kernel", "sort"], 2)
    run(["--direction", "sideways", "--kernel", "none"], 2)


with tempfile.TemporaryDirectory() as scratch:
    globals()[sys.argv[3]](scratch)
print("ok")
