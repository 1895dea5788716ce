#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Throughput statements of ZeRO-Offload (arXiv 2101.06840) and ZeRO-Infinity (arXiv 2104.07857).

Every statement is simulated on a DGX-2 and must come out within 20 %. The papers' FLOPs are
8 x tokens x parameters (recomputation counted). NVMe rates: 25 GB/s read per node as ZeRO-Infinity
states; 16 GB/s written is the datasheet rate of eight such drives. Batch sizes are the papers'
(Table 1 of ZeRO-Infinity; 512 with accumulation for ZeRO-Offload), sequence 1024, recomputation on.
"""
import json
import os
import subprocess
import sys
import tempfile

PROGRAM = os.environ["SHARDPLAN_PROGRAM"]
COMMON = ["--seq", "1024", "--recompute", "full", "--precision", "fp16-mixed",
          "--attention", "math", "--nvme", "25GB/s/16GB/s", "--json", "-"]
PIPELINED = ["--set", "recipe.pipeline_read=true", "--set", "recipe.pipeline_write=true",
             "--set", "recipe.nvme_buffer_count_optimizer=12"]
INFINITY = ["--strategy", "zero3", "--offload-optimizer", "nvme", *PIPELINED]
# name, (hidden, layers, heads), nodes, GPUs, options, stated TFLOPS per GPU
STATEMENTS = [
    ("ZeRO-Offload 10B, one GPU", (4096, 50, 32), 1, 1,
     ["--strategy", "zero2", "--offload-optimizer", "cpu", "--micro-batch", "16",
      "--grad-accum", "32"], 40),
    ("ZeRO-Infinity 50B, one DGX-2", (8192, 62, 64), 1, 16,
     [*INFINITY, "--offload-param", "cpu", "--micro-batch", "26"], 40),
    ("ZeRO-Infinity 100B, one DGX-2", (8192, 125, 64), 1, 16,
     [*INFINITY, "--offload-param", "cpu", "--micro-batch", "24"], 40),
    ("ZeRO-Infinity 1T, four DGX-2", (25600, 128, 256), 4, 64,
     [*INFINITY, "--offload-param", "nvme", "--micro-batch", "7"], 44),
]


def config(folder, hidden, layers, heads):
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": hidden,
                   "n_layer": layers, "n_head": heads, "vocab_size": 50257, "n_positions": 1024,
                   "n_ctx": 1024, "n_inner": None}, f)
    return folder


def tflops(model, nodes, gpus, options):
    p = subprocess.run([PROGRAM, "simulate", model, "dgx-2", "--nodes", str(nodes), "--gpus",
                        str(gpus), *options, *COMMON], capture_output=True, text=True, check=False)
    assert p.returncode == 0, p.stderr
    d = json.loads(p.stdout)
    tokens = d["recipe"]["micro_batch"] * d["recipe"]["grad_accum"] * 1024
    return 8 * tokens * d["model"]["parameters"] / d["time"]["step_s"] / 1e12


def bandwidth_for(efficiency, flop_per_byte, peak_flop_per_s):
    """ZeRO-Infinity's efficiency = ait bw / (ait bw + peak), solved for bw."""
    return efficiency / (1 - efficiency) * peak_flop_per_s / flop_per_byte


def main():
    wrong = 0
    with tempfile.TemporaryDirectory() as d:
        for i, (name, shape, nodes, gpus, options, stated) in enumerate(STATEMENTS):
            got = tflops(config(os.path.join(d, f"m{i}"), *shape), nodes, gpus, options)
            error = got / stated - 1
            print(f"{name:32s} stated {stated:5.1f}  simulated {got:5.1f}  {100 * error:+.0f} %")
            wrong += abs(error) > 0.20
    # Optimizer states at batch 2, sequence 1024: 512 flop per byte; the paper prints 1.5 TB/s.
    terabytes = bandwidth_for(0.9, 1024 * 2 / 4, 70e12) / 1e12
    print(f"bandwidth for 90 % at batch 2     {terabytes:.2f} TB/s")
    wrong += not 1.225 < terabytes < 1.235
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
