#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Numbers printed in the ZeRO, FSDP and Megatron papers, computed by the program.

Tables whose every cell is a formula are unit tests: ZeRO's Tables 1 and 2 and Megatron's states in
test_memory_states, its activations (Figures 1 and 7, Table 2) in test_activation, ZeRO++'s table
in test_volume, throughputs of ZeRO-Offload and ZeRO-Infinity in test_offload. Here is what needs a
whole plan or step, each with the span it must come out in; where the program says something else
than the paper on purpose, the span holds the program's figure and the row says why. What can't be
computed is listed at the end, with its reason.
"""
import json
import os
import subprocess
import sys
import tempfile

PROGRAM = os.environ["SHARDPLAN_PROGRAM"]
FP16 = ["--seq", "1024", "--precision", "fp16-mixed", "--recompute", "full"]
CPU = ["--offload-optimizer", "cpu"]
ALL_CPU = [*CPU, "--offload-param", "cpu"]
NVME = ["--offload-optimizer", "nvme", "--offload-param", "nvme"]
# Shapes as the papers print them: hidden, layers; heads are ours where none are printed.
SHAPES = {"1.4B": (1536, 48, 24), "1.5B": (1600, 48, 25), "2.5B": (1920, 54, 20), "8B": (3072, 72, 24),
          "10B": (4096, 50, 32), "13B": (4096, 62, 32), "20B": (4096, 98, 32), "50B": (8192, 62, 64),
          "60B": (8192, 75, 64), "80B": (8192, 100, 64), "100B": (8192, 125, 64),
          "120B": (8192, 150, 64), "22B": (6144, 48, 64), "175B": (12288, 96, 96),
          "530B": (20480, 105, 128), "0.5T": (18432, 124, 128),
          "1T": (25600, 128, 160), "5T": (49152, 174, 512), "10T": (65536, 200, 512),
          "20T": (90112, 205, 1024)}
NOT_COMPUTED = [
    ("ZeRO, shapes of 40B and 60B (88 and 132 layers of 4096)",
     "12 l h^2 is 17.7B and 26.6B: the layers belong to another hidden size"),
    ("ZeRO, Table 2 measured, Figure 6, 100B at 38 and 13B at 40 TFLOPS", "their batch sizes are not known here"),
    ("ZeRO, P_a: 33 GB to 2 GB", "partitioned activation checkpoints are not modelled"),
    ("ZeRO-Offload, 70B on a DGX-2; Turing-NLG", "offload beside tensor parallelism is refused"),
    ("ZeRO-Offload, delayed update 1.12 to 1.59 times", "DeepSpeed 0.19.6 has no delayed update"),
    ("ZeRO-Infinity, 240 nl hd^2 bytes of states", "20 B per parameter counts fp32 gradients; the code keeps 18 to 20"),
    ("ZeRO-Infinity, GPUs for 3D parallelism; 5T and more, 32 nodes", "ZeRO-3 beside tensor parallelism is refused"),
    ("ZeRO-Infinity, tiling: hidden 64K", "TiledLinear is not modelled"),
    ("ZeRO-Infinity, AWM and MSWM", "one bound each; a plan prints whole phases"),
    ("FSDP, T5-11B", "an encoder and decoder; the planner reads decoders"),
    ("FSDP, backward prefetch +18 %", "batch and network not stated; ours at batch 1 and 2: +71 and +43 %"),
    ("FSDP, rate limiter up to 5 times faster", "retries of cudaMalloc are not simulated"),
]


class Papers:
    def __init__(self, folder):
        self.folder, self.wrong, self.rows = folder, 0, 0

    def model(self, name, positions=1024):
        hidden, layers, heads = SHAPES[name]
        path = os.path.join(self.folder, name)
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
            json.dump({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": hidden,
                       "n_layer": layers, "n_head": heads, "vocab_size": 50257, "n_inner": None,
                       "n_positions": positions, "n_ctx": positions}, f)
        return path

    def ask(self, command, name, cluster, *options, positions=1024):
        done = subprocess.run([PROGRAM, command, self.model(name, positions), cluster, *options, "--json", "-",
                               "--quiet"], capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def plan(self, name, *options):
        result = self.ask("plan", name, "dgx-2", *FP16, *options)
        return result["plans"][0], result["model"]["parameters"]

    def row(self, what, printed, got, low, high, unit=""):
        ok = low <= got <= high
        self.rows += 1
        self.wrong += not ok
        difference = f"{100 * (got / printed - 1):+.0f} %" if printed else ""
        print(f"{'' if ok else 'WRONG '}{what:62s} printed {printed:8.4g} {unit:6s} computed {got:8.4g}  {difference}")

    def verdict(self, what, name, fits, *options):
        plan, _ = self.plan(name, *options)
        self.rows += 1
        self.wrong += plan["fits"] != fits
        print(f"{'' if plan['fits'] == fits else 'WRONG '}{what:62s} {'fits' if plan['fits'] else 'does not fit'}, "
              f"{plan['memory']['allocated_peak_bytes'] / 2**30:.1f} of {plan['memory']['capacity_bytes'] / 2**30:.1f} GiB,"
              f" host {plan['host']['bytes_per_node'] / 1e12:.2f} TB")


def shapes(p):
    for name in SHAPES:
        hidden, layers, _ = SHAPES[name]
        scale = 1e9 if name.endswith("B") else 1e12
        _, parameters = p.plan(name, "--strategy", "zero3")
        stated = float(name[:-1])
        # Names are rounded; 12 l h^2 leaves out tables, norms and biases.
        p.row(f"parameters of {name}: {layers} layers of {hidden}", stated, parameters / scale,
              0.95 * stated, 1.08 * stated, name[-1])
        p.row("  over 12 l h^2", 1, parameters / (12 * layers * hidden**2), 1, 1.06)


def zero(p):
    for strategy, limit in (("zero1", 4), ("zero2", 2), ("zero3", 0)):
        plan, parameters = p.plan("8B", "--strategy", strategy, "--nodes", "4096")
        p.row(f"ZeRO: bytes per parameter of {strategy} without end (65,536 GPUs)", limit,
              plan["memory"]["steady_bytes"] / parameters, limit, limit + 0.02, "B")
    for strategy, multiple in (("ddp", 2), ("zero1", 2), ("zero2", 2), ("zero3", 3)):
        plan, _ = p.plan("8B", "--strategy", strategy)
        p.row(f"ZeRO: elements sent by {strategy}", multiple, plan["volume"]["textbook_multiple"], multiple,
              multiple, "Psi")
    batch = ["--strategy", "ddp", "--stack", "megatron", "--attention", "flash", "-b", "32"]
    plan, _ = p.plan("1.5B", *batch, "--recompute", "none")
    # 12 h b s l elements are the paper's; without attention scores, Megatron's 34 B are 17.
    p.row("ZeRO: activations of GPT-2 1.5B, batch 32, 12 h b s l elements", 60,
          plan["memory"]["activations_bytes"] / 1e9, 60, 60 * 17 / 12, "GB")
    plan, _ = p.plan("1.5B", *batch, "--attention", "math")
    p.row("  with checkpoints", 8, plan["memory"]["activations_bytes"] / 1e9, 7.5, 8.6, "GB")
    plan, _ = p.plan("100B", "--strategy", "zero3", "--attention", "math", "-b", "32")
    stored = [x for x in plan["memory"]["phases"] if x["phase"] == "loss"][0]["activations_bytes"]
    p.row("ZeRO: 100B, batch 32, with checkpoints", 60, stored / 1e9, 60, 70, "GB")
    p.verdict("ZeRO: plain data parallelism ends at 1.4B on 32 GB", "1.4B", True, "--strategy", "ddp")
    p.verdict("  2.5B", "2.5B", False, "--strategy", "ddp")


def zero_offload(p):
    plan, parameters = p.plan("13B", "--strategy", "zero2", "--gpus", "1", *CPU)
    p.row("ZeRO-Offload: states left on the GPU", 2, plan["memory"]["steady_bytes"] / parameters, 1.99, 2.01, "B")
    p.row("  updated parameters up", 2, plan["volume"]["h2d_bytes"] / parameters, 1.99, 2.01, "B")
    # The paper sends 16-bit gradients; DeepSpeed casts them on the GPU and sends fp32.
    p.row("  gradients down (the code sends fp32)", 2, plan["volume"]["d2h_bytes"] / parameters, 3.99, 4.01, "B")
    # 14 in the paper; fp32 gradients (4) and the 16-bit staging copy (2) beside master and moments (12),
    # and pinned blocks are rounded up.
    p.row("  on the host (the code stages and pins)", 14, plan["host"]["bytes_per_node"] / parameters, 18, 22, "B")
    p.verdict("ZeRO-Offload: 13B on one V100 of 32 GB", "13B", True, "--strategy", "zero2", "--gpus", "1", *CPU)
    p.verdict("ZeRO-Offload: ZeRO-2 on 16 V100 holds 8B", "8B", True, "--strategy", "zero2")
    p.verdict("  and no more", "10B", False, "--strategy", "zero2")


def zero_infinity(p):
    p.verdict("ZeRO-Infinity: ZeRO-Offload on 16 V100 holds 13B", "13B", True, "--strategy", "zero2", *CPU)
    p.verdict("  and no more", "20B", False, "--strategy", "zero2", *CPU)
    p.verdict("ZeRO-Infinity: 50B, all on the CPU", "50B", True, "--strategy", "zero3", *ALL_CPU)
    # The paper says about 100B; at 18 bytes per parameter 1.5 TB hold less.
    p.verdict("  100B (the paper: about 100B; 18 B per parameter are 1.8 TB)", "100B", False, "--strategy", "zero3", *ALL_CPU)
    p.verdict("ZeRO-Infinity: 100B, parameters on the CPU, states on NVMe", "100B", True, "--strategy", "zero3",
              "--offload-optimizer", "nvme", "--offload-param", "cpu")
    plan, parameters = p.plan("1T", "--strategy", "zero3", "--attention", "math", "-b", "7", *NVME)
    p.row("ZeRO-Infinity: 1T, states and parameters on NVMe", 18, plan["nvme"]["bytes_per_node"] / parameters, 17.9,
          18.1, "B")
    # The paper fits 1T on one DGX-2; the code keeps 2 B of gradients per parameter in host memory.
    p.row("  host memory (the code keeps 16-bit gradients there)", 1.5, plan["host"]["bytes_per_node"] / 1e12, 2,
          2.7, "TB")
    stored = [x for x in plan["memory"]["phases"] if x["phase"] == "loss"][0]["activations_bytes"]
    p.row("  activation checkpoints of the node", 0.76, 16 * stored / 1e12, 0.74, 0.93, "TB")
    result = p.ask("simulate", "10B", "dgx-2", "--strategy", "zero3", *FP16)
    t = result["time"]
    flop = t["hfu"] * t["peak_flop_per_s"] * t["step_s"]
    p.row("ZeRO-Infinity: 8 x tokens x parameters (ours with attention)", 8,
          flop / (1024 * result["model"]["parameters"]), 8, 8.3, "FLOP")


def fsdp(p):
    result = p.ask("plan", "10B", "dgx-a100", "--strategy", "fsdp1", "--precision", "bf16-pure", "--seq", "1024")
    plan, parameters, unit = result["plans"][0], result["model"]["parameters"], 12 * 4096**2 + 13 * 4096
    p.row("FSDP: sharded parameters, psi / F", 1, plan["memory"]["params_bytes"] * 8 / 2 / parameters, 0.999, 1.001)
    root = parameters - 50 * unit  # stays gathered beside the units
    # Plus one where it prefetches; at the moment of the peak the unit that is reduced is free already.
    p.row("  units gathered at the peak", 1, (plan["memory"]["gather_bytes"] / 2 - root) / unit, 0.99, 2.01)
    p.row("  sent, over data parallelism", 1.5, plan["volume"]["textbook_multiple"] / 2, 1.5, 1.5)
    # "More than"; FLOPs with recomputation, 2 Tb/s per host of eight.
    for batch, stated in (("1", 173), ("2", 186)):
        t = p.ask("simulate", "175B", "dgx-a100", "--nodes", "64", "--net", "250Gb/s", "--strategy", "fsdp1", "--seq",
                  "2048", "--recompute", "full", "-b", batch, positions=2048)["time"]
        p.row(f"FSDP: GPT-175B on 512 A100, batch {batch}, more than", stated, t["hfu"] * t["peak_flop_per_s"] / 1e12,
              stated, 1.2 * stated, "TFLOPS")
    # The paper's run reached the card's 80 GB and retried; its sequence is presumed.
    plan = p.ask("plan", "175B", "dgx-a100", "--nodes", "16", "--strategy", "fsdp1", "--seq", "2048", "--recompute",
                 "full", "-b", "2", positions=2048)["plans"][0]
    p.row("FSDP: GPT-175B on 128 A100, batch 2: reserved (not reproduced)", 80,
          plan["memory"]["reserved_high_bytes"] / 2**30, 55, 80, "GiB")


def megatron(p):
    """Step times of Table 5 (arXiv 2205.05198): full recomputation, and sequence parallelism with
    selective recomputation; a micro-batch per GPU of the pipeline, three pieces per stage where
    the paper interleaves."""
    for name, stages, batch, accumulate, pieces, full, selective in (
            ("22B", 1, 4, 1, 1, 1.42, 1.10), ("175B", 8, 1, 64, 3, 18.13, 13.75),
            ("530B", 35, 1, 280, 3, 49.05, 37.83), ("1T", 64, 1, 512, 1, 94.42, 71.49)):
        for recompute, stated in (("full", full), ("selective-attention", selective)):
            t = p.ask("simulate", name, "dgx-a100", "--nodes", str(stages), "--strategy", "ddp", "--tp", "8", "--pp",
                      str(stages), "--stack", "megatron", "-b", str(batch), "--grad-accum", str(accumulate), "--seq",
                      "2048", "--attention", "math", "--recompute", recompute, "--set",
                      f"recipe.virtual_stages={pieces}", positions=2048)["time"]
            p.row(f"Megatron: step of {name}, {recompute}", stated, t["step_s"], 0.85 * stated, 1.15 * stated, "s")


def main():
    with tempfile.TemporaryDirectory() as folder:
        p = Papers(folder)
        for part in (shapes, zero, zero_offload, zero_infinity, fsdp, megatron):
            part(p)
    print("\nNot computed")
    for what, why in NOT_COMPUTED:
        print(f"  {what}: {why}")
    print(f"\n{p.rows} figures, {p.wrong} wrong")
    sys.exit(1 if p.wrong or p.rows < 60 else 0)


if __name__ == "__main__":
    main()
