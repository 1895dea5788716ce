#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What DDP, FSDP1 and FSDP2 call in one steady step, by torch's own dispatcher.

usage: torch_collectives.py > golden/torch_collectives.json

One process plays rank 0 of 8 over torch's fake process group; a dispatch mode writes down every
c10d operator of a steady step in issue order: [kind, dtype, group size, bytes of the full buffer].
"""
import contextlib
import functools
import json
import re
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from decoder import Block, Decoder, config, loss_of

WORLD = 8
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
STEPS = {"ddp": 3, "fsdp1": 2, "fsdp2": 2}  # DDP rebuilds its buckets in the second


def tensors_of(x):
    return [t for y in x for t in tensors_of(y)] if isinstance(x, (list, tuple)) else [x]


class Recorder(TorchDispatchMode):
    """[kind, dtype, group size, bytes] of every collective; bytes are those of the full buffer."""

    # operator: (kind, position of the full buffer)
    FULL = {
        "_allgather_base_": ("all_gather", 0),
        "allgather_": ("all_gather", 0),  # FSDP1 on a CPU: the same buffer as a list of chunks
        "_reduce_scatter_base_": ("reduce_scatter", 1),
        "allreduce_": ("all_reduce", 0),
        "all_reduce": ("all_reduce", 0),
        "broadcast_": ("broadcast", 0),
    }

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented  # it unwraps itself first: what it then calls comes back here
        space, name = op.namespace, op._schema.name.split("::")[1]
        if space in ("c10d", "_c10d_functional") and name not in ("wait_tensor", "barrier"):
            kind, at = self.FULL[name]  # an operator this table lacks must not pass unseen
            full = tensors_of(args[at])
            size = sum(t.numel() * t.element_size() for t in full)
            self.calls.append([kind, NAMES[full[0].dtype], self.group_size(space, args), size])
        return op(*args, **(kwargs or {}))

    @staticmethod
    def group_size(space, args):
        if space == "_c10d_functional":
            return dist.distributed_c10d._resolve_process_group(args[2]).size()
        for a in args:
            if isinstance(a, torch.ScriptObject) and "ProcessGroup" in str(a._type()):
                return dist.ProcessGroup.unbox(a).size()
        raise TypeError("a collective without a process group")


def reduce_bucket(state, bucket):
    """DDP's own hook by hand: the fake group's work has no result that the built-in one can read."""
    dist.all_reduce(bucket.buffer())
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def fsdp1(model, strategy, shard, param, reduce):
    options = {"device_id": torch.device("cpu"), "auto_wrap_policy": ModuleWrapPolicy({Block})}
    if shard < WORLD:
        options["device_mesh"] = init_device_mesh(
            "cpu", (WORLD // shard, shard), mesh_dim_names=("replicate", "shard")
        )
    precision = MixedPrecision(param_dtype=param, reduce_dtype=reduce)
    return FullyShardedDataParallel(
        model, sharding_strategy=strategy, mixed_precision=precision, **options
    )


def mesh_of(shard):
    shape, names = ((WORLD,), ("shard",))
    if shard < WORLD:
        shape, names = (WORLD // shard, shard), ("replicate", "shard")
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def fsdp2(model, mesh, reshard, param, reduce):
    policy = MixedPrecisionPolicy(param_dtype=param, reduce_dtype=reduce)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def build(case):
    c, kind = config(case["model"]), case["kind"]
    torch.manual_seed(0)
    model = Decoder(c)
    param, reduce = case["param"], case["reduce"]
    if kind == "ddp":
        model = model.to(param)
        model = nn.parallel.DistributedDataParallel(model)
        model.register_comm_hook(None, reduce_bucket)
        return model
    if kind == "fsdp1":
        return fsdp1(model, case["sharding"], case["shard"], param, reduce)
    return fsdp2(model, mesh_of(case["shard"]), case["reshard"], param, reduce)


def clip(model, kind):
    if kind == "fsdp1":
        model.clip_grad_norm_(1.0)
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def quiet(model, case, last):
    """Accumulate without communication where the framework has the switch and the case asks."""
    if last or not case["no_sync"]:
        return contextlib.nullcontext()
    return model.no_sync()


def step(model, optimizer, case):
    tokens = torch.zeros(1, 4, dtype=torch.long)
    for micro in range(case["accumulate"]):
        with quiet(model, case, micro + 1 == case["accumulate"]):
            loss_of(model(tokens), tokens).backward()
    clip(model, case["kind"])
    optimizer.step()
    optimizer.zero_grad()


def record(case):
    model = build(case)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for _ in range(STEPS[case["kind"]] - 1):
        step(model, optimizer, case)
    with Recorder() as r:
        step(model, optimizer, case)
    return r.calls


def cases():
    bf16, fp32 = torch.bfloat16, torch.float32
    base = {
        "param": bf16,
        "reduce": fp32,
        "shard": WORLD,
        "accumulate": 1,
        "no_sync": False,
        "options": [],
    }
    S = ShardingStrategy
    one = functools.partial(dict, base)
    yield one(strategy="ddp", kind="ddp")
    yield one(strategy="ddp", kind="ddp", param=fp32, options=["--precision", "fp32"])
    yield one(strategy="ddp", kind="ddp", accumulate=2, no_sync=True)
    for name, sharding, shard in (
        ("fsdp1", S.FULL_SHARD, WORLD),
        ("fsdp1-grad-op", S.SHARD_GRAD_OP, WORLD),
        ("fsdp1-noshard", S.NO_SHARD, WORLD),
        ("fsdp1-hybrid", S.HYBRID_SHARD, 4),
        ("fsdp1-hybrid-zero2", S._HYBRID_SHARD_ZERO2, 4),
    ):
        group = ["--shard-group", str(shard)] if shard < WORLD else []
        yield one(strategy=name, kind="fsdp1", sharding=sharding, shard=shard, options=group)
    yield one(
        strategy="fsdp1",
        kind="fsdp1",
        sharding=S.FULL_SHARD,
        reduce=bf16,
        options=["--reduce-dtype", "bf16"],
    )
    yield one(strategy="fsdp1", kind="fsdp1", sharding=S.FULL_SHARD, accumulate=2)
    yield one(
        strategy="fsdp1",
        kind="fsdp1",
        sharding=S.FULL_SHARD,
        accumulate=2,
        no_sync=True,
        options=["--set", "recipe.no_sync=true"],
    )
    for name, reshard, shard in (
        ("fsdp2", True, WORLD),
        ("fsdp2-noreshard", False, WORLD),
        ("fsdp2-reshard=2", 2, WORLD),
        ("fsdp2-reshard=4", 4, WORLD),
        ("hsdp", True, 4),
        ("hsdp", True, 2),
    ):
        group = ["--shard-group", str(shard)] if shard < WORLD else []
        yield one(strategy=name, kind="fsdp2", reshard=reshard, shard=shard, options=group)
    yield one(
        strategy="fsdp2",
        kind="fsdp2",
        reshard=True,
        reduce=bf16,
        options=["--reduce-dtype", "bf16"],
    )
    yield one(strategy="fsdp2", kind="fsdp2", reshard=True, accumulate=2)
    yield one(strategy="hsdp", kind="fsdp2", reshard=True, shard=4, accumulate=2)


def dump(out):
    """JSON with one call a line."""
    text = json.dumps(out, indent=1)
    return re.sub(r"\[\s+(\"\w+\"),\s+(\"\w+\"),\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2, \3, \4]", text)


def main():
    dist.init_process_group("fake", rank=0, world_size=WORLD, store=FakeStore())
    out = {"versions": {"torch": torch.__version__}, "gpus": WORLD, "cases": []}
    for model in sys.argv[1:] or ("small", "medium"):
        for case in cases():
            case["model"] = model
            options = case["options"] + ["--grad-accum", str(case["accumulate"])]
            if case["shard"] < WORLD and "--shard-group" not in options:
                options += ["--shard-group", str(case["shard"])]
            row = {"model": model, "strategy": case["strategy"], "options": options}
            row["calls"] = record(case)
            out["cases"].append(row)
            print(model, case["strategy"], len(row["calls"]), file=sys.stderr)
    print(dump(out))


if __name__ == "__main__":
    main()
