#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README's output blocks are what the program prints.

readme.py PROGRAM ROOT [--update]
A block is "    $ shardplan ..." and the indented lines after it.
"""
import difflib
import re
import shlex
import subprocess
import sys
from pathlib import Path


def printed(program, line):
    words = shlex.split(line)[1:]
    text = subprocess.run([program, *words], capture_output=True, text=True, timeout=120,
                          check=False).stdout
    return "".join(f"    {row}".rstrip() + "\n" for row in text.rstrip().split("\n"))


def main(program, root, update=None):
    program, path = str(Path(program).resolve()), Path(root) / "README.md"
    old = path.read_text("utf-8")
    block = re.compile(r"^    \$ (shardplan .*)\n((?: {4}.*\n|\n(?= {4}))*)", re.M)
    new = block.sub(lambda m: f"    $ {m.group(1)}\n{printed(program, m.group(1))}", old)
    if update:
        path.write_text(new, "utf-8")
        return 0
    print("".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "README.md",
                                       "as printed")))
    if not block.search(old):
        print("README.md shows no output")
        return 1
    return 0 if old == new else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
