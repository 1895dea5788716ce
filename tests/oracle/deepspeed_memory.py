#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes that DeepSpeed's ZeRO holds in a steady step on CPU ranks, storage by storage.

usage: deepspeed_memory.py OUT.json [--places] [STRATEGY or case...]

The rank that holds most in forward and backward tells: the last one where gradients of its partition,
which holds the last parameters, come first, while every activation is still there.
"""
import gc
import json
import sys

import torch

from deepspeed_calls import engine_of, run, settings, versions
from ledger import HOST, Ledger, classes, states

RANKS = 2
SEQ = 64
STEPS = {"zero1": 2, "zero2": 2, "zero3": 3}  # stage 3 prefetches from the second on
ON_HOST = (
    "single_partition_of_fp32_groups", "param_buffer_of_bit16_for_cpu_offload_groups",
    "accumulated_grads_in_cpu", "temp_grad_buffer_for_cpu_offload", "fp32_partitioned_groups_flat",
    "grad_partitions_flat_buffer", "lp_param_contiguous_pin_buffer",
    "param_groups_fp16_flat_cpu_memory",
)
PLACES = {
    "partition_parameters.py:_all_gather_sequential": "gather",
    "partition_parameters.py:_allgather_params_coalesced": "gather",
    "partition_parameters.py:_all_gather_dtype": "gather",
    "partition_parameters.py:wait": "gather",
}


def tensors(x):
    """The tensors inside lists, dictionaries and DeepSpeed's bucket records."""
    if isinstance(x, torch.Tensor):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (list, tuple)):
        return [t for y in x for t in tensors(y)]
    return tensors(x.buffer) if hasattr(x, "buffer") else []


def on_host(engine):
    """What an offload keeps in host memory, by DeepSpeed's own names."""
    zero = engine.optimizer
    held = [t for name in ON_HOST for t in tensors(getattr(zero, name, None))]
    held += [t.grad for t in held if t.grad is not None]
    held += tensors(list(zero.optimizer.state.values()))
    if getattr(zero, "offload_param", False):
        held += [p.ds_tensor for p in engine.module.parameters()]
    return held


def name_states(ledger, engine):
    zero = engine.optimizer
    held = list(engine.module.parameters())
    if hasattr(held[0], "ds_tensor"):
        ledger.name([p.ds_tensor for p in held], "params")
    else:
        ledger.name(held, "params")
    # BF16_Optimizer keeps the other names.
    for name, label in (("single_partition_of_fp32_groups", "master"),
                        ("fp32_partitioned_groups_flat", "master"),
                        ("fp32_groups_flat_partition", "master"),
                        ("grad_partitions_flat_buffer", "grads"), ("averaged_gradients", "grads"),
                        ("fp32_groups_gradients_flat", "grads"), ("ipg_buckets", "bucket")):
        ledger.name(tensors(getattr(zero, name, None)), label)
    ledger.name([p.grad for p in held], "grads")
    ledger.name(tensors(list(getattr(zero, "optimizer", zero).state.values())), "optimizer")
    if ledger.offloads:
        ledger.name(on_host(engine), HOST)


def step_on_host(ledger, optimizer):
    """All that the optimizer makes is made on the host."""
    inner = optimizer.step

    def step(*args, **kwargs):
        ledger.everything = HOST
        done = inner(*args, **kwargs)
        ledger.everything = None
        return done

    optimizer.step = step


def step(ledger, engine, case):
    tokens = torch.zeros(1, SEQ, dtype=torch.long)
    for micro in range(case["accumulate"]):
        ledger.enter("forward")
        loss = engine(input_ids=tokens, labels=tokens, use_cache=False).loss
        ledger.enter("backward")
        engine.backward(loss)
        name_states(ledger, engine)
        after = ledger.account()
        if ledger.offloads:
            gc.collect()  # else what waits for it is most of a step
        ledger.enter("step" if micro + 1 == case["accumulate"] else None)
        engine.step()
        ledger.enter(None)
    name_states(ledger, engine)
    return after


def record(case):
    with Ledger() as ledger:
        engine = engine_of(case, fused=True)  # as DeepSpeed's own FusedAdam: no passing lists
        if "offload_optimizer" in case["zero"]:
            ledger.offloads = "up"
            name_states(ledger, engine)
            step_on_host(ledger, engine.optimizer.optimizer)
        for _ in range(STEPS[case["strategy"]]):
            ledger.peaks.clear()
            after = step(ledger, engine, case)
        engine.destroy()
    if "--places" in sys.argv and torch.distributed.get_rank() == 0:
        for phase, (total, account) in ledger.peaks.items():
            rows = sorted(account.items(), key=lambda x: -x[1])[:16]
            print(case["strategy"], phase, total, *rows, sep="\n  ", file=sys.stderr)
    own = {"after_backward": states(after),
           "peaks": {k: classes(v[1], PLACES) for k, v in ledger.peaks.items()}}
    ranks = [None] * RANKS
    torch.distributed.all_gather_object(ranks, own)
    return max(ranks, key=lambda r: max(r["peaks"][k]["total"] for k in ("forward", "backward")))


def cases():
    bf16 = {"bf16": {"enabled": True}}

    def one(name, strategy, accumulate=1, other=None, **zero):
        return {"name": name, "strategy": strategy, "model": "blocks", "accumulate": accumulate,
                "other": other or bf16, "zero": {"stage": int(strategy[-1]), **zero}}

    small = {"reduce_bucket_size": 500000}
    for s in ("zero1", "zero2"):
        yield one("buckets", s, **small)
        yield one("accumulation", s, accumulate=2, **small)
    yield one("not contiguous", "zero2", contiguous_gradients=False, **small)
    yield one("fp32", "zero2", other={"bf16": {"enabled": False}}, **small)
    fp32_sum = {**bf16, "data_types": {"grad_accum_dtype": "fp32"}}
    yield one("fp32 accumulation", "zero1", other=fp32_sum, accumulate=2, **small)
    narrow = {**small, "stage3_prefetch_bucket_size": 500000, "stage3_max_live_parameters": 2000000,
              "stage3_max_reuse_distance": 0, "stage3_param_persistence_threshold": 1000}
    yield one("narrow", "zero3", **narrow)
    yield one("all live", "zero3", **{**narrow, "stage3_max_live_parameters": 10**9})
    yield one("sub-groups", "zero3", sub_group_size=600000, **narrow)
    yield one("accumulation", "zero3", accumulate=2, **narrow)
    cpu = {"device": "cpu", "pin_memory": False}
    for s in ("zero1", "zero2"):
        yield one("cpu optimizer", s, offload_optimizer=cpu, **small)
        yield one("cpu optimizer, accumulation", s, accumulate=2, offload_optimizer=cpu, **small)
    yield one("cpu optimizer", "zero3", offload_optimizer=cpu, **narrow)
    yield one("cpu optimizer and parameters", "zero3", offload_optimizer=cpu, offload_param=cpu,
              **narrow)


def main():
    file, *only = [a for a in sys.argv[1:] if not a.startswith("--")]
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
