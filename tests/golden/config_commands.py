#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: config_commands.py PROGRAM ROOT: check, emit and explain from the command line.

Exit statuses, the keys of their JSON as docs/formats.md lists them, and the way round from emit
over --config back to the same recipe.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

PROGRAM, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
WHERE = ["--model", "llama-3-8b", "--cluster", "dgx-h100"]
TRAP = {"bf16": {"enabled": True}, "scheduler": {"type": "WarmupLR"},
        "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_sise": 5e7,
                              "offload_optimizer": {"device": "nvme", "buffer_count": 2}}}
failures = 0


def need(ok, what):
    global failures
    if not ok:
        failures += 1
        print(f"FAILED: {what}")


def run(*arguments, status=0):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True,
                          cwd=ROOT, timeout=120, check=False)
    need(done.returncode == status,
         f"{' '.join(map(str, arguments))}: status {done.returncode}, not {status}: {done.stderr}")
    return done


def documented(section, *parts):
    text = (ROOT / "docs/formats.md").read_text("utf-8").split(f"## {section}\n")[1]
    text = text.split("\n## ")[0]
    return all(part in " ".join(text.split()) for part in parts)


def check_command(folder):
    path = folder / "ds.json"
    path.write_text(json.dumps(TRAP))
    result = json.loads(run("check", path, *WHERE, "--json", "-", status=1).stdout)
    keys = ["schema", "command", "config", "model", "cluster", "recipe", "errors", "warnings",
            "findings"]
    need(list(result) == keys, f"check's keys are {list(result)}")
    need(documented("check", *[f"`{k}" for k in ("command", "model", "errors", "warnings")],
                    "findings[]{id,severity,path,text,cost_bytes,cost_s,fix,"),
         "docs/formats.md does not list check's keys")
    found = {f["id"] for f in result["findings"] if f["severity"] == "error"}
    need(found == {"refused", "nvme-buffers"}, f"check found {found}")
    fixed = folder / "fixed.json"
    run("check", path, *WHERE, "--fix", fixed, status=1)
    after = json.loads(fixed.read_text())
    need(after["scheduler"] == TRAP["scheduler"], "--fix lost a key that was fine")
    need(after["zero_optimization"]["stage3_prefetch_bucket_size"] == 5e7, "--fix did not rename")
    run("check", fixed, *WHERE)
    run("check", path, status=2)
    run("check", folder / "none.json", *WHERE, status=3)
    script = folder / "launch.sh"
    script.write_text("export NCCL_P2P_DISABLE=1\n")
    run("check", "models/recipes/deepspeed-zero3.json", *WHERE, "--env", script, status=1)


def emit_command(folder):
    kinds = {"deepspeed": "zero3", "accelerate": "hsdp", "fsdp2": "hsdp", "torchtitan": "hsdp"}
    options = ["--micro-batch", "2", "--grad-accum", "4", "--recompute", "full", "--nodes", "2"]
    for kind, strategy in kinds.items():
        path = folder / f"emitted.{kind}"
        run("emit", kind, "llama-3-8b", "dgx-h100", "--strategy", strategy, *options, "-o", path)
        wanted = run("plan", "llama-3-8b", "dgx-h100", "--strategy", strategy, *options,
                     "--json", "-").stdout
        got = run("plan", "llama-3-8b", "dgx-h100", "--config", path, "--nodes", "2",
                  "--json", "-").stdout
        need(json.loads(wanted)["plans"][0]["recipe"] == json.loads(got)["plans"][0]["recipe"],
             f"emit {kind}: the plan of the file differs")
    run("emit", "torchtitan", "llama-3-8b", "dgx-h100", "--strategy", "zero3", status=2)
    run("emit", "yaml", "llama-3-8b", "dgx-h100", status=2)


def explain_command(folder):
    log = "tests/fixtures/deepspeed_log_lines.txt"
    result = json.loads(run("explain", log, "--model", "llama-2-7b", "--json", "-", status=1)
                        .stdout)
    need(list(result) == ["schema", "command", "model", "log", "first", "events"],
         f"explain's keys are {list(result)}")
    first = result["events"][result["first"]]
    need(first["kind"] == "gpu_out_of_memory", f"first is {first['kind']}")
    need(documented("explain", *[key for key in first if key != "causes"]),
         "docs/formats.md does not list explain's keys")
    quiet = folder / "quiet.log"
    quiet.write_text("step 1 loss 2.0\n")
    run("explain", quiet, "--model", "llama-2-7b")
    run("explain", quiet, status=2)
    run("explain", folder / "none.log", "--model", "llama-2-7b", status=3)


with tempfile.TemporaryDirectory() as name:
    check_command(pathlib.Path(name))
    emit_command(pathlib.Path(name))
    explain_command(pathlib.Path(name))
print("FAILED" if failures else "check, emit and explain answer as documented")
sys.exit(1 if failures else 0)
