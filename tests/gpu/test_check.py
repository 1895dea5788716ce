# SPDX-License-Identifier: Apache-2.0
"""check.sh's own logic on virtual GPUs: test_check.py CHECK SHARDBENCH-FAKEGPU SHARDPLAN NAME."""
import json
import os
import subprocess
import sys
import tempfile
import time

CHECK, BENCH, PLAN = map(os.path.abspath, sys.argv[1:4])


MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256,
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
         "hidden_act": "silu"}


def run(folder, status, deadline=150, path=None, **settings):
    env = dict(os.environ, CHECK_BENCH=BENCH, CHECK_PLAN=PLAN, CHECK_BYTES="64KiB", CHECK_SMALL="64KiB", CHECK_BUDGET="0.01s",
               CHECK_FLAGS="--force -n 3", CHECK_STORAGE="32MiB", CHECK_MODEL=os.path.join(folder, "config.json"),
               CHECK_DEADLINE=str(deadline), ASAN_OPTIONS="detect_leaks=0")
    env.update({"FAKEGPU_" + k.upper(): str(v) for k, v in settings.items()})
    os.makedirs(folder, exist_ok=True)
    with open(env["CHECK_MODEL"], "w") as f:
        json.dump(MODEL, f)
    if path:
        env["PATH"] = path + ":" + env["PATH"]
    begin = time.time()
    done = subprocess.run([CHECK, "run", folder], env=env, text=True, capture_output=True)
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert time.time() - begin < deadline + 15
    with open(os.path.join(folder, "check.json")) as f:
        out = json.load(f)
    assert out["schema"] == "shardplan.gpu-check/1"
    return out, {s["name"]: s for s in out["steps"]}


def all_well(folder):
    """Two GPUs: everything runs, a rival's figure stands beside ours, both rehearsals are there."""
    tool = os.path.join(folder, "nvbandwidth")
    with open(tool, "w") as f:
        f.write("#!/bin/sh\necho 'SUM host_to_device_memcpy_ce 10.5'\necho 'SUM device_to_host_memcpy_ce 9.5'\n")
    os.chmod(tool, 0o755)
    out, steps = run(os.path.join(folder, "out"), 0, path=folder, devices=2)
    passed = {n for n, s in steps.items() if s["status"] == "PASS"}
    assert {"device", "correctness", "copies", "kernels", "adam", "nvme", "nccl", "fit", "rehearse-cpu", "rehearse-nvme",
            "nvbandwidth"} <= passed, steps
    assert steps["gemm"]["status"] in ("PASS", "WAIVED") and steps["nccl-tests"]["status"] == "WAIVED"
    assert out["gpus"] == 2 and out["over_nvbandwidth"]["h2d"] > 0
    fitted = json.load(open(os.path.join(folder, "out", "fitted.json")))
    assert fitted["gpu"]["pcie_h2d_bytes_per_s"]["provenance"] == "fitted"


def hang(folder):
    """A GPU that stops answering is a failure, and the end comes in time."""
    out, steps = run(folder, 1, deadline=60, faults="hang:0:5")
    assert list(steps) == ["device"] and "did not finish" in steps["device"]["reason"], steps
    assert out["seconds"] < 60


def out_of_time(folder):
    """What there was no time for is said, step by step."""
    _, steps = run(folder, 1, deadline=3)
    assert [s for s in steps.values() if s["status"] == "TIMEOUT" and s["reason"] == "no time was left"], steps


def no_gpu(folder):
    _, steps = run(folder, 4, devices=0)
    assert list(steps) == ["device"] and steps["device"]["status"] == "WAIVED"
    assert "no usable GPU" in steps["device"]["reason"], steps


with tempfile.TemporaryDirectory() as scratch:
    globals()[sys.argv[4]](scratch)
print("ok")
