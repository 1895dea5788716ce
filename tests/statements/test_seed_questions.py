#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/seed-questions.md: the numbers marked there are what the program says today."""
import json
import os
import subprocess
import sys

PROGRAM = os.environ["SHARDPLAN_PROGRAM"]
BYTES = ["--precision", "bf16-pure", "--reduce-dtype", "bf16"]
NODE_70B = ["llama-2-70b", "8xA100-80GB", "--strategy", "zero3", "--recompute", "full"]


def run(command, *args):
    p = subprocess.run([PROGRAM, command, *args, "--json", "-"], capture_output=True, text=True,
                       check=False)
    assert p.returncode in (0, 1) and p.stdout, (args, p.stderr)
    return json.loads(p.stdout)


def sent(model, cluster, strategy, accumulation):
    plan = run("plan", model, cluster, "--nodes", "2", "--strategy", strategy, "--grad-accum",
               str(accumulation), *BYTES)["plans"][0]
    return plan["volume"]["sent_bytes_per_gpu"]


def ratio(model, cluster, strategy, accumulation=1):
    return sent(model, cluster, strategy, accumulation) / sent(model, cluster, "ddp", accumulation)


def exposed(net, micro):
    t = run("simulate", "llama-3-8b", "dgx-h100", "--nodes", "4", "--net", net, "--strategy",
            "fsdp2", "--recompute", "full", "--micro-batch", str(micro))["time"]
    return t["exposed_comm_s"] / t["step_s"]


def step_70b(*offload):
    return run("simulate", *NODE_70B, *offload)["time"]["step_s"]


BATCH = ["--strategy", "zero3", "--global-batch", "256"]
OFFLOADED = ["--micro-batch", "1", "--recompute", "selective-op", "--loss", "chunked",
             "--offload-optimizer", "cpu", "--offload-param", "cpu"]


def ways_70b():
    """One node with offload against two and four: the table, and what host memory decides."""
    advice = run("advise", "llama-2-70b", "8xA100-80GB", *BATCH)
    rate = {w["title"]: w["tokens_per_s"] for w in advice["ways"]}
    stated = {"CPU offload": 3035, "NVMe offload": 1346}
    for nodes, rates in ((2, (5832, 5943, 5962)), (4, (13012, 13312, 13363))):
        for net, tokens in zip((100, 200, 400), rates):
            stated[f"{nodes} nodes, {net} Gb/s per GPU"] = tokens
    claims = [(title, rate[title] or 0, tokens) for title, tokens in stated.items()]
    assert rate["as asked"] is None and rate["same hardware"] is None, "one node now fits"
    assert advice["recommendation"]["choice"] == "offload", advice["sentence"]
    best = advice["ways"][advice["best_way"]]
    assert best["title"] == "CPU offload" and best["host_bytes_per_node"] > 0.9 * 1.5e12, best
    small = run("advise", "llama-2-70b", "8xA100-80GB", *BATCH, "--host-memory", "1.5TB")
    assert small["recommendation"]["choice"] == "more_gpus", small["sentence"]
    assert small["ways"][small["best_way"]]["nodes"] == 4, small["sentence"]
    return claims


def adam_70b():
    def step(*words):
        time = run("simulate", "llama-2-70b", "8xA100-80GB", "--strategy", "zero3", *OFFLOADED,
                   *words)["time"]
        return time["step_s"]
    rates = (("0.15e-9", 335), ("0.9e-9", 387), ("4.8e-9", 656))
    claims = [(f"CPU Adam {r} s", step("--grad-accum", "32", "--set",
                                      f"cluster.cpu_adam_s_per_param={r}"), s) for r, s in rates]
    return [*claims, ("CPU offload, g = 32", step("--grad-accum", "32"), 346),
            ("CPU offload, g = 1", step("--grad-accum", "1"), 33.8)]


def main():
    seven, nvme = ("llama-2-7b", "dgx-a100"), ["--nvme", "25GB/s/12GB/s"]
    claims = [
        ("zero1 / ddp", ratio(*seven, "zero1"), 1.50),
        ("zero2 / ddp", ratio(*seven, "zero2"), 1.50),
        ("zero3 / ddp", ratio(*seven, "zero3"), 1.43),
        ("fsdp2 / ddp", ratio(*seven, "fsdp2"), 1.48),
        ("zero2 / ddp, g = 4", ratio(*seven, "zero2", 4), 4.50),
        ("zero3 / ddp, g = 4", ratio(*seven, "zero3", 4), 5.71),
        ("fsdp2 / ddp, g = 4", ratio(*seven, "fsdp2", 4), 5.92),
        ("zero3 / ddp, 1B", ratio("llama-3.2-1b", "dgx-a100", "zero3"), 1.10),
        ("zero3 / ddp, 70B", ratio("llama-2-70b", "dgx-a100", "zero3"), 1.49),
        ("exposed at 25 Gb/s", exposed("25Gb/s", 1), 0.72),
        ("exposed at 50 Gb/s", exposed("50Gb/s", 1), 0.47),
        ("70B, no offload", step_70b(), 11.5),
        ("70B, optimizer on CPU", step_70b("--offload-optimizer", "cpu"), 37),
        ("70B, parameters too",
         step_70b("--offload-optimizer", "cpu", "--offload-param", "cpu"), 36),
        ("70B, optimizer on NVMe", step_70b("--offload-optimizer", "nvme", *nvme), 173),
    ]
    claims += ways_70b() + adam_70b()
    wrong = 0
    for name, got, stated in claims:
        off = got / stated - 1
        print(f"{name:27s} stated {stated:8.2f}  now {got:8.2f}  {100 * off:+.1f} %")
        wrong += abs(off) > 0.15
    # What four times the tokens and more bandwidth do, in words there.
    wrong += not exposed("25Gb/s", 4) < 0.5 * exposed("25Gb/s", 1)
    wrong += not exposed("400Gb/s", 1) < 0.05
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
