#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time of whole commands, start to end: `plan` of all strategies, and the sweep's rates.

Processor time is what a busy machine can't inflate much; wall time is printed beside it.
"""
import json
import os
import resource
import statistics
import subprocess
import sys
import time

PROGRAM = os.environ["SHARDPLAN_PROGRAM"]
PLAN_LIMIT_S = 0.020  # issue of the plan: starts and ends within 20 ms
SWEEP_LIMIT_S = 4  # 2 s on two cores
BOUNDS_PER_S = 1e6  # per core


def measure(words, runs):
    walls, cpus, out = [], [], b""
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        out = subprocess.run([PROGRAM, *words], capture_output=True, check=False, timeout=600).stdout
        walls.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(walls), statistics.median(cpus), out


def main():
    failed = False
    for model, cluster in (("llama-3-8b", "dgx-h100"), ("llama-3-70b", "dgx-a100"), ("mixtral-8x7b", "dgx-h100")):
        wall, cpu, _ = measure(["plan", model, cluster, "--quiet", "--json", os.devnull], 21)
        print(f"plan {model} {cluster}: {1e3 * cpu:.1f} ms of processor, {1e3 * wall:.1f} ms wall (median of 21)")
        failed |= cpu > PLAN_LIMIT_S
    for words in (["--strategy", "fsdp2"], ["--strategy", "zero3", "--range", "prefetch-bucket=5e7"]):
        space = ["--range", "micro-batch=1,2,4", "--range", "offload=none", "--threads", "1", "--exhaustive"]
        _, cpu, out = measure(["sweep", "llama-2-7b", "dgx-h100", *words, *space, "--quiet", "--json", "-"], 1)
        result = json.loads(out)
        print(f"sweep {words[1]}: {result['simulated'] / cpu:.0f} simulated plans per processor-second "
              f"({result['simulated']} of {result['points']} points)")
    wall, cpu, out = measure(["sweep", "llama-2-7b", "dgx-h100", "--quiet", "--json", "-"], 5)
    result = json.loads(out)
    points, rate = result["points"], result["points"] / cpu
    print(f"default sweep of {points} points: {cpu:.2f} s of processor, {wall:.2f} s wall, {result['simulated']} "
          f"simulated; {rate:.3g} points per processor-second, start and simulations included")
    failed |= cpu > SWEEP_LIMIT_S or rate < BOUNDS_PER_S or points < 200000
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
