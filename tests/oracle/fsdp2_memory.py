#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peak bytes of FSDP2 by torch's own tracker (torch.distributed._tools.fsdp2_mem_tracker).

usage: fsdp2_memory.py > golden/fsdp2_memory.json

Rank 0 of 8 over the fake process group, fake tensors, bf16 parameters gathered from fp32 shards, fp32
reduction, foreach AdamW, two steps; the second step's peak.
"""
import contextlib
import io
import json
import re
import sys

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from decoder import Decoder, loss_of

WORLD = 8
MODEL = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "vocab_size": 16384,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
VARIANTS = [("full", 64), ("full", 512), ("full", 4096), ("tied", 64), ("tied", 1024),
            ("noreshard", 64), ("noreshard", 1024), ("hsdp", 64), ("hsdp", 1024),
            ("recompute", 64), ("recompute", 1024)]


def mesh_of(variant):
    if variant == "hsdp":
        return init_device_mesh("cpu", (2, WORLD // 2), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh("cpu", (WORLD,))


def sharded(variant, mesh):
    model = Decoder(dict(MODEL, tie_word_embeddings=variant == "tied"))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if variant == "recompute":
        model.layers = torch.nn.ModuleList(checkpoint_wrapper(x) for x in model.layers)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy,
                    reshard_after_forward=variant != "noreshard")
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def peak(variant, seq):
    mesh = mesh_of(variant)  # reads its ranks: not with fake tensors
    with FakeTensorMode():
        model = sharded(variant, mesh)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        tokens = torch.randint(0, MODEL["vocab_size"], (1, seq))
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((tokens,))
        with tracker:
            for step in range(2):
                loss_of(model(tokens), tokens).backward()
                optimizer.step()
                optimizer.zero_grad()
                if step == 0:
                    tracker.reset_mod_stats()
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        tracker.display_snapshot("peak", units="MiB", tabulate=False)
    return float(re.search(r"Total: ([\d.]+) MiB", text.getvalue()).group(1))


def main():
    dist.init_process_group("fake", rank=0, world_size=WORLD, store=FakeStore())
    cases = [{"variant": v, "seq": s, "peak_mib": peak(v, s)} for v, s in VARIANTS]
    json.dump({"torch": torch.__version__, "model": MODEL, "cases": cases}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
