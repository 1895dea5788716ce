# SPDX-License-Identifier: Apache-2.0
"""Collectives on three ranks give what they must, and a plan's bytes are the bytes sent."""
import json
import os
import subprocess
import sys
import tempfile

BENCH = sys.argv[1]
ENV = dict(os.environ, ASAN_OPTIONS="detect_leaks=0")


def run(arguments):
    done = subprocess.run([BENCH] + arguments + ["--force", "--json", "-", "--budget", "1ms", "-n",
                                                 "2", "--max-iterations", "20"],
                          capture_output=True, text=True, timeout=100, env=ENV)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def collectives():
    results = run(["collectives", "--ranks", "3", "-b", "60KiB", "-e", "60KiB", "-d",
                   "bf16,fp16,fp32,int8", "--place", "both"])["results"]
    # three collectives, two algorithms, two places, four types
    assert len(results) == 3 * 2 * 2 * 4, len(results)
    assert all(r["errors"] == 0 and r["ranks"] == 3 and r["median_s"] > 0 for r in results)
    for r in results:
        factor = 4 / 3 if r["kind"] == "all_reduce" else 2 / 3
        expected = r["payload_bytes"] / r["median_s"] * factor
        assert abs(r["busbw_bytes_per_s"] / expected - 1) < 1e-6
        if r["algorithm"] == "ring":
            assert abs(r["sent_bytes"] - r["payload_bytes"] * factor) < 1, r


def transfer(kind, payload, group="world", size=4):
    return {"phase": "step", "kind": kind, "what": "x", "dtype": "bf16", "group": group,
            "group_size": size, "count": 2, "payload_bytes": payload, "sent_bytes": 0,
            "link": "inter_node"}


def plan(*transfers):
    return {"schema": "shardplan.plan/1", "model": {"name": "m", "parameters": 100000},
            "plans": [{"strategy": "s", "volume": {"transfers": list(transfers)}}]}


def confirm(document):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.json")
        with open(path, "w") as f:
            json.dump(document, f)
        return run(["confirm", path, "--ranks", "4"])


def three_to_two():
    psi = 200000
    zero3 = confirm(plan(transfer("all_gather", psi), transfer("all_gather", psi),
                         transfer("reduce_scatter", psi)))["totals"]
    ddp = confirm(plan(transfer("all_reduce", psi)))["totals"]
    assert abs(zero3["measured_bytes"] - 3 * psi * 3 / 4) <= 3 * 32, zero3
    assert abs(ddp["measured_bytes"] - 2 * psi * 3 / 4) <= 2 * 32, ddp
    assert abs(zero3["measured_bytes"] / ddp["measured_bytes"] - 1.5) < 0.01


def groups():
    document = confirm(plan(transfer("reduce_scatter", 80000, "shard", 2),
                            transfer("all_reduce", 40000, "replica", 2)))
    shard, replica = document["transfers"]
    assert shard["measured_bytes"] == 80000 / 2, shard
    assert replica["measured_bytes"] == 2 * 40000 / 2, replica
    assert shard["errors"] == 0 and replica["errors"] == 0


collectives()
three_to_two()
groups()
print("ok")
