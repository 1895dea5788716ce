#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every reader's refusals, word for word: refusals.json holds what each bad input is answered.

usage: refusals.py [--write]     (--write renews refusals.json: read the difference)

The second test goes the other way: every message in the readers' sources is met by some case, but
for those that no file can provoke.
"""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

PROGRAM = os.environ["SHARDPLAN_PROGRAM"]
ROOT = os.environ["SHARDPLAN_SOURCE_ROOT"]
GOLDEN = os.path.join(ROOT, "tests", "golden", "refusals.json")
COMMANDS = {  # reader: (file name, command line; FILE and FOLDER stand for the input's)
    "model": ("config.json", ["plan", "FILE", "dgx-a100"]),
    "cluster": ("cluster.json", ["plan", "llama-2-7b", "FILE"]),
    "deepspeed": ("ds_config.json", ["plan", "llama-2-7b", "dgx-a100", "--config", "FILE"]),
    "accelerate": ("accelerate.yaml", ["plan", "llama-2-7b", "dgx-a100", "--config", "FILE"]),
    "fsdp2": ("fsdp2.json", ["plan", "llama-2-7b", "dgx-a100", "--config", "FILE"]),
    "torchtitan": ("job.toml", ["plan", "llama-2-7b", "dgx-a100", "--config", "FILE"]),
    "measurement": ("m.json", ["fit", "FILE", "--cluster", "dgx-a100", "-o", "FOLDER/out.json"]),
    "import": ("log", ["catalog", "import", "FILE"]),
    "safetensors": ("model.safetensors", ["plan", "FOLDER", "dgx-a100"]),
    "shards": ("model.safetensors.index.json", ["plan", "FOLDER", "dgx-a100"]),
}
LLAMA = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
         "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 128,
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu",
         "tie_word_embeddings": True}


def config(**changes):
    c = {**LLAMA, **changes}
    return json.dumps({k: v for k, v in c.items() if v != "absent"})


def cluster(**changes):
    return json.dumps({"base": "dgx-a100", **changes})


def gpu(**changes):
    return json.dumps({"base": "dgx-a100", "gpu": {"base": "a100-sxm4-80gb", **changes}})


def figure(value, **more):
    return {"value": value, "provenance": "spec", "source": "test", **more}


def zero(**keys):
    return json.dumps({"bf16": {"enabled": True}, "zero_optimization": {"stage": 3, **keys}})


def result(**keys):
    r = {"kind": "all_reduce", "backend": "nccl", "median_s": 1e-3, **keys}
    r = {k: v for k, v in r.items() if v is not None}
    return json.dumps({"schema": "shardplan.measurement/1", "host": {}, "build": {}, "results": [r]})


def fsdp(**keys):
    return "distributed_type: FSDP\nfsdp_config:\n" + "".join(
        f"  fsdp_{k}: {v}\n" for k, v in keys.items())


def tensors(header, size=0):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(size)


def one(name="a", shape=(2, 2), begin=0, end=8, dtype="BF16"):
    return {name: {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}}


def inputs():
    """(reader, name, input)."""
    yield from (("model", *x) for x in models())
    yield from (("cluster", *x) for x in clusters())
    yield from (("deepspeed", *x) for x in deepspeeds())
    yield from (("accelerate", *x) for x in accelerates())
    yield from (("fsdp2", *x) for x in fsdp2s())
    yield from (("torchtitan", *x) for x in torchtitans())
    yield from (("measurement", *x) for x in measurements())
    yield from (("import", *x) for x in imports())
    yield from (("safetensors", *x) for x in weights())
    yield from (("shards", *x) for x in shards())


def models():
    yield "empty", ""
    yield "not JSON", '{"a": 1,\n "b" 2}'
    yield "a key twice", '{"model_type": "llama",\n "model_type": "llama"}'
    yield "not an object", "[1]"
    yield "no type", "{}"
    yield "a type that is a number", '{"model_type": 3}'
    yield "unknown type", '{"model_type": "clip"}'
    yield "encoder-decoder", '{"model_type": "t5", "is_encoder_decoder": true}'
    yield "negative layers", config(num_hidden_layers=-1)
    yield "text for layers", config(num_hidden_layers="two")
    yield "half a layer", config(num_hidden_layers=1.5)
    yield "no layers", config(num_hidden_layers="absent")
    yield "too many layers", config(num_hidden_layers=10**7)
    yield "more than any", config(num_hidden_layers=10**9)
    yield "number too large", '{"model_type": "llama", "num_hidden_layers": 1e400}'
    yield "beyond 64 bits", config(num_hidden_layers=2**65)
    yield "heads", config(num_attention_heads=7)
    yield "key-value heads", config(num_key_value_heads=3)
    yield "flag", config(tie_word_embeddings="yes")
    yield "dropout", json.dumps({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 1,
                                 "vocab_size": 10, "n_positions": 8, "resid_pdrop": 1.5})
    yield "type of tensors", config(torch_dtype="int3")
    yield "two names, two values", json.dumps({"model_type": "gpt2", "n_embd": 64, "hidden_size": 32,
                                               "n_head": 4, "n_layer": 1, "vocab_size": 10,
                                               "n_positions": 8})
    yield "stated parameters", config(_shardplan={"source": "x", "parameters": 5})
    moe = {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2,
           "moe_intermediate_size": 32}
    yield "every other layer of experts", config(**moe, decoder_sparse_step=2)
    yield "dense layers not a list", config(**moe, mlp_only_layers=3)
    yield "dense layers not first", config(**moe, mlp_only_layers=[1])
    yield "more experts per token than experts", config(**{**moe, "num_experts_per_tok": 9})
    yield "dense layers beyond the model", config(**moe, mlp_only_layers=[0, 1])
    deep = {"model_type": "deepseek_v3", "n_routed_experts": 4, "num_experts_per_tok": 2,
            "moe_intermediate_size": 32, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 1}
    yield "shared experts", config(**{**deep, "n_shared_experts": 9})
    yield "latent attention", config(**{**deep, "kv_lora_rank": "absent"})
    yield "learned positions", json.dumps({"model_type": "gpt2", "n_embd": 64, "n_head": 4,
                                           "n_layer": 1, "vocab_size": 10, "n_positions": 0})


def clusters():
    yield "not an object", "3"
    yield "unknown key", cluster(gpus_per_nod=3)
    yield "a key like none", cluster(zzzzzzzzzzzz=3)
    yield "unknown base", '{"base": "dgx-a10"}'
    yield "no GPU", '{"name": "x", "nodes": 1, "gpus_per_node": 8}'
    yield "nodes", cluster(nodes=0)
    yield "too many nodes", cluster(nodes=10**9)
    yield "GPUs not even", cluster(nodes=2, gpus=9)
    yield "switches", cluster(gpus_per_pcie_switch=0)
    yield "fabric", cluster(intra_fabric="nvlinkk")
    yield "another fabric", cluster(inter_fabric="pigeon")
    yield "fits", cluster(fits=3)
    yield "a fit's collective", cluster(fits=[{"collective": "gather"}])
    yield "figure as text", cluster(host_memory_bytes="1TB")
    yield "figure below zero", cluster(host_memory_bytes=figure(-1))
    yield "provenance", cluster(host_memory_bytes={"value": 1, "provenance": "guess"})
    yield "interval", cluster(host_memory_bytes=figure(5, low=6, high=7))
    yield "name", cluster(name=3)
    yield "flag", cluster(assumed_host=3)
    yield "GPU of another form", json.dumps({"base": "dgx-a100", "gpu": 3})
    yield "GPU unknown", json.dumps({"base": "dgx-a100", "gpu": "a101-sxm4-80gb"})
    yield "GPU key", gpu(memory_byte=1)
    yield "GPU figure", gpu(hbm_bytes_per_s=figure(0))
    yield "GPU count", gpu(nvlink_count=10**9)
    yield "GPU kernels", gpu(kernels={"eager": {"gemm_fraction": figure(-1)}})
    yield "GPU kernel's name", gpu(kernels={"eager": {"gemm_fractio": figure(1)}})
    yield "GPU without id", json.dumps({"name": "x", "nodes": 1, "gpus_per_node": 1,
                                        "gpu": {"name": "y"}})
    yield "GPU without memory", json.dumps({"name": "x", "nodes": 1, "gpus_per_node": 1,
                                            "gpu": {"id": "y", "name": "y"}})


def deepspeeds():
    yield "empty", " "
    yield "not text", b"\x00\x01\x02"
    yield "too long", " " * 2**20 + "{}"
    yield "a list", "[]"
    yield "stage", '{"zero_optimization": {"stage": 4}}'
    yield "stage as text", '{"zero_optimization": {"stage": "three"}}'
    yield "zero's unknown key", zero(stage3_prefetch_bucket_sise=1)
    yield "a key like none", zero(zzzzzzzzzzzzzzzz=1)
    yield "whole number", zero(reduce_bucket_size="many")
    yield "number", '{"gradient_clipping": "a"}'
    yield "flag", zero(contiguous_gradients="maybe")
    yield "text", '{"zero_optimization": {"stage": 3, "offload_param": {"device": 3}}}'
    yield "device", '{"zero_optimization": {"stage": 3, "offload_param": {"device": "disk"}}}'
    yield "micro-batch", '{"train_micro_batch_size_per_gpu": 0}'
    yield "optimizer", '{"optimizer": {"type": 3}}'
    yield "overlap", zero(overlap_comm="perhaps")
    yield "legacy stage 1", '{"zero_optimization": {"stage": 1, "legacy_stage1": true}}'
    yield "old offload", zero(cpu_offload="perhaps")
    yield "section", '{"zero_optimization": {"stage": 3, "offload_optimizer": 3}}'
    yield "too many keys", json.dumps({f"k{i}": 0 for i in range(10001)})
    yield "hpz", zero(zero_hpz_partition_size=0, zero_quantized_weights=True)
    yield "enabled", '{"bf16": {"enabled": "perhaps"}}'
    yield "autocast's type", '{"torch_autocast": {"enabled": true, "dtype": "int8"}}'
    yield "both types", '{"bf16": {"enabled": true}, "fp16": {"enabled": true}}'
    yield "ratio below stage 3", json.dumps({"zero_optimization": {
        "stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}})
    yield "ratio", json.dumps({"zero_optimization": {
        "stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 2}}})
    yield "own part", '{"zero_optimization": {"stage": 3}, "_shardplan": 3}'
    yield "own field's form", '{"zero_optimization": {"stage": 3}, "_shardplan": {"seq": 3}}'
    yield "own field", '{"zero_optimization": {"stage": 3}, "_shardplan": {"sek": "3"}}'
    yield "own value", '{"zero_optimization": {"stage": 3}, "_shardplan": {"seq": "x"}}'


def accelerates():
    yield "not YAML", "a: [1\nb: 2"
    yield "not a map", "- a\n- b"
    yield "key of another form", "? [a]\n: 1\n"
    yield "unknown key", "distributed_type: FSDP\nmixed_precisio: bf16\n"
    yield "a key like none", "distributed_type: FSDP\nzzzzzzzzzzzz: bf16\n"
    yield "distributed type", "distributed_type: TPU\n"
    yield "precision", "distributed_type: MULTI_GPU\nmixed_precision: int8\n"
    yield "version", fsdp(version=3)
    yield "reshard", fsdp(version=2, reshard_after_forward="FULL_SHARD")
    yield "strategy", fsdp(sharding_strategy="HALF_SHARD")
    yield "wrap", fsdp(auto_wrap_policy="MOST")
    yield "smallest unit", fsdp(auto_wrap_policy="SIZE_BASED_WRAP", min_num_params="few")
    yield "prefetch", fsdp(backward_prefetch="SOON")
    yield "forward prefetch", fsdp(forward_prefetch="soon")
    yield "state dict", fsdp(state_dict_type="HALF")
    yield "offload", fsdp(offload_params="soon")
    yield "checkpointing", fsdp(activation_checkpointing="soon")
    yield "loading without synchronising", fsdp(cpu_ram_efficient_loading="true",
                                                sync_module_states="false")
    deep = "distributed_type: DEEPSPEED\ndeepspeed_config:\n"
    yield "stage", deep + "  zero_stage: 7\n"
    yield "accumulation", deep + "  zero_stage: 2\n  gradient_accumulation_steps: none\n"
    yield "clip", deep + "  zero_stage: 2\n  gradient_clipping: some\n"
    yield "device", deep + "  zero_stage: 2\n  offload_optimizer_device: disk\n"
    yield "zero.Init", deep + "  zero_stage: 3\n  zero3_init_flag: soon\n"
    yield "a file that is missing", deep + "  deepspeed_config_file: x.json\n"


def fsdp2s():
    yield "no part", '{"fully_shard": 3}'
    yield "reshard to 1", '{"fully_shard": {"reshard_after_forward": 1}}'
    yield "reshard's form", '{"fully_shard": {"reshard_after_forward": "yes"}}'
    yield "policy's form", '{"fully_shard": {"mp_policy": 3}}'
    yield "policy's type", '{"fully_shard": {"mp_policy": {"param_dtype": "int8"}}}'
    yield "policy's key", '{"fully_shard": {"mp_policy": {"param_dtyp": "bf16"}}}'
    yield "offload", '{"fully_shard": {"offload_policy": 3}}'
    yield "mesh", '{"fully_shard": {}, "mesh": 3}'
    yield "mesh's axis", '{"fully_shard": {}, "mesh": {"replicate": "x"}}'
    yield "unknown key", '{"fully_shard": {}, "mash": 3}'
    yield "own part", '{"fully_shard": {}, "_shardplan": 3}'
    yield "own field's form", '{"fully_shard": {}, "_shardplan": {"seq": 3}}'
    yield "own field", '{"fully_shard": {}, "_shardplan": {"sek": "3"}}'


def torchtitans():
    yield "section", "[training\nseq_len = 3\n"
    yield "assignment", "[training]\nseq_len 3\n"
    yield "recomputation", '[activation_checkpoint]\nmode = "some"\n'
    yield "degree", '[parallelism]\ndata_parallel_replicate_degree = "x"\n'
    yield "type", '[training]\nmixed_precision_param = "int8"\n'
    yield "length", '[training]\nseq_len = "x"\n'


def measurements():
    head = '{"schema": "shardplan.measurement/1", "host": {}, "build": {}}\n'
    yield "empty", ""
    yield "another tool's log", "# nThread 1 nGpus 8 minBytes 8\n"
    yield "a list", "[]"
    yield "schema missing", "{}"
    yield "another schema", '{"schema": "shardplan.plan/1"}'
    yield "no results", '{"schema": "shardplan.measurement/1", "results": 3}'
    yield "results missing", '{\n"schema": "shardplan.measurement/1"\n}'
    yield "unknown key", '{"schema": "shardplan.measurement/1", "resultz": []}'
    yield "result's form", '{"schema": "shardplan.measurement/1", "results": [3]}'
    yield "host's form", '{"schema": "shardplan.measurement/1", "host": 3, "results": []}'
    yield "no kind", result(kind=None)
    yield "no time", result(median_s=None)
    yield "time of zero", result(median_s=0)
    yield "samples' form", result(samples_s=3)
    yield "sample below zero", result(samples_s=[-1.0])
    yield "unknown field", result(busbw=3)
    yield "text behind", result() + " x"
    yield "a document behind", result() + "\n" + result()
    yield "a bad line", head + '{"kind": "copy"}\n' + '{"kind": "copy"}\n'
    yield "a broken line", head + '{"kind": \n{"kind": "copy"}\n'


def kernel(**changes):
    return json.dumps({"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1, "dur": 1, **changes})


def step(**changes):
    return json.dumps({"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#1", "ts": 1,
                       "dur": 1, **changes})


def trace(*events):
    return '{"traceEvents": [' + ", ".join(events) + "]}"


def segment(**changes):
    return '{"segments": [' + json.dumps({"total_size": 4096, **changes}) + "]}"


def history(events):
    return '{"segments": [], "device_traces": ' + json.dumps(events) + "}"


def profiles():
    yield "trace without events", '{"schemaVersion": 1}'
    yield "trace with other events", '{"traceEvents": 3}'
    yield "trace of numbers", '{"traceEvents": [3]}'
    yield "trace of the CPU", trace(kernel(cat="cpu_op"))
    yield "kernel without time", trace(kernel(ts="soon"))
    yield "step without time", trace(kernel(), step(dur=-1))
    yield "step without length", trace(kernel(), step(dur=0))
    yield "trace cut off", trace(kernel())[:-9]
    yield "trace packed", b"\x1f\x8b\x08\0\0\0\0\0"
    yield "trace in a string", '"traceEvents"'
    yield "trace of many steps", trace(kernel(), *(step(name=f"ProfilerStep#{i}")
                                                   for i in range(4097)))
    yield "snapshot pickled", b"\x80\x04\x95\0"
    yield "snapshot of nothing", '{"segments": []}'
    yield "snapshot without segments", '{"device_traces": []}'
    yield "snapshot in a string", '"segments"'
    yield "segment without a size", segment(total_size=-1)
    yield "segment of a far device", segment(device=99)
    yield "segment that is none", '{"segments": [3]}'
    yield "block that is none", segment(blocks=[3])
    yield "block without a size", segment(blocks=[{"state": "inactive"}])
    yield "history that is none", history([3])
    yield "history of many devices", history([[]] * 65)
    yield "event that is none", history([[3]])
    yield "event without a size", history([[{"action": "alloc", "addr": 1}]])
    yield "sizes beyond sums", segment(total_size=2**62)


def imports():
    yield from profiles()
    yield "unknown", "hello\n"
    yield "JSON of nobody", '{"a": 1}'
    yield "nvbandwidth without tests", '{"nvbandwidth": {}}'
    yield "nvbandwidth failed", json.dumps({"nvbandwidth": {"testcases": [
        {"name": "host_to_device_memcpy_ce", "status": "Error"}]}})
    yield "fio without jobs", '{"fio version": "fio-3"}'
    yield "fio of nothing", '{"fio version": "fio-3", "jobs": [{"jobname": "a", "error": 5}]}'
    yield "nccl-tests without results", '{"results": 3, "redop": 1}'
    yield "nccl-tests of nothing", '{"results": [], "x": {"redop": 1}}'
    yield "nccl-tests' time", json.dumps({"config": {}, "results": [
        {"size": 8, "count": 2, "type": "float", "redop": "sum", "root": "-1",
         "out_of_place": {"time": -1, "alg_bw": 1, "bus_bw": 1, "nwrong": 0}}]})
    yield "nccl-tests without rows", "# Avg bus bandwidth : 0\n algbw\n"
    yield "an encoding of its own", b"\xff\xfe GPU0 \xff\n"
    yield "XML", "<system><cpu></system>"
    yield "XML too deep", "<system>" * 200
    yield "XML without devices", "<system version='1'></system>"
    yield "bandwidth matrix", "Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n   D\\D     0\n"
    yield "gdsio", "IoType: READ Throughput: x\n"
    yield "matrix without header", "GPU0 NV12 x\nCPU Affinity\n"
    yield "matrix without GPU", "\tNIC0\tCPU Affinity\nGPU0\tX\n"
    yield "matrix without rows", "\tGPU0\tGPU1\tCPU Affinity\n"
    yield "peers without header", "GPU0 x\n"
    yield "peers with a card", "\tGPU0\tNIC0\tNIC1\tNIC2\nGPU0\tX\nNIC2\tOK\n"
    yield "peers cut off", "\tGPU0\tGPU1\nGPU0\tX\tOK\n"
    yield "peers' row", "\tGPU0\tGPU1\nGPU0\tX\nGPU1\tOK\tX\n"
    yield "peers' word", "\tGPU0\tGPU1\nGPU0\tX\tWHAT\nGPU1\tOK\tX\n"


def weights():
    yield "too short", b"abc"
    yield "header of another size", struct.pack("<Q", 10**9) + b"{}"
    yield "header not JSON", tensors(b"[]")
    yield "header cut", tensors(b'{"a": {')
    yield "no type", tensors(b'{"a": {"shape": [2], "data_offsets": [0, 4]}}', 4)
    yield "unknown type", tensors(one(dtype="B7"), 8)
    yield "shape", tensors(b'{"a": {"dtype": "BF16", "shape": [-2], "data_offsets": [0, 4]}}', 4)
    yield "offsets backwards", tensors(one(begin=8, end=0), 8)
    yield "offsets beyond", tensors(one(end=80), 8)
    yield "offsets and shape", tensors(one(end=6), 6)
    yield "overlap", tensors({**one(), **one("b", begin=4, end=12)}, 12)
    yield "twice", tensors(b'{"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]},'
                           b' "a": {"dtype": "BF16", "shape": [1], "data_offsets": [2, 4]}}', 4)


def shards():
    yield "no map", "{}"
    yield "map's form", '{"weight_map": 3}'
    yield "file's form", '{"weight_map": {"a": 3}}'
    yield "file elsewhere", '{"weight_map": {"a": "../x.safetensors"}}'
    yield "file missing", '{"weight_map": {"a": "none.safetensors"}}'
    yield "no tensor there", '{"weight_map": {"zz": "part.safetensors", "a": "part.safetensors"}}'
    yield "fewer names", '{"weight_map": {"a": "part.safetensors"}}'
    yield "twice", '{"weight_map": {"a": "part.safetensors", "c": "copy.safetensors"}}'
    yield "too many shards", json.dumps({"weight_map": {f"t{i}": f"s{i}.safetensors"
                                                        for i in range(20000)}})


def plain(text, folder):
    text = text.replace(folder + "/", "").replace(folder, ".")
    return text.replace(os.path.basename(folder), "FOLDER")


def answer(reader, data):
    name, words = COMMANDS[reader]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name)
        with open(path, "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        if reader in ("safetensors", "shards"):
            with open(os.path.join(folder, "config.json"), "w") as f:
                f.write(config())
        if reader == "shards":
            with open(os.path.join(folder, "part.safetensors"), "wb") as f:
                f.write(tensors({**one(), **one("b", begin=8, end=16)}, 16))
            with open(os.path.join(folder, "copy.safetensors"), "wb") as f:
                f.write(tensors({**one(), **one("c", begin=8, end=16)}, 16))
        words = [w.replace("FILE", path).replace("FOLDER", folder) for w in words]
        done = subprocess.run([PROGRAM, *words, "--quiet"], capture_output=True, text=True,
                              timeout=60)
        said = [x for x in plain(done.stderr, folder).splitlines()
                if not x.startswith("shardplan: warning")]
    return {"status": done.returncode, "said": said}


READERS = ("cluster_read", "figures", "gpu", "gpu_kernels", "import", "import_accelerate", "import_deepspeed",
           "import_json", "import_nccl_infer", "import_nccl_tests", "import_nccl_xml",
           "import_tables", "import_text", "import_topo", "import_torch", "measure", "model_read",
           "model_units", "profile", "profile_sum", "recipe_config", "safetensors", "snapshot",
           "snapshot_sum", "tool_json")
# What no small file provokes: memory, disk, sizes, or what an earlier check already caught.
UNREACHED = os.path.join(ROOT, "tests", "golden", "refusals_unreached.txt")


def arguments(text):
    """Of a call: split at the commas outside strings and parentheses."""
    out, depth, last, i = [], 0, 0, 0
    while i < len(text):
        if text[i] == '"':
            i = re.compile(r'"(?:[^"\\]|\\.)*"').match(text, i).end()
            continue
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if text[i] == "," and depth == 0:
            out.append(text[last:i])
            last = i + 1
        i += 1
    return out + [text[last:]]


def joined(text):
    """Adjacent literals as one; a macro between them stands for anything."""
    out = ""
    for literal, macro in re.findall(r'"((?:[^"\\]|\\.)*)"|(\b[A-Z]\w*)', text):
        out += re.sub(r"\\(.)", r"\1", literal) if not macro else "s" if out[-1:] == "%" else "%s"
    return out


def formats():
    """Every message of the readers' sources, as source:text."""
    for name in READERS:
        path = os.path.join(ROOT, "planner", "describe", name + ".c")
        text = open(path).read()
        for m in re.finditer(r"\b(?:err_set|json_fail|json_stream_fail|refuse)\(", text):
            depth, i = 1, m.end()
            while depth:
                if text[i] == '"':
                    i = re.compile(r'"(?:[^"\\]|\\.)*"').match(text, i).end()
                    continue
                depth += {"(": 1, ")": -1}.get(text[i], 0)
                i += 1
            call, args = m.group(0)[:-1], arguments(text[m.end() : i - 1])
            where = 3 if call == "refuse" else 2
            if len(args) > where and '"' in args[where]:
                for choice in re.split(r"[?:](?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", args[where]):
                    message = joined(choice)
                    if re.search("[a-z]{3}", message):
                        yield name + ".c", message


def met(message, texts):
    pattern = re.sub(r"%[-+0-9.*]*(?:ll|l|z|t)?[a-z]?", "\0", message)
    pattern = ".*".join(re.escape(x) for x in pattern.split("\0") if x)
    return any(re.search(pattern, t) for t in texts)


def main():
    now = {}
    for reader, name, data in inputs():
        now[f"{reader}: {name}"] = answer(reader, data)
    if "--write" in sys.argv:
        with open(GOLDEN, "w") as f:
            json.dump(now, f, indent=1, ensure_ascii=False)
            f.write("\n")
    golden, bad = json.load(open(GOLDEN)), []
    for key in sorted(set(golden) | set(now)):
        if golden.get(key) != now.get(key):
            bad.append(f"{key}:\n    golden {golden.get(key)}\n    now    {now.get(key)}")
        elif now[key]["status"] not in (2, 3) or len(now[key]["said"]) == 0:
            bad.append(f"{key}: not refused: {now[key]}")
    texts = [" ".join(x["said"]) for x in now.values()]
    known = [x.strip() for x in open(UNREACHED) if x.strip() and not x.startswith("#")]
    unmet = [f"{source}: {text}" for source, text in formats() if not met(text, texts)]
    bad += [f"no case meets {x}" for x in unmet if x not in known]
    bad += [f"refusals_unreached.txt lists what is met: {x}" for x in known if x not in unmet]
    print(*bad, sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
