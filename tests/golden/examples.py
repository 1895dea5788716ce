#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run every example of every command's help and of README; plan with every file in the documents.

examples.py PROGRAM ROOT
An example that asks for hardware which is not here ends with status 4 and counts as run.
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ANSWERED = {0, 1, 4}
OTHER_PROGRAMS = {"shardbench": "bench", "shardreport": "report"}  # and the commands that start them
TIMEOUT_S = 120


def run(program, arguments, folder):
    return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True,
                          timeout=TIMEOUT_S, check=False)


def commands(program):
    """Words of each command; those of bench have their own help."""
    def listed(*words):
        text = run(program, [*words, "--help"], ".").stdout
        return re.findall(r"^  ([a-z][a-z-]*) {2,}\S", text, re.M)
    return [[name] for name in listed()] + [["bench", name] for name in listed("bench")]


def examples(program, command):
    text = run(program, [*command, "--help"], ".").stdout
    block = text.split("\nExamples:\n")[1:]
    lines = block[0].split("\n\n")[0].splitlines() if block else []
    return [line.strip() for line in lines if line.strip()]


def readme_examples(root):
    for block in re.findall(r"(?:^ {4}.*\n)+", (root / "README.md").read_text("utf-8"), re.M):
        for line in block.splitlines():
            match = re.match(r" {4}(?:\$ )?(?:scripts/run\.sh|shardplan) ([^#\s][^#]*)", line)
            if match:
                yield "shardplan " + match.group(1).strip()


def check(program, line, folder):
    words = shlex.split(line)
    if words[0] in OTHER_PROGRAMS:
        words[:1] = ["shardplan", OTHER_PROGRAMS[words[0]]]
    if words[0] != "shardplan":
        return [f"{line}: does not start with the program's name"]
    try:
        done = run(program, words[1:], folder)
        if "this build is not optimised" in done.stderr:
            done = run(program, [*words[1:], "--force"], folder)
    except subprocess.TimeoutExpired:
        return [f"{line}: no answer within {TIMEOUT_S} s"]
    if done.returncode not in ANSWERED:
        return [f"{line}: status {done.returncode}\n{done.stderr[-600:]}"]
    print(f"{done.returncode}  {line}")
    return []


def documented_files(root):
    """Indented blocks of a document that are one JSON object."""
    for name in ("CONTRIBUTING.md", "docs/formats.md"):
        for block in re.findall(r"(?:^ {4}.*\n)+", (root / name).read_text("utf-8"), re.M):
            try:
                value = json.loads(block)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield name, value


def check_file(program, value, folder, root):
    """A GPU joins a copy of the catalog, a cluster is planned for as it is."""
    if str(value.get("schema", "")).startswith("shardplan.gpu/"):
        catalog = Path(folder) / "catalog"
        shutil.copytree(root / "models", catalog, dirs_exist_ok=True)
        (catalog / "gpus" / (value["id"] + ".json")).write_text(json.dumps(value), "utf-8")
        cluster, environment = "8x" + value["id"], {**os.environ, "SHARDPLAN_CATALOG": catalog}
    else:
        path = Path(folder) / "cluster.json"
        path.write_text(json.dumps(value), "utf-8")
        cluster, environment = path, dict(os.environ)
    done = subprocess.run([program, "plan", "llama-3-8b", cluster], cwd=folder, env=environment,
                          capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return [] if done.returncode in (0, 1) else [f"{value}: {done.stderr[-600:]}"]


def main(program, root):
    program, root, faults, count = str(Path(program).resolve()), Path(root), [], 0
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(root / "models", Path(folder) / "models")
        os.symlink(root / "tests", Path(folder) / "tests")
        lines = list(readme_examples(root))
        for command in commands(program):
            found = examples(program, command)
            if not found:
                faults.append(f"{' '.join(command)} --help shows no example")
            lines += [line for line in found if line not in lines]
        for line in lines:
            count += 1
            faults += check(program, line, folder)
        for name, value in documented_files(root):
            count += 1
            faults += [f"{name}: {text}" for text in check_file(program, value, folder, root)]
    print("\n".join(faults))
    print(f"{count} examples, {len(faults)} faults")
    return 1 if faults or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
