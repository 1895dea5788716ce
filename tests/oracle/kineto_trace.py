#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A profiler trace as PyTorch writes it, trimmed, for tests/unit/test_profile.c.

usage: kineto_trace.py ddp|fsdp2 tests/fixtures/import/kineto_torch_cpu.json

Two gloo ranks on this machine's CPU train a toy model under torch.profiler with a schedule, stacks,
shapes and memory events; of rank 0's file every kind of event stays, at most FEW of each, without
those that name paths. There is no GPU in it: the test adds kernels.
"""
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.profiler import ProfilerActivity, profile, schedule

FEW, RANKS, PORT = 8, 2, "29671"


def model_of(mode):
    blocks = [nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(2)]
    model = nn.Sequential(nn.Embedding(100, 64), *blocks, nn.Linear(64, 100))
    if mode == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (RANKS,))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(rank, mode, path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=PORT)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    model = model_of(mode)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 100, (2, 16))

    def done(p):
        if rank == 0:
            p.export_chrome_trace(path)

    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
                 on_trace_ready=done, with_stack=True, record_shapes=True, profile_memory=True) as p:
        for _ in range(6):
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            p.step()
    dist.barrier()
    dist.destroy_process_group()


def trim(trace):
    seen, kept = {}, []
    for event in trace["traceEvents"]:
        kind = (event.get("ph"), event.get("cat"))
        always = event.get("name", "").startswith(("ProfilerStep", "gloo:", "c10d::"))
        if not always and (seen.get(kind, 0) >= FEW or "/" in json.dumps(event)):
            continue
        seen[kind] = seen.get(kind, 0) + 1
        kept.append(event)
    trace["traceEvents"] = kept
    trace["traceName"] = "trace.json"
    trace.pop("ERROR", None)  # that there is no GPU
    return trace


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "trace.json")
        mp.spawn(train, (sys.argv[1], file), RANKS)
        with open(file, encoding="utf-8") as f:
            trace = trim(json.load(f))
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        json.dump(trace, f, indent=1)
        f.write("\n")
