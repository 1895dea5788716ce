#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`shardplan simulate` from outside: result, trace and graph agree with each other and their
formats."""
import copy
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from validate_trace import validate  # noqa: E402

PROGRAM = os.environ["SHARDPLAN_PROGRAM"]
KEYS = {"schema", "command", "model", "cluster", "strategy", "recipe", "time", "bound_by", "waits",
        "phases", "streams", "tasks", "peak_bytes", "memory_over_time", "planned_allocated_peak_bytes",
        "planned_reserved_bytes"}
CASES = [
    ["llama-3.2-1b", "dgx-a100", "--strategy", "fsdp2"],
    ["llama-3.2-1b", "dgx-a100", "--strategy", "ddp", "--grad-accum", "3"],
    ["llama-2-7b", "dgx-a100", "--strategy", "zero3", "--offload-optimizer", "cpu"],
    ["llama-2-7b", "dgx-a100", "--strategy", "zero2", "--offload-optimizer", "cpu"],
    ["llama-2-7b", "dgx-a100", "--strategy", "hsdp", "--nodes", "2"],
]


def run(args):
    p = subprocess.run([PROGRAM, "simulate", *args], capture_output=True, text=True, check=False)
    assert p.returncode == 0, (args, p.returncode, p.stderr)
    return p.stdout


def close(a, b, scale):
    return abs(a - b) <= 1e-6 * scale


def check_result(r):
    assert r["schema"] == "shardplan.simulate/1" and KEYS <= set(r), sorted(KEYS - set(r))
    t = r["time"]
    step = t["step_s"]
    assert close(t["forward_s"] + t["backward_s"] + t["optimizer_s"], step, step)
    parts = ("compute_s", "exposed_comm_s", "exposed_offload_s", "host_issue_s", "bubble_s")
    assert close(sum(t[k] for k in parts), step, step)
    assert close(max(k["end_s"] for k in r["tasks"]), step, step)
    assert close(r["phases"][-1]["end_s"], step, step)
    for before, after in zip(r["phases"], r["phases"][1:]):
        assert before["end_s"] == after["start_s"] and before["name"] != after["name"]
    assert r["peak_bytes"] == max(p["allocated_bytes"] for p in r["memory_over_time"])
    assert 0 < r["planned_allocated_peak_bytes"] <= r["planned_reserved_bytes"]
    for stream in r["streams"]:
        busy = sum(k["end_s"] - k["start_s"] for k in r["tasks"] if k["stream"] == stream["name"])
        assert close(busy, stream["busy_s"], step), stream
        assert stream["exposed_s"] <= stream["busy_s"] + 1e-6 * step
    for wait in r["waits"]:
        assert wait["text"].startswith(wait["phase"] + " waits ")
        assert 0 < wait["fraction"] <= 1


def check_graph(g, r):
    assert g["schema"] == "shardplan.graph/1"
    tasks = [t for t in g["tasks"] if t["kind"] not in ("alloc", "free")]
    assert len(tasks) == len(r["tasks"])
    names = g["streams"]
    for t, k in zip(tasks, r["tasks"]):
        assert names[t["stream"]] == k["stream"] and t["phase"] == k["phase"]
        assert all(d < t["id"] for d in t["deps"])
        # Contention and late issue only make a task longer.
        assert k["end_s"] - k["start_s"] >= t["duration_s"] - 1e-6 * r["time"]["step_s"]
    forward = [t for t in tasks if t["kind"] == "gemm" and t["phase"] == "forward"]
    assert forward and any(t.get("shapes") for t in forward)


def check_validator(trace):
    """The validator must reject what is broken."""
    assert validate(trace) == []
    first = next(i for i, e in enumerate(trace["traceEvents"]) if e["ph"] == "X")
    for spoil in ({"dur": -1}, {"tid": 99}, {"ph": "Q"}, {"cat": "lunch"}):
        broken = copy.deepcopy(trace)
        broken["traceEvents"][first].update(spoil)
        assert validate(broken), spoil
    assert validate({"displayTimeUnit": "ms", "traceEvents": []})


def main():
    with tempfile.TemporaryDirectory() as d:
        for args in CASES:
            trace, graph = os.path.join(d, "t.json"), os.path.join(d, "g.json")
            result = json.loads(run([*args, "--trace", trace, "--graph", graph, "--json", "-"]))
            check_result(result)
            with open(graph, encoding="utf-8") as f:
                check_graph(json.load(f), result)
            with open(trace, encoding="utf-8") as f:
                check_validator(json.load(f))
    jitter = ["llama-3.2-1b", "dgx-a100", "--jitter", "0.05", "--seed", "3", "--json", "-"]
    one, two = run(jitter), run(jitter)
    assert one == two, "the same seed must give the same bytes"
    j = json.loads(one)["jitter"]
    assert j["base_s"] < j["mean_s"] <= j["p99_s"]
    p = subprocess.run([PROGRAM, "simulate", "llama-3.2-1b", "dgx-a100", "--strategy", "ddp,zero1"],
                       capture_output=True, text=True, check=False)
    assert p.returncode == 2 and "one strategy" in p.stderr, (p.returncode, p.stderr)


if __name__ == "__main__":
    main()
