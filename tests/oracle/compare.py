#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the plan to what the frameworks did: goldens in golden/, made by run.sh.

usage: compare.py [--table] SHARDPLAN GOLDEN.json...

Needs no framework. Exit 0 when every case agrees, 1 with the differences listed; --table prints
one line per case instead, as in docs/validation.md.
"""
import collections
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CLUSTER = "8xA100-80GB"
SCALAR_BYTES = 8
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "reduce", "broadcast")


def command(program, verb, case, gpus):
    model = os.path.join(HERE, "models", case["model"] + ".json")
    base = [program, verb, model, CLUSTER, "--quiet", "--gpus", str(gpus)]
    return base + ["--strategy", case["strategy"], *case["options"]]


def run(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(arguments)}\n{done.stderr}")
    return done.stdout


def plan(program, case, gpus):
    return json.loads(run(command(program, "plan", case, gpus) + ["--json", "-"]))["plans"][0]


def planned(volume, kinds=COLLECTIVES):
    """(kind, dtype, group size) -> [calls, bytes of the full buffers]."""
    sums = collections.defaultdict(lambda: [0, 0])
    for t in volume["transfers"]:
        if t["kind"] in kinds:
            row = sums[t["kind"], t["dtype"], t["group_size"]]
            row[0] += t["count"]
            row[1] += t["payload_bytes"]
    return sums


def seen(calls):
    sums = collections.defaultdict(lambda: [0, 0])
    for kind, dtype, group, size in calls:
        row = sums[kind, dtype, group]
        row[0] += 1
        row[1] += size
    return sums


def differences(ours, theirs, slack=0):
    for key in sorted(set(ours) | set(theirs)):
        a, b = ours.get(key, [0, 0]), theirs.get(key, [0, 0])
        if a[0] != b[0] or abs(a[1] - b[1]) > 0.5 + slack * b[1]:
            yield f"{' '.join(map(str, key))}: plan {a[0]} calls {a[1]:.0f} B, ran {b[0]} calls {b[1]} B"


def simulated(program, case, gpus):
    """Collectives of the simulated step in issue order: (kind, dtype, group size, bytes)."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph.json")
        run(command(program, "simulate", case, gpus) + ["--graph", path])
        graph = json.load(open(path))
    size = {g["id"]: g["size"] for g in graph["groups"]}
    return [
        (t["collective"], t["dtype"], size[t["group"]], t["bytes"])
        for t in graph["tasks"]
        if t["kind"] == "collective"
    ]


def order_differences(ours, calls, slack):
    """Same kinds, types and groups in the same order; bytes within what padding adds."""
    if len(ours) != len(calls):
        yield f"order: {len(ours)} simulated collectives, {len(calls)} calls"
    for i, (a, b) in enumerate(zip(ours, calls)):
        if list(a[:3]) != b[:3] or not b[3] * (1 - slack) - 0.5 <= a[3] <= b[3] + 0.5:
            yield f"order, call {i}: simulated {a}, ran {b}"
            return


def check_torch_collectives(program, golden):
    for case in golden["cases"]:
        bad = list(
            differences(planned(plan(program, case, golden["gpus"])["volume"]), seen(case["calls"]))
        )
        # The step's tasks leave out padding to the shard group: none in the medium model.
        slack = 0.07 if case["model"] == "small" else 0
        ours = simulated(program, case, golden["gpus"])
        bad += order_differences(ours, case["calls"], slack)
        size = sum(c[3] for c in case["calls"])
        yield case, f"{len(case['calls'])} calls, {size} B", bad


def check_deepspeed_calls(program, golden):
    """Scalars (norms, overflow flags) are compared by count: their types are no payload."""
    for case in golden["cases"]:
        if case["strategy"] == "zero3":
            # All-gathers are counted without the padding of every parameter to the group.
            case["slack"] = 0.0004
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ds_config.json")
            json.dump(case["config"], open(path, "w"))
            case["options"] = ["--config", path, "--seq", "8"]
            volume = plan(program, case, case["gpus"])["volume"]
        case["options"] = [case["name"]]
        ran = [c for c in case["calls"] if c[3] > SCALAR_BYTES]
        few = [t for t in volume["transfers"] if t["payload_bytes"] <= SCALAR_BYTES * t["count"]]
        volume["transfers"] = [t for t in volume["transfers"] if t not in few]
        bad = list(differences(planned(volume), seen(ran), case.get("slack", 0)))
        scalars = sum(t["count"] for t in few)
        if scalars != len(case["calls"]) - len(ran):
            bad.append(f"scalars: plan {scalars}, ran {len(case['calls']) - len(ran)}")
        size = sum(c[3] for c in ran)
        yield case, f"{case['gpus']} ranks, {len(case['calls'])} calls, {size} B", bad


CHECKS = {
    "torch_collectives": check_torch_collectives,
    "deepspeed_calls": check_deepspeed_calls,
}


def name_of(case):
    return " ".join([case["model"], case["strategy"], *case["options"]])


def main(arguments):
    table = "--table" in arguments
    program, *files = [a for a in arguments if a != "--table"]
    failed = 0
    for file in files:
        golden = json.load(open(file))
        check = CHECKS[os.path.basename(file).removesuffix(".json")]
        for case, what, bad in check(program, golden):
            failed += bool(bad)
            if table:
                print(f"| {name_of(case)} | {what} | {'; '.join(bad) or 'equal'} |")
            elif bad:
                print(name_of(case), *bad, sep="\n    ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
