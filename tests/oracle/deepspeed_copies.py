#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes that DeepSpeed's offload copies between host and device in one steady step.

usage: deepspeed_copies.py OUT.json [STRATEGY or case...]

On CPU ranks both ends are host memory, so the host's side is known by name: DeepSpeed's fp32 master,
its gradient and states, staging buffers and, with parameter offload, the shards. A copy_() or to()
from one side to the other counts with the type of the device's end, which is what a GPU's DMA moves.
"""
import json
import sys

import torch
from deepspeed.accelerator import get_accelerator
from torch.utils._python_dispatch import TorchDispatchMode

from deepspeed_calls import engine_of, run, settings, versions
from deepspeed_memory import on_host

RANKS = 2
SEQ = 8
STEPS = 4
MOVE = torch.Tensor.to


class Copies(TorchDispatchMode):
    def __init__(self, engine):
        super().__init__()
        self.engine, self.host, self.sums = engine, set(), {"h2d": 0, "d2h": 0}

    def look(self):
        """The host's storages now: states appear in the first step."""
        self.host = {t.untyped_storage().data_ptr() for t in on_host(self.engine)}
        for counter in self.sums:
            self.sums[counter] = 0

    def on_host(self, t):
        if torch._C._functorch.is_batchedtensor(t):
            return False  # transformers builds its masks with vmap
        return t.untyped_storage().data_ptr() in self.host

    def count(self, to_host, device_end):
        self.sums["d2h" if to_host else "h2d"] += device_end.numel() * device_end.element_size()

    def move(self, t, *args, **kwargs):
        """To a device whose name is the host's own here: a copy all the same."""
        asked = isinstance(args[0] if args else kwargs.get("device"), (str, torch.device))
        moved = MOVE(t, *args, **kwargs)
        if not asked or not self.on_host(t):
            return moved
        self.count(False, moved)
        return moved.clone() if moved.data_ptr() == t.data_ptr() else moved

    def __enter__(self):
        # DeepSpeed asks this before it adds to a gradient buffer in place.
        get_accelerator().on_accelerator = lambda t: not self.on_host(t)
        torch.Tensor.to = lambda t, *args, **kwargs: self.move(t, *args, **kwargs)
        return super().__enter__()

    def __exit__(self, *why):
        torch.Tensor.to = MOVE
        return super().__exit__(*why)

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op is torch.ops.aten.copy_.default and args[0].numel() > 1:
            to, by = args[0], args[1]
            if self.on_host(to) != self.on_host(by):
                self.count(self.on_host(to), by if self.on_host(to) else to)
        return op(*args, **(kwargs or {}))


def record(case):
    engine = engine_of(case)
    tokens = torch.zeros(1, SEQ, dtype=torch.long)
    with Copies(engine) as copies:
        for _ in range(STEPS):
            copies.look()
            for _ in range(case["accumulate"]):
                engine.backward(engine(input_ids=tokens, labels=tokens, use_cache=False).loss)
                engine.step()
    engine.destroy()
    return dict(copies.sums)


def cases():
    cpu = {"device": "cpu", "pin_memory": False}

    def one(name, strategy, accumulate=1, **zero):
        return {"name": name, "strategy": strategy, "model": "small", "accumulate": accumulate,
                "other": {"bf16": {"enabled": True}},
                "zero": {"stage": int(strategy[-1]), "offload_optimizer": cpu, **zero}}

    small = {"reduce_bucket_size": 30000}
    for s in ("zero1", "zero2"):
        yield one("cpu optimizer", s, **small)
        yield one("cpu optimizer, accumulation", s, accumulate=3, **small)
    narrow = {**small, "stage3_prefetch_bucket_size": 8000, "stage3_max_live_parameters": 60000,
              "stage3_max_reuse_distance": 0, "stage3_param_persistence_threshold": 100}
    yield one("cpu optimizer", "zero3", **narrow)
    yield one("cpu optimizer, accumulation", "zero3", accumulate=3, **narrow)
    yield one("cpu optimizer and parameters", "zero3", offload_param=cpu, **narrow)


def main():
    file, *only = sys.argv[1:]
    wanted = [c for c in cases() if not only or c["strategy"] in only or c["name"] in only]
    out = {"versions": versions(), "seq": SEQ, "cases": []}
    for world, case, result in run(wanted, (RANKS,), record):
        row = {k: case[k] for k in ("name", "model", "strategy")}
        out["cases"].append({**row, "gpus": world, "config": settings(case), **result})
    with open(file, "w") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
