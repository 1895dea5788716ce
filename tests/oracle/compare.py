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
MIB = 1024 * 1024
MEMORY_LIMIT = 0.03
PAGE = 4096  # scalars and counters are not planned
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


def differences(ours, theirs):
    for key in sorted(set(ours) | set(theirs)):
        a, b = ours.get(key, [0, 0]), theirs.get(key, [0, 0])
        if a[0] != b[0] or abs(a[1] - b[1]) > 0.5:
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
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ds_config.json")
            json.dump(case["config"], open(path, "w"))
            case["options"] = ["--config", path, "--seq", "8"]
            volume = plan(program, case, case["gpus"])["volume"]
        case["options"] = [case["name"]]
        ran = [c for c in case["calls"] if c[3] > SCALAR_BYTES]
        few = [t for t in volume["transfers"] if t["payload_bytes"] <= SCALAR_BYTES * t["count"]]
        volume["transfers"] = [t for t in volume["transfers"] if t not in few]
        bad = list(differences(planned(volume), seen(ran)))
        scalars = sum(t["count"] for t in few)
        if scalars != len(case["calls"]) - len(ran):
            bad.append(f"scalars: plan {scalars}, ran {len(case['calls']) - len(ran)}")
        size = sum(c[3] for c in ran)
        yield case, f"{case['gpus']} ranks, {len(case['calls'])} calls, {size} B", bad


def resident(phase, name):
    return phase[name + "_bytes"]


def off(what, ours, theirs, of):
    """Differences beyond 3 % of the whole."""
    if abs(ours - theirs) > max(MEMORY_LIMIT * of, PAGE):
        yield f"{what}: plan {ours} B, ran {theirs} B ({(ours - theirs) / of:+.1%} of the peak)"


def moment_differences(phase, ran, classes, whole):
    """A peak, in whole, by class, and all else that is under way; limits are shares of `whole`."""
    yield from off("peak", phase["allocated_bytes"], ran["total"], whole)
    parts = {name: (resident(phase, name), ran.get(name, 0)) for name in classes}
    for name, (ours, theirs) in parts.items():
        yield from off(name, ours, theirs, whole)
    rest = [total - sum(p[i] for p in parts.values()) for i, total in
            enumerate((phase["allocated_bytes"], ran["total"]))]
    yield from off("gradients, buckets and activations", *rest, whole)


def memory_differences(memory, case):
    phases = {p["phase"]: p for p in memory["phases"]}
    # The loss's own backward counts as loss here, as backward in the run: one peak over all three.
    pass_ours = max((phases[k] for k in ("forward", "loss", "backward")),
                    key=lambda p: p["allocated_bytes"])
    pass_ran = max((case["peaks"][k] for k in ("forward", "backward")), key=lambda p: p["total"])
    # Autocast's copies of weights (DDP) are made where activations are: no class of their own.
    classes = ["params", "master", "optimizer"] + ["gather"] * (case["strategy"] != "ddp")
    step = case["peaks"]["step"]
    whole, step_whole = pass_ran["total"], step["total"]
    if "offload_optimizer" in case.get("config", {}).get("zero_optimization", {}):
        # The plan takes the most that was ever gathered beside the most activations: by class that
        # shows where no states are on the GPU. A step there holds next to nothing.
        classes = [c for c in classes if c != "gather"]
        step_whole = whole
    yield from moment_differences(pass_ours, pass_ran, classes, whole)
    yield from moment_differences(phases["step"], step, classes, step_whole)
    for name in ("params", "grads", "optimizer", "master"):
        if name == "grads" and case["strategy"] == "zero1":
            continue  # the engine's epilogue has freed what others own: they are in the peak above
        ran = case["after_backward"].get(name, 0)
        yield from off(name + " after backward", memory[name + "_bytes"], ran, max(ran, 1))


def memory_row(memory, case):
    ran = max(p["total"] for p in case["peaks"].values())
    ours = memory["allocated_peak_bytes"]
    return f"{ran / MIB:.1f} | {ours / MIB:.1f} | {ours / ran - 1:+.1%}"


def check_torch_memory(program, golden):
    for case in golden["cases"]:
        ours = plan(program, case, golden["gpus"])
        memory, volume = ours["memory"], ours["volume"]
        bad = list(memory_differences(memory, case))
        if "copies" in case:
            bad += copy_differences(volume, case["copies"])
        yield case, memory_row(memory, case), bad


def copy_differences(volume, ran):
    return [f"{way}: plan {volume[way + '_bytes']} B, ran {ran[way]} B"
            for way in ("h2d", "d2h") if abs(volume[way + "_bytes"] - ran[way]) > 0.5]


def check_deepspeed_memory(program, golden):
    for case in golden["cases"]:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ds_config.json")
            json.dump(case["config"], open(path, "w"))
            case["options"] = ["--config", path, "--seq", str(golden["seq"])]
            memory = plan(program, case, case["gpus"])["memory"]
        case["options"] = [case["name"]]
        yield case, memory_row(memory, case), list(memory_differences(memory, case))


def check_deepspeed_copies(program, golden):
    for case in golden["cases"]:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ds_config.json")
            json.dump(case["config"], open(path, "w"))
            case["options"] = ["--config", path, "--seq", str(golden["seq"])]
            volume = plan(program, case, case["gpus"])["volume"]
        case["options"] = [case["name"]]
        bad = copy_differences(volume, case)
        yield case, f"{case['gpus']} ranks, up {case['h2d']} B, down {case['d2h']} B", bad


CHECKS = {
    "deepspeed_copies": check_deepspeed_copies,
    "torch_memory": check_torch_memory,
    "deepspeed_memory": check_deepspeed_memory,
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
