#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What DeepSpeed's ZeRO calls in one steady step, on CPU ranks over gloo.

usage: deepspeed_calls.py OUT.json [STRATEGY or case...]

Every rank trains transformers' Llama; rank 0 writes down what reaches deepspeed.comm's backend in
the fourth step (prefetching starts in the second): [kind, dtype, group size, bytes of the full
buffer]. API calls are counted, not what gloo does underneath.
"""
import json
import os
import re
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import torch
import torch.multiprocessing as mp

from decoder import config

STEPS = 4
PORT = 20000 + os.getpid() % 10000  # two oracles may run at once
NAMES = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.uint8: "uint8",
    torch.int64: "int64",
}

# method of the backend: (kind, position of the full buffer)
METHODS = {
    "all_reduce": ("all_reduce", 0),
    "inference_all_reduce": ("all_reduce", 0),
    "reduce": ("reduce", 0),
    "broadcast": ("broadcast", 0),
    "all_gather_into_tensor": ("all_gather", 0),
    "reduce_scatter_tensor": ("reduce_scatter", 1),
    "all_to_all_single": ("all_to_all", 0),
}
LISTS = {"all_gather": ("all_gather", 0), "reduce_scatter": ("reduce_scatter", 1)}


class Recorder:
    def __init__(self, backend):
        self.calls, self.on = [], False
        for name, what in {**METHODS, **LISTS}.items():
            setattr(backend, name, self.wrap(getattr(backend, name), *what))

    def wrap(self, call, kind, at):
        def recorded(*args, **kwargs):
            if self.on:
                full = args[at] if len(args) > at else list(kwargs.values())[at]
                full = full if isinstance(full, (list, tuple)) else [full]
                size = sum(t.numel() * t.element_size() for t in full)
                group = torch.distributed.get_world_size(kwargs.get("group"))
                self.calls.append([kind, NAMES[full[0].dtype], group, size])
            return call(*args, **kwargs)

        return recorded


def settings(case):
    zero = dict(case["zero"])
    zero["overlap_comm"] = False  # the calls are the same; a CPU has no streams
    c = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": case["accumulate"],
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,
        "gradient_clipping": 1.0,
    }
    c.update(case["other"])
    return c


def engine_of(case, **optimizer_options):
    import deepspeed
    from transformers import LlamaConfig, LlamaForCausalLM

    c = dict(config(case["model"]))
    c.pop("model_type")
    torch.manual_seed(0)
    ds_config = settings(case)
    build = lambda: LlamaForCausalLM(LlamaConfig(**c))
    if ds_config["zero_optimization"]["stage"] == 3:
        with deepspeed.zero.Init(config_dict_or_path=ds_config):
            model = build()
    else:
        model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **optimizer_options)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=ds_config)[0]


recorders = []


def train(case):
    from deepspeed.comm import comm

    engine = engine_of(case)
    if not recorders:
        recorders.append(Recorder(comm.cdb))
    recorder = recorders[0]
    tokens = torch.zeros(1, 8, dtype=torch.long)
    for step in range(STEPS):
        recorder.on = step == STEPS - 1
        for _ in range(case["accumulate"]):
            engine.backward(engine(input_ids=tokens, labels=tokens, use_cache=False).loss)
            engine.step()
    recorder.on = False
    engine.destroy()
    calls, recorder.calls = recorder.calls, []
    return calls


def rank_main(rank, world, cases, out, each):
    import warnings

    warnings.filterwarnings("ignore")
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1"
    )
    os.environ.update(MASTER_PORT=str(PORT + world), LOCAL_SIZE=str(world))
    torch.set_num_threads(1)
    import deepspeed

    # An extension for CPU inference that would be compiled now.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    results = []
    for case in cases:
        results.append(each(case))
        if rank == 0:
            print(world, case["strategy"], case["name"], file=sys.stderr, flush=True)
    if rank == 0:
        json.dump(results, open(out, "w"))
    torch.distributed.destroy_process_group()


def cases():
    bf16 = {"bf16": {"enabled": True}}
    cpu = {"device": "cpu", "pin_memory": False}

    def one(name, strategy, model="small", accumulate=1, other=None, **zero):
        return {
            "name": name,
            "strategy": strategy,
            "model": model,
            "accumulate": accumulate,
            "other": other or bf16,
            "zero": {"stage": int(strategy[-1]), **zero},
        }

    small = {"reduce_bucket_size": 30000}
    for s in ("zero1", "zero2"):
        for model in ("small", "tied"):
            yield one("defaults", s, model)
            yield one("small bucket", s, model, **small)
        yield one("accumulation", s, accumulate=3, **small)
        yield one("cpu optimizer", s, offload_optimizer=cpu, **small)
        yield one("cpu optimizer, accumulation", s, accumulate=2, offload_optimizer=cpu, **small)
        yield one("one reduce per owner", s, use_multi_rank_bucket_allreduce=False, **small)
        yield one("fp32", s, other={"bf16": {"enabled": False}}, **small)
    fp32_sum = {**bf16, "data_types": {"grad_accum_dtype": "fp32"}}
    yield one("fp32 accumulation", "zero1", other=fp32_sum, accumulate=2)
    narrow = {
        "reduce_bucket_size": 30000,
        "stage3_prefetch_bucket_size": 8000,
        "stage3_max_live_parameters": 60000,
        "stage3_max_reuse_distance": 0,
        "stage3_param_persistence_threshold": 100,
    }
    for model in ("small", "tied"):
        yield one("defaults", "zero3", model)
        yield one("narrow", "zero3", model, **narrow)
        reuse = {**narrow, "stage3_max_reuse_distance": 50000}
        yield one("reuse distance", "zero3", model, **reuse)
        off = {**narrow, "stage3_prefetch_bucket_size": 0}
        yield one("no prefetch", "zero3", model, **off)
        wide = {**narrow, "stage3_max_live_parameters": 10**9}
        yield one("wide live", "zero3", model, **wide)
    yield one("accumulation", "zero3", accumulate=2, **narrow)
    yield one("cpu optimizer", "zero3", offload_optimizer=cpu, **narrow)
    yield one("cpu optimizer and parameters", "zero3", offload_optimizer=cpu, offload_param=cpu, **narrow)
    yield one("sub-groups", "zero3", sub_group_size=20000, **narrow)
    yield one("all-reduce", "zero3", reduce_scatter=False, **narrow)


def dump(out):
    """JSON with one call a line."""
    call = r"\[\s+(\"\w+\"),\s+(\"\w+\"),\s+(\d+),\s+(\d+)\s+\]"
    return re.sub(call, r"[\1, \2, \3, \4]", json.dumps(out, indent=1))


def run(wanted, worlds, each):
    """`each(case)` of rank 0, for every number of ranks and case; JSON's own types only."""
    for world in worlds:
        path = f"/tmp/deepspeed_oracle_{os.getpid()}_{world}.json"
        # Forked: the imports above are most of the work.
        mp.start_processes(
            rank_main, (world, wanted, path, each), nprocs=world, start_method="fork"
        )
        with open(path) as f:
            results = json.load(f)
        os.remove(path)
        yield from ((world, case, result) for case, result in zip(wanted, results))


def versions():
    import deepspeed
    import transformers
    from transformers import LlamaForCausalLM  # noqa: F401, loaded before the ranks fork

    return {
        "torch": torch.__version__,
        "deepspeed": deepspeed.__version__,
        "transformers": transformers.__version__,
    }


def main():
    file, *only = sys.argv[1:]  # DeepSpeed's log goes to stdout
    wanted = [c for c in cases() if not only or c["strategy"] in only or c["name"] in only]
    out = {"versions": versions(), "cases": []}
    for world, case, calls in run(wanted, (2, 4), train):
        row = {k: case[k] for k in ("name", "model", "strategy")}
        row.update(gpus=world, config=settings(case), calls=calls)
        out["cases"].append(row)
    with open(file, "w") as f:
        f.write(dump(out) + "\n")


if __name__ == "__main__":
    main()
