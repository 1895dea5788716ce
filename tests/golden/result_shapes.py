#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every key that a command writes into its result stands in docs/formats.md.

result_shapes.py PROGRAM ROOT
"""
import json
import re
import subprocess
import sys
from pathlib import Path

COMMANDS = [
    ["plan", "llama-3-8b", "dgx-h100", "--tokens", "1e9"],
    ["plan", "llama-3-70b", "dgx-a100", "--lora-rank", "8"],
    ["simulate", "llama-3.2-1b", "dgx-a100", "--strategy", "zero3", "--jitter", "0.03"],
    ["advise", "llama-3.2-1b", "dgx-a100", "--nodes", "2"],
    ["sweep", "llama-3.2-1b", "dgx-a100", "--strategy", "fsdp2", "--range", "precision=bf16-mixed"],
    ["validate", "tests/fixtures/validation/runs.json", "--rows"],
    ["validate", "--collectives", "tests/fixtures/validation/collectives.json", "--rows"],
    ["accept", "--topology", "tests/fixtures/import/topo_03_8xA100_NV12.txt", "--cluster", "dgx-a100"],
]
OPEN = {"recipe", "space"}  # fields by their settable names, listed on their own


def keys(value, path=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            if path.rsplit(".", 1)[-1] in OPEN:
                return
            yield key, path + "." + key
            yield from keys(inner, path + "." + key)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner, path)


def main():
    program, root = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    known = set(re.findall(r"[A-Za-z0-9_]+", (root / "docs/formats.md").read_text("utf-8")))
    missing = {}
    for words in COMMANDS:
        done = subprocess.run([program, *words, "--json", "-", "--quiet"], cwd=root,
                              capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode in (0, 1), (words, done.returncode, done.stderr)
        seen = list(keys(json.loads(done.stdout)))
        assert len(seen) > 10, words
        for key, path in seen:
            if key not in known:
                missing.setdefault(path, words[0])
    for path, command in sorted(missing.items()):
        print(f"{command}: {path} is not in docs/formats.md")
    return 1 if missing else 0


sys.exit(main())
