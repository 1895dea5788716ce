#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes that DDP, FSDP1 and FSDP2 hold in a steady step, storage by storage.

usage: torch_memory.py > golden/torch_memory.json

One process plays rank 0 of 8 over torch's fake process group and trains a real model on the CPU.
"""
import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy, FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy,
    ShardingStrategy, fully_shard)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.testing._internal.distributed.fake_pg import FakeStore

from decoder import Block, Decoder, config, loss_of
from ledger import HOST, Ledger, classes, states
from torch_collectives import WORLD, fsdp2, mesh_of, reduce_bucket

BF16, FP32 = torch.bfloat16, torch.float32
# What a place allocates, where nothing else names it; all else is activations and gradients under way.
GATHER, BUCKET = "gather", "bucket"
PLACES = {
    "distributed.py:_ddp_init_helper": BUCKET,
    "distributed.py:_pre_forward": BUCKET,
    "_flat_param.py:init_flat_param_attributes": GATHER,
    "_fsdp_collectives.py:allocate:foreach_all_gather": GATHER,
    "_fsdp_param.py:<listcomp>": GATHER,
    "_fsdp_param.py:to_sharded_post_forward": GATHER,
}


def fsdp1(model, case):
    sharding = {"fsdp1": ShardingStrategy.FULL_SHARD, "fsdp1-grad-op": ShardingStrategy.SHARD_GRAD_OP,
                "fsdp1-noshard": ShardingStrategy.NO_SHARD,
                "fsdp1-hybrid": ShardingStrategy.HYBRID_SHARD,
                "fsdp1-hybrid-zero2": ShardingStrategy._HYBRID_SHARD_ZERO2}[case["strategy"]]
    precision = MixedPrecision(param_dtype=BF16, reduce_dtype=case["reduce"])
    return FullyShardedDataParallel(
        model, sharding_strategy=sharding, mixed_precision=precision, device_id=torch.device("cpu"),
        auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=case["orig"],
        device_mesh=mesh_of(case["shard"]) if case["shard"] < WORLD else None)


def offloaded(model, case):
    given = {"mesh": mesh_of(case["shard"]), "offload_policy": CPUOffloadPolicy(pin_memory=False),
             "mp_policy": MixedPrecisionPolicy(param_dtype=BF16, reduce_dtype=case["reduce"])}
    for layer in model.layers:
        fully_shard(layer, **given)
    return fully_shard(model, **given)


def build(case):
    torch.manual_seed(0)
    model = Decoder(config(case["model"]))
    if case["kind"] == "ddp":
        model = nn.parallel.DistributedDataParallel(
            model.to(case["param"]), gradient_as_bucket_view=case["view"])
        model.register_comm_hook(None, reduce_bucket)
        return model
    if case["kind"] == "fsdp1":
        return fsdp1(model, case)
    if case["offload"]:
        return offloaded(model, case)
    reshard = case["strategy"] != "fsdp2-noreshard"
    if "=" in case["strategy"]:
        reshard = int(case["strategy"].split("=")[1])
    return fsdp2(model, mesh_of(case["shard"]), reshard, BF16, case["reduce"])


def name_states(ledger, model, optimizer):
    held = [p for p in model.parameters()]
    if ledger.offloads:
        ledger.name(held + [p.grad for p in held], HOST)
        return
    ledger.name(held, "params")
    ledger.name([p.grad for p in held if p.grad is not None], "grads")
    ledger.name([v for s in optimizer.state.values() for v in s.values()], "optimizer")


def step(ledger, model, optimizer, case):
    tokens = torch.zeros(1, case["seq"], dtype=torch.long)
    for _ in range(case["accumulate"]):
        ledger.enter("forward")
        with torch.autocast("cpu", BF16, enabled=case["autocast"]):
            loss = loss_of(model(tokens), tokens)
        ledger.enter("backward")
        loss.backward()
        name_states(ledger, model, optimizer)
    after = ledger.account()
    ledger.enter("step")
    ledger.everything = HOST if case["offload"] else None
    optimizer.step()
    ledger.enter(None)
    ledger.everything = None
    name_states(ledger, model, optimizer)
    optimizer.zero_grad()
    return after


def record(case):
    with Ledger() as ledger:
        model = build(case)
        ledger.offloads = "both" if case["offload"] else None
        optimizer = torch.optim.AdamW(model.parameters(), foreach=not case["fused"], fused=case["fused"])
        for _ in range(3):
            ledger.peaks.clear()
            ledger.copies = dict.fromkeys(ledger.copies, 0)
            name_states(ledger, model, optimizer)
            after = step(ledger, model, optimizer, case)
    if "--places" in sys.argv:
        for phase, (total, account) in ledger.peaks.items():
            rows = sorted(account.items(), key=lambda x: -x[1])
            print(case["strategy"], phase, total, *rows[:16], sep="\n  ", file=sys.stderr)
    out = {"after_backward": states(after),
           "peaks": {k: classes(v[1], PLACES) for k, v in ledger.peaks.items()}}
    if case["offload"]:
        out["copies"] = ledger.copies
    return out


def cases():
    base = {"model": "medium", "kind": "ddp", "strategy": "ddp", "param": FP32, "reduce": FP32,
            "view": False, "orig": True, "autocast": False, "fused": False, "shard": WORLD,
            "accumulate": 1, "seq": 64, "offload": False, "options": []}

    def one(*sizes, **changes):
        for model, seq in sizes or (("medium", 64),):
            yield {**base, **changes, "model": model, "seq": seq}

    fp32, amp = ["--precision", "fp32"], ["--precision", "amp-bf16"]
    short, long, deep = ("medium", 64), ("medium", 1024), ("blocks", 64)
    yield from one(short, long, options=fp32)
    yield from one(short, long, options=fp32 + ["--set", "recipe.gradient_as_bucket_view=true"],
                   view=True)
    yield from one(short, long, options=["--precision", "bf16-pure"], param=BF16)
    yield from one(short, long, options=amp, autocast=True)
    yield from one(options=fp32 + ["--set", "recipe.optimizer_fused=true"], fused=True)
    yield from one(short, long, deep, kind="fsdp1", strategy="fsdp1")
    yield from one(short, deep, kind="fsdp1", strategy="fsdp1-grad-op")
    yield from one(short, deep, kind="fsdp1", strategy="fsdp1-noshard")
    yield from one(kind="fsdp1", strategy="fsdp1", orig=False,
                   options=["--set", "recipe.use_orig_params=false"])
    yield from one(short, deep, kind="fsdp1", strategy="fsdp1", reduce=BF16,
                   options=["--reduce-dtype", "bf16"])
    yield from one(kind="fsdp1", strategy="fsdp1", accumulate=2)
    yield from one(short, long, deep, kind="fsdp2", strategy="fsdp2")
    yield from one(short, deep, kind="fsdp2", strategy="fsdp2-noreshard")
    yield from one(deep, kind="fsdp2", strategy="fsdp2", accumulate=2)
    for shard in (2, 4):
        group = ["--shard-group", str(shard)]
        for name in ("fsdp1-hybrid", "fsdp1-hybrid-zero2"):
            yield from one(short, deep, kind="fsdp1", strategy=name, shard=shard, options=group)
        yield from one(short, deep, kind="fsdp2", strategy="hsdp", shard=shard, options=group)
        yield from one(short, deep, kind="fsdp2", strategy=f"fsdp2-reshard={shard}")
    yield from one(deep, kind="fsdp2", strategy="fsdp2-reshard=2", accumulate=2)
    cpu = ["--offload-param", "cpu", "--offload-optimizer", "cpu"]
    yield from one(short, deep, kind="fsdp2", strategy="fsdp2", offload=True, options=cpu)
    yield from one(deep, kind="fsdp2", strategy="fsdp2", offload=True, accumulate=2, options=cpu)


def main():
    dist.init_process_group("fake", rank=0, world_size=WORLD, store=FakeStore())
    only = [a for a in sys.argv[1:] if not a.startswith("-")]
    out = {"versions": {"torch": torch.__version__}, "gpus": WORLD, "cases": []}
    for case in cases():
        if only and case["strategy"] not in only:
            continue
        extra = ["--seq", str(case["seq"]), "--grad-accum", str(case["accumulate"])]
        row = {"model": case["model"], "strategy": case["strategy"], "options": case["options"] + extra}
        row.update(record(case))
        out["cases"].append(row)
        print(row["strategy"], row["options"], row["peaks"], file=sys.stderr)
    json.dump(out, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
